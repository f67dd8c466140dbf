package daemon_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/node/wire"
)

// drawn is an explicit order: every epoch another list, with repeats, in batches of odd sizes.
func drawn(t *testing.T, d data, epochs int) (*order.Windows, []order.Window) {
	t.Helper()
	o, err := order.New(order.Spec{Kind: order.Explicit, Samples: d.len})
	if err != nil {
		t.Fatal(err)
	}
	windows := o.(*order.Windows)
	random := rand.New(rand.NewPCG(1, 2))
	var all []order.Window
	for epoch := range epochs {
		for piece := range 4 {
			w := order.Window{Epoch: epoch, Last: piece == 3}
			for range 3 + random.IntN(5) {
				for range 1 + random.IntN(9) {
					w.IDs = append(w.IDs, sample.ID(random.IntN(d.len)))
				}
				w.BatchEnds = append(w.BatchEnds, uint32(len(w.IDs)))
			}
			all = append(all, w)
			windows.Forget(0, epoch-1)
			if err := windows.Add(w); err != nil {
				t.Fatal(err)
			}
		}
	}
	return windows, all
}

func sendWindows(t *testing.T, s *client.Session, windows []order.Window, epochs int) {
	t.Helper()
	for _, w := range windows {
		flags := uint32(0)
		if w.Last {
			flags = wire.WindowLastOfEpoch
			if w.Epoch == epochs-1 {
				flags |= wire.WindowLastOfJob
			}
		}
		err := s.Window(context.Background(), uint32(w.Epoch), flags, w.IDs, w.BatchEnds)
		if err != nil {
			t.Error(err)
		}
	}
}

func explicit(d data, epochs int) wire.Attach {
	at := d.attach(order.Explicit, 8, epochs)
	at.Order.Seed, at.Order.Samples = 0, 0
	return at
}

func TestExplicitOrder(t *testing.T) {
	n := start(t, 16*mib, func(c *config) { c.Staging = 4 * mib })
	d := n.addSynth("d", "", "samples=300&size=20KB")
	o, windows := drawn(t, d, 2)
	for _, rule := range []string{"", "spread", "frequency", "lru"} {
		at := explicit(d, 2)
		at.Policy = rule
		n.mustRead(reading{Attach: at, data: d, expect: o,
			opened: func(s *client.Session) { sendWindows(t, s, windows, 2) }})
		n.quiet("d")
	}
}

