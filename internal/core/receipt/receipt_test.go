package receipt_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/receipt"
	"belady/internal/core/sample"
)

// The value of docs/format/wire.md.
func TestReceiptOfABatch(t *testing.T) {
	got, _ := receipt.Of([]sample.ID{10, 1 << 31, 12}, nil)
	if got != 0x45cd316317f3c6f8 {
		t.Errorf("the receipt is %#x", got)
	}
}

// delivered is the account of a session that delivered what change makes of an epoch's ids.
func delivered(
	t require, spec order.Spec, epoch, rank int, position int64, first int,
	change func(batch int, ids []sample.ID),
) receipt.Account {
	o, err := order.New(spec)
	if err != nil {
		t.Fatalf("%v", err)
	}
	e, err := o.Epoch(epoch, rank, position, nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	a := receipt.Account{Reading: receipt.Reading{Order: spec, Rank: rank}, Epoch: epoch,
		Position: position, First: first, Whole: true}
	for b := first; b < e.Batches(); b++ {
		lo, hi := e.Bounds(b)
		ids := append([]sample.ID(nil), e.IDs[lo:hi]...)
		if change != nil {
			change(b, ids)
		}
		r, _ := receipt.Of(ids, nil)
		a.Chain.Add(r, len(ids))
	}
	return a
}

type require interface{ Fatalf(string, ...any) }

func prove(t require, a receipt.Account) receipt.Finding {
	o, err := a.New()
	if err != nil {
		t.Fatalf("%v", err)
	}
	f, err := a.Prove(o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return f
}

func someSpec(t *rapid.T) order.Spec {
	return order.Spec{Kind: order.Distributed, Samples: rapid.IntRange(20, 400).Draw(t, "samples"),
		Seed: rapid.Int64Range(0, 99).Draw(t, "seed"), World: rapid.IntRange(1, 3).Draw(t, "world"),
		Batch: rapid.IntRange(1, 9).Draw(t, "batch")}
}

// Whatever was delivered is proved if it is the order's, from any position and batch; one changed
// batch is found and named. Records survive being written.
func TestProof(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := someSpec(t)
		epoch, rank := rapid.IntRange(0, 5).Draw(t, "epoch"),
			rapid.IntRange(0, spec.World-1).Draw(t, "rank")
		position := rapid.Int64Range(0, int64(spec.Samples)/2).Draw(t, "position")
		whole := delivered(t, spec, epoch, rank, position, 0, nil)
		due := whole.Chain.Batches
		first := rapid.IntRange(0, due-1).Draw(t, "first")
		a := delivered(t, spec, epoch, rank, position, first, nil)
		if f := prove(t, a); f.Differs || f.Due != due {
			t.Fatalf("what is right is found wrong: %+v", f)
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var again receipt.Account
		if err := json.Unmarshal(text, &again); err != nil || cmp.Diff(a, again) != "" {
			t.Fatalf("%v: it changed: %s", err, cmp.Diff(a, again))
		}
		wrong := rapid.IntRange(first, due-1).Draw(t, "wrong")
		a = delivered(t, spec, epoch, rank, position, first, func(b int, ids []sample.ID) {
			if b == wrong {
				ids[0]++
			}
		})
		if f := prove(t, a); !f.Differs || f.From != wrong || f.To != wrong {
			t.Fatalf("batch %d is wrong, and found is %+v", wrong, f)
		}
	})
}

// A long epoch has few marks: the stretch that is named holds the wrong batch and is short.
func TestLongEpochsAreProvedInStretches(t *testing.T) {
	spec := order.Spec{Kind: order.Sequential, Samples: 50_000, Batch: 1}
	for _, wrong := range []int{0, 1, 1023, 1024, 8191, 8192, 33_333, 49_999} {
		a := delivered(t, spec, 0, 0, 0, 0, func(b int, ids []sample.ID) {
			if b == wrong {
				ids[0] = 7_000_000
			}
		})
		if len(a.Chain.Marks) > receipt.MaxMarks {
			t.Errorf("there are %d marks", len(a.Chain.Marks))
		}
		f := prove(t, a)
		if !f.Differs || f.From > wrong || f.To < wrong || f.To-f.From >= a.Chain.Stride {
			t.Errorf("batch %d is wrong, and found is %+v", wrong, f)
		}
	}
}

// Batches put together otherwise, an epoch cut short or run on, another rank's samples: all differ.
func TestOtherDeliveriesDiffer(t *testing.T) {
	spec := order.Spec{Kind: order.Distributed, Samples: 100, Seed: 3, World: 2, Batch: 8}
	for name, change := range map[string]func(a *receipt.Account){
		"batches of another size": func(a *receipt.Account) { a.Order.Batch = 4 },
		"another seed":            func(a *receipt.Account) { a.Order.Seed = 4 },
		"another epoch":           func(a *receipt.Account) { a.Epoch = 2 },
		"another rank":            func(a *receipt.Account) { a.Rank = 1 },
		"another position":        func(a *receipt.Account) { a.Position = 2 },
		"another first batch":     func(a *receipt.Account) { a.First = 1 },
		"another count":           func(a *receipt.Account) { a.Chain.Samples-- },
		"cut short":               func(a *receipt.Account) { a.Order.Samples = 200 },
		"run on":                  func(a *receipt.Account) { a.Chain.Add(1, 8) },
		"without an end":          func(a *receipt.Account) { a.Whole = false },
	} {
		a := delivered(t, spec, 1, 0, 0, 0, nil)
		change(&a)
		if f := prove(t, a); !f.Differs || f.From > f.To {
			t.Errorf("%s: %+v", name, f)
		}
	}
	a := delivered(t, spec, 1, 0, 0, 0, nil)
	a.Chain.Marks = a.Chain.Marks[1:]
	o, err := a.New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Prove(o); err == nil || !strings.Contains(err.Error(), "marks") {
		t.Errorf("an account with a mark too few gives %v", err)
	}
}

// Accounts of sessions that overlap, or leave gaps, count each batch once.
func TestProveAll(t *testing.T) {
	spec := order.Spec{Kind: order.Distributed, Samples: 100, Seed: 3, World: 2, Batch: 8}
	whole := delivered(t, spec, 0, 0, 0, 0, nil)
	tail := delivered(t, spec, 0, 1, 0, 4, nil)
	meant := whole
	meant.Epoch, meant.Chain = 1, receipt.Chain{}
	wrong := delivered(t, spec, 2, 1, 0, 0, func(b int, ids []sample.ID) { ids[0] += sample.ID(b) })
	got, err := receipt.ProveAll([]receipt.Account{wrong, tail, meant, whole, tail, whole}, -1)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v: %+v", err, got)
	}
	if e := got[0]; e.Number != 0 || e.Wrong() || e.Whole() || e.Ranks[0].Sent != 7 ||
		e.Ranks[1].Sent != 3 || e.Ranks[1].Due != 7 {
		t.Errorf("epoch 0: %+v", e)
	}
	if e := got[1]; e.Number != 1 || e.Wrong() || e.Whole() || e.Ranks[0].Sent != 0 {
		t.Errorf("epoch 1: %+v", e)
	}
	if e := got[2]; !e.Wrong() || !strings.Contains(e.Ranks[0].Wrong, "batch 1 ") {
		t.Errorf("epoch 2: %+v", e)
	}
	if got, err = receipt.ProveAll([]receipt.Account{wrong, whole}, 0); err != nil || len(got) != 1 {
		t.Errorf("%v: %+v", err, got)
	}
}

