package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/perf"
	"belady/internal/core/sample"
	"belady/internal/store/origin"
)

// Limits bound what is asked of an origin.
type Limits struct {
	Span    time.Duration // of each step; one that is slow to answer may take twice as long
	Bytes   int64         // of all steps together
	Readers []int         // how many read at once in each step, rising
}

// Steps is how often Origin calls step at most.
func (l Limits) Steps() int { return 1 + len(l.Readers) }

// Samples are what a dataset says of where its samples lie.
type Samples interface {
	Len() int
	Parts(id sample.ID, dst []dataset.Part) []dataset.Part
}

const (
	latencyReads = 9         // one byte each
	largestPiece = 4 << 20   // that is read of one part
	buffers      = 256 << 20 // of all readers together
)

// Origin measures what an origin gives by how many read at once. It reads real samples, none twice,
// within the limits, and asks for no more at once where more does not bring more. An origin that
// asks to slow down is left alone at once; the note says so.
func Origin(
	ctx context.Context, o origin.Origin, s Samples, l Limits, step func(),
) (given perf.Origin, note string, err error) {
	p := &asker{origin: o, samples: s, span: l.Span, bytes: l.Bytes}
	if p.left = s.Len(); p.left == 0 {
		return given, "", errors.New("measure the origin: the dataset has no samples")
	}
	p.at = rand.IntN(p.left)
	for p.stride = rand.IntN(p.left) + 1; common(p.stride, p.left) != 1; p.stride++ {
	}
	if given.Latency, err = p.latency(ctx); err != nil {
		return given, "", fmt.Errorf("measure the origin: %w", err)
	}
	step()
	for i, readers := range l.Readers {
		rate, err := p.step(ctx, readers, len(l.Readers)-i)
		switch {
		case errors.Is(err, errNoMore) && len(given.Readers) == 0:
			return given, "the dataset has too few samples to measure its origin by", nil
		case errors.Is(err, errNoMore):
			return given, fmt.Sprintf("the dataset has too few samples to read more than %d at once",
				given.Readers.Most()), nil
		case errors.Is(err, origin.ErrSlowDown) && len(given.Readers) > 0:
			return given, fmt.Sprintf("the origin asked to slow down with %d readers, and was left alone",
				readers), nil
		case err != nil:
			return given, "", fmt.Errorf("measure the origin with %d at once: %w", readers, err)
		}
		step()
		before := given.Readers.Best(given.Readers.Most())
		given.Readers = append(given.Readers, perf.Step{At: int64(readers), Rate: rate})
		given.Size = p.sum / max(p.reads, 1)
		if rate/21 < before/20 {
			break // more at once would only burden it
		}
	}
	return given, "", nil
}

// common is the greatest common divisor.
func common(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// errNoMore ends a step for which no samples are left.
var errNoMore = errors.New("no samples are left")

// asker reads samples in an order that meets each once.
type asker struct {
	origin  origin.Origin
	samples Samples
	span    time.Duration
	stride  int

	mu     sync.Mutex
	at     int            // guarded by mu, as all below
	left   int            // samples
	bytes  int64          // that may still be read
	parts  []dataset.Part // of the last sample, not taken yet
	sum    int64          // bytes read
	reads  int64
	failed int64
	err    error // that ends the step
}

// take returns the next piece to read, if samples and bytes down to these are left.
func (p *asker) take(most int64, samples int, bytes int64) (dataset.Part, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.bytes > bytes {
		if len(p.parts) == 0 {
			if p.left <= samples {
				break
			}
			p.parts = p.samples.Parts(sample.ID(p.at), p.parts[:0])
			p.at = (p.at + p.stride) % p.samples.Len()
			p.left--
			continue
		}
		part := p.parts[0]
		p.parts = p.parts[1:]
		if part.Size == 0 {
			continue
		}
		if size := uint32(min(int64(part.Size), most, p.bytes)); size < part.Size {
			part.Size, part.Whole = size, false
		}
		p.bytes -= int64(part.Size)
		return part, true
	}
	return dataset.Part{}, false
}

// latency is the median time of reading one byte, in ns.
func (p *asker) latency(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*p.span)
	defer cancel()
	var all []int64
	var one [1]byte
	began := time.Now()
	for len(all) < latencyReads && (len(all) == 0 || time.Since(began) < p.span) {
		part, ok := p.take(1, 0, 0)
		if !ok {
			break
		}
		begun := time.Now()
		if err := p.origin.Read(ctx, part, one[:]); err != nil {
			if ctx.Err() == context.DeadlineExceeded && len(all) > 0 {
				break
			}
			return 0, err
		}
		all = append(all, int64(time.Since(begun)))
	}
	if len(all) == 0 {
		return 0, errors.New("all samples of the dataset are empty")
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// step lets so many read for a while and returns the bytes a second of all of them. It takes its
// share of what is left, steps being those that are to come, itself included.
func (p *asker) step(ctx context.Context, readers, steps int) (int64, error) {
	if p.left/steps < readers || p.bytes <= 0 {
		return 0, errNoMore
	}
	inner, cancel := context.WithTimeout(ctx, 2*p.span)
	defer cancel()
	samples, bytes := p.left-p.left/steps, p.bytes-p.bytes/int64(steps)
	before := p.sum
	most := min(largestPiece, buffers/int64(readers))
	var all sync.WaitGroup
	began := time.Now()
	for range readers {
		all.Go(func() {
			var buf []byte
			for time.Since(began) < p.span {
				part, ok := p.take(most, samples, bytes)
				if !ok {
					return
				}
				buf = slices.Grow(buf[:0], int(part.Size))[:part.Size]
				p.done(inner, int64(part.Size), p.origin.Read(inner, part, buf))
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case p.err != nil:
		return 0, p.err
	case p.sum == before:
		return 0, fmt.Errorf("nothing was read in %v: see whether the origin is up", took)
	}
	return int64(float64(p.sum-before) / took.Seconds()), nil
}

// done counts one read, and ends the step if it says that others would go wrong too.
func (p *asker) done(ctx context.Context, size int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.sum += size
		p.reads++
		return
	case ctx.Err() != nil: // the step's time is over
		return
	}
	p.failed++
	passing := errors.Is(err, origin.ErrUnavailable) && !errors.Is(err, origin.ErrSlowDown)
	if p.err == nil && (!passing || p.failed > 10+p.reads/10) {
		p.err = err
	}
}
