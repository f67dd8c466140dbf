package torch

import (
	"fmt"
	"math"
	"sort"

	"belady/internal/core/sample"
)

// MaxCategories is the most weights torch.multinomial accepts.
const MaxCategories = 1 << 24

// Randperm fills dst with torch.randperm(len(dst), generator=g).
func Randperm(g *Generator, r Rules, dst []sample.ID) {
	if uint64(len(dst)) >= r.PermWideFrom {
		for i := range dst {
			z := g.Uint64() % uint64(i+1)
			dst[i] = dst[z]
			dst[z] = sample.ID(i)
		}
		return
	}
	for i := range dst {
		dst[i] = sample.ID(i)
	}
	// Words are drawn and reduced a block ahead of the swaps: the swap loop is then nothing but
	// loads and stores whose addresses are known early, so that its cache misses overlap.
	var block [512]uint32
	for i, swaps := 0, len(dst)-1; i < swaps; i += len(block) {
		z := block[:min(len(block), swaps-i)]
		g.Fill(z)
		rest := uint32(len(dst) - i)
		for k := range z {
			z[k] %= rest
			rest--
		}
		tail := dst[i:]
		for k, off := range z {
			j := k + int(off)
			tail[k], tail[j] = tail[j], tail[k]
		}
	}
}

// PermWords is how many words Randperm of n draws.
func PermWords(r Rules, n int) uint64 {
	if uint64(n) >= r.PermWideFrom {
		return 2 * uint64(n)
	}
	return uint64(max(n-1, 0))
}

// Randint fills dst with torch.randint(high=n, size=(len(dst),), generator=g).
func Randint(g *Generator, r Rules, n int, dst []sample.ID) {
	if uint64(n) >= r.IntWideFrom {
		for i := range dst {
			dst[i] = sample.ID(g.Uint64() % uint64(n))
		}
		return
	}
	for i := range dst {
		dst[i] = sample.ID(g.Uint32() % uint32(n))
	}
}

// IntWords is how many words Randint of count values below n draws.
func IntWords(r Rules, n, count int) uint64 {
	if uint64(n) >= r.IntWideFrom {
		return 2 * uint64(count)
	}
	return uint64(count)
}

// A Cumulative is a weight vector made ready for Multinomial.
type Cumulative []float64

// Accumulate checks weights as torch.multinomial does and sums them in double, one after the
// other: any other order of summing rounds differently and shifts samples.
func Accumulate(weights []float64) (Cumulative, error) {
	if len(weights) == 0 || len(weights) > MaxCategories {
		return nil, fmt.Errorf("%d weights: torch.multinomial takes 1 to %d",
			len(weights), MaxCategories)
	}
	cum := make(Cumulative, len(weights))
	sum := 0.0
	for i, w := range weights {
		if !(w >= 0) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("weight %d is %v: weights must be finite and not negative", i, w)
		}
		sum += w
		cum[i] = sum
	}
	if !(sum > 0) || math.IsInf(sum, 1) {
		return nil, fmt.Errorf("weights sum to %v: the sum must be positive and finite", sum)
	}
	for i := range cum {
		cum[i] /= sum
	}
	cum[len(cum)-1] = 1
	return cum, nil
}

// Multinomial fills dst with torch.multinomial(weights, len(dst), replacement=True, generator=g).
// PyTorch takes another path for a single draw, so len(dst) must be above 1.
func Multinomial(g *Generator, cum Cumulative, dst []sample.ID) {
	for i := range dst {
		dst[i] = sample.ID(sort.SearchFloat64s(cum, g.Float64()))
	}
}

// MultinomialWords is how many words Multinomial of count values draws.
func MultinomialWords(count int) uint64 { return 2 * uint64(count) }
