package world

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/policy"
	"belady/internal/node/event"
	"belady/internal/store/arena"
	"belady/internal/store/origin"
	"belady/internal/store/origin/synth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

// bench is a world over computed samples.
type bench struct {
	*World
	t       *testing.T
	samples *synth.Origin
	tight   atomic.Int64 // Tightened events
}

func newBench(t *testing.T, c synth.Config, change func(*Config)) *bench {
	t.Helper()
	o, err := synth.New(c)
	if err != nil {
		t.Fatal(err)
	}
	var objects []dataset.Object
	err = o.List(context.Background(), func(batch []dataset.Object) error {
		objects = append(objects, batch...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := dataset.Build(objects, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := dataset.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	set, err := dataset.NewSet([]*dataset.Manifest{manifest}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, samples: o}
	cfg := Config{Name: "d", Set: set, Origins: []origin.Origin{o}, Bytes: 64 * mib,
		Pool: arena.NewPool(256 * mib), Staging: 4 * mib, Concurrency: 8, Rule: "spread",
		Listen: func(e event.Event) {
			if _, ok := e.(event.Tightened); ok {
				b.tight.Add(1)
			}
		}}
	if change != nil {
		change(&cfg)
	}
	if b.World, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if left := cfg.Pool.Left(); left != cfg.Pool.Total() {
			t.Errorf("%d bytes were not given back", cfg.Pool.Total()-left)
		}
	})
	return b
}

// rank is a consumer that checks what it is lent when it comes, and again before it lets go.
type rank struct {
	b      *bench
	cursor *Cursor
	hold   int // leases held before the oldest is released
	credit bool
	pace   *inStep // nil: the rank goes its own way

	mu       sync.Mutex
	held     []Lease
	slabs    map[uint16]bool
	leases   int
	gone     int // slabs
	err      error
	finished chan struct{}
}

func (b *bench) newRank(hold int) *rank {
	return &rank{b: b, hold: hold, credit: true, slabs: map[uint16]bool{},
		finished: make(chan struct{})}
}

// inStep holds two ranks together, as a collective operation after every batch does: neither asks
// for more than the other has got.
type inStep struct {
	mu    sync.Mutex
	ranks [2]*rank
	got   [2]int
}

func (s *inStep) leased(r *rank) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := min(s.got[0], s.got[1])
	for i := range s.ranks {
		if s.ranks[i] == r {
			s.got[i]++
		}
	}
	if min(s.got[0], s.got[1]) > before {
		s.ranks[0].cursor.Credit(1)
		s.ranks[1].cursor.Credit(1)
	}
}

func (r *rank) fail(err error) {
	if r.err == nil {
		r.err = err
		close(r.finished)
	}
}

func (r *rank) check(l *Lease) {
	for i, id := range l.IDs {
		if !r.slabs[l.Places[i].Slab()] {
			r.fail(fmt.Errorf("lease %d lies in slab %d, which is not there", l.Seq,
				l.Places[i].Slab()))
			return
		}
		got := r.b.arena.Bytes(l.Places[i], l.Lengths[i])
		// Both ends are enough to see another sample here, or none.
		const piece = 512
		n := min(piece, len(got))
		if err := errors.Join(r.b.samples.Check(id, 0, got[:n]),
			r.b.samples.Check(id, int64(len(got)-n), got[len(got)-n:])); err != nil {
			r.fail(fmt.Errorf("lease %d: %w", l.Seq, err))
			return
		}
	}
}

func (r *rank) Leased(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	r.leases++
	r.check(l)
	own := *l
	own.Lengths = append([]uint32(nil), l.Lengths...)
	own.Places = append([]arena.Place(nil), l.Places...)
	r.held = append(r.held, own)
	if len(r.held) > r.hold {
		r.check(&r.held[0])
		r.cursor.Release(r.held[0].Seq)
		r.held = r.held[1:]
	}
	if r.pace != nil {
		r.pace.leased(r)
	} else if r.credit {
		r.cursor.Credit(1)
	}
}

func (r *rank) Failed(_, _ int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(err)
}

func (r *rank) Finished() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.held {
		r.check(&r.held[i])
		r.cursor.Release(r.held[i].Seq)
	}
	if r.err == nil {
		close(r.finished)
	}
}

func (r *rank) SlabAdded(s arena.SlabInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slabs[s.Index] = true
}

func (r *rank) SlabGone(index uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slabs, index)
	r.gone++
}

func (b *bench) reading(batch, epochs int) job.Reading {
	return job.Reading{Epochs: epochs, Order: order.Spec{Kind: order.Random, Seed: 5,
		Samples: b.samples.Len(), Batch: batch}}
}

