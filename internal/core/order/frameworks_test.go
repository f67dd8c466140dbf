package order_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"belady/internal/core/order"
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
