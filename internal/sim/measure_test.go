package sim_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/core/trace"
	"belady/internal/sim"
)

// recorded runs a scenario and returns its trace beside the result.
func recorded(t fataler, s sim.Scenario) ([]byte, *sim.Result) {
	e, err := trace.NewEncoder(trace.HeaderOf("d", s.Plan))
	if err != nil {
		t.Fatal(err)
	}
	s.Attach = func(cursor int32, r job.Reading) {
		if err := e.Reading(cursor, r); err != nil {
			t.Fatal(err)
		}
	}
	s.Observe = e.Step
	res, err := sim.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	e.Flush()
	return e.Take(), res
}

// Law: what is measured in a trace is what its readers saw: epochs, stalls, and every byte of every
// batch from one source.
func TestMeasured(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, world := rapid.IntRange(1, 300).Draw(rt, "samples"), rapid.IntRange(1, 3).Draw(rt, "world")
		batch := rapid.IntRange(1, 30).Draw(rt, "batch")
		size := make(sizes, n)
		for i := range size {
			size[i] = uint32(i * 7919 % 3000)
		}
		rule := rapid.SampledFrom(policy.Names()).Draw(rt, "policy")
		p := makePlan(rt, size, rule, rapid.Int64Range(0, total(size)).Draw(rt, "keep"),
			int64(world*batch)*4000)
		s := sim.Scenario{Plan: p, Readings: distributed(n, batch, world, 3, 4), Origin: fast}
		for range world {
			s.Ranks = append(s.Ranks, sim.Rank{
				Begin:   pump.Instant(rapid.IntRange(0, 1e9).Draw(rt, "begin")),
				Compute: pump.Instant(rapid.IntRange(1, 5e6).Draw(rt, "compute"))})
		}
		drawLog(rt, &s)
		if lose := rapid.IntRange(0, 9).Draw(rt, "lose every"); lose > 1 {
			s.Lose = func(id sample.ID, nth int) bool { return (int(id)+nth)%lose == 0 }
		}
		data, res := recorded(rt, s)
		m, err := trace.Measure(data, size)
		if err != nil {
			rt.Fatal(err)
		}
		if len(m.Readers) != world {
			rt.Fatalf("%d readers of %d", len(m.Readers), world)
		}
		for _, want := range res.Epochs {
			r := m.Readers[want.Rank]
			got := r.Epochs[want.Epoch]
			if r.At != s.Ranks[want.Rank].Begin || got.Epoch != want.Epoch || got.Begun != want.Start ||
				got.Ended != want.End || got.Batches != want.Batches || got.Stall != want.Stall ||
				!got.Whole {
				rt.Fatalf("rank %d: measured %+v, seen %+v", want.Rank, got, want)
			}
		}
		checkSources(rt, &s, m, res)
	})
}

// checkSources compares the sums of all readers and epochs.
func checkSources(t *rapid.T, s *sim.Scenario, m *trace.Measured, res *sim.Result) {
	var sum trace.Sources
	delivered := int64(0)
	for _, r := range m.Readers {
		for _, e := range r.Epochs {
			sum.Add(e.Sources)
		}
	}
	for _, ids := range expected(t, s.Readings) {
		for _, id := range ids {
			delivered += int64(s.Plan.Sizes.Size(id))
		}
	}
	if got := sum.Origin + sum.Ssd + sum.Ram + sum.Shared; got != delivered {
		t.Fatalf("%+v: %d bytes, delivered were %d", sum, got, delivered)
	}
	if s.Lose == nil && (sum.Origin != res.Stats.FetchedBytes || sum.Ssd != res.Stats.SsdBytes ||
		sum.Logged != res.Stats.LoggedBytes) {
		t.Fatalf("%+v, the pump counted %+v", sum, res.Stats)
	}
	if !s.Plan.Rule.Fixed || s.Plan.Log > 0 || len(s.Readings) > 1 {
		return
	}
	for i, e := range m.Readers[0].Epochs { // whatever the timing was
		want := delivered / int64(len(m.Readers[0].Epochs))
		if i > 0 {
			want -= s.Plan.SetBytes
		}
		if e.Origin+e.Shared != want {
			t.Fatalf("epoch %d: %+v, want %d from the origin or shared", i, e.Sources, want)
		}
	}
}

