package plan_test

import (
	"math"
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

// pooled is the plan of one node that has the room of all.
func pooled(t *rapid.T, in plan.HomesInput) *plan.Plan {
	one := plan.Input{Sizes: in.Sizes, Seed: in.Seed, Policy: "spread", Cost: in.Cost,
		LogMost: in.LogMost, Staging: 1}
	for _, node := range in.Nodes {
		one.Keep += node.Ram
		one.Log += node.Log
	}
	return made(t, one)
}

// ledger is what nodes hold, added up from where homes say that samples are: by tier and node.
type ledger struct {
	samples              [2][]int
	bytes, taken, copies [2][]int64 // copies is the part of taken that another node or tier has, too
}

var costs = [2]func(uint32) int64{slot, plan.RecordCost}

func newLedger(in plan.HomesInput, h *plan.Homes) (l ledger) {
	nodes := len(in.Nodes)
	for tier := range costs {
		l.samples[tier], l.bytes[tier] = make([]int, nodes), make([]int64, nodes)
		l.taken[tier], l.copies[tier] = make([]int64, nodes), make([]int64, nodes)
	}
	for i := range in.Sizes.Len() {
		id := sample.ID(i)
		size := in.Sizes.Size(id)
		_, ram := h.In(plan.Ram, id)
		_, log := h.In(plan.Ssd, id)
		add := func(tier, node int, twice bool) {
			l.samples[tier][node]++
			l.bytes[tier][node] += int64(size)
			l.taken[tier][node] += costs[tier](size)
			if twice {
				l.copies[tier][node] += costs[tier](size)
			}
		}
		for tier := range costs {
			if node, ok := h.In(plan.Tier(tier), id); ok {
				add(tier, node, ram && log)
			}
		}
		if node, ok := h.Second(id); ok {
			add(0, node, true)
		}
	}
	return l
}

// Laws of a cluster. No node keeps more than it has room for, and what is said to be held is. What
// has a home is in the plan of one node with the room of all; it has two only if it is in both of
// that plan's sets, or if ram holds everything. And what is in that plan has a home unless it fits
// nowhere: room comes in pieces, and no piece is large enough, not even without the copies in it of
// samples that live elsewhere too.
func TestHomesLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawHomes(rt, rapid.IntRange(2, 9).Draw(rt, "nodes"))
		in.LogMost = uint32(rapid.IntRange(0, 1).Draw(rt, "a limit")) * 2500
		h, p := makeHomes(rt, in), pooled(rt, in)
		l := newLedger(in, h)
		var needed, pools, filled [2]int64
		for i, node := range in.Nodes {
			for tier, room := range [2]int64{node.Ram, node.Log} {
				pools[tier] += room
				filled[tier] += l.taken[tier][i]
				n, bytes := h.Held(i, plan.Tier(tier))
				if n != l.samples[tier][i] || bytes != l.bytes[tier][i] || l.taken[tier][i] > room {
					rt.Fatalf("node %d, %v: %d samples of %d bytes, said are %d of %d; taken %d of %d", i,
						plan.Tier(tier), l.samples[tier][i], l.bytes[tier][i], n, bytes, l.taken[tier][i], room)
				}
			}
		}
		for id := range in.Sizes.Len() {
			id := sample.ID(id)
			checkHome(rt, in, h, p, &l, id)
			for tier, cost := range costs {
				if size := in.Sizes.Size(id); tier == 0 || in.LogMost == 0 || size <= in.LogMost {
					needed[tier] += cost(size)
				}
			}
		}
		for tier := range pools {
			if filled[tier] < min(needed[tier], pools[tier])*98/100-int64(len(in.Nodes))*4000 {
				rt.Fatalf("%v keeps %d of %d", plan.Tier(tier), filled[tier], pools[tier])
			}
		}
	})
}

