package daemon_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/node/daemon"
	"belady/internal/node/wire"
)

type (
	config = daemon.Config
	batch  = client.Batch
)

const codeBadRequest = wire.CodeBadRequest

// wantError checks that an error is of that code and says those words.
func wantError(t *testing.T, err error, want wire.Code, words ...string) {
	t.Helper()
	if code(err) != want {
		t.Fatalf("the error is %v, wanted code %v", err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("the error %q does not say %q", err, w)
		}
	}
}

func TestRefusals(t *testing.T) {
	n := start(t, 32*mib, func(c *config) { c.Staging = 8 * mib })
	d := n.addSynth("d", "", "samples=1000&size=40KB")
	huge := n.addSynth("huge", "", "samples=3&size=40MB")
	pairs := makeFiles(t, map[string]int{"1.a": 5, "1.b": 5, "2.a": 5, "2.b": 5})
	n.addFiles("pairs", pairs, "a=*.a", "b=*.b")
	ctx := context.Background()
	attach := func(change func(*wire.Attach)) error {
		at := d.attach(order.Random, 8, 2)
		change(&at)
		s, err := n.client.Open(ctx, at)
		if err == nil {
			_ = s.Close()
		}
		return err
	}
	for name, c := range map[string]struct {
		change func(*wire.Attach)
		code   wire.Code
		words  string
	}{
		"unknown": {func(a *wire.Attach) { a.Datasets[0].Name = "x" }, wire.CodeUnknownDataset,
			"belady dataset add"},
		"escape":  {func(a *wire.Attach) { a.Datasets[0].Name = "../d" }, codeBadRequest, "not possible"},
		"policy":  {func(a *wire.Attach) { a.Policy = "best" }, codeBadRequest, "spread"},
		"samples": {func(a *wire.Attach) { a.Order.Samples = 5 }, codeBadRequest, "scan"},
		"kind":    {func(a *wire.Attach) { a.Order.Kind = "x" }, codeBadRequest, "unknown"},
		"rank":    {func(a *wire.Attach) { a.Rank = 1 }, 0, "rank"},
		"start":   {func(a *wire.Attach) { a.Start.Batch = 1 << 30 }, codeBadRequest, "batches"},
		"batch": {func(a *wire.Attach) {
			a.Order.Kind, a.Order.Draws = order.Replacement, wire.MaxBatch(1)+1
			a.Order.Batch = a.Order.Draws
		}, wire.CodeTooLarge, "limit"},
		"staging": {func(a *wire.Attach) { a.Order.Batch = 200 }, wire.CodeArenaTooSmall, "--staging"},
		"huge": {func(a *wire.Attach) {
			a.Datasets[0].Name, a.Order.Samples, a.Order.Batch = huge.name, 3, 1
		}, wire.CodeArenaTooSmall, "--ram"},
		"fields": {func(a *wire.Attach) {
			a.Datasets = append(a.Datasets, wire.Dataset{Name: "pairs"})
			a.Order.Samples = 0
		}, codeBadRequest, "same fields"},
		"none left": {func(a *wire.Attach) { a.Order.DropLast, a.Order.Batch = true, 1001 },
			codeBadRequest, "no batch"},
	} {
		err := attach(c.change)
		if err == nil || c.code != 0 && code(err) != c.code || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: the error is %v (%v), wanted %v saying %q", name, err, code(err), c.code,
				c.words)
		}
	}
	// The daemon is none the worse.
	n.mustRead(reading{Attach: d.attach(order.Random, 8, 1), data: d})
	n.quiet("d")
}

// TestIdleExitCountsFromTheLastClient: short ones between two looks count too.
func TestIdleExitCountsFromTheLastClient(t *testing.T) {
	n := start(t, 32*mib, func(c *config) { c.IdleExit = 2 * time.Second })
	d := n.addSynth("d", "", "samples=20&size=1KB")
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(250 * time.Millisecond) {
		n.mustRead(reading{Attach: d.attach(order.Random, 8, 1), data: d})
	}
	time.Sleep(500 * time.Millisecond)
	if len(n.told("daemon-stopping")) > 0 {
		t.Error("the daemon left while it was in use")
	}
}

