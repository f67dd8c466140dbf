package arena

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// equalSizes is the histogram of n samples of one size.
func equalSizes(size uint32, n uint64) Histogram {
	return Histogram{{Max: size, Count: n, Bytes: n * uint64(size)}}
}

func newArena(t testing.TB, cfg Config) *Arena {
	t.Helper()
	if cfg.Pool == nil {
		cfg.Pool = NewPool(cfg.Bytes)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestPlacePacksItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slab := rapid.Uint16Range(1, MaxSlabs).Draw(t, "slab")
		offset := rapid.Int64Range(0, MaxSlabBytes/Align-1).Draw(t, "line") * Align
		length := rapid.Uint32().Draw(t, "length")
		p := makePlace(slab, offset, length)
		if p.Slab() != slab || p.Offset() != offset || p.Len() != min(length, LongLength) {
			t.Fatalf("%d %d %d became %v", slab, offset, length, p)
		}
		if p == 0 {
			t.Fatal("a place is nowhere")
		}
	})
}

// model is the arena as the test believes it to be: what lives where, and what bytes are in it.
type model struct {
	a     *Arena
	live  []held
	gone  map[uint16]bool
	stamp byte
}

type held struct {
	place Place
	size  uint32
	run   bool
	stamp byte
}

// add fills a new sample's bytes with a stamp of its own.
func (m *model) add(p Place, size uint32, run bool) {
	m.stamp++
	b := m.a.Bytes(p, size)
	for i := range b {
		b[i] = m.stamp
	}
	m.live = append(m.live, held{p, size, run, m.stamp})
}

func (m *model) drop(i int) {
	m.live[i] = m.live[len(m.live)-1]
	m.live = m.live[:len(m.live)-1]
}

func isRun(a *Arena, p Place) bool {
	_, _, sp := a.lookup(p)
	return sp.kind == spanRun
}

// check compares everything that can be seen with the model.
func (m *model) check(t *rapid.T) {
	a := m.a
	type cell struct {
		slab uint16
		line int64
	}
	owner := map[cell]int{}
	var slots, runs int64
	for i, h := range m.live {
		p := h.place
		if p.Offset()%Align != 0 || isRun(a, p) != h.run || a.length(p) != h.size {
			t.Fatalf("sample %d: %v, run %v, length %d", i, p, isRun(a, p), a.length(p))
		}
		lines := max(1, (int64(h.size)+Align-1)/Align)
		for l := p.Offset() / Align; l < p.Offset()/Align+lines; l++ {
			if j, taken := owner[cell{p.Slab(), l}]; taken {
				t.Fatalf("%v and %v overlap", p, m.live[j].place)
			}
			owner[cell{p.Slab(), l}] = i
		}
		b := a.Bytes(p, h.size)
		if h.size > 0 && (b[0] != h.stamp || b[h.size-1] != h.stamp) {
			t.Fatalf("%v lost its bytes", p)
		}
		if h.run {
			runs += int64(h.size)
		} else {
			slots += int64(h.size)
		}
	}
	u := a.Usage()
	if u.Slots != slots || u.Runs != runs || u.Waste < 0 {
		t.Fatalf("usage %+v, want %d in slots and %d in runs", u, slots, runs)
	}
	if u.Slots+u.Runs+u.Waste+int64(u.SpansFree)*SpanBytes > u.Total {
		t.Fatalf("usage %+v exceeds the arena", u)
	}
}

// step makes one random call.
func (m *model) step(t *rapid.T, size *rapid.Generator[uint32]) {
	a := m.a
	switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
	case op <= 2:
		n := size.Draw(t, "size")
		if p, ok := a.AllocKept(n); ok {
			if a.table[p.Slab()].Load().draining {
				t.Fatalf("%v is in a draining slab", p)
			}
			m.add(p, n, false)
		}
	case op <= 4:
		for _, n := range rapid.SliceOfN(size, 1, 12).Draw(t, "sizes") {
			before := a.Usage()
			p, ok := a.AllocRun(n)
			if ok {
				m.add(p, n, n <= SpanBytes)
				continue
			}
			if after := a.Usage(); after != before {
				t.Fatalf("a refused sample changed %+v to %+v", before, after)
			}
		}
	case op <= 7 && len(m.live) > 0:
		i := rapid.IntRange(0, len(m.live)-1).Draw(t, "free")
		a.Free(m.live[i].place)
		m.drop(i)
	case op == 8 && len(m.live) > 0:
		i := rapid.IntRange(0, len(m.live)-1).Draw(t, "relocate")
		h := m.live[i]
		if p, ok := a.Relocate(h.place); ok {
			m.drop(i)
			m.live = append(m.live, held{p, h.size, false, h.stamp})
		}
	case op == 9 && rapid.IntRange(0, 4).Draw(t, "resize") == 0:
		m.resize(t)
	case op == 9 && len(m.live) > 0:
		m.compact(t)
	}
}

