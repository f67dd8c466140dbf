package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"belady/internal/core/ring"
)

// RingTrial asks what happens to the samples of a node that dies, as FT-Cache's Fig. 6(b) does: of
// so many nodes one at random is lost, Trials times, each time from the whole ring.
type RingTrial struct {
	Nodes, Points, Samples, Trials int
	Seed                           uint64
}

// RingResult is what the trials saw.
type RingResult struct {
	Points int
	// Receivers is how many nodes take a lost node's samples over, PerReceiver how many samples
	// each takes; Perfect is how many receivers points at random places would give.
	Receivers, PerReceiver Spread
	Perfect                float64
	// Load is the samples a node owns while all live; Most is the largest share ÷ the mean, and
	// MostAfter the same once a node is lost, on average.
	Load            Spread
	Most, MostAfter float64
}

// Spread is a mean and its standard deviation.
type Spread struct{ Mean, Deviation float64 }

// sums collects a Spread.
type sums struct{ n, sum, squares float64 }

func (s *sums) add(v float64) { s.n++; s.sum += v; s.squares += v * v }

func (s *sums) spread() Spread {
	mean := s.sum / max(s.n, 1)
	return Spread{mean, math.Sqrt(max(0, s.squares/max(s.n, 1)-mean*mean))}
}

var errNoTrial = errors.New("a ring's trial needs two nodes, one sample and one trial at least")

// Run plays the trials; progress, if given, is told after each.
func (t RingTrial) Run(ctx context.Context, progress func(done int)) (RingResult, error) {
	if t.Nodes < 2 || t.Samples < 1 || t.Trials < 1 {
		return RingResult{}, errNoTrial
	}
	names := make([]string, t.Nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node%d", i)
	}
	r, err := ring.New(names, t.Points)
	if err != nil {
		return RingResult{}, err
	}
	owned := make([][]uint64, t.Nodes)
	for i := range t.Samples {
		hash := ring.Hash(fmt.Sprintf("sample-%07d", i))
		owner := r.Owner(hash)
		owned[owner] = append(owned[owner], hash)
	}
	var load, receivers, each, mostAfter sums
	most := 0
	for _, keys := range owned {
		load.add(float64(len(keys)))
		most = max(most, len(keys))
	}
	draw := rand.New(rand.NewPCG(t.Seed, uint64(t.Points)))
	for trial := range t.Trials {
		if err := ctx.Err(); err != nil {
			return RingResult{}, err
		}
		lost := draw.IntN(t.Nodes)
		taken := t.lose(r, owned[lost], lost)
		receivers.add(float64(len(taken)))
		worst := 0
		for node, keys := range owned {
			if node != lost {
				worst = max(worst, len(keys)+taken[node])
			}
		}
		for _, n := range taken {
			each.add(float64(n))
		}
		mostAfter.add(float64(worst) * float64(t.Nodes-1) / float64(t.Samples))
		if progress != nil {
			progress(trial + 1)
		}
	}
	return RingResult{Points: t.Points, Receivers: receivers.spread(), PerReceiver: each.spread(),
		Perfect: t.perfect(), Load: load.spread(), MostAfter: mostAfter.spread().Mean,
		Most: float64(most) * float64(t.Nodes) / float64(t.Samples)}, nil
}

// lose counts how many of the lost node's samples each other node takes.
func (t RingTrial) lose(r *ring.Ring, keys []uint64, lost int) map[int]int {
	taken := map[int]int{}
	for _, hash := range keys {
		taken[r.OwnerWithout(hash, func(node int) bool { return node == lost })]++
	}
	return taken
}

// perfect is the expected number of receivers where points and samples lie at random: a point's
// arc holds no sample with probability 1/(1+m), m the mean number in one, and each arc that holds
// some goes to any other node alike.
func (t RingTrial) perfect() float64 {
	m := float64(t.Samples) / float64(t.Nodes) / float64(t.Points)
	arcs := float64(t.Points) * m / (1 + m)
	others := float64(t.Nodes - 1)
	return others * (1 - math.Pow(1-1/others, arcs))
}
