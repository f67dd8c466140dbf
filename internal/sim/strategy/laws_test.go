package strategy_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/core/sample"
	"belady/internal/sim/strategy"
)

// ordered are the strategies that deliver the job's order, and so all of its samples.
var ordered = []string{"perfect", "naive", "staging", "deepio-ordered", "lbann-dynamic",
	"lbann-preload", "locality-aware", "nopfs", "belady"}

// drawn is a small cluster and job: fast and slow tiers, few nodes, some of which fail, wide and
// narrow sizes, links between nodes of any speed or none. An epoch's last batches may be padded, or
// dropped.
func drawn(t *rapid.T) *strategy.Scenario {
	nodes := rapid.IntRange(1, 6).Draw(t, "nodes")
	batch := rapid.IntRange(1, 8).Draw(t, "batch")
	samples := nodes*batch*rapid.IntRange(2, 40).Draw(t, "batches") +
		rapid.IntRange(0, nodes*batch-1).Draw(t, "more")
	seed := rapid.Uint64Range(1, 1000).Draw(t, "seed")
	mean := rapid.Float64Range(0.1, 4).Draw(t, "mean")
	sizes := strategy.Normal(samples, mean*mb,
		mean*mb*rapid.Float64Range(0, 1).Draw(t, "deviation"), seed)
	var bytes int64
	for _, s := range sizes {
		bytes += int64(s)
	}
	c := listing()
	c.Nodes, c.Shared = nodes, rapid.Bool().Draw(t, "shared")
	c.Peers = rapid.SampledFrom([]float64{0, 1, 10, 30, 60, 100, 10000}).Draw(t, "peers") * mb
	c.Staging.Capacity = 1 + int64(rapid.Float64Range(0, 0.5).Draw(t, "staging")*float64(bytes))
	c.Compute = rapid.Float64Range(10, 1000).Draw(t, "compute") * mb
	tiers := c.Tiers
	c.Tiers = nil
	for _, tier := range tiers {
		share := rapid.Float64Range(-0.5, 1.5).Draw(t, tier.Name)
		tier.Capacity = int64(share * float64(bytes) / float64(nodes))
		tier.Threads = rapid.Int64Range(1, 4).Draw(t, "threads")
		if tier.Capacity > 0 {
			c.Tiers = append(c.Tiers, tier)
		}
	}
	spec := order.Spec{Kind: order.Distributed, Samples: samples, Seed: int64(seed), World: nodes,
		Batch: batch, DropLast: rapid.Bool().Draw(t, "drop last")}
	s := &strategy.Scenario{Cluster: c, Jobs: []strategy.Job{{Order: spec, Sizes: sizes,
		Epochs: rapid.IntRange(1, 4).Draw(t, "epochs")}}}
	for range rapid.IntRange(0, 2).Draw(t, "failures") {
		s.Failures = append(s.Failures, strategy.Failure{
			Node:   rapid.IntRange(0, nodes-1).Draw(t, "fails"),
			At:     rapid.Float64Range(0, float64(s.Jobs[0].Epochs)-0.01).Draw(t, "at"),
			Refill: rapid.Bool().Draw(t, "refill")})
	}
	return s
}

func sum[T int64 | float64 | uint32](all []T) (total float64) {
	for _, n := range all {
		total += float64(n)
	}
	return total
}

func try(t *rapid.T, s *strategy.Scenario, name string) strategy.Result {
	r, err := strategy.Run(s, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

// each visits what a node's rank reads.
func each(t *rapid.T, job strategy.Job, rank int, visit func(id sample.ID)) {
	o, err := order.New(job.Order)
	if err != nil {
		t.Fatal(err)
	}
	for e := range job.Epochs {
		epoch, err := o.Epoch(e, rank, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range epoch.IDs {
			visit(id)
		}
	}
}

// Law: no strategy beats the lower bound, all bytes come from somewhere, times add up, nothing
// reads less of the origin than the least, and what nodes give each other goes over a link.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		job := s.Jobs[0]
		var pool int64
		for _, tier := range s.Tiers {
			pool += tier.Capacity * int64(s.Nodes)
		}
		perfect, want := try(t, s, "perfect"), 0.0
		for rank := range s.Nodes {
			each(t, job, rank, func(id sample.ID) { want += float64(job.Sizes[id]) })
		}
		bound, least := perfect.Seconds, perfect.Least(pool)
		for _, name := range ordered[1:] {
			r := try(t, s, name)
			if r.Unsupported != "" {
				continue
			}
			// Batches that are dealt anew are others, with a bound of their own: Stall says it.
			if r.Seconds < bound*(1-1e-9) && name != "locality-aware" {
				t.Errorf("%s: %v s, the lower bound is %v", name, r.Seconds, bound)
			}
			if read := sum(r.Bytes[:]); read != want {
				t.Errorf("%s: %v bytes were read of %v", name, read, want)
			}
			// deepio-ordered waits for nothing but the origin: the rest it has read before.
			if sent := float64(r.Bytes[strategy.Peer]); sent > 0 && (s.Nodes == 1 || s.Peers == 0) ||
				sent > s.Peers*r.Busy[strategy.Peer]*(1+1e-9) && name != "deepio-ordered" {
				t.Errorf("%s: %v bytes of peers in %v s of threads at %v a second", name, sent,
					r.Busy[strategy.Peer], s.Peers)
			}
			for place, name := range map[strategy.Place]string{strategy.Ram: "ram", strategy.Ssd: "ssd"} {
				there := slices.ContainsFunc(s.Tiers, func(t perf.Tier) bool { return t.Name == name })
				if r.Bytes[place] > 0 && !there {
					t.Errorf("%s: %d bytes of %s, which no node has", r.Strategy, r.Bytes[place], name)
				}
			}
			if all := r.Prestage + sum(r.Epochs); math.Abs(all/r.Seconds-1) > 1e-9 ||
				len(r.Epochs) != job.Epochs || r.Stall < -1e-9*r.Seconds {
				t.Errorf("%s: %+v", name, r)
			}
			if r.OriginBytes() < least {
				t.Errorf("%s: %d bytes of the origin, at least %d", name, r.OriginBytes(), least)
			}
			if s.Shared {
				if fastest := float64(s.Origin.Best(int64(s.Nodes))); float64(r.OriginBytes()) >
					r.Seconds*fastest*(1+1e-9) {
					t.Errorf("%s: %d bytes in %v s through a pipe of %v a second", name,
						r.OriginBytes(), r.Seconds, fastest)
				}
			}
		}
	})
}