// compact wins room back in the region of some sample.
func (m *model) compact(t *rapid.T) {
	id := m.a.RegionOf(m.live[rapid.IntRange(0, len(m.live)-1).Draw(t, "region")].place)
	var there []int // in m.live
	for i, h := range m.live {
		if m.a.RegionOf(h.place) == id {
			there = append(there, i)
		}
	}
	slices.SortFunc(there, func(i, j int) int {
		return cmp.Compare(m.live[i].place.Offset(), m.live[j].place.Offset())
	})
	places := make([]Place, len(there))
	for i, j := range there {
		places[i] = m.live[j].place
	}
	held := make([]bool, len(there))
	for i := range held {
		held[i] = rapid.Bool().Draw(t, "held")
	}
	fixed := func(i int) bool { return held[i] }
	least := rapid.Uint32Range(0, 100_000).Draw(t, "least")
	if rapid.Bool().Draw(t, "trim") {
		free := m.a.Usage().SpansFree
		if m.a.Trim(places, fixed) != (m.a.Usage().SpansFree > free) {
			t.Fatal("trimming freed nothing, or nothing that it tells")
		}
	} else if m.a.Slide(places, fixed, least) && m.a.Room() < int64(least) {
		t.Fatalf("a gap for %d bytes has %d", least, m.a.Room())
	}
	for i, j := range there {
		if held[i] && m.live[j].place != places[i] {
			t.Fatalf("%v moved under its reader", m.live[j].place)
		}
		m.live[j].place = places[i]
	}
}

func (m *model) resize(t *rapid.T) {
	switch rapid.IntRange(0, 4).Draw(t, "how") {
	case 0:
		m.a.Shrink(1)
		return
	case 1:
		m.a.Reap()
		return
	case 2:
		m.a.Restore()
		return
	}
	for slab := range m.gone {
		m.a.Recycle(slab)
		delete(m.gone, slab)
	}
	if _, err := m.a.Grow(2 * SpanBytes); err != nil && !errors.Is(err, ErrNoBudget) {
		t.Fatal(err)
	}
}

func TestArenaAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(
			rapid.Uint32Range(0, 200), rapid.Uint32Range(50_000, 130_000),
			rapid.Uint32Range(1<<20, 3<<20))
		if rapid.Bool().Draw(t, "small only") {
			size = rapid.Uint32Range(0, 130_000)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		sizes := Measure(500, func(int) uint32 { return rng.Uint32N(130_000) })
		pool := NewPool(12 << 20)
		m := &model{gone: map[uint16]bool{}}
		a, err := New(Config{Pool: pool, Bytes: 8 << 20, SlabBytes: 4 << 20, Sizes: sizes,
			Packed: rapid.Bool().Draw(t, "packed"),
			Gone:   func(slab uint16) { m.gone[slab] = true }})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		m.a = a
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			m.step(t, size)
		}
		m.check(t)
		for _, h := range m.live {
			a.Free(h.place)
		}
		m.live = nil
		m.check(t)
		a.Reap()
		if u := a.Usage(); int64(u.SpansFree)*SpanBytes != u.Total || u.Waste != 0 {
			t.Fatalf("an empty arena is not free: %+v", u)
		}
		if pool.Total()-pool.Left() != a.Usage().Total {
			t.Fatalf("pool says %d of %d left, arena has %d",
				pool.Left(), pool.Total(), a.Usage().Total)
		}
	})
}

// drawMix draws a dataset's sizes and measures them.
func drawMix(m mix, n int) ([]uint32, Histogram) {
	rng := rand.New(rand.NewPCG(3, 4))
	sizes := make([]uint32, n)
	for i := range sizes {
		sizes[i] = m.draw(rng)
	}
	return sizes, Measure(n, func(i int) uint32 { return sizes[i] })
}

