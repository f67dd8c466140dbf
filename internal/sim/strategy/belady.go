package strategy

import (
	"slices"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// sizes is the dataset as core sees it.
type sizes []uint32

func (s sizes) Len() int                 { return len(s) }
func (s sizes) Size(id sample.ID) uint32 { return s[id] }

// belady follows core/plan's homes: each sample once while the pool is short. Whoever wants a
// sample asks its home, which reads the origin once for all. Nodes that no link joins, or only one
// slower than the origin, have a plan each, as if alone.
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
	l, err := s.newLoop(rules{placed: true, keeping: true, joining: true})
	if err != nil {
		return Result{}, err
	}
	l.apart = s.Peers == 0 || s.Peers < l.floor
	raw := func(size uint32) int64 { return int64(size) }
	in := plan.HomesInput{Sizes: sizes(s.sizes), Seed: uint64(s.Jobs[0].Order.Seed),
		Nodes: []plan.Node{node}, Cost: raw, Record: raw}
	if l.apart && s.Nodes > 1 && len(s.Tiers) > 0 {
		l.result.Note = "no link between nodes is as fast as the origin: a plan on each node"
	}
	if !l.apart {
		in.Nodes = slices.Repeat(in.Nodes, s.Nodes)
		if in.Uses, err = s.uses(); err != nil {
			return Result{}, err
		}
	}
	homes, err := plan.MakeHomes(in)
	if err != nil {
		return Result{}, err
	}
	l.live(homes)
	// What is listed is marked as on its way until all is.
	lists, err := s.byFirstUse(func(reader int, id sample.ID) (int, int) {
		home, tier, _ := l.home(reader, id)
		if *l.has.coming(id)&(1<<home) != 0 {
			return home, -1
		}
		return home, tier
	}, func(home int, id sample.ID) { *l.has.coming(id) |= 1 << home })
	if err != nil {
		return Result{}, err
	}
	for id := range s.sizes {
		*l.has.coming(sample.ID(id)) = 0
	}
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
