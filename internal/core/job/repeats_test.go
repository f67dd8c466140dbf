package job_test

import (
	"strings"
	"testing"

	"belady/internal/core/job"
	"belady/internal/core/order"
)

// A batch that uses one sample more often than a pump can count is refused, never waited for.
func TestTooManyRepeats(t *testing.T) {
	r := job.Reading{Epochs: 1, Order: order.Spec{Kind: order.Replacement, Samples: 2, Batch: 5000,
		Draws: 5000}}
	f, err := job.NewFeed(r, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Window(0); err == nil || !strings.Contains(err.Error(), "use smaller batches") {
		t.Errorf("5000 draws of 2 samples in one batch: %v", err)
	}
	r.Order.Batch = 2000
	if f, err = job.NewFeed(r, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Window(0); err != nil {
		t.Errorf("batches of 2000: %v", err)
	}
}
