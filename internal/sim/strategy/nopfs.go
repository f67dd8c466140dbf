package strategy

import (
	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// nopfs is NoPFS: each node by itself keeps the samples that it uses most, the fastest tier first,
// and fillers bring them in order of first use. Several nodes may keep the same sample.
func nopfs(s *setting) (Result, error) {
	l, err := s.newLoop(rules{placed: true})
	if err != nil {
		return Result{}, err
	}
	uses, err := s.uses()
	if err != nil {
		return Result{}, err
	}
	tiers := make([][]uint8, s.Nodes)
	ids := make([]sample.ID, len(s.sizes))
	for node := range tiers {
		tiers[node] = s.mostUsed(uses[node], ids)
	}
	lists, err := s.byFirstUse(func(node int, id sample.ID) (int, int) {
		return node, int(tiers[node][id]) - 1
	}, func(node int, id sample.ID) { tiers[node][id] = 0 })
	if err != nil {
		return Result{}, err
	}
	l.fillAll(lists)
	return l.run()
}

// uses is how often each node reads each sample in all jobs.
func (s *setting) uses() (plan.Uses, error) {
	uses := plan.NewUses(s.Nodes, len(s.sizes))
	for i, job := range s.Jobs {
		o, err := order.New(job.Order)
		if err != nil {
			return nil, err
		}
		own := make(plan.Uses, s.Nodes)
		for node := range own {
			own[node] = uses[node][s.bases[i]:][:len(job.Sizes)]
		}
		if err := own.Count(o, s.Nodes, 0, job.Epochs); err != nil {
			return nil, err
		}
	}
	return uses, nil
}

// mostUsed gives a node's samples to its tiers, the most used first, equal ones in an order that
// has nothing to do with their sizes or ids: tier + 1 of each, 0 for none. ids is storage.
func (s *setting) mostUsed(uses []uint8, ids []sample.ID) []uint8 {
	var ends [256]int // of the samples with so many uses, the most used first
	for _, n := range uses {
		ends[n]++
	}
	for n, at := 255, 0; n >= 0; n-- {
		at, ends[n] = at+ends[n], at
	}
	at, step := 0, scatter(len(uses))
	for range uses {
		n := uses[at]
		ids[ends[n]] = sample.ID(at)
		ends[n]++
		at = (at + step) % len(uses)
	}
	used := ends[1]
	tiers, next := uses, 0
	clear(tiers)
	for tier := range s.Tiers {
		room := s.Tiers[tier].Capacity
		for next < used && s.size(ids[next]) <= room {
			room -= s.size(ids[next])
			tiers[ids[next]] = uint8(tier + 1)
			next++
		}
	}
	return tiers
}

// scatter is a step that visits all of n numbers, far from each other: near the golden section, and
// without a divisor in common with n.
func scatter(n int) int {
	step := max(int(float64(n)*0.618), 1)
	for divisor(step, n) != 1 {
		step++
	}
	return step
}

func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// byFirstUse lists, for each node and tier, what it is to keep, in the order in which it is first
// read by any node. home says where a sample belongs that a node reads; −1: nowhere, or it is
// listed.
func (s *setting) byFirstUse(home func(reader int, id sample.ID) (node, tier int),
	listed func(node int, id sample.ID)) ([][][]sample.ID, error) {
	all := make([][][]sample.ID, s.Nodes)
	for node := range all {
		all[node] = make([][]sample.ID, len(s.Tiers))
	}
	list := func(l *lists, at int) {
		for reader, ids := range l.ids {
			if at >= len(ids) {
				continue
			}
			if node, tier := home(reader, ids[at]); tier >= 0 {
				all[node][tier] = append(all[node][tier], ids[at])
				listed(node, ids[at])
			}
		}
	}
	return all, s.together(list)
}

// together walks all jobs' orders side by side, as if all read equally fast.
func (s *setting) together(visit func(l *lists, at int)) error {
	jobs, epochs := make([]*access, len(s.Jobs)), 0
	for i, job := range s.Jobs {
		var err error
		if jobs[i], err = s.access(i); err != nil {
			return err
		}
		epochs = max(epochs, job.Epochs)
	}
	for e := range epochs {
		var open []*lists
		longest := 0
		for _, a := range jobs {
			if e >= a.job.Epochs {
				continue
			}
			l, err := a.epoch(e)
			if err != nil {
				return err
			}
			open, longest = append(open, l), max(longest, l.longest())
		}
		for at := range longest {
			for _, l := range open {
				visit(l, at)
			}
		}
		for _, a := range jobs {
			a.close(e)
		}
	}
	return nil
}

// fillAll gives every tier of every node its fillers.
func (l *loop) fillAll(lists [][][]sample.ID) {
	for node := range lists {
		for tier, list := range lists[node] {
			l.fillTier(node, tier, list)
		}
	}
}
