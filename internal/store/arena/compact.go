package arena

// Region is a piece of the arena that holds samples and is freed as a whole.
type Region struct {
	ID       uint32 // names the region
	Size     int64
	Bytes    int64 // of live samples
	Samples  int   // live
	Packed   bool  // it can be filled again between its samples
	Draining bool  // it lies in a slab that is to go
}

// Regions calls fn for every region of draining slabs, and for every other one that has room
// between its samples. Kept samples go on in none of them, until Slide says in which.
func (a *Arena) Regions(fn func(Region)) {
	a.closeStream(&a.packs)
	tail := int64(2 * weighed(a.cfg.Sizes)) // what a region's end may leave unused
	for _, s := range a.live {
		for i := 0; i < len(s.spans); {
			sp, ref := &s.spans[i], makeRef(s.index, i)
			if sp.kind == spanFree || sp.kind == spanAbsent {
				i++
				continue
			}
			i += int(sp.spans)
			r := Region{ID: uint32(ref), Size: int64(sp.spans) * SpanBytes, Bytes: int64(sp.size),
				Samples: int(sp.live), Packed: sp.kind == spanPack, Draining: s.draining}
			stream := sp.kind == spanPack || sp.kind == spanRun
			switch {
			case ref == a.runs.open:
				continue
			case s.draining, stream && r.Size-r.Bytes > tail:
				fn(r)
			}
		}
	}
}

// RegionOf is the ID of the region that a live place lies in.
func (a *Arena) RegionOf(p Place) uint32 {
	s, head, _ := a.lookup(p)
	return uint32(makeRef(s.index, head))
}

// Room is how many bytes of kept samples fit before another region must be filled.
func (a *Arena) Room() int64 {
	if a.packs.open == 0 {
		return 0
	}
	return int64(a.packs.end - a.packs.offset)
}

// Passing is how many bytes the slabs that stay have for what passes: their spans that are free or
// hold it.
func (a *Arena) Passing() int64 {
	spans := a.use.SpansFree
	for _, s := range a.live {
		for i := range s.spans {
			if sp := &s.spans[i]; !s.draining && (sp.kind == spanRun || sp.passing) {
				spans += int(sp.spans)
			}
		}
	}
	return int64(spans) * SpanBytes
}

// Fresh is how many bytes of free spans a kept sample of that size needs where it fits no region.
func Fresh(size uint32) int64 { return int64(spansFor(size)) * SpanBytes }

// Slide pushes the samples of a packed region together, changing places, and goes on filling it in
// the largest gap that is left: room is won without needing any. places are all that live there,
// by rising offset; those that are fixed are being read, and stay where they are. False: they are
// not all, the region is not to be filled, or no gap has room for least bytes.
func (a *Arena) Slide(places []Place, fixed func(i int) bool, least uint32) bool {
	s, ref, sp := a.fillable(places)
	if sp == nil {
		return false
	}
	from, end, last := a.slide(s, ref, places, fixed)
	if size := uint32(sp.spans) * SpanBytes; size-last > end-from {
		from, end = last, size
	}
	if end-from < lines(least) {
		return false
	}
	a.reopen(&a.packs, ref, from, end)
	return true
}

// Trim pushes the samples of a packed region together as Slide does, and gives back the spans
// behind them. False: there are none.
func (a *Arena) Trim(places []Place, fixed func(i int) bool) bool {
	s, ref, sp := a.fillable(places)
	if sp == nil {
		return false
	}
	_, _, last := a.slide(s, ref, places, fixed)
	n := int(sp.spans) - spansFor(last)
	if n == 0 {
		return false
	}
	sp.spans -= uint16(n)
	s.giveBack(ref.index()+int(sp.spans), n)
	a.use.spansUsed -= n
	a.freed(s, n)
	return true
}

// slide pushes together all samples but the fixed ones. It returns the largest gap before one of
// those, and where the last sample ends.
func (a *Arena) slide(
	s *slab, ref spanRef, places []Place, fixed func(i int) bool,
) (from, end, last uint32) {
	start := int64(ref.index()) * SpanBytes
	for i, p := range places {
		n := p.Len()
		switch to := start + int64(last); {
		case fixed(i):
			at := uint32(p.Offset() - start)
			if at-last > end-from {
				from, end = last, at
			}
			last = at
		case to != p.Offset():
			copy(s.mem[to:to+int64(n)], s.mem[p.Offset():p.Offset()+int64(n)])
			a.copies.Add(1)
			a.copied.Add(int64(n))
			places[i] = makePlace(s.index, to, n)
		}
		last += lines(n)
	}
	return from, end, last
}

// fillable finds the packed region that these places are all of, unless it drains or is open.
func (a *Arena) fillable(places []Place) (*slab, spanRef, *span) {
	if len(places) == 0 {
		return nil, 0, nil
	}
	s, head, sp := a.lookup(places[0])
	ref := makeRef(s.index, head)
	if sp.kind != spanPack || s.draining || ref == a.packs.open || int(sp.live) != len(places) {
		return nil, 0, nil
	}
	for _, p := range places[1:] {
		if a.RegionOf(p) != uint32(ref) {
			return nil, 0, nil
		}
	}
	return s, ref, sp
}
