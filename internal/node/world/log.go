package world

import (
	"slices"
	"sync"
	"sync/atomic"

	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/store/tier"
)

// Log is a dataset's log on ssd. It tells what it finds and loses from before there is a world to
// hear it.
type Log struct {
	tier.Log
	room tier.Usage // as it was opened: a plan must not change with what is written

	mu    sync.Mutex
	world *World       // guarded by mu, as all below; nil: none yet
	early []pump.Event // for it
}

// OpenLog opens the log of a dataset; c says which. A world does not close it.
func OpenLog(in tier.Directories, c tier.Config) (*Log, error) {
	l := &Log{}
	c.Changed = l.changed
	log, err := in.Open(c)
	if err != nil {
		return nil, err
	}
	l.Log, l.room = log, log.Usage()
	return l, nil
}

// changed passes on that the log also holds samples, or has lost some.
func (l *Log) changed(held bool, set []uint64) {
	e := pump.Event{Kind: pump.Unlogged, Set: set}
	if held {
		e.Kind = pump.Logged
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.world == nil {
		l.early = append(l.early, e)
		return
	}
	l.world.mail.post(e)
}

// join has a world hear of the log: first what it held, before any rank can ask for it.
func (l *Log) join(w *World) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.follower = l.carried()
	w.mail.post(pump.Event{Kind: pump.Logged, Set: slices.Clone(l.Held())})
	w.mail.post(l.early...)
	l.world, l.early = w, nil
}

// planFor adds the log to what a plan is made of.
func (l *Log) planFor(in *plan.Input) {
	if l == nil {
		return
	}
	inLog(in, l.room.Capacity, l.room.SampleMax)
	in.Carry = l.carried() != nil
}

// LogStatus is what a world says of its log.
type LogStatus struct {
	tier.Usage
	Lost     int64 `json:"lost"`     // reads that fell back to the origin
	Repaired int64 `json:"repaired"` // of those, samples that were written again
	Hedged   int64 `json:"hedged"`   // reads that the origin answered because the log was slow
	// Instead is the bytes that were read from the origin in place of the log, hedges that came too
	// late among them. The pump, which asked the log, counts them as the log's.
	Instead int64 `json:"instead"`
	// Stays is why samples that should be carried are not; empty: they are, or need not be.
	Stays string `json:"stays,omitempty"`
}

// ReadBytes is what a world has read from the origin and from ssd.
func (s *Status) ReadBytes() (origin, ssd int64) {
	origin, ssd = s.Pump.FetchedBytes, s.Pump.SsdBytes
	if s.Ssd != nil {
		origin, ssd = origin+s.Ssd.Instead, max(0, ssd-s.Ssd.Instead)
	}
	return origin, ssd
}

// sources are where a world's samples come from.
type sources struct {
	fetcher                *fetcher     // the origin
	reader                 *reader      // the log; nil: none
	behind                 atomic.Bool  // a rank waits for a batch
	vain                   atomic.Int64 // until when, since the world began, no rank waits for the log
	lost, repaired, hedged atomic.Int64
	instead                atomic.Int64 // bytes from the origin that the log was asked for
	owing
	following
}

func (w *World) logStatus() *LogStatus {
	if w.Log == nil {
		return nil
	}
	s := &LogStatus{Usage: w.Log.Usage(), Lost: w.lost.Load(), Repaired: w.repaired.Load(),
		Hedged: w.hedged.Load(), Instead: w.instead.Load()}
	if why := w.stays.Load(); why != nil {
		s.Stays = *why
	}
	return s
}
