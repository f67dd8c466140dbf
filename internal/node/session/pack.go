package session

import (
	"context"
	"errors"
	"slices"
	"sync"

	"belady/internal/core/dataset"
	"belady/internal/core/sample"
	"belady/internal/node/event"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/arena"
)

// packedSlab is the index of a session's packed ring: no arena slab has it.
const packedSlab = arena.MaxSlabs + 1

// packs is the packed half of a session: a ring that the daemon writes and never reads, shared
// read-write with the client so that tensors made of it can be changed in place.
type packs struct {
	ring  *arena.Ring
	info  *arena.SlabInfo
	mu    sync.Mutex
	freed *sync.Cond
	held  map[uint64]int64 // guarded by mu, as all below: offset by seq of what the client holds
	ended bool

	first, granted uint64 // credits: at the beginning, and ever
	sent           uint64 // leases
}

// packable is a lease to be gathered into the ring.
type packable struct {
	head    wire.Lease
	ids     []sample.ID
	sizes   []uint32
	places  []arena.Place
	lengths []uint32 // of fields
	stride  uint32   // 0: it is to go scattered
}

// packedBatches is how many batches of the largest samples the ring has room for, at least.
const packedBatches = 4

// ringBytes is what a ring of small batches has all the same. A piece that is reused soon still
// lies in the caches of the core that read it and must be fetched from there to be written: 3 KB
// samples took the daemon half as long again in a ring of 3 MB as in one of 24 MB.
const ringBytes = 32 << 20

// RingBytes is the memory of a packed session's ring: no more than a share of all there is, since
// one long sample may make the largest batch much larger than most. What does not fit is sent
// scattered.
func RingBytes(pool *arena.Pool, set *dataset.Set, batch int) int64 {
	stride := (int64(set.MaxSize()) + arena.Align - 1) / arena.Align * arena.Align
	wanted := stride * int64(max(batch, 1)) * packedBatches
	wanted = max(wanted, min(ringBytes, pool.Total()/easyShare))
	return max(1<<20, min(wanted, pool.Total()/ringShare, arena.MaxSlabBytes))
}

// easyShare is the part of the node's memory that one ring may take beyond what it needs.
const easyShare = 64

// ringShare is the part of the node's memory that one ring may take.
const ringShare = 16

// openPacks makes the ring, if there is memory for it; otherwise all leases go scattered, as the
// protocol allows.
func (s *Session) openPacks(ctx context.Context, batch int) error {
	bytes := RingBytes(s.Pool, s.world.Set, batch)
	err := s.packs.open(s.Pool, bytes)
	if errors.Is(err, arena.ErrNoBudget) && s.Spare != nil {
		if err = s.Spare(ctx, s.world, bytes); err == nil {
			err = s.packs.open(s.Pool, bytes)
		}
	}
	if err != nil {
		s.tell(event.Trouble{What: "make room for packed batches of session " + s.ID, Err: err})
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outbox = append(s.outbox, parcel{slab: s.packs.slab()})
	return nil
}

func (p *packs) open(pool *arena.Pool, bytes int64) error {
	ring, err := arena.NewRing(pool, bytes)
	if err != nil {
		return err
	}
	p.ring = ring
	p.info = &arena.SlabInfo{Index: packedSlab, FD: ring.FD(), Bytes: ring.Size()}
	p.held = map[uint64]int64{}
	p.freed = sync.NewCond(&p.mu)
	return nil
}

func (p *packs) slab() *arena.SlabInfo { return p.info }

func (p *packs) is(s *arena.SlabInfo) bool { return p.info != nil && s == p.info }

// close wakes a writer that waits for room, and frees the ring; the client's map lives on.
func (p *packs) close() {
	if p.ring == nil {
		return
	}
	p.stop()
	_ = p.ring.Close()
}

func (p *packs) stop() {
	if p.ring == nil {
		return
	}
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.freed.Broadcast()
}

// take copies a lease's list for the writer; nil where the session is not packed.
func (p *packs) take(l *world.Lease) *packable {
	if p.ring == nil {
		return nil
	}
	b := &packable{head: headOf(l), ids: l.IDs, sizes: slices.Clone(l.Lengths),
		places: slices.Clone(l.Places)}
	longest := slices.Max(l.Lengths)
	stride := int64(longest)
	if slices.Min(l.Lengths) < longest || longest == 0 { // equal ones make a contiguous tensor
		stride = max(1, (stride+arena.Align-1)/arena.Align) * arena.Align
	}
	if longest < arena.LongLength && stride*int64(len(l.IDs)) <= p.ring.Size()/2 {
		b.stride = uint32(stride)
	}
	return b
}

// credited counts what the client lets come.
func (p *packs) credited(n uint32) {
	if p.ring == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.granted += uint64(n); p.first == 0 {
		p.first = uint64(n)
	}
	p.freed.Signal()
}

// reserve waits for room in the ring. There may never be any: a client that holds all the ring and
// waits for the next batch, having taken all that were sent, must get it some other way.
func (p *packs) reserve(seq uint64, bytes int64) (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.ended && bytes > 0 {
		if offset, ok := p.ring.Alloc(bytes); ok {
			p.held[seq] = offset
			return offset, true
		}
		if p.granted-p.first >= p.sent {
			return 0, false
		}
		p.freed.Wait()
	}
	return 0, false
}

// counted counts a lease as sent.
func (p *packs) counted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
}

// pack gathers a batch into the ring, gives its scattered bytes back to the pump, and sends it.
// Without room in the ring it goes scattered.
func (s *Session) pack(b *packable) error {
	defer s.packs.counted()
	b.head.Fields = uint16(s.fields)
	bytes := int64(b.stride) * int64(len(b.ids))
	offset, ok := s.packs.reserve(b.head.Seq, bytes)
	if !ok {
		return s.unpacked(b)
	}
	s.world.Gather(s.packs.ring.Bytes(offset, bytes), int(b.stride), b.places)
	s.cursor.Release(b.head.Seq)
	b.head.Form, b.head.Stride = wire.FormPacked, b.stride
	b.head.Base = wire.At(packedSlab, uint64(offset))
	_, err := s.writer.Send(wire.AppendLease(nil, &b.head, b.ids, b.sizes, nil, b.lengths))
	return err
}

// unpacked sends a batch of a packed session scattered.
func (s *Session) unpacked(b *packable) error {
	s.mu.Lock()
	s.lent[b.head.Seq] = struct{}{}
	s.mu.Unlock()
	places := wirePlaces(nil, b.places)
	_, err := s.writer.Send(wire.AppendLease(nil, &b.head, b.ids, b.sizes, places, b.lengths))
	return err
}

// wirePlaces appends places as the wire has them.
func wirePlaces(dst []wire.Place, places []arena.Place) []wire.Place {
	for _, p := range places {
		dst = append(dst, wire.At(p.Slab(), uint64(p.Offset())))
	}
	return dst
}

// unpack ends a packed lease; false means that seq is none.
func (s *Session) unpack(seq uint64) bool {
	p := &s.packs
	if p.ring == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	offset, ok := p.held[seq]
	if ok {
		delete(p.held, seq)
		p.ring.Release(offset)
		p.freed.Signal()
	}
	return ok
}
