package order_test

import (
	"testing"

	"belady/internal/core/order"
	"belady/internal/core/sample"
)

// BenchmarkDistributed14M is one epoch of ImageNet-21K's size for one of eight ranks: the bar is
// 0.7 s on one core.
func BenchmarkDistributed14M(b *testing.B) {
	o, err := order.New(order.Spec{
		Kind: order.Distributed, Samples: 14_200_000, World: 8, Batch: 256,
	})
	if err != nil {
		b.Fatal(err)
	}
	var ids []sample.ID
	for epoch := 0; b.Loop(); epoch++ {
		e, err := o.Epoch(epoch, 3, 0, ids)
		if err != nil {
			b.Fatal(err)
		}
		ids = e.IDs
	}
}

// BenchmarkRandomSkip is what reaching epoch 1 costs when epoch 0 is not computed first.
func BenchmarkRandomSkip(b *testing.B) {
	for b.Loop() {
		o, err := order.New(order.Spec{Kind: order.Random, Samples: 14_200_000, Batch: 256})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := o.Epoch(1, 0, 0, nil); err != nil {
			b.Fatal(err)
		}
	}
}
