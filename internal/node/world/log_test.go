package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"belady/internal/core/dataset"
	"belady/internal/core/plan"
	"belady/internal/core/sample"
	"belady/internal/store/arena"
	"belady/internal/store/origin"
	"belady/internal/store/origin/synth"
	"belady/internal/store/tier"
)

// memory is a log in memory, which fails as it is told to.
type memory struct {
	t *testing.T

	mu        sync.Mutex
	records   map[sample.ID][]byte                // guarded by mu, as all below
	read      func(sample.ID) error               // before a read; ErrCorrupt drops the record
	append    func(id sample.ID, tries int) error // before an append
	tries     map[sample.ID]int
	reads     int
	appends   int
	direct    int // reads straight into the arena
	layout    tier.Layout
	followed  []string // calls of Follow and Unfollow
	refuses   error    // what Follow returns
	uncarried int
	carried   map[int32]int // appends by epoch
	changed   func(held bool, set []uint64)
	bitsHeld  int // samples that there may be
}

func newMemory(t *testing.T) *memory {
	return &memory{t: t, records: map[sample.ID][]byte{}, tries: map[sample.ID]int{},
		layout: tier.Static, carried: map[int32]int{}}
}

// Open implements tier.Directories.
func (m *memory) Open(c tier.Config) (tier.Log, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed, m.bitsHeld = c.Changed, c.Sizes.Len()
	return &memoryLog{m}, nil
}

func (m *memory) Usage() []tier.DirUsage { return nil }
func (m *memory) Close() error           { return nil }

// set is the bits of samples.
func (m *memory) set(ids ...sample.ID) []uint64 {
	bits := make([]uint64, (m.bitsHeld+63)/64)
	for _, id := range ids {
		bits[id/64] |= 1 << (id % 64)
	}
	return bits
}

func (m *memory) count() (records, reads, appends int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records), m.reads, m.appends
}

type memoryLog struct{ *memory }

func (m *memoryLog) Held() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []sample.ID
	for id := range m.records {
		ids = append(ids, id)
	}
	return m.set(ids...)
}

func (m *memoryLog) Read(_ int32, reads []tier.Read) {
	for i := range reads {
		reads[i].Err = m.one(&reads[i])
	}
}

func (m *memoryLog) one(r *tier.Read) error {
	m.mu.Lock()
	read := m.read
	m.mu.Unlock()
	if read != nil {
		if err := read(r.ID); err != nil {
			if errors.Is(err, tier.ErrCorrupt) {
				m.mu.Lock()
				delete(m.records, r.ID)
				m.mu.Unlock()
			}
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	b, ok := m.records[r.ID]
	if !ok {
		return tier.ErrAbsent
	}
	if len(b) != len(r.Dst) {
		m.t.Errorf("sample %d of %d bytes is read into %d", r.ID, len(b), len(r.Dst))
	}
	if cap(r.Dst) > len(r.Dst) {
		m.direct++
		all := r.Dst[:cap(r.Dst)]
		if uintptr(unsafe.Pointer(&all[0]))%arena.DirectAlign != 0 || len(all)%arena.DirectAlign != 0 {
			m.t.Errorf("sample %d: %d bytes at %p for direct I/O", r.ID, len(all), &all[0])
		}
		for i := range all { // as a device does, which writes whole blocks
			all[i] = 0xee
		}
	}
	copy(r.Dst, b)
	return nil
}

func (m *memoryLog) Append(epoch int32, id sample.ID, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.append != nil {
		m.tries[id]++
		if err := m.append(id, m.tries[id]); err != nil {
			return err
		}
	}
	m.appends++
	m.carried[epoch]++
	m.records[id] = append([]byte(nil), b...)
	return nil
}

func (m *memoryLog) Usage() tier.Usage {
	return tier.Usage{Layout: m.layout, Capacity: 1 << 40, SampleMax: 1 << 30}
}

func (m *memoryLog) Close() error { return nil }

// Follow implements tier.Follower.
func (m *memoryLog) Follow(order uint64, epoch int, buckets []uint16) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := uint16(0)
	m.uncarried = 0
	for _, bucket := range buckets {
		if bucket == tier.Uncarried {
			m.uncarried++
		} else {
			last = max(last, bucket)
		}
	}
	if len(buckets) != m.bitsHeld || order == 0 || last < 5 {
		m.t.Errorf("order %x, %d buckets of %d samples", order, last+1, len(buckets))
	}
	m.followed = append(m.followed, fmt.Sprint(epoch))
	return m.refuses
}

func (m *memoryLog) BucketBytes() int64 { return 4 << 20 }

func (m *memoryLog) Unfollow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed = append(m.followed, "end")
}

// counting counts the reads of each sample.
type counting struct {
	*synth.Origin
	total atomic.Int64
	mu    sync.Mutex
	reads map[sample.ID]int // guarded by mu
}

