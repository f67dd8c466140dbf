package strategy

import (
	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// sizes is the dataset as core sees it.
type sizes []uint32

func (s sizes) Len() int                 { return len(s) }
func (s sizes) Size(id sample.ID) uint32 { return s[id] }

// belady follows core/plan's homes: each sample once while the pool is short. Whoever wants a
// sample asks its home, which reads the origin once for all.
func belady(s *setting) (Result, error) {
	var node plan.Node
	for tier, t := range s.Tiers {
		if tier != s.find(s.places[tier]) {
			return Result{Unsupported: "a node has at most one ram tier and one log"}, nil
		}
		if s.places[tier] == Ram {
			node.Ram = t.Capacity
		} else {
			node.Log = t.Capacity
		}
	}
	uses, err := s.uses()
	if err != nil {
		return Result{}, err
	}
	nodes := make([]plan.Node, s.Nodes)
	for i := range nodes {
		nodes[i] = node
	}
	raw := func(size uint32) int64 { return int64(size) }
	homes, err := plan.MakeHomes(plan.HomesInput{Sizes: sizes(s.sizes),
		Seed: uint64(s.Jobs[0].Order.Seed), Nodes: nodes, Uses: uses, Cost: raw, Record: raw})
	if err != nil {
		return Result{}, err
	}
	l, err := s.newLoop(rules{placed: true, keeping: true})
	if err != nil {
		return Result{}, err
	}
	l.live(homes)
	lists, err := s.byFirstUse(func(_ int, id sample.ID) (int, int) {
		words := l.has.of(id)
		if len(words) == 0 || words[0]&homed == 0 {
			return 0, -1
		}
		node, tier, _ := homes.Of(id)
		return node, s.tierOf(tier)
	}, func(_ int, id sample.ID) { l.has.of(id)[0] &^= homed })
	if err != nil {
		return Result{}, err
	}
	l.live(homes)
	l.fillAll(lists)
	return l.run()
}

// live marks the samples that have homes.
func (l *loop) live(homes *plan.Homes) {
	l.homes = homes
	for id := range l.sizes {
		id := sample.ID(id)
		// Empty samples fit into a tier that is not there.
		if _, tier, ok := homes.Of(id); ok && l.tierOf(tier) >= 0 {
			l.has.of(id)[0] |= homed
		}
		if _, ok := homes.Second(id); ok && l.ram() >= 0 {
			l.has.of(id)[0] |= twice
		}
	}
}
