package sim

import (
	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/sample"
)

// some is a part of a dataset.
type some struct{ samples, bytes int64 }

func (s *some) add(size uint32) {
	s.samples++
	s.bytes += int64(size)
}

// missing is the bytes of all that are no part of it.
func (s *some) missing(all some) int64 { return all.bytes - s.bytes }

// distinct is what the readings of a scenario read of a dataset, each sample once: all there is, in
// the first epoch, and in any later one at the least.
type distinct struct{ all, first, later some }

// distinctOf looks into every epoch, but where a job is known to read all samples in each.
func distinctOf(s *Scenario) (d distinct, err error) {
	sizes := s.Plan.Sizes
	for id := range sizes.Len() {
		d.all.add(sizes.Size(sample.ID(id)))
	}
	if readsAll(s.Readings, sizes.Len()) {
		d.first, d.later = d.all, d.all
		return d, nil
	}
	epochs := 0
	for _, r := range s.Readings {
		if !r.Order.Known() || r.Start != (job.Start{}) {
			return d, nil // nothing that can be told beforehand
		}
		epochs = max(epochs, r.Epochs)
	}
	orders := make([]order.Order, len(s.Readings))
	for i, r := range s.Readings {
		if orders[i], err = order.New(r.Order); err != nil {
			return d, err
		}
	}
	d.later = d.all
	for epoch := range epochs {
		got, err := readIn(epoch, orders, s.Readings, sizes)
		switch {
		case err != nil:
			return d, err
		case epoch == 0:
			d.first = got
		default:
			d.later.samples = min(d.later.samples, got.samples)
			d.later.bytes = min(d.later.bytes, got.bytes)
		}
	}
	return d, nil
}

// readIn is what all readings together read in an epoch.
func readIn(
	epoch int, orders []order.Order, readings []job.Reading, sizes dataset.Sizes,
) (got some, err error) {
	seen := make([]bool, sizes.Len())
	for i, r := range readings {
		if epoch >= r.Epochs {
			continue
		}
		e, err := orders[i].Epoch(epoch, r.Rank, 0, nil)
		if err != nil {
			return got, err
		}
		for _, id := range e.IDs {
			if !seen[id] {
				seen[id] = true
				got.add(sizes.Size(id))
			}
		}
	}
	return got, nil
}

// readsAll says that a job's ranks are all there, reading every sample in each epoch.
func readsAll(readings []job.Reading, samples int) bool {
	longest := 0
	for _, r := range readings {
		longest = max(longest, r.Epochs)
	}
	type part struct {
		seed        int64
		world, rank int
	}
	there, ranks := map[part]bool{}, map[part]int{}
	for _, r := range readings {
		o := r.Order
		if o.Kind == order.Distributed && !o.Repeats() && !o.DropLast && !o.SamplerDropLast &&
			o.Draws == 0 && o.Samples == samples && r.Epochs == longest && r.Start == (job.Start{}) {
			all, one := part{o.Seed, o.Ranks(), 0}, part{o.Seed, o.Ranks(), r.Rank}
			if !there[one] {
				there[one] = true
				ranks[all]++
			}
			if ranks[all] == o.Ranks() {
				return true
			}
		}
	}
	return false
}
