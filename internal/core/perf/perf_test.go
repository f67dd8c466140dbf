package perf_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/perf"
)

var disk = perf.Rates{Mixed: 2600e6, Read: 4000e6, Random: []perf.Point{{4 << 10, 270e6},
	{16 << 10, 1000e6}, {100 << 10, 2900e6}, {1 << 20, 4000e6}}}

func TestChoose(t *testing.T) {
	able := perf.Choice{MeanSize: 3000, Kept: 40e9, Wear: 1e12, Memory: 4e9, Known: true}
	for _, c := range []struct {
		name   string
		change func(c *perf.Choice)
		want   perf.Layout
		why    string
	}{
		{"small samples", func(*perf.Choice) {}, perf.Carry,
			"random reads of 3000 bytes give 270 MB/s, carrying gives 1300 MB/s"},
		{"large samples", func(c *perf.Choice) { c.MeanSize = 110_000 }, perf.Static,
			"give 2908 MB/s, carrying would give 1300 MB/s"},
		{"a slow job", func(c *perf.Choice) { c.Demand = 200e6 }, perf.Static,
			"the job takes 200 MB/s"},
		{"a job that is hardly slower", func(c *perf.Choice) { c.Demand = 220e6 }, perf.Carry, ""},
		{"an unknown order", func(c *perf.Choice) { c.Known = false }, perf.Static,
			"order known two epochs ahead"},
		{"worn", func(c *perf.Choice) { c.Wear = 159e9 }, perf.Static, "159000 MB may be written"},
		{"little memory", func(c *perf.Choice) { c.Memory = 300e6 }, perf.Static,
			"carrying takes 409 MB of memory"},
	} {
		choice := able
		c.change(&choice)
		got, why := perf.Choose(disk, choice)
		if got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s, because %s", c.name, got, why)
		}
	}
	if got, why := perf.Choose(perf.Rates{}, able); got != perf.Static {
		t.Errorf("nothing measured: %s, because %s", got, why)
	}
}

// Law: between two measured sizes the rate lies between theirs, and it is theirs at them.
func TestRandomAt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := uint32(rapid.IntRange(0, 2<<20).Draw(rt, "size"))
		got := disk.RandomAt(size)
		low, high := disk.Random[0].BytesPerS, disk.Random[len(disk.Random)-1].BytesPerS
		for _, p := range disk.Random {
			if p.Size <= size {
				low = p.BytesPerS
			} else {
				high = min(high, p.BytesPerS)
			}
		}
		if size < disk.Random[0].Size {
			high = low
		}
		if got < low || got > high {
			rt.Fatalf("%d bytes: %d, want %d to %d", size, got, low, high)
		}
	})
	for _, p := range disk.Random {
		if got := disk.RandomAt(p.Size); got != p.BytesPerS {
			t.Errorf("%d bytes: %d, measured were %d", p.Size, got, p.BytesPerS)
		}
	}
}

// Devices measured at different sizes give together what each gives at every one of them.
func TestTogether(t *testing.T) {
	other := perf.Rates{Mixed: 400e6, Read: 1000e6, Random: []perf.Point{{4 << 10, 30e6},
		{64 << 10, 500e6}}}
	sum := perf.Together([]perf.Rates{disk, other})
	if sum.Mixed != 3000e6 || sum.Read != 5000e6 || len(sum.Random) != 5 {
		t.Fatalf("%+v", sum)
	}
	for _, size := range []uint32{1, 4 << 10, 10_000, 64 << 10, 1 << 20, 4 << 20} {
		want := disk.RandomAt(size) + other.RandomAt(size)
		if got := sum.RandomAt(size); got < want-2 || got > want+2 {
			t.Errorf("%d bytes: %d, want %d", size, got, want)
		}
	}
	if none := perf.Together(nil); none.Random != nil || none.Mixed != 0 {
		t.Errorf("no devices give %+v", none)
	}
}
