package scenario

import (
	"slices"
	"testing"

	"belady/internal/core/order"
)

// No epoch of one job is read in the order of any epoch of another.
func TestJobsDiffer(t *testing.T) {
	s := Scenario{Seed: 1, Dataset: Dataset{Samples: 500},
		Job: Job{Epochs: 4, Batch: 10, Order: order.Distributed, Count: 3}}
	var seen [][]uint32
	for job, spec := range s.orders(1) {
		o, err := order.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		for epoch := range s.Job.Epochs {
			e, err := o.Epoch(epoch, 0, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			var ids []uint32
			for _, id := range e.IDs {
				ids = append(ids, uint32(id))
			}
			for i, other := range seen {
				if slices.Equal(ids, other) {
					t.Errorf("job %d reads epoch %d as job %d its epoch %d", job, epoch, i/s.Job.Epochs,
						i%s.Job.Epochs)
				}
			}
			seen = append(seen, ids)
		}
	}
}