func checkHome(t *rapid.T, in plan.HomesInput, h *plan.Homes, p *plan.Plan, l *ledger,
	id sample.ID) {
	size := in.Sizes.Size(id)
	home, _, lives := h.Of(id)
	_, ram := h.In(plan.Ram, id)
	_, log := h.In(plan.Ssd, id)
	member := p.InSet(id) || p.InLog(id)
	if lives && !member || ram && log && !(p.InSet(id) && p.InLog(id)) {
		t.Fatalf("sample %d: ram %t, log %t; in one node's plan %t, %t", id, ram, log, p.InSet(id),
			p.InLog(id))
	}
	if node, ok := h.Second(id); ok && (p.SetCount < in.Sizes.Len() || home == node ||
		in.Uses != nil && in.Uses[node][id] == 0) {
		t.Fatalf("sample %d at node %d has a second copy at node %d", id, home, node)
	}
	if lives || !member {
		return
	}
	for node, has := range in.Nodes {
		for tier, room := range [2]int64{has.Ram, has.Log} {
			left := room - l.taken[tier][node] + l.copies[tier][node]
			if left >= costs[tier](size) && (tier == 0 || in.LogMost == 0 || size <= in.LogMost) {
				t.Fatalf("sample %d of %d bytes has no home, but node %d has %d bytes of %v", id, size,
					node, left, plan.Tier(tier))
			}
		}
	}
}

// While one node with the room of all could not have everything, no sample has two homes.
func TestHomesOfAShortPool(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawHomes(rt, rapid.IntRange(2, 4).Draw(rt, "nodes"))
		h, p := makeHomes(rt, in), pooled(rt, in)
		short, twice := false, false
		for id := range in.Sizes.Len() {
			id := sample.ID(id)
			_, ram := h.In(plan.Ram, id)
			_, log := h.In(plan.Ssd, id)
			_, second := h.Second(id)
			short = short || !p.InSet(id) && !p.InLog(id)
			twice = twice || ram && log || second
		}
		if short && twice {
			rt.Fatal("a sample has two homes, another could have none")
		}
	})
}

// A node's ram has what the node reads most, of samples that cost it the same.
func TestRamHasWhatIsReadMost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawHomes(rt, rapid.IntRange(2, 5).Draw(rt, "nodes"))
		if in.Uses == nil || pooled(rt, in).SetCount == in.Sizes.Len() {
			return // a log then has what is left over
		}
		h := makeHomes(rt, in)
		type class struct {
			node         int
			cost, record int64
		}
		least, most := map[class]uint8{}, map[class]uint8{} // in ram, in the log
		for id := range in.Sizes.Len() {
			id := sample.ID(id)
			node, tier, ok := h.Of(id)
			if _, log := h.In(plan.Ssd, id); !ok || tier == plan.Ram && log {
				continue
			}
			size, uses := in.Sizes.Size(id), in.Uses[node][id]
			c := class{node, slot(size), plan.RecordCost(size)}
			if had, ok := least[c]; tier == plan.Ram && (!ok || uses < had) {
				least[c] = uses
			} else if tier == plan.Ssd {
				most[c] = max(most[c], uses)
			}
		}
		for c, uses := range most {
			if low, ok := least[c]; ok && low < uses {
				rt.Fatalf("%+v: read %d times in ram, %d times from the log", c, low, uses)
			}
		}
	})
}

// Uses that are all alike change nothing: the spread decides.
func TestHomesOfEqualUses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawHomes(rt, rapid.IntRange(2, 5).Draw(rt, "nodes"))
		in.Uses = nil
		unknown := makeHomes(rt, in)
		in.Uses = plan.NewUses(len(in.Nodes), in.Sizes.Len())
		for _, uses := range in.Uses {
			for id := range uses {
				uses[id] = 7
			}
		}
		equal := makeHomes(rt, in)
		for id := range in.Sizes.Len() {
			id := sample.ID(id)
			node, tier, ok := equal.Of(id)
			wantNode, wantTier, want := unknown.Of(id)
			if node != wantNode || tier != wantTier || ok != want {
				rt.Fatalf("sample %d is at %d, %v, %t; not knowing uses at %d, %v, %t", id, node, tier, ok,
					wantNode, wantTier, want)
			}
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

// More room than can be counted is room for all.
func TestHomesOfEndlessRoom(t *testing.T) {
	in := plan.HomesInput{Sizes: even(100)}
	for range 4 {
		in.Nodes = append(in.Nodes, plan.Node{Ram: math.MaxInt64 / 2, Log: math.MaxInt64})
	}
	h := makeHomes(t, in)
	for id := range sample.ID(100) {
		_, ram := h.In(plan.Ram, id)
		_, log := h.In(plan.Ssd, id)
		if _, second := h.Second(id); !ram || !log || !second {
			t.Fatalf("sample %d: ram %t, log %t, second %t", id, ram, log, second)
		}
	}
}

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
