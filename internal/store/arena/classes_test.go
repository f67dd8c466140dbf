package arena

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

type mix struct {
	name  string
	bound float64 // of waste, as a share of what the slots take
	arena int64   // from this size on
	equal bool
	draw  func(*rand.Rand) uint32
}

// mixes are the size mixes whose waste the design bounds: 2 % at 110 KB, 6 % at 3 KB.
func mixes() []mix {
	var all []mix
	for _, m := range []struct {
		name  string
		size  float64
		bound float64
	}{
		{"110000", 110000, 0.02}, {"112640", 112640, 0.02}, {"114000", 114000, 0.02},
		{"3000", 3000, 0.06}, {"3072", 3072, 0.06},
	} {
		all = append(all, mix{m.name, m.bound, 256 << 20, true,
			func(*rand.Rand) uint32 { return uint32(m.size) }})
		if m.name != "110000" && m.name != "3000" {
			continue
		}
		all = append(all,
			mix{m.name + "±20%", m.bound, 4 << 30, false, func(r *rand.Rand) uint32 {
				return uint32(m.size * (0.8 + 0.4*r.Float64()))
			}},
			mix{m.name + " lognormal 0.5", m.bound, 16 << 30, false, func(r *rand.Rand) uint32 {
				return uint32(m.size * math.Exp(0.5*r.NormFloat64()-0.125))
			}})
	}
	return all
}

// waste is the share of a kept set's cost that is not samples.
func waste(classes []Class, sizes []uint32) float64 {
	var bytes, cost float64
	for _, s := range sizes {
		for _, c := range classes {
			if s <= c.Size {
				bytes += float64(s)
				cost += float64(c.cost())
				break
			}
		}
	}
	return 1 - bytes/cost
}

func TestWasteIsBounded(t *testing.T) {
	const count = 200_000
	for _, m := range mixes() {
		rng := rand.New(rand.NewPCG(1, 2))
		sizes := make([]uint32, count)
		for i := range sizes {
			sizes[i] = m.draw(rng)
		}
		h := Measure(count, func(i int) uint32 { return sizes[i] })
		// As if the dataset were the size of a node's memory and more.
		for i := range h {
			h[i].Count *= 100
			h[i].Bytes *= 100
		}
		for _, arena := range []int64{8 << 20, 256 << 20, 4 << 30, 16 << 30, 64 << 30} {
			classes := Classes(h, arena)
			got := waste(classes, sizes)
			var regions int64
			for _, c := range classes {
				regions += int64(c.Spans) * SpanBytes
			}
			t.Logf("%-22s arena %6d MiB: %3d classes, waste %5.2f %%, partly filled %5.2f %%",
				m.name, arena>>20, len(classes), 100*got, 100*float64(regions)/float64(arena))
			if m.equal && len(classes) != 1 {
				t.Errorf("%s: %d classes for equal sizes", m.name, len(classes))
			}
			if arena >= m.arena && got > m.bound {
				t.Errorf("%s: waste %.2f %%", m.name, 100*got)
			}
			if len(classes) > 1 && regions > arena/4 {
				t.Errorf("%s: %d of %d bytes partly filled", m.name, regions, arena)
			}
		}
	}
}

func TestClassesCoverEverySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Uint32Range(0, 3<<20), 1, 300).Draw(t, "sizes")
		arena := rapid.Int64Range(SpanBytes, 1<<36).Draw(t, "arena")
		classes := Classes(Measure(len(sizes), func(i int) uint32 { return sizes[i] }), arena)
		if len(classes) > maxClasses {
			t.Fatalf("%d classes", len(classes))
		}
		var last uint32
		for _, c := range classes {
			if c.Size%Align != 0 || c.Size <= last || c.Size > SpanBytes || c.slots(c.Spans) == 0 {
				t.Fatalf("bad class %+v after %d", c, last)
			}
			last = c.Size
		}
		for _, s := range sizes {
			if s <= SpanBytes && s > last {
				t.Fatalf("no class for %d", s)
			}
		}
	})
}

func TestMeasureCountsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.Uint32()).Draw(t, "sizes")
		h := Measure(len(sizes), func(i int) uint32 { return sizes[i] })
		var count, bytes, want uint64
		for i, b := range h {
			count += b.Count
			bytes += b.Bytes
			if b.Bytes > b.Count*uint64(b.Max) || i > 0 && h[i-1].Max >= b.Max {
				t.Fatalf("bin %d of %v", i, h)
			}
		}
		for _, s := range sizes {
			want += uint64(s)
		}
		if count != uint64(len(sizes)) || bytes != want {
			t.Fatalf("%d samples, %d bytes, want %d and %d", count, bytes, len(sizes), want)
		}
	})
}
