package world

import (
	"errors"
	"sync/atomic"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/store/arena"
)

// Lease is a batch handed to a consumer. Its slices are valid during the call only.
type Lease struct {
	Seq          uint64
	Epoch, Batch int
	Cause        pump.Cause
	Last         bool
	IDs          []sample.ID
	Lengths      []uint32
	Places       []arena.Place
}

// Consumer is one rank's end of a world. Its methods are called on the owner's goroutine, in
// order, and must not block.
type Consumer interface {
	Leased(*Lease)
	// Failed: a batch cannot be had; nothing more will come.
	Failed(epoch, batch int, err error)
	// Finished: the last batch has been leased.
	Finished()
	// SlabAdded comes before any lease that names the slab, SlabGone after the last one.
	SlabAdded(arena.SlabInfo)
	SlabGone(index uint16)
}

// Cursor is a rank's place in its order. Methods may be called from any goroutine.
type Cursor struct {
	world    *World
	index    int32
	reading  job.Reading
	feed     *job.Feed // nil where the client sends windows
	consumer Consumer
	gone     atomic.Bool // detached
	credits  atomic.Int64
	finished bool    // the owner's: its last batch has been leased
	follows  *course // what the log is carried along for it; nil: nothing
}

// Attach adds a rank. A feed must have been made with Ahead as the world's policy wants it; nil
// for explicit orders.
func (w *World) Attach(r job.Reading, feed *job.Feed, c Consumer) (*Cursor, error) {
	cur := &Cursor{world: w, reading: r, feed: feed, consumer: c}
	var refused error
	err := w.do(func() {
		largest := LargestBatch(&r.Order, r.Order.Samples)
		reserve := w.plan.Reserve(largest)
		if refused = w.room(reserve); refused != nil {
			return
		}
		cur.index = w.freeIndex()
		w.cursors[cur.index] = cur
		w.live.Add(1)
		w.follow(cur)
		for _, s := range w.arena.Slabs() {
			c.SlabAdded(s)
		}
		if w.record != nil {
			w.record.Reading(cur.index, r)
		}
		w.mail.post(pump.Event{Kind: pump.Attached, Cursor: cur.index,
			N: int32(max(largest, 1)), Reserve: reserve, Follows: cur.follows != nil})
	})
	if err = errors.Join(err, refused); err != nil {
		return nil, err
	}
	return cur, nil
}

// LargestBatch is how many samples a batch of an order has at most: no more than its rank reads in
// an epoch of a dataset of so many samples, however large the loader's batches are. Those of an
// explicit order are as its client says, and Accelerate fills the last ones up.
func LargestBatch(o *order.Spec, samples int) int {
	if !o.Known() || o.Kind == order.Accelerate && o.Ranks() > 1 {
		return o.Batch
	}
	if o.Draws > 0 {
		samples = o.Draws
	}
	return min(o.Batch, (samples+o.Ranks()-1)/o.Ranks())
}

// room checks that two batches of every rank fit into staging. Staging that nobody configured
// grows with the ranks.
func (w *World) room(reserve int64) error {
	need := reserve
	for _, c := range w.cursors {
		if c != nil {
			need += w.plan.Reserve(LargestBatch(&c.reading.Order, c.reading.Order.Samples))
		}
	}
	if w.Staging == 0 {
		if err := w.widen(need); err != nil {
			return err
		}
	}
	if need <= w.plan.Staging {
		return nil
	}
	return tooLittleStaging(need, w.plan)
}

// widen gives staging room for need, if the arena has it: otherwise nothing changes for those who
// read already.
func (w *World) widen(need int64) error {
	want := stagingFor(need, w.arena.Capacity())
	before := w.stagingWanted
	if want <= max(before, w.plan.Staging) {
		return nil
	}
	w.stagingWanted = want
	next, err := w.makePlan()
	if err != nil || need > next.Staging {
		w.stagingWanted = before
		return err
	}
	w.adopt(next)
	return nil
}

func (w *World) freeIndex() int32 {
	for i, c := range w.cursors {
		if c == nil {
			return int32(i)
		}
	}
	w.cursors = append(w.cursors, nil)
	return int32(len(w.cursors) - 1)
}

// Credit lets n more batches come.
func (c *Cursor) Credit(n uint32) {
	c.credits.Add(int64(n))
	c.world.mail.post(pump.Event{Kind: pump.Credited, Cursor: c.index, N: int32(n)})
}

// Release ends leases.
func (c *Cursor) Release(seqs ...uint64) {
	if len(seqs) == 0 {
		return
	}
	m := &c.world.mail
	m.mu.Lock()
	for _, seq := range seqs {
		m.events = append(m.events, pump.Event{Kind: pump.Released, Cursor: c.index, Seq: seq})
	}
	m.mu.Unlock()
	m.ring()
}

// Window adds to an explicit order. The slices are the world's from now on; they must have been
// validated.
func (c *Cursor) Window(win *job.Window) {
	c.world.mail.post(pump.Event{Kind: pump.Ordered, Cursor: c.index, Window: win})
}

// waits tells whether a rank has asked for a batch that is still to come. The owner asks.
func (c *Cursor) waits() bool {
	return c != nil && !c.finished && !c.gone.Load() && c.credits.Load() > 0
}

// Detach ends the cursor; its leases are taken back.
func (c *Cursor) Detach() {
	if !c.gone.Swap(true) {
		c.world.live.Add(-1)
		c.world.mail.post(pump.Event{Kind: pump.Detached, Cursor: c.index})
	}
}
