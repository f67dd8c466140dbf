package strategy

import (
	"math"

	"belady/internal/core/sample"
)

// never is the time of what is not under way.
var never = math.Inf(1)

// flow is one thing that moves bytes: a thread that reads ahead, or a tier's fillers together.
type flow struct {
	node   int
	reader *reader // that it reads ahead for; nil: it fills a tier
	speed  float64 // threads that work as one
	id     sample.ID
	size   uint32
	batch  int64 // that the sample is read for
	place  Place // that it is read from
	begun  float64
	after  phase
	// joined: it waits for another flow's fetch of its sample, and does not read the origin itself.
	joined bool
	sent   bool // its sample comes through a home at another node, over the link
}

// phase is what a flow does when what it waits for is over.
type phase uint8

const (
	ready   phase = iota // the sample is staged, or the tier has it
	storing              // it was fetched from the origin and must be stored
)

// clock is virtual time, and when each flow's part in it ends.
//
// Only the rate of threads that read the origin changes in time, and it is the same for all of
// them. So their ends are kept as the bytes that one such thread will have read by then: a change
// of the rate bends volume's slope and moves no flow.
type clock struct {
	now     float64
	volume  float64   // bytes that one thread reading the origin all along would have read
	rate    float64   // volume's slope
	volumes []float64 // where each flow's fetch from the origin ends; never: it fetches nothing
	times   []float64 // when each flow's other work ends
	flows   []flow

	alone   []float64 // bytes a second of a thread, by the nodes that fetch: setting.slope
	pipe    []float64 // of all threads together, where they share it; else nil
	fetches []int     // on each node
	nodes   int       // that have any
	weight  float64   // threads that fetch
}

func newClock(s *setting) clock {
	c := clock{alone: s.slope, fetches: make([]int, s.Nodes), rate: 1}
	if s.Shared {
		c.pipe = make([]float64, s.Nodes+1)
		for nodes := range c.pipe {
			c.pipe[nodes] = float64(s.Origin.Rate(int64(nodes)))
		}
	}
	return c
}

// add makes a flow and returns its number.
func (c *clock) add(node int, speed float64) int {
	c.flows = append(c.flows, flow{node: node, speed: speed})
	c.volumes, c.times = append(c.volumes, never), append(c.times, never)
	return len(c.flows) - 1
}

// idle says that the flow does nothing.
func (c *clock) idle(f int) bool { return c.volumes[f] == never && c.times[f] == never }

// fetch begins to read the flow's sample from the origin.
func (c *clock) fetch(f int) {
	w := &c.flows[f]
	c.volumes[f] = c.volume + float64(w.size)/w.speed
	if c.fetches[w.node]++; c.fetches[w.node] == 1 {
		c.nodes++
	}
	c.weight += w.speed
	c.bend()
}

// fetched ends it.
func (c *clock) fetched(f int) {
	w := &c.flows[f]
	c.volumes[f] = never
	if c.fetches[w.node]--; c.fetches[w.node] == 0 {
		c.nodes--
	}
	c.weight -= w.speed
	c.bend()
}

// bend gives volume the slope of those who read the origin now.
func (c *clock) bend() {
	switch {
	case c.nodes == 0:
		c.rate = 1 // nobody reads: volume stands still
	case c.pipe != nil:
		c.rate = min(c.alone[c.nodes], c.pipe[c.nodes]/c.weight)
	default:
		c.rate = c.alone[c.nodes]
	}
}

// work lets the flow end after so many seconds.
func (c *clock) work(f int, seconds float64) { c.times[f] = c.now + seconds }

// next goes on to the end of the flow that ends first, unless that is later than until, where it
// stops. It returns the flow, or −1.
func (c *clock) next(until float64) int {
	first, volume := -1, never
	for f, v := range c.volumes {
		if v < volume {
			first, volume = f, v
		}
	}
	at := never
	if first >= 0 {
		at = c.now // where nobody reads, one that joined a fetch just over
		if c.nodes > 0 {
			at = max(at, at+(volume-c.volume)/c.rate)
		}
	}
	for f, t := range c.times {
		if t < at {
			first, at = f, t
		}
	}
	if until <= at {
		first, at = -1, until
	}
	if c.nodes > 0 {
		c.volume += (at - c.now) * c.rate
	}
	c.now = at
	if first >= 0 && c.times[first] == at {
		c.times[first] = never
	} else if first >= 0 {
		c.volume = max(c.volume, volume)
	}
	return first
}
