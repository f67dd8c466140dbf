package world

import (
	"errors"
	"testing"

	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/store/origin/synth"
)

// What is foretold is what comes: a prospect's plan is the plan of a world once its ranks read.
func TestAProspectIsTheWorldsPlan(t *testing.T) {
	for _, c := range []struct {
		name         string
		rule         string
		ram, staging int64
		batch, ranks int
	}{
		{"half is kept", "spread", 24 * mib, 0, 16, 1},
		{"all is kept", "spread", 200 * mib, 0, 16, 1},
		{"ranks need more staging", "spread", 200 * mib, 0, 300, 3},
		{"staging is configured", "spread", 24 * mib, 6 * mib, 16, 2},
		{"more staging than memory", "spread", 24 * mib, 64 * mib, 16, 1},
		{"slots", "belady", 24 * mib, 0, 16, 2},
		{"slots and wide batches", "lru", 150 * mib, 0, 400, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p Prospect
			b := newBench(t, synth.Config{Samples: 1500, SizeBytes: 40_000, Spread: 0.5, Classes: 1},
				func(cfg *Config) {
					cfg.Rule, cfg.Seed = c.rule, 5
					cfg.Bytes = min(Wants(cfg.Set.TotalBytes(), c.staging, c.ram), c.ram)
					cfg.Staging = min(c.staging, cfg.Bytes)
					p = Prospect{Name: cfg.Name, Content: cfg.Set.ID(), Sizes: cfg.Set, Policy: c.rule,
						RAM: c.ram, Staging: c.staging, Ranks: c.ranks}
				})
			var ranks []*rank
			for range c.ranks {
				r := b.newRank(0)
				b.attach(r, b.reading(c.batch, 1), 0)
				ranks = append(ranks, r)
			}
			p.Order = b.reading(c.batch, 1).Order
			foretold, err := p.Plan()
			if err != nil {
				t.Fatal(err)
			}
			s, err := b.Status()
			if err != nil {
				t.Fatal(err)
			}
			if s.Keep != foretold.Keep || s.Staging != foretold.Staging {
				t.Errorf("keeps %d and stages %d, foretold %d and %d", s.Keep, s.Staging, foretold.Keep,
					foretold.Staging)
			}
			if b.plan.Digest() != foretold.Digest() || b.plan.SetBytes != foretold.SetBytes {
				t.Errorf("the plan has %d bytes, foretold are %d", b.plan.SetBytes, foretold.SetBytes)
			}
			b.leave(ranks...)
		})
	}
}

func TestAProspectThatCannotBe(t *testing.T) {
	p := Prospect{Name: "d", Sizes: equal{1000, 40_000}, Policy: "spread", Ranks: 1,
		Order: order.Spec{Kind: order.Random, Samples: 1000, Batch: 900}}
	for _, p.RAM = range []int64{0, 1 * mib, 24 * mib} {
		if _, err := p.Plan(); err == nil {
			t.Errorf("%d MiB are enough", p.RAM/mib)
		} else if p.RAM > mib && !errors.Is(err, ErrTooSmall) {
			t.Error(err)
		}
	}
	p.Sizes, p.RAM = equal{10, 100 * mib}, 64*mib
	if _, err := p.Plan(); !errors.Is(err, ErrTooSmall) {
		t.Error(err)
	}
}

// equal is a dataset of samples of one size.
type equal struct {
	n    int
	size uint32
}

func (e equal) Len() int              { return e.n }
func (e equal) Size(sample.ID) uint32 { return e.size }
