package perf_test

import (
	"math"
	"testing"

	"belady/internal/core/perf"
)

// The published example: 4 nodes, 1000 epochs, 10,000 samples, a tenth more than the mean of 250.
func TestAbove(t *testing.T) {
	for _, c := range []struct {
		samples, nodes, epochs, least int
		want                          float64
	}{
		{10_000, 4, 1000, 275, 322.94},
		{16, 2, 4, 1, 11}, // all but the (1+4)/16 that are read never or once
		{16, 2, 4, 4, 0},
		{7, 1, 90, 89, 7},
		{7, 1, 90, 90, 0},
	} {
		got, err := perf.Above(c.samples, c.nodes, c.epochs, c.least)
		if err != nil || math.Abs(got-c.want) > 0.005 {
			t.Errorf("%+v: %.3f, %v", c, got, err)
		}
	}
	for _, c := range [][4]int{{-1, 4, 10, 2}, {10, 0, 10, 2}, {10, 4, 0, 2}, {10, 4, 10, -1}} {
		if _, err := perf.Above(c[0], c[1], c[2], c[3]); err == nil {
			t.Errorf("Above%v answers", c)
		}
	}
}
