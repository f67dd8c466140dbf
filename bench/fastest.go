package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/perf"
	"belady/internal/core/sample"
	"belady/internal/store/origin"
	"belady/internal/store/origin/synth"
	"belady/internal/store/origin/throttle"
	"belady/internal/store/probe"
	"belady/internal/store/vfs"
)

// duel is one cell: an ssd and an origin that both have a sample.
type duel struct {
	size    int64
	threads int64 // that read the ssd
	readers int64 // of the origin
	rate    int64
	latency time.Duration
}

func (d duel) String() string {
	return fmt.Sprintf("%d bytes: ssd with %d threads, origin of %d MB/s and %v with %d readers",
		d.size, d.threads, d.rate/1e6, d.latency, d.readers)
}

// drawDuel takes sizes and readers evenly by their logarithms, and an origin that takes an eighth to
// eight times as long as the disk should: others would not be worth asking about.
func drawDuel(r *rand.Rand, p *perf.Profile) duel {
	between := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	d := duel{size: int64(between(4<<10, 1<<20)), threads: int64(between(1, 33)),
		readers: int64(between(1, 65))}
	p.Disks[0].Threads = d.threads
	took := float64(p.Cost(perf.Own, 1, d.size, 1)) * between(1.0/8, 8)
	d.rate = int64(float64(d.size*d.readers) / took * 1e9)
	if took > 4e6 { // what is shorter the throttle does not time
		d.latency = time.Duration(took / 2).Round(time.Microsecond)
	}
	return d
}

// duelBar is how much slower than the other source the chosen one may be: two that are nearly equal
// may be taken for each other, and what is measured in a quarter of a second is not exact.
const duelBar = 1.25

// fastest: a profile is measured as bench tiers does it; then both sources are timed at sizes and
// with readers that it has no points of, and the source that perf chooses should be the faster.
func (s *suite) fastest() (*table, error) {
	dir := filepath.Join(s.work, "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	files, err := vfs.Dir(dir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	disk, err := probe.Device(s.ctx, files, 250*time.Millisecond, func() {})
	if err != nil {
		return nil, err
	}
	file, err := duelFile(files)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t := newTable()
	t.header[1], t.header[2] = "chosen", "the faster"
	cells := 24
	if s.quick {
		cells = 6
	}
	r := rand.New(rand.NewPCG(uint64(s.seed), 3))
	ssd := 0
	for range cells {
		d := drawDuel(r, &perf.Profile{Disks: []perf.Disk{disk}})
		chosen, times, err := s.duel(d, disk, file)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", d, err)
		}
		better := perf.Own
		if times[perf.FromOrigin] < times[perf.Own] {
			better = perf.FromOrigin
		}
		if better == perf.Own {
			ssd++
		}
		of := func(from perf.Source) string {
			return fmt.Sprintf("%v, %v", from, times[from].Round(time.Microsecond))
		}
		t.bar(d.String(), of(chosen), of(better), float64(times[chosen])/float64(times[better]),
			duelBar, false)
		s.say("%v: chosen %s, the faster %s", d, of(chosen), of(better))
	}
	t.note("Times are of one sample for one thread, measured after the choice was made. The ssd was "+
		"the faster in %d of %d cells.", ssd, cells)
	return t, nil
}

// duel chooses by a profile, and then times both.
func (s *suite) duel(
	d duel, disk perf.Disk, file vfs.File,
) (chosen perf.Source, times map[perf.Source]time.Duration, err error) {
	config := throttle.Config{RateBytes: d.rate, Latency: d.latency}
	known, m, err := duelOrigin(s.ctx, 110_000, config)
	if err != nil {
		return 0, nil, err
	}
	defer known.Close()
	p := perf.Profile{Disks: []perf.Disk{disk}}
	p.Disks[0].Threads = d.threads
	p.Origin, _, err = probe.Origin(s.ctx, known, m, probe.Limits{Span: 300 * time.Millisecond,
		Bytes: 512e6, Readers: []int{1, 4, 16, 64}}, func() {})
	if err != nil {
		return 0, nil, err
	}
	chosen, _ = p.Fastest(d.size, d.readers, []bool{false, true}, nil)
	times = map[perf.Source]time.Duration{}
	if times[perf.Own], err = diskTime(file, d.threads, d.size); err != nil {
		return 0, nil, err
	}
	o, m, err := duelOrigin(s.ctx, d.size, config)
	if err != nil {
		return 0, nil, err
	}
	defer o.Close()
	times[perf.FromOrigin], err = timed(d.readers, func(r *rand.Rand) func() error {
		buf := make([]byte, d.size)
		var parts []dataset.Part
		return func() error {
			parts = m.Parts(sample.ID(r.IntN(m.Len())), parts[:0])
			return o.Read(s.ctx, parts[0], buf)
		}
	})
	return chosen, times, err
}

// duelOrigin computes samples of one size, as fast as the throttle lets it.
func duelOrigin(
	ctx context.Context, size int64, c throttle.Config,
) (origin.Origin, *dataset.Manifest, error) {
	inner, err := synth.New(synth.Config{Name: "d", Samples: 20_000, SizeBytes: size, Classes: 1})
	if err != nil {
		return nil, nil, err
	}
	var all []dataset.Object
	err = inner.List(ctx, func(some []dataset.Object) error {
		all = append(all, some...)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	data, err := dataset.Build(all, dataset.Options{})
	if err != nil {
		return nil, nil, err
	}
	m, err := dataset.Open(data)
	if err != nil {
		return nil, nil, err
	}
	o, err := throttle.New(inner, c)
	return o, m, err
}

// duelBytes is the size of the file that is read.
const duelBytes = 256 << 20

// duelFile writes it.
func duelFile(files vfs.FS) (vfs.File, error) {
	f, err := files.Open("duel", vfs.How{Create: true, Write: true, Direct: true})
	if err != nil {
		return nil, err
	}
	buf := vfs.Aligned(1 << 20)
	defer vfs.Free(buf)
	noise := rand.NewChaCha8([32]byte{3})
	for at := int64(0); at < duelBytes; at += int64(len(buf)) {
		_, _ = noise.Read(buf) // never fails
		if _, err := f.WriteAt(buf, at); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if err := f.Sync(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// diskTime is what a sample at random takes one of so many threads.
func diskTime(f vfs.File, threads, size int64) (time.Duration, error) {
	blocks := (size + vfs.Block - 1) / vfs.Block * vfs.Block
	return timed(threads, func(r *rand.Rand) func() error {
		own := vfs.Aligned(int(blocks))
		return func() error {
			_, err := f.ReadAt(own, r.Int64N((duelBytes-blocks)/vfs.Block+1)*vfs.Block)
			return err
		}
	})
}

// timed lets so many read for a while, and returns what one read took one of them.
func timed(threads int64, reader func(*rand.Rand) func() error) (time.Duration, error) {
	const span = 600 * time.Millisecond
	var reads, took atomic.Int64
	var failed atomic.Value
	var all sync.WaitGroup
	began := time.Now()
	for i := range threads {
		read := reader(rand.New(rand.NewPCG(uint64(i), 4)))
		all.Go(func() {
			for failed.Load() == nil && time.Since(began) < span {
				begun := time.Now()
				if err := read(); err != nil {
					failed.Store(err)
					return
				}
				reads.Add(1)
				took.Add(int64(time.Since(begun)))
			}
		})
	}
	all.Wait()
	if err, bad := failed.Load().(error); bad {
		return 0, err
	}
	return time.Duration(took.Load() / reads.Load()), nil
}
