// Package world is the real world a pump acts on: one dataset on this node, with its arena, its
// origin and the ranks that read it.
//
// One goroutine owns the pump, the arena and the places of samples; everyone else sends it events.
// Fetch goroutines write bytes only into places that were allocated for them, and report a run
// when it has ended. World decides nothing that the pump decides: it carries out moves.
package world

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/node/event"
	"belady/internal/store/arena"
	"belady/internal/store/origin"
)

// ErrTooSmall means that the arena cannot hold what a reading needs.
var ErrTooSmall = errors.New("not enough memory")

// ErrClosed is returned by a world that has ended.
var ErrClosed = errors.New("the dataset was closed")

// Config is what a world is made of.
type Config struct {
	Name    string
	Set     *dataset.Set
	Origins []origin.Origin // of the set's members, in order; World does not close them
	Log     *Log            // the samples on ssd; nil: none. World does not close it
	Pool    *arena.Pool
	// Bytes is the arena; Staging the part of it that is not for keeping. 0: a share of Bytes.
	Bytes, Staging int64
	// Concurrency is the most requests to the origin at once.
	Concurrency int
	Rule        string // name of the policy
	Seed        uint64
	Listen      event.Listener
	// Record, if given, makes what sees every step, on the owner's goroutine.
	Record func(p *plan.Plan) (Recorder, error)
}

// Recorder writes down what a pump was told and what it answered. It must not block.
type Recorder interface {
	Reading(cursor int32, r job.Reading)
	Step(now pump.Instant, events []pump.Event, moves []pump.Move)
	Close() error
}

// World is one dataset being served.
type World struct {
	Config
	plan   *plan.Plan
	pump   *pump.Pump
	arena  *arena.Arena
	places []arena.Place // by sample; zero is nowhere
	sizes  arena.Histogram

	record Recorder // nil: none
	mail   mailbox
	sources
	began   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	helpers sync.WaitGroup // goroutines that compute windows
	live    atomic.Int32   // ranks that have not left

	// Owned by the loop.
	cursors []*Cursor                  // by the pump's index; nil is free
	faults  map[sample.ID]*SampleError // why samples failed last
	scratch
	jam
	drainage
}

// scratch is what a step fills anew.
type scratch struct {
	moves   []pump.Move
	lengths []uint32
	leased  []arena.Place
}

// jam is what waits for memory.
type jam struct {
	stuck   []*fetch  // allocated nothing yet
	tight   time.Time // since when something has been stuck
	gaveWay time.Time // since when the plan has not given way to it
	alarm   bool      // a timer will look at what is stuck
	short   bool      // the machine has less memory than the arena was given

	patience      time.Duration
	stagingWanted int64 // where none is configured: what the ranks need
}

// drainage is the emptying of slabs that go.
type drainage struct {
	draining  bool          // the next step is to look at them
	scheduled bool          // a timer will ask for that
	passes    int           // over them, so far
	drained   int           // of those, the last ones that changed nothing
	passed    time.Time     // when the last was
	rest      time.Duration // before another may be
	leaving   int           // samples in them at the last one that did
}

