package ssd

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/tier"
	"belady/internal/store/tier/tiertest"
	"belady/internal/store/vfs"
	"belady/internal/store/vfs/vfstest"
)

// clock is a time that only tests move.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time           { return time.Unix(1e9, c.at.Load()) }
func (c *clock) advance(by time.Duration) { c.at.Add(int64(by)) }

// stepped opens directories whose writers do nothing by themselves.
func stepped(t testing.TB, quota int64, files ...vfs.FS) (*Disks, *clock) {
	t.Helper()
	c := &clock{}
	d := open(t, quota, files...)
	d.now, d.serial = c.now, true
	d.start = func(w *writer) { close(w.done) }
	return d, c
}

// work lets the writers of a log do all that is due.
func (l *log) work() {
	for _, w := range l.writers {
		w.look(l.now())
		for w.step(l.now()) {
		}
	}
}

// durable is what a log must find again whatever happens now.
func (l *log) durable() map[sample.ID]bool {
	set := map[sample.ID]bool{}
	for id := range sample.ID(len(l.index.spots)) {
		if p, _ := l.index.get(id); p != 0 {
			set[id] = true
		}
	}
	for _, w := range l.writers {
		w.mu.Lock() // leftovers may be being carried
		defer w.mu.Unlock()
		for _, f := range w.fills {
			for _, e := range f.builder.Entries()[f.synced:] {
				if p, _ := l.index.get(e.ID); p == f.file.place(f.slot, e.At) {
					delete(set, e.ID)
				}
			}
		}
	}
	return set
}

// crashSeeds is how many random histories are tried.
func crashSeeds(t *testing.T) uint64 {
	text := os.Getenv("BELADY_CRASH_SEEDS")
	if text == "" {
		return 300
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// eachSeed lets as many histories go on at a time as there are processors: each is alone in its
// file system, and a crash is found the sooner the more of them are tried.
func eachSeed(t *testing.T, seeds uint64, history func(t *testing.T, seed uint64)) {
	parts := uint64(runtime.GOMAXPROCS(0))
	for part := range parts {
		t.Run(strconv.FormatUint(part, 10), func(t *testing.T) {
			t.Parallel()
			for seed := part; seed < seeds; seed += parts {
				if history(t, seed); t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// Whatever was synced is found after a power cut at any operation, and nothing but right bytes ever
// is.
func TestPowerCuts(t *testing.T) {
	eachSeed(t, crashSeeds(t), func(t *testing.T, seed uint64) {
		h := newHistory(t, seed)
		for range 4 {
			h.live()
		}
	})
}

// history is a log that lives several times, on file systems that lose power.
type history struct {
	t      *testing.T
	r      *rand.Rand
	files  []*vfstest.Crash
	sizes  tiertest.Sizes
	config tier.Config

	synced  map[sample.ID]bool // what must be there
	highest uint64             // generation of any of that
	damaged bool               // records were dropped, so slots were used again
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, r: rand.New(rand.NewPCG(seed, 5)), sizes: tiertest.Mixed(200, seed)}
	for i := range 1 + h.r.IntN(2) {
		h.files = append(h.files, vfstest.NewCrash(seed*2+uint64(i)))
	}
	h.config = h.sizes.Config(1)
	h.config.SlotBytes = 128 << 10 << h.r.IntN(3)
	return h
}

// live opens the log, works on it until the power goes or it is closed, and checks what it found.
func (h *history) live() {
	var under []vfs.FS
	for _, f := range h.files {
		under = append(under, f)
	}
	d, c := stepped(h.t, 6<<20, under...)
	if h.r.IntN(4) == 0 {
		h.cutSoon(6) // while it is being opened
	}
	opened, err := d.Open(h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	l := opened.(*log)
	if !h.cut() {
		h.check(l)
		h.cutSoon(40)
	}
	for n := 20 + h.r.IntN(60); n > 0 && !h.cut(); n-- {
		h.act(l, c)
		l.work()
		h.note(l)
	}
	if !h.cut() && h.r.IntN(3) == 0 {
		h.heal()
		if err := l.Close(); err != nil {
			h.t.Error(err)
		}
		h.note(l)
	}
	for i, f := range h.files {
		h.files[i] = f.Cut()
	}
	_, _ = l.Close(), d.Close() // of a machine without power
}

func (h *history) cutSoon(within int) {
	h.files[h.r.IntN(len(h.files))].CutAfter(1 + h.r.IntN(within))
}

func (h *history) heal() {
	for _, f := range h.files {
		f.CutAfter(0)
	}
}

func (h *history) cut() bool {
	for _, f := range h.files {
		if _, err := f.Space(); err != nil {
			return true
		}
	}
	return false
}

func (h *history) note(l *log) {
	h.synced = l.durable()
	for id := range h.synced {
		p, _ := l.index.get(id)
		f := l.fileOf(p)
		slot, _ := f.locate(p)
		h.highest = max(h.highest, f.slots[slot].generation.Load())
	}
}

// act does one of the things that happen to a log.
func (h *history) act(l *log, c *clock) {
	id := sample.ID(h.r.IntN(len(h.sizes)))
	switch h.r.IntN(8) {
	case 0:
		c.advance(time.Duration(h.r.IntN(6000)) * time.Millisecond)
	case 1:
		if err := h.sizes.Get(h.t, l, id)[0]; err != nil && !errors.Is(err, tier.ErrAbsent) {
			h.t.Errorf("Read %d: %v", id, err)
		}
	case 2: // records are given up, as if they had been damaged
		for range h.r.IntN(40) {
			id := sample.ID(h.r.IntN(len(h.sizes)))
			p, _ := l.index.get(id)
			l.drop(id, p)
			h.damaged = true
		}
	default:
		for range h.r.IntN(12) {
			id := sample.ID(h.r.IntN(len(h.sizes)))
			err := l.Append(0, id, h.sizes.Bytes(id))
			if err != nil && !errors.Is(err, tier.ErrBusy) && !errors.Is(err, tier.ErrFull) {
				h.t.Errorf("Append %d: %v", id, err)
			}
		}
	}
}

// check compares what a log found with what it must have found.
func (h *history) check(l *log) {
	if l.generation.Load() < h.highest {
		h.t.Errorf("goes on at generation %d, there was %d", l.generation.Load(), h.highest)
	}
	for id := range sample.ID(len(h.sizes)) {
		held := l.Held()[id/64]>>(id%64)&1 == 1
		err := h.sizes.Get(h.t, l, id)[0]
		switch {
		case h.synced[id] && err != nil:
			h.t.Errorf("sample %d was synced, and is lost: %v", id, err)
		case held && err != nil && !h.damaged:
			h.t.Errorf("sample %d is said to be held: %v", id, err)
		case !held && !errors.Is(err, tier.ErrAbsent):
			h.t.Errorf("sample %d is not said to be held: %v", id, err)
		}
	}
	for i, w := range l.writers {
		entries, err := h.files[i].List(folder(h.config.Content))
		if err != nil {
			h.t.Fatal(err)
		}
		bytes := int64(0)
		for _, e := range entries {
			bytes += e.Bytes
		}
		if w.dir.used != bytes {
			h.t.Errorf("directory %d counts %d bytes of files, there are %d", i, w.dir.used, bytes)
		}
	}
}
