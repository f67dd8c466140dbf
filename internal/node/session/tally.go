package session

import (
	"cmp"
	"fmt"
	"time"

	"belady/internal/core/job"
	"belady/internal/core/receipt"
	"belady/internal/node/event"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/jobs"
)

// tally digests what a session delivers and records it when an epoch ends, or the session does.
// The session's lock guards it.
type tally struct {
	record  func(jobs.Record) // must not block
	blank   jobs.Record       // what all of its records have in common
	account receipt.Account   // of the epoch that is being delivered
	start   wire.Start        // of the session
	share   *wire.Share       // what an explicit order is a part of
	counts  bool              // the order can be computed again, so that it is worth digesting
	// The label of the batch that is due.
	epoch, batch int
	scratch      []byte
	// Credits, the first of them, which are for what may wait ahead of a loop, and batches leased:
	// a client grants one more credit for each batch its loop takes.
	granted, first, sent int
	every                time.Duration // the longest that what was delivered goes unrecorded
	recorded             time.Time     // when something was
}

// recordEvery is how much of an epoch a daemon that is killed may leave unproved.
const recordEvery = 5 * time.Minute

// beginTally starts a session's record.
func (s *Session) beginTally(a *wire.Attach, r *job.Reading, start wire.Start) {
	if s.Record == nil {
		return
	}
	t := &s.tally
	t.record, t.start, t.share = s.Record, start, a.Share
	t.counts = r.Order.Known() || a.Share != nil
	t.every = cmp.Or(s.RecordEvery, recordEvery)
	t.blank = jobs.Record{Session: s.ID, Job: a.Job}
	t.account.Reading = s.recorded(a, r)
	t.renew(start.Epoch, start.Batch)
	t.put(jobs.Attached, t.account)
}

// recorded is a reading as its accounts have it.
func (s *Session) recorded(a *wire.Attach, r *job.Reading) receipt.Reading {
	out := receipt.Reading{Content: fmt.Sprintf("%x", s.world.Set.ID()), Order: r.Order,
		Rank: r.Rank}
	if a.Share != nil {
		out.Order, out.Rank = a.Share.Order, a.Share.Rank
	}
	all := weights(a)
	for i, m := range s.world.Set.Members() {
		out.Members = append(out.Members, receipt.Member{Name: a.Datasets[i].Name,
			Samples: m.Len(), Weight: all[i]})
	}
	return out
}

func (t *tally) put(kind string, a receipt.Account) {
	line := t.blank
	t.recorded = time.Now()
	line.Kind, line.Time, line.Account = kind, t.recorded.UTC(), a
	t.record(line)
}

// leased folds a batch in.
func (t *tally) leased(l *world.Lease) {
	if t.record == nil || !t.counts {
		return
	}
	if l.Epoch != t.epoch || l.Batch != t.batch {
		t.flush() // it is recorded as it was labelled, so that a wrong label shows
		t.renew(l.Epoch, l.Batch)
	}
	var r uint64
	r, t.scratch = receipt.Of(l.IDs, t.scratch)
	t.account.Chain.Add(r, len(l.IDs))
	t.batch++
	t.sent++
	switch {
	case l.Last:
		t.account.Whole = true
		t.flush()
		t.renew(l.Epoch+1, 0)
	case time.Since(t.recorded) > t.every:
		t.flush()
		t.renew(l.Epoch, t.batch)
	}
}

// renew begins the account of what comes from a batch on.
func (t *tally) renew(epoch, batch int) {
	a := receipt.Account{Reading: t.account.Reading, Epoch: epoch, First: batch}
	if epoch == t.start.Epoch {
		a.Position = t.start.Position
	}
	if s := t.share; s != nil {
		a.Epoch, a.Position = s.Epoch, s.Position
		a.First, a.Step = s.First+batch*s.Step, s.Step
	}
	t.account, t.epoch, t.batch = a, epoch, batch
}

// flush records what was delivered of the present epoch.
func (t *tally) flush() {
	if !t.account.Chain.IsZero() {
		t.put(jobs.Delivered, t.account)
	}
}

// credited counts what the client lets come.
func (t *tally) credited(n uint32) {
	t.granted += int(n)
	if t.first == 0 {
		t.first = int(n)
	}
}

// endTally records what is left when the session ends.
func (s *Session) endTally() {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.tally
	taken, before := t.granted-t.first, t.sent-t.account.Chain.Batches
	t.account.Ahead = taken <= before
	t.flush()
}

// drifted passes on that the client computes another order.
func (s *Session) drifted(p []byte, a *wire.Attach) error {
	d, err := wire.DecodeDrift(p)
	if err != nil {
		return err
	}
	s.tell(event.Drifted{Session: s.ID, Job: a.Job, Dataset: s.world.Name, Rank: a.Rank,
		Epoch: d.Epoch, Batch: d.Batch})
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := &s.tally; t.record != nil {
		line := t.blank
		line.Kind, line.Time = jobs.Drift, time.Now().UTC()
		line.Reading, line.Epoch, line.Batch = t.account.Reading, int(d.Epoch), int(d.Batch)
		t.record(line)
	}
	return nil
}
