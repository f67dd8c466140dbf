package plan_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/plan"
)

// Law (NoPFS, Lemma 1): where a node uses a sample more often than its share of the epochs, some
// other one uses it as much more seldom, and the other way round. A node that uses it u times of E
// leaves (E − u)/(N − 1) to each other node on average: one of them has that or less, one that or
// more.
func TestLemmaOfUses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(2, 8).Draw(rt, "nodes")
		samples := nodes * rapid.IntRange(1, 40).Draw(rt, "samples a node") // so that none is padding
		epochs := rapid.IntRange(1, 60).Draw(rt, "epochs")
		o, err := order.New(order.Spec{Kind: order.Distributed, Samples: samples, World: nodes,
			Batch: 1, Seed: int64(rapid.IntRange(0, 1<<30).Draw(rt, "seed"))})
		if err != nil {
			rt.Fatal(err)
		}
		uses := plan.NewUses(nodes, samples)
		if err := uses.Count(o, nodes, 0, epochs); err != nil {
			rt.Fatal(err)
		}
		for id := range samples {
			all := 0
			for node := range nodes {
				all += int(uses[node][id])
			}
			if all != epochs {
				rt.Fatalf("sample %d is used %d times in %d epochs", id, all, epochs)
			}
			for node := range nodes {
				rest, least, most := epochs-int(uses[node][id]), epochs, 0
				for other := range nodes {
					if other != node {
						least = min(least, int(uses[other][id]))
						most = max(most, int(uses[other][id]))
					}
				}
				if least*(nodes-1) > rest || most*(nodes-1) < rest {
					rt.Fatalf("node %d uses sample %d %d times of %d, others %d to %d times", node, id,
						uses[node][id], epochs, least, most)
				}
			}
		}
	})
}
