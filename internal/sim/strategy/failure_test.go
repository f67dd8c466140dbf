package strategy_test

import (
	"math"
	"testing"

	"belady/internal/sim/strategy"
)

// spacious is a cluster whose nodes' ram holds the dataset, with room for a node's share more.
func spacious(failures ...strategy.Failure) *strategy.Scenario {
	c := listing()
	c.Tiers = c.Tiers[:1]
	c.Tiers[0].Capacity = 4000 * mb
	c.Staging.Capacity = 100 * mb // little of an epoch is staged before the failure
	s := trained(c, 10_000, 5, 1, 0.1, 1)
	s.Failures = failures
	return s
}

// What a failed node held comes from the origin in every epoch after, or with refill once.
func TestFailure(t *testing.T) {
	for _, name := range []string{"lbann-dynamic", "lbann-preload", "deepio-ordered",
		"locality-aware", "belady"} {
		whole := run(t, spacious(), name)
		bypass := run(t, spacious(strategy.Failure{Node: 1, At: 1}), name)
		refill := run(t, spacious(strategy.Failure{Node: 1, At: 1, Refill: true}), name)
		t.Logf("%-15s %.1f s, bypass %.1f, refill %.1f: %s", name, whole.Seconds, bypass.Seconds,
			refill.Seconds, refill.Note)
		if whole.Seconds > refill.Seconds*1.001 || refill.Seconds > bypass.Seconds {
			t.Errorf("%s: %v s, with refill %v, with bypass %v", name, whole.Seconds,
				refill.Seconds, bypass.Seconds)
		}
		once := float64(refill.OriginBytes() - whole.OriginBytes())
		every := float64(bypass.OriginBytes() - whole.OriginBytes())
		if once < 1500*mb || math.Abs(every/once/4-1) > 0.05 {
			t.Errorf("%s: the origin sends %v bytes more in 4 epochs, with refill %v", name, every,
				once)
		}
	}
}

// Belady's second copies outlive a node; all nodes lost leave the origin alone.
func TestFailures(t *testing.T) {
	second := run(t, spacious(strategy.Failure{Node: 1, At: 1}), "belady")
	if share := sum(spacious().Jobs[0].Sizes) / 4; float64(second.OriginBytes()) >
		sum(spacious().Jobs[0].Sizes)+4*share {
		t.Errorf("%d bytes of the origin: no second copy was read", second.OriginBytes())
	}
	var all []strategy.Failure
	for node := range 4 {
		all = append(all, strategy.Failure{Node: node, At: 0, Refill: true})
	}
	for _, name := range []string{"nopfs", "belady", "lbann-dynamic"} {
		r := run(t, spacious(all...), name)
		if want := 5 * sum(spacious().Jobs[0].Sizes); float64(r.OriginBytes()) != want {
			t.Errorf("%s without any tier: %d bytes of the origin of %v", name, r.OriginBytes(), want)
		}
	}
	for _, bad := range []strategy.Failure{{Node: 4}, {Node: -1}, {At: 5}, {At: -1},
		{At: math.NaN()}} {
		if _, err := strategy.Run(spacious(bad), "naive"); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
