package sim_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/sim"
)

// sizes is a dataset reduced to what planning needs.
type sizes []uint32

func (s sizes) Len() int                 { return len(s) }
func (s sizes) Size(id sample.ID) uint32 { return s[id] }

func equal(n int, size uint32) sizes {
	s := make(sizes, n)
	for i := range s {
		s[i] = size
	}
	return s
}

func total(s sizes) int64 {
	sum := int64(0)
	for _, n := range s {
		sum += int64(n)
	}
	return sum
}

// fataler is a test or one check of a property: failing that one prints what was drawn.
type fataler interface{ Fatal(args ...any) }

func makePlan(t fataler, s sizes, rule string, keep, staging int64) *plan.Plan {
	p, err := plan.Make(plan.Input{Sizes: s, Seed: 7, Policy: rule, Keep: keep, Staging: staging})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func distributed(n, batch, world, epochs int, seed int64) []job.Reading {
	var all []job.Reading
	for rank := range world {
		all = append(all, job.Reading{Rank: rank, Epochs: epochs, Order: order.Spec{
			Kind: "torch-distributed", Samples: n, Seed: seed, World: world, Batch: batch}})
	}
	return all
}

var fast = sim.Origin{Rate: 200e6, Latency: 20e6, Concurrency: 64}

// delivered runs a scenario and returns, for each rank, every sample it was handed, in order.
func delivered(t fataler, s sim.Scenario) ([][]sample.ID, *sim.Result) {
	got := make([][]sample.ID, len(s.Readings))
	s.Deliver = func(rank, _, _ int, ids []sample.ID) { got[rank] = append(got[rank], ids...) }
	res, err := sim.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	return got, res
}

// expected is the order itself, without any pump.
func expected(t fataler, readings []job.Reading) [][]sample.ID {
	want := make([][]sample.ID, len(readings))
	for i, r := range readings {
		o, err := order.New(r.Order)
		if err != nil {
			t.Fatal(err)
		}
		for e := range r.Epochs {
			ep, err := o.Epoch(e, r.Rank, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			want[i] = append(want[i], ep.IDs...)
		}
	}
	return want
}

// Law: what is delivered depends on the order alone: not on tier sizes, policy, sizes of samples,
// latencies, failures of the origin or losses of the log.
func TestDeliveredOrderIsTheOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(rt, "samples")
		world := rapid.IntRange(1, 4).Draw(rt, "world")
		batch := rapid.IntRange(1, 40).Draw(rt, "batch")
		size := make(sizes, n)
		for i := range size {
			size[i] = uint32(rapid.IntRange(0, 3000).Draw(rt, "size"))
		}
		readings := distributed(n, batch, world, 3, int64(rapid.IntRange(0, 99).Draw(rt, "seed")))
		if rapid.Bool().Draw(rt, "repeats") && world == 1 {
			readings[0].Order.Kind = "torch-replacement"
		}
		rule := rapid.SampledFrom(policy.Names()).Draw(rt, "policy")
		keep := rapid.Int64Range(0, total(size)+1).Draw(rt, "keep")
		biggest := int64(batch) * 3200
		staging := int64(world)*biggest + rapid.Int64Range(0, 4*biggest).Draw(rt, "staging")
		failEvery := rapid.IntRange(0, 30).Draw(rt, "fail every")
		jitter := rapid.Int64Range(1, 50e6).Draw(rt, "jitter")
		s := sim.Scenario{Plan: makePlan(rt, size, rule, keep, staging), Readings: readings,
			Origin: fast, Compute: pump.Instant(rapid.IntRange(0, 5e6).Draw(rt, "compute"))}
		drawLog(rt, &s)
		s.Origin.Jitter = func(id sample.ID) pump.Instant {
			return pump.Instant(int64(id) * 7919 % jitter)
		}
		if failEvery > 1 {
			s.Fail = func(id sample.ID, nth int) bool {
				return nth <= 3 && (int(id)+nth)%failEvery == 0
			}
		}
		got, res := delivered(rt, s)
		if diff := cmp.Diff(expected(rt, readings), got); diff != "" {
			rt.Fatalf("delivered differs (-want +got):\n%s", diff)
		}
		if res.Stats.StagingBytes != 0 || res.Stats.KeptBytes > keep {
			rt.Fatalf("left behind: %+v, keep %d", res.Stats, keep)
		}
	})
}

// Law: with one use an epoch no sample comes from the origin twice in an epoch, and under spread
// none of the kept set comes twice at all.
func TestOriginOnceAnEpoch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(10, 500).Draw(rt, "samples")
		rule := rapid.SampledFrom(policy.Names()).Draw(rt, "policy")
		size := equal(n, 1000)
		keep := rapid.Int64Range(0, total(size)).Draw(rt, "keep")
		p := makePlan(rt, size, rule, keep, 100_000)
		epochs := 4
		fetches := map[[2]int]int{}
		s := sim.Scenario{Plan: p, Readings: distributed(n, 16, 1, epochs, 3), Origin: fast}
		perEpoch := n // one rank: positions of epoch e are [e·n, (e+1)·n)
		orders := expected(rt, s.Readings)[0]
		s.Observe = func(_ pump.Instant, _ []pump.Event, moves []pump.Move) {
			for _, m := range moves {
				if m.Kind != pump.Fetch {
					continue
				}
				for i := range int(m.Run.Count) {
					if m.Mask.Has(i) {
						pos := int(m.Run.First) + i
						fetches[[2]int{pos / perEpoch, int(orders[pos])}]++
					}
				}
			}
		}
		if _, err := sim.Run(s); err != nil {
			rt.Fatal(err)
		}
		count := make([]int, n)
		for at, times := range fetches {
			if times > 1 {
				rt.Fatalf("sample %d fetched %d times in epoch %d", at[1], times, at[0])
			}
			count[at[1]]++
		}
		for id, times := range count {
			if rule == "spread" && p.InSet(sample.ID(id)) && times != 1 {
				rt.Fatalf("kept sample %d fetched %d times", id, times)
			}
		}
	})
}

