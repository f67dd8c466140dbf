package world

import (
	"errors"
	"fmt"
	"time"

	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/node/event"
	"belady/internal/store/arena"
	"belady/internal/store/origin"
)

// carry does what a move asks. It reports whether memory was freed.
func (w *World) carry(m *pump.Move) (freed bool) {
	switch m.Kind {
	case pump.Fetch:
		w.start(w.fetcher.prepare(m, w.pump.IDs(m.Run.Cursor, m.Run.First, m.Run.Count),
			w.cursors[m.Run.Cursor]))
	case pump.Lease:
		w.lease(m)
	case pump.Drop:
		ids := w.pump.IDs(m.Run.Cursor, m.Run.First, m.Run.Count)
		for i, id := range ids {
			if m.Mask.Has(i) {
				w.free(id)
			}
		}
		return true
	case pump.Evict:
		for _, id := range m.Evicted() {
			w.free(id)
		}
		return true
	case pump.Need:
		w.need(w.cursors[m.Cursor], int(m.Epoch))
	case pump.Finish:
		c := w.cursors[m.Cursor]
		c.finished = true
		if !c.gone.Load() {
			c.consumer.Finished()
		}
	case pump.Refuse:
		w.refuse(m)
	case pump.Forget:
		gone := w.cursors[m.Cursor]
		w.cursors[m.Cursor] = nil
		w.unfollow(gone)
	}
	return false
}

// refuse tells a rank that its next batch is larger than all of staging, unless staging can grow.
func (w *World) refuse(m *pump.Move) {
	err := error(nil)
	if w.Staging == 0 {
		err = w.widen(m.Bytes)
	}
	if err == nil && m.Bytes <= w.plan.Staging {
		return
	}
	w.cursors[m.Cursor].consumer.Failed(int(m.Epoch), int(m.Batch), errors.Join(err, fmt.Errorf(
		"%w: the batch takes %d MiB of staging, there are %d: start the daemon with a larger "+
			"--staging (and --ram), or use smaller batches",
		ErrTooSmall, m.Bytes>>20+1, w.plan.Staging>>20)))
}

func (w *World) free(id sample.ID) {
	w.arena.Free(w.places[id])
	w.places[id] = 0
}

// lease hands a batch to its consumer.
func (w *World) lease(m *pump.Move) {
	c := w.cursors[m.Cursor]
	c.credits.Add(-1)
	if c.gone.Load() {
		return
	}
	if m.Failed {
		err := w.faultOf(w.pump.IDs(m.Cursor, m.Run.First, m.Run.Count))
		c.consumer.Failed(int(m.Epoch), int(m.Batch), err)
		return
	}
	ids := w.pump.IDs(m.Cursor, m.Run.First, m.Run.Count)
	w.lengths, w.leased = w.lengths[:0], w.leased[:0]
	for _, id := range ids {
		p := w.places[id]
		n := p.Len()
		if n == arena.LongLength {
			n = w.Set.Size(id)
		}
		w.lengths = append(w.lengths, n)
		w.leased = append(w.leased, p)
	}
	c.consumer.Leased(&Lease{Seq: m.Seq, Epoch: int(m.Epoch), Batch: int(m.Batch), Cause: m.Cause,
		Last: m.Last, IDs: ids, Lengths: w.lengths, Places: w.leased})
}

// faultOf is why a batch of these samples failed. Its own fetch need not be the one that did: it
// may have counted on another rank's.
func (w *World) faultOf(ids []sample.ID) error {
	for _, id := range ids {
		if err := w.faults[id]; err != nil {
			return err
		}
	}
	return fmt.Errorf("a sample of the batch could not be read, as a rank that was reading it has "+
		"left: attach again (%w)", origin.ErrUnavailable)
}

// need computes a window off the owner's goroutine.
func (w *World) need(c *Cursor, k int) {
	if c.feed == nil {
		return // the client sends it
	}
	plan := w.plan
	w.helpers.Go(func() {
		win, err := c.feed.Window(k)
		w.lead(c, c.reading.Start.Epoch+k, plan)
		w.mail.call(func() {
			switch {
			case w.cursors[c.index] != c:
				// It has left, and its number may be another rank's by now.
			case err != nil:
				c.consumer.Failed(c.reading.Start.Epoch+k, 0, err)
			default:
				w.mail.post(pump.Event{Kind: pump.Ordered, Cursor: c.index, Window: win})
			}
		})
	})
}

// start allocates a fetch's memory and queues it; without memory it waits for some to be freed.
func (w *World) start(f *fetch) {
	if len(w.stuck) > 0 || !w.allocate(f) { // in turn: the first in line collects room
		if len(w.stuck) == 0 {
			w.tight, w.gaveWay = time.Now(), time.Now()
		}
		w.stuck = append(w.stuck, f)
		return
	}
	w.push(f)
}

// push has a fetch read that has its memory.
func (w *World) push(f *fetch) {
	// Once it is queued it may end at any time, and be another fetch.
	origin, log := f.origin > 0, f.origin < len(f.tasks)
	if origin {
		w.fetcher.push(f)
	}
	if log {
		w.reader.push(f)
	}
}

