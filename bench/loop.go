package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/node/wire"
)

// reading is a training loop: take a batch, touch it, compute, release.
type reading struct {
	socket, dataset string
	epochs, batch   int
	seed            int64
	samples         int           // of the dataset: every epoch must bring each once
	compute         time.Duration // of a batch, touching included
	noTouch         bool
	// steady makes up for a late wake-up in the next batch: computing takes compute on average.
	steady bool
	late   time.Duration // by which the last batch was
	// ended, if given, is called after every epoch's last release; the loop waits for it.
	ended func(e *epoch) error
}

// mostLate is how much lateness is made up for: enough for timers, too little to hide a busy
// machine.
const mostLate = 5 * time.Millisecond

// epoch is what the loop saw of one epoch.
type epoch struct {
	index      int
	begun, end time.Time // first request, last release
	compute    time.Duration
	samples    int64
	bytes      int64
	firstBatch int64 // bytes of the first batch
	stall      map[string]time.Duration
}

func (e *epoch) seconds() float64 { return e.end.Sub(e.begun).Seconds() }

// errEnough ends a reading early, from ended.
var errEnough = errors.New("enough")

// run reads all epochs. The first one's time includes attaching.
func (r *reading) run(ctx context.Context) (epochs []epoch, err error) {
	begun := time.Now()
	c, err := client.Dial(ctx, client.Config{Socket: r.socket, Name: "bench"})
	if err != nil {
		return nil, err
	}
	s, err := c.Open(ctx, wire.Attach{Job: "bench", Epochs: r.epochs,
		Datasets: []wire.Dataset{{Name: r.dataset}},
		Order:    order.Spec{Kind: order.Distributed, Seed: r.seed, Batch: r.batch}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var sum uint64
	var before client.Stats
	for index := range r.epochs {
		e := epoch{index: index, begun: time.Now()}
		if index == 0 {
			e.begun = begun
		}
		if err := r.epoch(ctx, s, &e, &sum); err != nil {
			return epochs, err
		}
		now := s.Stats()
		e.stall = stalls(&before, &now)
		before = now
		epochs = append(epochs, e)
		if r.ended == nil {
			continue
		}
		if err := r.ended(&e); errors.Is(err, errEnough) {
			return epochs, nil
		} else if err != nil {
			return epochs, err
		}
	}
	if sum == 1 {
		return nil, errors.New("unreachable in practice: it keeps the touching from being removed")
	}
	if _, err := s.Next(ctx); err != io.EOF {
		return epochs, fmt.Errorf("after the last epoch there came %v, not the end", err)
	}
	return epochs, nil
}

func (r *reading) epoch(ctx context.Context, s *client.Session, e *epoch, sum *uint64) error {
	seen := make([]uint64, (r.samples+63)/64)
	for last := false; !last; {
		b, err := s.Next(ctx)
		if err != nil {
			return fmt.Errorf("epoch %d after %d samples: %w", e.index, e.samples, err)
		}
		from := time.Now()
		for i := range b.Len() {
			if id := b.ID(i); r.samples > 0 {
				seen[id/64] |= 1 << (id % 64)
			}
			if !r.noTouch {
				*sum += client.Touch(b.Bytes(i))
			}
		}
		if e.samples == 0 {
			e.firstBatch = b.Size()
		}
		e.samples += int64(b.Len())
		e.bytes += b.Size()
		last = b.Last
		if rest := r.compute - r.late - time.Since(from); rest > 0 {
			time.Sleep(rest)
		}
		took := time.Since(from)
		e.compute += took
		if r.steady {
			r.late = max(0, min(took-(r.compute-r.late), mostLate))
		}
		b.Release()
	}
	e.end = time.Now()
	if r.samples > 0 && (e.samples != int64(r.samples) || ones(seen) != r.samples) {
		return fmt.Errorf("epoch %d brought %d samples, %d of them different, of %d: "+
			"the figures are void", e.index, e.samples, ones(seen), r.samples)
	}
	return nil
}

func ones(bits []uint64) (n int) {
	for _, w := range bits {
		for ; w != 0; w &= w - 1 {
			n++
		}
	}
	return n
}

// stalls is the waiting between two moments, by cause.
func stalls(before, now *client.Stats) map[string]time.Duration {
	all := map[string]time.Duration{"first batch": now.First - before.First,
		"reconnecting": now.Away - before.Away}
	for cause := range now.Stall {
		all[wire.Cause(cause).String()] = now.Stall[cause] - before.Stall[cause]
	}
	return all
}
