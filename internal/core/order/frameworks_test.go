package order_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"belady/internal/core/order"
	"belady/internal/core/order/torch"
	"belady/internal/core/sample"
)

// batches cuts an epoch as its consumer would see it.
func batches(e order.Epoch) [][]sample.ID {
	out := [][]sample.ID{}
	for i := range e.Batches() {
		lo, hi := e.Bounds(i)
		out = append(out, e.IDs[lo:hi])
	}
	return out
}

func readCases(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// TestAccelerate compares with lists made by Accelerate's own SeedableRandomSampler and
// BatchSamplerShard.
func TestAccelerate(t *testing.T) {
	var golden struct {
		Cases []struct {
			order.Spec
			Epoch int             `json:"epoch"`
			Ranks [][][]sample.ID `json:"ranks"`
		} `json:"cases"`
	}
	readCases(t, "testdata/golden-accelerate1.15.0.json", &golden)
	if len(golden.Cases) < 100 {
		t.Fatalf("only %d cases", len(golden.Cases))
	}
	for i, c := range golden.Cases {
		c.Kind = order.Accelerate
		o, err := order.New(c.Spec)
		if err != nil {
			t.Fatal(err)
		}
		for rank, want := range c.Ranks {
			e, err := o.Epoch(c.Epoch, rank, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := batches(e); !reflect.DeepEqual(got, want) {
				t.Errorf("case %d rank %d: %+v\n got %v\nwant %v", i, rank, c.Spec, got, want)
			}
		}
	}
}

// TestTorchdata compares with epochs read from a real StatefulDataLoader, some of whose generators
// had drawn before: those cases carry the generator's state.
func TestTorchdata(t *testing.T) {
	var golden struct {
		Cases []struct {
			order.Spec
			Epochs [][][]sample.ID `json:"epochs"`
		} `json:"cases"`
	}
	readCases(t, "testdata/golden-torchdata0.11.0.json", &golden)
	if len(golden.Cases) < 20 {
		t.Fatalf("only %d cases", len(golden.Cases))
	}
	for i, c := range golden.Cases {
		c.Kind = order.Torchdata
		o, err := order.New(c.Spec)
		if err != nil {
			t.Fatal(err)
		}
		// Out of order on purpose: the answer may not depend on what was asked before.
		for _, epoch := range []int{2, 0, 1, 2} {
			e, err := o.Epoch(epoch, 0, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := batches(e); !reflect.DeepEqual(got, c.Epochs[epoch]) {
				t.Errorf("case %d epoch %d:\n got %v\nwant %v", i, epoch, got, c.Epochs[epoch])
			}
		}
	}
}

// TestStream draws an epoch after the other from one generator, by hand, as loader and sampler do
// in turn: an order must find the same place in the stream by counting.
func TestStream(t *testing.T) {
	const n, k = 23, 60
	rules, err := torch.RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	for _, loader := range []string{"none", "every epoch", "persistent"} {
		for _, kind := range []string{order.Random, order.Replacement, order.Torchdata} {
			s := order.Spec{Kind: kind, Samples: n, Seed: 7, Batch: 4,
				LoaderGenerator: loader != "none", PersistentWorkers: loader == "persistent"}
			if kind != order.Torchdata {
				s.Draws = k
			}
			o := mustNew(t, s)
			g := torch.Seeded(s.Seed)
			for epoch := range 4 {
				seeds := s.LoaderGenerator && (epoch == 0 || !s.PersistentWorkers)
				if seeds && kind != order.Torchdata {
					g.Int64()
				}
				want := make([]sample.ID, 3*n)
				switch kind {
				case order.Random:
					// Two permutations in full, and 60 mod 23 entries of a third.
					for i := range 3 {
						torch.Randperm(&g, rules, want[i*n:(i+1)*n])
					}
				case order.Replacement:
					torch.Randint(&g, rules, n, want[:k])
				case order.Torchdata:
					torch.Randperm(&g, rules, want[:n])
				}
				if seeds && kind == order.Torchdata {
					g.Int64()
				}
				want = want[:s.Length()]
				if got := mustEpoch(t, o, epoch, 0, 0).IDs; !reflect.DeepEqual(got, want) {
					t.Errorf("%s, base_seed %s, epoch %d:\n got %v\nwant %v",
						kind, loader, epoch, got, want)
				}
			}
		}
	}
}
