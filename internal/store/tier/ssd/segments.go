package ssd

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// shape is how a log cuts its room: docs/format/log.md, "Segment".
type shape struct {
	slotBytes uint32
	slots     uint32 // of a segment, at most
	sampleMax uint32
	cost      int64   // of all samples' records
	waste     float64 // bytes that a full slot cannot use, on average
	varies    float64 // by so much: its standard deviation
	extra     int64   // slots that are not for keeping: carry fills and frees some all the time
}

// shapeOf cuts for a dataset in directories of which the smallest may use so many bytes.
func shapeOf(c tier.Config, quota int64, dirs int) shape {
	s, slotBytes := c.Sizes, c.SlotBytes
	var largest uint32
	smallest := uint32(math.MaxUint32)
	var sum, squares float64
	for id := range s.Len() {
		size := s.Size(sample.ID(id))
		largest, smallest = max(largest, size), min(smallest, size)
		cost := float64(plan.RecordCost(size))
		sum += cost
		squares += cost * cost
	}
	if slotBytes == 0 && c.Layout == tier.Carry {
		slotBytes = 1 << 20
		if sum < 8<<30 { // what is not for keeping is then less of the whole
			slotBytes = 512 << 10
		}
		slotBytes = min(slotBytes, powerTo(max(1, quota/8)))
	}
	if slotBytes == 0 {
		slotBytes = max(1<<20, 16*plan.RecordCost(largest))
		if sum >= 4<<30 {
			slotBytes = max(slotBytes, 16<<20)
		}
		slotBytes = min(powerFrom(slotBytes), powerTo(max(1, quota/8)))
	}
	slotBytes = min(max(powerTo(slotBytes), segment.MinSlot), segment.MaxSlot)
	// A slot ends, on average, half a record before it is full; the larger a record, the likelier it
	// is the one that did not fit.
	waste, varies := float64(segment.Block+segment.SlotHeader), 0.0
	switch cost := plan.RecordCost(largest); {
	case sum > 0 && smallest == largest: // then it is known
		waste += float64((slotBytes - segment.Block - segment.SlotHeader) % cost)
	case sum > 0:
		waste, varies = waste+squares/sum/2, squares/sum/math.Sqrt(12)
	}
	most := segment.SampleMax(uint32(slotBytes))
	for id := 0; largest > most && id < s.Len(); id++ {
		if size := s.Size(sample.ID(id)); size > most { // is never kept
			sum -= float64(plan.RecordCost(size))
		}
	}
	slots := max(2, min(1<<30, quota/64)/slotBytes)
	needed := int64(sum/(float64(slotBytes)-min(waste, float64(slotBytes/2))))/int64(dirs) + 2
	extra := int64(0)
	if c.Layout == tier.Carry { // those open, those in two buckets that are read, those not yet free
		kept := min(sum, float64(quota)*float64(dirs))
		extra = int64(4.75*math.Sqrt(kept/float64(slotBytes))) + 4
	}
	return shape{extra: extra, slotBytes: uint32(slotBytes), slots: uint32(min(slots, needed)),
		sampleMax: most, cost: int64(sum), waste: waste, varies: varies}
}

func powerTo(n int64) int64   { return 1 << (bits.Len64(uint64(n)) - 1) }
func powerFrom(n int64) int64 { return powerTo(2*n - 1) }

// holds is how many bytes of records, in plan.RecordCost's unit, so many slots hold, even if they
// waste three deviations more than on average: what is planned must have room.
func (s shape) holds(slots int64) int64 {
	n := float64(slots)
	return int64(max(0, n*s.each()*0.995-3*s.varies*math.Sqrt(n)))
}

// each is how many one of them holds, on average.
func (s shape) each() float64 { return max(1, float64(s.slotBytes)-s.waste) }

// fits is how many slots a segment may have that takes at most so many bytes; 0: none.
func (s shape) fits(bytes int64) uint32 {
	return uint32(min(int64(s.slots), max(0, bytes-2*segment.HeaderBytes)/int64(s.slotBytes)))
}

// slotState is what a slot may be used for. It changes under the writer's lock.
type slotState uint32

const (
	blank      slotState = iota // free: no record in it counts
	filling                     // a fill has it
	closed                      // written and synced
	unknown                     // its records are yet to be found by a scan
	unreadable                  // not even that: never used again
)

// slot is what is known of one slot: 32 bytes.
type slot struct {
	generation atomic.Uint64
	order      atomic.Uint64
	part       atomic.Uint64 // epoch and bucket, of that order
	live       atomic.Int32  // records of it that the index names
	status     atomic.Uint32 // a slotState
}

