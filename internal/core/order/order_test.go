package order_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/sample"
)

func mustNew(t rapid.TB, s order.Spec) order.Order {
	t.Helper()
	o, err := order.New(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return o
}

func mustEpoch(t rapid.TB, o order.Order, epoch, rank int, from int64) order.Epoch {
	t.Helper()
	e, err := o.Epoch(epoch, rank, from, nil)
	if err != nil {
		t.Fatalf("epoch %d rank %d from %d: %v", epoch, rank, from, err)
	}
	if _, explicit := o.(*order.Windows); !explicit && o.Batches(rank, from) != e.Batches() {
		t.Fatalf("epoch %d rank %d from %d has %d batches, counted as %d", epoch, rank, from,
			e.Batches(), o.Batches(rank, from))
	}
	return e
}

var computed = []string{
	order.Sequential, order.Random, order.Distributed, order.Replacement, order.Weighted,
	order.Torchdata, order.Accelerate,
}

// drawSpec draws any valid spec of a computed kind over a small dataset.
func drawSpec(t *rapid.T, kinds []string) order.Spec {
	s := order.Spec{
		Kind:     rapid.SampledFrom(kinds).Draw(t, "kind"),
		Torch:    rapid.SampledFrom([]string{"", "1.13", "2.6", "2.14"}).Draw(t, "torch"),
		Samples:  rapid.IntRange(2, 300).Draw(t, "samples"),
		Seed:     rapid.Int64().Draw(t, "seed"),
		World:    rapid.IntRange(0, 9).Draw(t, "world"),
		Batch:    rapid.IntRange(1, 20).Draw(t, "batch"),
		DropLast: rapid.Bool().Draw(t, "drop last"),
	}
	switch s.Kind {
	case order.Random, order.Replacement, order.Weighted, order.Torchdata:
		most := 3 * s.Samples
		if s.Kind == order.Torchdata {
			most = s.Samples
		}
		s.Draws = rapid.SampledFrom([]int{0, s.Samples, rapid.IntRange(2, most).Draw(t, "draws")}).
			Draw(t, "which draws")
		s.LoaderGenerator = rapid.Bool().Draw(t, "loader generator")
		s.PersistentWorkers = s.LoaderGenerator && rapid.Bool().Draw(t, "persistent")
	case order.Accelerate:
		s.SplitBatches = rapid.Bool().Draw(t, "split")
		s.UnevenBatches = rapid.Bool().Draw(t, "uneven")
		if s.SplitBatches {
			s.Batch *= s.Ranks()
		}
	}
	if s.Kind == order.Weighted {
		s.Weights = goldenWeights(s.Samples)
	}
	if s.Kind == order.Distributed || s.Kind == order.Accelerate {
		s.NoShuffle = rapid.Bool().Draw(t, "no shuffle")
	}
	if s.Kind != order.Accelerate {
		s.SamplerDropLast = rapid.Bool().Draw(t, "sampler drop last")
	}
	return s
}

// whole is the epoch's permutation P, read as a world of one reads it.
func whole(t rapid.TB, s order.Spec, epoch int) []sample.ID {
	t.Helper()
	s.World, s.DropLast = 1, false
	return mustEpoch(t, mustNew(t, s), epoch, 0, 0).IDs
}

// TestResume is the guarantee of a position: rank r reads Q[r::W], Q = P[c:] padded by the head of
// P, or cut with sampler_drop_last; so before and after together are every entry of P once, plus
// fewer than W entries of padding, or less fewer than W.
func TestResume(t *testing.T) {
	strided := slices.DeleteFunc(slices.Clone(computed), func(k string) bool {
		return k == order.Accelerate
	})
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t, strided)
		s.DropLast = false
		epoch := rapid.IntRange(0, 4).Draw(t, "epoch")
		p := whole(t, s, epoch)
		if len(p) != s.Length() {
			t.Fatalf("P has %d entries, want %d", len(p), s.Length())
		}
		c := rapid.IntRange(0, len(p)).Draw(t, "c")
		world := s.Ranks()
		q := slices.Clone(p[c:])
		for i := 0; !s.SamplerDropLast && len(q)%world != 0; i++ {
			q = append(q, p[i%len(p)])
		}
		q = q[:len(q)-len(q)%world]
		o := mustNew(t, s)
		for rank := range world {
			want := []sample.ID{}
			for i := rank; i < len(q); i += world {
				want = append(want, q[i])
			}
			if got := mustEpoch(t, o, epoch, rank, int64(c)).IDs; !slices.Equal(got, want) {
				t.Fatalf("rank %d:\n got %v\nwant %v", rank, got, want)
			}
		}
		if extra := c + len(q) - len(p); extra >= world || extra <= -world ||
			s.SamplerDropLast && extra > 0 || !s.SamplerDropLast && extra < 0 {
			t.Fatalf("%d entries of padding in a world of %d", extra, world)
		}
	})
}

