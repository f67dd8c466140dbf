package arena

import (
	"context"
	"fmt"
	"testing"
)

// steady is an arena filled to nine tenths, with the places that fill it.
func steady(t testing.TB, size uint32) (*Arena, []Place) {
	a := newArena(t, Config{Bytes: 64 << 20, SlabBytes: 16 << 20,
		Sizes: equalSizes(size, 1<<20)})
	if err := a.WaitReady(context.Background()); err != nil {
		t.Fatal(err)
	}
	places := make([]Place, a.Shape().Fits(equalSizes(size, 1<<20), 0)/int64(size)*9/10)
	for i := range places {
		p, ok := a.AllocSlot(size)
		if !ok {
			t.Fatal("full")
		}
		places[i] = p
	}
	return a, places
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	a, places := steady(t, 3000)
	sizes := make([]uint32, 256)
	for i := range sizes {
		sizes[i] = 3000
	}
	run := make([]Place, 256)
	dst := make([]byte, 256*3072)
	i := 0
	if n := testing.AllocsPerRun(200, func() {
		for range 1000 {
			a.Free(places[i])
			places[i], _ = a.AllocSlot(3000)
			i = (i + 7919) % len(places)
		}
		for i, size := range sizes {
			run[i], _ = a.AllocRun(size)
		}
		a.Gather(dst, 3072, run)
		if p, ok := a.Copy(run[0]); ok {
			a.Free(p)
		}
		for _, p := range run {
			a.Free(p)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkSlot(b *testing.B) {
	for _, size := range []uint32{64, 3000, 110000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			a, places := steady(b, size)
			i := 0
			for b.Loop() { // one free and one allocation
				a.Free(places[i])
				places[i], _ = a.AllocSlot(size)
				if i += 7919; i >= len(places) {
					i %= len(places)
				}
			}
		})
	}
}

func BenchmarkRun(b *testing.B) {
	a, _ := steady(b, 3000)
	sizes := make([]uint32, 256)
	for i := range sizes {
		sizes[i] = 3000
	}
	places := make([]Place, 256)
	for b.Loop() {
		for i, size := range sizes {
			places[i], _ = a.AllocRun(size)
		}
		for _, p := range places {
			a.Free(p)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/call")
}

func BenchmarkGather(b *testing.B) {
	a, kept := steady(b, 3000)
	dst := make([]byte, 256*3072)
	i := 0
	b.SetBytes(256 * 3000)
	for b.Loop() {
		a.Gather(dst, 3072, kept[i:i+256])
		if i += 256; i+256 > len(kept) {
			i = 0
		}
	}
}
