package sim_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/policy"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/core/trace"
	"belady/internal/sim"
)

// Law: a recorded run replays move for move, under every policy, with failures too, and with a log
// that loses what it has.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(rt, "samples")
		world := rapid.IntRange(1, 3).Draw(rt, "world")
		batch := rapid.IntRange(1, 30).Draw(rt, "batch")
		size := make(sizes, n)
		for i := range size {
			size[i] = uint32(i * 7919 % 3000)
		}
		rule := rapid.SampledFrom(policy.Names()).Draw(rt, "policy")
		keep := rapid.Int64Range(0, total(size)).Draw(rt, "keep")
		p := makePlan(rt, size, rule, keep, int64(world*batch)*4000)
		s := sim.Scenario{Plan: p, Readings: distributed(n, batch, world, 3, 4), Origin: fast}
		drawLog(rt, &s)
		e, err := trace.NewEncoder(trace.HeaderOf("d", s.Plan))
		if err != nil {
			rt.Fatal(err)
		}
		s.Attach = func(cursor int32, r job.Reading) {
			if err := e.Reading(cursor, r); err != nil {
				rt.Fatal(err)
			}
		}
		moves := 0
		s.Observe = func(now pump.Instant, events []pump.Event, m []pump.Move) {
			e.Step(now, events, m)
			moves += len(m)
		}
		fail := rapid.IntRange(5, 50).Draw(rt, "fail every")
		s.Fail = func(id sample.ID, nth int) bool { return nth <= 2 && (int(id)+nth)%fail == 0 }
		res, err := sim.Run(s)
		if err != nil {
			rt.Fatal(err)
		}
		e.Flush()
		done, err := trace.Replay(e.Take(), size)
		if err != nil || done.Steps != res.Steps || done.Moves != moves {
			rt.Fatalf("replayed %+v of %d steps, %d moves: %v", done, res.Steps, moves, err)
		}
	})
}
