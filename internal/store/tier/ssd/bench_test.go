package ssd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/tier"
	"belady/internal/store/tier/tiertest"
	"belady/internal/store/vfs"
)

// equal is a dataset of samples of one size.
type equal struct {
	n    int
	size uint32
}

func (e equal) Len() int              { return e.n }
func (e equal) Size(sample.ID) uint32 { return e.size }

func (e equal) config() tier.Config {
	return tier.Config{Content: [32]byte{1}, Name: "bench", Sizes: e, Layout: tier.Static}
}

// filled opens a log with all samples in it.
func (e equal) filled(b *testing.B, d *Disks) tier.Log {
	b.Helper()
	l := tiertest.Open(b, d, e.config())
	bytes := make([]byte, e.size)
	tiertest.Fill(1, bytes)
	for id := range sample.ID(e.n) {
		for l.Append(0, id, bytes) != nil {
			runtime.Gosched()
		}
	}
	return l
}

func closed2(b *testing.B, l tier.Log, d *Disks) {
	b.Helper()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpen opens a log of 14.2 million samples, after a Close.
func BenchmarkOpen(b *testing.B) {
	e := equal{14_200_000, 64}
	files := folderFS(b)
	d := open(b, 0, files)
	closed2(b, e.filled(b, d), d)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		d := open(b, 0, files)
		l := tiertest.Open(b, d, e.config())
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if l.Usage().Samples != int64(e.n) {
			b.Fatalf("%d samples", l.Usage().Samples)
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(e.n), "B/sample")
		closed2(b, l, d)
		b.StartTimer()
	}
}

// BenchmarkAppend copies samples into the log as fast as the device takes them.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []uint32{3000, 110_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e := equal{1 << 30 / int(size), size}
			b.SetBytes(int64(e.n) * int64(size))
			for b.Loop() {
				d := open(b, 0, folderFS(b))
				closed2(b, e.filled(b, d), d)
			}
		})
	}
}

// BenchmarkRead reads samples at random, 32 at a time.
func BenchmarkRead(b *testing.B) {
	for _, size := range []uint32{3000, 20_000, 110_000, 2_800_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e := equal{2 << 30 / int(size), size}
			d := open(b, 0, folderFS(b))
			l := e.filled(b, d)
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			l = tiertest.Open(b, d, e.config())
			b.SetBytes(int64(size))
			b.ResetTimer()
			var all sync.WaitGroup
			for g := range 32 {
				all.Go(func() { readSome(b, l, e, uint64(g), b.N/32+1) })
			}
			all.Wait()
			b.StopTimer()
			closed2(b, l, d)
		})
	}
}

func readSome(b *testing.B, l tier.Log, e equal, seed uint64, n int) {
	buf := vfs.Aligned(int(e.size)/vfs.Block*vfs.Block + vfs.Block)
	defer vfs.Free(buf)
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		reads := []tier.Read{{ID: sample.ID(r.IntN(e.n)), Dst: buf[:e.size]}}
		if l.Read(0, reads); reads[0].Err != nil {
			b.Error(reads[0].Err)
			return
		}
	}
}

// BenchmarkCarry reads epochs of 3 KB samples in their order, 16 a call by 32 readers, and carries
// each to the next epoch.
func BenchmarkCarry(b *testing.B) {
	j := job{make(tiertest.Sizes, 400_000), 5}
	for i := range j.sizes {
		j.sizes[i] = 3000
	}
	d := open(b, 0, folderFS(b))
	config := j.sizes.Config(1)
	config.Layout = tier.Carry
	l := tiertest.Open(b, d, config).(*log)
	d.dirs[0].wear = 1 << 50
	j.follow(b, l, 1)
	bytes := j.sizes.Bytes(0)
	for _, id := range j.epoch(0) {
		for l.Append(0, sample.ID(id), bytes) != nil {
			time.Sleep(time.Millisecond)
		}
	}
	e := 0
	b.SetBytes(int64(len(j.sizes)) * 3000)
	for b.Loop() {
		e++
		b.StopTimer()
		j.follow(b, l, e+1)
		ids := j.epoch(e)
		b.StartTimer()
		carryEpoch(b, l, e, ids)
		b.ReportMetric(float64(l.counts.bucketed.Swap(0))/float64(len(ids)), "bucketed")
		b.ReportMetric(float64(l.Usage().Disk)/float64(len(ids))/3000, "disk/dataset")
		b.ReportMetric(float64(l.counts.refused.Swap(0))/float64(len(ids)), "refused")
	}
	closed2(b, l, d)
}

func carryEpoch(b *testing.B, l *log, e int, ids []int) {
	var next atomic.Int64
	var readers sync.WaitGroup
	for range 32 {
		readers.Go(func() {
			const n = 16
			buf := make([]byte, n*3000)
			for {
				from := int(next.Add(n)) - n
				if from >= len(ids) {
					return
				}
				reads := make([]tier.Read, 0, n)
				for i, id := range ids[from:min(from+n, len(ids))] {
					reads = append(reads, tier.Read{ID: sample.ID(id), Dst: buf[i*3000:][:3000]})
				}
				l.Read(int32(e), reads)
				for _, r := range reads {
					for r.Err == nil && errors.Is(l.Append(int32(e), r.ID, r.Dst), tier.ErrBusy) {
						time.Sleep(time.Millisecond)
					}
				}
			}
		})
	}
	readers.Wait()
}