// Law: equal scenarios give equal results, with several jobs too.
func TestEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		if rapid.Bool().Draw(t, "two jobs") {
			second := s.Jobs[0]
			second.Order.Seed++
			second.Epochs += rapid.IntRange(0, 2).Draw(t, "more epochs")
			if rapid.Bool().Draw(t, "two datasets") {
				second.Sizes = slices.Clone(second.Sizes)
			}
			s.Jobs = append(s.Jobs, second)
		}
		for _, name := range strategy.Names() {
			if a, b := try(t, s, name), try(t, s, name); !reflect.DeepEqual(a, b) {
				t.Errorf("%s: %+v, then %+v", name, a, b)
			}
		}
	})
}

// Law: nodes without a link between them, or with one slower than the origin, join nothing: each
// reads the origin once for every sample that it reads at all, where its tiers hold the dataset.
func TestApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		s.Failures, s.Shared = nil, false
		s.Peers = rapid.SampledFrom([]float64{0, 1 * mb}).Draw(t, "slow peers")
		s.Tiers = listing().Tiers[:rapid.IntRange(1, 2).Draw(t, "tiers")]
		job := s.Jobs[0]
		want := 0.0
		for node := range s.Nodes {
			want += different(t, job, node)
		}
		r := try(t, s, "belady")
		if got := float64(r.OriginBytes()); got != want || r.Bytes[strategy.Peer] != 0 {
			t.Errorf("%v bytes of the origin, %v are different; %+v", got, want, r)
		}
	})
}

// different is the bytes of the samples that a node reads, each once.
func different(t *rapid.T, job strategy.Job, node int) (bytes float64) {
	seen := map[sample.ID]bool{}
	each(t, job, node, func(id sample.ID) {
		if !seen[id] {
			bytes += float64(job.Sizes[id])
		}
		seen[id] = true
	})
	return bytes
}

// Law: a link that joins nodes is taken with what it costs. One sample of 10 MB, which both nodes
// want at once: the second is given it while it arrives, at the link's speed.
func TestLink(t *testing.T) {
	for peers, want := range map[float64]float64{1000: 0.5, 30: 0.5, 20: 0.5, 10: 1} {
		s := &strategy.Scenario{
			Cluster: strategy.Cluster{Nodes: 2, Compute: 100 * mb, Peers: peers * mb,
				Staging: perf.Tier{Capacity: 100 * mb, Threads: 1},
				Tiers: []perf.Tier{{Name: "ram", Capacity: 100 * mb, Threads: 1,
					Read: steps(1, 10000)}}, Origin: steps(1, 20, 2, 20)},
			Jobs: []strategy.Job{{Epochs: 1, Sizes: []uint32{10 * mb},
				Order: order.Spec{Kind: order.Distributed, Samples: 1, World: 2, Batch: 1}}}}
		r := run(t, s, "belady")
		if math.Abs(r.Seconds-want-0.1) > 1e-9 || r.OriginBytes() != 10*mb {
			t.Errorf("%v MB/s: %v s, by hand %v; %+v", peers, r.Seconds, want+0.1, r)
		}
	}
}

// Strategies that read only a part of the dataset read one of the same sizes, however much these
// vary: they end faster than the lower bound by no more than chance.
func TestPartsAreFair(t *testing.T) {
	c := listing()
	c.Tiers[0].Capacity, c.Tiers[1].Capacity = 100*mb, 200*mb
	s := trained(c, 100_000, 2, 0.1077, 0.2, 1)
	bound := run(t, s, "perfect").Seconds
	for _, name := range []string{"deepio-opportunistic", "parallel-staging"} {
		if r := run(t, s, name); r.Seconds-r.Prestage < 0.9*bound || r.Note == "" {
			t.Errorf("%s: %v s after %v, the bound is %v; %s", name, r.Seconds, r.Prestage, bound, r.Note)
		}
	}
}

