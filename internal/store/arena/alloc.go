package arena

import (
	"fmt"
	"math/bits"
)

// AllocSlot finds a place for one sample that may be kept. False: the arena is full.
func (a *Arena) AllocSlot(size uint32) (Place, bool) {
	unit := (uint64(size) + Align - 1) / Align
	if unit >= uint64(len(a.shape.classOf)) {
		return a.allocLarge(size, false)
	}
	class := a.shape.classOf[unit]
	ref := a.partial[class]
	if ref == 0 {
		if ref = a.openRegion(class); ref == 0 {
			if ref = a.borrow(class); ref == 0 {
				return 0, false
			}
		}
	}
	s := a.table[ref.slab()].Load()
	head := ref.index()
	sp := &s.spans[head]
	word := head*s.words + int(sp.hint)
	for s.taken[word] == ^uint64(0) {
		word++
	}
	bit := bits.TrailingZeros64(^s.taken[word])
	s.taken[word] |= 1 << bit
	sp.hint = uint32(word - head*s.words)
	if sp.live++; sp.live == sp.slots {
		a.unlink(sp, ref)
	}
	sp.size += size
	slot := sp.hint*64 + uint32(bit)
	offset := int64(head)*SpanBytes + int64(slot)*int64(a.shape.classes[sp.class].Size)
	a.use.Slots += int64(size)
	return makePlace(s.index, offset, size), true
}

// openRegion makes a new region of slots and lists it. Where no contiguous spans are left, one
// span must do: a longer tail is better than no room.
func (a *Arena) openRegion(class uint8) spanRef {
	c := a.shape.classes[class]
	n := c.Spans
	ref := a.take(int(n), spanSlots, false)
	if ref == 0 && n > 1 {
		n = 1
		ref = a.take(1, spanSlots, false)
	}
	if ref == 0 {
		return 0
	}
	sp := a.span(ref)
	sp.class, sp.slots, sp.hint = class, c.slots(n), 0
	a.link(sp, ref)
	return ref
}

// borrow finds a slot of a larger class, up to twice the size, when no span is free for the right
// one: a drifting mix of sizes must not stop a fetch while there is room.
func (a *Arena) borrow(class uint8) spanRef {
	limit := 2 * a.shape.classes[class].Size
	for i := int(class) + 1; i < len(a.shape.classes) && a.shape.classes[i].Size <= limit; i++ {
		if a.partial[i] != 0 {
			return a.partial[i]
		}
	}
	return 0
}

// allocLarge places a sample on spans of its own, from the far end, so that the rest of the slab
// stays in one piece.
func (a *Arena) allocLarge(size uint32, passing bool) (Place, bool) {
	ref := a.take(spansFor(size), spanLarge, passing)
	if ref == 0 {
		return 0, false
	}
	sp := a.span(ref)
	sp.live, sp.size, sp.passing = 1, size, passing
	a.use.Slots += int64(size)
	return makePlace(ref.slab(), int64(ref.index())*SpanBytes, size), true
}

// AllocKept finds a place for one sample that is to be kept: packed where the arena's samples come
// to stay, in a slot where they come and go. False: the arena is full.
func (a *Arena) AllocKept(size uint32) (Place, bool) {
	if a.cfg.Packed {
		return a.bump(&a.packs, size, Align)
	}
	return a.AllocSlot(size)
}

// AllocRun finds a place for the next sample that only passes: behind the one before it, so that
// what arrives together goes together. One larger than a span gets spans of its own. Where nothing
// else has room it may lie in a draining slab: see Spill. False: the arena is full.
func (a *Arena) AllocRun(size uint32) (Place, bool) { return a.bump(&a.runs, size, Align) }

// AllocDirect is AllocRun for a sample that is read with direct I/O: it begins at a multiple of
// DirectAlign, and the bytes up to the next one are its own too, as Direct shows them.
func (a *Arena) AllocDirect(size uint32) (Place, bool) { return a.bump(&a.runs, size, DirectAlign) }

