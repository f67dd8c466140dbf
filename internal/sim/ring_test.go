package sim_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"belady/internal/sim"
)

// A lost node's samples spread as they would over points at random places, and equal seeds give
// equal results.
func TestRingSpreadsLikeAPerfectHash(t *testing.T) {
	for _, points := range []int{10, 100, 1000} {
		trial := sim.RingTrial{Nodes: 256, Points: points, Samples: 131_072, Trials: 200, Seed: 3}
		got, err := trial.Run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := trial.Run(t.Context(), nil); err != nil || again != got {
			t.Errorf("%d points: %+v, then %+v (%v)", points, got, again, err)
		}
		if ratio := got.Receivers.Mean / got.Perfect; math.Abs(ratio-1) > 0.05 {
			t.Errorf("%d points: %.1f receivers, %.1f expected", points, got.Receivers.Mean,
				got.Perfect)
		}
		if got.Load.Mean != 512 || got.Most < 1 || got.MostAfter < got.Most*0.99 {
			t.Errorf("%d points: load %+v, most %.3f, after a loss %.3f", points, got.Load, got.Most,
				got.MostAfter)
		}
	}
}

func TestRingTrialEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trial := sim.RingTrial{Nodes: 4, Points: 10, Samples: 100, Trials: 1000}
	if _, err := trial.Run(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	trial.Nodes = 1
	if _, err := trial.Run(t.Context(), nil); err == nil {
		t.Error("a ring of one node is tried")
	}
}
