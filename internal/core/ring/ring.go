// Package ring names owners: a consistent-hash ring on which every node has many points.
//
// A key belongs to the node of the first point at or after its hash, so that a node that is lost
// loses only its own keys, and they spread over many others. Names and the numbers of their points
// are set apart by a '#': without it "node1"+"23" and "node12"+"3" would be one point. The hash is
// fixed (XXH3), so every node computes the same ring. A Ring does not change and may be shared.
package ring

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"
)

// MaxPoints is the most points a ring may have in all.
const MaxPoints = 1 << 24

// Ring is the points of all nodes, in the order of their hashes.
type Ring struct {
	points []point
	nodes  int
}

type point struct {
	hash uint64
	node int32
}

// New gives each node so many points.
func New(names []string, points int) (*Ring, error) {
	if len(names) == 0 || points < 1 {
		return nil, fmt.Errorf("ring of %d nodes with %d points each: needs one of each at least",
			len(names), points)
	}
	if points > MaxPoints/len(names) {
		return nil, fmt.Errorf("ring of %d nodes with %d points each: more than %d in all",
			len(names), points, MaxPoints)
	}
	sorted := slices.Sorted(slices.Values(names))
	if len(slices.Compact(sorted)) != len(names) {
		return nil, errors.New("ring: two nodes have the same name")
	}
	r := &Ring{points: make([]point, 0, len(names)*points), nodes: len(names)}
	var key []byte
	for node, name := range names {
		for i := range points {
			key = strconv.AppendInt(append(append(key[:0], name...), '#'), int64(i), 10)
			r.points = append(r.points, point{xxh3.Hash(key), int32(node)})
		}
	}
	// Equal hashes: the lower node owns, on every node alike.
	slices.SortFunc(r.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.node, b.node))
	})
	return r, nil
}

// Hash is where a key lies on every ring.
func Hash(key string) uint64 { return xxh3.HashString(key) }

// Owner is the node that owns a hash.
func (r *Ring) Owner(hash uint64) int { return int(r.points[r.after(hash)].node) }

// OwnerWithout is the node that owns a hash once the dead ones are gone; -1 when all are.
func (r *Ring) OwnerWithout(hash uint64, dead func(node int) bool) int {
	at := r.after(hash)
	for range r.points {
		if node := int(r.points[at].node); !dead(node) {
			return node
		}
		if at++; at == len(r.points) {
			at = 0
		}
	}
	return -1
}

// after is the first point at or after a hash, around the ring.
func (r *Ring) after(hash uint64) int {
	at, _ := slices.BinarySearchFunc(r.points, hash, func(p point, hash uint64) int {
		return cmp.Compare(p.hash, hash)
	})
	if at == len(r.points) {
		return 0
	}
	return at
}