// taint marks a slot whose footer on the device names records that are torn: until that is written
// anew, no opening may trust it.
const taint = 1 << 8

func (s *slot) state() slotState { return slotState(s.status.Load() & (taint - 1)) }
func (s *slot) tainted() bool    { return s.status.Load()&taint != 0 }

func (s *slot) become(to slotState) {
	s.status.Store(s.status.Load()&taint | uint32(to))
}

func (s *slot) target() target {
	part := s.part.Load()
	return target{s.order.Load(), uint32(part >> 32), uint32(part)}
}

// begin gives a slot to a fill, or to what a footer says it was filled for.
func (s *slot) begin(t segment.Tag) {
	s.generation.Store(t.Generation)
	s.order.Store(t.Order)
	s.part.Store(uint64(t.Epoch)<<32 | uint64(t.Bucket))
}

// file is one segment of a log.
type file struct {
	dir    *dir
	writer *writer
	io     vfs.File
	name   string
	number uint32 // in the log's list: part of its places
	bytes  int64
	header segment.Header
	slots  []slot // those that are wholly there

	// Below, the writer's.
	shut    bool   // nothing is written to it: shorter than it says, or its sync failed
	top     uint64 // the highest generation in it
	durable uint64 // its slots of generations up to this one were synced
	said    uint64 // what its headers on the device say of that
}

func (f *file) place(slot, at uint32) place {
	return makePlace(f.number, f.header.SlotAt(slot)+int64(at))
}

// locate returns which slot a place of this file is in, and where.
func (f *file) locate(p place) (slot, at uint32) {
	behind := p.offset() - segment.HeaderBytes
	return uint32(behind / int64(f.header.SlotBytes)), uint32(behind % int64(f.header.SlotBytes))
}

// add gives a file its number.
func (l *log) add(f *file) error {
	l.adding.Lock()
	defer l.adding.Unlock()
	files := *l.files.Load()
	if len(files) == filesMax {
		return errors.New("a log has at most 2^24 segments")
	}
	f.number = uint32(len(files))
	grown := append(files[:len(files):len(files)], f)
	l.files.Store(&grown)
	return nil
}

// segmentName is a segment's name within its directory.
func segmentName(folder string, number int) string {
	return fmt.Sprintf("%s/%08d.seg", folder, number)
}

// makeSegment makes a whole segment, durable before it is used.
func (l *log) makeSegment(w *writer, slots uint32) (*file, error) {
	h := segment.Header{Content: l.config.Content, ID: randomID(), SlotBytes: l.shape.slotBytes,
		Slots: slots, Samples: uint64(l.config.Sizes.Len())}
	d := w.dir
	if err := d.reserve(h.FileBytes(), &w.promise); err != nil {
		return nil, err
	}
	w.number++
	folder := folder(l.config.Content)
	f := &file{dir: d, writer: w, name: segmentName(folder, w.number), bytes: h.FileBytes(), header: h,
		slots: make([]slot, slots)}
	err := f.make(folder)
	if err != nil {
		d.release(h.FileBytes())
		return nil, err
	}
	l.opened(f)
	return f, nil
}

func (f *file) make(folder string) (err error) {
	files := f.dir.fs
	how := vfs.How{Create: true, Write: true, Direct: true}
	if f.io, err = files.Open(f.name, how); err != nil {
		return err
	}
	err = f.io.Allocate(f.bytes)
	if err == nil {
		err = f.writeHeaders(false)
	}
	if err == nil {
		err = f.dir.syncNames(folder)
	}
	if err != nil {
		err = errors.Join(err, f.io.Close(), files.Remove(f.name))
	}
	return err
}

// writeHeaders writes both copies. A copy that stands is not touched before the other is synced.
func (f *file) writeHeaders(standing bool) error {
	buf := vfs.Aligned(segment.HeaderBytes)
	defer vfs.Free(buf)
	f.header.Append(buf[:0])
	if _, err := f.io.WriteAt(buf, 0); err != nil {
		return err
	}
	if standing {
		if err := f.io.Sync(); err != nil {
			return err
		}
	}
	if _, err := f.io.WriteAt(buf, f.header.SlotAt(f.header.Slots)); err != nil {
		return err
	}
	if err := f.io.Sync(); err != nil {
		return err
	}
	f.said = f.header.Durable
	return nil
}

// randomID binds records to their segment: see docs/format/log.md.
func randomID() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}
