package plan_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// drawHomes draws a cluster of which ram and logs hold some percent of the dataset each.
func drawHomes(t *rapid.T, nodes int) plan.HomesInput {
	in := draw(t)
	h := plan.HomesInput{Content: [32]byte{1}, Sizes: in.Sizes, Seed: in.Seed, Cost: slot}
	records, total := int64(0), int64(0)
	for id := range in.Sizes.Len() {
		size := in.Sizes.Size(sample.ID(id))
		records += plan.RecordCost(size)
		total += slot(size)
	}
	for range nodes {
		h.Nodes = append(h.Nodes, plan.Node{
			Ram: total * int64(rapid.IntRange(5, 60).Draw(t, "ram percent")) / 100,
			Log: records * int64(rapid.IntRange(0, 40).Draw(t, "log percent")) / 100})
	}
	if rapid.Bool().Draw(t, "by uses") {
		s := order.Spec{Kind: order.Distributed, Samples: in.Sizes.Len(), World: nodes, Batch: 10,
			Seed: rapid.Int64Range(0, 1<<40).Draw(t, "order")}
		h.Uses = plan.NewUses(nodes, s.Samples)
		if err := h.Uses.Count(makeOrder(t, s), nodes, 0, 8); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func makeHomes(t interface{ Fatal(...any) }, in plan.HomesInput) *plan.Homes {
	h, err := plan.MakeHomes(in)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A single node's homes are its plan's sets.
func TestHomesOfOneNodeAreItsPlan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawHomes(rt, 1)
		in.LogMost = uint32(rapid.IntRange(0, 1).Draw(rt, "a limit")) * 2500
		h := makeHomes(rt, in)
		p := made(rt, plan.Input{Sizes: in.Sizes, Seed: in.Seed, Policy: "spread", Cost: in.Cost,
			Keep: in.Nodes[0].Ram, Log: in.Nodes[0].Log, LogMost: in.LogMost, Staging: 1})
		for id := range in.Sizes.Len() {
			id := sample.ID(id)
			_, ram := h.In(plan.Ram, id)
			_, log := h.In(plan.Ssd, id)
			if ram != p.InSet(id) || log != p.InLog(id) {
				rt.Fatalf("sample %d: ram %t, log %t; the plan says %t, %t", id, ram, log,
					p.InSet(id), p.InLog(id))
			}
			_, tier, ok := h.Of(id)
			if ok != (ram || log) || ok && (tier == plan.Ram) != ram {
				rt.Fatalf("sample %d is %v, %t", id, tier, ok)
			}
		}
		if n, bytes := h.Held(0, plan.Ram); n != p.SetCount || bytes != p.SetBytes {
			rt.Fatalf("%d samples of %d bytes, want %d of %d", n, bytes, p.SetCount, p.SetBytes)
		}
		if n, bytes := h.Held(0, plan.Ssd); n != p.LogCount || bytes != p.LogBytes {
			rt.Fatalf("%d samples of %d bytes, want %d of %d", n, bytes, p.LogCount, p.LogBytes)
		}
	})
}

// Laws of a cluster: no node keeps more than it has room for, the pool is used up or holds all,
// while it is short no sample has two homes, and what is said to be held is.
func TestHomesLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawHomes(rt, rapid.IntRange(2, 9).Draw(rt, "nodes"))
		h := makeHomes(rt, in)
		used := [2][]int64{make([]int64, len(in.Nodes)), make([]int64, len(in.Nodes))}
		counts := [2][]int{make([]int, len(in.Nodes)), make([]int, len(in.Nodes))}
		var homeless, seconds, both int
		costs := [2]func(uint32) int64{slot, plan.RecordCost}
		var needed [2]int64
		for id := range in.Sizes.Len() {
			id := sample.ID(id)
			size := in.Sizes.Size(id)
			homes := 0
			for tier, cost := range costs {
				needed[tier] += cost(size)
				if node, ok := h.In(plan.Tier(tier), id); ok {
					used[tier][node] += cost(size)
					counts[tier][node]++
					homes++
				}
			}
			if node, ok := h.Second(id); ok {
				used[0][node] += slot(size)
				counts[0][node]++
				seconds++
				if home, _, _ := h.Of(id); home == node {
					rt.Fatalf("sample %d is twice at node %d", id, node)
				}
				if in.Uses != nil && in.Uses[node][id] == 0 {
					rt.Fatalf("node %d has a second copy of sample %d, which it never reads", node, id)
				}
			}
			switch homes {
			case 0:
				homeless++
			case 2:
				both++
			}
		}
		var pools, filled [2]int64
		for i, node := range in.Nodes {
			for tier, room := range [2]int64{node.Ram, node.Log} {
				pools[tier] += room
				filled[tier] += used[tier][i]
				if n, _ := h.Held(i, plan.Tier(tier)); n != counts[tier][i] || used[tier][i] > room {
					rt.Fatalf("node %d, %v: %d samples, said are %d; %d bytes of %d", i,
						plan.Tier(tier), counts[tier][i], n, used[tier][i], room)
				}
			}
		}
		for tier := range pools {
			if filled[tier] < min(needed[tier], pools[tier])*98/100-int64(len(in.Nodes))*4000 {
				rt.Fatalf("%v keeps %d of %d", plan.Tier(tier), filled[tier], pools[tier])
			}
		}
		if homeless > len(in.Nodes) && (both > 0 || seconds > 0) {
			rt.Fatalf("%d samples have no home, %d are in both tiers, %d have second copies",
				homeless, both, seconds)
		}
	})
}

