package world

import (
	"slices"
	"sync"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/node/event"
	"belady/internal/store/arena"
	"belady/internal/store/tier"
)

// A device can be slow without failing. While a rank waits for a batch, reads of the log that take
// too long are made at the origin too, and the first answer counts; what waits behind them is read
// from the origin alone. Records stand: the device may recover.
const (
	// slowRead is how long a read of the log may take: far longer than a healthy device needs with
	// all its queue full, also while it syncs. An origin of long latency gets its own, some times.
	slowRead      = 2 * time.Second
	slowLatencies = 8
	// hedgeTick is the time between two looks at what is being read.
	hedgeTick = 25 * time.Millisecond
	// diverters is how many goroutines read from the origin what waits for a slow log.
	diverters = 16
	// slowTold is the time between two events that tell of it.
	slowTold = time.Minute
)

// hedging is what a reader knows of reads that are slow. The reader's mu guards it.
type hedging struct {
	claims  [readers]*claim // by goroutine: what it has in hand; nil: nothing
	slow    time.Duration
	armed   bool // a timer will look
	diverts int  // goroutines that read what waits
	told    time.Time
}

// claim is tasks that a goroutine reads from the log. A hedge may settle some of them before.
type claim struct {
	job    *fetch
	tasks  []task
	bytes  int64 // of them
	epoch  int32
	reads  []tier.Read
	begun  time.Time
	hedged bool // guarded by the reader's mu

	mu      sync.Mutex
	settled bool          // guarded by mu, as all below: the goroutine is back
	over    []arena.Place // by task that a hedge has settled: where the log may still write
}

// arm has the reads in hand looked at. The caller holds mu.
func (r *reader) arm() {
	if !r.armed {
		r.armed = true
		time.AfterFunc(hedgeTick, r.look)
	}
}

// look hedges reads that are slow, if a rank waits.
func (r *reader) look() {
	w := r.world
	latency := w.fetcher.latency()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = false
	if r.closed {
		return
	}
	late, busy := false, false
	limit := max(r.slow, slowLatencies*latency)
	for _, c := range r.claims {
		if c == nil {
			continue
		}
		busy = true
		if time.Since(c.begun) < limit {
			continue
		}
		late = true
		if !c.hedged && w.behind.Load() {
			c.hedged = true
			r.tellSlow()
			c.over = make([]arena.Place, len(c.tasks))
			tasks := slices.Clone(c.tasks) // the fetch is another's once all are settled
			r.wg.Go(func() { r.hedge(c, tasks) })
		}
	}
	for late && w.behind.Load() && r.diverts < min(diverters, len(r.queue)) {
		r.diverts++
		r.tellSlow()
		r.wg.Go(r.divert)
	}
	if busy {
		r.arm()
	}
}

// tellSlow tells, now and then, that the origin is read in place of the log. The caller holds mu.
func (r *reader) tellSlow() {
	if time.Since(r.told) > slowTold {
		r.told = time.Now()
		r.world.tell(event.LogSlow{Dataset: r.world.Name})
	}
}

// hedge reads the samples of a claim from the origin.
func (r *reader) hedge(c *claim, tasks []task) {
	var parts []dataset.Part
	w := r.world
	for i := range tasks {
		if c.mu.Lock(); c.settled {
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		t := &tasks[i]
		bytes := make([]byte, t.size) // the log may be writing to where the sample is to lie
		var err error
		if parts, err = w.fromOrigin(t.id, bytes, parts); err == nil {
			w.instead.Add(int64(t.size))
			w.mail.call(func() { w.rescue(c, i, t, bytes) })
		}
	}
}

// rescue settles a task with bytes from the origin, in a place that the log does not know. The
// owner calls it.
func (w *World) rescue(c *claim, i int, t *task, bytes []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled || w.ctx.Err() != nil {
		return
	}
	alloc := w.arena.AllocRun
	if c.job.slots.Has(int(t.at)) {
		alloc = w.arena.AllocKept
	}
	p, ok := alloc(t.size)
	if !ok { // the log may answer some time, or others give memory back
		time.AfterFunc(hedgeTick, func() { w.mail.call(func() { w.rescue(c, i, t, bytes) }) })
		return
	}
	copy(w.arena.Bytes(p, t.size), bytes)
	c.over[i], w.places[t.id] = w.places[t.id], p
	w.hedged.Add(1)
	w.fetcher.done(c.job, 1)
}

// settle ends a claim: what its hedge has not settled by now is the goroutine's. It returns where
// the other samples were to lie; nil: there was no hedge.
func (r *reader) settle(slot **claim) []arena.Place {
	r.mu.Lock()
	c := *slot
	*slot = nil
	r.inHand -= c.bytes
	if r.idle > 0 && r.ready() {
		r.work.Signal() // before this one is, which may have to wait for an append
	}
	hedged := c.hedged
	r.mu.Unlock()
	if !hedged {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = true
	return c.over
}

// divert reads what waits for the log from the origin, until nothing does or no rank is behind.
func (r *reader) divert() {
	var parts []dataset.Part
	w := r.world
	for {
		r.mu.Lock()
		if r.closed || len(r.queue) == 0 || !w.behind.Load() {
			r.diverts--
			r.mu.Unlock()
			return
		}
		job, tasks := r.next()
		r.mu.Unlock()
		for i := range tasks {
			t := &tasks[i]
			var err error
			if parts, err = w.fetcher.read(job, t, parts); err == nil {
				w.hedged.Add(1)
				w.instead.Add(int64(t.size))
				continue
			}
			last := []tier.Read{{ID: t.id, Dst: t.dst}}
			if w.Log.Read(job.epoch, last); last[0].Err != nil {
				w.fetcher.fail(job, t, err)
			}
		}
		w.fetcher.done(job, len(tasks))
	}
}