// stream is a region being filled from one end: samples are placed one behind the other, and the
// region goes with its last sample.
type stream struct {
	kind   spanKind
	spans  int     // of a region
	open   spanRef // the region being filled, 0 for none
	offset uint32  // where in it the next sample goes
	end    uint32  // and where it must end
}

// bump places one sample at the end of a stream, from a multiple of align to another one.
func (a *Arena) bump(b *stream, size, align uint32) (Place, bool) {
	if size > SpanBytes {
		return a.allocLarge(size, b.kind == spanRun)
	}
	at, room := roundUp(b.offset, align), max(align, roundUp(size, align))
	if b.open == 0 || at+room > b.end {
		ref := a.take(b.spans, b.kind, b.kind == spanRun)
		if ref == 0 && b.spans > 1 {
			ref = a.take(1, b.kind, b.kind == spanRun) // a longer tail is better than no room
		}
		if ref == 0 {
			return 0, false
		}
		a.reopen(b, ref, 0, uint32(a.span(ref).spans)*SpanBytes)
		at = 0
	}
	sp := a.span(b.open)
	sp.live++
	sp.size += lines(size) // what lies between samples is nobody's
	p := makePlace(b.open.slab(), int64(b.open.index())*SpanBytes+int64(at), size)
	b.offset = at + room
	a.count(b.kind, int64(size))
	return p, true
}

// lines is what a sample takes of a stream. An empty one takes a line too, so that its place names
// the span that counts it.
func lines(size uint32) uint32 { return max(Align, roundUp(size, Align)) }

// roundUp rounds up to a multiple of unit, a power of two.
func roundUp(n, unit uint32) uint32 { return (n + unit - 1) &^ (unit - 1) }

// reopen makes a stream go on in a region, between two offsets of it.
func (a *Arena) reopen(b *stream, ref spanRef, from, end uint32) {
	a.closeStream(b)
	b.open, b.offset, b.end = ref, from, end
	a.span(ref).live++ // being open: closeStream takes it back
}

// count adds to the account that samples of the kind are charged to.
func (a *Arena) count(kind spanKind, bytes int64) {
	if kind == spanRun {
		a.use.Runs += bytes
	} else {
		a.use.Slots += bytes
	}
}

// closeStream ends the filling of the open region, which goes if nothing lives in it.
func (a *Arena) closeStream(b *stream) {
	if b.open == 0 {
		return
	}
	ref, sp := b.open, a.span(b.open)
	b.open = 0
	if sp.live--; sp.live == 0 {
		a.giveBack(sp, ref)
	}
}

// Free ends a place. A slot returns to its class; a run's span goes with its last sample. Nobody
// may touch the bytes any more.
func (a *Arena) Free(p Place) {
	s, head, sp := a.lookup(p)
	ref := makeRef(s.index, head)
	switch sp.kind {
	case spanSlots:
		a.freeSlot(s, head, sp, p)
	case spanRun, spanPack:
		a.count(sp.kind, -int64(p.Len()))
		sp.live--
		sp.size -= lines(p.Len())
		switch b := a.streamOf(sp.kind); {
		case sp.live == 0:
			a.giveBack(sp, ref)
		case sp.live == 1 && ref == b.open:
			a.closeStream(b) // an open region always holds a sample, so that an empty arena is free
		}
	case spanLarge:
		a.use.Slots -= int64(sp.size)
		sp.live = 0
		a.giveBack(sp, ref)
	}
}

func (a *Arena) streamOf(kind spanKind) *stream {
	if kind == spanRun {
		return &a.runs
	}
	return &a.packs
}

