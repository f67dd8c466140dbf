package perf

import "testing"

func TestPacerStaysInBounds(t *testing.T) {
	// An origin that answers any number at once in 10 ms is asked ever more; one that serves 8 at
	// a time is not flooded.
	for _, c := range []struct{ width, low, high int }{{1 << 30, 200, 256}, {8, 8, 64}} {
		p := NewPacer(256)
		now := int64(1e9)
		for range 4000 {
			active := p.Limit()
			waves := (active + c.width - 1) / c.width
			took := int64(10e6 * waves)
			now += took
			for range active {
				p.Ended(now, took, 1, active)
			}
			if p.Limit() < paceLeast || p.Limit() > 256 {
				t.Fatalf("the limit is %d", p.Limit())
			}
		}
		if p.Limit() < c.low || p.Limit() > c.high {
			t.Errorf("an origin of width %d is asked %d at once, wanted %d to %d",
				c.width, p.Limit(), c.low, c.high)
		}
	}
}
