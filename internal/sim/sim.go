// Package sim is the other world: virtual time over the same core the daemon runs.
//
// It owns a pump as the daemon does, but its origin, its consumers and its clock are numbers, so
// an epoch of millions of samples takes seconds. It imports core only. Ties in time are broken by
// sequence, so equal scenarios give equal results.
package sim

import (
	"container/heap"
	"errors"
	"fmt"

	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/core/trace"
)

// Origin is the modelled origin: a pipe of Rate bytes a second behind Latency, with at most
// Concurrency requests at once; paced, as many of them as the daemon would make. Jitter, if given,
// is added to each request's latency.
type Origin struct {
	Rate        int64
	Latency     pump.Instant
	Concurrency int
	Paced       bool
	Jitter      func(id sample.ID) pump.Instant
}

// Device is the modelled ssd: one pipe, through which reads and writes go in turn, behind Latency,
// with at most Depth reads at once.
type Device struct {
	ReadRate, WriteRate int64
	Latency             pump.Instant
	Depth               int
}

// Scenario is what is simulated: one node, one dataset, ranks that read it in step with nothing
// but their own compute.
type Scenario struct {
	Plan     *plan.Plan
	Readings []job.Reading
	Origin   Origin
	Ssd      Device       // counts where the plan has a log
	Held     []uint64     // what the log has at the start: a bit for each sample
	Compute  pump.Instant // a batch's compute time on every rank
	Credits  int          // batches a consumer takes ahead; 0 means 4
	// Ranks, if given, says of each reading what is not the same for all.
	Ranks []Rank
	// Script is what happens to the pump by itself, as a trace has recorded it.
	Script []trace.Timed
	// Fail, if given, says whether the nth fetch of a sample fails. A consumer whose batch failed
	// detaches and attaches again at that batch, as a client does.
	Fail func(id sample.ID, nth int) bool
	// Lose, if given, says whether the nth use that is made of a sample's record fails: an append is
	// in vain, and what cannot be read comes from the origin and is appended again.
	Lose func(id sample.ID, nth int) bool
	// Attach, if given, sees what a cursor reads before the step that attaches it.
	Attach func(cursor int32, r job.Reading)
	// Observe, if given, sees every step.
	Observe func(now pump.Instant, events []pump.Event, moves []pump.Move)
	// Deliver, if given, sees every batch handed to a rank.
	Deliver func(rank, epoch, batch int, ids []sample.ID)
	// Stop, if given, is asked now and then whether the run is no longer wanted.
	Stop func() bool
}

// Rank is when a reading attaches, and how long it computes on a batch: the same in all epochs, or
// as each epoch says.
type Rank struct {
	Begin, Compute pump.Instant
	ByEpoch        []pump.Instant
}

// compute is how long a batch of the epoch takes.
func (r *Rank) compute(epoch int32) pump.Instant {
	if int(epoch) < len(r.ByEpoch) {
		return r.ByEpoch[epoch]
	}
	return r.Compute
}

// EpochResult is what one rank saw of one epoch.
type EpochResult struct {
	Rank, Epoch int
	Start, End  pump.Instant
	Stall       [pump.Causes]pump.Instant
	Batches     int
	Traffic     // of the node while this epoch ran on this rank
}

// Traffic is bytes of samples that a node moved.
type Traffic struct {
	OriginBytes int64 // fetched from the origin
	SsdBytes    int64 // and from the log
	LogBytes    int64 // appended to it
}

func (t Traffic) less(o Traffic) Traffic {
	return Traffic{t.OriginBytes - o.OriginBytes, t.SsdBytes - o.SsdBytes, t.LogBytes - o.LogBytes}
}

// Result is a finished simulation.
type Result struct {
	Epochs   []EpochResult
	End      pump.Instant
	Stats    pump.Stats
	Steps    int
	Requests int64
}

// ErrStuck means that the pump waits for nothing that can still happen: a defect in it.
var ErrStuck = errors.New("simulation is stuck: the pump asks for nothing and nobody can go on")

// ErrStopped means that Stop ended a run.
var ErrStopped = errors.New("simulation was stopped")

// Run simulates a scenario to its end.
func Run(s Scenario) (*Result, error) {
	w, err := newWorld(s)
	if err != nil {
		return nil, err
	}
	return w.run()
}

// happening is an event of the pump, or a consumer's own doing, at a time.
type happening struct {
	at    pump.Instant
	seq   int
	event pump.Event
	logs  int64 // bytes that the log now has to write
	rank  int   // ≥ 0: this rank finishes computing
}

type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}

type world struct {
	Scenario
	pump      *pump.Pump
	agenda    agenda
	seq       int
	now       pump.Instant
	consumers []*consumer
	cursors   []*consumer // by cursor index
	link      link
	disk      link
	tries     map[sample.ID]int
	uses      map[sample.ID]int // of records
	result    Result
	moved     Traffic
}