func (c *counting) Read(ctx context.Context, part dataset.Part, dst []byte) error {
	id, _ := c.ID(part.Name)
	c.total.Add(1)
	c.mu.Lock()
	c.reads[id]++
	c.mu.Unlock()
	return c.Origin.Read(ctx, part, dst)
}

// take returns what was counted, and begins anew.
func (c *counting) take() (samples, reads int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.reads {
		samples++
		reads += n
	}
	c.reads = map[sample.ID]int{}
	return samples, reads
}

// mixed are samples on both sides of plan.Direct, more than the arena keeps.
var mixed = synth.Config{Samples: 900, SizeBytes: 64 << 10, Spread: 0.6, Classes: 1}

// logged is a world with a log and a small arena.
func logged(t *testing.T, m *memory, change func(*Config)) (*bench, *counting) {
	t.Helper()
	var c *counting
	b := newBench(t, mixed, func(cfg *Config) {
		cfg.Bytes, cfg.Staging = 24*mib, 8*mib
		c = &counting{Origin: cfg.Origins[0].(*synth.Origin), reads: map[sample.ID]int{}}
		cfg.Origins = []origin.Origin{c}
		log, err := OpenLog(m, tier.Config{Content: cfg.Set.ID(), Sizes: cfg.Set})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Log = log
		if change != nil {
			change(cfg)
		}
	})
	return b, c
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in time", what)
		}
	}
}

// epochs reads some, and leaves.
func (b *bench) epochs(n int) {
	b.t.Helper()
	r := b.newRank(1)
	b.attach(r, b.reading(16, n), 3)
	if err := r.wait(); err != nil {
		b.t.Fatal(err)
	}
	b.leave(r)
}

// TestTheLogIsRead: after one epoch the origin is not needed any more, not even after a restart;
// and what is read straight into the arena harms nothing beside it.
func TestTheLogIsRead(t *testing.T) {
	for _, rule := range []string{"spread", "belady", "lru"} {
		m := newMemory(t)
		b, c := logged(t, m, func(cfg *Config) { cfg.Rule = rule })
		b.epochs(1)
		if samples, reads := c.take(); samples != int(mixed.Samples) || reads != samples {
			t.Errorf("%s: the first epoch reads %d samples %d times", rule, samples, reads)
		}
		if n, _, appends := m.count(); n != int(mixed.Samples) || appends != n {
			t.Errorf("%s: %d samples are in the log, appended %d times", rule, n, appends)
		}
		b.epochs(3)
		again, d := logged(t, m, func(cfg *Config) { cfg.Rule = rule })
		again.epochs(2)
		for _, o := range []*counting{c, d} {
			if samples, reads := o.take(); reads != 0 {
				t.Errorf("%s: the origin is read %d times for %d samples", rule, reads, samples)
			}
		}
		if n, reads, appends := m.count(); appends != n || reads == 0 {
			t.Errorf("%s: %d reads, %d appends of %d samples", rule, reads, appends, n)
		}
		if rule == "spread" && m.direct == 0 {
			t.Error("nothing was read straight into the arena")
		}
	}
}

// TestLostRecordsAreReplaced: what the log has lost comes from the origin, once, in the same fetch.
func TestLostRecordsAreReplaced(t *testing.T) {
	for _, lost := range []error{tier.ErrCorrupt, tier.ErrAbsent, tier.ErrDown} {
		m := newMemory(t)
		b, c := logged(t, m, nil)
		b.epochs(1)
		c.take()
		var broken sync.Map
		m.mu.Lock()
		m.read = func(id sample.ID) error {
			if _, again := broken.LoadOrStore(id, true); id%7 == 0 && !again {
				return fmt.Errorf("sample %d: %w", id, lost)
			}
			return nil
		}
		m.mu.Unlock()
		b.epochs(3)
		s, err := b.Status()
		if err != nil {
			t.Fatal(err)
		}
		samples, reads := c.take()
		if reads != samples || int64(reads) != s.Ssd.Lost || s.Ssd.Repaired != s.Ssd.Lost {
			t.Errorf("%v: %d samples are read %d times: %+v", lost, samples, reads, *s.Ssd)
		}
		if reads == 0 {
			t.Errorf("%v: nothing was lost: the test tests nothing", lost)
		}
		if s.Pump.Failed > 0 {
			t.Errorf("%v: %d samples failed", lost, s.Pump.Failed)
		}
	}
}

