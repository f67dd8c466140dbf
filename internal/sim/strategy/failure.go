package strategy

import (
	"cmp"
	"fmt"
	"slices"

	"belady/internal/core/sample"
)

// losses is what failures have done so far, and will do.
type losses struct {
	ahead []loss // by time
	dead  uint64 // nodes whose tiers are gone, a bit each
	// free is what is left of each node's tiers for what others lost; nil: nobody refills.
	free [][]int64
}

// loss is a failure that is still to come.
type loss struct {
	Failure
	batch int64 // the first that it is felt in
}

func (s *Scenario) checkFailures() error {
	for _, f := range s.Failures {
		switch {
		case f.Node < 0 || f.Node >= s.Nodes:
			return fmt.Errorf("node %d fails, but there are %d, from 0", f.Node, s.Nodes)
		case !(f.At >= 0 && f.At < float64(s.Jobs[0].Epochs)):
			return fmt.Errorf("node %d fails at epoch %v of %d", f.Node, f.At, s.Jobs[0].Epochs)
		}
	}
	return nil
}

// foresee puts the failures into order, with so many batches in an epoch.
func (l *loop) foresee(batches int64) {
	for _, f := range l.Failures {
		l.ahead = append(l.ahead, loss{f, int64(f.At * float64(batches))})
	}
	slices.SortStableFunc(l.ahead, func(a, b loss) int { return cmp.Compare(a.batch, b.batch) })
}

// fail takes away what nodes hold that fail before the current batch.
func (l *loop) fail() {
	for len(l.ahead) > 0 && l.ahead[0].batch <= l.jobs[0].batch {
		f := l.ahead[0].Failure
		l.ahead = l.ahead[1:]
		count, bytes := l.lose(f)
		if f.Refill {
			l.dropSeconds()
			l.free = l.left()
		}
		if count == 0 {
			continue
		}
		note := fmt.Sprintf("node %d loses %d samples, %.1f GB, at epoch %.2f", f.Node, count,
			float64(bytes)/1e9, f.At)
		if l.result.Note != "" {
			note = l.result.Note + "; " + note
		}
		l.result.Note = note
	}
}

// lose forgets what a node has, and that it is any sample's home.
func (l *loop) lose(f Failure) (count int, bytes int64) {
	l.dead |= 1 << f.Node
	for i, size := range l.sizes {
		id := sample.ID(i)
		words, had := l.has.of(id), false
		for tier := range words {
			had = had || words[tier]&(1<<f.Node) != 0
			words[tier] &^= 1 << f.Node
		}
		if had {
			count++
			bytes += int64(size)
		}
		if len(words) == 0 {
			continue
		}
		if words[0]&homed != 0 {
			*l.has.coming(id) &^= 1 << f.Node
			if home, _, _ := l.homes.Of(id); home == f.Node && !l.apart {
				words[0] &^= homed
			}
		}
		if had && l.has.holder(id) < 0 {
			words[0] |= lost
		}
	}
	return count, bytes
}

// dropSeconds gives up second copies: what was lost needs their room more.
func (l *loop) dropSeconds() {
	for i := range l.sizes {
		id := sample.ID(i)
		words := l.has.of(id)
		if len(words) == 0 || words[0]&twice == 0 {
			continue
		}
		words[0] &^= twice
		home, _, _ := l.homes.Of(id)
		second, _ := l.homes.Second(id)
		for tier := range words {
			if words[tier]&(1<<home) != 0 {
				words[l.ram()] &^= 1 << second
			}
		}
	}
}

// left is what tiers have room for beyond what they hold and are still to be filled with.
func (l *loop) left() [][]int64 {
	free := make([][]int64, l.Nodes)
	for node := range free {
		for _, t := range l.Tiers {
			if l.dead&(1<<node) != 0 {
				t.Capacity = -1 // not even for an empty sample
			}
			free[node] = append(free[node], t.Capacity)
		}
	}
	for i, size := range l.sizes {
		for tier, word := range l.has.of(sample.ID(i)) {
			for node := range free {
				if word&(1<<node) != 0 {
					free[node][tier] -= int64(size)
				}
			}
		}
	}
	for f, fill := range l.fills {
		for _, id := range fill.list[fill.at:] {
			node := l.flows[f].node
			if l.has.of(id)[fill.tier]&(1<<node) == 0 {
				free[node][fill.tier] -= l.size(id)
			}
		}
	}
	return free
}

// recover finds a lost sample that is read again a new home: the reader's node, or the next after
// it that has room, through which it is then read. Nodes that serve each other nothing keep nothing
// for each other.
func (l *loop) recover(w *flow) {
	if words := l.has.of(w.id); len(words) == 0 || words[0]&lost == 0 {
		return
	}
	nodes := l.Nodes
	if l.Peers == 0 || l.apart {
		nodes = 1
	}
	for i := range nodes {
		node := (w.node + i) % l.Nodes
		for tier, free := range l.free[node] {
			if int64(w.size) <= free {
				l.free[node][tier] -= int64(w.size)
				l.has.put(node, tier, w.id)
				l.has.of(w.id)[0] &^= lost
				return
			}
		}
	}
}