// Homes follow uses: a node reads its own samples more often than chance would have it, and the
// nodes fill up evenly along the order.
func TestHomesFollowUses(t *testing.T) {
	const nodes, samples, epochs = 4, 20_000, 5
	s := order.Spec{Kind: order.Distributed, Samples: samples, World: nodes, Batch: 25}
	in := plan.HomesInput{Sizes: even(samples), Uses: plan.NewUses(nodes, samples)}
	if err := in.Uses.Count(makeOrder(t, s), nodes, 0, epochs); err != nil {
		t.Fatal(err)
	}
	for range nodes {
		in.Nodes = append(in.Nodes, plan.Node{Ram: samples / 10 * 1000})
	}
	h := makeHomes(t, in)
	own, held := 0, 0
	var firsts [nodes]int
	for id := range samples {
		if node, ok := h.In(plan.Ram, sample.ID(id)); ok {
			own += int(in.Uses[node][id])
			held++
			if id < samples/10 {
				firsts[node]++
			}
		}
	}
	// The most frequent of four readers of five epochs reads 2.6 of them on average, chance 1.25.
	if share := float64(own) / float64(held*epochs); held != samples*4/10 || share < 0.48 {
		t.Errorf("%d samples are held, and %.3f of their reads are at home", held, share)
	}
	for node, n := range firsts {
		if n < 150 || n > 250 {
			t.Errorf("node %d has %d of the first tenth, of about 200", node, n)
		}
	}
}

type even int

func (e even) Len() int              { return int(e) }
func (e even) Size(sample.ID) uint32 { return 1000 }

// Every part of the input that decides is in the digest.
func TestHomesDigest(t *testing.T) {
	make := func(change func(*plan.HomesInput)) [32]byte {
		in := plan.HomesInput{Sizes: even(100), Nodes: []plan.Node{{Ram: 9000, Log: 1 << 20},
			{Ram: 5000}}, Uses: plan.NewUses(2, 100)}
		change(&in)
		return makeHomes(t, in).Digest()
	}
	seen := map[[32]byte]bool{make(func(*plan.HomesInput) {}): true}
	for i, change := range []func(*plan.HomesInput){
		func(in *plan.HomesInput) { in.Content[31]++ },
		func(in *plan.HomesInput) { in.Sizes, in.Uses = even(99), nil },
		func(in *plan.HomesInput) { in.Seed++ },
		func(in *plan.HomesInput) { in.Nodes[1].Ram++ },
		func(in *plan.HomesInput) { in.Nodes[1].Log++ },
		func(in *plan.HomesInput) { in.Nodes, in.Uses = in.Nodes[:1], nil },
		func(in *plan.HomesInput) { in.LogMost = 5 },
		func(in *plan.HomesInput) { in.Uses[1][99]++ },
		func(in *plan.HomesInput) { in.Uses = nil },
	} {
		digest := make(change)
		if seen[digest] {
			t.Errorf("change %d leaves the digest as it was", i)
		}
		seen[digest] = true
	}
}

func TestHomesRefuse(t *testing.T) {
	for i, in := range []plan.HomesInput{
		{Sizes: even(10)},
		{Sizes: even(10), Nodes: make([]plan.Node, 1<<16)},
		{Sizes: even(10), Nodes: []plan.Node{{Ram: -1}}},
		{Sizes: even(10), Nodes: []plan.Node{{Log: -1}}},
		{Sizes: even(10), Nodes: make([]plan.Node, 2), Uses: plan.NewUses(1, 10)},
		{Sizes: even(10), Nodes: make([]plan.Node, 2), Uses: plan.NewUses(2, 9)},
	} {
		if _, err := plan.MakeHomes(in); err == nil {
			t.Errorf("input %d makes homes", i)
		}
	}
}

// BenchmarkHomes14M: 14.2 M samples at eight nodes that hold half of them.
func BenchmarkHomes14M(b *testing.B) {
	const nodes, samples = 8, 14_200_000
	in := plan.HomesInput{Sizes: even(samples), Uses: plan.NewUses(nodes, samples)}
	for range nodes {
		in.Nodes = append(in.Nodes, plan.Node{Ram: samples * 1000 / 32, Log: samples * 1000 / 32})
	}
	for b.Loop() {
		makeHomes(b, in)
	}
}
