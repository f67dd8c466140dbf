// Package perf says what sources of samples give, from figures that were measured: what a sample
// costs from each, which is the fastest, what bounds an epoch, and how a log should lie.
//
// It measures nothing, and equal figures give equal choices on every machine.
package perf

import (
	"fmt"
	"slices"
)

// Layout is how a log places records.
type Layout string

// The layouts to choose from.
const (
	Static Layout = "static" // written once, each sample read by itself
	Carry  Layout = "carry"  // copied, as it is read, to where the next epoch reads in sequence
)

// Point is a rate measured at a size.
type Point struct {
	Size      uint32 `json:"size"`
	BytesPerS int64  `json:"bytes_per_s"`
}

// Rates is what a device gives, in bytes a second.
type Rates struct {
	Random []Point `json:"random"` // random reads with a deep queue, by rising size
	Mixed  int64   `json:"mixed"`  // large reads and writes, half and half, both together
	Read   int64   `json:"read"`   // large reads alone
}

// RandomAt is the rate of random reads of that size, between the measured ones in proportion, and
// beyond them as at the nearest.
func (r *Rates) RandomAt(size uint32) int64 {
	bySize := make(Curve, len(r.Random))
	for i, p := range r.Random {
		bySize[i] = Step{At: int64(p.Size), Rate: p.BytesPerS}
	}
	return bySize.Rate(int64(size))
}

// Together is what several devices give that are used at once: the sum, at each size that one of
// them was measured at.
func Together(all []Rates) (sum Rates) {
	var sizes []uint32
	for _, r := range all {
		sum.Mixed += r.Mixed
		sum.Read += r.Read
		for _, p := range r.Random {
			sizes = append(sizes, p.Size)
		}
	}
	slices.Sort(sizes)
	for _, size := range slices.Compact(sizes) {
		point := Point{Size: size}
		for i := range all {
			point.BytesPerS += all[i].RandomAt(size)
		}
		sum.Random = append(sum.Random, point)
	}
	return sum
}

// Choice is what a layout is chosen for.
type Choice struct {
	MeanSize uint32 // of the dataset's samples
	Kept     int64  // bytes of samples in the log
	Demand   int64  // bytes a second that the job takes; 0: not known
	Wear     int64  // bytes that may still be written today
	Memory   int64  // bytes that the log may have for its buffers
	Known    bool   // one job, whose order is known two epochs ahead
}

// bucketMemory is what carrying that many bytes takes at the least, with the smallest slots of
// docs/format/log.md: four buffers of √(kept · 256 KiB).
func bucketMemory(kept int64) int64 { return 4 * 512 * root(kept) }

// root is the integer square root.
func root(n int64) int64 {
	if n < 2 {
		return max(n, 0)
	}
	x := n
	for y := (x + 1) / 2; y < x; y = (x + n/x) / 2 {
		x = y
	}
	return x
}

// carryLeast is how many epochs a day's bytes must be enough for: carried once, a log gives one
// fast epoch for all that was written.
const carryLeast = 4

// Choose picks the layout that reads faster, and says why. Static wears nothing, so it is taken
// where it is fast enough, and where carrying cannot be.
func Choose(r Rates, c Choice) (Layout, string) {
	random, mixed := r.RandomAt(c.MeanSize), r.Mixed/2
	given := fmt.Sprintf("random reads of %d bytes give %s", c.MeanSize, rate(random))
	switch {
	case random == 0:
		return Static, "the device's rates are not known"
	case random >= mixed:
		return Static, fmt.Sprintf("%s, carrying would give %s", given, rate(mixed))
	case c.Demand > 0 && random/5 >= c.Demand/4:
		return Static, fmt.Sprintf("%s, the job takes %s", given, rate(c.Demand))
	case !c.Known:
		return Static, given + ", but only one job with an order known two epochs ahead can be " +
			"carried along"
	case c.Wear < carryLeast*c.Kept:
		return Static, fmt.Sprintf("%s, but carrying writes %d MB an epoch and %d MB may be written "+
			"today", given, c.Kept/1e6, max(c.Wear, 0)/1e6)
	case c.Memory < bucketMemory(c.Kept):
		return Static, fmt.Sprintf("%s, but carrying takes %d MB of memory and there are %d MB",
			given, bucketMemory(c.Kept)/1e6, c.Memory/1e6)
	}
	return Carry, fmt.Sprintf("%s, carrying gives %s", given, rate(mixed))
}

func rate(bytesPerS int64) string { return fmt.Sprintf("%d MB/s", bytesPerS/1e6) }