// Law: more ram is never slower, but for the chance of which samples are in it.
func TestMoreIsNotSlower(t *testing.T) {
	for _, name := range []string{"nopfs", "belady"} {
		before := math.Inf(1)
		for _, ram := range []int64{0, 5, 10, 20, 40, 60} {
			c := listing()
			c.Tiers = c.Tiers[:1]
			if c.Tiers[0].Capacity = ram * 100 * mb; ram == 0 {
				c.Tiers = nil
			}
			r := run(t, trained(c, 10_000, 5, 2, 0.2, 1), name)
			if r.Seconds > before*1.005 {
				t.Errorf("%s: %v s with %d00 MB of ram, %v with less", name, r.Seconds, ram, before)
			}
			before = r.Seconds
		}
	}
}

// Two nodes, a sample each: both get half of what two readers get until the smaller has arrived,
// the larger then all that one reader gets.
func TestByHand(t *testing.T) {
	s := &strategy.Scenario{
		Cluster: strategy.Cluster{Nodes: 2, Compute: 100 * mb, Preprocess: 200 * mb,
			Staging: perf.Tier{Capacity: 1000 * mb, Threads: 2}, Origin: steps(1, 60, 2, 80)},
		Jobs: []strategy.Job{{Epochs: 1, Sizes: []uint32{10 * mb, 20 * mb},
			Order: order.Spec{Kind: order.Sequential, Samples: 2, World: 2, Batch: 1}}}}
	arrived := 10.0/40 + 10.0/60
	for name, want := range map[string]float64{
		"perfect": 0.2, "staging": arrived + 0.2, "nopfs": arrived + 0.2,
		"naive": arrived + 0.1 + 0.2} {
		if got := run(t, s, name).Seconds; math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v s, by hand %v", name, got, want)
		}
	}
	s.Shared, s.Staging.Threads = true, 1 // one thread a node: each has a node's share either way
	if got := run(t, s, "staging").Seconds; math.Abs(got-arrived-0.2) > 1e-12 {
		t.Errorf("shared: %v s, by hand %v", got, arrived+0.2)
	}
}

// What the model cannot run is refused with what it can.
func TestBad(t *testing.T) {
	for want, change := range map[string]func(s *strategy.Scenario){
		"1 to 59 nodes, not 0": func(s *strategy.Scenario) { s.Nodes = 0 },
		"compute is 0":         func(s *strategy.Scenario) { s.Compute = 0 },
		"a rate is below 0":    func(s *strategy.Scenario) { s.Peers = -1 },
		"staging is 0 bytes":   func(s *strategy.Scenario) { s.Staging.Capacity = 0 },
		"there is no job":      func(s *strategy.Scenario) { s.Jobs = nil },
		"origin: has no steps": func(s *strategy.Scenario) { s.Origin = nil },
		"tier ssd is 0 bytes":  func(s *strategy.Scenario) { s.Tiers[1].Capacity = 0 },
		"tier ram: has no":     func(s *strategy.Scenario) { s.Tiers[0].Read = nil },
		"epochs is 0":          func(s *strategy.Scenario) { s.Jobs[0].Epochs = 0 },
		"order has 3 ranks":    func(s *strategy.Scenario) { s.Jobs[0].Order.World = 3 },
		"known only as":        func(s *strategy.Scenario) { s.Jobs[0].Order.Kind = order.Explicit },
		"give one a sample":    func(s *strategy.Scenario) { s.Jobs[0].Sizes = nil },
		"has no whole batch":   func(s *strategy.Scenario) { s.Jobs[0].Order.Batch = 1 << 20 },
	} {
		s := trained(listing(), 1000, 1, 1, 0, 1)
		change(s)
		if _, err := strategy.Run(s, "nopfs"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q: %v", want, err)
		}
	}
	_, err := strategy.Run(trained(listing(), 1000, 1, 1, 0, 1), "magic")
	if err == nil || !strings.Contains(err.Error(), "use one of perfect, naive") {
		t.Errorf("an unknown strategy: %v", err)
	}
}

// A run tells how far it is, and ends when it is told to.
func TestStopped(t *testing.T) {
	s := trained(listing(), 100_000, 2, 0.1, 0, 1)
	for _, name := range strategy.Names() {
		var calls, last int64
		s.Progress = func(done, all int64) bool {
			if calls++; all != 200_000 || done <= last || done > all {
				t.Errorf("%s: %d of %d after %d", name, done, all, last)
			}
			last = done
			return true
		}
		if run(t, s, name); calls < 2 {
			t.Errorf("%s told its progress %d times", name, calls)
		}
		s.Progress = func(int64, int64) bool { return false }
		if _, err := strategy.Run(s, name); !errors.Is(err, strategy.ErrStopped) {
			t.Errorf("%s did not stop: %v", name, err)
		}
	}
}
