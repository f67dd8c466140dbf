package order

import (
	"fmt"

	"belady/internal/core/sample"
)

// permuted is an epoch's permutation P, kept for the ranks that ask for the same epoch next.
type permuted struct {
	spec  Spec
	fill  filler
	perm  []sample.ID
	epoch int
}

func makePermuted(s Spec) (permuted, error) {
	fill, err := makeFiller(s)
	return permuted{spec: s, fill: fill, epoch: -1}, err
}

func (p *permuted) permutation(epoch int) []sample.ID {
	if p.epoch != epoch {
		p.perm = resize(p.perm, p.spec.Length())
		p.fill(epoch, p.perm)
		p.epoch = epoch
	}
	return p.perm
}

// among is what all ways of dealing P to ranks have in common: what is asked for must exist, and a
// world of one reads P as it is. deal gives the rank its share of perm from c on.
func (p *permuted) among(epoch, rank int, from int64, dst []sample.ID,
	deal func(perm []sample.ID, c int) Epoch) (Epoch, error) {
	if err := checkPlace(&p.spec, epoch, rank); err != nil {
		return Epoch{}, err
	}
	if from < 0 || from > int64(p.spec.Length()) {
		return Epoch{}, fmt.Errorf("order %s: position %d is not in an epoch of %d entries",
			p.spec.Kind, from, p.spec.Length())
	}
	if p.spec.Ranks() == 1 {
		return p.rest(epoch, int(from), p.spec.Batch, dst), nil
	}
	return deal(p.permutation(epoch), int(from)), nil
}

// rest gives rank the whole of P from c on: what a world of one reads. No copy of P is kept.
func (p *permuted) rest(epoch, c, batch int, dst []sample.ID) Epoch {
	n := p.spec.Length()
	dst = resize(dst, n)
	p.fill(epoch, dst)
	take := p.left(c)
	copy(dst, dst[c:c+take])
	return Epoch{IDs: dst[:take], Batch: batch}
}

// left counts what rest gives.
func (p *permuted) left(c int) int {
	take := p.spec.Length() - c
	if p.spec.DropLast {
		take -= take % p.spec.Batch
	}
	return take
}

// strided deals P as DistributedSampler does: entry i to rank i mod W.
type strided struct{ permuted }

func makeStrided(s Spec) (Order, error) {
	p, err := makePermuted(s)
	return &strided{p}, err
}

func (o *strided) Epoch(epoch, rank int, from int64, dst []sample.ID) (Epoch, error) {
	n, world := o.spec.Length(), o.spec.Ranks()
	return o.among(epoch, rank, from, dst, func(perm []sample.ID, c int) Epoch {
		dst := resize(dst, o.take(c))
		at, padding := c+rank, 0
		for i := range dst {
			if at < n {
				dst[i] = perm[at]
			} else {
				dst[i] = perm[at%n]
				padding++
			}
			at += world
		}
		return Epoch{IDs: dst, Batch: o.spec.Batch, Padding: padding}
	})
}

// take counts a rank's entries from c on.
func (o *strided) take(c int) int {
	s := &o.spec
	n, world := s.Length(), s.Ranks()
	if world == 1 {
		return o.left(c)
	}
	take := (n - c) / world
	if !s.SamplerDropLast && (n-c)%world != 0 {
		take++
	}
	if s.DropLast {
		take -= take % s.Batch
	}
	return take
}

// Batches implements Order.
func (o *strided) Batches(_ int, from int64) int {
	return batchesOf(o.take(int(from)), o.spec.Batch)
}

// dealt deals P as Accelerate's BatchSamplerShard does: b entries to each rank in turn, where b
// is the batch size, or with split_batches the batch size over W. Both of its modes, and its
// looping back to the epoch's first samples, come down to that. It leaves the loader of a single
// process alone: there nothing is padded.
type dealt struct{ permuted }

func makeDealt(s Spec) (Order, error) {
	p, err := makePermuted(s)
	return &dealt{p}, err
}

func (o *dealt) Epoch(epoch, rank int, from int64, dst []sample.ID) (Epoch, error) {
	n, world := o.spec.Length(), o.spec.Ranks()
	return o.among(epoch, rank, from, dst, func(perm []sample.ID, c int) Epoch {
		take, b := o.take(rank, c)
		dst, padding := resize(dst, take), 0
		for lo := 0; lo < take; lo += b {
			batch := dst[lo:min(lo+b, take)]
			at := c + lo*world + rank*b
			padding += len(batch) - min(max(n-at, 0), len(batch))
			for len(batch) > 0 {
				copied := copy(batch, perm[at%n:])
				batch, at = batch[copied:], at+copied
			}
		}
		return Epoch{IDs: dst, Batch: b, Padding: padding}
	})
}

// take counts a rank's entries from c on, and those of one of its batches.
func (o *dealt) take(rank, c int) (take, b int) {
	s := &o.spec
	n, world := s.Length(), s.Ranks()
	if world == 1 {
		return o.left(c), s.Batch
	}
	b = s.Batch
	if s.SplitBatches {
		b /= world
	}
	round := b * world
	take, left := (n-c)/round*b, (n-c)%round
	switch {
	case s.DropLast || left == 0:
	case s.UnevenBatches:
		take += min(max(left-rank*b, 0), b)
	default:
		take += b
	}
	return take, b
}

// Batches implements Order.
func (o *dealt) Batches(rank int, from int64) int { return batchesOf(o.take(rank, int(from))) }
