package world

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/node/event"
)

// errLeft fails what a rank no longer wants.
var errLeft = errors.New("the rank has left")

// task is one sample of a fetch.
type task struct {
	id   sample.ID
	at   int32 // its place in the run
	size uint32
	dst  []byte
}

// fetch is a run on its way from the origin. Goroutines claim its tasks a few at a time; the one
// that ends the last reports the run.
type fetch struct {
	run    pump.Run
	slots  pump.Mask
	cursor *Cursor
	tasks  []task
	placed int // tasks that have memory; the owner's

	next int          // first unclaimed task; guarded by the fetcher
	left atomic.Int32 // tasks not ended

	mu     sync.Mutex
	failed pump.Mask      // guarded by mu
	errs   []*SampleError // guarded by mu: why, but for ranks that have left
}

// wants is the size of the next sample that has no memory yet.
func (f *fetch) wants() uint32 { return f.tasks[f.placed].size }

// fetcher reads runs from the origin, in the order they were asked for, with as many requests at
// once as pays.
type fetcher struct {
	world  *World
	spare  sync.Pool
	closed bool // guarded by mu, as all below

	mu     sync.Mutex
	work   *sync.Cond
	queue  []*fetch
	idle   int
	active int
	pace   pacer
	wg     sync.WaitGroup
}

func newFetcher(w *World, most int) *fetcher {
	f := &fetcher{world: w, pace: newPacer(most)}
	f.spare.New = func() any { return &fetch{tasks: make([]task, 0, pump.MaxRun)} }
	f.work = sync.NewCond(&f.mu)
	for range most {
		f.wg.Go(f.run)
	}
	return f
}

// prepare describes a fetch; it has no memory yet.
func (f *fetcher) prepare(m *pump.Move, ids []sample.ID, c *Cursor) *fetch {
	job := f.spare.Get().(*fetch)
	job.run, job.slots, job.cursor = m.Run, m.Slots, c
	job.tasks, job.placed, job.next = job.tasks[:0], 0, 0
	job.failed, job.errs = pump.Mask{}, nil
	for i, id := range ids {
		if m.Mask.Has(i) {
			job.tasks = append(job.tasks, task{id: id, at: int32(i), size: f.world.Set.Size(id)})
		}
	}
	job.left.Store(int32(len(job.tasks)))
	return job
}

func (f *fetcher) push(job *fetch) {
	f.mu.Lock()
	f.queue = append(f.queue, job)
	wake := min(f.idle, len(job.tasks), max(f.pace.limit-f.active, 0))
	f.mu.Unlock()
	for range wake {
		f.work.Signal()
	}
}

// claim takes the next tasks; ended is how the caller's last ones went.
func (f *fetcher) claim(ended, n int, took time.Duration, now time.Duration) (*fetch, []task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ended > 0 {
		f.active--
		f.pace.ended(now, took, ended, f.active+1)
		if wake := min(f.idle, f.pace.limit-f.active-1); wake > 0 && len(f.queue) > 0 {
			f.work.Signal()
		}
	}
	for !f.closed && (len(f.queue) == 0 || f.active >= f.pace.limit) {
		f.idle++
		f.work.Wait()
		f.idle--
	}
	if f.closed {
		return nil, nil
	}
	job := f.queue[0]
	from := job.next
	job.next = min(from+f.pace.grain(n), len(job.tasks))
	if job.next == len(job.tasks) {
		f.queue = append(f.queue[:0], f.queue[1:]...)
	}
	f.active++
	return job, job.tasks[from:job.next]
}

func (f *fetcher) run() {
	var parts []dataset.Part
	var took time.Duration
	ended := 0
	size := 0
	w := f.world
	for {
		job, tasks := f.claim(ended, size, took, time.Since(w.began))
		if job == nil {
			return
		}
		begun := time.Now()
		for i := range tasks {
			var err error
			if parts, err = f.read(job, &tasks[i], parts); err != nil {
				f.fail(job, &tasks[i], err)
			}
			size = int(tasks[i].size)
		}
		took, ended = time.Since(begun), len(tasks)
		if job.left.Add(-int32(len(tasks))) == 0 {
			f.report(job)
		}
	}
}

// read brings one sample into its place.
func (f *fetcher) read(job *fetch, t *task, parts []dataset.Part) ([]dataset.Part, error) {
	// What a rank that left had asked for is read on while there are others: one may count on it.
	if job.cursor != nil && job.cursor.gone.Load() && f.world.live.Load() == 0 {
		return parts, errLeft
	}
	w := f.world
	member, _ := w.Set.Locate(t.id)
	parts = w.Set.Parts(t.id, parts[:0])
	at := uint32(0)
	for _, p := range parts {
		if p.Name == "" {
			continue // an optional field this sample lacks
		}
		if err := w.Origins[member].Read(w.ctx, p, t.dst[at:at+p.Size]); err != nil {
			return parts, err
		}
		at += p.Size
	}
	return parts, nil
}

func (f *fetcher) fail(job *fetch, t *task, err error) {
	w := f.world
	job.mu.Lock()
	job.failed.Set(int(t.at))
	if !errors.Is(err, errLeft) {
		job.errs = append(job.errs,
			&SampleError{Dataset: w.Name, Name: w.Set.Name(t.id), ID: t.id, Err: err})
	}
	job.mu.Unlock()
	if !errors.Is(err, errLeft) && w.ctx.Err() == nil {
		w.tell(event.FetchFailed{Dataset: w.Name, Sample: w.Set.Name(t.id), Err: err})
	}
}

// report tells the owner that a run has ended.
func (f *fetcher) report(job *fetch) {
	w := f.world
	e := pump.Event{Kind: pump.Staged, Cursor: job.run.Cursor, Run: job.run, Failed: job.failed}
	if job.failed.Empty() {
		f.recycle(job)
		w.mail.post(e)
		return
	}
	w.mail.call(func() {
		w.ended(job)
		f.recycle(job)
	})
	w.mail.post(e)
}

func (f *fetcher) recycle(job *fetch) {
	job.cursor = nil
	f.spare.Put(job)
}

func (f *fetcher) load() (active, limit int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active, f.pace.limit
}

func (f *fetcher) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.work.Broadcast()
	f.wg.Wait()
}
