package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"

	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// Reading is what a cursor reads from here on. Known: its windows follow from it.
type Reading struct {
	Cursor  int32
	Known   bool
	Reading job.Reading
}

// Step is one recorded call. Its slices are the decoder's and valid until the next one.
//
// An Ordered event without a Window stands for the cursor's next one, to be computed from its
// reading; a Replanned event's Plan has Keep, Staging, Log and Carry alone.
type Step struct {
	Readings []Reading // of cursors that attach from here on
	Now      pump.Instant
	Events   []pump.Event
	Moves    []pump.Move
}

// Decoder reads a trace from memory.
type Decoder struct {
	Header Header
	rest   []byte // blocks not yet read
	in     input  // the block being read
	tail   int
	step   Step
}

// NewDecoder checks the beginning of a trace.
func NewDecoder(data []byte) (*Decoder, error) {
	if len(data) < len(magic)+4 || string(data[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin as a trace does", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(data[len(magic):]); v != Version {
		return nil, fmt.Errorf("trace has format version %d, this program reads %d: "+
			"replay it with the program that recorded it", v, Version)
	}
	d := &Decoder{rest: data[len(magic)+4:]}
	text, ok, err := d.block()
	if err != nil || !ok {
		return nil, fmt.Errorf("%w: its header is incomplete", ErrCorrupt)
	}
	if err := json.Unmarshal(text, &d.Header); err != nil {
		return nil, fmt.Errorf("%w: read its header: %w", ErrCorrupt, err)
	}
	return d, nil
}

// Tail is how many bytes at the end were left out, because the recorder was cut off.
func (d *Decoder) Tail() int { return d.tail }

// block cuts the next payload. A last block that is short or damaged is a tail; one in the middle
// is an error, since what follows cannot be trusted to follow.
func (d *Decoder) block() (payload []byte, ok bool, err error) {
	if len(d.rest) == 0 {
		return nil, false, nil
	}
	const frame = 8
	if len(d.rest) < frame {
		return nil, false, d.cut()
	}
	n := binary.LittleEndian.Uint32(d.rest)
	sum := binary.LittleEndian.Uint32(d.rest[4:])
	if n > maxBlock || int(n) > len(d.rest)-frame {
		return nil, false, d.cut()
	}
	payload = d.rest[frame:][:n]
	if crc32.Checksum(payload, castagnoli) != sum {
		if int(n) == len(d.rest)-frame {
			return nil, false, d.cut()
		}
		return nil, false, fmt.Errorf("%w: checksum of a block %d bytes before the end is wrong",
			ErrCorrupt, len(d.rest))
	}
	d.rest = d.rest[frame+int(n):]
	return payload, true, nil
}

func (d *Decoder) cut() error {
	d.tail, d.rest = len(d.rest), nil
	return nil
}

// Next returns the next step, or nil at the end.
func (d *Decoder) Next() (*Step, error) {
	d.step.Readings = d.step.Readings[:0]
	for {
		if len(d.in.left) == 0 {
			payload, ok, err := d.block()
			if err != nil || !ok {
				return nil, err
			}
			d.in = input{left: payload}
			continue
		}
		switch tag := d.in.byte(); tag {
		case tagReading:
			d.reading()
		case tagStep:
			d.steps()
			return &d.step, d.in.err
		default:
			d.in.fail("an entry has the unknown tag %d", tag)
		}
		if d.in.err != nil {
			return nil, d.in.err
		}
	}
}

func (d *Decoder) reading() {
	r := Reading{Cursor: d.in.int32(), Known: d.in.bool()}
	text := d.in.bytes(d.in.count(1))
	if d.in.err != nil {
		return
	}
	if err := json.Unmarshal(text, &r.Reading); err != nil {
		d.in.fail("a reading: %v", err)
	}
	d.step.Readings = append(d.step.Readings, r)
}

func (d *Decoder) steps() {
	in, s := &d.in, &d.step
	s.Now += pump.Instant(in.int())
	clear(s.Events)
	s.Events, s.Moves = s.Events[:0], s.Moves[:0]
	for range in.count(1) {
		s.Events = append(s.Events, in.event())
	}
	for range in.count(1) {
		m := pump.Move{Kind: pump.MoveKind(in.byte())}
		in.move(&m)
		s.Moves = append(s.Moves, m)
	}
}

// input is a payload being read. After an error everything reads as zero.
type input struct {
	left []byte
	err  error
}

func (in *input) fail(format string, args ...any) {
	if in.err == nil {
		in.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
	in.left = nil
}

func (in *input) bytes(n int) []byte {
	if n < 0 || n > len(in.left) {
		in.fail("a block ends within an entry")
		return nil
	}
	b := in.left[:n]
	in.left = in.left[n:]
	return b
}

func (in *input) byte() byte {
	if b := in.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (in *input) bool() bool { return in.byte() != 0 }

func (in *input) int() int64 {
	n, size := binary.Varint(in.left)
	if size <= 0 {
		in.fail("a number is cut off")
		return 0
	}
	in.left = in.left[size:]
	return n
}

func (in *input) uint() uint64 {
	n, size := binary.Uvarint(in.left)
	if size <= 0 {
		in.fail("a number is cut off")
		return 0
	}
	in.left = in.left[size:]
	return n
}

func (in *input) int32() int32 {
	n := in.int()
	if n < math.MinInt32 || n > math.MaxInt32 {
		in.fail("%d is out of range", n)
		return 0
	}
	return int32(n)
}

// count reads how many things of at least size bytes follow; no more than there are bytes for.
func (in *input) count(size int) int {
	n := in.int()
	if n < 0 || n > int64(len(in.left)/size) {
		in.fail("%d entries in %d bytes", n, len(in.left))
		return 0
	}
	return int(n)
}

func (in *input) event() pump.Event {
	e := pump.Event{Kind: pump.EventKind(in.byte())}
	if ofCursor(e.Kind) {
		e.Cursor = in.int32()
	}
	switch e.Kind {
	case pump.Attached:
		e.N, e.Reserve, e.Follows = in.int32(), in.int(), in.bool()
	case pump.Ordered:
		if in.bool() {
			e.Window = in.window()
		}
	case pump.Credited:
		e.N = in.int32()
	case pump.Staged:
		e.Run, e.Failed, e.Unlogged = in.run(), in.mask(), in.mask()
	case pump.Released:
		e.Seq = in.uint()
	case pump.Detached:
	case pump.Replanned:
		e.Plan = &plan.Plan{Input: plan.Input{Keep: in.int(), Staging: in.int(), Log: in.int(),
			Carry: in.bool()}}
	case pump.Logged, pump.Unlogged:
		e.Set = make([]uint64, in.count(8))
		for i := range e.Set {
			e.Set[i] = in.word()
		}
	default:
		in.fail("an event has the unknown kind %d", e.Kind)
	}
	return e
}

func (in *input) move(m *pump.Move) {
	switch m.Kind {
	case pump.Fetch:
		m.Run, m.Mask, m.Slots = in.run(), in.mask(), in.mask()
		m.Cursor, m.Epoch = m.Run.Cursor, in.int32()
		m.Ssd, m.Log = in.mask(), in.mask()
	case pump.Drop:
		m.Run, m.Mask = in.run(), in.mask()
		m.Cursor = m.Run.Cursor
	case pump.Evict:
		id := int64(0)
		for range in.count(1) {
			if id += in.int(); !m.AddEvicted(sample.ID(id)) {
				in.fail("a move evicts too many")
			}
		}
	case pump.Lease:
		m.Cursor = in.int32()
		m.Cause, m.Last, m.Failed = pump.Cause(in.byte()), in.bool(), in.bool()
		in.place(m)
		m.Run = pump.Run{Cursor: m.Cursor, First: in.int(), Count: in.int32()}
	case pump.Need:
		m.Cursor, m.Epoch = in.int32(), in.int32()
	case pump.Refuse:
		m.Cursor = in.int32()
		in.place(m)
		m.Bytes = in.int()
	case pump.Finish, pump.Forget:
		m.Cursor = in.int32()
	default:
		in.fail("a move has the unknown kind %d", m.Kind)
	}
}

func (in *input) place(m *pump.Move) {
	m.Epoch, m.Batch, m.Seq = in.int32(), in.int32(), in.uint()
}

func (in *input) run() pump.Run {
	return pump.Run{Cursor: in.int32(), Handle: uint32(in.uint()), First: in.int(),
		Count: in.int32()}
}

func (in *input) mask() (m pump.Mask) {
	words := in.byte()
	for i := range m {
		if words>>i&1 == 0 {
			continue
		}
		m[i] = in.word()
	}
	return m
}

func (in *input) word() uint64 {
	if b := in.bytes(8); len(b) == 8 {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (in *input) window() *job.Window {
	w := &job.Window{Epoch: int(in.int32()), Batch: int(in.int32()), LastOfEpoch: in.bool(),
		LastOfJob: in.bool()}
	w.IDs = readList[sample.ID](in)
	w.Ends = readList[uint32](in)
	if in.bool() {
		w.Next = readList[uint32](in)
	}
	if in.err == nil && !sound(w) {
		in.fail("a window's batches do not cover it")
	}
	return w
}

// sound reports whether a pump can take the window.
func sound(w *job.Window) bool {
	before := uint32(0)
	for _, end := range w.Ends {
		if end < before {
			return false
		}
		before = end
	}
	return int(before) == len(w.IDs) && (w.Next == nil || len(w.Next) == len(w.IDs))
}

func readList[T sample.ID | uint32](in *input) []T {
	list := make([]T, in.count(1))
	for i := range list {
		list[i] = T(in.uint())
	}
	return list
}
