package plan

import (
	"cmp"
	"math"
	"slices"

	"belady/internal/core/sample"
)

// set is the samples that a tier keeps: those with the lowest keys whose cost fits its budget.
type set struct {
	all     bool   // every sample
	cutoff  uint64 // members' keys lie below it
	outsize int64  // samples that cost more are never in the set; 0: there is none such
	bin            // the members, added up
}

// bins is the resolution of the first pass over the dataset: enough that one bin of the largest
// holds few samples, small enough to stay in cache.
const bins = 1 << 16

// flipped turns all bits of a key: such a set fills from the top of the hashes.
const flipped = math.MaxUint64

// bin is the samples whose keys begin alike.
type bin struct {
	count, bytes, cost int64
}

func (b *bin) add(o bin) {
	b.count, b.bytes, b.cost = b.count+o.count, b.bytes+o.bytes, b.cost+o.cost
}

// filler finds the set that fills a budget. A sample's key is its hash with the bits of flip
// turned: two tiers that fill from opposite ends share nothing until they reach over each other,
// and resizing one leaves the other alone.
type filler struct {
	*Plan
	budget int64
	cost   func(size uint32) int64
	most   int64 // samples that cost more have no place; 0: all may have one
	flip   uint64
	hist   []bin
	total  bin  // all that may have a place
	varied bool // there are samples of several sizes
	set
}

// fill makes two passes over the dataset: a histogram finds the bin in which the budget ends, then
// that bin alone is walked in order of keys.
func (f *filler) fill() set {
	f.hist = make([]bin, bins)
	one, largest := bin{count: 1}, int64(0)
	for i := range f.Sizes.Len() {
		id := sample.ID(i)
		if size := int64(f.Sizes.Size(id)); size != one.bytes || i == 0 {
			f.varied = f.varied || i > 0
			one.bytes, one.cost = size, f.cost(uint32(size))
			if f.most == 0 || one.cost <= f.most {
				largest = max(largest, one.cost)
			}
		}
		if f.most > 0 && one.cost > f.most {
			f.outsize = f.most
			continue
		}
		f.hist[f.key(id)>>48].add(one)
	}
	for _, b := range f.hist {
		f.total.add(b)
	}
	if f.total.cost <= f.budget {
		f.all, f.cutoff, f.bin = f.outsize == 0, math.MaxUint64, f.total
		return f.set
	}
	f.leaveOut(largest)
	f.cut()
	return f.set
}

func (f *filler) key(id sample.ID) uint64 { return f.hash(id) ^ f.flip }

func (f *filler) one(id sample.ID) bin {
	size := f.Sizes.Size(id)
	return bin{1, int64(size), f.cost(size)}
}

// leaveOut takes outsize samples out of the running: the walk in order of keys ends at the first
// that does not fit, and one giant met early would leave most of the budget empty.
func (f *filler) leaveOut(largest int64) {
	limit := max(f.budget/64, 8*f.total.cost/f.total.count)
	if largest <= limit {
		return
	}
	f.outsize = limit
	for i := range f.Sizes.Len() {
		id := sample.ID(i)
		if one := f.one(id); one.cost > limit && one.cost <= largest {
			f.hist[f.key(id)>>48].add(bin{-1, -one.bytes, -one.cost})
		}
	}
}

// cut finds the cutoff, and what lies below it.
func (f *filler) cut() {
	last := 0
	for last < bins && f.set.cost+f.hist[last].cost <= f.budget {
		f.set.add(f.hist[last])
		last++
	}
	if last == bins {
		f.cutoff = math.MaxUint64 // all fit that are not outsize
		return
	}
	// Inside the bin where the budget ends, take keys in order while they fit.
	type entry struct {
		key uint64
		bin
	}
	var edge []entry
	for i := range f.Sizes.Len() {
		id := sample.ID(i)
		if key := f.key(id); int(key>>48) == last {
			if one := f.one(id); f.outsize == 0 || one.cost <= f.outsize {
				edge = append(edge, entry{key, one})
			}
		}
	}
	slices.SortFunc(edge, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	for _, e := range edge {
		if f.cutoff = e.key; f.set.cost+e.cost > f.budget {
			return
		}
		f.set.add(e.bin)
	}
}
