// Package order computes who reads what and when: the clairvoyance everything else rests on.
//
// A Spec names one order; New turns it into an Order, and an Order gives each rank's list for any
// epoch, whole or from a position on. With from = 0 the list is bit for bit what the framework's
// own sampler would yield. An Order caches the last permutation and generator state, so it belongs
// to one goroutine at a time; make several from one Spec to work in parallel, they agree.
//
// The package never looks at bytes, tiers or time, and never guesses: an order it cannot compute
// exactly is an error, or is sent by the client as kind explicit. Its contract is
// docs/format/order.md.
package order

import (
	"errors"
	"fmt"

	"belady/internal/core/sample"
)

// ErrUnknown means that an explicit epoch has not arrived yet: wait for the client to send it.
var ErrUnknown = errors.New("epoch not known yet")

// An Order is one Spec ready to compute.
type Order interface {
	// Epoch returns the samples one rank reads in an epoch, in order, from position c = from on:
	// from counts the entries of the epoch's permutation, over all ranks, in batches already
	// returned to the user's loop; 0 is the whole epoch. dst's storage is reused if it is large
	// enough, and the result may alias it. The result is the caller's.
	Epoch(epoch, rank int, from int64, dst []sample.ID) (Epoch, error)
	// Batches counts those of one rank in any epoch, from a position in it on, computing nothing; 0
	// for an explicit order, whose epochs are as long as what arrives.
	Batches(rank int, from int64) int
}

// An Epoch is what one rank reads in one epoch, or in the rest of one.
type Epoch struct {
	IDs []sample.ID
	// BatchEnds[i] is where batch i ends in IDs. Nil means uniform batches of Batch samples, the
	// last one possibly short; samples that drop_last drops are not in IDs.
	BatchEnds []uint32
	// Batch is the uniform batch size of this rank.
	Batch int
	// Padding is how many of the last IDs are entries of the epoch's permutation once more, that
	// every rank may read as many.
	Padding int
	// Open says that more of this epoch is still to come: only an explicit one can be.
	Open bool
}

// Batches is the number of batches.
func (e Epoch) Batches() int {
	if e.BatchEnds != nil || len(e.IDs) == 0 {
		return len(e.BatchEnds)
	}
	return batchesOf(len(e.IDs), e.Batch)
}

func batchesOf(entries, batch int) int { return (entries + batch - 1) / batch }

// Bounds says where a batch lies: IDs[lo:hi]. It panics if there is no such batch.
func (e Epoch) Bounds(batch int) (lo, hi int) {
	if batch < 0 || batch >= e.Batches() {
		panic(fmt.Sprintf("order: batch %d of an epoch of %d", batch, e.Batches()))
	}
	if e.BatchEnds == nil {
		return batch * e.Batch, min((batch+1)*e.Batch, len(e.IDs))
	}
	if batch > 0 {
		lo = int(e.BatchEnds[batch-1])
	}
	return lo, int(e.BatchEnds[batch])
}

// New makes the order a spec names. For kind explicit the result is a *Windows.
func New(spec Spec) (Order, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	kind, _ := find(spec.Kind)
	o, err := kind.make(spec)
	if err != nil {
		return nil, fmt.Errorf("order %s: %w", spec.Kind, err)
	}
	return o, nil
}

func checkPlace(s *Spec, epoch, rank int) error {
	if epoch < 0 || epoch > MaxEpoch {
		return fmt.Errorf("order %s: epoch %d is not in 0 to %d", s.Kind, epoch, MaxEpoch)
	}
	if rank < 0 || rank >= s.Ranks() {
		return fmt.Errorf("order %s: rank %d is not in a world of %d: ranks are 0 to %d",
			s.Kind, rank, s.Ranks(), s.Ranks()-1)
	}
	return nil
}

// resize returns dst with length n, in its own storage where that is large enough.
func resize(dst []sample.ID, n int) []sample.ID {
	if cap(dst) < n {
		return make([]sample.ID, n)
	}
	return dst[:n]
}
