package arena

import "math"

// SlotCost is what a kept sample of the size takes of the arena's bytes: its slot and its share of
// the region's tail. Samples whose costs sum to no more than Capacity − Reserve always fit an
// arena that holds nothing else.
func (a *Arena) SlotCost(size uint32) int64 {
	unit := (uint64(size) + Align - 1) / Align
	if unit >= uint64(len(a.classOf)) {
		return int64(spansFor(size)) * SpanBytes
	}
	return int64(a.classes[a.classOf[unit]].cost())
}

// Reserve is how many bytes must be left aside so that kept samples fit in whatever mix they
// arrive: a region of each class, of which all but one slot may be empty, and what is lost
// elsewhere.
func (a *Arena) Reserve() int64 {
	var regions int64
	for _, c := range a.classes {
		regions += int64(c.Spans) * SpanBytes
	}
	return regions + a.lost()
}

// lost is what no kept sample can use: a span open for runs, the tails where a slab's end cuts
// regions short, and the spans between large samples.
func (a *Arena) lost() int64 {
	var tail, longest int64 // of one span that stands in for a part of a region
	for _, c := range a.classes {
		longest = max(longest, int64(c.Spans))
		tail = max(tail, SpanBytes-int64(c.slots(1))*int64(c.cost()))
	}
	lost := SpanBytes + a.largeReserve()
	for _, s := range a.live {
		if !s.draining && longest > 1 {
			lost += (longest - 1) * tail
		}
	}
	return lost
}

// largeReserve is what samples on whole spans leave over in each slab: exactly the remainder if
// they are all equal and alone, otherwise one span less than the largest at most.
func (a *Arena) largeReserve() int64 {
	var shortest, longest int
	for _, b := range a.cfg.Sizes {
		if b.Max <= SpanBytes {
			continue
		}
		if shortest == 0 {
			shortest = spansFor(b.Max)
		}
		longest = spansFor(b.Max)
	}
	if longest == 0 {
		return 0
	}
	var spans int
	for _, s := range a.live {
		switch {
		case s.draining:
		case shortest == longest && len(a.classes) == 0:
			spans += len(s.spans) % longest
		default:
			spans += longest - 1
		}
	}
	return int64(spans) * SpanBytes
}

// Capacity is the bytes of the slabs that are not draining, as far as there is memory for them.
func (a *Arena) Capacity() int64 {
	var bytes int64
	for _, s := range a.live {
		if !s.draining {
			bytes += int64(len(s.spans)-s.absent) * SpanBytes
		}
	}
	return bytes
}

// packTail is the share of a packed region that its tail may take: half a sample on average.
const packTail = 0.005

// packSpans is how long packed regions are: long enough that a tail is small beside them, short
// enough that an arena has many.
func packSpans(h Histogram, arenaBytes int64) int {
	most := max(1, min(64, int(arenaBytes/SpanBytes/16)))
	spans := 1
	for spans < most && weighed(h)/2 > packTail*float64(spans)*SpanBytes {
		spans++
	}
	return spans
}

// weighed is the mean size of a sample met in proportion to its bytes: what a region's end cuts.
// Samples on spans of their own are not met there.
func weighed(h Histogram) float64 {
	var bytes, squares float64
	for _, b := range h {
		if b.Max <= SpanBytes {
			bytes += float64(b.Bytes)
			squares += float64(b.Bytes) * float64(b.Max)
		}
	}
	if bytes == 0 {
		return 0
	}
	return squares / bytes
}

// fitsPacked is Fits for an arena of packed samples: their bytes, rounded to lines, and the tails
// of regions, of which those cut short by a slab's end are the longest.
func (a *Arena) fitsPacked(h Histogram, aside int64) int64 {
	var bytes, cost float64
	for _, b := range h {
		bytes += float64(b.Bytes)
		lines := float64(b.Bytes) + float64(b.Count)*Align/2 // half a line each, on average
		if b.Bytes == b.Count*uint64(b.Max) {
			lines = float64(b.Count) * float64((uint64(b.Max)+Align-1)/Align*Align)
		}
		if b.Max > SpanBytes {
			lines = float64(b.Count) * float64(spansFor(b.Max)) * SpanBytes
		}
		cost += lines
	}
	tail := weighed(h) * 0.6
	region := float64(a.packs.spans) * SpanBytes
	room := float64(a.Capacity()-aside-a.largeReserve()) - 3*tail
	for _, s := range a.live {
		if !s.draining {
			room -= tail * float64(len(s.spans)%a.packs.spans)
		}
	}
	room *= 1 - tail/region
	if room <= 0 || cost == 0 {
		return 0
	}
	return int64(min(1, room/cost) * bytes)
}

// Fits is how many bytes of samples, picked from h at random, the arena keeps when aside bytes of
// it are left to others. Of each class one region is then partly filled, by half on average; three
// standard deviations are left besides. Reserve is for samples that are not picked at random.
func (a *Arena) Fits(h Histogram, aside int64) int64 {
	if a.cfg.Packed {
		return a.fitsPacked(h, aside)
	}
	var bytes, cost, all, squares float64
	for _, b := range h {
		bytes += float64(b.Bytes)
		cost += float64(b.Count) * float64(a.SlotCost(b.Max))
	}
	for _, c := range a.classes {
		region := float64(c.Spans) * SpanBytes
		all += region
		squares += region * region
	}
	regions := min(all, all/2+3*math.Sqrt(squares/12))
	room := float64(a.Capacity()-aside-a.lost()) - regions
	if room <= 0 || cost == 0 {
		return 0
	}
	return int64(min(1, room/cost) * bytes)
}