func newWorld(s Scenario) (*world, error) {
	if s.Credits == 0 {
		s.Credits = 4
	}
	if s.Origin.Rate <= 0 || s.Origin.Concurrency <= 0 {
		return nil, fmt.Errorf("origin of %d bytes/s and %d requests at once: give both",
			s.Origin.Rate, s.Origin.Concurrency)
	}
	w := &world{Scenario: s, pump: pump.New(s.Plan), tries: map[sample.ID]int{},
		uses: map[sample.ID]int{}}
	w.link = newLink(s.Origin)
	if s.Plan.Log > 0 {
		if s.Ssd.ReadRate <= 0 || s.Ssd.WriteRate <= 0 || s.Ssd.Depth <= 0 {
			return nil, fmt.Errorf("ssd that reads %d bytes/s, writes %d and takes %d reads at "+
				"once: give all three", s.Ssd.ReadRate, s.Ssd.WriteRate, s.Ssd.Depth)
		}
		w.disk = newLink(Origin{Rate: s.Ssd.ReadRate, Latency: s.Ssd.Latency,
			Concurrency: s.Ssd.Depth})
		w.at(0, pump.Event{Kind: pump.Logged, Set: s.Held})
	}
	for i := range s.Script {
		w.at(s.Script[i].At, s.Script[i].Event)
	}
	for i, r := range s.Readings {
		c := &consumer{rank: i, Rank: Rank{Compute: s.Compute}, reading: r, epoch: -1}
		if s.Ranks != nil {
			c.Rank = s.Ranks[i]
		}
		c.idleFrom = c.Begin
		w.consumers = append(w.consumers, c)
		if err := w.attach(c, c.Begin); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) at(t pump.Instant, e pump.Event) {
	w.seq++
	heap.Push(&w.agenda, happening{at: t, seq: w.seq, event: e, rank: -1})
}

// attach gives a consumer a fresh cursor, from a time on.
func (w *world) attach(c *consumer, from pump.Instant) error {
	feed, err := job.NewFeed(c.reading, w.Plan.Rule.Ahead)
	if err != nil {
		return err
	}
	c.feed = feed
	c.cursor = int32(len(w.cursors))
	w.cursors = append(w.cursors, c)
	if w.Attach != nil {
		w.Attach(c.cursor, c.reading)
	}
	batch := max(c.reading.Order.Batch, 1)
	w.at(from, pump.Event{Kind: pump.Attached, Cursor: c.cursor, N: int32(batch),
		Reserve: w.Plan.Reserve(batch), Follows: w.Plan.Carry})
	w.at(from, pump.Event{Kind: pump.Credited, Cursor: c.cursor, N: int32(w.Credits)})
	return nil
}

func (w *world) run() (*Result, error) {
	var events []pump.Event
	var moves []pump.Move
	for {
		events = events[:0]
		if !w.pump.More() {
			if len(w.agenda) == 0 {
				break
			}
			w.now = w.agenda[0].at
		}
		for len(w.agenda) > 0 && w.agenda[0].at <= w.now {
			h := heap.Pop(&w.agenda).(happening)
			if h.rank >= 0 {
				events = w.computed(w.consumers[h.rank], events)
				continue
			}
			if h.logs > 0 {
				w.disk.write(h.at, h.logs, w.Ssd.WriteRate)
			}
			events = append(events, h.event)
		}
		moves = w.pump.Step(w.now, events, moves[:0])
		if w.result.Steps++; w.result.Steps%1024 == 0 && w.Stop != nil && w.Stop() {
			return nil, ErrStopped
		}
		if w.Observe != nil {
			w.Observe(w.now, events, moves)
		}
		for i := range moves {
			if err := w.carry(&moves[i]); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range w.consumers {
		if !c.done {
			return nil, fmt.Errorf("%w (rank %d, epoch %d)", ErrStuck, c.rank, c.epoch)
		}
	}
	w.result.End = w.now
	w.result.Stats = w.pump.Stats()
	w.result.Requests = w.link.requests
	return &w.result, nil
}

// carry does what a move asks.
func (w *world) carry(m *pump.Move) error {
	switch m.Kind {
	case pump.Need:
		win, err := w.cursors[m.Cursor].feed.Window(int(m.Epoch))
		if err != nil {
			return err
		}
		w.at(w.now, pump.Event{Kind: pump.Ordered, Cursor: m.Cursor, Window: win})
	case pump.Fetch:
		w.fetch(m)
	case pump.Lease:
		w.leased(w.cursors[m.Cursor], m)
	case pump.Finish:
		if c := w.cursors[m.Cursor]; c.cursor == m.Cursor {
			c.last = true
			w.finish(c)
		}
	case pump.Refuse:
		return fmt.Errorf("batch %d of epoch %d needs %d bytes of staging; there are %d",
			m.Batch, m.Epoch, m.Bytes, w.Plan.Staging)
	}
	return nil
}

// fetch sends a run's requests down the links.
func (w *world) fetch(m *pump.Move) {
	end, before := w.now, w.moved.LogBytes
	e := pump.Event{Kind: pump.Staged, Run: m.Run}
	for i, id := range w.pump.IDs(m.Run.Cursor, m.Run.First, m.Run.Count) {
		if !m.Mask.Has(i) {
			continue
		}
		size := int64(w.Plan.Sizes.Size(id))
		logged := m.Ssd.Has(i) && !w.loses(id)
		if logged {
			end = max(end, w.disk.request(w.now, id, size))
			w.moved.SsdBytes += size
		} else {
			end = max(end, w.link.request(w.now, id, size))
			w.moved.OriginBytes += size
			if w.fails(id) {
				e.Failed.Set(i)
			}
		}
		if !m.Log.Has(i) && (logged || !m.Ssd.Has(i)) {
			continue
		}
		switch {
		case !e.Failed.Has(i) && !w.loses(id):
			w.moved.LogBytes += size
		case !logged: // a record that could not be copied still stands
			e.Unlogged.Set(i)
		}
	}
	w.seq++
	heap.Push(&w.agenda, happening{at: end, seq: w.seq, event: e, rank: -1,
		logs: w.moved.LogBytes - before})
}

// fails counts a fetch from the origin and says how it went.
func (w *world) fails(id sample.ID) bool {
	if w.Fail == nil {
		return false
	}
	w.tries[id]++
	return w.Fail(id, w.tries[id])
}

// loses counts a use of a sample's record and says how it went.
func (w *world) loses(id sample.ID) bool {
	if w.Lose == nil {
		return false
	}
	w.uses[id]++
	return w.Lose(id, w.uses[id])
}
