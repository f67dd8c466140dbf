package ssd

import (
	"sync"

	"belady/internal/core/sample"
)

// A place is where a record's header lies: which of the log's files (24 bits), and where in it (40
// bits). Zero is no place, since every file begins with its own header.
type place uint64

const (
	offsetBits = 40
	filesMax   = 1 << (64 - offsetBits)
)

func makePlace(file uint32, offset int64) place {
	return place(file)<<offsetBits | place(offset)
}

func (p place) file() uint32  { return uint32(p >> offsetBits) }
func (p place) offset() int64 { return int64(p & (1<<offsetBits - 1)) }

// spot is what the index says of a sample, in 12 bytes: its place in halves, and its sum. They lie
// together, since a look at them is a miss of every cache.
type spot [3]uint32

func (s spot) place() place { return place(s[0]) | place(s[1])<<32 }

func makeSpot(p place, sum uint32) spot { return spot{uint32(p), uint32(p >> 32), sum} }

// index says where each sample's authoritative record lies and what its sum is. A spot changes
// under the lock of its stripe.
type index struct {
	locks [64]sync.Mutex
	spots []spot
}

func newIndex(samples int) index { return index{spots: make([]spot, samples)} }

func (x *index) lock(id sample.ID) *sync.Mutex {
	m := &x.locks[id%sample.ID(len(x.locks))]
	m.Lock()
	return m
}

func (x *index) get(id sample.ID) (place, uint32) {
	m := x.lock(id)
	s := x.spots[id]
	m.Unlock()
	return s.place(), s[2]
}

// move puts a sample where it is found from now on, if it still lies at from (0: nowhere).
func (x *index) move(id sample.ID, from, to place, sum uint32) bool {
	defer x.lock(id).Unlock()
	if x.spots[id].place() != from {
		return false
	}
	x.spots[id] = makeSpot(to, sum)
	return true
}

// held has a bit for each sample that has a place.
func (x *index) held() []uint64 {
	set := make([]uint64, (len(x.spots)+63)/64)
	for i, s := range x.spots {
		if s.place() != 0 {
			set[i/64] |= 1 << (i % 64)
		}
	}
	return set
}