// Ranks are sent what is left of an epoch, each entry once, and what is listed as padding;
// drop_last leaves some of both out.
func TestPaddingIsListed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := someSpec(t)
		spec.Kind = rapid.SampledFrom([]string{order.Distributed, order.Accelerate}).Draw(t, "kind")
		spec.DropLast = rapid.Bool().Draw(t, "drop last")
		position := rapid.Int64Range(0, int64(spec.Samples)).Draw(t, "position")
		surplus := map[sample.ID]int{} // sent, less what is left of the epoch
		count := func(by int) func(int, []sample.ID) {
			return func(_ int, ids []sample.ID) {
				for _, id := range ids {
					surplus[id] += by
				}
			}
		}
		var accounts []receipt.Account
		for rank := range spec.World {
			accounts = append(accounts, delivered(t, spec, 1, rank, position, 0, count(1)))
		}
		alone := spec
		alone.World, alone.DropLast = 1, false
		delivered(t, alone, 1, 0, position, 0, count(-1))
		got, err := receipt.ProveAll(accounts, -1)
		if err != nil || len(got) != 1 || got[0].Wrong() || !got[0].Whole() {
			t.Fatalf("%v: %+v", err, got)
		}
		padding := got[0].Padding
		for _, p := range padding {
			surplus[p.Sample]--
		}
		for id, n := range surplus {
			if n > 0 || n < 0 && !spec.DropLast {
				t.Fatalf("sample %d was sent %+d times beside the epoch and its padding", id, n)
			}
		}
		if len(padding) == 0 {
			return
		}
		rank := &accounts[padding[0].Rank]
		rank.Chain, rank.Whole = receipt.Chain{}, false
		got, err = receipt.ProveAll(accounts, -1)
		if err != nil || len(got[0].Padding) >= len(padding) {
			t.Fatalf("%v: padding that was not sent is listed: %+v", err, got[0].Padding)
		}
	})
}

