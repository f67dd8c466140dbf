// Package plan decides where samples live: a pure function from a canonical input to a plan.
//
// Every node computes the same plan from the same input, so plans are never sent, only the digests
// of their inputs are compared. Nothing here uses floats, because architectures round differently.
package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"belady/internal/core/dataset"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// Version is part of the digest: it changes whenever Make would answer differently.
const Version = 1

// Input is everything a plan follows from.
type Input struct {
	Content [32]byte      // the dataset's content id
	Sizes   dataset.Sizes // sizes of that content
	Seed    uint64        // the job's seed: salts the spread set
	Policy  string        // a name in policy.Table
	Keep    int64         // bytes of ram for kept samples, in the unit of Cost
	Staging int64         // bytes of staging
	// Cost is what a sample of that size takes in the arena. It follows from the dataset's sizes
	// and Keep, so it needs no place in the digest. Nil means the size itself.
	Cost func(size uint32) int64
}

// Plan is where samples live on this node. It is immutable.
type Plan struct {
	Input
	Rule      policy.Policy
	cutoff    uint64 // members of the spread set hash below it
	all       bool   // the whole dataset is kept
	salt      uint64
	equal     bool   // all samples have one size: no need to look it up
	size      uint32 // that size, if equal
	slot      int64  // its cost, if equal
	outsize   int64  // samples that cost more are never in the set; 0: there is none such
	SetCount  int    // samples in the spread set
	SetBytes  int64  // their bytes
	SetCost   int64  // what they take in the arena, ≤ Keep
	TotalCost int64  // what the whole dataset would take
}

// Make computes the plan.
func Make(in Input) (*Plan, error) {
	pol, err := policy.Find(in.Policy)
	if err != nil {
		return nil, err
	}
	if in.Keep < 0 || in.Staging <= 0 {
		return nil, fmt.Errorf("plan needs staging: %d bytes to keep, %d of staging",
			in.Keep, in.Staging)
	}
	if in.Cost == nil {
		in.Cost = func(size uint32) int64 { return int64(size) }
	}
	p := &Plan{Input: in, Rule: pol, salt: mix(in.Seed ^ 0x9e3779b97f4a7c15)}
	p.spread()
	return p, nil
}

// bins is the resolution of the first pass of spread: enough that one bin of the largest dataset
// holds few samples, small enough to stay in cache.
const bins = 1 << 16

// bin is the samples whose hashes begin alike.
type bin struct {
	count, bytes, cost int64
}

func (b *bin) add(o bin) {
	b.count, b.bytes, b.cost = b.count+o.count, b.bytes+o.bytes, b.cost+o.cost
}

// spread finds the cutoff below which hashes belong to the kept set: the samples with the lowest
// hashes whose cost fits Keep. Two passes over the dataset: a histogram finds the bin in which the
// budget ends, then that bin alone is walked in hash order.
func (p *Plan) spread() {
	n := p.Sizes.Len()
	if n > 0 {
		p.size = p.Sizes.Size(0)
		p.slot = p.Cost(p.size)
	}
	p.equal = true
	var all bin
	hist := make([]bin, bins)
	largest := p.slot
	for id := range n {
		size, c := p.Sizes.Size(sample.ID(id)), p.slot
		if size != p.size {
			p.equal = false
			c = p.Cost(size)
			largest = max(largest, c)
		}
		one := bin{1, int64(size), c}
		hist[p.hash(sample.ID(id))>>48].add(one)
		all.add(one)
	}
	p.TotalCost = all.cost
	set := all
	if p.TotalCost <= p.Keep {
		p.all = true
	} else {
		p.leaveOut(hist, largest)
		p.cutoff, set = p.cut(hist)
	}
	p.SetCount, p.SetBytes, p.SetCost = int(set.count), set.bytes, set.cost
}

// leaveOut takes outsize samples out of the running: the walk in hash order ends at the first that
// does not fit, and one giant met early would leave most of the budget empty.
func (p *Plan) leaveOut(hist []bin, largest int64) {
	n := int64(p.Sizes.Len())
	limit := max(p.Keep/64, 8*p.TotalCost/n)
	if largest <= limit {
		return
	}
	p.outsize = limit
	for id := range n {
		size := p.Size(sample.ID(id))
		if c := p.Slot(size); c > limit {
			hist[p.hash(sample.ID(id))>>48].add(bin{-1, -int64(size), -c})
		}
	}
}

// cut returns the cutoff, and what lies below it.
func (p *Plan) cut(hist []bin) (uint64, bin) {
	var set bin
	last := 0
	for last < bins && set.cost+hist[last].cost <= p.Keep {
		set.add(hist[last])
		last++
	}
	if last == bins {
		return math.MaxUint64, set // all fit that are not outsize
	}
	// Inside the bin where the budget ends, take hashes in order while they fit.
	type entry struct {
		hash uint64
		id   sample.ID
	}
	var edge []entry
	for id := range p.Sizes.Len() {
		if h := p.hash(sample.ID(id)); int(h>>48) == last && !p.isOutsize(sample.ID(id)) {
			edge = append(edge, entry{h, sample.ID(id)})
		}
	}
	slices.SortFunc(edge, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	for _, e := range edge {
		size := p.Size(e.id)
		one := bin{1, int64(size), p.Slot(size)}
		if set.cost+one.cost > p.Keep {
			return e.hash, set
		}
		set.add(one)
	}
	return uint64(last+1) << 48, set
}

// InSet reports whether the sample belongs to the spread set: the K bytes of samples with the
// lowest hash(id, seed). Fixed for the plan, so misses are uniform along any order.
func (p *Plan) InSet(id sample.ID) bool {
	return p.all || p.hash(id) < p.cutoff && !p.isOutsize(id)
}

func (p *Plan) isOutsize(id sample.ID) bool {
	return p.outsize > 0 && p.Slot(p.Size(id)) > p.outsize
}

// Size is the sample's size: what Sizes says, without asking where all are equal.
func (p *Plan) Size(id sample.ID) uint32 {
	if p.equal {
		return p.size
	}
	return p.Sizes.Size(id)
}

// Slot is what a kept sample of that size takes: what Cost says, without asking where all are
// equal.
func (p *Plan) Slot(size uint32) int64 {
	if p.equal {
		return p.slot
	}
	return p.Cost(size)
}

func (p *Plan) hash(id sample.ID) uint64 { return mix(uint64(id) + p.salt) }

// Reserve is the staging set aside for a cursor: two of its batches, of samples of mean cost, each
// aligned to a line of memory.
func (p *Plan) Reserve(batch int) int64 {
	mean := p.TotalCost/int64(max(p.Sizes.Len(), 1)) + 64
	return 2 * int64(max(batch, 1)) * mean
}

// mix is splitmix64's finaliser: a bijection, so no two ids of one dataset share a hash.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Digest identifies the input; nodes compare digests before they trust each other's plan.
func (in Input) Digest() [32]byte {
	b := make([]byte, 0, 128)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = append(b, in.Content[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(in.Sizes.Len()))
	b = binary.LittleEndian.AppendUint64(b, in.Seed)
	b = binary.LittleEndian.AppendUint64(b, uint64(in.Keep))
	b = binary.LittleEndian.AppendUint64(b, uint64(in.Staging))
	b = append(b, in.Policy...)
	return sha256.Sum256(b)
}
