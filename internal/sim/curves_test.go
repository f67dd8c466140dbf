package sim_test

import (
	"math"
	"testing"

	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/sim"
)

// textbook is a cache of so many samples of one size, written for being right: at each reference it
// searches everything.
type textbook struct {
	room int
	has  map[sample.ID]int // its value; the least goes first
}

// refer counts a reference of a sample that is then worth so much, and reports a hit. Where the
// rule may pass by, a sample worth less than all others does not come in.
func (c *textbook) refer(id sample.ID, worth int, passBy bool) bool {
	_, hit := c.has[id]
	c.has[id] = worth
	if len(c.has) <= c.room {
		return hit
	}
	least, at := math.MaxInt, id
	for other, v := range c.has {
		if v < least && (passBy || other != id) {
			least, at = v, other
		}
	}
	delete(c.has, at)
	return hit
}

// recount is the share of hits, after the first of so many epochs, of least recently used, of the
// first come to stay, and of Belady's MIN.
func recount(ids []sample.ID, epochs, room int) (lru, pin, best float64) {
	next := make([]int, len(ids)) // when the sample at a position is used again
	seen := map[sample.ID]int{}
	for i := len(ids) - 1; i >= 0; i-- {
		next[i] = math.MaxInt - 1
		if at, ok := seen[ids[i]]; ok {
			next[i] = at
		}
		seen[ids[i]] = i
	}
	caches := [3]textbook{}
	hits := [3]int{}
	each := len(ids) / epochs
	for k := range caches {
		caches[k] = textbook{room: room, has: map[sample.ID]int{}}
	}
	for i, id := range ids {
		worth := [3]int{i, -i, -next[i]}
		if old, ok := caches[1].has[id]; ok {
			worth[1] = old // it came when it came
		}
		for k := range caches {
			if caches[k].refer(id, worth[k], k > 0) && i >= each {
				hits[k]++
			}
		}
	}
	all := float64(len(ids) - each)
	return float64(hits[0]) / all, float64(hits[1]) / all, float64(hits[2]) / all
}

// The curves of hits over the kept share are the textbook's, within a point: staging beside the
// cache is what differs.
func TestCurvesAreTheTextbooks(t *testing.T) {
	const n, epochs, batch, size = 1000, 4, 4, 1000
	readings := distributed(n, batch, 1, epochs, 3)
	ids := expected(t, readings)[0]
	for share := 10; share <= 90; share += 20 {
		lru, pin, best := recount(ids, epochs, n*share/100)
		for name, want := range map[string]float64{"lru": lru, "pin": pin, "belady": best} {
			p := makePlan(t, equal(n, size), name, int64(n*share/100)*size, 3*batch*size)
			m, err := sim.Measure(sim.Scenario{Plan: p, Readings: readings, Origin: fast, Credits: 1,
				Compute: pump.Instant(1e6)})
			if err != nil {
				t.Fatal(err)
			}
			hits := 0.0
			for _, e := range m.Readers[0].Epochs[1:] {
				// What was kept as the frontier passed may be in staging by the time it is lent.
				hits += float64(e.Ram+e.Shared) / size / n / (epochs - 1)
			}
			if math.Abs(hits-want) > 0.01 {
				t.Errorf("%s, %d %% kept: hits %.3f, textbook %.3f", name, share, hits, want)
			}
		}
	}
}
