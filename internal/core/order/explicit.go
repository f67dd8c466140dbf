package order

import (
	"fmt"

	"belady/internal/core/sample"
)

// maxAhead is how many epochs of one rank may be held at once: the one being read, and the next
// one drawn ahead of it. A client that sends more would only fill memory.
const maxAhead = 2

// A Window is a piece of one rank's explicit order: whole batches, in the order they will be read.
type Window struct {
	Epoch, Rank int
	IDs         []sample.ID
	// BatchEnds[i] is where batch i ends in IDs; the last one is len(IDs).
	BatchEnds []uint32
	// Last says that the epoch ends with this window. It may be empty then.
	Last bool
}

// Validate reports what is wrong with a window for an order over that many samples.
func (w *Window) Validate(samples int) error {
	end := uint32(0)
	for i, next := range w.BatchEnds {
		if next <= end {
			return fmt.Errorf("batch %d ends at %d, not after %d: batches cannot be empty",
				i, next, end)
		}
		end = next
	}
	if uint64(end) != uint64(len(w.IDs)) {
		return fmt.Errorf("batches end at %d but the window has %d samples: send whole batches",
			end, len(w.IDs))
	}
	if len(w.IDs) == 0 && !w.Last {
		return fmt.Errorf("it is empty and not the epoch's last: send it with samples")
	}
	for i, id := range w.IDs {
		if uint64(id) >= uint64(samples) {
			return fmt.Errorf("entry %d is sample %d: the dataset has %d", i, id, samples)
		}
	}
	return nil
}

// Windows is the order of kind explicit: it knows what has been added to it and nothing more.
type Windows struct {
	spec  Spec
	ranks [][]arrived
}

// arrived is what is known of one epoch of one rank.
type arrived struct {
	epoch int
	ids   []sample.ID
	ends  []uint32
	last  bool
}

func makeExplicit(s Spec) (Order, error) {
	return &Windows{spec: s, ranks: make([][]arrived, s.Ranks())}, nil
}

// Add appends a window to its rank's epoch. Epochs begin one after the other, each once the one
// before it had its last window; at most two are held, so Forget what has been read.
func (o *Windows) Add(w Window) error {
	if err := checkPlace(&o.spec, w.Epoch, w.Rank); err != nil {
		return err
	}
	if err := w.Validate(o.spec.Samples); err != nil {
		return fmt.Errorf("order explicit: window of epoch %d, rank %d: %w", w.Epoch, w.Rank, err)
	}
	held := o.ranks[w.Rank]
	if len(held) == 0 || held[len(held)-1].epoch+1 == w.Epoch && held[len(held)-1].last {
		if len(held) == maxAhead {
			return fmt.Errorf("order explicit: rank %d already holds epochs %d and %d: "+
				"read the first before sending epoch %d",
				w.Rank, held[0].epoch, held[1].epoch, w.Epoch)
		}
		held = append(held, arrived{epoch: w.Epoch})
		o.ranks[w.Rank] = held
	}
	a := &held[len(held)-1]
	switch {
	case a.epoch != w.Epoch:
		return fmt.Errorf("order explicit: rank %d sent epoch %d inside epoch %d (complete: %t): "+
			"send epochs one after the other", w.Rank, w.Epoch, a.epoch, a.last)
	case a.last:
		return fmt.Errorf("order explicit: rank %d sent more of epoch %d after its last window",
			w.Rank, w.Epoch)
	case len(a.ids)+len(w.IDs) > sample.MaxCount:
		return fmt.Errorf("order explicit: epoch %d of rank %d is longer than %d samples",
			w.Epoch, w.Rank, int64(sample.MaxCount))
	}
	base := uint32(len(a.ids))
	a.ids = append(a.ids, w.IDs...)
	for _, end := range w.BatchEnds {
		a.ends = append(a.ends, base+end)
	}
	a.last = w.Last
	return nil
}

// Forget drops the epochs of a rank before the given one.
func (o *Windows) Forget(rank, before int) {
	held := o.ranks[rank]
	for len(held) > 0 && held[0].epoch < before {
		held = held[1:]
	}
	o.ranks[rank] = append([]arrived(nil), held...)
}

// Epoch returns what has arrived of an epoch; ErrUnknown if nothing has. A client that resumes
// sends what is left of its epoch, so from must be 0.
func (o *Windows) Epoch(epoch, rank int, from int64, dst []sample.ID) (Epoch, error) {
	if err := checkPlace(&o.spec, epoch, rank); err != nil {
		return Epoch{}, err
	}
	if from != 0 {
		return Epoch{}, fmt.Errorf("order explicit: position %d: "+
			"send the rest of the epoch and start at 0", from)
	}
	for _, a := range o.ranks[rank] {
		if a.epoch != epoch {
			continue
		}
		dst = resize(dst, len(a.ids))
		copy(dst, a.ids)
		ends := append(make([]uint32, 0, len(a.ends)), a.ends...)
		return Epoch{IDs: dst, BatchEnds: ends, Batch: o.spec.Batch, Open: !a.last}, nil
	}
	return Epoch{}, fmt.Errorf("order explicit: epoch %d of rank %d: %w", epoch, rank, ErrUnknown)
}

// Batches is not known ahead.
func (o *Windows) Batches(int, int64) int { return 0 }
