package session

import (
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
	counts  bool              // the order can be computed again, so that it is worth digesting
	scratch []byte
}

// recorded is a reading as its accounts have it.
func (s *Session) recorded(a *wire.Attach, r *job.Reading) receipt.Reading {
	out := receipt.Reading{Content: fmt.Sprintf("%x", s.world.Set.ID()), Order: r.Order,
		Rank: r.Rank}
	all := weights(a)
	for i, m := range s.world.Set.Members() {
		out.Members = append(out.Members, receipt.Member{Name: a.Datasets[i].Name,
			Samples: m.Len(), Weight: all[i]})
	}
	return out
}

// beginTally starts a session's record.
func (s *Session) beginTally(a *wire.Attach, r receipt.Reading, start wire.Start) {
	if s.Record == nil {
		return
	}
	t := &s.tally
	t.record = s.Record
	t.counts = r.Order.Known()
	t.blank = jobs.Record{Session: s.ID, Job: a.Job}
	t.account = receipt.Account{Reading: r, Epoch: start.Epoch, Position: start.Position,
		First: start.Batch}
	t.put(jobs.Attached, t.account)
}

func (t *tally) put(kind string, a receipt.Account) {
	line := t.blank
	line.Kind, line.Time, line.Account = kind, time.Now().UTC(), a
	t.record(line)
}

// leased folds a batch in.
func (t *tally) leased(l *world.Lease) {
	if t.record == nil || !t.counts {
		return
	}
	a := &t.account
	if l.Epoch != a.Epoch || l.Batch != a.First+a.Chain.Batches {
		t.flush() // as it was labelled, so that a wrong label shows
		t.renew(l.Epoch, l.Batch)
	}
	var r uint64
	r, t.scratch = receipt.Of(l.IDs, t.scratch)
	a.Chain.Add(r, len(l.IDs))
	if l.Last {
		a.Whole = true
		t.flush()
		t.renew(l.Epoch+1, 0)
	}
}

// renew begins the account of another epoch, or of a later part of this one.
func (t *tally) renew(epoch, first int) {
	position := int64(0)
	if epoch == t.account.Epoch {
		position = t.account.Position
	}
	t.account = receipt.Account{Reading: t.account.Reading, Epoch: epoch, Position: position,
		First: first}
}

// flush records what was delivered of the present epoch.
func (t *tally) flush() {
	if t.account.Chain.Batches > 0 {
		t.put(jobs.Delivered, t.account)
	}
}

// endTally records what is left when the session ends.
func (s *Session) endTally() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.flush()
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
