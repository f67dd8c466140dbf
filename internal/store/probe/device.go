package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/perf"
	"belady/internal/store/vfs"
)

const (
	probeName  = "belady.probe"
	probeBytes = 256 << 20 // what is read and written all over; less where there is less room
	probeLeast = 8 << 20
	probeFill  = 3 * time.Second // in which so much of it is written as the device takes
	probeSpan  = 250 * time.Millisecond
	probeBlock = 1 << 20 // of the large reads and writes
)

// Rates measures what the device of a directory gives: random reads of these sizes, 32 at a time,
// large reads, and large reads and writes half and half. It takes less than a second for each
// size and removes the file that it makes.
func Rates(files vfs.FS, sizes []int) (rates perf.Rates, err error) {
	err = probed(context.Background(), files, probeSpan, func(p *prober) {
		for _, size := range slices.Sorted(slices.Values(sizes)) {
			rates.Random = append(rates.Random,
				perf.Point{Size: uint32(size), BytesPerS: p.random(perf.Deep, int64(size))})
		}
		rates.Read = p.measure(8, 0, probeBlock)
		rates.Mixed = p.measure(8, 8, probeBlock)
	})
	return rates, err
}

// What Device measures.
var (
	measureSizes  = []int64{4 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20}
	measureReads  = []int{1, 2, 4, 8, 16}
	measureWrites = []int{1, 4, 8}
)

// DeviceSteps is how often Device calls step.
func DeviceSteps() int {
	return 2*len(measureSizes) + len(measureReads) + len(measureWrites) + 2
}

// Device measures all that a profile says of a directory's device, for so long each: reads and
// writes of large blocks by threads, random reads by size, 32 at a time and one, and both at once.
// Before that it writes for up to three seconds what is then read, and it removes it in the end,
// also when it is told to stop.
func Device(
	ctx context.Context, files vfs.FS, span time.Duration, step func(),
) (d perf.Disk, err error) {
	space, err := files.Space()
	if err != nil {
		return d, err
	}
	d.Capacity = space.Total
	err = probed(ctx, files, span, func(p *prober) {
		step()
		for _, size := range measureSizes {
			d.Random = append(d.Random, perf.Step{At: size, Rate: p.random(perf.Deep, size)})
			step()
			d.Alone = append(d.Alone, perf.Step{At: size, Rate: p.random(1, size)})
			step()
		}
		for _, threads := range measureReads {
			d.Read = append(d.Read,
				perf.Step{At: int64(threads), Rate: p.measure(threads, 0, probeBlock)})
			step()
		}
		for _, threads := range measureWrites {
			d.Write = append(d.Write,
				perf.Step{At: int64(threads), Rate: p.measure(0, threads, probeBlock)})
			step()
		}
		d.Mixed = p.measure(8, 8, probeBlock)
		step()
	})
	return d, err
}

// probed lets measure work with a file that it makes and removes.
func probed(
	ctx context.Context, files vfs.FS, span time.Duration, measure func(*prober),
) (err error) {
	space, err := files.Space()
	if err != nil {
		return err
	}
	p := &prober{ctx: ctx, span: span, bytes: min(probeBytes, space.Free/4) / probeBlock * probeBlock}
	if p.bytes < probeLeast {
		return fmt.Errorf("measure the device: %d bytes are free, too few", space.Free)
	}
	_ = files.Remove(probeName) // of a daemon that was killed while it measured
	p.file, err = files.Open(probeName, vfs.How{Create: true, Write: true, Direct: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.file.Close(), files.Remove(probeName)) }()
	if err := p.fill(); err != nil {
		return err
	}
	measure(p)
	return p.failed()
}

// prober measures one file.
type prober struct {
	ctx   context.Context
	file  vfs.File
	span  time.Duration
	bytes int64

	mu  sync.Mutex
	err error
}

func (p *prober) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = fmt.Errorf("measure the device: %w", err)
	}
}

func (p *prober) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return p.ctx.Err()
	}
	return p.err
}

// fill writes the file with bytes that no device shortens: all of it, or what there is time for.
func (p *prober) fill() error {
	if err := p.file.Allocate(p.bytes); err != nil {
		return err
	}
	buf := vfs.Aligned(4 * probeBlock)
	defer vfs.Free(buf)
	r := rand.NewChaCha8([32]byte{1})
	began := time.Now()
	for at := int64(0); at < p.bytes; {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if at >= probeLeast && time.Since(began) > probeFill {
			p.bytes = at
			break
		}
		piece := buf[:min(int64(len(buf)), p.bytes-at)]
		_, _ = r.Read(piece) // never fails
		if _, err := p.file.WriteAt(piece, at); err != nil {
			return err
		}
		at += int64(len(piece))
	}
	return p.file.Sync()
}

// random is the bytes a second of random reads of that size, so many at once.
func (p *prober) random(depth int, size int64) int64 {
	blocks := (size + vfs.Block - 1) / vfs.Block * vfs.Block
	return p.measure(depth, 0, min(blocks, p.bytes)) / blocks * size
}

// measure lets so many readers and writers go at random places for a while, and returns the bytes
// a second of all of them. Writers keep step with readers, so that it is half and half.
func (p *prober) measure(readers, writers int, block int64) int64 {
	var read, written atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range readers + writers {
		writes := i >= readers
		all.Go(func() {
			buf := vfs.Aligned(int(block))
			defer vfs.Free(buf)
			r := rand.New(rand.NewPCG(uint64(i), uint64(block)))
			mine, other := &read, &written
			if writes {
				mine, other = other, mine
			}
			for p.failed() == nil && time.Since(began) < p.span {
				if readers > 0 && writers > 0 && mine.Load() > other.Load()+8*block {
					time.Sleep(50 * time.Microsecond)
					continue
				}
				at := r.Int64N((p.bytes-block)/vfs.Block+1) * vfs.Block
				_, err := p.transfer(writes, buf, at)
				if err != nil {
					p.fail(err)
				}
				mine.Add(block)
			}
		})
	}
	all.Wait()
	return int64(float64(read.Load()+written.Load()) / time.Since(began).Seconds())
}

func (p *prober) transfer(writes bool, buf []byte, at int64) (int, error) {
	if writes {
		return p.file.WriteAt(buf, at)
	}
	return p.file.ReadAt(buf, at)
}