// Up to the reserve samples fit in the worst sequence, too: largest or smallest first.
func TestReserveIsEnoughForAnyMix(t *testing.T) {
	for _, mix := range mixes() {
		t.Run(mix.name, func(t *testing.T) {
			sizes, h := drawMix(mix, 100_000)
			slices.Sort(sizes)
			a := newArena(t, Config{Bytes: 32 << 20, SlabBytes: 8 << 20, Sizes: h})
			for range 2 {
				slices.Reverse(sizes)
				var places []Place
				var cost int64
				for i := 0; ; i += 97 { // a few of every size
					s := sizes[i%len(sizes)]
					if cost += a.Shape().SlotCost(s); cost > a.Capacity()-a.Shape().Reserve() {
						break
					}
					p, ok := a.AllocSlot(s)
					if !ok {
						t.Fatalf("refused after %d samples: %+v", len(places), a.Usage())
					}
					places = append(places, p)
				}
				for _, p := range places {
					a.Free(p)
				}
			}
		})
	}
}

// What Fits promises for random picks is kept by one pick after another.
func TestFitsHoldsForRandomPicks(t *testing.T) {
	const aside = 10 << 20
	for _, mix := range mixes() {
		t.Run(mix.name, func(t *testing.T) {
			sizes, h := drawMix(mix, 100_000)
			a := newArena(t, Config{Bytes: 96 << 20, SlabBytes: 32 << 20, Sizes: h})
			if _, ok := a.AllocSlot(aside); !ok { // has no class, takes whole spans
				t.Fatal("full")
			}
			promised := a.Shape().Fits(h, aside)
			for seed := range uint64(20) {
				fillAndFree(t, a, sizes, promised, rand.New(rand.NewPCG(seed, 1)))
			}
			t.Logf("%d classes, %.1f %% of %d MiB promised", len(a.shape.classes),
				100*float64(promised)/float64(a.Capacity()-aside), (a.Capacity()-aside)>>20)
		})
	}
}

// fillAndFree places the promised bytes of randomly picked samples, and frees them.
func fillAndFree(t *testing.T, a *Arena, sizes []uint32, promised int64, rng *rand.Rand) {
	var places []Place
	for bytes := int64(0); ; {
		s := sizes[rng.IntN(len(sizes))]
		if bytes += int64(s); bytes > promised {
			break
		}
		p, ok := a.AllocSlot(s)
		if !ok {
			t.Fatalf("refused at %d of %d bytes", bytes, promised)
		}
		places = append(places, p)
	}
	for _, p := range places {
		a.Free(p)
	}
}

func TestLargeSamplesFillWholeSpans(t *testing.T) {
	h := equalSizes(5<<20, 10)
	a := newArena(t, Config{Bytes: 8 << 20, Sizes: h})
	if got := a.Shape().Fits(h, 0); got >= 5<<20 { // three of four spans, but one is kept for runs
		t.Fatalf("promised %d bytes", got)
	}
	p, ok := a.AllocSlot(5 << 20)
	if !ok || p.Offset() != SpanBytes {
		t.Fatalf("placed at %v, want the far end", p)
	}
	if _, ok := a.AllocSlot(5 << 20); ok {
		t.Fatal("a second sample of three spans fits in one")
	}
	a.Free(p)
}

func TestLongSampleKeepsItsLength(t *testing.T) {
	const size = 70 << 20
	a := newArena(t, Config{Bytes: 144 << 20, Sizes: equalSizes(size, 2)})
	p, ok := a.AllocSlot(size)
	if !ok || p.Len() != LongLength {
		t.Fatalf("placed at %v", p)
	}
	a.Bytes(p, size)[size-1] = 7
	q, ok := a.Relocate(p)
	if !ok || a.Bytes(q, size)[size-1] != 7 || a.Usage().CopiedBytes != size {
		t.Fatalf("relocated to %v, usage %+v", q, a.Usage())
	}
	a.Free(q)
	if u := a.Usage(); u.Slots != 0 || u.Waste != 0 {
		t.Fatalf("after free %+v", u)
	}
}