// A script brings what a trace has recorded: a plan that keeps nothing any more.
func TestScript(t *testing.T) {
	size := equal(2000, 1000)
	p := makePlan(t, size, "spread", total(size), 100_000)
	in := p.Input
	in.Keep = 0
	none, err := plan.Make(in)
	if err != nil {
		t.Fatal(err)
	}
	s := sim.Scenario{Plan: p, Readings: distributed(2000, 50, 1, 4, 5), Origin: fast, Compute: 5e6}
	_, free := recorded(t, s)
	s.Script = []trace.Timed{{At: free.Epochs[1].Start,
		Event: pump.Event{Kind: pump.Replanned, Plan: none}}}
	data, _ := recorded(t, s)
	m, err := trace.Measure(data, size)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Script) != 1 || m.Script[0].Plan.Keep != 0 {
		t.Fatalf("script: %+v", m.Script)
	}
	for epoch, want := range []func(o int64) bool{
		func(o int64) bool { return o == total(size) },
		func(o int64) bool { return o < total(size)*6/10 },
		func(o int64) bool { return o > total(size)*4/10 },
		func(o int64) bool { return o > total(size)*8/10 },
	} {
		if got := m.Readers[0].Epochs[epoch].Origin; !want(got) {
			t.Errorf("epoch %d: %d bytes from the origin", epoch, got)
		}
	}
}

// Law: a run that was simulated is predicted from its own trace to the nanosecond and the byte.
func TestPredictItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, world := rapid.IntRange(1, 300).Draw(rt, "samples"), rapid.IntRange(1, 3).Draw(rt, "world")
		batch := rapid.IntRange(1, 30).Draw(rt, "batch")
		size := equal(n, 3000)
		rule := rapid.SampledFrom(policy.Names()).Draw(rt, "policy")
		s := sim.Scenario{Plan: makePlan(rt, size, rule, rapid.Int64Range(0, total(size)).Draw(rt,
			"keep"), int64(world*batch)*8000), Readings: distributed(n, batch, world, 3, 4)}
		drawLog(rt, &s)
		s.Lose = nil // a trace tells of it, but not why
		for range world {
			s.Ranks = append(s.Ranks, sim.Rank{
				Begin:   pump.Instant(rapid.IntRange(0, 1e9).Draw(rt, "begin")),
				Compute: pump.Instant(rapid.IntRange(1, 5e6).Draw(rt, "compute"))})
		}
		profile := perf.Profile{
			Origin: perf.Origin{Readers: perf.Curve{{At: 16, Rate: 100e6}}, Latency: 5e6},
			Disks: []perf.Disk{{Tier: perf.Tier{Read: perf.Curve{{At: 1, Rate: 900e6}},
				Write: perf.Curve{{At: 1, Rate: 300e6}}}, Mixed: 400e6}},
		}
		s.Origin = sim.Origin{Rate: 100e6, Latency: 5e6, Concurrency: 16, Paced: true}
		s.Ssd = sim.Device{ReadRate: 900e6, WriteRate: 300e6, Latency: 1e5, Depth: 32}
		if s.Plan.Carry {
			s.Ssd.ReadRate, s.Ssd.WriteRate = 400e6, 400e6
		}
		data, _ := recorded(rt, s)
		seen, err := trace.Measure(data, size)
		if err != nil {
			rt.Fatal(err)
		}
		told, err := sim.Predict(s.Plan, seen, &profile)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(seen.Readers, told.Readers); diff != "" {
			rt.Fatalf("predicted differs (-seen +told):\n%s", diff)
		}
	})
}

// The origin of a profile gives larger samples faster than those it was measured with, as their
// cost says; what a profile lacks is asked for by the command that measures it.
func TestOriginOfOtherSizes(t *testing.T) {
	o := perf.Origin{Readers: perf.Curve{{At: 256, Rate: 50e6}}, Latency: 20e6, Size: 4096}
	for size, want := range map[int64][2]int64{
		1000: {50e6, 50e6}, 4096: {50e6, 50e6}, 1e6: {900e6, 1100e6},
	} {
		got, err := sim.OriginOf(&o, size)
		if err != nil || got.Rate < want[0] || got.Rate > want[1] {
			t.Errorf("samples of %d: %+v, %v", size, got, err)
		}
	}
	_, err := sim.DeviceOf(nil, 4096, false)
	if err == nil || !strings.Contains(err.Error(), "'belady bench tiers --ssd DIR'") {
		t.Error(err)
	}
}
