package arena

import (
	"math"
	"math/rand/v2"
	"testing"
)

// packable are sizes as datasets have them.
var packable = []struct {
	name string
	size func(r *rand.Rand) uint32
	// least is the share of 256 MiB that must be kept; larger arenas keep more.
	least float64
}{
	{"110 KB", func(*rand.Rand) uint32 { return 110_000 }, 0.98},
	{"112640", func(*rand.Rand) uint32 { return 112_640 }, 0.98},
	{"110 KB ±20 %", func(r *rand.Rand) uint32 { return uint32(88_000 + r.IntN(44_000)) }, 0.98},
	{"110 KB lognormal", func(r *rand.Rand) uint32 {
		return uint32(97_000 * math.Exp(r.NormFloat64()/2))
	}, 0.98},
	{"3 KB", func(*rand.Rand) uint32 { return 3000 }, 0.98},
	{"3 KB ±20 %", func(r *rand.Rand) uint32 { return uint32(2400 + r.IntN(1200)) }, 0.98},
	{"3 KB lognormal", func(r *rand.Rand) uint32 {
		return uint32(2650 * math.Exp(r.NormFloat64()/2))
	}, 0.98},
	{"1 MB ±20 %", func(r *rand.Rand) uint32 { return uint32(800_000 + r.IntN(400_000)) }, 0.94},
}

// What Fits promises of a packed arena is kept for samples in any order, and is nearly all there
// is, whatever the spread of sizes.
func TestPackedFits(t *testing.T) {
	for _, m := range packable {
		for _, mib := range []int64{64, 256} {
			r := rand.New(rand.NewPCG(1, uint64(mib)))
			bytes := mib << 20
			aside := bytes / 8
			sizes := make([]uint32, 3*bytes/int64(m.size(r)))
			for i := range sizes {
				sizes[i] = m.size(r)
			}
			h := Measure(len(sizes), func(i int) uint32 { return sizes[i] })
			a, err := New(Config{Pool: NewPool(bytes), Bytes: bytes, Sizes: h, Packed: true})
			if err != nil {
				t.Fatal(err)
			}
			promised := a.Shape().Fits(h, aside)
			kept := int64(0)
			for _, size := range sizes {
				if kept+int64(size) > promised {
					break
				}
				if _, ok := a.AllocKept(size); !ok {
					t.Fatalf("%s in %d MiB: full at %d of %d promised", m.name, mib, kept, promised)
				}
				kept += int64(size)
			}
			open := int64(a.packs.spans) * SpanBytes // part of it may be the promised's
			if free := int64(a.Usage().SpansFree) * SpanBytes; free < aside-open {
				t.Errorf("%s in %d MiB: %d bytes are left of %d aside", m.name, mib, free, aside)
			}
			share := float64(promised) / float64(bytes-aside)
			t.Logf("%s in %d MiB: %.4f kept, regions of %d spans", m.name, mib, share, a.packs.spans)
			if mib >= 256 && share < m.least {
				t.Errorf("%s in %d MiB: only %.4f of the room is kept", m.name, mib, share)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Holes that evictions leave in packed regions are won back by moving the rest.
func TestPackedHolesAreWonBack(t *testing.T) {
	const bytes = 64 << 20
	h := Measure(1000, func(int) uint32 { return 50_000 })
	a, err := New(Config{Pool: NewPool(bytes), Bytes: bytes, Sizes: h, Packed: true})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var places []Place
	for a.Usage().SpansFree > 4 { // room to move to, as staging has
		p, ok := a.AllocKept(50_000)
		if !ok {
			t.Fatal("full")
		}
		places = append(places, p)
	}
	var kept []Place
	for i, p := range places {
		if i%2 == 0 {
			a.Free(p)
		} else {
			kept = append(kept, p)
		}
	}
	// Two-fingered: the samples of the last regions fill up the first.
	regions := map[uint32][]int{}
	var order []uint32
	for i, p := range kept {
		id := a.RegionOf(p)
		if regions[id] == nil {
			order = append(order, id)
		}
		regions[id] = append(regions[id], i)
	}
	for len(order) > 1 {
		last := order[len(order)-1]
		order = order[:len(order)-1]
		for _, i := range regions[last] {
			for a.Room() < 50_048 && len(order) > 0 {
				there := regions[order[0]]
				order = order[1:]
				ps := make([]Place, len(there))
				for j, k := range there {
					ps[j] = kept[k]
				}
				if !a.Slide(ps, func(int) bool { return false }, 50_000) {
					t.Fatal("cannot slide what nobody reads")
				}
				for j, k := range there {
					kept[k] = ps[j]
				}
			}
			if q, ok := a.Relocate(kept[i]); ok {
				kept[i] = q
			}
		}
	}
	if used := a.Usage(); used.SpansFree < 10 {
		t.Errorf("half of the samples are gone, but only %d spans are free", used.SpansFree)
	}
	for _, p := range kept {
		a.Free(p)
	}
	if used := a.Usage(); used.Slots != 0 || used.SpansFree != bytes/SpanBytes {
		t.Errorf("after freeing all: %+v", used)
	}
}