func (a *Arena) freeSlot(s *slab, head int, sp *span, p Place) {
	size := a.shape.classes[sp.class].Size
	offset := uint32(p.Offset() - int64(head)*SpanBytes)
	slot := offset / size
	word, mask := head*s.words+int(slot/64), uint64(1)<<(slot%64)
	if slot*size != offset || s.taken[word]&mask == 0 {
		panic(fmt.Sprintf("arena: free %v, which is not a live slot", p))
	}
	s.taken[word] &^= mask
	sp.hint = min(sp.hint, slot/64)
	sp.size -= p.Len()
	a.use.Slots -= int64(p.Len())
	ref := makeRef(s.index, head)
	full := sp.live == sp.slots
	if sp.live--; full && !s.draining {
		a.link(sp, ref)
	}
	if sp.live == 0 {
		if !s.draining {
			a.unlink(sp, ref)
		}
		a.giveBack(sp, ref)
	}
}

// lookup finds the head of the region that a live place lies in.
func (a *Arena) lookup(p Place) (*slab, int, *span) {
	s := a.table[p.Slab()].Load()
	if s == nil || p.Offset() >= int64(len(s.mem)) {
		panic(fmt.Sprintf("arena: place %v is not in this arena", p))
	}
	sp := &s.spans[p.Offset()/SpanBytes]
	if sp.kind == spanFree || sp.kind == spanAbsent {
		panic(fmt.Sprintf("arena: place %v is not live", p))
	}
	head := int(sp.head)
	return s, head, &s.spans[head]
}

func (a *Arena) span(ref spanRef) *span {
	return &a.table[ref.slab()].Load().spans[ref.index()]
}

// take marks n contiguous free spans as one region of the kind, backed by memory; 0 for none.
// Slots and packed samples start from the first slab, runs and large samples from the last, so that
// what comes and goes does not break up what stays. What only passes may go where nothing stays.
func (a *Arena) take(n int, kind spanKind, passing bool) spanRef {
	if a.use.SpansFree >= n {
		if ref := a.takeFrom(n, kind, false); ref != 0 {
			return ref
		}
	}
	if passing && a.spill && a.draining > 0 {
		return a.takeFrom(n, kind, true)
	}
	return 0
}

// takeFrom looks for spans in the slabs that drain, or in those that do not.
func (a *Arena) takeFrom(n int, kind spanKind, draining bool) spanRef {
	fromEnd := kind == spanRun || kind == spanLarge
	for i := range a.live {
		s := a.live[i]
		if fromEnd {
			s = a.live[len(a.live)-1-i]
		}
		if s.draining != draining {
			continue
		}
		for first, ok := s.find(n, fromEnd); ok; first, ok = s.find(n, fromEnd) {
			if err := s.ensure(first, n); err != nil {
				a.fail(err)
				a.freed(s, -s.withdraw())
				continue
			}
			s.take(first, n, kind)
			a.freed(s, -n)
			a.use.spansUsed += n
			return makeRef(s.index, first)
		}
	}
	return 0
}

// freed counts spans that can be taken; those of draining slabs are no room to plan with.
func (a *Arena) freed(s *slab, spans int) {
	if !s.draining {
		a.use.SpansFree += spans
	}
}

// giveBack frees a region's spans.
func (a *Arena) giveBack(sp *span, ref spanRef) {
	s, n := a.table[ref.slab()].Load(), int(sp.spans)
	s.giveBack(ref.index(), n)
	a.use.spansUsed -= n
	a.freed(s, n)
}

// link puts a region at the front of its class: it is the one nearest full, and filling it first
// lets the others run empty.
func (a *Arena) link(sp *span, ref spanRef) {
	sp.prev, sp.next = 0, a.partial[sp.class]
	if sp.next != 0 {
		a.span(sp.next).prev = ref
	}
	a.partial[sp.class] = ref
}

func (a *Arena) unlink(sp *span, ref spanRef) {
	if sp.prev != 0 {
		a.span(sp.prev).next = sp.next
	} else if a.partial[sp.class] == ref {
		a.partial[sp.class] = sp.next
	}
	if sp.next != 0 {
		a.span(sp.next).prev = sp.prev
	}
	sp.next, sp.prev = 0, 0
}
