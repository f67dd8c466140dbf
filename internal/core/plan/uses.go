package plan

import (
	"fmt"

	"belady/internal/core/order"
	"belady/internal/core/sample"
)

// Uses is how often each node reads each sample over a horizon: Uses[node][id]. A byte is enough:
// counts stop at 255, and what is read that often is worth a home whatever the exact number.
//
// A node's counts are one array, which a cache holds far better than one of all nodes together:
// the samples of a rank's list lie anywhere in it.
type Uses [][]uint8

// NewUses counts nothing yet.
func NewUses(nodes, samples int) Uses {
	u := make(Uses, nodes)
	for node := range u {
		u[node] = make([]uint8, samples)
	}
	return u
}

// NodeOf is the node of a rank: nodes have ranks that follow each other, as torchrun numbers them.
func NodeOf(rank, world, nodes int) int { return rank * nodes / world }

// Count adds what all ranks read in epochs [from, to). It streams: an order keeps one permutation,
// so epochs are taken one after the other, and for each of them all ranks. To work in parallel
// give each goroutine an order and Uses of its own, and some of the epochs; then Merge.
func (u Uses) Count(o order.Order, world, from, to int) error {
	if len(u) < 1 || world < len(u) {
		return fmt.Errorf("%d nodes cannot share %d ranks: each needs at least one", len(u), world)
	}
	var ids []sample.ID
	for epoch := from; epoch < to; epoch++ {
		for rank := range world {
			e, err := o.Epoch(epoch, rank, 0, ids)
			if err != nil {
				return fmt.Errorf("count the uses of rank %d in epoch %d: %w", rank, epoch, err)
			}
			count(u[NodeOf(rank, world, len(u))], e.IDs)
			ids = e.IDs
		}
	}
	return nil
}

func count(uses []uint8, ids []sample.ID) {
	for _, id := range ids {
		if uses[id] < saturated {
			uses[id]++
		}
	}
}

const saturated = 255

// Merge adds other counts of the same nodes and samples.
func (u Uses) Merge(other Uses) {
	for node, uses := range u {
		more := other[node]
		for id, n := range uses {
			uses[id] = uint8(min(int(n)+int(more[id]), saturated))
		}
	}
}