// TestPolicyConflict: ranks of one dataset share its policy, and get another when they have left.
func TestPolicyConflict(t *testing.T) {
	n := start(t, 32*mib, nil)
	d := n.addSynth("d", "", "samples=300&size=10KB")
	s, err := n.client.Open(context.Background(), d.attach(order.Random, 8, 2))
	if err != nil {
		t.Fatal(err)
	}
	lru := d.attach(order.Random, 8, 2)
	lru.Policy = "lru"
	_, err = n.client.Open(context.Background(), lru)
	wantError(t, err, codeBadRequest, "policy spread")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var readings []reading
	for range 6 {
		readings = append(readings, reading{Attach: lru, data: d})
	}
	n.together(readings...)
	if got := n.quiet("d").Policy; got != "lru" {
		t.Errorf("the policy is %s", got)
	}
}

// oneBatch asks for the first 300 samples as one batch.
func (n *node) oneBatch(d data) (*client.Session, []sample.ID) {
	n.t.Helper()
	at := d.attach(order.Explicit, 1, 1)
	at.Order.Seed = 0
	s, err := n.client.Open(context.Background(), at)
	if err != nil {
		n.t.Fatal(err)
	}
	ids := make([]sample.ID, 300)
	for i := range ids {
		ids[i] = sample.ID(i)
	}
	flags := wire.WindowLastOfEpoch | wire.WindowLastOfJob
	if err := s.Window(context.Background(), 0, flags, ids, []uint32{300}); err != nil {
		n.t.Fatal(err)
	}
	return s, ids
}

// TestStagingGrowsForABatch: where nobody configured it, one larger than staging gets more of it.
func TestStagingGrowsForABatch(t *testing.T) {
	n := start(t, 128*mib, nil)
	d := n.addSynth("d", "", "samples=400&size=200KB")
	n.mustRead(reading{Attach: d.attach(order.Random, 8, 1), data: d})
	if before := n.of("d").Staging; before >= 300*200_000 {
		t.Fatalf("staging has %d: the test tests nothing", before)
	}
	s, ids := n.oneBatch(d)
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if b.Len() != len(ids) {
		t.Errorf("the batch has %d samples", b.Len())
	}
}

// TestABatchLargerThanStaging is refused when its turn comes, in a sentence.
func TestABatchLargerThanStaging(t *testing.T) {
	n := start(t, 32*mib, func(c *config) { c.Staging = 4 * mib })
	s, _ := n.oneBatch(n.addSynth("d", "", "samples=400&size=64KB"))
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := s.Next(ctx)
	wantError(t, err, wire.CodeArenaTooSmall, "--staging")
}

// TestManySessions: far more ranks than cores, all checked.
func TestManySessions(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=2000&size=2KB")
	var readings []reading
	for rank := range 64 {
		at := d.attach(order.Distributed, 4, 2)
		at.Rank, at.Order.World = rank, 64
		readings = append(readings, reading{Attach: at, data: d})
	}
	n.together(readings...)
	n.quiet("d")
	if got := n.status().Sessions; got > 1 { // the status call's own connection is none
		t.Errorf("%d sessions are left", got)
	}
}

// TestStatusNamesRanks: whoever reads is in the status, by job and program, for as long as it does.
func TestStatusNamesRanks(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=200&size=2KB")
	at := d.attach(order.Distributed, 4, 1)
	at.Rank, at.Order.World = 1, 2
	seen := 0
	n.mustRead(reading{Attach: at, data: d, each: func(*batch) bool {
		for _, r := range n.status().Ranks {
			if r.Job != "test" || r.Dataset != "d" || r.Rank != 1 || r.World != 2 ||
				r.PID != os.Getpid() || r.Client == "" {
				t.Errorf("the status shows %+v", r)
			}
			seen++
		}
		return true
	}})
	if seen != 25 {
		t.Errorf("the rank was shown in %d of 25 batches", seen)
	}
	eventually(t, "nobody is there", func() bool { return len(n.status().Ranks) == 0 })
}

