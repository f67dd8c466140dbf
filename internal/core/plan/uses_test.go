package plan_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/plan"
)

func drawSpec(t *rapid.T) order.Spec {
	kinds := slices.DeleteFunc(order.Names(), func(k string) bool { return k == order.Explicit })
	s := order.Spec{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
		Samples: rapid.IntRange(2, 200).Draw(t, "samples"),
		World:   rapid.IntRange(1, 9).Draw(t, "world"),
		Batch:   rapid.IntRange(1, 20).Draw(t, "batch"), Seed: rapid.Int64Range(0, 1<<40).Draw(t, "seed"),
		DropLast: rapid.Bool().Draw(t, "drop last")}
	if s.Kind == order.Weighted {
		for i := range s.Samples {
			s.Weights = append(s.Weights, float64(1+i%5))
		}
	}
	return s
}

func makeOrder(t interface{ Fatal(...any) }, s order.Spec) order.Order {
	o, err := order.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Counts are those of a walk over every rank's list, whichever way the epochs are cut, for every
// kind of order.
func TestUsesAreThoseOfTheOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSpec(rt)
		nodes := rapid.IntRange(1, s.World).Draw(rt, "nodes")
		epochs := rapid.IntRange(1, 5).Draw(rt, "epochs")
		cut := rapid.IntRange(0, epochs).Draw(rt, "cut")
		want := plan.NewUses(nodes, s.Samples)
		for rank := range s.World {
			o := makeOrder(rt, s)
			for epoch := range epochs {
				e, err := o.Epoch(epoch, rank, 0, nil)
				if err != nil {
					rt.Fatal(err)
				}
				for _, id := range e.IDs {
					want[plan.NodeOf(rank, s.World, nodes)][id]++
				}
			}
		}
		got, late := plan.NewUses(nodes, s.Samples), plan.NewUses(nodes, s.Samples)
		for _, part := range []struct {
			uses     plan.Uses
			from, to int
		}{{got, 0, cut}, {late, cut, epochs}} {
			if err := part.uses.Count(makeOrder(rt, s), s.World, part.from, part.to); err != nil {
				rt.Fatal(err)
			}
		}
		got.Merge(late)
		for node := range want {
			if !slices.Equal(got[node], want[node]) {
				rt.Fatalf("node %d: %v, want %v", node, got[node], want[node])
			}
		}
	})
}

func TestUsesStopAt255(t *testing.T) {
	s := order.Spec{Kind: order.Sequential, Samples: 3, Batch: 1}
	u, v := plan.NewUses(1, 3), plan.NewUses(1, 3)
	for _, c := range []struct {
		uses   plan.Uses
		epochs int
	}{{u, 200}, {v, 300}} {
		if err := c.uses.Count(makeOrder(t, s), 1, 0, c.epochs); err != nil {
			t.Fatal(err)
		}
	}
	if want := []uint8{200, 200, 200}; !slices.Equal(u[0], want) {
		t.Errorf("%v, want %v", u[0], want)
	}
	want := []uint8{255, 255, 255}
	if !slices.Equal(v[0], want) {
		t.Errorf("%v, want %v", v[0], want)
	}
	if u.Merge(u); !slices.Equal(u[0], want) {
		t.Errorf("added up: %v, want %v", u[0], want)
	}
}

func TestNodesHaveNeighbouringRanks(t *testing.T) {
	var got []int
	for rank := range 8 {
		got = append(got, plan.NodeOf(rank, 8, 4))
	}
	if want := []int{0, 0, 1, 1, 2, 2, 3, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	o := makeOrder(t, order.Spec{Kind: order.Distributed, Samples: 9, World: 2, Batch: 1})
	if err := plan.NewUses(3, 9).Count(o, 2, 0, 1); err == nil {
		t.Error("three nodes share two ranks")
	}
}

// NoPFS's example, drawn with the order that jobs have: of 10,000 samples a node of four reads in
// 1000 epochs 322.94 more than 275 times (perf.Above). The four counts are near it, three standard
// deviations each.
func TestMonteCarloOfUses(t *testing.T) {
	const nodes, epochs, samples, least = 4, 1000, 10_000, 275
	s := order.Spec{Kind: order.Distributed, Samples: samples, World: nodes, Batch: 100, Seed: 7}
	o := makeOrder(t, s)
	var sums [nodes][samples]int
	for from := 0; from < epochs; from += 200 { // less than where counts stop
		u := plan.NewUses(nodes, samples)
		if err := u.Count(o, nodes, from, from+200); err != nil {
			t.Fatal(err)
		}
		for node := range u {
			for id, n := range u[node] {
				sums[node][id] += int(n)
			}
		}
	}
	const expected = 322.94
	deviation := math.Sqrt(expected * (1 - expected/samples))
	mean := 0.0
	for node := range sums {
		above := 0
		for _, n := range sums[node] {
			if n > least {
				above++
			}
		}
		t.Logf("node %d reads %d samples more than %d times", node, above, least)
		if math.Abs(float64(above)-expected) > 3*deviation {
			t.Errorf("node %d: %d, expected %.2f ± %.1f", node, above, expected, deviation)
		}
		mean += float64(above) / nodes
	}
	t.Logf("on average %.1f; expected %.2f", mean, expected)
	// A sample that one node reads often the others read less often, so the mean varies no more
	// than four independent counts would.
	if math.Abs(mean-expected) > 3*deviation/2 {
		t.Errorf("on average %.1f, expected %.2f", mean, expected)
	}
}

// BenchmarkUses14M: one epoch of 14.2 M samples, eight ranks.
func BenchmarkUses14M(b *testing.B) {
	const samples, world = 14_200_000, 8
	o := makeOrder(b, order.Spec{Kind: order.Distributed, Samples: samples, World: world, Batch: 256})
	u := plan.NewUses(world, samples)
	epoch := 0
	for b.Loop() {
		if err := u.Count(o, world, epoch, epoch+1); err != nil {
			b.Fatal(err)
		}
		epoch++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/samples, "ns/sample")
}
