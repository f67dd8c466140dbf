package strategy

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/perf"
)

// Law: a thread takes the source that core/perf takes. The model looks its choice up in a list
// because it makes it for every sample; it is no rule of its own.
func TestChoosesAsPerf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(name string) int64 { // that readers and threads share without a rest
			return 24 * rapid.Int64Range(5e4, 5e7).Draw(t, name)
		}
		threads := rapid.Int64Range(1, 4).Draw(t, "threads")
		tier := func(name string) perf.Tier {
			return perf.Tier{Name: name, Capacity: 1, Threads: threads,
				Read: perf.Curve{{At: threads, Rate: rate(name)}}}
		}
		p := perf.Profile{Ram: tier("ram"), Disks: []perf.Disk{{Tier: tier("ssd")}},
			Origin: perf.Origin{Readers: perf.Curve{{At: 1, Rate: rate("origin")}}},
			Peers:  perf.Curve{{At: 1, Rate: rate("peers")}}}
		s, err := settle(&Scenario{
			Cluster: Cluster{Nodes: 2, Compute: 1, Staging: perf.Tier{Capacity: 1},
				Tiers: []perf.Tier{p.Ram, p.Disks[0].Tier}, Peers: float64(p.Peers[0].Rate),
				Origin: p.Origin.Readers},
			Jobs: []Job{{Epochs: 1, Sizes: []uint32{1, 1}, Order: order.Spec{Kind: order.Sequential,
				Samples: 2, World: 2, Batch: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.newLoop(rules{placed: true})
		if err != nil {
			t.Fatal(err)
		}
		has := [2][]bool{} // by node: the reader, its peer
		for node := range has {
			for tier := range s.Tiers {
				here := rapid.Bool().Draw(t, "has")
				if has[node] = append(has[node], here); here {
					l.has.put(node, tier, 0)
				}
			}
		}
		const size = 1 << 31 // that ns tell any two rates apart
		from, at := p.Fastest(size, 2, has[0], has[1])
		o, found := l.choose(0, 0)
		switch {
		case found != (from != perf.FromOrigin):
			t.Fatalf("perf takes %v, the model %+v (%v)", from, o, found)
		case found && (o.own != (from == perf.Own) || o.tier != at) &&
			p.Cost(from, at, size, 2) != p.Cost(map[bool]perf.Source{true: perf.Own,
				false: perf.Peer}[o.own], o.tier, size, 2):
			t.Fatalf("perf takes %v %d, the model %+v", from, at, o)
		}
	})
}
