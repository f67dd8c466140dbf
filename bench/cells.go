package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const (
	inside = 256 // requests the throttled origin takes at once

	// What of ram − staging must hold kept samples, at least.
	overheadLarge, overheadSmall = 0.98, 0.94
)

// cell is one point of the roofline's matrix.
type cell struct {
	name    string
	size    int64 // of a sample
	spread  float64
	rate    int64 // bytes a second
	latency time.Duration
	kept    float64 // share of the dataset
	ratio   float64 // compute to origin time
	batch   int
	staging int64
	seconds float64 // an epoch is to take at least
}

// cells are those of the demands, then ten of the seed; a few of each in quick runs.
func (s *suite) cells() []cell {
	const large, small = 110_000, 3000
	ms := time.Millisecond
	seconds := 8.0
	kepts, ratios, random := []float64{0.25, 0.5, 0.75}, []float64{0.5, 0.9, 1.1, 2}, 10
	if s.quick {
		seconds = 2
		if s.only == "" {
			kepts, ratios, random = []float64{0.5}, []float64{0.5, 1.1}, 2
		}
	}
	var all []cell
	add := func(size, rate int64, latency time.Duration, kept, ratio float64) {
		c := cell{size: size, rate: rate, latency: latency, kept: kept, ratio: ratio, batch: 64,
			staging: 64 << 20, seconds: seconds, spread: 0.2}
		switch {
		case size == small:
			c.batch, c.staging = 256, 32<<20
		case latency > 50*ms: // 20 MB are in flight beside four batches of 7 MB that wait
			c.staging = 128 << 20
		case kept == 0:
			c.batch = 32
		}
		all = append(all, c.named(""))
	}
	for _, kept := range kepts {
		for _, ratio := range ratios {
			add(large, 200e6, 20*ms, kept, ratio)
		}
	}
	add(large, 200e6, 20*ms, 0, 0.5)
	add(large, 200e6, 20*ms, 1, 1)
	add(small, 60e6, 0, 0.5, 0.5)
	add(small, 60e6, 100*ms, 0.5, 0.5)
	add(large, 200e6, 100*ms, 0.5, 0.5)
	draw := rand.New(rand.NewPCG(uint64(s.seed), 0))
	for range random {
		all = append(all, randomCell(draw, seconds))
	}
	return all
}

// randomCell keeps to what two cores can serve and ten minutes can hold: at most 20 k requests a
// second and a first epoch of 40 s.
func randomCell(draw *rand.Rand, seconds float64) cell {
	c := cell{size: int64(3000 * math.Pow(100, draw.Float64())), spread: 0.3 * draw.Float64(),
		rate: int64(50e6 + 250e6*draw.Float64()), kept: 0.1 + 0.65*draw.Float64(),
		latency: time.Duration(draw.IntN(101)) * time.Millisecond,
		ratio:   0.3 * math.Pow(10, draw.Float64()), seconds: seconds}
	c.rate = min(c.rate, 20_000*c.size)
	c.batch = 16 << draw.IntN(5)
	for c.batch > 16 && int64(c.batch)*c.size > 8e6 {
		c.batch /= 2
	}
	// Room for eight batches, and twice for all that is in flight.
	c.staging = max(32<<20, 8*int64(c.batch)*c.size, 2*int64(float64(c.rate)*c.latency.Seconds()))
	c.staging = (c.staging + 1<<20 - 1) >> 20 << 20
	return c.named("drawn: ")
}

func (c cell) named(prefix string) cell {
	c.name = fmt.Sprintf("%s%.3g KB, %.3g MB/s, %d ms, kept %.0f %%, compute %.2f", prefix,
		float64(c.size)/1e3, float64(c.rate)/1e6, c.latency.Milliseconds(), 100*c.kept, c.ratio)
	if prefix != "" {
		c.name += fmt.Sprintf(", ± %.0f %%, batch %d", 100*c.spread, c.batch)
	}
	return c
}

// originSeconds is the least time the throttled origin takes.
func (c cell) originSeconds(bytes, requests float64) float64 {
	return max(bytes/float64(c.rate), requests*c.latency.Seconds()/inside)
}

// missTime is how long the origin works in an epoch: so long that the epoch takes c.seconds.
func (c cell) missTime() float64 { return c.seconds / max(1, c.ratio) }

// samples makes the misses take missTime.
func (c cell) samples() int {
	each := c.originSeconds(float64(c.size), 1)
	missed := 1 - c.kept
	if missed <= 0 {
		missed = 1 // nothing is missed: the first epoch takes as long as the computing
	}
	return int(c.missTime()/each/missed) + 1
}

func (c cell) url(counts string) string {
	return fmt.Sprintf("throttle+synth://data?samples=%d&size=%d&spread=%g&throttle.rate=%d"+
		"&throttle.latency=%s&throttle.concurrency=%d&throttle.counts=%s", c.samples(), c.size,
		c.spread, c.rate, c.latency, inside, counts)
}

func (c cell) overhead() float64 {
	if c.size >= 64_000 {
		return overheadLarge
	}
	return overheadSmall
}

// ram is what keeps the share of the dataset if the arena wastes as much as it may, in whole
// 16 MiB as people write it; staging alone where nothing is to be kept.
func (c cell) ram(bytes int64) int64 {
	room := int64(c.kept * float64(bytes) / c.overhead())
	if c.kept == 1 {
		room += room / 100
	}
	const round = 16 << 20
	return c.staging + (room+round-1)/round*round
}

// keep is K of the roofline: the bytes that memory of this size must keep.
func (c cell) keep(bytes int64) float64 {
	return c.overhead() * float64(c.ram(bytes)-c.staging)
}

// compute is the emulated computing of one batch.
func (c cell) compute(samples int) time.Duration {
	batches := (samples + c.batch - 1) / c.batch
	return time.Duration(c.ratio * c.missTime() / float64(batches) * 1e9)
}

// limit ends a cell that hangs.
func (c cell) limit() time.Duration {
	first := c.originSeconds(float64(c.size), 1) * float64(c.samples())
	longest := max(first, c.seconds) + float64(epochsRead-1)*c.seconds
	return time.Duration(5*longest)*time.Second + time.Minute
}