// Law: for equal sizes no policy hits more often than belady, where the whole future is known:
// every sample is used in every epoch, or there are but the two epochs of the horizon.
func TestBeladyHitsMost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(20, 300).Draw(rt, "samples")
		batch := rapid.IntRange(1, 16).Draw(rt, "batch")
		kind := rapid.SampledFrom([]string{"torch-distributed", "torch-replacement"}).Draw(rt, "k")
		epochs := 5
		if kind == "torch-replacement" {
			epochs = 2
		}
		seed := int64(rapid.IntRange(0, 999).Draw(rt, "seed"))
		readings := distributed(n, batch, 1, epochs, seed)
		readings[0].Order.Kind = kind
		size := equal(n, 1000)
		keep := int64(rapid.IntRange(0, n).Draw(rt, "kept")) * 1000
		hits := map[string]int64{}
		for _, name := range policy.Names() {
			// Staging of two batches, so that hits come from what is kept, not from lookahead.
			p := makePlan(rt, size, name, keep, int64(batch)*2048)
			_, res := delivered(rt, sim.Scenario{Plan: p, Readings: readings, Origin: fast,
				Credits: 1, Compute: 1e6})
			hits[name] = res.Stats.Hits
		}
		for name, h := range hits {
			if h > hits["belady"] {
				rt.Fatalf("%s hits %d, belady %d (%v)", name, h, hits["belady"], hits)
			}
		}
	})
}

// Law: under spread the misses of every window of 2 % of an epoch are within ±10 % of (1−K/F).
func TestMissesUniform(t *testing.T) {
	const n, batch = 200_000, 100
	size := equal(n, 3000)
	for _, share := range []int{25, 50, 75} {
		p := makePlan(t, size, "spread", total(size)*int64(share)/100, 20<<20)
		window := make([]int, 50)
		readings := distributed(n, batch, 1, 1, 11)
		for i, id := range expected(t, readings)[0] {
			if !p.InSet(id) {
				window[i*50/n]++
			}
		}
		want := float64(n) / 50 * float64(100-share) / 100
		for i, got := range window {
			if off := float64(got)/want - 1; off > 0.1 || off < -0.1 {
				t.Errorf("kept %d %%: window %d has %d misses, want %.0f ±10 %%", share, i, got, want)
			}
		}
	}
}

// Origin bytes reach the bound: everything once, then only what is not kept.
func TestOriginBytesReachTheBound(t *testing.T) {
	size := equal(5000, 1000)
	for share := int64(0); share <= 100; share += 25 {
		keep := total(size) * share / 100
		p := makePlan(t, size, "spread", keep, 512_000)
		_, res := delivered(t, sim.Scenario{Plan: p, Readings: distributed(5000, 50, 2, 4, 5),
			Origin: fast})
		want := total(size) + 3*(total(size)-p.SetBytes)
		// Samples staged at the end of one epoch and wanted at the start of the next are shared.
		got := res.Stats.FetchedBytes + res.Stats.Shared*1000
		if got != want || p.SetBytes < keep*98/100 {
			t.Errorf("kept %d %%: fetched %d, want %d (set %d of %d)",
				share, got, want, p.SetBytes, keep)
		}
	}
}

// The epoch reaches the roofline in virtual time, at every ratio of compute to origin.
func TestEpochReachesTheRoofline(t *testing.T) {
	const n, batch, size = 20_000, 64, 110_000
	s := equal(n, size)
	for _, share := range []int64{0, 25, 50, 75, 100} {
		for _, ratio := range []float64{0.5, 0.9, 1.0, 1.1, 2} {
			p := makePlan(t, s, "spread", total(s)*share/100, 256<<20)
			origin := float64(total(s)-p.SetBytes) / 200e6
			busy := origin
			if share == 100 {
				busy = 1
			}
			compute := pump.Instant(busy * ratio / (n / batch) * 1e9)
			_, res := delivered(t, sim.Scenario{Plan: p, Readings: distributed(n, batch, 1, 4, 9),
				Origin: fast, Compute: compute})
			measured := float64(res.Epochs[3].End-res.Epochs[1].Start) / 3e9
			roof := max(origin, float64(compute)*((n+batch-1)/batch)/1e9)
			if measured > roof*1.02 {
				t.Errorf("kept %d %%, compute/origin %.1f: %.3f × the roofline",
					share, ratio, measured/roof)
			}
		}
	}
}

// Epoch 0 fetches everything, and the first of epoch 1 ahead of its time.
func ExampleRun() {
	s := equal(1000, 100_000)
	p, err := plan.Make(plan.Input{Sizes: s, Seed: 1, Policy: "spread", Keep: 50e6, Staging: 20e6})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := sim.Run(sim.Scenario{Plan: p, Readings: distributed(1000, 50, 1, 2, 1),
		Origin: sim.Origin{Rate: 100e6, Latency: 1e6, Concurrency: 16}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range res.Epochs {
		fmt.Printf("epoch %d: %d MB from the origin\n", e.Epoch, e.OriginBytes/1e6)
	}
	// Output:
	// epoch 0: 113 MB from the origin
	// epoch 1: 32 MB from the origin
}