// Workers share an epoch; their accounts together are the whole of it, and a wrong one is named.
func TestShares(t *testing.T) {
	spec := order.Spec{Kind: order.Random, Samples: 100, Seed: 3, Batch: 8}
	o, err := order.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	e, err := o.Epoch(0, 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	share := func(first, step, wrong int) receipt.Account {
		a := receipt.Account{Reading: receipt.Reading{Order: spec}, First: first, Step: step,
			Whole: true}
		for b := first; b < e.Batches(); b += step {
			lo, hi := e.Bounds(b)
			if b == wrong {
				lo--
			}
			r, _ := receipt.Of(e.IDs[lo:hi], nil)
			a.Chain.Add(r, hi-lo)
		}
		return a
	}
	shares := []receipt.Account{share(0, 3, -1), share(1, 3, -1), share(2, 3, -1)}
	got, err := receipt.ProveAll(shares, -1)
	if err != nil || len(got) != 1 || got[0].Wrong() || !got[0].Whole() || got[0].Ranks[0].Sent != 13 {
		t.Errorf("%v: %+v", err, got)
	}
	if got, _ = receipt.ProveAll(shares[:2], -1); got[0].Wrong() || got[0].Ranks[0].Sent != 9 {
		t.Errorf("two of three: %+v", got)
	}
	shares[1] = share(1, 3, 7)
	got, _ = receipt.ProveAll(shares, -1)
	if !strings.HasPrefix(got[0].Ranks[0].Wrong, "batch 7 ") {
		t.Errorf("batch 7 of the second share: %+v", got)
	}
}

// Weighted orders are computed from their members' lengths.
func TestWeighted(t *testing.T) {
	r := receipt.Reading{Members: []receipt.Member{{Name: "a", Samples: 10, Weight: 1},
		{Name: "b", Samples: 30, Weight: 2}},
		Order: order.Spec{Kind: order.Weighted, Samples: 40, Seed: 1, Batch: 4}}
	o, err := r.New()
	if err != nil {
		t.Fatal(err)
	}
	e, err := o.Epoch(0, 0, 0, nil)
	if err != nil || e.Batches() != 10 {
		t.Fatalf("%v: %+v", err, e)
	}
}