// TestALogThatIsGone: all is read from the origin, and all is read; when it is back it is filled.
func TestALogThatIsGone(t *testing.T) {
	m := newMemory(t)
	b, c := logged(t, m, nil)
	b.epochs(1)
	c.take()
	down := func(gone bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.read, m.append = nil, nil
		if gone {
			m.read = func(sample.ID) error { return tier.ErrDown }
			m.append = func(sample.ID, int) error { return tier.ErrDown }
		}
	}
	down(true)
	b.epochs(2)
	kept := int64(b.plan.SetCount)
	if _, reads := c.take(); int64(reads) < 2*(int64(mixed.Samples)-kept)-64 {
		t.Errorf("%d reads of the origin in two epochs without a log", reads)
	}
	down(false)
	b.epochs(1)
	c.take()
	b.epochs(1)
	if samples, reads := c.take(); reads > 0 {
		t.Errorf("the log is back, and yet %d samples are read from the origin", samples)
	}
}

// TestChanges: what the log finds later is not read from the origin, what it says it has lost is.
func TestChanges(t *testing.T) {
	m := newMemory(t)
	full := newMemory(t)
	first, _ := logged(t, full, nil)
	first.epochs(1)
	b, c := logged(t, m, nil)
	var found, gone []sample.ID
	full.mu.Lock()
	for id, bytes := range full.records {
		m.mu.Lock()
		m.records[id] = bytes
		m.mu.Unlock()
		if found = append(found, id); id%5 == 0 {
			gone = append(gone, id)
		}
	}
	full.mu.Unlock()
	m.changed(true, m.set(found...))
	b.epochs(1)
	if samples, _ := c.take(); samples > 0 {
		t.Errorf("%d samples are read from the origin that the log has found", samples)
	}
	m.mu.Lock()
	for _, id := range gone {
		delete(m.records, id)
	}
	m.mu.Unlock()
	m.changed(false, m.set(gone...))
	b.epochs(1)
	s, err := b.Status()
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, id := range gone {
		if b.plan.InSet(id) {
			kept++
		}
	}
	if samples, _ := c.take(); samples != len(gone)-kept || s.Ssd.Lost > 0 {
		t.Errorf("%d samples are read from the origin, %d reads of the log failed; %d were lost, "+
			"%d of them kept in memory", samples, s.Ssd.Lost, len(gone), kept)
	}
}

// TestABusyLogIsWaitedFor as long as no rank waits for a batch, and for a while when one does.
func TestABusyLogIsWaitedFor(t *testing.T) {
	slow := func(_ sample.ID, tries int) error {
		if tries < 4 {
			return tier.ErrBusy
		}
		return nil
	}
	m := newMemory(t)
	m.append = slow
	b, c := logged(t, m, nil)
	b.epochs(2) // the rank always waits for a batch
	if _, reads := c.take(); reads != int(mixed.Samples) {
		t.Errorf("%d samples are read %d times in two epochs", mixed.Samples, reads)
	}

	m = newMemory(t)
	m.append = slow
	b, _ = logged(t, m, func(cfg *Config) { cfg.Staging = 12 * mib })
	r := b.newRank(1)
	r.credit = false
	b.attach(r, b.reading(16, 1), 0) // it wants nothing: staging fills up
	waitFor(t, "appends", func() bool { n, _, _ := m.count(); return n > 64 })
	b.leave(r)

	m = newMemory(t)
	m.append = func(sample.ID, int) error { return tier.ErrBusy }
	b, c = logged(t, m, nil)
	b.epochs(2)
	if n, _, _ := m.count(); n > 0 {
		t.Errorf("%d samples are in a log that takes none", n)
	}
	if s, err := b.Status(); err != nil || s.Ssd.Lost > 0 || s.Pump.Failed > 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if samples, reads := c.take(); reads < samples+100 {
		t.Errorf("%d samples are read %d times in two epochs", samples, reads)
	}
}

// TestKeptSamplesReachTheLogLater: what memory keeps and a busy log refused is appended once the
// log has time, though it is not fetched again.
func TestKeptSamplesReachTheLogLater(t *testing.T) {
	m := newMemory(t)
	var busy atomic.Bool
	busy.Store(true)
	m.append = func(sample.ID, int) error {
		if busy.Load() {
			return tier.ErrBusy
		}
		return nil
	}
	b, c := logged(t, m, func(cfg *Config) { cfg.Bytes = 128 * mib })
	b.epochs(1)
	if n, _, _ := m.count(); n > 0 {
		t.Fatalf("%d samples are in a log that takes none", n)
	}
	busy.Store(false)
	waitFor(t, "samples in the log", func() bool {
		n, _, _ := m.count()
		return n == int(mixed.Samples)
	})
	b.epochs(1)
	if _, reads := c.take(); reads != int(mixed.Samples) {
		t.Errorf("the origin is read %d times for %d samples", reads, mixed.Samples)
	}
}

