package strategy

import (
	"fmt"

	"belady/internal/core/sample"
)

// staging reads everything from the origin, ahead of use: tf.data's and PyTorch's prefetching.
func staging(s *setting) (Result, error) {
	l, err := s.newLoop(rules{})
	if err != nil {
		return Result{}, err
	}
	return l.run()
}

// byTurn and atRandom give samples to nodes.
func byTurn(id sample.ID, nodes int, _ *draws) int { return int(id) % nodes }

func atRandom(_ sample.ID, nodes int, d *draws) int { return d.below(nodes) }

// prestage fills tiers of all nodes before training begins: each sample goes to one node, there to
// the first tier that is not full. A tier is full with the first sample that does not fit: small
// ones in its last gaps would make what is kept smaller than what is not. All tiers are filled at
// the same time, so the one that takes longest counts. It returns what each node has.
func (l *loop) prestage(node func(sample.ID, int, *draws) int, tiers []int) [][]sample.ID {
	shards, d := make([][]sample.ID, l.Nodes), l.draws()
	used := make([][]int64, l.Nodes)
	for i := range used {
		used[i] = make([]int64, len(l.Tiers))
	}
	first := make([]int, l.Nodes) // of tiers, that is not full
	for i, size := range l.sizes {
		id := sample.ID(i)
		n := node(id, l.Nodes, &d)
		for ; first[n] < len(tiers); first[n]++ {
			tier := tiers[first[n]]
			if used[n][tier]+int64(size) <= l.Tiers[tier].Capacity {
				used[n][tier] += int64(size)
				l.has.put(n, tier, id)
				shards[n] = append(shards[n], id)
				l.result.Filled += int64(size)
				break
			}
		}
	}
	rate := l.slope[l.Nodes]
	if l.Shared {
		var threads int64
		for _, tier := range tiers {
			threads += l.fillers(tier)
		}
		rate /= float64(max(threads, 1))
	}
	for _, tier := range tiers {
		var most int64
		for n := range used {
			most = max(most, used[n][tier])
		}
		seconds := float64(most) * (1/rate + l.store) / float64(l.fillers(tier))
		l.result.Prestage = max(l.result.Prestage, seconds)
	}
	return shards
}

// draws are a strategy's own, apart from those of the order and of the sizes.
func (s *setting) draws() draws { return draws(uint64(s.Jobs[0].Order.Seed) ^ 0x5ca1ab1e) }

// ramOnly is the tier that is ram, as a list.
func (s *setting) ramOnly() []int {
	if ram := s.ram(); ram >= 0 {
		return []int{ram}
	}
	return nil
}

func (s *setting) allTiers() []int {
	tiers := make([]int, len(s.Tiers))
	for i := range tiers {
		tiers[i] = i
	}
	return tiers
}

// tooLarge says why the nodes' ram cannot hold all samples; "": it can.
func (s *setting) tooLarge() string {
	ram := s.ram()
	if ram < 0 {
		return "there is no ram tier"
	}
	if pool := s.Tiers[ram].Capacity * int64(s.Nodes); s.bytes > pool {
		return fmt.Sprintf("the dataset's %d bytes are more than the %d of all nodes' ram", s.bytes,
			pool)
	}
	return ""
}

// lbannPreload is LBANN's data store, filled before the first epoch.
func lbannPreload(s *setting) (Result, error) {
	if why := s.tooLarge(); why != "" {
		return Result{Unsupported: why}, nil
	}
	l, err := s.newLoop(rules{placed: true})
	if err != nil {
		return Result{}, err
	}
	l.prestage(byTurn, s.ramOnly())
	return l.run()
}

// lbannDynamic is LBANN's data store, filled by the first epoch's reads.
func lbannDynamic(s *setting) (Result, error) {
	if why := s.tooLarge(); why != "" {
		return Result{Unsupported: why}, nil
	}
	l, err := s.newLoop(rules{placed: true, storing: true, keeping: true})
	if err != nil {
		return Result{}, err
	}
	return l.run()
}

