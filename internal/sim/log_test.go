package sim_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/sim"
)

var nvme = sim.Device{ReadRate: 3e9, WriteRate: 1e9, Latency: 1e5, Depth: 32}

// drawLog gives a scenario a log of any size, full or empty, sound or not.
func drawLog(t *rapid.T, s *sim.Scenario) {
	in := s.Plan.Input
	records := int64(0)
	for id := range in.Sizes.Len() {
		records += plan.RecordCost(in.Sizes.Size(sample.ID(id)))
	}
	in.Log = rapid.Int64Range(0, records).Draw(t, "log")
	in.LogMost = uint32(rapid.IntRange(0, 4000).Draw(t, "log most"))
	in.Carry = rapid.Bool().Draw(t, "carry")
	p, err := plan.Make(in)
	if err != nil {
		t.Fatal(err)
	}
	s.Plan, s.Ssd = p, nvme
	for range in.Sizes.Len()/64 + 1 {
		s.Held = append(s.Held, rapid.Uint64().Draw(t, "held"))
	}
	if every := rapid.IntRange(0, 30).Draw(t, "lose every"); every > 1 {
		s.Lose = func(id sample.ID, nth int) bool { return (int(id)+nth)%every == 0 }
	}
}

// withLog is a plan of ram and log that hold these shares of the dataset, in percent.
func withLog(t fataler, s sizes, ram, log int64, carry bool) *plan.Plan {
	records := int64(0)
	for _, size := range s {
		records += plan.RecordCost(size)
	}
	p, err := plan.Make(plan.Input{Sizes: s, Seed: 7, Policy: "spread", Keep: total(s) * ram / 100,
		Staging: 64 << 20, Log: records * log / 100, Carry: carry})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Law: with both tiers, too, the misses of every window of 2 % of an epoch are within ±10 % of
// (1−K/F).
func TestMissesUniformOverTwoTiers(t *testing.T) {
	const n, batch = 200_000, 100
	size := equal(n, 3000)
	for _, share := range [][2]int64{{25, 25}, {10, 65}, {50, 25}} {
		p := withLog(t, size, share[0], share[1], false)
		window := make([]int, 50)
		for i, id := range expected(t, distributed(n, batch, 1, 1, 11))[0] {
			if !p.InSet(id) && !p.InLog(id) {
				window[i*50/n]++
			}
		}
		want := float64(n) / 50 * float64(100-share[0]-share[1]) / 100
		for i, got := range window {
			if off := float64(got)/want - 1; off > 0.1 || off < -0.1 {
				t.Errorf("ram %d %%, log %d %%: window %d has %d misses, want %.0f ±10 %%", share[0],
					share[1], i, got, want)
			}
		}
	}
}

// origins counts how often each sample of a one-rank job is fetched from the origin, by epoch.
func origins(t fataler, s sim.Scenario) (map[[2]int]int, *sim.Result) {
	n := s.Plan.Sizes.Len()
	ids := expected(t, s.Readings)[0]
	times := map[[2]int]int{}
	s.Observe = func(_ pump.Instant, _ []pump.Event, moves []pump.Move) {
		for _, m := range moves {
			for i := range int(m.Run.Count) {
				if m.Kind == pump.Fetch && m.Mask.Has(i) && !m.Ssd.Has(i) {
					pos := int(m.Run.First) + i
					times[[2]int{pos / n, int(ids[pos])}]++
				}
			}
		}
	}
	res, err := sim.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	return times, res
}

// Laws: after the first epoch the origin sends the dataset less what is kept, none of it twice; the
// log is written once, and never where it is full.
func TestOriginBytesWithLog(t *testing.T) {
	const epochs = 4
	size := equal(5000, 3000)
	for _, share := range [][2]int64{{0, 50}, {25, 25}, {50, 40}, {30, 100}, {0, 100}, {70, 70}} {
		p := withLog(t, size, share[0], share[1], false)
		s := sim.Scenario{Plan: p, Readings: distributed(5000, 50, 1, epochs, 5), Origin: fast,
			Ssd: nvme}
		times, res := origins(t, s)
		count := make([]int, epochs)
		for at, times := range times {
			count[at[0]]++
			if kept := p.InSet(sample.ID(at[1])) || p.InLog(sample.ID(at[1])); times > 1 ||
				kept && at[0] > 0 {
				t.Errorf("ram %d %%, log %d %%: sample %d comes %d times in epoch %d", share[0],
					share[1], at[1], times, at[0])
			}
		}
		kept := min(total(size), p.SetBytes+p.LogBytes)
		for epoch, n := range count[1:] {
			if got := int64(n) * 3000; got > total(size)-kept*98/100 {
				t.Errorf("ram %d %%, log %d %%: epoch %d takes %d bytes from the origin, %d are kept",
					share[0], share[1], epoch+1, got, kept)
			}
		}
		if res.Stats.LoggedBytes != p.LogBytes {
			t.Errorf("ram %d %%, log %d %%: %d bytes are appended, the log takes %d", share[0],
				share[1], res.Stats.LoggedBytes, p.LogBytes)
		}
	}
}

// A job that finds the whole dataset in the log asks the origin for nothing, and writes nothing.
func TestRestartWithFullLog(t *testing.T) {
	size := equal(5000, 3000)
	s := sim.Scenario{Plan: withLog(t, size, 40, 100, false), Origin: fast, Ssd: nvme,
		Readings: distributed(5000, 50, 2, 2, 5), Held: make([]uint64, 5000/64+1)}
	for i := range s.Held {
		s.Held[i] = ^uint64(0)
	}
	_, res := delivered(t, s)
	if st := res.Stats; st.Misses != 0 || st.Logged != 0 || st.SsdHits == 0 {
		t.Errorf("%+v", st)
	}
}

// Carrying appends all that an epoch reads from the log, and nothing in the last epoch.
func TestCarryWritesAllButTheLastEpoch(t *testing.T) {
	size := equal(5000, 3000)
	s := sim.Scenario{Plan: withLog(t, size, 0, 100, true), Origin: fast, Ssd: nvme,
		Readings: distributed(5000, 50, 1, 4, 5)}
	_, res := delivered(t, s)
	// What is staged when one epoch ends and wanted when the next begins is not read again.
	reads := res.Stats.SsdBytes + res.Stats.Shared*3000
	if reads != 3*total(size) || res.Stats.LoggedBytes > 3*total(size) ||
		res.Stats.LoggedBytes < 3*total(size)-res.Stats.Shared*3000 {
		t.Errorf("read %d, appended %d of %d, shared %d", res.Stats.SsdBytes, res.Stats.LoggedBytes,
			total(size), res.Stats.Shared)
	}
	if last := res.Epochs[3]; last.LogBytes != 0 {
		t.Errorf("the last epoch appends %d bytes", last.LogBytes)
	}
}

// Half of the dataset kept, over both tiers: the epoch reaches the roofline. LCache's own rule does
// not: it keeps what is read first, so all hits come first and all misses last.
func TestHalfKeptReachesTheRoofline(t *testing.T) {
	const n, batch, epochs = 20_000, 64, 4
	size := equal(n, 110_000)
	ratio := func(p *plan.Plan) float64 {
		s := sim.Scenario{Plan: p, Readings: distributed(n, batch, 1, epochs, 9), Origin: fast,
			Ssd: nvme}
		s.Compute = pump.Instant(float64(total(size)) / 2 / 200e6 / (n / batch) * 1e9)
		bound, err := sim.Roofline(&s)
		if err != nil {
			t.Fatal(err)
		}
		_, res := delivered(t, s)
		return float64(res.Epochs[epochs-1].End-res.Epochs[1].Start) / (epochs - 1) /
			float64(bound.Epoch())
	}
	for _, share := range [][2]int64{{50, 0}, {25, 25}, {0, 50}} {
		p := withLog(t, size, share[0], share[1], false)
		if got := ratio(p); got > 1.02 {
			t.Errorf("ram %d %%, log %d %%: %.3f × the roofline", share[0], share[1], got)
		}
	}
	if got := ratio(makePlan(t, size, "lcache", total(size)/2, 64<<20)); got < 1.2 {
		t.Errorf("lcache reaches %.3f × the roofline", got)
	}
}
