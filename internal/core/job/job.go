// Package job is the whole contract with a training program: which order it reads, how often,
// from where on; and the feed that turns that contract into windows for the pump.
//
// Equal readings give equal windows in the daemon, in the simulator and in a replay, so windows
// are never recorded, only readings.
package job

import (
	"fmt"

	"belady/internal/core/order"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// Reading is one rank's part of a job.
type Reading struct {
	Order  order.Spec `json:"order"`
	Epochs int        `json:"epochs"` // the epoch after the last
	Rank   int        `json:"rank"`
	Start  Start      `json:"start"`
}

// Start is where a reading begins: epoch, c (entries of its permutation already returned, over all
// ranks) and the first batch wanted of what is left.
type Start struct {
	Epoch    int   `json:"epoch"`
	Position int64 `json:"position"`
	Batch    int   `json:"batch"`
}

// Window is a stretch of a reading, usually an epoch. Its slices are computed off the pump's
// goroutine and belong to the pump from the event that brings them.
type Window struct {
	Epoch int
	// Batch is the index, in its epoch, of the window's first batch.
	Batch int
	IDs   []sample.ID
	// Ends are the batches' ends in IDs; the last one is len(IDs).
	Ends []uint32
	// Next is, for each position, when the same sample is used next: a position counted from the
	// start of this window, running on into the following epoch; NoNext where none is known. It is
	// a time, not a place: the use may be another rank's at the same step. Nil where the policy
	// does not look ahead.
	Next []uint32
	// LastOfEpoch: the epoch ends with this window. LastOfJob: nothing follows.
	LastOfEpoch, LastOfJob bool
}

// NoNext marks a position whose sample has no known next use.
const NoNext = 1<<32 - 1

// Validate reports what is wrong with a reading, in a sentence.
func (r *Reading) Validate() error {
	if err := r.Order.Validate(); err != nil {
		return err
	}
	if world := r.Order.Ranks(); r.Rank < 0 || r.Rank >= world {
		return fmt.Errorf("rank %d is not in a world of %d: ranks are 0 to %d",
			r.Rank, world, world-1)
	}
	if r.Epochs <= r.Start.Epoch || r.Start.Epoch < 0 {
		return fmt.Errorf("epochs end at %d but reading starts at epoch %d: nothing to read",
			r.Epochs, r.Start.Epoch)
	}
	if r.Start.Batch < 0 || r.Start.Position < 0 {
		return fmt.Errorf("a reading cannot start at batch %d, position %d: use 0 or more",
			r.Start.Batch, r.Start.Position)
	}
	return nil
}

// PolicyName is the policy in force: the one asked for, or the order's default.
func PolicyName(asked string, o *order.Spec) string {
	if asked != "" {
		return asked
	}
	return policy.Default(o.Repeats())
}

// Feed computes a reading's windows, one an epoch. It belongs to one goroutine at a time.
type Feed struct {
	reading Reading
	ahead   bool
	order   order.Order
	// The epoch computed last: Begin's is the first window's, and the next one's is its
	// predecessor's future.
	held      order.Epoch
	heldEpoch int
	heldFrom  int64
	hasHeld   bool
}

// NewFeed prepares a reading; ahead asks for next uses.
func NewFeed(r Reading, ahead bool) (*Feed, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	o, err := order.New(r.Order)
	if err != nil {
		return nil, err
	}
	return &Feed{reading: r, ahead: ahead, order: o}, nil
}

// Begin prepares a reading whose start may lie at the end of an epoch: it returns the feed, the
// start in normal form (a batch that exists) and the number of batches of a whole epoch.
func Begin(r Reading, ahead bool) (*Feed, Start, int, error) {
	o, err := order.New(r.Order)
	if err != nil {
		return nil, Start{}, 0, err
	}
	return BeginWith(o, r, ahead)
}

// BeginWith is Begin for an order that was made already.
func BeginWith(o order.Order, r Reading, ahead bool) (*Feed, Start, int, error) {
	if err := r.Validate(); err != nil {
		return nil, Start{}, 0, err
	}
	f := &Feed{reading: r, ahead: ahead, order: o}
	left, err := f.epoch(r.Start.Epoch, r.Start.Position)
	if err != nil {
		return nil, Start{}, 0, err
	}
	whole := f.order.Batches(r.Rank, 0)
	if whole == 0 {
		return nil, Start{}, 0, fmt.Errorf("epoch %d has no batch for rank %d: %d samples in "+
			"batches of %d over %d ranks, drop_last %t", r.Start.Epoch, r.Rank, r.Order.Samples,
			r.Order.Batch, r.Order.Ranks(), r.Order.DropLast)
	}
	if r.Start.Batch == left.Batches() {
		r.Start = Start{Epoch: r.Start.Epoch + 1}
		if err := r.Validate(); err != nil {
			return nil, Start{}, 0, err
		}
		f.reading.Start = r.Start
	}
	if r.Start.Batch > left.Batches() {
		return nil, Start{}, 0, fmt.Errorf("epoch %d has %d batches from there: it cannot start "+
			"at batch %d", r.Start.Epoch, left.Batches(), r.Start.Batch)
	}
	return f, r.Start, whole, nil
}

// Window computes the k-th window: epoch Start.Epoch + k, from the start position on if k is 0.
func (f *Feed) Window(k int) (*Window, error) {
	r := &f.reading
	number := r.Start.Epoch + k
	if number >= r.Epochs {
		return nil, fmt.Errorf("epoch %d is past the job's last, %d", number, r.Epochs-1)
	}
	from := int64(0)
	if k == 0 {
		from = r.Start.Position
	}
	e, err := f.epoch(number, from)
	if err != nil {
		return nil, err
	}
	w := &Window{Epoch: number, IDs: e.IDs, LastOfEpoch: true, LastOfJob: number == r.Epochs-1}
	w.Ends = make([]uint32, e.Batches())
	for i := range w.Ends {
		_, hi := e.Bounds(i)
		w.Ends[i] = uint32(hi)
	}
	if r.Order.Repeats() {
		if err := w.CheckRepeats(); err != nil {
			return nil, err
		}
	}
	if f.ahead {
		if w.Next, err = f.nextUses(e.IDs, number); err != nil {
			return nil, err
		}
	}
	if k > 0 {
		return w, nil
	}
	if r.Start.Batch > 0 && r.Start.Batch >= len(w.Ends) {
		return nil, fmt.Errorf("epoch %d has %d batches: it cannot start at batch %d",
			w.Epoch, len(w.Ends), r.Start.Batch)
	}
	w.Cut(r.Start.Batch)
	return w, nil
}

// MaxRepeats is how often one batch may use one sample: a pump counts uses in flight in few bits,
// and a batch that needs more could never be handed out.
const MaxRepeats = 2000

// CheckRepeats refuses a batch that uses one sample too often.
func (w *Window) CheckRepeats() error {
	lo := uint32(0)
	for i, hi := range w.Ends {
		if hi-lo > MaxRepeats {
			uses := map[sample.ID]int{}
			for _, id := range w.IDs[lo:hi] {
				if uses[id]++; uses[id] > MaxRepeats {
					return fmt.Errorf("batch %d of epoch %d uses sample %d more than %d times: "+
						"use smaller batches", w.Batch+i, w.Epoch, id, MaxRepeats)
				}
			}
		}
		lo = hi
	}
	return nil
}

// Cut takes the first n batches off the window.
func (w *Window) Cut(n int) {
	if n <= 0 {
		return
	}
	from := w.Ends[n-1]
	w.Batch += n
	w.IDs = w.IDs[from:]
	w.Ends = w.Ends[n:]
	for i := range w.Ends {
		w.Ends[i] -= from
	}
	if w.Next == nil {
		return
	}
	w.Next = w.Next[from:]
	for i, next := range w.Next {
		if next != NoNext {
			w.Next[i] = next - from
		}
	}
}

func (f *Feed) epoch(number int, from int64) (order.Epoch, error) {
	if f.hasHeld && f.heldEpoch == number && f.heldFrom == from {
		return f.held, nil
	}
	e, err := f.order.Epoch(number, f.reading.Rank, from, nil)
	if err == nil {
		f.held, f.heldEpoch, f.heldFrom, f.hasHeld = e, number, from, true
	}
	return e, err
}

// nextUses computes Window.Next: first this epoch's own repeats, then first uses in the next epoch
// by any rank. Ranks move in step, so another rank's position is a time for this one too.
func (f *Feed) nextUses(ids []sample.ID, number int) ([]uint32, error) {
	first := make([]uint32, f.reading.Order.Samples)
	for i := range first {
		first[i] = NoNext
	}
	if number+1 < f.reading.Epochs {
		for rank := range f.reading.Order.Ranks() {
			e, err := f.order.Epoch(number+1, rank, 0, nil)
			if err != nil {
				return nil, err
			}
			for i := len(e.IDs) - 1; i >= 0; i-- {
				at := uint32(len(ids) + i)
				if old := first[e.IDs[i]]; old == NoNext || at < old {
					first[e.IDs[i]] = at
				}
			}
		}
	}
	next := make([]uint32, len(ids))
	for i := len(ids) - 1; i >= 0; i-- {
		next[i] = first[ids[i]]
		first[ids[i]] = uint32(i)
	}
	return next, nil
}
