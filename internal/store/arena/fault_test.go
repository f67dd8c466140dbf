package arena

import (
	"context"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Memory that cannot be had is an error and a refused allocation, not a bus error. A memfd cut
// short behind its mapping fails just as memory that has run out does: on the fault.
func TestMissingMemoryIsAnErrorNotASignal(t *testing.T) {
	a := newArena(t, Config{Bytes: 2 * SpanBytes, Sizes: equalSizes(3000, 1000)})
	if err := a.WaitReady(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := a.live[0]
	if err := s.unmap(); err != nil {
		t.Fatal(err)
	}
	fd, mem, err := mapSealed("belady-test", 2*SpanBytes, unix.F_SEAL_GROW)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, SpanBytes); err != nil {
		t.Fatal(err)
	}
	s.fd, s.mem, s.gone = fd, mem, false
	s.faulted.Store(0)
	p, ok := a.AllocSlot(3000) // the first span has memory
	if !ok || a.Err() != nil {
		t.Fatalf("refused: %v", a.Err())
	}
	if _, ok := a.AllocRun(3000); ok || a.Err() == nil {
		t.Fatalf("a run was placed where no memory is: %v", a.Err())
	}
	a.Bytes(p, 3000)[2999] = 1
	a.Free(p)
	if a.Capacity() != SpanBytes || a.Usage().SpansFree != 1 {
		t.Fatalf("capacity %d, usage %+v", a.Capacity(), a.Usage())
	}
	run, ok := a.AllocRun(3000) // what has memory serves on
	if !ok || run.Offset() != 0 {
		t.Fatalf("the span with memory was refused: %v", run)
	}
	if got := a.Shrink(1); len(got) != 0 {
		t.Fatalf("slab %d drains, and it is the last", got[0])
	}
	a.Free(run)
}

// Where a slab's end cuts a region short, single spans stand in.
func TestRegionsFallBackToSingleSpans(t *testing.T) {
	const size = 114_000
	a := newArena(t, Config{Bytes: 8 << 20, Sizes: equalSizes(size, 1000)})
	a.shape.classes[0].Spans = 3
	n := 0
	for {
		if _, ok := a.AllocSlot(size); !ok {
			break
		}
		n++
	}
	c := a.shape.classes[0]
	if want := int(c.slots(3) + c.slots(1)); n != want {
		t.Fatalf("%d samples fit, want %d", n, want)
	}
}

// When no span is free a slot of a larger class serves, but none of more than twice the size.
func TestFullArenaBorrowsLargerSlots(t *testing.T) {
	h := Histogram{
		{Max: 1000, Count: 1e6, Bytes: 1e9}, {Max: 60_000, Count: 1e6, Bytes: 6e10},
		{Max: 100_032, Count: 1e6, Bytes: 1e11},
	}
	a := newArena(t, Config{Bytes: 32 << 20, Sizes: h})
	if len(a.shape.classes) != 3 {
		t.Fatalf("%d classes", len(a.shape.classes))
	}
	var last Place
	for p, ok := a.AllocSlot(100_032); ok; p, ok = a.AllocSlot(100_032) {
		last = p
	}
	a.Free(last)
	if p, ok := a.AllocSlot(1000); ok {
		t.Fatalf("1000 bytes were placed at %v", p)
	}
	if p, ok := a.AllocSlot(60_000); !ok || p.Offset() != last.Offset() {
		t.Fatalf("60000 bytes were placed at %v, free is %v", p, last)
	}
}

// Fetches write and sessions read on their own goroutines while the owner goes on.
func TestBytesFromOtherGoroutines(t *testing.T) {
	pool := NewPool(32 << 20)
	a := newArena(t, Config{Pool: pool, Bytes: 16 << 20, Sizes: equalSizes(3000, 1000)})
	type job struct {
		place Place
		stamp byte
	}
	jobs, done := make(chan job, 64), make(chan Place, 64)
	var fetchers sync.WaitGroup
	for range 3 {
		fetchers.Go(func() {
			dst := make([]byte, 3000)
			for j := range jobs {
				b := a.Bytes(j.place, 3000)
				for i := range b {
					b[i] = j.stamp
				}
				a.Gather(dst, 3000, []Place{j.place})
				if dst[0] != j.stamp || dst[2999] != j.stamp {
					t.Errorf("%v was overwritten", j.place)
				}
				done <- j.place
			}
		})
	}
	const total = 3000
	held := 0
	for i := range total {
		if held == 64 {
			a.Free(<-done)
			held--
		}
		p, ok := a.AllocSlot(3000)
		if !ok {
			t.Fatal("full")
		}
		held++
		jobs <- job{p, byte(i)}
		switch i {
		case total / 3:
			if _, err := a.Grow(8 << 20); err != nil {
				t.Fatal(err)
			}
		case total / 2:
			a.Shrink(1)
		}
	}
	close(jobs)
	for ; held > 0; held-- {
		a.Free(<-done)
	}
	fetchers.Wait()
	if u := a.Usage(); u.Slots != 0 || u.Copies != total || u.CopiedBytes != total*3000 {
		t.Fatalf("usage %+v", u)
	}
}