// TestResumeContinues: at an unchanged world, resuming after any number of whole global batches
// gives exactly the rest of the uninterrupted run. It holds for every kind.
func TestResumeContinues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t, computed)
		epoch := rapid.IntRange(0, 4).Draw(t, "epoch")
		o := mustNew(t, s)
		first := mustEpoch(t, o, epoch, 0, 0)
		done := rapid.IntRange(0, s.Length()/(first.Batch*s.Ranks())).Draw(t, "batches done")
		c := int64(done * first.Batch * s.Ranks())
		for rank := range s.Ranks() {
			all := mustEpoch(t, o, epoch, rank, 0).IDs
			rest := mustEpoch(t, o, epoch, rank, c).IDs
			if !slices.Equal(rest, all[min(done*first.Batch, len(all)):]) {
				t.Fatalf("%+v rank %d from %d:\n got %v\nof %v", s, rank, c, rest, all)
			}
		}
	})
}

// TestElastic: stop, change the world, stop, change it again: every entry of P is read once, and
// padding comes at the very end only.
func TestElastic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t, []string{order.Distributed, order.Random})
		s.DropLast, s.SamplerDropLast, s.Draws = false, false, 0
		p := whole(t, s, 1)
		seen, c := []sample.ID{}, 0
		for c < len(p) {
			s.World = rapid.IntRange(1, 9).Draw(t, "world")
			o := mustNew(t, s)
			steps := rapid.IntRange(1, 30).Draw(t, "steps")
			lists := make([][]sample.ID, s.World)
			for rank := range lists {
				lists[rank] = mustEpoch(t, o, 1, rank, int64(c)).IDs
			}
			for i := 0; i < min(steps, len(lists[0])); i++ {
				for rank := range lists {
					seen = append(seen, lists[rank][i])
					c++
				}
			}
		}
		if !slices.Equal(seen[:len(p)], p) || len(seen)-len(p) >= s.World {
			t.Fatalf("read %v\nof P %v", seen, p)
		}
	})
}

// TestPermutation: kinds that do not repeat read every sample once an epoch; no order names a
// sample outside the dataset, and batches tile the list.
func TestPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t, computed)
		epoch := rapid.IntRange(0, 4).Draw(t, "epoch")
		p := whole(t, s, epoch)
		if !s.Repeats() {
			sorted := slices.Compact(slices.Sorted(slices.Values(p)))
			if len(sorted) != s.Length() {
				t.Fatalf("%d distinct samples of %d", len(sorted), s.Length())
			}
		}
		e := mustEpoch(t, mustNew(t, s), epoch, s.Ranks()-1, 0)
		for _, id := range e.IDs {
			if int(id) >= s.Samples {
				t.Fatalf("sample %d of %d", id, s.Samples)
			}
		}
		at := 0
		for i := range e.Batches() {
			lo, hi := e.Bounds(i)
			if lo != at || hi <= lo || hi-lo > e.Batch {
				t.Fatalf("batch %d is [%d, %d) after %d", i, lo, hi, at)
			}
			if s.DropLast && hi-lo != e.Batch {
				t.Fatalf("batch %d has %d samples despite drop_last", i, hi-lo)
			}
			at = hi
		}
		if at != len(e.IDs) {
			t.Fatalf("batches end at %d of %d", at, len(e.IDs))
		}
	})
}

