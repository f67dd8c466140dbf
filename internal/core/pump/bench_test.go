package pump_test

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// sizes is a dataset reduced to what planning needs.
type sizes []uint32

func (s sizes) Len() int                 { return len(s) }
func (s sizes) Size(id sample.ID) uint32 { return s[id] }

// slot is a cost with classes, as an arena has them.
func slot(size uint32) int64 { return (int64(size) + 63) &^ 63 }

// loop is the smallest world a pump can live in: fetches end at once, consumers release what they
// are handed, and two windows follow each other for ever.
type loop struct {
	pump    *pump.Pump
	windows [2]*job.Window
	events  []pump.Event
	moves   []pump.Move
	now     pump.Instant
	epochs  int // ended so far
}

// newLoop takes the first two epochs of a real order.
func newLoop(t testing.TB, p *plan.Plan, batch int) *loop {
	n := p.Sizes.Len()
	feed, err := job.NewFeed(job.Reading{Epochs: 1 << 20, Order: order.Spec{
		Kind: "torch-distributed", Samples: n, Seed: 1, Batch: batch}}, false)
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{pump: pump.NewIn(p, mapped(t, n))}
	for k := range l.windows {
		if l.windows[k], err = feed.Window(k); err != nil {
			t.Fatal(err)
		}
	}
	if p.Rule.Ahead {
		l.lookAhead(n)
	}
	l.events = append(l.events, pump.Event{Kind: pump.Attached, N: int32(batch), Follows: true},
		pump.Event{Kind: pump.Credited, N: 4})
	return l
}

// mapped is memory in huge pages where the kernel has some, as a daemon gives it to its pumps.
func mapped(t testing.TB, n int) []pump.Record {
	mem, err := unix.Mmap(-1, 0, n*int(unsafe.Sizeof(pump.Record{})),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	return unsafe.Slice((*pump.Record)(unsafe.Pointer(&mem[0])), n)
}

// lookAhead computes next uses for two epochs that alternate.
func (l *loop) lookAhead(n int) {
	at := make([]uint32, n)
	for k := range l.windows {
		for i, id := range l.windows[1-k].IDs {
			at[id] = uint32(n + i)
		}
		next := make([]uint32, n)
		for i, id := range l.windows[k].IDs {
			next[i] = at[id]
		}
		l.windows[k].Next = next
	}
}

// step makes one call and answers its moves; it returns how long the call took.
func (l *loop) step() time.Duration {
	l.now += 1000
	from := onCPU()
	l.moves = l.pump.Step(l.now, l.events, l.moves[:0])
	took := onCPU() - from
	l.events = l.events[:0]
	for i := range l.moves {
		switch m := &l.moves[i]; m.Kind {
		case pump.Need:
			l.events = append(l.events,
				pump.Event{Kind: pump.Ordered, Window: l.windows[m.Epoch&1]})
		case pump.Fetch:
			l.events = append(l.events, pump.Event{Kind: pump.Staged, Run: m.Run})
		case pump.Lease:
			if m.Last {
				l.epochs++
			}
			l.events = append(l.events, pump.Event{Kind: pump.Released, Seq: m.Seq},
				pump.Event{Kind: pump.Credited, N: 1})
		}
	}
	return took
}

// onCPU is the time this thread has been running. What a call takes is counted in it, because the
// scheduler of a busy machine may put milliseconds of others' work in the middle of one.
func onCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkStep14M runs whole epochs of 14.2 M samples, half of them kept, through Step: the
// frontier and the release of each. The bars: 100 ns a sample, 1 ms a call, no allocation.
func BenchmarkStep14M(b *testing.B) {
	const n = 14_200_000
	equal := func(int) uint32 { return 3000 }
	varied := func(id int) uint32 { return 1000 + uint32(id*7919%4000) }
	for _, c := range []struct {
		name, rule string
		size       func(id int) uint32
		log        int64 // percent of the dataset, carried along
	}{
		{"spread/equal", "spread", equal, 0},
		{"spread/varied", "spread", varied, 0},
		{"spread/log", "spread", varied, 25},
		{"belady/equal", "belady", equal, 0},
		{"belady/varied", "belady", varied, 0},
		{"belady/log", "belady", varied, 25},
		{"pin/varied", "pin", varied, 0},
		{"frequency/varied", "frequency", varied, 0},
		{"lru/varied", "lru", varied, 0},
		{"lfu/varied", "lfu", varied, 0},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkStep(b, n, c.rule, c.size, c.log) })
	}
}

func benchmarkStep(b *testing.B, n int, rule string, size func(id int) uint32, log int64) {
	s := make(sizes, n)
	total := int64(0)
	for i := range s {
		s[i] = size(i)
		total += int64(s[i])
	}
	p, err := plan.Make(plan.Input{Sizes: s, Seed: 1, Policy: rule, Keep: total / 2,
		Staging: 256 << 20, Cost: slot, Log: total * log / 100, Carry: log > 0})
	if err != nil {
		b.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := newLoop(b, p, 256)
	for l.epochs < 2 {
		l.step()
	}
	var spent, longest time.Duration
	steps, late := 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	for end := l.epochs + b.N; l.epochs < end; steps++ {
		took := l.step()
		spent += took
		longest = max(longest, took)
		if took > time.Millisecond {
			late++
		}
	}
	b.ReportMetric(float64(spent)/float64(b.N)/float64(n), "ns/sample")
	b.ReportMetric(float64(longest), "max-ns/call")
	b.ReportMetric(float64(steps)/float64(b.N), "calls/op")
	b.ReportMetric(float64(late)/float64(b.N), "calls>1ms/op")
}
