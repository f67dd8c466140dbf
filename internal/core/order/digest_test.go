package order_test

import (
	"testing"

	"belady/internal/core/order"
)

// An order has a name of its own, unless nobody can compute it again.
func TestDigestNamesTheOrder(t *testing.T) {
	a := order.Spec{Kind: order.Distributed, Samples: 9, Batch: 2, Seed: 1}
	b := a
	b.Seed = 2
	if a.Digest() == 0 || a.Digest() == b.Digest() {
		t.Errorf("digests %x and %x", a.Digest(), b.Digest())
	}
	b.Kind = order.Explicit
	if got := b.Digest(); got != 0 {
		t.Errorf("an explicit order has the digest %x", got)
	}
}
