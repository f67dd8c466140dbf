package order_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"belady/internal/core/order"
	"belady/internal/core/order/torch"
	"belady/internal/core/sample"
)

// TestGolden checks every key of the files that real PyTorch versions wrote. A key it does not
// know fails: a golden value nobody compares is no evidence.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/golden-torch[0-9]*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("golden files: %v, %v; want three", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var golden map[string]json.RawMessage
			if err := json.Unmarshal(raw, &golden); err != nil {
				t.Fatal(err)
			}
			var version string
			if err := json.Unmarshal(golden["torch"], &version); err != nil {
				t.Fatal(err)
			}
			delete(golden, "torch")
			for key, want := range golden {
				got, err := replay(version, key)
				if err != nil {
					t.Errorf("%s: %v", key, err)
					continue
				}
				compare(t, key, got, want)
			}
		})
	}
}

// compare decodes want as got's type.
func compare(t *testing.T, key string, got any, raw json.RawMessage) {
	t.Helper()
	want := reflect.New(reflect.TypeOf(got))
	if err := json.Unmarshal(raw, want.Interface()); err != nil {
		t.Errorf("%s: %v", key, err)
		return
	}
	if ids, ok := got.([]int64); ok {
		got = abridge(key, ids)
	}
	if w := want.Elem().Interface(); !reflect.DeepEqual(got, w) {
		t.Errorf("%s:\n got %v\nwant %v", key, got, w)
	}
}

// abridge cuts long lists as the golden files do: permutations keep sixteen entries and the last
// three, distributed lists the first twelve.
func abridge(key string, ids []int64) []int64 {
	switch {
	case strings.HasPrefix(key, "randperm") && len(ids) > 19:
		return append(ids[:16:16], ids[len(ids)-3:]...)
	case strings.HasPrefix(key, "Distributed") && len(ids) > 12:
		return ids[:12]
	}
	return ids
}

// replay computes what a golden key names. Keys are matched by the first format that fits.
func replay(version, key string) (any, error) {
	rules, err := torch.RulesOf(version)
	if err != nil {
		return nil, err
	}
	var n, k, epoch, world, rank, workers int
	var seed int64
	scan := func(format string, args ...any) bool {
		got, err := fmt.Sscanf(key, format, args...)
		return err == nil && got == len(args)
	}
	switch {
	case key == "default Generator() initial_seed":
		return int64(torch.DefaultSeed), nil
	case scan("randperm n=%d seed=%d", &n, &seed):
		return list(order.Spec{Kind: order.Random, Torch: version, Samples: n, Seed: seed}, 0, 0)
	case scan("DataLoader(shuffle) n=%d manual_seed=%d workers=%d epoch=%d",
		&n, &seed, &workers, &epoch):
		return globalStream(version, rules, n, seed, epoch, false)
	case scan("DataLoader(persistent_workers) n=%d manual_seed=%d epoch=%d", &n, &seed, &epoch):
		return globalStream(version, rules, n, seed, epoch, true)
	case scan("DataLoader(generator seed=%d) n=%d epoch=%d", &seed, &n, &epoch):
		return list(order.Spec{Kind: order.Random, Torch: version, Samples: n, Seed: seed,
			LoaderGenerator: true}, epoch, 0)
	case scan("DataLoader(generator,drop_last) n=%d epoch=%d", &n, &epoch):
		// Written with the seed of the case before it and a batch of 5.
		return list(order.Spec{Kind: order.Random, Torch: version, Samples: n, Seed: 99,
			LoaderGenerator: true, Batch: 5, DropLast: true}, epoch, 0)
	case scan("Distributed n=%d world=%d rank=%d epoch=%d", &n, &world, &rank, &epoch):
		s := order.Spec{Kind: order.Distributed, Torch: version, Samples: n, World: world}
		switch options := key[strings.Index(key, "{"):]; options {
		case "{}":
		case "{'drop_last': True}":
			s.SamplerDropLast = true
		case "{'shuffle': False}":
			s.NoShuffle = true
		case "{'seed': 17}":
			s.Seed = 17
		default:
			return nil, fmt.Errorf("options %s are unknown to this test", options)
		}
		return list(s, epoch, rank)
	case scan("RandomSampler(replacement) n=%d k=%d seed=%d", &n, &k, &seed):
		return list(order.Spec{Kind: order.Replacement, Torch: version, Samples: n, Seed: seed,
			Draws: k}, 0, 0)
	case scan("multinomial(double,repl) n=%d k=%d seed=%d", &n, &k, &seed):
		return list(order.Spec{Kind: order.Weighted, Torch: version, Samples: n, Seed: seed,
			Draws: k, Weights: goldenWeights(n)}, 0, 0)
	case scan("randint n=%d rule", &n):
		return randintRule(rules, n), nil
	}
	return nil, fmt.Errorf("key is unknown to this test")
}

// randintRule says which of the two rules the draws follow: 32-bit words, or 64-bit ones.
func randintRule(rules torch.Rules, n int) map[string]bool {
	g, narrow, wide := torch.Seeded(5), torch.Seeded(5), torch.Seeded(5)
	ids := make([]sample.ID, 64)
	torch.Randint(&g, rules, n, ids)
	rule := map[string]bool{"old32": true, "new28": true}
	for _, id := range ids {
		rule["old32"] = uint64(id) == uint64(narrow.Uint32())%uint64(n) && rule["old32"]
		rule["new28"] = uint64(id) == wide.Uint64()%uint64(n) && rule["new28"]
	}
	return rule
}

// goldenWeights are the weights the golden multinomial draws were made with.
func goldenWeights(n int) []float64 {
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = float64(i*7919%101 + 1)
	}
	return weights
}

// globalStream is DataLoader(shuffle=True) fed by the global generator alone: base_seed, then the
// sampler's seed. The files list the base_seed first, but not for persistent workers, which draw
// it in epoch 0 only.
func globalStream(
	version string, rules torch.Rules, n int, seed int64, epoch int, persistent bool,
) (any, error) {
	g := torch.Seeded(seed)
	var base, own int64
	for e := range epoch + 1 {
		if e == 0 || !persistent {
			base = g.Int64()
		}
		own = g.Int64()
	}
	ids, err := list(order.Spec{Kind: order.Random, Torch: version, Samples: n, Seed: own}, 0, 0)
	if persistent {
		return ids, err
	}
	return append([]int64{base}, ids...), err
}

func list(s order.Spec, epoch, rank int) ([]int64, error) {
	s.Batch = max(s.Batch, 1)
	o, err := order.New(s)
	if err != nil {
		return nil, err
	}
	e, err := o.Epoch(epoch, rank, 0, nil)
	return widen(e.IDs), err
}

func widen(ids []sample.ID) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}
