package daemon_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/receipt"
	"belady/internal/core/sample"
	"belady/internal/node/wire"
	"belady/internal/store/jobs"
)

// proofs proves what is recorded of the harness's job, once as many accounts as awaited are there.
func (n *node) proofs(accounts int) []receipt.Epoch {
	n.t.Helper()
	var found []receipt.Account
	within(n.t, 20*time.Second, "the record of the job", func() bool {
		log, err := jobs.New(n.dir).Read("test")
		if err != nil {
			return false
		}
		if len(log.Damaged) > 0 {
			n.t.Fatalf("the record is damaged: %v", log.Damaged)
		}
		found = nil
		for _, r := range log.Records {
			if r.Kind == jobs.Delivered {
				found = append(found, r.Account)
			}
		}
		return len(found) >= accounts
	})
	all, err := receipt.ProveAll(found, -1)
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

// TestJobsAreProved: what ranks were sent is recorded and proved, over a restart of the daemon and
// a resume in another world, for every kind of order that can be computed, packed ones too.
func TestJobsAreProved(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=200&size=2KB")
	both := func(change func(*wire.Attach)) (all []reading) {
		for rank := range 2 {
			at := d.attach(order.Distributed, 8, 3)
			at.Order.World, at.Rank = 2, rank
			change(&at)
			all = append(all, reading{Attach: at, data: d})
		}
		return all
	}
	n.together(both(func(*wire.Attach) {})...)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.together(both(func(a *wire.Attach) {
		a.Order.World, a.Start, a.Packed = 4, wire.Start{Epoch: 1, Position: 64, Batch: 2}, true
	})...)
	for _, e := range n.proofs(10) {
		ranks, resumed := 2, e.Reading.Order.World == 4
		if e.Wrong() || len(e.Ranks) != ranks || e.Whole() == (resumed && e.Number == 1) {
			t.Errorf("epoch %d: %+v", e.Number, e)
		}
		if resumed && e.Number == 1 && (e.Position != 64 || e.Ranks[0].Due-e.Ranks[0].Sent != 2) {
			t.Errorf("the resumed epoch: %+v", e)
		}
	}
	for _, kind := range order.Kinds {
		if kind.Name == order.Explicit {
			continue
		}
		at := d.attach(kind.Name, 8, 2)
		if kind.Name == order.Sequential {
			at.Order.Seed = 0
		}
		at.Job = "kind-" + kind.Name
		expect := reading{Attach: at, data: d}
		if kind.Name == order.Weighted {
			spec := at.Order
			spec.Weights = make([]float64, d.len)
			for i := range spec.Weights {
				spec.Weights[i] = 1 / float64(d.len)
			}
			o, err := order.New(spec)
			if err != nil {
				t.Fatal(err)
			}
			expect.expect = o
		}
		n.mustRead(expect)
		log, err := jobs.New(n.dir).Read(at.Job)
		eventually(t, "the record of "+at.Job, func() bool {
			log, err = jobs.New(n.dir).Read(at.Job)
			return err == nil && len(log.Records) == 3
		})
		all, err := receipt.ProveAll([]receipt.Account{log.Records[1].Account,
			log.Records[2].Account}, -1)
		if err != nil || len(all) != 2 || all[0].Wrong() || !all[0].Whole() || all[1].Wrong() {
			t.Errorf("%s: %v: %+v", at.Job, err, all)
		}
	}
}

// TestSharesAreProved: the explicit orders of workers that say what they are a part of prove it
// together; one that lies is found out.
func TestSharesAreProved(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=200&size=2KB")
	whole := d.attach(order.Random, 8, 9)
	o, err := order.New(whole.Order)
	if err != nil {
		t.Fatal(err)
	}
	e, err := o.Epoch(4, 0, 40, nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func(first, skip int, lie bool) {
		at := explicit(d, 1)
		at.Start.Batch = skip
		at.Share = &wire.Share{Order: whole.Order, Epoch: 4, Position: 40, First: first, Step: 3}
		w := order.Window{Last: true}
		for b := first; b < e.Batches(); b += 3 {
			lo, hi := e.Bounds(b)
			w.IDs = append(w.IDs, e.IDs[lo:hi]...)
			w.BatchEnds = append(w.BatchEnds, uint32(len(w.IDs)))
		}
		if lie {
			w.IDs[8], w.IDs[9] = w.IDs[9], w.IDs[8]
		}
		o, err := order.New(order.Spec{Kind: order.Explicit, Samples: d.len})
		if err == nil {
			err = o.(*order.Windows).Add(w)
		}
		if err != nil {
			t.Fatal(err)
		}
		n.mustRead(reading{Attach: at, data: d, expect: o, opened: func(s *client.Session) {
			sendWindows(t, s, []order.Window{w}, 1)
		}})
	}
	for first := range 3 {
		read(first, first, false) // a resumed one, a worker that reconnected
		read(first, 0, false)
	}
	all := n.proofs(6)
	if len(all) != 1 || all[0].Wrong() || !all[0].Whole() || all[0].Number != 4 ||
		all[0].Position != 40 || all[0].Ranks[0].Sent != e.Batches() {
		t.Errorf("%+v", all)
	}
	read(2, 0, true)
	if all = n.proofs(7); !strings.HasPrefix(all[0].Ranks[0].Wrong, "batch 5 ") {
		t.Errorf("%+v", all)
	}
	for _, share := range []wire.Share{{}, {Order: whole.Order, Step: 1, Rank: 1},
		{Order: whole.Order, Step: -1}, {Order: order.Spec{Kind: order.Explicit}, Step: 1},
		{Order: order.Spec{Kind: order.Random, Samples: 3, Batch: 1}, Step: 1}} {
		at := explicit(d, 1)
		at.Share = &share
		if _, err := n.client.Open(context.Background(), at); code(err) != wire.CodeBadRequest {
			t.Errorf("%+v: %v", share, err)
		}
	}
}

// crooked is an order in which two samples of one batch changed places.
type crooked struct{ order.Order }

func (c crooked) Epoch(
	epoch, rank int, from int64, dst []sample.ID,
) (order.Epoch, error) {
	e, err := c.Order.Epoch(epoch, rank, from, dst)
	if err == nil && epoch == 1 && rank == 1 {
		e.IDs[24], e.IDs[25] = e.IDs[25], e.IDs[24]
	}
	return e, err
}

// TestWrongOrderIsCaught: a daemon that delivers another order than the spec's is found out by its
// own record, at the rank and batch where it begins.
func TestWrongOrderIsCaught(t *testing.T) {
	wrong := func(s order.Spec) (order.Order, error) {
		o, err := order.New(s)
		return crooked{o}, err
	}
	n := start(t, 64*mib, func(c *config) { c.NewOrder = wrong })
	d := n.addSynth("d", "", "samples=200&size=2KB")
	var all []reading
	for rank := range 2 {
		at := d.attach(order.Distributed, 8, 3)
		at.Order.World, at.Rank = 2, rank
		o, err := wrong(at.Order)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, reading{Attach: at, data: d, expect: o})
	}
	n.together(all...)
	for _, e := range n.proofs(6) {
		if e.Wrong() != (e.Number == 1) || e.Ranks[0].Wrong != "" {
			t.Errorf("epoch %d: %+v", e.Number, e)
		}
		if e.Number == 1 && !strings.HasPrefix(e.Ranks[1].Wrong, "batch 3 ") {
			t.Errorf("found is %q", e.Ranks[1].Wrong)
		}
	}
}

// TestEpochsAreProvedInParts: what is recorded on the way proves an epoch as well as a whole of it.
func TestEpochsAreProvedInParts(t *testing.T) {
	n := start(t, 64*mib, func(c *config) { c.RecordEvery = 1 })
	d := n.addSynth("d", "", "samples=200&size=2KB")
	at := d.attach(order.Random, 8, 2)
	at.Start = wire.Start{Position: 40, Batch: 3}
	n.mustRead(reading{Attach: at, data: d})
	all := n.proofs(20 - 3 + 25)
	if len(all) != 2 || all[0].Wrong() || all[1].Wrong() || all[0].Position != 40 ||
		all[0].Ranks[0].Sent != 17 || all[0].Ranks[0].Due != 20 || !all[1].Whole() {
		t.Errorf("%+v", all)
	}
}

// TestSentAhead: batches that waited ahead of a loop which ended before do not begin their epoch.
func TestSentAhead(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=200&size=2KB") // 25 batches an epoch
	for i, c := range []struct {
		taken uint32
		begun bool
	}{{25, false}, {26, true}} {
		at := d.attach(order.Random, 8, 3)
		at.Order.Seed = int64(i)
		p := dial(t, n.socket)
		p.attach(at, 4)
		p.send(wire.AppendCredit(nil, c.taken))
		for range 4 + c.taken {
			lease, err := wire.DecodeLease(p.expect(wire.TypeLease).Payload)
			if err != nil {
				t.Fatal(err)
			}
			p.send(wire.AppendRelease(nil, []uint64{lease.Seq}))
		}
		p.close()
		all := n.proofs(2 * (i + 1))
		e := all[len(all)-1]
		if len(all) != 2*(i+1) || e.Number != 1 || e.Wrong() || e.Whole() || e.Begun != c.begun ||
			e.Ranks[0].Sent != int(c.taken)+4-25 || !all[0].Begun || !all[i].Whole() {
			t.Errorf("%d taken: %+v", c.taken, all)
		}
	}
}

// TestJobsWithoutADisk: a record that cannot be kept is said once, and holds nobody up.
func TestJobsWithoutADisk(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=200&size=2KB")
	if err := os.WriteFile(filepath.Join(n.dir, "jobs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.mustRead(reading{Attach: d.attach(order.Random, 8, 3), data: d})
	eventually(t, "the event", func() bool { return len(n.told("trouble")) > 0 })
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if told := n.told("trouble"); len(told) != 1 || !strings.Contains(told[0].String(), "record") {
		t.Errorf("told is %v", told)
	}
}

// TestDriftIsTold: a client's report becomes an event, a number in the status and a record.
func TestDriftIsTold(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=200&size=2KB")
	p := dial(t, n.socket)
	p.attach(d.attach(order.Random, 8, 3), 4)
	p.send(wire.AppendDrift(nil, wire.Drift{Epoch: 2, Batch: 5}))
	eventually(t, "the event", func() bool { return len(n.told("order-drift")) == 1 })
	if text := n.told("order-drift")[0].String(); !strings.Contains(text, "batch 5 of epoch 2") {
		t.Errorf("it says %q", text)
	}
	if got := n.status().Drifts; got != 1 {
		t.Errorf("status has %d drifts", got)
	}
	p.expect(wire.TypeLease) // the session goes on
	eventually(t, "the record", func() bool {
		log, err := jobs.New(n.dir).Read("test")
		return err == nil && len(log.Records) == 2 && log.Records[1].Kind == jobs.Drift &&
			log.Records[1].Epoch == 2 && log.Records[1].Batch == 5
	})

	old := dial(t, n.socket)
	old.send(wire.AppendHello([]byte(wire.Preamble), wire.Hello{Min: 1, Max: 1}))
	old.expect(wire.TypeWelcome)
	at := d.attach(order.Random, 8, 3)
	frames, err := wire.AppendAttach(nil, &at)
	if err != nil {
		t.Fatal(err)
	}
	old.send(wire.AppendDrift(frames, wire.Drift{}))
	old.expect(wire.TypeAttached)
	old.refused(wire.CodeProtocol)
}

// TestLeasesHaveTheirEpoch: wherever a reading begins, and after its daemon was restarted, each
// batch is labelled with the epoch it is of. The harness compares every label.
func TestLeasesHaveTheirEpoch(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=120&size=2KB")
	for _, kind := range []string{order.Distributed, order.Random, order.Replacement} {
		for _, from := range []wire.Start{{}, {Epoch: 3}, {Epoch: 530, Batch: 4},
			{Epoch: 7, Position: 40, Batch: 1}, {Epoch: 7, Position: 40, Batch: 10}} {
			at := d.attach(kind, 8, from.Epoch+3)
			at.Start = from
			restarted := false
			n.mustRead(reading{Attach: at, data: d, each: func(b *client.Batch) bool {
				if !restarted && int(b.Epoch) == from.Epoch+1 && b.Index == 3 && from.Epoch == 530 {
					restarted = true
					if err := n.stop(); err != nil {
						t.Error(err)
					}
					n.restart()
				}
				return true
			}})
		}
	}
}

// TestStoppingWaitsForNobody: a client that is busy with something else does not hold up a daemon
// that is told to stop, and keeps what it was lent.
func TestStoppingWaitsForNobody(t *testing.T) {
	n := start(t, 64*mib, func(c *config) { c.Patience = time.Hour })
	d := n.addSynth("d", "", "samples=200&size=2KB")
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for _, packed := range []bool{false, true} {
		at := d.attach(order.Random, 8, 3)
		at.Packed = packed
		s, err := n.client.Open(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ended := at
		ended.Start.Epoch = at.Epochs
		over, err := n.client.Open(ctx, ended) // has read everything, and does not close
		if err != nil {
			t.Fatal(err)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		for i := range b.Len() {
			if err := d.check(b.ID(i), b.Bytes(i)); err != nil {
				t.Error(err)
			}
		}
		b.Release()
		s.Close()
		over.Close()
		n.restart()
	}
}