// TestARankLeavesWhileTheLogFills: what was not appended is not looked for in the log.
func TestARankLeavesWhileTheLogFills(t *testing.T) {
	m := newMemory(t)
	b, c := logged(t, m, nil)
	seen := func() int64 {
		_, reads, _ := m.count()
		return c.total.Load() + int64(reads)
	}
	for round := range int64(6) {
		before := seen()
		r := b.newRank(0)
		b.attach(r, b.reading(16, 1), 3)
		waitFor(t, "reads", func() bool { return seen() > before+10*round })
		b.leave(r)
	}
	b.epochs(2)
	s, err := b.Status()
	if err != nil || s.Ssd.Lost > 0 {
		t.Errorf("%+v, %v", *s.Ssd, err)
	}
	if n, _, _ := m.count(); n != int(mixed.Samples) {
		t.Errorf("%d of %d samples are in the log", n, mixed.Samples)
	}
}

// TestThePlanOfALog follows from the content: another seed, another memory, the same samples.
func TestThePlanOfALog(t *testing.T) {
	half := func(seed uint64, bytes int64) *plan.Plan {
		b, _ := logged(t, newMemory(t), func(cfg *Config) {
			cfg.Seed, cfg.Bytes = seed, bytes
			cfg.Log.room.Capacity = 20 * mib
		})
		return b.plan
	}
	one, two := half(1, 24*mib), half(2, 40*mib)
	if one.LogCount == 0 || one.LogCount == int(mixed.Samples) {
		t.Fatalf("%d samples are in the log: the test tests nothing", one.LogCount)
	}
	for id := range sample.ID(mixed.Samples) {
		if one.InLog(id) != two.InLog(id) {
			t.Fatalf("sample %d is in one and not in the other", id)
		}
		if one.InLog(id) && one.InSet(id) {
			t.Fatalf("sample %d is kept twice", id)
		}
	}
}

// TestASlowLogIsHedged: what the log is asked for and does not give comes from the origin; what it
// gives too late harms nothing.
func TestASlowLogIsHedged(t *testing.T) {
	m := newMemory(t)
	b, c := logged(t, m, nil)
	b.epochs(1)
	c.take()
	b.reader.mu.Lock()
	b.reader.slow = 10 * time.Millisecond
	b.reader.mu.Unlock()
	stuck := make(chan struct{})
	m.mu.Lock()
	m.read = func(sample.ID) error { <-stuck; return nil }
	m.mu.Unlock()
	b.epochs(2) // nobody leaves before all has come, and nothing came from the log
	s, err := b.Status()
	if err != nil || s.Ssd.Hedged == 0 || s.Pump.Failed > 0 || s.Ssd.Lost > 0 {
		t.Errorf("%+v, %d failed, %v", *s.Ssd, s.Pump.Failed, err)
	}
	if _, reads := c.take(); int64(reads) < s.Ssd.Hedged {
		t.Errorf("%d reads of the origin, %d hedged", reads, s.Ssd.Hedged)
	}
	m.mu.Lock()
	m.read = nil
	m.mu.Unlock()
	close(stuck)
	b.epochs(2)
	waitFor(t, "freed memory", func() bool {
		s, err := b.Status()
		return err == nil && s.Arena.Runs == 0
	})
	if n, _, appends := m.count(); appends != n {
		t.Errorf("%d samples were appended %d times", n, appends)
	}
}

// TestALogIsCarried along one job's order: each epoch's samples are appended for the next, which
// the log is told of before; not in the last epoch, nor while another order is read beside it.
func TestALogIsCarried(t *testing.T) {
	m := newMemory(t)
	m.layout = tier.Carry
	b, _ := logged(t, m, func(cfg *Config) { cfg.Bytes = 24 * mib })
	b.epochs(3)
	n := int(mixed.Samples)
	waitFor(t, "end", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Contains(m.followed, "end")
	})
	m.mu.Lock()
	if want := []string{"1", "2", "end"}; !slices.Equal(m.followed, want) {
		t.Errorf("followed %v, want %v", m.followed, want)
	}
	passing := n - b.plan.SetCount // what memory keeps is written once
	if m.uncarried != b.plan.SetCount {
		t.Errorf("%d samples are not to be carried, %d are kept in memory", m.uncarried, n-passing)
	}
	if got := m.carried; len(got) != 2 || got[0] != n || got[1] > passing ||
		got[1] < passing-64 { // some are in staging still, from the end of the epoch before
		t.Errorf("appends by epoch: %v of %d and %d", got, n, passing)
	}
	m.followed, m.carried = nil, map[int32]int{}
	m.mu.Unlock()
	one, two := b.newRank(0), b.newRank(0)
	other := b.reading(16, 2)
	other.Order.Seed++
	b.attach(one, b.reading(16, 2), 0)
	b.attach(two, other, 3)
	one.cursor.Credit(3)
	if err := errors.Join(one.wait(), two.wait()); err != nil {
		t.Fatal(err)
	}
	b.leave(one, two)
	if n := m.carried[1]; n > 0 {
		t.Errorf("%d samples were carried beside another order", n)
	}
}
