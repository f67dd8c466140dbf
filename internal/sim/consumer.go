package sim

import (
	"container/heap"

	"belady/internal/core/job"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// consumer is one rank: it computes on a batch, releases it, and takes the next.
type consumer struct {
	rank int
	Rank
	reading  job.Reading
	feed     *job.Feed
	cursor   int32
	queue    []lease // waiting to be computed on
	busy     bool
	holding  pump.Move
	idleFrom pump.Instant
	epoch    int
	current  int     // its place in the result's epochs
	moved    Traffic // by the node when the rank fell idle
	before   Traffic // and when the epoch began
	last     bool    // the pump has no more for it
	done     bool
}

// lease is a batch handed out, with its samples: the cursor it came from may be gone by the time
// they are looked at.
type lease struct {
	pump.Move
	ids []sample.ID
}

// leased hands a batch to its rank. A failed one makes it start over at that batch.
func (w *world) leased(c *consumer, m *pump.Move) {
	if c.cursor != m.Cursor {
		return // from a cursor the rank has left
	}
	if m.Failed {
		w.again(c, m)
		return
	}
	c.queue = append(c.queue, lease{*m, w.pump.IDs(m.Cursor, m.Run.First, m.Run.Count)})
	w.compute(c)
}

// again detaches and attaches at the failed batch, once those before it are consumed from the
// queue: they were good.
func (w *world) again(c *consumer, m *pump.Move) {
	w.at(w.now, pump.Event{Kind: pump.Detached, Cursor: c.cursor})
	r := c.reading
	if int(m.Epoch) != r.Start.Epoch {
		r.Start = job.Start{Epoch: int(m.Epoch)}
	}
	r.Start.Batch = int(m.Batch)
	c.reading = r
	if err := w.attach(c, w.now); err != nil {
		panic("sim: a reading that was good is bad at a later batch: " + err.Error())
	}
}

// compute starts on the next batch if the rank is idle.
func (w *world) compute(c *consumer) {
	if c.busy || len(c.queue) == 0 {
		return
	}
	m := c.queue[0]
	c.queue = append(c.queue[:0], c.queue[1:]...)
	if int(m.Epoch) != c.epoch {
		w.newEpoch(c, int(m.Epoch))
	}
	seen := &w.result.Epochs[c.current]
	seen.Stall[m.Cause] += w.now - c.idleFrom
	seen.Batches++
	if w.Deliver != nil {
		w.Deliver(c.rank, int(m.Epoch), int(m.Batch), m.ids)
	}
	c.busy, c.holding = true, m.Move
	w.seq++
	heap.Push(&w.agenda, happening{at: w.now + c.Rank.compute(m.Epoch), seq: w.seq, rank: c.rank})
}

func (w *world) newEpoch(c *consumer, epoch int) {
	w.endEpoch(c)
	c.epoch = epoch
	c.before = c.moved
	w.result.Epochs = append(w.result.Epochs, EpochResult{Rank: c.rank, Epoch: epoch,
		Start: c.idleFrom})
	c.current = len(w.result.Epochs) - 1
}

func (w *world) endEpoch(c *consumer) {
	if c.epoch < 0 {
		return
	}
	seen := &w.result.Epochs[c.current]
	seen.End = c.idleFrom
	seen.Traffic = c.moved.less(c.before)
}

// computed ends a rank's work on a batch: it releases it and asks for one more.
func (w *world) computed(c *consumer, events []pump.Event) []pump.Event {
	c.busy = false
	c.idleFrom, c.moved = w.now, w.moved
	if c.holding.Cursor == c.cursor {
		events = append(events,
			pump.Event{Kind: pump.Released, Cursor: c.cursor, Seq: c.holding.Seq},
			pump.Event{Kind: pump.Credited, Cursor: c.cursor, N: 1})
	}
	w.compute(c)
	w.finish(c)
	return events
}

// finish ends a rank that has consumed its last batch.
func (w *world) finish(c *consumer) {
	if c.last && !c.busy && len(c.queue) == 0 && !c.done {
		c.done = true
		w.endEpoch(c)
		w.at(w.now, pump.Event{Kind: pump.Detached, Cursor: c.cursor})
	}
}
