package receipt

import (
	"fmt"

	"belady/internal/core/dataset"
	"belady/internal/core/order"
)

// Account is what one session delivered of one epoch to one rank.
type Account struct {
	Reading
	Epoch int `json:"epoch"`
	// Position is c of the order's contract; First is the first batch delivered, counted from
	// there. The next is Step batches further on: 1, unless workers share an epoch; 0 means 1.
	Position int64 `json:"position"`
	First    int   `json:"first"`
	Step     int   `json:"step,omitempty"`
	Chain    Chain `json:"chain,omitzero"`
	// Whole: the last batch of the epoch, or of the worker's share, was among them.
	Whole bool `json:"whole,omitempty"`
	// Ahead: they were sent before they were asked for, and none is known to have been taken.
	Ahead bool `json:"ahead,omitempty"`
}

// Reading is the order of an account, and whose part of it.
type Reading struct {
	Members []Member   `json:"datasets"`
	Content string     `json:"content"`
	Order   order.Spec `json:"order"`
	Rank    int        `json:"rank"`
}

// Member is one of the datasets that are read together.
type Member struct {
	Name    string  `json:"name"`
	Samples int     `json:"samples"`
	Weight  float64 `json:"weight,omitempty"`
}

// New computes a reading's order afresh.
func (r *Reading) New() (order.Order, error) {
	spec := r.Order
	if spec.Kind == order.Weighted {
		var counts []int
		var weights []float64
		for _, m := range r.Members {
			counts, weights = append(counts, m.Samples), append(weights, m.Weight)
		}
		spec.Weights = dataset.SampleWeights(counts, weights)
	}
	return order.New(spec)
}

// Finding is what a proof found. Batches are counted from the account's position.
type Finding struct {
	// Due is the number of batches from the position to the epoch's end.
	Due int
	// Differs: the order has something else somewhere in batches From to To, both included.
	Differs  bool
	From, To int

	padding []Padding // what the order has of it for the rank
}

// Prove holds an account against the order, which must be its own. Accounts come from files: an
// error means that one claims what cannot be.
func (a *Account) Prove(o order.Order) (Finding, error) {
	e, err := o.Epoch(a.Epoch, a.Rank, a.Position, nil)
	if err != nil {
		return Finding{}, err
	}
	f := Finding{Due: e.Batches(), padding: paddingOf(e, a.Rank)}
	c := &a.Chain
	if c.IsZero() {
		return f, nil
	}
	if a.First < 0 || a.Step < 0 || c.Batches < 1 || c.Stride < 1 ||
		len(c.Marks) != c.Batches/c.Stride {
		return Finding{}, fmt.Errorf("an account of epoch %d has %d marks for %d batches from %d on",
			a.Epoch, len(c.Marks), c.Batches, a.First)
	}
	last := a.Batch(c.Batches - 1)
	f.Differs, f.From, f.To = a.compare(e)
	switch {
	case f.Differs:
	case last >= f.Due: // it went on past the epoch's end
		f.Differs, f.From, f.To = true, max(a.First, f.Due), last
	case a.Whole != (a.Batch(c.Batches) >= f.Due): // it ended too early, or not at all
		f.Differs, f.From, f.To = true, last, last
	}
	return f, nil
}

// Batch is the number, in its epoch from the position on, of the i-th batch delivered.
func (a *Account) Batch(i int) int { return a.First + i*max(a.Step, 1) }

// compare finds the first stretch of batches in which a chain is not that of the epoch's batches,
// as far as the epoch goes.
func (a *Account) compare(e order.Epoch) (differs bool, from, to int) {
	var expected Chain
	var scratch []byte
	c, agreed := &a.Chain, 0
	for i := 0; i < c.Batches && a.Batch(i) < e.Batches(); i++ {
		lo, hi := e.Bounds(a.Batch(i))
		var r uint64
		r, scratch = Of(e.IDs[lo:hi], scratch)
		expected.fold(r, hi-lo)
		done := i + 1
		mark := done%c.Stride == 0
		if mark && uint32(expected.Value) != c.Marks[done/c.Stride-1] ||
			done == c.Batches && (expected.Value != c.Value || expected.Samples != c.Samples) {
			return true, a.Batch(agreed), a.Batch(i)
		}
		if mark {
			agreed = done
		}
	}
	return false, 0, 0
}
