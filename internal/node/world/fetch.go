package world

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
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

	failed bool // the claimer's
}

// fetch is a run on its way from the origin and the log. Goroutines claim its tasks a few at a
// time; the one that ends the last reports the run.
type fetch struct {
	run    pump.Run
	epoch  int32
	slots  pump.Mask
	log    pump.Mask // to be appended to the log once read
	cursor *Cursor
	tasks  []task // first the origin's, then the log's
	origin int    // how many are the origin's
	placed int    // tasks that have memory; the owner's

	next    int          // first unclaimed task of the origin; guarded by the fetcher
	nextLog int          // and of the log; guarded by the reader
	left    atomic.Int32 // tasks not ended

	mu       sync.Mutex
	failed   pump.Mask      // guarded by mu, as all below
	unlogged pump.Mask      // not in the log after all
	busy     pump.Mask      // of those, refused because the log was busy
	errs     []*SampleError // why some failed, but for ranks that have left
}

// wants is the size of the next sample that has no memory yet.
func (f *fetch) wants() uint32 { return f.tasks[f.placed].size }

// direct tells whether a sample is to be read straight to where it is lent from: a large one of the
// log's that only passes.
func (f *fetch) direct(i int) bool {
	t := &f.tasks[i]
	return i >= f.origin && t.size >= plan.Direct && !f.slots.Has(int(t.at))
}

// unlog notes that the log does not have a sample after all, or not yet.
func (f *fetch) unlog(t *task, busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlogged.Set(int(t.at))
	if busy {
		f.busy.Set(int(t.at))
	}
}

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
	pace   perf.Pacer
	wg     sync.WaitGroup
}

func newFetcher(w *World, most int) *fetcher {
	f := &fetcher{world: w, pace: perf.NewPacer(most)}
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
	job.run, job.epoch, job.slots, job.log, job.cursor = m.Run, m.Epoch, m.Slots, m.Log, c
	job.tasks, job.placed = job.tasks[:0], 0
	job.failed, job.unlogged, job.busy, job.errs = pump.Mask{}, pump.Mask{}, pump.Mask{}, nil
	of := func(ssd bool) {
		for i, id := range ids {
			if m.Mask.Has(i) && m.Ssd.Has(i) == ssd {
				job.tasks = append(job.tasks, task{id: id, at: int32(i), size: f.world.Set.Size(id)})
			}
		}
	}
	of(false)
	job.origin = len(job.tasks)
	if !m.Ssd.Empty() {
		of(true)
	}
	job.next, job.nextLog = 0, job.origin
	job.left.Store(int32(len(job.tasks)))
	return job
}

func (f *fetcher) push(job *fetch) {
	f.mu.Lock()
	f.queue = append(f.queue, job)
	wake := min(f.idle, job.origin, max(f.pace.Limit()-f.active, 0))
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
		f.pace.Ended(int64(now), int64(took), ended, f.active+1)
		if wake := min(f.idle, f.pace.Limit()-f.active-1); wake > 0 && len(f.queue) > 0 {
			f.work.Signal()
		}
	}
	for !f.closed && (len(f.queue) == 0 || f.active >= f.pace.Limit()) {
		f.idle++
		f.work.Wait()
		f.idle--
	}
	if f.closed {
		return nil, nil
	}
	job := f.queue[0]
	from := job.next
	job.next = min(from+f.pace.Grain(n), job.origin)
	if job.next == job.origin {
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
			t := &tasks[i]
			var err error
			if parts, err = f.read(job, t, parts); err != nil {
				f.fail(job, t, err)
			}
			t.failed = err != nil
			size = int(t.size)
		}
		took, ended = time.Since(begun), len(tasks)
		for i := range tasks { // apart: the time that a log takes is not the origin's
			switch t := &tasks[i]; {
			case !job.log.Has(int(t.at)):
			case t.failed:
				job.unlog(t, false)
			default:
				w.keep(job, t)
			}
		}
		f.done(job, len(tasks))
	}
}

// done counts tasks that have ended.
func (f *fetcher) done(job *fetch, tasks int) {
	if job.left.Add(-int32(tasks)) == 0 {
		f.report(job)
	}
}

// left tells whether nobody wants a fetch any more. What a rank that left had asked for is read on
// while there are others: one may count on it.
func (w *World) left(job *fetch) bool {
	return job.cursor != nil && job.cursor.gone.Load() && w.live.Load() == 0
}

// read brings one sample from the origin into its place.
func (f *fetcher) read(job *fetch, t *task, parts []dataset.Part) ([]dataset.Part, error) {
	if f.world.left(job) {
		return parts, errLeft
	}
	return f.world.fromOrigin(t.id, t.dst, parts)
}

// fromOrigin reads one sample's parts, one behind the other.
func (w *World) fromOrigin(
	id sample.ID, dst []byte, parts []dataset.Part,
) ([]dataset.Part, error) {
	member, _ := w.Set.Locate(id)
	parts = w.Set.Parts(id, parts[:0])
	at := uint32(0)
	for _, p := range parts {
		if p.Name == "" {
			continue // an optional field this sample lacks
		}
		if err := w.Origins[member].Read(w.ctx, p, dst[at:at+p.Size]); err != nil {
			return parts, err
		}
		at += p.Size
	}
	return parts, nil
}

// member is the dataset a sample is of: a union's name is its members', joined by +.
func (w *World) member(id sample.ID) string {
	at, _ := w.Set.Locate(id)
	return strings.Split(w.Name, "+")[at]
}

func (f *fetcher) fail(job *fetch, t *task, err error) {
	w := f.world
	job.mu.Lock()
	job.failed.Set(int(t.at))
	if !errors.Is(err, errLeft) {
		job.errs = append(job.errs,
			&SampleError{Dataset: w.Name, Member: w.member(t.id), Name: w.Set.Name(t.id), ID: t.id,
				Err: err})
	}
	job.mu.Unlock()
	if !errors.Is(err, errLeft) && w.ctx.Err() == nil {
		w.tell(event.FetchFailed{Dataset: w.Name, Sample: w.Set.Name(t.id), Err: err})
	}
}

// report tells the owner that a run has ended.
func (f *fetcher) report(job *fetch) {
	w := f.world
	e := pump.Event{Kind: pump.Staged, Cursor: job.run.Cursor, Run: job.run, Failed: job.failed,
		Unlogged: job.unlogged}
	if job.failed.Empty() && job.busy.Empty() {
		f.recycle(job)
		w.mail.post(e)
		return
	}
	w.mail.call(func() {
		w.ended(job)
		w.owe(job)
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
	return f.active, f.pace.Limit()
}

// latency is the least time that a request has taken of late; 0: none was made.
func (f *fetcher) latency() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.pace.Best())
}

func (f *fetcher) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.work.Broadcast()
	f.wg.Wait()
}
