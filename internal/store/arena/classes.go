package arena

import (
	"math/bits"
	"slices"
)

// SpanBytes is the piece a slab is carved into: one huge page.
const SpanBytes = 2 << 20

const (
	// maxClasses bounds the class table. Past it a class saves less than its bookkeeping costs.
	maxClasses = 256
	// maxRegionSpans bounds a region. The tail of 8 spans is below 1 % for samples under 160 KiB.
	maxRegionSpans = 8
	// stepBits is the histogram's precision: 2^8 bins an octave, so a bin is at most 0.4 % wide.
	stepBits = 8
)

// A Bin is the samples whose sizes are nearly equal.
type Bin struct {
	Max   uint32 // the largest size in the bin
	Count uint64
	Bytes uint64 // the sum of the sizes
}

// A Histogram is a dataset's sizes in bins of rising Max, none empty.
type Histogram []Bin

// Measure makes the histogram of n sizes. Bins are Align wide for small samples and 0.4 % of the
// size for others; each remembers its true largest size, so equal sizes stay exact.
func Measure(n int, size func(i int) uint32) Histogram {
	var bins []Bin
	for i := range n {
		s := size(i)
		at := int(binOf(s))
		if at >= len(bins) {
			bins = append(bins, make([]Bin, at+1-len(bins))...)
		}
		b := &bins[at]
		b.Max = max(b.Max, s)
		b.Count++
		b.Bytes += uint64(s)
	}
	return slices.DeleteFunc(bins, func(b Bin) bool { return b.Count == 0 })
}

// binOf numbers a size's bin: rising with size, equal for sizes that share a bin.
func binOf(size uint32) uint32 {
	lines := uint32((uint64(size) + Align - 1) / Align)
	shift := max(0, bits.Len32(lines)-stepBits-1)
	return uint32(shift)<<stepBits + lines>>shift
}

// A Class is one size of slot, and how many contiguous spans one region of such slots takes.
type Class struct {
	Size  uint32
	Spans uint32
}

// slots is how many slots a region of the given number of spans holds.
func (c Class) slots(spans uint32) uint32 { return spans * SpanBytes / c.Size }

// cost is what one slot takes of the arena, its share of the region's tail included.
func (c Class) cost() uint32 {
	n := c.slots(c.Spans)
	return (c.Spans*SpanBytes + n - 1) / n
}

// Classes chooses the slot sizes for a dataset in an arena of arenaBytes. It weighs two wastes
// against each other: rounding a sample up to its class, and the region each class leaves partly
// filled. So equal sizes give one class, and a small arena few. Samples larger than a span need
// no class. Sizes are multiples of Align and rise.
func Classes(h Histogram, arenaBytes int64) []Class {
	var total uint64
	var groups []Bin
	for _, b := range h {
		total += b.Bytes
		if b.Max > SpanBytes {
			continue
		}
		b.Max = max(Align, (b.Max+Align-1)/Align*Align)
		if n := len(groups); n > 0 && groups[n-1].Max == b.Max {
			groups[n-1].Count += b.Count
			groups[n-1].Bytes += b.Bytes
			continue
		}
		groups = append(groups, b)
	}
	// The arena holds this share of the dataset: it scales a sample's waste to the arena's.
	held := min(1, float64(arenaBytes)/float64(max(1, total)))
	// In a small arena a region each of many classes would be all there is.
	limit := int(min(maxClasses, max(1, arenaBytes/SpanBytes/4)))
	groups = merge(groups, held, limit)
	classes := make([]Class, len(groups))
	for i, g := range groups {
		classes[i] = Class{Size: g.Max, Spans: regionSpans(g, held)}
	}
	return classes
}

// merge joins neighbours, cheapest first, until another join would waste more by rounding than
// the half-filled region it saves, and there are no more than limit.
func merge(groups []Bin, held float64, limit int) []Bin {
	for len(groups) > 1 {
		best, bestCost := -1, 0.0
		for i := range len(groups) - 1 {
			step := float64(groups[i+1].Max - groups[i].Max)
			cost := float64(groups[i].Count) * step * held
			if best < 0 || cost < bestCost {
				best, bestCost = i, cost
			}
		}
		if bestCost > SpanBytes/2 && len(groups) <= limit {
			break
		}
		groups[best+1].Count += groups[best].Count
		groups[best+1].Bytes += groups[best].Bytes
		groups = append(groups[:best], groups[best+1:]...)
	}
	return groups
}

// regionSpans is the region length that wastes least: long regions have short tails, but one of
// them is half filled.
func regionSpans(g Bin, held float64) uint32 {
	best, bestCost := uint32(1), 0.0
	for m := uint32(1); m <= maxRegionSpans; m++ {
		n := m * SpanBytes / g.Max
		tail := float64(m*SpanBytes-n*g.Max) / float64(n)
		cost := tail*float64(g.Count)*held + float64(m)*SpanBytes/2
		if m == 1 || cost < bestCost {
			best, bestCost = m, cost
		}
	}
	return best
}

// spansFor is how many spans hold one sample that has no class.
func spansFor(size uint32) int {
	return max(1, int((int64(size)+SpanBytes-1)/SpanBytes))
}
