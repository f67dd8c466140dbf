// Package probe measures what a node's memory and its origins give, for a profile: what a source
// gives is asked of the source itself, within bounds, and nothing is left behind.
//
// Disks are measured by the tier that uses them.
package probe

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/perf"
)

const (
	ramBytes = 256 << 20 // more than the processor's own caches hold
	ramPiece = 128 << 10 // a sample
)

// ramThreads are how many read and write memory at once: 1, 2, 4 and so on to all processors.
func ramThreads() (all []int) {
	for n := 1; n < runtime.GOMAXPROCS(0); n *= 2 {
		all = append(all, n)
	}
	return append(all, runtime.GOMAXPROCS(0))
}

// RamSteps is how often Ram calls step.
func RamSteps() int { return 2 * len(ramThreads()) }

// Ram measures memory: copies of samples out of a stretch of it and into it, for so long each.
func Ram(ctx context.Context, span time.Duration, step func()) (read, write perf.Curve, err error) {
	memory := make([]byte, ramBytes)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1 // so that it is there
	}
	for _, into := range []bool{false, true} {
		for _, threads := range ramThreads() {
			rate := copies(ctx, memory, threads, into, span)
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			step()
			s := perf.Step{At: int64(threads), Rate: rate}
			if into {
				write = append(write, s)
			} else {
				read = append(read, s)
			}
		}
	}
	return read, write, nil
}

// copies is the bytes a second that so many threads copy, each its own part of the memory.
func copies(ctx context.Context, memory []byte, threads int, into bool, span time.Duration) int64 {
	var bytes atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range threads {
		own := memory[i*len(memory)/threads : (i+1)*len(memory)/threads]
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			buf := make([]byte, ramPiece)
			for ctx.Err() == nil && time.Since(began) < span {
				at := r.IntN(len(own) - ramPiece + 1)
				if into {
					copy(own[at:at+ramPiece], buf)
				} else {
					copy(buf, own[at:at+ramPiece])
				}
				bytes.Add(ramPiece)
			}
		})
	}
	all.Wait()
	return int64(float64(bytes.Load()) / time.Since(began).Seconds())
}