// TestExplicitOrderResumes: windows sent again from the epoch's first batch are skipped up to the
// start.
func TestExplicitOrderResumes(t *testing.T) {
	n := start(t, 16*mib, func(c *config) { c.Staging = 4 * mib })
	d := n.addSynth("d", "", "samples=300&size=2KB")
	o, windows := drawn(t, d, 2)
	epoch, err := o.Epoch(0, 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for from := 1; from < epoch.Batches(); from += 3 {
		at := explicit(d, 2)
		at.Start.Batch = from
		n.mustRead(reading{Attach: at, data: d, expect: o,
			opened: func(s *client.Session) { sendWindows(t, s, windows, 2) }})
	}
	n.quiet("d")
}

// TestWeightedUnion: two datasets drawn by weight, by two jobs with other weights at once.
func TestWeightedUnion(t *testing.T) {
	n := start(t, 48*mib, nil)
	a := n.addSynth("a", "", "samples=300&size=4KB&seed=1")
	b := n.addSynth("b", "", "samples=100&size=9KB&seed=2")
	both := data{name: "a+b", len: 400, check: func(id sample.ID, got []byte) error {
		if int(id) < a.len {
			return a.check(id, got)
		}
		return b.check(id-sample.ID(a.len), got)
	}}
	job := func(weight float64) reading {
		at := both.attach(order.Weighted, 8, 3)
		at.Datasets = []wire.Dataset{{Name: "a"}, {Name: "b", Weight: weight}}
		spec := at.Order
		spec.Weights = make([]float64, both.len)
		for i := range spec.Weights {
			spec.Weights[i] = 1 / float64(a.len)
			if i >= a.len {
				spec.Weights[i] = weight / float64(b.len)
			}
		}
		o, err := order.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		return reading{Attach: at, data: both, expect: o}
	}
	n.together(job(3), job(0.5))
	n.quiet("a+b")
}

// TestMemoryMovesBetweenDatasets: a second dataset takes slabs from one that is being read, which
// goes on with what is left; when they are gone, the next takes all.
func TestMemoryMovesBetweenDatasets(t *testing.T) {
	n := start(t, 64*mib, func(c *config) { c.Staging = 8 * mib })
	train := n.addSynth("train", "", "samples=1200&size=60KB&spread=0.5&seed=1")
	val := n.addSynth("val", "", "samples=100&size=60KB&seed=2")
	var begun, done atomic.Bool
	first := reading{Attach: train.attach(order.Random, 32, 1000), data: train}
	first.each = func(b *batch) bool {
		if b.Epoch == 1 {
			begun.Store(true)
		}
		return !done.Load()
	}
	finished := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 80*time.Second)
	defer cancel()
	go func() {
		_, err := n.read(ctx, first)
		finished <- err
	}()
	within(t, 60*time.Second, "train's first epoch", begun.Load)
	before := n.of("train").Arena.Total
	n.mustRead(reading{Attach: val.attach(order.Random, 16, 3), data: val})
	after := n.of("train").Arena.Total
	if after >= before || n.of("val").Arena.Total == 0 {
		t.Errorf("train had %d bytes and has %d: nothing moved", before, after)
	}
	if len(n.told("arena-resized")) == 0 {
		t.Error("no event tells of the move")
	}
	done.Store(true)
	if err := <-finished; err != nil {
		t.Fatal(err)
	}
	n.quiet("train")
	n.quiet("val")
}

// TestTheDaemonsChoice: a client that names no policy joins whatever is in force.
func TestTheDaemonsChoice(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=300&size=10KB")
	named := d.attach(order.Random, 8, 2)
	named.Policy = "lru"
	n.mustRead(reading{Attach: named, data: d})
	n.mustRead(reading{Attach: d.attach(order.Random, 8, 2), data: d})
	if got := n.of("d").Policy; got != "lru" {
		t.Errorf("the policy is %s: the second reader put out what the first had kept", got)
	}
}

// TestAShrunkDatasetServesTheNextJob: what shrinking leaves behind is room for the next job, and
// several datasets read at once share what there is.
func TestAShrunkDatasetServesTheNextJob(t *testing.T) {
	n := start(t, 96*mib, func(c *config) { c.Staging = 8 * mib })
	var all []reading
	for _, name := range []string{"one", "two", "three"} {
		d := n.addSynth(name, "", "samples=1000&size=60KB&spread=0.5")
		all = append(all, reading{Attach: d.attach(order.Random, 16, 4), data: d})
	}
	n.mustRead(all[0]) // takes all the memory it wants
	n.together(all...)
	if len(n.told("arena-resized")) == 0 {
		t.Fatal("nothing was shrunk: the test tests nothing")
	}
	for _, r := range all {
		n.mustRead(r)
		n.quiet(r.data.name)
	}
	if got := n.told("plan-tightened"); len(got) > 0 {
		t.Errorf("plans gave way %d times", len(got))
	}
}

// TestLeaveWhenIdle: a daemon told to leave when idle stays while a client is there, and no longer.
func TestLeaveWhenIdle(t *testing.T) {
	n := start(t, 64*mib, func(c *config) { c.IdleExit = 300 * time.Millisecond })
	d := n.addSynth("d", "", "samples=200&size=1KB")
	at := d.attach(order.Random, 8, 1)
	began := time.Now()
	n.mustRead(reading{Attach: at, data: d, each: func(*batch) bool {
		time.Sleep(30 * time.Millisecond)
		return true
	}})
	if time.Since(began) < 600*time.Millisecond {
		t.Fatal("the reading was too short to show anything")
	}
	within(t, 10*time.Second, "the daemon's leaving", func() bool {
		return len(n.told("daemon-stopping")) > 0
	})
}