func TestFreeTwicePanics(t *testing.T) {
	a := newArena(t, Config{Bytes: 8 << 20, Sizes: equalSizes(3000, 1000)})
	p, _ := a.AllocSlot(3000)
	q, _ := a.AllocSlot(3000)
	a.Free(p)
	for _, bad := range []Place{p, q + Align<<lengthBits, makePlace(9, 0, 1), 0} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("free of %v was taken", bad)
				}
			}()
			a.Free(bad)
		}()
	}
}

func TestShrinkDrainsEmptiestAndGoesWithLastPlace(t *testing.T) {
	pool := NewPool(24 << 20)
	var gone []uint16
	a := newArena(t, Config{Pool: pool, Bytes: 24 << 20, SlabBytes: 8 << 20,
		Sizes: equalSizes(1<<20, 100), Gone: func(s uint16) { gone = append(gone, s) }})
	var places []Place
	for range 10 { // slab 1 full with 8, slab 2 with 2, slab 3 empty
		p, ok := a.AllocSlot(1 << 20)
		if !ok {
			t.Fatal("full")
		}
		places = append(places, p)
	}
	if got := a.Shrink(9 << 20); len(got) != 2 || got[0] != 3 || got[1] != 2 {
		t.Fatalf("draining %v, want 3 and 2", got)
	}
	if !a.Reap() || len(gone) != 1 || gone[0] != 3 || pool.Left() != 8<<20 {
		t.Fatalf("gone %v, left %d", gone, pool.Left())
	}
	if a.Draining() != 1 || a.Slabs()[0].Draining || !a.Slabs()[1].Draining {
		t.Fatalf("wrong slabs drain: %+v", a.Slabs())
	}
	if _, ok := a.AllocSlot(1 << 20); ok {
		t.Fatal("placed into a draining slab")
	}
	passing, ok := a.AllocRun(1000) // what leaves by itself may lie there
	if !ok || passing.Slab() != 2 {
		t.Fatalf("a passing sample was placed at %v", passing)
	}
	a.Free(passing)
	a.Free(places[0])
	moved, ok := a.Relocate(places[8])
	if !ok || moved.Slab() != 1 || len(gone) != 1 {
		t.Fatalf("relocated to %v, gone %v", moved, gone)
	}
	a.Free(places[9])
	if !a.Reap() || len(gone) != 2 || gone[1] != 2 || pool.Left() != 16<<20 || len(a.Slabs()) != 1 {
		t.Fatalf("gone %v, left %d", gone, pool.Left())
	}
	fresh, err := a.Grow(8 << 20)
	if err != nil || fresh[0] != 4 { // clients may still know 2 and 3
		t.Fatalf("grew %v, %v", fresh, err)
	}
	a.Recycle(2)
	if fresh, err = a.Grow(8 << 20); err != nil || fresh[0] != 2 {
		t.Fatalf("grew %v, %v", fresh, err)
	}
	if _, err = a.Grow(8 << 20); !errors.Is(err, ErrNoBudget) {
		t.Fatalf("grew beyond the pool: %v", err)
	}
}

func TestMemoryIsBackedInTheBackground(t *testing.T) {
	a := newArena(t, Config{Bytes: 64 << 20, SlabBytes: 24 << 20})
	if err := a.WaitReady(context.Background()); err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, s := range a.live {
		total += s.faulted.Load() * SpanBytes
	}
	if total != 64<<20 || len(a.Slabs()) != 3 {
		t.Fatalf("%d bytes in %d slabs are backed", total, len(a.Slabs()))
	}
}

func TestConfigRefusals(t *testing.T) {
	pool := NewPool(8 << 20)
	for name, cfg := range map[string]Config{
		"no pool":     {Bytes: 8 << 20},
		"too small":   {Pool: pool, Bytes: 100},
		"small slabs": {Pool: pool, Bytes: 8 << 20, SlabBytes: 100},
		"over budget": {Pool: pool, Bytes: 10 << 20},
		"many slabs":  {Pool: NewPool(1 << 40), Bytes: 1 << 40, SlabBytes: SpanBytes},
	} {
		if a, err := New(cfg); err == nil {
			a.Close()
			t.Errorf("%s: made an arena", name)
		}
	}
	if pool.Left() != 8<<20 {
		t.Fatalf("refusals cost %d bytes", 8<<20-pool.Left())
	}
}
