package daemon_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/node/daemon"
	"belady/internal/node/wire"
)

// begun is an Attach of a rank of eight that begins at a position.
func (d data) begun(rank int, epoch int, position int64) wire.Attach {
	at := d.attach(order.Distributed, 4, 9)
	at.Order.World, at.Rank, at.Begins = 8, rank, 1
	at.Start = wire.Start{Epoch: epoch, Position: position}
	return at
}

func (n *node) opens(at wire.Attach) *client.Session {
	n.t.Helper()
	s, err := n.client.Open(context.Background(), at)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestUnequalStartsAreRefused: a rank that begins elsewhere than the others of its job is told both
// places; whoever may rightly be elsewhere is let in. Each case is a rank of its own.
func TestUnequalStartsAreRefused(t *testing.T) {
	n := start(t, 64*mib, func(c *daemon.Config) { c.Patience = 100 * time.Millisecond })
	d := n.addSynth("d", "", "samples=400&size=2KB")
	n.opens(d.begun(0, 1, 64))
	change := func(at wire.Attach, f func(*wire.Attach)) wire.Attach {
		f(&at)
		return at
	}
	share := func(at wire.Attach) wire.Attach {
		of := explicit(d, 1)
		of.Begins = at.Begins
		of.Share = &wire.Share{Order: at.Order, Rank: at.Rank, Epoch: at.Start.Epoch,
			Position: at.Start.Position, Step: 2}
		return of
	}
	for name, at := range map[string]wire.Attach{
		"the same position":      d.begun(1, 1, 64),
		"a worker's share of it": share(d.begun(2, 1, 64)),
		"one that reconnects":    change(d.begun(3, 1, 96), func(a *wire.Attach) { a.Begins = 0 }),
		"one that rolled back":   change(d.begun(3, 1, 96), func(a *wire.Attach) { a.Begins = 2 }),
		"one an epoch ahead":     d.begun(4, 2, 0),
		"another job":            change(d.begun(5, 1, 96), func(a *wire.Attach) { a.Job = "b" }),
		"another seed":           change(d.begun(5, 1, 96), func(a *wire.Attach) { a.Order.Seed++ }),
		"another world":          change(d.begun(5, 1, 96), func(a *wire.Attach) { a.Order.World = 6 }),
		"a second loader":        d.begun(0, 1, 96),
		"a world of one": change(d.begun(0, 1, 96), func(a *wire.Attach) {
			a.Order.World, a.Job = 1, "alone"
		}),
		"who reads by id": change(explicit(d, 1), func(a *wire.Attach) { a.Begins = 1 }),
	} {
		if s, err := n.client.Open(context.Background(), at); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			_ = s.Close()
		}
	}
	for name, c := range map[string]struct {
		at   wire.Attach
		text string
	}{
		"further on": {d.begun(6, 1, 128), "rank 6 of job test begins at position 128 of epoch 1, " +
			"but rank 0 (process "},
		"at the epoch's beginning": {d.begun(6, 1, 0), "began at position 64 of epoch 1: load the " +
			"same checkpoint on every rank"},
		"within another epoch": {d.begun(6, 2, 64), "position 64 of epoch 2"},
		"a worker":             {share(d.begun(7, 1, 128)), "rank 7 of job test begins at position 128"},
	} {
		_, err := n.client.Open(context.Background(), c.at)
		if code(err) != wire.CodeUnequalStart || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	at := d.begun(6, 1, 128)
	at.Begins = -1
	if _, err := n.client.Open(context.Background(), at); code(err) != wire.CodeBadRequest {
		t.Errorf("begins -1: %v", err)
	}
}

// TestRanksOfAnEarlierRunLeave: a rank that begins elsewhere waits for those that are leaving.
func TestRanksOfAnEarlierRunLeave(t *testing.T) {
	n := start(t, 64*mib, func(c *daemon.Config) { c.Patience = time.Minute })
	d := n.addSynth("d", "", "samples=400&size=2KB")
	old := n.opens(d.begun(0, 1, 64))
	leaving := time.AfterFunc(50*time.Millisecond, func() { _ = old.Close() })
	defer leaving.Stop()
	n.opens(d.begun(1, 1, 128))
}

// TestRunsOutliveTheDaemon: two runs of one name, each at a position of its own, go on when the
// daemon comes back, whoever of them comes first.
func TestRunsOutliveTheDaemon(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=400&size=2KB")
	var all []*client.Session
	for _, position := range []int64{64, 128} {
		for rank := range 2 {
			all = append(all, n.opens(d.begun(rank, 1, position)))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	next := func(s *client.Session, want uint32) {
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		if b.Epoch != 1 || b.Index != want {
			t.Errorf("batch %d of epoch %d came, not batch %d", b.Index, b.Epoch, want)
		}
	}
	for _, s := range all {
		next(s, 0)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n.restart()
	for want := uint32(1); want < 8; want++ {
		for i := range all {
			next(all[len(all)-1-i], want) // the second run's rank 1 is the first to be back
		}
	}
	for i, s := range all {
		if s.Stats().Reconnects != 1 {
			t.Errorf("session %d: %+v", i, s.Stats())
		}
	}
}
