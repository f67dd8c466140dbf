package order

import (
	"fmt"

	"belady/internal/core/order/torch"
	"belady/internal/core/sample"
)

// chain is a generator that lives across epochs. Where each epoch starts in its stream is
// arithmetic, so any epoch is reached by skipping words, and the next one by not skipping at all.
type chain struct {
	start, at torch.Generator
	pos       uint64 // words drawn from start to reach at
	perEpoch  uint64 // words the sampler draws in one epoch
	seeds     func(epoch int) uint64
}

// epoch moves the stream to where the sampler starts drawing in that epoch. The caller draws
// at most perEpoch words from the result, and epoch must be called before drawing again.
func (c *chain) epoch(epoch int) *torch.Generator {
	word := uint64(epoch)*c.perEpoch + torch.SeedWords*c.seeds(epoch)
	if word < c.pos {
		c.at, c.pos = c.start, 0
	}
	c.at.Skip(word - c.pos)
	c.pos = word
	return &c.at
}

// seedsBefore counts the base_seeds drawn from the sampler's generator before it draws in an
// epoch. PyTorch's loader draws its base_seed first and StatefulDataLoader's afterwards.
func seedsBefore(s Spec) func(epoch int) uint64 {
	return func(epoch int) uint64 {
		if !s.LoaderGenerator {
			return 0
		}
		drawn := epoch
		if s.Kind != Torchdata {
			drawn++
		}
		if s.PersistentWorkers {
			drawn = min(drawn, 1)
		}
		return uint64(drawn)
	}
}

func makeChained(s Spec, rules torch.Rules) (filler, error) {
	c := &chain{seeds: seedsBefore(s)}
	if s.State != nil {
		g, err := torch.Restore(s.State)
		if err != nil {
			return nil, err
		}
		c.start = g
	} else {
		c.start = torch.Seeded(s.Seed)
	}
	c.at = c.start

	n, k := s.Samples, s.Length()
	switch s.Kind {
	case Replacement:
		c.perEpoch = torch.IntWords(rules, n, k)
		return c.filler(func(g *torch.Generator, dst []sample.ID) {
			torch.Randint(g, rules, n, dst)
		}, c.perEpoch), nil
	case Weighted:
		if s.Weights == nil {
			return nil, fmt.Errorf("there are no weights: give one a sample")
		}
		cum, err := torch.Accumulate(s.Weights)
		if err != nil {
			return nil, err
		}
		c.perEpoch = torch.MultinomialWords(k)
		return c.filler(func(g *torch.Generator, dst []sample.ID) {
			torch.Multinomial(g, cum, dst)
		}, c.perEpoch), nil
	}
	perm := torch.PermWords(rules, n)
	c.perEpoch = perm
	if s.Kind == Random {
		// RandomSampler always draws one permutation more than it needs, and yields the first
		// num_samples % n entries of it: none at all in the usual case.
		c.perEpoch = perm * uint64(k/n+1)
	}
	drawn := perm * uint64((k+n-1)/n)
	return c.filler(func(g *torch.Generator, dst []sample.ID) {
		permute(g, rules, n, dst)
	}, drawn), nil
}

// filler wraps draw, which takes drawn words from the stream every time.
func (c *chain) filler(draw func(*torch.Generator, []sample.ID), drawn uint64) filler {
	return func(epoch int, dst []sample.ID) {
		draw(c.epoch(epoch), dst)
		c.pos += drawn
	}
}

// permute fills dst with permutations of n one after the other, the last one cut short.
func permute(g *torch.Generator, rules torch.Rules, n int, dst []sample.ID) {
	for len(dst) >= n {
		torch.Randperm(g, rules, dst[:n])
		dst = dst[n:]
	}
	if len(dst) > 0 {
		whole := make([]sample.ID, n)
		torch.Randperm(g, rules, whole)
		copy(dst, whole)
	}
}