// attach lets a rank read in an order of the daemon's.
func (b *bench) attach(r *rank, reading job.Reading, credits uint32) {
	b.t.Helper()
	rule, err := policy.Find(b.Rule)
	if err != nil {
		b.t.Fatal(err)
	}
	feed, err := job.NewFeed(reading, rule.Ahead)
	if err != nil {
		b.t.Fatal(err)
	}
	// The lease that comes at once must find the cursor.
	r.mu.Lock()
	defer r.mu.Unlock()
	attached := make(chan error, 1)
	var cursor *Cursor
	go func() {
		var err error
		cursor, err = b.World.Attach(reading, feed, unlocked{r})
		attached <- err
	}()
	if err := <-attached; err != nil {
		b.t.Fatal(err)
	}
	r.cursor = cursor
	r.cursor.Credit(credits)
}

// unlocked takes the slabs told of while attach holds the rank's lock.
type unlocked struct{ *rank }

func (u unlocked) SlabAdded(s arena.SlabInfo) {
	if u.cursor == nil {
		u.slabs[s.Index] = true
		return
	}
	u.rank.SlabAdded(s)
}

func (r *rank) wait() error {
	select {
	case <-r.finished:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.err
	case <-time.After(50 * time.Second):
		return errors.New("it has not finished in time")
	}
}

// leave detaches and waits until the world is empty.
func (b *bench) leave(ranks ...*rank) {
	b.t.Helper()
	for _, r := range ranks {
		r.cursor.Detach()
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s, err := b.Status()
		if err != nil {
			b.t.Fatal(err)
		}
		if s.Ranks == 0 && s.Pump.StagingBytes == 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("ranks have left but %+v is there", s)
		}
	}
}

// TestAWindowOfARankThatLeft must not become the order of the rank that has its number next.
func TestAWindowOfARankThatLeft(t *testing.T) {
	b := newBench(t, synth.Config{Samples: 400_000, SizeBytes: 16, Classes: 1}, nil)
	for range 5 {
		early := b.newRank(0)
		b.attach(early, b.reading(100, 1), 1)
		b.leave(early)
		late := b.newRank(0)
		reading := b.reading(100, 1)
		reading.Order.Kind = order.Explicit
		late.mu.Lock() // until the cursor is known
		cursor, err := b.World.Attach(reading, nil, unlocked{late})
		if err != nil {
			t.Fatal(err)
		}
		late.cursor = cursor
		late.mu.Unlock()
		if cursor.index != early.cursor.index {
			t.Fatalf("cursor %d follows %d: the test tests nothing", cursor.index, early.cursor.index)
		}
		cursor.Credit(10)
		b.helpers.Wait() // the window has been computed and sent
		for range 3 {
			if _, err := b.Status(); err != nil {
				t.Fatal(err)
			}
		}
		late.mu.Lock()
		if late.leases > 0 {
			t.Fatal("a rank without an order was lent a batch")
		}
		late.mu.Unlock()
		b.leave(late)
	}
}

// TestASlowRankIsNoReasonToKeepLess: a rank without credit computes; its leases may fill the arena
// as long as it likes.
func TestASlowRankIsNoReasonToKeepLess(t *testing.T) {
	b := newBench(t, synth.Config{Samples: 1600, SizeBytes: 40_000, Classes: 1},
		func(c *Config) { c.Bytes = 24 * mib })
	err := b.do(func() {
		b.patience = time.Minute
		in := b.plan.Input
		in.Keep = 80 * mib
		b.replan(in)
	})
	if err != nil {
		t.Fatal(err)
	}
	r := b.newRank(1000)
	r.credit = false
	b.attach(r, b.reading(16, 3), 4)
	stuck := func() (n int) {
		if err := b.do(func() { n = len(b.stuck) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for end := time.Now().Add(10 * time.Second); stuck() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing got stuck: the test tests nothing")
		}
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		leases := r.leases
		r.mu.Unlock()
		if leases == 4 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d batches came of 4", leases)
		}
	}
	if err := b.do(func() { b.patience = 5 * time.Millisecond }); err != nil {
		t.Fatal(err)
	}
	for range 40 { // many times the patience
		time.Sleep(5 * time.Millisecond)
		stuck()
	}
	if n := b.tight.Load(); n > 0 {
		t.Errorf("the plan gave way %d times", n)
	}
	b.leave(r)
}

// TestNoRoomAtAll: a rank that holds everything and waits hears so; it is not left waiting.
func TestNoRoomAtAll(t *testing.T) {
	b := newBench(t, synth.Config{Samples: 800, SizeBytes: 40_000, Classes: 1},
		func(c *Config) { c.Bytes, c.Staging = 16*mib, 8*mib })
	err := b.do(func() {
		b.patience = 2 * time.Millisecond
		in := b.plan.Input
		in.Keep, in.Staging = 0, 32*mib // more than there is
		b.replan(in)
	})
	if err != nil {
		t.Fatal(err)
	}
	r := b.newRank(1000)
	b.attach(r, b.reading(16, 3), 3)
	if err := r.wait(); !errors.Is(err, ErrTooSmall) {
		t.Errorf("the rank hears %v", err)
	}
	b.leave(r)
}