// New opens a world and starts it.
func New(cfg Config) (*World, error) {
	w := &World{Config: cfg, began: time.Now(), done: make(chan struct{})}
	w.patience, w.faults = patience, map[sample.ID]*SampleError{}
	w.sizes = measure(cfg.Set)
	memory, err := arenaFor(cfg.Name, cfg.Bytes, w.sizes, cfg.Rule)
	if err != nil {
		return nil, err
	}
	memory.Pool, memory.Gone = cfg.Pool, w.slabGone
	a, err := arena.New(memory)
	if err != nil {
		return nil, err
	}
	w.arena = a
	if w.plan, err = w.makePlan(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if cfg.Record != nil {
		if w.record, err = cfg.Record(w.plan); err != nil {
			return nil, errors.Join(err, a.Close())
		}
	}
	w.places = make([]arena.Place, cfg.Set.Len())
	w.pump = pump.NewIn(w.plan, arena.Huge[pump.Record](w.plan.Sizes.Len()))
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.mail.wake = make(chan struct{}, 1)
	w.fetcher = newFetcher(w, cfg.Concurrency)
	if w.Log != nil {
		w.reader = newReader(w)
		w.Log.join(w)
	}
	w.tell(event.Planned{Dataset: cfg.Name, Samples: cfg.Set.Len(), Policy: cfg.Rule,
		Keep: w.plan.Keep, Staging: w.plan.Staging, Kept: w.plan.SetCount,
		Logged: w.plan.LogCount, Log: w.plan.LogBytes})
	go w.loop()
	return w, nil
}

func (w *World) makePlan() (*plan.Plan, error) {
	in := plan.Input{Content: w.Set.ID(), Sizes: w.Set, Seed: w.Seed, Policy: w.Rule}
	w.Log.planFor(&in)
	extent{w.arena.Shape(), w.sizes, w.Bytes, w.Staging, w.stagingWanted}.divide(&in)
	return plan.Make(in)
}

// replanAll plans anew from what the arena and the ranks are now.
func (w *World) replanAll() error {
	next, err := w.makePlan()
	if err != nil {
		return err
	}
	w.adopt(next)
	return nil
}

// adopt puts a plan in force.
func (w *World) adopt(next *plan.Plan) {
	w.plan = next
	w.mail.post(pump.Event{Kind: pump.Replanned, Plan: next})
}

func (w *World) tell(e event.Event) {
	if w.Listen != nil {
		w.Listen(e)
	}
}

func (w *World) now() pump.Instant { return pump.Instant(time.Since(w.began)) }

// loop owns the pump.
func (w *World) loop() {
	defer close(w.done)
	var events []pump.Event
	var calls []func()
	for {
		if !w.pump.More() {
			<-w.mail.wake
		}
		events, calls = w.mail.swap(events, calls)
		for _, f := range calls {
			f()
		}
		if w.ctx.Err() != nil {
			return
		}
		now := w.now()
		w.moves = w.pump.Step(now, events, w.moves[:0])
		if w.record != nil {
			w.record.Step(now, events, w.moves)
		}
		freed := false
		for i := range w.moves {
			freed = w.carry(&w.moves[i]) || freed
		}
		w.behind.Store(w.wanted())
		w.abandon() // here alone: a pass over the arena must not lose samples that it has found
		w.unstick(freed)
		if w.draining {
			w.drain()
		}
	}
}

// Close ends the world: fetches are cancelled, consumers are told nothing more. Leases that are
// still out lose nothing: their memory lives as long as the clients' maps.
func (w *World) Close() error {
	w.cancel()
	w.mail.call(func() {})
	<-w.done
	w.reader.close()
	w.fetcher.close()
	w.helpers.Wait()
	var err error
	if w.record != nil {
		err = w.record.Close()
	}
	return errors.Join(err, w.arena.Close())
}

// Gather copies leased samples into a packed batch. Any goroutine may call it while they are
// leased.
func (w *World) Gather(dst []byte, stride int, places []arena.Place) {
	w.arena.Gather(dst, stride, places)
}

// do runs f on the owner's goroutine and waits for it.
func (w *World) do(f func()) error {
	ran := make(chan struct{})
	w.mail.call(func() {
		f()
		close(ran)
	})
	select {
	case <-ran:
		return nil
	case <-w.done:
		return ErrClosed
	}
}

// Status is what a world says of itself.
type Status struct {
	Dataset  string      `json:"dataset"`
	Samples  int         `json:"samples"`
	Bytes    int64       `json:"bytes"`
	Policy   string      `json:"policy"`
	Ranks    int         `json:"ranks"`
	Memory   int64       `json:"memory_bytes"` // of the arena, less what is to go
	Keep     int64       `json:"keep_bytes"`
	SsdKeep  int64       `json:"ssd_keep_bytes"` // of samples that the log is to hold
	Staging  int64       `json:"staging_bytes"`
	Pump     pump.Stats  `json:"pump"`
	Arena    arena.Usage `json:"arena"`
	InFlight int         `json:"requests_in_flight"`
	Limit    int         `json:"requests_limit"`
	Ssd      *LogStatus  `json:"ssd,omitempty"`
}

// Status asks the owner.
func (w *World) Status() (Status, error) {
	s := Status{Dataset: w.Name, Samples: w.Set.Len(), Bytes: w.Set.TotalBytes(),
		Policy: w.Rule}
	err := w.do(func() {
		for _, c := range w.cursors {
			if c != nil {
				s.Ranks++
			}
		}
		s.Memory, s.Keep, s.Staging = w.Bytes, w.plan.Keep, w.plan.Staging
		s.SsdKeep = w.plan.LogBytes
		s.Pump, s.Arena = w.pump.Stats(), w.arena.Usage()
	})
	s.InFlight, s.Limit = w.fetcher.load()
	s.Ssd = w.logStatus()
	return s, err
}

// mailbox is a swapped slice: the owner takes all there is in one lock.
type mailbox struct {
	mu     sync.Mutex
	events []pump.Event // guarded by mu
	calls  []func()     // guarded by mu; they run before the events that came with them
	wake   chan struct{}
}

func (m *mailbox) post(events ...pump.Event) {
	m.mu.Lock()
	m.events = append(m.events, events...)
	m.mu.Unlock()
	m.ring()
}

func (m *mailbox) call(f func()) {
	m.mu.Lock()
	m.calls = append(m.calls, f)
	m.mu.Unlock()
	m.ring()
}

func (m *mailbox) ring() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) swap(events []pump.Event, calls []func()) ([]pump.Event, []func()) {
	clear(events) // windows must not be held by a mailbox
	clear(calls)
	m.mu.Lock()
	defer m.mu.Unlock()
	events, m.events = m.events, events[:0]
	calls, m.calls = m.calls, calls[:0]
	return events, calls
}

// SampleError is a sample that could not be fetched.
type SampleError struct {
	Dataset string
	Member  string // the one of a union's datasets that has it
	Name    string
	ID      sample.ID
	Err     error
}

func (e *SampleError) Error() string {
	text := fmt.Sprintf("sample %d (%q) of %s: %v", e.ID, e.Name, e.Dataset, e.Err)
	if errors.Is(e.Err, origin.ErrAbsent) || errors.Is(e.Err, origin.ErrChanged) {
		text += "; to scan the dataset again run: belady dataset add " + e.Member
	}
	return text
}

// Unwrap gives the origin's error.
func (e *SampleError) Unwrap() error { return e.Err }
