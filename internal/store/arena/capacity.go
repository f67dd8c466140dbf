package arena

import "math"

// Shape is the arithmetic of an arena without its memory: what it holds follows from the sizes of
// its samples and from how long its slabs are. So a plan can be made for memory nobody has yet.
type Shape struct {
	sizes   Histogram
	packed  bool
	classes []Class
	classOf []uint8 // by size in units of Align; the classes' sizes are multiples of it
	region  int     // spans of a packed region
	slabs   []int   // spans of each slab that is not draining
	absent  int     // of those spans, how many have no memory
}

// Outline is the shape that New would give an arena.
func Outline(cfg Config) (*Shape, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Shape{sizes: cfg.Sizes, packed: cfg.Packed, region: packSpans(cfg.Sizes, cfg.Bytes)}
	if !cfg.Packed {
		s.classes = Classes(cfg.Sizes, cfg.Bytes)
	}
	for i, c := range s.classes {
		for len(s.classOf) <= int(c.Size/Align) {
			s.classOf = append(s.classOf, uint8(i))
		}
	}
	slab := int(cfg.slabBytes() / SpanBytes)
	for left := int(cfg.Bytes / SpanBytes); left > 0; left -= slab {
		s.slabs = append(s.slabs, min(left, slab))
	}
	return s, nil
}

// Shape is what the arena's slabs make of it now.
func (a *Arena) Shape() *Shape {
	s := *a.shape
	s.slabs = nil
	for _, one := range a.live {
		if !one.draining {
			s.slabs = append(s.slabs, len(one.spans))
			s.absent += one.absent
		}
	}
	return &s
}

// Capacity is the shape's.
func (a *Arena) Capacity() int64 { return a.Shape().Capacity() }

// SlotCost is what a kept sample of the size takes of the arena's bytes: its slot and its share of
// the region's tail. Samples whose costs sum to no more than Capacity − Reserve always fit an
// arena that holds nothing else.
func (s *Shape) SlotCost(size uint32) int64 {
	unit := (uint64(size) + Align - 1) / Align
	if unit >= uint64(len(s.classOf)) {
		return int64(spansFor(size)) * SpanBytes
	}
	return int64(s.classes[s.classOf[unit]].cost())
}

// Reserve is how many bytes must be left aside so that kept samples fit in whatever mix they
// arrive: a region of each class, of which all but one slot may be empty, and what is lost
// elsewhere.
func (s *Shape) Reserve() int64 {
	var regions int64
	for _, c := range s.classes {
		regions += int64(c.Spans) * SpanBytes
	}
	return regions + s.lost()
}

// lost is what no kept sample can use: a span open for runs, the tails where a slab's end cuts
// regions short, and the spans between large samples.
func (s *Shape) lost() int64 {
	var tail, longest int64 // of one span that stands in for a part of a region
	for _, c := range s.classes {
		longest = max(longest, int64(c.Spans))
		tail = max(tail, SpanBytes-int64(c.slots(1))*int64(c.cost()))
	}
	lost := SpanBytes + s.largeReserve()
	if longest > 1 {
		lost += int64(len(s.slabs)) * (longest - 1) * tail
	}
	return lost
}

// largeReserve is what samples on whole spans leave over in each slab: exactly the remainder if
// they are all equal and alone, otherwise one span less than the largest at most.
func (s *Shape) largeReserve() int64 {
	var shortest, longest int
	for _, b := range s.sizes {
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
	for _, n := range s.slabs {
		if shortest == longest && len(s.classes) == 0 {
			spans += n % longest
		} else {
			spans += longest - 1
		}
	}
	return int64(spans) * SpanBytes
}

// Capacity is the bytes of the slabs that are not draining, as far as there is memory for them.
func (s *Shape) Capacity() int64 {
	spans := -s.absent
	for _, n := range s.slabs {
		spans += n
	}
	return int64(spans) * SpanBytes
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
func (s *Shape) fitsPacked(h Histogram, aside int64) int64 {
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
	region := float64(s.region) * SpanBytes
	room := float64(s.Capacity()-aside-s.largeReserve()) - 3*tail
	for _, n := range s.slabs {
		room -= tail * float64(n%s.region)
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
func (s *Shape) Fits(h Histogram, aside int64) int64 {
	if s.packed {
		return s.fitsPacked(h, aside)
	}
	var bytes, cost, all, squares float64
	for _, b := range h {
		bytes += float64(b.Bytes)
		cost += float64(b.Count) * float64(s.SlotCost(b.Max))
	}
	for _, c := range s.classes {
		region := float64(c.Spans) * SpanBytes
		all += region
		squares += region * region
	}
	regions := min(all, all/2+3*math.Sqrt(squares/12))
	room := float64(s.Capacity()-aside-s.lost()) - regions
	if room <= 0 || cost == 0 {
		return 0
	}
	return int64(min(1, room/cost) * bytes)
}