// TestHoldingAndReleasingOutOfOrder: leases end in any order, while their holder reads on.
func TestHoldingAndReleasingOutOfOrder(t *testing.T) {
	n := start(t, 64*mib, func(c *config) { c.Staging = 16 * mib })
	d := n.addSynth("d", "", "samples=800&size=10KB")
	r := reading{Attach: d.attach(order.Random, 8, 3), data: d}
	for _, packed := range []bool{false, true} {
		r.Packed = packed
		var held []*batch
		r.each = func(b *batch) bool {
			// Newest first, two of three at once: what is left is always old.
			if held = append(held, b); len(held) == 3 {
				held[2].Release()
				held[1].Release()
				held = held[:1]
			}
			if b.Index%10 == 9 {
				for _, old := range held {
					old.Release()
				}
				held = nil
			}
			return true
		}
		r.held = 1 << 30 // the loop releases none itself until the end; releasing again does nothing
		n.mustRead(r)
		n.quiet("d")
	}
}

// TestHoldingMoreThanTheRing: a client that holds on to packed batches gets the next ones all the
// same, as long as staging has room.
func TestHoldingMoreThanTheRing(t *testing.T) {
	n := start(t, 64*mib, func(c *config) { c.Staging = 16 * mib })
	d := n.addSynth("d", "", "samples=800&size=10KB")
	at := d.attach(order.Random, 8, 2)
	at.Packed = true
	n.mustRead(reading{Attach: at, data: d, held: 40})
	n.quiet("d")
}

// TestAbandonedSessions: a client that dies without a word, at any moment, frees everything.
func TestAbandonedSessions(t *testing.T) {
	n := start(t, 32*mib, func(c *config) { c.Staging = 8 * mib })
	d := n.addSynth("d", "throttle+", "samples=600&size=20KB&throttle.latency=3ms")
	for i := range 10 {
		for _, packed := range []bool{false, true} {
			at := d.attach(order.Random, 8, 2)
			at.Packed = packed
			p := dial(t, n.socket)
			p.attach(at, 16)
			for range min(i, 4) {
				p.expect(wire.TypeLease)
			}
			p.close()
		}
	}
	n.quiet("d")
	n.mustRead(reading{Attach: d.attach(order.Random, 8, 1), data: d})
	n.quiet("d")
}

// TestSlowConsumer: a rank that computes for long keeps nobody from reading and costs no memory of
// the kept set.
func TestSlowConsumer(t *testing.T) {
	n := start(t, 24*mib, func(c *config) { c.Staging = 4 * mib })
	d := n.addSynth("d", "", "samples=500&size=30KB&spread=0.9")
	var once sync.Once
	slow := reading{Attach: d.attach(order.Random, 16, 1), data: d, each: func(*batch) bool {
		once.Do(func() { time.Sleep(1200 * time.Millisecond) })
		return true
	}}
	fast := reading{Attach: d.attach(order.Random, 16, 3), data: d}
	begun := time.Now()
	fast.each = func(b *batch) bool {
		if b.Epoch == 2 && b.Last && time.Since(begun) > 20*time.Second {
			t.Error("the slow rank held up the fast one")
		}
		return true
	}
	n.together(slow, fast)
	if got := n.told("plan-tightened"); len(got) > 0 {
		t.Errorf("the plan gave way: %v", got)
	}
	n.quiet("d")
}

// TestLeavingInTheMiddleOfFetches: ranks that share samples go on when one of them leaves while it
// was the one to fetch.
func TestLeavingInTheMiddleOfFetches(t *testing.T) {
	n := start(t, 32*mib, func(c *config) { c.Staging = 12 * mib })
	d := n.addSynth("d", "throttle+", "samples=400&size=10KB&throttle.latency=5ms")
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			_, err := n.read(ctx, reading{Attach: d.attach(order.Random, 8, 2), data: d})
			if err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	for i := range 4 {
		wg.Go(func() {
			for range 8 {
				left := 1 + i
				_, err := n.read(ctx, reading{Attach: d.attach(order.Random, 8, 2), data: d,
					each: func(*batch) bool { left--; return left > 0 }})
				if err != nil && !errors.Is(err, io.EOF) {
					t.Errorf("leaver %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	n.quiet("d")
}
