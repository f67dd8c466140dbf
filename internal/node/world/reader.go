package world

import (
	"errors"
	"sync"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/plan"
	"belady/internal/store/tier"
)

const (
	// readers is how many reads of the log are under way at once, and readBytes how much they read: a
	// deep queue is what brings a device to its rate. But they have a share of staging at most, since
	// what a log that stands still has in hand must find room a second time (hedge).
	readers      = 64
	readBytes    = 32 << 20
	stagingShare = 4
	// readGrain is how many samples below plan.Direct one of them takes: what lies together in the
	// log is then read together.
	readGrain = 16
	// busyPause is the time between two tries to append to a log that is busy, busyPatience how long
	// a rank may wait for that, and busyRespite how long none does after it.
	busyPause    = 2 * time.Millisecond
	busyPatience = time.Second
	busyRespite  = 10 * time.Second
)

// reader reads runs from the log, in the order they were asked for. What the log has lost it reads
// from the origin, and appends again.
type reader struct {
	world *World
	wg    sync.WaitGroup

	mu     sync.Mutex
	work   *sync.Cond
	queue  []*fetch // guarded by mu, as all below
	idle   int
	inHand int64 // bytes that are being read
	room   int64 // for no more once they are so many
	closed bool
	hedging
}

func newReader(w *World) *reader {
	r := &reader{world: w, room: min(readBytes, w.plan.Staging/stagingShare),
		hedging: hedging{slow: slowRead}}
	r.work = sync.NewCond(&r.mu)
	for i := range r.claims {
		r.wg.Go(func() { r.run(&r.claims[i]) })
	}
	return r
}

func (r *reader) push(job *fetch) {
	r.mu.Lock()
	r.queue = append(r.queue, job)
	r.mu.Unlock()
	r.work.Signal()
}

// ready tells whether there is something to read, and room for it. The caller holds mu.
func (r *reader) ready() bool {
	return len(r.queue) > 0 && (r.inHand == 0 || r.inHand < r.room)
}

// wait takes the next tasks, when there are some, and notes in slot who has them in hand.
func (r *reader) wait(slot **claim, c *claim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && !r.ready() {
		r.idle++
		r.work.Wait()
		r.idle--
	}
	if r.closed {
		return false
	}
	c.job, c.tasks = r.next()
	c.bytes = 0
	for i := range c.tasks {
		c.bytes += int64(c.tasks[i].size)
	}
	r.inHand += c.bytes
	if r.idle > 0 && r.ready() {
		r.work.Signal() // one wakes the next: those that find nothing to do were not woken
	}
	c.begun, c.epoch, c.reads = time.Now(), c.job.epoch, c.reads[:0]
	if !r.world.left(c.job) {
		for i := range c.tasks {
			c.reads = append(c.reads, tier.Read{ID: c.tasks[i].id, Dst: c.tasks[i].dst})
		}
	}
	*slot = c
	r.arm()
	return true
}

// next takes tasks off the queue: one large sample, or some small ones. The caller holds mu.
func (r *reader) next() (*fetch, []task) {
	job := r.queue[0]
	from := job.nextLog
	to := from + 1
	for to < len(job.tasks) && to < from+readGrain && job.tasks[to-1].size < plan.Direct &&
		job.tasks[to].size < plan.Direct {
		to++
	}
	job.nextLog = to
	if to == len(job.tasks) {
		r.queue = append(r.queue[:0], r.queue[1:]...)
	}
	return job, job.tasks[from:to]
}

func (r *reader) run(slot **claim) {
	var parts []dataset.Part
	w, c := r.world, &claim{}
	for r.wait(slot, c) {
		if len(c.reads) > 0 {
			w.Log.Read(c.epoch, c.reads) // a hedge may end the fetch meanwhile: it is not looked at
		}
		over := r.settle(slot)
		ended := 0
		for i := range c.tasks {
			switch {
			case over != nil && over[i] != 0:
				w.mail.call(func() { w.arena.Free(over[i]) }) // its bytes came from the origin
				continue
			case i < len(c.reads) && c.reads[i].Err == nil:
				r.carry(c.job, &c.tasks[i])
			default:
				parts = r.replace(c.job, &c.tasks[i], parts)
			}
			ended++
		}
		if ended > 0 { // else it may be another fetch by now
			w.fetcher.done(c.job, ended)
		}
		if over != nil {
			c = &claim{} // the hedge may still hold it
		}
	}
}

// carry appends a sample once more, where the next epoch will read it. If the log is busy, it will
// see to that itself, from memory.
func (r *reader) carry(job *fetch, t *task) {
	if job.log.Has(int(t.at)) {
		_ = r.world.Log.Append(job.epoch, t.id, t.dst)
	}
}

// replace reads what the log has lost from the origin, and appends it again.
func (r *reader) replace(job *fetch, t *task, parts []dataset.Part) []dataset.Part {
	w := r.world
	parts, err := w.fetcher.read(job, t, parts)
	if errors.Is(err, errLeft) {
		w.fetcher.fail(job, t, err) // nobody looked: its record may be as good as it was
		return parts
	}
	w.lost.Add(1)
	if err != nil {
		w.fetcher.fail(job, t, err)
		job.unlog(t, false)
		return parts
	}
	w.instead.Add(int64(t.size))
	if w.keep(job, t) {
		w.repaired.Add(1)
	}
	return parts
}

func (r *reader) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.work.Broadcast()
	r.wg.Wait()
}

// keep appends a sample that came from the origin, and notes if the log does not have it after all.
func (w *World) keep(job *fetch, t *task) bool {
	err := w.append(job, t)
	if err != nil {
		job.unlog(t, errors.Is(err, tier.ErrBusy))
	}
	return err == nil
}

// append appends a sample. A log that is busy is waited for: its device has no more to give, and to
// read a sample from the origin twice, or to carry only some, costs more. But while a rank waits
// for a batch, not for long, and not again soon if that was in vain.
func (w *World) append(job *fetch, t *task) error {
	for begun := time.Now(); ; time.Sleep(busyPause) {
		err := w.Log.Append(job.epoch, t.id, t.dst)
		if err == nil || !errors.Is(err, tier.ErrBusy) {
			return err
		}
		now, waited := time.Since(w.began), time.Since(begun)
		patient := waited < busyPatience && now > time.Duration(w.vain.Load())
		if w.behind.Load() && !patient || w.live.Load() == 0 || w.ctx.Err() != nil {
			if waited >= busyPatience {
				w.vain.Store(int64(now + busyRespite))
			}
			return err
		}
	}
}