// deepioAny delivers what the nodes' ram has, whatever the order says.
func deepioAny(s *setting) (Result, error) {
	l, err := s.newLoop(rules{placed: true})
	if err != nil {
		return Result{}, err
	}
	var pool []sample.ID
	for _, shard := range l.prestage(byTurn, s.ramOnly()) {
		pool = append(pool, shard...)
	}
	if len(pool) == 0 {
		return Result{Unsupported: "no node's ram holds a sample, and nothing else is read"}, nil
	}
	if len(pool) < len(s.sizes) {
		l.result.Note = coverage(len(pool), len(s.sizes))
		one := &cycle{ids: pool, draws: s.draws()}
		l.jobs[0].deal = func(lists *lists) {
			for _, ids := range lists.ids {
				one.fill(ids)
			}
		}
	}
	return l.run()
}

func coverage(read, samples int) string {
	return fmt.Sprintf("reads %d of %d samples over and over; the others are never delivered",
		read, samples)
}

// cycle gives samples in random order, all of them before any comes again.
type cycle struct {
	ids   []sample.ID
	at    int
	draws draws
}

func (c *cycle) fill(ids []sample.ID) {
	for i := range ids {
		if c.at == 0 {
			c.draws.shuffle(c.ids)
		}
		ids[i] = c.ids[c.at]
		c.at = (c.at + 1) % len(c.ids)
	}
}

// parallelStaging gives each node a shard before training, and reads nothing else. Where one node
// could hold the whole dataset, the published figures are those of reading everything from the
// origin; they are given then, with what shards would take beside them.
func parallelStaging(s *setting) (Result, error) {
	var capacity int64
	for _, t := range s.Tiers {
		capacity += t.Capacity
	}
	if s.bytes > capacity {
		return s.shards()
	}
	s.runs = 2
	proper, err := s.shards()
	if err != nil {
		return Result{}, err
	}
	s.ran = 1
	result, err := staging(s)
	result.Note = fmt.Sprintf("as published where one node holds the dataset: read as strategy "+
		"staging; a shard on each node would take %.2f s", proper.Seconds)
	return result, err
}

func (s *setting) shards() (Result, error) {
	l, err := s.newLoop(rules{placed: true})
	if err != nil {
		return Result{}, err
	}
	l.floor = 0
	cycles, held := make([]cycle, s.Nodes), 0
	for node, shard := range l.prestage(byTurn, s.allTiers()) {
		if len(shard) == 0 {
			return Result{Unsupported: "a node has no room for a sample, and nothing else is read"}, nil
		}
		cycles[node] = cycle{ids: shard, draws: s.draws() + draws(node)}
		held += len(shard)
	}
	if held < len(s.sizes) {
		l.result.Note = coverage(held, len(s.sizes))
	}
	l.jobs[0].deal = func(lists *lists) {
		for node, ids := range lists.ids {
			cycles[node].fill(ids)
		}
	}
	return l.run()
}

// localityAware lets samples stay where they are and deals each batch of all nodes anew: to those
// that have its samples first, then evenly. Each node's batch is shuffled afterwards.
func localityAware(s *setting) (Result, error) {
	l, err := s.newLoop(rules{placed: true})
	if err != nil {
		return Result{}, err
	}
	l.prestage(atRandom, s.allTiers())
	d := s.draws()
	dealt := make([][]sample.ID, s.Nodes)
	var rest []sample.ID
	l.jobs[0].deal = func(lists *lists) {
		for b := range lists.batches {
			rest = l.dealBatch(lists, b, dealt, rest[:0])
			for node, ids := range dealt {
				d.shuffle(ids)
				copy(lists.ids[node][b*lists.batch:], ids)
			}
		}
	}
	return l.run()
}

// dealBatch deals one batch of all nodes to those that have its samples, as many to each as it had.
func (l *loop) dealBatch(lists *lists, b int, dealt [][]sample.ID, rest []sample.ID) []sample.ID {
	for node := range dealt {
		dealt[node] = dealt[node][:0]
	}
	share := func(node int) []sample.ID {
		ids := lists.ids[node]
		return ids[min(b*lists.batch, len(ids)):min((b+1)*lists.batch, len(ids))]
	}
	for from := range dealt {
		for _, id := range share(from) {
			node := l.has.holder(id)
			if node >= 0 && len(dealt[node]) < len(share(node)) {
				dealt[node] = append(dealt[node], id)
			} else {
				rest = append(rest, id)
			}
		}
	}
	left := rest
	for node := range dealt {
		more := len(share(node)) - len(dealt[node])
		dealt[node] = append(dealt[node], left[:more]...)
		left = left[more:]
	}
	return rest
}