// allocate gives every sample of a fetch a place, or as many as there is room for: the rest waits,
// and what has a place keeps it, since room often comes in pieces. Samples to be kept go to where
// those are, the others share runs; where one kind has run out they take the other, since room
// left between samples that stay must not stop those that pass.
func (w *World) allocate(f *fetch) bool {
	for ; f.placed < len(f.tasks); f.placed++ {
		t := &f.tasks[f.placed]
		if f.direct(f.placed) {
			if p, ok := w.arena.AllocDirect(t.size); ok {
				w.places[t.id] = p
				t.dst = w.arena.Direct(p, t.size)
				continue
			}
		}
		alloc, other := w.arena.AllocRun, w.arena.AllocKept
		if f.slots.Has(int(t.at)) {
			alloc, other = other, alloc
		}
		p, ok := alloc(t.size)
		if !ok {
			if p, ok = other(t.size); !ok {
				return false
			}
		}
		w.places[t.id] = p
		t.dst = w.arena.Bytes(p, t.size)
	}
	return true
}

// abandon ends the stuck fetches of ranks that have left, once all have: they need no memory to be
// given up, and give back what they had collected.
func (w *World) abandon() {
	if w.live.Load() > 0 {
		return
	}
	left := w.stuck[:0]
	for _, f := range w.stuck {
		if f.cursor == nil || !f.cursor.gone.Load() {
			left = append(left, f)
			continue
		}
		e := pump.Event{Kind: pump.Staged, Cursor: f.run.Cursor, Run: f.run}
		for i := range f.tasks {
			at := int(f.tasks[i].at)
			e.Failed.Set(at)
			if i < f.origin && f.log.Has(at) {
				e.Unlogged.Set(at)
			}
			if i < f.placed {
				w.free(f.tasks[i].id)
			}
		}
		w.fetcher.recycle(f)
		w.mail.post(e)
	}
	clear(w.stuck[len(left):])
	w.stuck = left
}

// patience is how long a fetch that a rank waits for may lack memory before the plan is found too
// tight: the pump counts bytes, the arena has spans, and only the arena knows how well they fit.
// hopeless is how long before that rank is told, once nothing is left to give way.
const (
	patience = time.Second
	hopeless = 30 // times patience
)

// unstick starts what waited for memory. If a rank waits for one of these and nothing was freed for
// long, the plan promises more than the arena holds, and it is the plan that gives way.
func (w *World) unstick(freed bool) {
	if len(w.stuck) == 0 {
		return
	}
	// Room also comes without a move: from moved samples and from new slabs.
	freed = freed || time.Since(w.tight) >= w.patience
	for freed && len(w.stuck) > 0 && w.allocate(w.stuck[0]) {
		w.push(w.stuck[0])
		w.stuck = append(w.stuck[:0], w.stuck[1:]...)
		w.tight, w.gaveWay = time.Now(), time.Now()
	}
	if len(w.stuck) == 0 {
		return
	}
	w.noticeShortage()
	w.requestPass() // room may lie between samples that stay
	if !w.alarm {
		w.alarm = true
		time.AfterFunc(w.patience, func() { w.mail.call(func() { w.alarm = false }) })
	}
	if time.Since(w.tight) < w.patience || !w.wanted() {
		return
	}
	w.tight = time.Now()
	if w.arena.Restore() {
		// The memory that is to go is still needed: ranks that read come before those that may.
		if err := w.resized(); err != nil {
			w.tell(event.Trouble{What: "call off the shrinking of " + w.Name, Err: err})
		}
		return
	}
	if w.plan.Keep > 0 {
		w.gaveWay = time.Now()
		w.tighten()
		return
	}
	if time.Since(w.gaveWay) < hopeless*w.patience {
		return
	}
	for _, c := range w.cursors {
		if !c.waits() {
			continue
		}
		c.consumer.Failed(0, 0, fmt.Errorf("%w: what is held leaves no room for the next batch: "+
			"hold fewer batches, or start the daemon with a larger --ram", ErrTooSmall))
	}
}

// noticeShortage plans for the memory there is, once the machine had less than the arena was given.
func (w *World) noticeShortage() {
	err := w.arena.Err()
	if err == nil || w.short {
		return
	}
	w.short = true
	w.tell(event.Trouble{What: w.Name + " goes on with less memory", Err: err})
	if err := w.replanAll(); err != nil {
		w.tell(event.Trouble{What: "plan " + w.Name + " for less memory", Err: err})
	}
}

// wanted reports whether a rank waits for a batch while something is stuck: what it is may be
// another's, which it counts on or which is before its own. Ranks that compute for minutes while
// their leases fill the arena are no reason to keep less.
func (w *World) wanted() bool {
	for _, c := range w.cursors {
		if c.waits() {
			return true
		}
	}
	return false
}

// tighten plans to keep a little less.
func (w *World) tighten() {
	in := w.plan.Input
	in.Keep = max(0, in.Keep-max(in.Keep/32, arena.SpanBytes))
	w.replan(in)
	w.tell(event.Tightened{Dataset: w.Name, Keep: in.Keep})
}

// replan puts a changed plan in force.
func (w *World) replan(in plan.Input) {
	next, err := plan.Make(in)
	if err != nil {
		w.tell(event.Trouble{What: "replan " + w.Name, Err: err})
		return
	}
	w.adopt(next)
}

// maxFaults bounds how many samples are remembered as failed.
const maxFaults = 4096

// ended takes back what a fetch could not read. It runs before the pump hears of it.
func (w *World) ended(f *fetch) {
	for i := range f.tasks {
		if t := &f.tasks[i]; f.failed.Has(int(t.at)) {
			w.free(t.id)
		}
	}
	if len(w.faults) > maxFaults {
		clear(w.faults)
	}
	for _, e := range f.errs {
		w.faults[e.ID] = e
	}
}
