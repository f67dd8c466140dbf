package trace

import (
	"slices"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// Measured is what a trace saw.
type Measured struct {
	Replayed
	Readers []Reader // in the order they attached
	// Script is what happened to the pump by itself: new plans, and what the log had or lost.
	Script []Timed
}

// Timed is an event at a time.
type Timed struct {
	At pump.Instant
	pump.Event
}

// Reader is one cursor, from when it attached until it left.
type Reader struct {
	Reading job.Reading
	Known   bool // its order follows from the reading
	At      pump.Instant
	Epochs  []Seen // those it read from
}

// Seen is what a reader saw of one epoch. The time is divided: it computes on a batch, or waits for
// the next one.
type Seen struct {
	Epoch        int
	Begun, Ended pump.Instant
	Batches      int
	Whole        bool // the last batch was released
	Stall        [pump.Causes]pump.Instant
	Sources
}

// Waited is the stall of all causes.
func (s *Seen) Waited() pump.Instant {
	var sum pump.Instant
	for _, d := range s.Stall {
		sum += d
	}
	return sum
}

// Sources is where the bytes of an epoch's samples came from, in whichever epoch they were moved. A
// sample that another position had brought to staging is shared: how many are depends on timing, so
// that only the sum of origin, ssd and shared follows from the plan. Under policies that evict, one
// that is kept no more when it is lent counts as shared too.
type Sources struct {
	Origin, Ssd, Ram, Shared int64
	SharedSsd                int64 // of what is shared, samples of the log's set
	Logged                   int64 // appended to the log
}

// Add adds o.
func (s *Sources) Add(o Sources) {
	s.Origin, s.Ssd, s.Ram = s.Origin+o.Origin, s.Ssd+o.Ssd, s.Ram+o.Ram
	s.Shared, s.SharedSsd = s.Shared+o.Shared, s.SharedSsd+o.SharedSsd
	s.Logged += o.Logged
}

// Measure replays a trace and adds up what its readers saw. What was measured of a trace whose
// replay differs is not to be trusted beyond the difference, and ends there.
func Measure(data []byte, s dataset.Sizes) (*Measured, error) {
	m := meter{sizes: s, cursors: map[int32]*seer{}, flights: map[uint32]flight{}}
	done, err := play(data, s, m.step)
	m.Replayed = done
	return &m.Measured, err
}

// meter follows a pump.
type meter struct {
	Measured
	sizes   dataset.Sizes
	cursors map[int32]*seer
	flights map[uint32]flight // by the run's handle
}

// seer is a cursor that is being followed.
type seer struct {
	reader  int              // in Readers
	fetched map[int64]uint64 // positions that were fetched and not leased yet, 64 to a word
	leases  map[uint64]*lease
	over    bool         // its last batch was handed out
	next    uint64       // the first batch not known to be released
	idle    pump.Instant // when the one before it was
}

// lease is a batch handed out.
type lease struct {
	at       pump.Instant
	epoch    int32
	cause    pump.Cause
	last     bool
	released bool
}

// flight is a fetch that has not ended.
type flight struct {
	*seer
	epoch          int32
	first          int64
	ids            []sample.ID
	mask, ssd, log pump.Mask // of the move that asked for it
}

func (m *meter) step(p *pump.Pump, step *Step) {
	for _, r := range step.Readings {
		m.cursors[r.Cursor] = &seer{reader: len(m.Readers), fetched: map[int64]uint64{},
			leases: map[uint64]*lease{}}
		m.Readers = append(m.Readers, Reader{Reading: r.Reading, Known: r.Known})
	}
	for i := range step.Events {
		m.event(step.Now, &step.Events[i])
	}
	for _, c := range m.cursors {
		m.settle(c, step.Now)
	}
	for i := range step.Moves {
		m.move(p, step.Now, &step.Moves[i])
	}
}

func (m *meter) event(now pump.Instant, e *pump.Event) {
	switch e.Kind {
	case pump.Replanned, pump.Logged, pump.Unlogged:
		t := Timed{At: now, Event: *e}
		t.Set = slices.Clone(e.Set) // the pump's from the event on
		m.Script = append(m.Script, t)
		return
	case pump.Staged:
		m.landed(e)
		return
	}
	c := m.cursors[e.Cursor]
	if c == nil {
		return
	}
	switch e.Kind {
	case pump.Attached:
		m.Readers[c.reader].At, c.idle = now, now
	case pump.Released:
		if l := c.leases[e.Seq]; l != nil {
			l.released = true
		}
	case pump.Detached:
		for _, l := range c.leases { // a client that has all it wanted need not say so
			l.released = l.released || c.over
		}
	}
}

// settle takes batches that are known to be released by now. A client tells of several at once,
// unless it waits: so those in a row were computed on one behind the other, in equal parts of the
// time since the first could begin.
func (m *meter) settle(c *seer, now pump.Instant) {
	first := c.next
	for l := c.leases[c.next]; l != nil && l.released; l = c.leases[c.next] {
		c.next++
	}
	n := pump.Instant(c.next - first)
	if n == 0 {
		return
	}
	start := c.idle
	begun := max(start, c.leases[first].at)
	for i := range n {
		l := c.leases[first+uint64(i)]
		delete(c.leases, first+uint64(i))
		seen := m.seen(c, l.epoch)
		if seen.Batches == 0 {
			seen.Begun = c.idle
		}
		if i == 0 {
			seen.Stall[l.cause] += begun - start
		}
		c.idle = begun + (now-begun)*(i+1)/n
		seen.Batches++
		seen.Ended, seen.Whole = c.idle, l.last
	}
}

// seen is the reader's account of an epoch.
func (m *meter) seen(c *seer, epoch int32) *Seen {
	all := &m.Readers[c.reader].Epochs
	at, ok := slices.BinarySearchFunc(*all, int(epoch), func(s Seen, e int) int { return s.Epoch - e })
	if !ok {
		*all = slices.Insert(*all, at, Seen{Epoch: int(epoch)})
	}
	return &(*all)[at]
}

func (m *meter) move(p *pump.Pump, now pump.Instant, v *pump.Move) {
	c := m.cursors[v.Cursor]
	if c == nil {
		return
	}
	switch v.Kind {
	case pump.Finish:
		c.over = true
	case pump.Fetch:
		for i := range int(v.Run.Count) {
			if v.Mask.Has(i) {
				pos := v.Run.First + int64(i)
				c.fetched[pos>>6] |= 1 << (pos & 63)
			}
		}
		m.flights[v.Run.Handle] = flight{seer: c, epoch: v.Epoch, first: v.Run.First,
			ids: p.IDs(v.Run.Cursor, v.Run.First, v.Run.Count), mask: v.Mask, ssd: v.Ssd, log: v.Log}
	case pump.Lease:
		if v.Failed {
			return // the rank attaches again at this batch
		}
		c.leases[v.Seq] = &lease{at: now, epoch: v.Epoch, cause: v.Cause, last: v.Last}
		m.delivered(p, c, v)
	}
}

// delivered counts those of a batch that were in memory as the frontier passed them.
func (m *meter) delivered(p *pump.Pump, c *seer, v *pump.Move) {
	seen := m.seen(c, v.Epoch)
	for i, id := range p.IDs(v.Cursor, v.Run.First, v.Run.Count) {
		pos := v.Run.First + int64(i)
		word := c.fetched[pos>>6]
		if pos&63 == 63 {
			delete(c.fetched, pos>>6)
		}
		switch size := int64(m.sizes.Size(id)); {
		case word>>(pos&63)&1 != 0: // counted where it landed
		case p.Kept(id):
			seen.Ram += size
		default:
			seen.Shared += size
			if p.Plan().Log > 0 && p.Plan().InLog(id) {
				seen.SharedSsd += size
			}
		}
	}
}

// landed counts what a fetch brought: what the log turned out not to have came from the origin.
func (m *meter) landed(e *pump.Event) {
	f, ok := m.flights[e.Run.Handle]
	if !ok || f.first != e.Run.First {
		return
	}
	delete(m.flights, e.Run.Handle)
	seen := m.seen(f.seer, f.epoch)
	for i, id := range f.ids {
		if !f.mask.Has(i) || e.Failed.Has(i) {
			continue
		}
		size := int64(m.sizes.Size(id))
		lost := e.Unlogged.Has(i)
		if f.ssd.Has(i) && !lost {
			seen.Ssd += size
		} else {
			seen.Origin += size
		}
		if f.log.Has(i) && !lost {
			seen.Logged += size
		}
	}
}
