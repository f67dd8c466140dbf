package world

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"belady/internal/store/origin/synth"
)

// TestResizeUnderLoad: memory comes and goes for as long as ranks hold and read, in step with each
// other or not; no byte moves under a lease, no slab goes before its last one, and nobody waits
// for ever.
func TestResizeUnderLoad(t *testing.T) {
	for _, rule := range []string{"spread", "belady", "lru"} {
		for _, together := range []bool{false, true} {
			b := newBench(t, synth.Config{Samples: 1500, SizeBytes: 40_000, Spread: 0.5, Classes: 1},
				func(c *Config) { c.Rule, c.Staging = rule, 8*mib })
			one, two := b.newRank(2), b.newRank(0)
			if together {
				one.pace = &inStep{ranks: [2]*rank{one, two}}
				two.pace = one.pace
			}
			b.attach(one, b.reading(16, 5), 3)
			other := b.reading(16, 5)
			other.Order.Seed++ // so that little is shared
			b.attach(two, other, 3)
			random := rand.New(rand.NewPCG(1, 1))
			for resizes, done := 0, false; !done; resizes++ {
				if err := b.Resize(int64(16+16*random.IntN(5)) * mib); err != nil {
					t.Fatal(err)
				}
				select {
				case <-one.finished:
					done = true
				case <-time.After(5 * time.Millisecond):
				}
				if resizes > 6000 {
					s, err := b.Status()
					t.Fatalf("%s: it stands still: %+v, %v, stuck %d", rule, s, err, len(b.stuck))
				}
			}
			if err := errors.Join(one.wait(), two.wait()); err != nil {
				t.Errorf("%s: %v", rule, err)
			}
			b.shrinks(16 * mib)
			b.leave(one, two)
			if n := b.tight.Load(); n > 0 {
				t.Errorf("%s: the plan gave way %d times", rule, n)
			}
		}
	}
}

// shrinks resizes and waits until the memory has been given back.
func (b *bench) shrinks(bytes int64) {
	b.t.Helper()
	if err := b.Resize(bytes); err != nil {
		b.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s, err := b.Status()
		if err != nil {
			b.t.Fatal(err)
		}
		if s.Arena.Total <= bytes {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s does not shrink to %d: %+v", b.Rule, bytes, s)
		}
	}
}

// TestShrinkingEnds: memory is given back while ranks read and hold what they read, from a full
// arena, step by step down to what their batches need; and grows again.
func TestShrinkingEnds(t *testing.T) {
	small := synth.Config{Samples: 1500, SizeBytes: 40_000, Spread: 0.5, Classes: 1}
	large := synth.Config{Samples: 50, SizeBytes: 1_600_000, Spread: 0.9, Classes: 1} // up to 3 MB
	for _, c := range []struct {
		rule    string
		data    synth.Config
		batch   int
		staging int64
		rounds  int
	}{
		{"spread", small, 16, 4 * mib, 3}, {"belady", small, 16, 4 * mib, 3},
		{"lru", small, 16, 4 * mib, 3}, {"spread", large, 1, 12 * mib, 1},
		{"lru", large, 1, 12 * mib, 1},
	} {
		rule := c.rule
		b := newBench(t, c.data,
			func(w *Config) { w.Rule, w.Bytes, w.Staging = rule, 96*mib, c.staging })
		one, two := b.newRank(1), b.newRank(0)
		b.attach(one, b.reading(c.batch, 1<<20), 3)
		b.attach(two, b.reading(c.batch, 1<<20), 3)
		for range c.rounds {
			for bytes := int64(80 * mib); bytes >= 4*c.staging; bytes -= 16 * mib {
				b.shrinks(bytes)
			}
			if err := b.Resize(96 * mib); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
				s, err := b.Status()
				if err != nil || time.Now().After(end) {
					t.Fatalf("%s does not fill up again: %+v, %v", rule, s, err)
				}
				if s.Pump.KeptBytes > 40*mib {
					break
				}
			}
		}
		for _, r := range []*rank{one, two} {
			r.mu.Lock()
			if r.err != nil {
				t.Errorf("%s: %v", rule, r.err)
			}
			r.mu.Unlock()
		}
		if n := b.tight.Load(); n > 0 {
			t.Errorf("%s: the plan gave way %d times", rule, n)
		}
		b.leave(one, two)
	}
}

