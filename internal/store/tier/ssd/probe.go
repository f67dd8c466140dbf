package ssd

import (
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
	probeSpan  = 250 * time.Millisecond
	probeDepth = 32
	probeBlock = 1 << 20 // of the large reads and writes
)

// Probe measures what the device of a directory gives: random reads of these sizes, 32 at a time,
// large reads, and large reads and writes half and half. It takes less than a second for each
// size and removes the file that it makes.
func Probe(files vfs.FS, sizes []int) (rates perf.Rates, err error) {
	space, err := files.Space()
	if err != nil {
		return rates, err
	}
	p := prober{bytes: min(probeBytes, space.Free/4) / probeBlock * probeBlock}
	if p.bytes < 8*probeBlock {
		return rates, fmt.Errorf("measure the device: %d bytes are free, too few", space.Free)
	}
	_ = files.Remove(probeName) // of a daemon that was killed while it measured
	p.file, err = files.Open(probeName, vfs.How{Create: true, Write: true, Direct: true})
	if err != nil {
		return rates, err
	}
	defer func() { err = errors.Join(err, p.file.Close(), files.Remove(probeName)) }()
	if err := p.fill(); err != nil {
		return rates, err
	}
	for _, size := range slices.Sorted(slices.Values(sizes)) {
		blocks := (int64(size) + vfs.Block - 1) / vfs.Block * vfs.Block
		given := p.measure(probeDepth, 0, min(blocks, p.bytes))
		rates.Random = append(rates.Random, perf.Point{Size: uint32(size),
			BytesPerS: given / blocks * int64(size)})
	}
	rates.Read = p.measure(8, 0, probeBlock)
	rates.Mixed = p.measure(8, 8, probeBlock)
	return rates, p.failed()
}

// prober measures one file.
type prober struct {
	file  vfs.File
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
	return p.err
}

// fill writes all of the file with bytes that no device shortens.
func (p *prober) fill() error {
	if err := p.file.Allocate(p.bytes); err != nil {
		return err
	}
	buf := vfs.Aligned(4 * probeBlock)
	defer vfs.Free(buf)
	r := rand.NewChaCha8([32]byte{1})
	for at := int64(0); at < p.bytes; {
		piece := buf[:min(int64(len(buf)), p.bytes-at)]
		_, _ = r.Read(piece) // never fails
		if _, err := p.file.WriteAt(piece, at); err != nil {
			return err
		}
		at += int64(len(piece))
	}
	return p.file.Sync()
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
			for p.failed() == nil && time.Since(began) < probeSpan {
				if writers > 0 && mine.Load() > other.Load()+8*block {
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

// Rates returns what the directories together were measured to give, measured anew once a day.
func (d *Disks) Rates() (perf.Rates, error) {
	sum := perf.Rates{}
	for _, one := range d.dirs {
		rates, ok := one.memo.rates(d.now())
		if !ok {
			var err error
			if rates, err = Probe(one.fs, []int{4 << 10, 16 << 10, 100 << 10, 1 << 20}); err != nil {
				return perf.Rates{}, fmt.Errorf("%s: %w", one.path, err)
			}
			one.memo.measured(rates, d.now())
			one.memo.save(one.fs)
		}
		sum.Mixed += rates.Mixed
		sum.Read += rates.Read
		if sum.Random == nil {
			sum.Random = make([]perf.Point, len(rates.Random))
		}
		for i, point := range rates.Random {
			sum.Random[i].Size = point.Size
			sum.Random[i].BytesPerS += point.BytesPerS
		}
	}
	return sum, nil
}
