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

// index says where each sample's authoritative record lies and what its sum is: 12 bytes a sample.
// A sample's two entries change together, under the lock of its stripe.
type index struct {
	locks  [64]sync.Mutex
	places []place
	sums   []uint32
}

func newIndex(samples int) index {
	return index{places: make([]place, samples), sums: make([]uint32, samples)}
}

func (x *index) lock(id sample.ID) *sync.Mutex {
	m := &x.locks[id%sample.ID(len(x.locks))]
	m.Lock()
	return m
}

func (x *index) get(id sample.ID) (place, uint32) {
	defer x.lock(id).Unlock()
	return x.places[id], x.sums[id]
}

// move puts a sample where it is found from now on, if it still lies at from (0: nowhere).
func (x *index) move(id sample.ID, from, to place, sum uint32) bool {
	defer x.lock(id).Unlock()
	if x.places[id] != from {
		return false
	}
	x.places[id], x.sums[id] = to, sum
	return true
}

// held has a bit for each sample that has a place.
func (x *index) held() []uint64 {
	set := make([]uint64, (len(x.places)+63)/64)
	for i, p := range x.places {
		if p != 0 {
			set[i/64] |= 1 << (i % 64)
		}
	}
	return set
}