// TestALateRankGetsItsShare: one that comes when another has filled staging, and waits for it, is
// served at once, as ranks of one job must be.
func TestALateRankGetsItsShare(t *testing.T) {
	b := newBench(t, synth.Config{Samples: 1500, SizeBytes: 40_000, Spread: 0.5, Classes: 1},
		func(c *Config) { c.Bytes = 32 * mib })
	alone := b.newRank(0)
	b.attach(alone, b.reading(16, 2), 3) // what can be kept is
	if err := alone.wait(); err != nil {
		t.Fatal(err)
	}
	b.leave(alone)
	one, two := b.newRank(1), b.newRank(1)
	one.pace = &inStep{ranks: [2]*rank{one, two}}
	two.pace = one.pace
	b.attach(one, b.reading(16, 2), 3)
	for full := false; !full; time.Sleep(time.Millisecond) {
		s, err := b.Status()
		if err != nil {
			t.Fatal(err)
		}
		full = s.Pump.StagingBytes > s.Staging-mib
	}
	b.attach(two, b.reading(16, 2), 3)
	if err := errors.Join(one.wait(), two.wait()); err != nil {
		t.Error(err)
	}
	b.leave(one, two)
}

// TestIdleRanksStopNobody: those that have filled staging, pinned what is kept, and take nothing of
// it, or hold what they took, cost another memory but not its batches.
func TestIdleRanksStopNobody(t *testing.T) {
	for _, rule := range []string{"spread", "belady", "lru"} {
		for credits := range uint32(3) {
			b := newBench(t, synth.Config{Samples: 1500, SizeBytes: 40_000, Spread: 0.5, Classes: 1},
				func(c *Config) { c.Rule, c.Bytes = rule, 32*mib })
			first := b.newRank(0)
			b.attach(first, b.reading(16, 2), 3) // what can be kept is
			if err := first.wait(); err != nil {
				t.Fatal(err)
			}
			b.leave(first)
			busy := b.newRank(1)
			all := []*rank{busy}
			for seed := range int64(3) {
				idle := b.newRank(3)
				idle.credit = false
				reading := b.reading(4, 4)
				reading.Order.Seed = seed
				b.attach(idle, reading, credits)
				all = append(all, idle)
			}
			for full := false; !full; time.Sleep(time.Millisecond) {
				s, err := b.Status()
				if err != nil {
					t.Fatal(err)
				}
				full = s.Pump.StagingBytes > s.Staging-mib
			}
			b.attach(busy, b.reading(8, 3), 3)
			if err := busy.wait(); err != nil {
				s, _ := b.Status()
				t.Errorf("%s, %d leases held: %v: %+v", rule, credits, err, s)
			}
			b.leave(all...)
		}
	}
}

// TestThePlanGivesWay: a plan that promises more than the arena holds is found out, and a rank that
// waits gets its batches.
func TestThePlanGivesWay(t *testing.T) {
	b := newBench(t, synth.Config{Samples: 800, SizeBytes: 40_000, Classes: 1},
		func(c *Config) { c.Bytes = 24 * mib })
	err := b.do(func() {
		b.patience = 50 * time.Millisecond
		in := b.plan.Input
		in.Keep = 22 * mib
		b.replan(in)
	})
	if err != nil {
		t.Fatal(err)
	}
	r := b.newRank(1)
	b.attach(r, b.reading(16, 3), 3)
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if b.tight.Load() == 0 {
		t.Error("the plan did not give way: the test tests nothing")
	}
	b.leave(r)
}