// TestIndependentOfHistory: an order's answer depends on the question alone, and dst is reused.
func TestIndependentOfHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t, computed)
		used := mustNew(t, s)
		dst := make([]sample.ID, 0, 2000)
		for range 6 {
			epoch := rapid.IntRange(0, 5).Draw(t, "epoch")
			rank := rapid.IntRange(0, s.Ranks()-1).Draw(t, "rank")
			got, err := used.Epoch(epoch, rank, 0, dst)
			if err != nil {
				t.Fatal(err)
			}
			want := mustEpoch(t, mustNew(t, s), epoch, rank, 0)
			if !slices.Equal(got.IDs, want.IDs) {
				t.Fatalf("epoch %d:\n got %v\nwant %v", epoch, got.IDs, want.IDs)
			}
			if len(got.IDs) > 0 && &got.IDs[0] != &dst[:1][0] {
				t.Fatal("dst was large enough and not used")
			}
		}
	})
}

func TestRefuses(t *testing.T) {
	good := order.Spec{Kind: order.Distributed, Samples: 10, World: 2, Batch: 2}
	for want, change := range map[string]func(*order.Spec){
		"unknown":             func(s *order.Spec) { s.Kind = "shuffle" },
		"older than 1.13":     func(s *order.Spec) { s.Torch = "1.9" },
		"cannot be negative":  func(s *order.Spec) { s.Samples = -1 },
		"nothing to read":     func(s *order.Spec) { s.Samples = 0 },
		"at most 4294967295":  func(s *order.Spec) { s.Samples = sample.MaxCount + 1 },
		"world is -1":         func(s *order.Spec) { s.World = -1 },
		"world is 1048577":    func(s *order.Spec) { s.World = order.MaxWorld + 1 },
		"batch is 0":          func(s *order.Spec) { s.Batch = 0 },
		"does not use draws":  func(s *order.Spec) { s.Draws = 3 },
		"does not use state":  func(s *order.Spec) { s.State = []byte{} },
		"does not use weight": func(s *order.Spec) { s.Weights = []float64{} },
		"does not use split":  func(s *order.Spec) { s.SplitBatches = true },
		"without loader_gen":  func(s *order.Spec) { s.PersistentWorkers = true },
		"there are no weight": func(s *order.Spec) { s.Kind = order.Weighted },
		"3 weights for 10": func(s *order.Spec) {
			s.Kind, s.Weights = order.Weighted, []float64{1, 2, 3}
		},
		"draw at least 2": func(s *order.Spec) { s.Kind, s.Draws = order.Weighted, 1 },
		"one permutation": func(s *order.Spec) { s.Kind, s.Draws = order.Torchdata, 11 },
		"not a multiple": func(s *order.Spec) {
			s.Kind, s.SplitBatches, s.Batch = order.Accelerate, true, 3
		},
		"state has 3 bytes":  func(s *order.Spec) { s.Kind, s.State = order.Random, []byte{1, 2, 3} },
		"not use drop_last":  func(s *order.Spec) { s.Kind, s.DropLast = order.Explicit, true },
		"draws is -1: it mu": func(s *order.Spec) { s.Kind, s.Draws = order.Random, -1 },
	} {
		s := good
		change(&s)
		if _, err := order.New(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", s, err, want)
		}
	}
	o := mustNew(t, good)
	for _, at := range [][3]int{{-1, 0, 0}, {order.MaxEpoch + 1, 0, 0}, {0, 2, 0}, {0, -1, 0},
		{0, 0, -1}, {0, 0, 11}} {
		if _, err := o.Epoch(at[0], at[1], int64(at[2]), nil); err == nil {
			t.Errorf("epoch %d rank %d from %d: no error", at[0], at[1], at[2])
		}
	}
}

