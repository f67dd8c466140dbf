package sim_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/policy"
	"belady/internal/core/pump"
	"belady/internal/sim"
)

// Law: nothing beats the roofline, neither in time nor in bytes, however much is staged when an
// epoch begins, whatever is kept, and be samples repeated, padded or dropped.
func TestNothingBeatsTheRoofline(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(20, 400).Draw(rt, "samples")
		world := rapid.IntRange(1, 3).Draw(rt, "world")
		batch := rapid.IntRange(1, max(1, n/20)).Draw(rt, "batch")
		size := make(sizes, n)
		most := rapid.IntRange(1, 3000).Draw(rt, "most")
		for i := range size {
			size[i] = uint32(1 + i*7919%most)
		}
		readings := distributed(n, batch, world, rapid.IntRange(2, 5).Draw(rt, "epochs"), 3)
		kind := rapid.IntRange(0, 3).Draw(rt, "kind")
		for i := range readings {
			readings[i].Order.DropLast = kind == 1
			if kind == 2 && world == 1 {
				readings[i].Order.Kind = "torch-replacement"
			}
		}
		if kind == 3 && world == 1 { // two jobs
			readings = append(readings, distributed(n, batch, 1, readings[0].Epochs, 99)...)
		} else if kind == 3 { // one rank is not there
			readings = readings[:max(1, world-1)]
		}
		staging := int64(3*batch*world*(most+64)) + rapid.Int64Range(0, total(size)).Draw(rt, "staging")
		s := sim.Scenario{Readings: readings, Compute: pump.Instant(rapid.IntRange(0, 2e6).Draw(rt,
			"compute")), Plan: makePlan(rt, size, rapid.SampledFrom(policy.Names()).Draw(rt, "policy"),
			rapid.Int64Range(0, total(size)).Draw(rt, "keep"), staging),
			Origin: sim.Origin{Rate: rapid.Int64Range(1e5, 1e8).Draw(rt, "rate"),
				Latency:     pump.Instant(rapid.IntRange(0, 5e6).Draw(rt, "latency")),
				Concurrency: rapid.IntRange(1, 64).Draw(rt, "at once")}}
		if rapid.Bool().Draw(rt, "a log") {
			drawLog(rt, &s)
			s.Lose, s.Held = nil, make([]uint64, n/64+1)
			s.Ssd.ReadRate = rapid.Int64Range(1e5, 1e8).Draw(rt, "ssd")
		}
		beats(rt, &s)
	})
}

// beats fails where a run beats its roofline. Each epoch is longer, from the first rank's beginning
// to the last one's end. Where a rank is ahead of another these overlap: only where every reading
// has all samples is their mean no less, too.
func beats(rt *rapid.T, s *sim.Scenario) {
	bound, err := sim.Roofline(s)
	if err != nil {
		rt.Fatal(err)
	}
	res, err := sim.Run(*s)
	if err != nil {
		rt.Fatal(err)
	}
	epochs := res.ByEpoch()
	for _, e := range epochs[1:] {
		if took := int64(e.End - e.Start); took < bound.Ns && !s.Plan.Carry {
			rt.Fatalf("epoch %d takes %d ns, the roofline is %+v", e.Epoch, took, bound)
		}
	}
	if s.Readings[0].Order.Ranks() > 1 {
		return
	}
	later := int64(len(epochs) - 1)
	if took := int64(epochs[later].End-epochs[1].Start) / later; took+1 < bound.Ns {
		rt.Fatalf("%d ns an epoch, the roofline is %+v", took, bound)
	}
	if least := bound.FirstBytes + later*bound.OriginBytes; res.Stats.FetchedBytes < least {
		rt.Fatalf("%d bytes from the origin, the roofline has %d: %+v", res.Stats.FetchedBytes, least,
			bound)
	}
}