func TestExplicit(t *testing.T) {
	o := mustNew(t, order.Spec{Kind: order.Explicit, Samples: 10, World: 2}).(*order.Windows)
	if _, err := o.Epoch(0, 0, 0, nil); !errors.Is(err, order.ErrUnknown) {
		t.Fatalf("before any window: %v", err)
	}
	add := func(epoch int, last bool, ids []sample.ID, ends ...uint32) error {
		return o.Add(order.Window{Epoch: epoch, Rank: 1, IDs: ids, BatchEnds: ends, Last: last})
	}
	for name, err := range map[string]error{
		"outside":      add(0, false, []sample.ID{10}, 1),
		"no batches":   add(0, false, []sample.ID{1}),
		"cut batch":    add(0, false, []sample.ID{1, 2}, 1),
		"empty batch":  add(0, false, []sample.ID{1}, 0, 1),
		"empty window": add(0, false, nil),
		"rank":         o.Add(order.Window{Rank: 2, Last: true}),
		"epoch":        add(-1, true, nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(add(3, false, []sample.ID{1, 2, 3}, 2, 3))
	if e := mustEpoch(t, o, 3, 1, 0); !e.Open || e.Batches() != 2 {
		t.Fatalf("open epoch: %+v", e)
	}
	if add(4, true, nil) == nil {
		t.Error("epoch 4 began inside epoch 3")
	}
	check(add(3, true, []sample.ID{4, 5, 6}, 1, 3))
	e := mustEpoch(t, o, 3, 1, 0)
	want := [][]sample.ID{{1, 2}, {3}, {4}, {5, 6}}
	if e.Open || !reflect.DeepEqual(batches(e), want) {
		t.Fatalf("got %+v", e)
	}
	if add(3, true, nil) == nil || add(5, true, nil) == nil {
		t.Error("more of epoch 3, or epoch 5 after it, was accepted")
	}
	check(add(4, true, nil))
	if e := mustEpoch(t, o, 4, 1, 0); e.Batches() != 0 || e.Open {
		t.Fatalf("empty epoch: %+v", e)
	}
	if add(5, true, nil) == nil {
		t.Error("a third epoch was held")
	}
	o.Forget(1, 4)
	check(add(5, true, nil))
	if _, err := o.Epoch(3, 1, 0, nil); !errors.Is(err, order.ErrUnknown) {
		t.Fatalf("after Forget: %v", err)
	}
	if _, err := o.Epoch(4, 1, 1, nil); err == nil {
		t.Error("an explicit epoch from the middle: no error")
	}
}

// FuzzSpec: a spec from the wire is refused or gives epochs that hold together.
func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"kind":"torch-distributed","samples":10,"seed":1,"world":3,"batch":2}`))
	f.Add([]byte(`{"kind":"accelerate","samples":9,"batch":6,"world":3,"split_batches":true}`))
	f.Add([]byte(`{"kind":"torch-random","samples":5,"batch":2,"draws":12,"state":"AAAA"}`))
	f.Add([]byte(`{"kind":"torchdata","samples":4,"batch":1,"loader_generator":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s order.Spec
		if json.Unmarshal(text, &s) != nil {
			return
		}
		if s.Validate() != nil || s.Samples > 1<<12 || s.Draws > 1<<12 {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back order.Spec
		if err := json.Unmarshal(again, &back); err != nil || back.Validate() != nil {
			t.Fatalf("%s does not survive its own encoding: %v", again, err)
		}
		o, err := order.New(s)
		if err != nil {
			return
		}
		e, err := o.Epoch(1, s.Ranks()-1, 0, nil)
		if err != nil {
			if !errors.Is(err, order.ErrUnknown) {
				t.Fatal(err)
			}
			return
		}
		if n := e.Batches(); n > 0 {
			if _, hi := e.Bounds(n - 1); hi != len(e.IDs) {
				t.Fatalf("the last batch ends at %d of %d", hi, len(e.IDs))
			}
		}
	})
}
