package plan_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

func slot(size uint32) int64 { return (int64(size) + 63) &^ 63 }

func draw(t *rapid.T) plan.Input {
	n := rapid.IntRange(2000, 6000).Draw(t, "samples")
	spread := uint32(rapid.IntRange(0, 3000).Draw(t, "spread"))
	salt := uint32(rapid.IntRange(1, 1000).Draw(t, "salt"))
	s := make(sizes, n)
	total := int64(0)
	for i := range s {
		s[i] = 1000
		if spread > 0 {
			s[i] += uint32(i) * salt * 7919 % spread
		}
		total += slot(s[i])
	}
	return plan.Input{Sizes: s, Seed: rapid.Uint64().Draw(t, "seed"), Policy: "spread",
		Keep: total * int64(rapid.IntRange(10, 99).Draw(t, "percent")) / 100, Staging: 1, Cost: slot}
}

func made(t *rapid.T, in plan.Input) *plan.Plan {
	p, err := plan.Make(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Laws: the set fits the budget and uses nearly all of it; the counts are those of its members; a
// larger budget keeps what a smaller one does.
func TestSpreadSet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		p := made(rt, in)
		if p.SetCost > p.Keep || p.SetCost < p.Keep*98/100 {
			rt.Fatalf("the set takes %d of %d bytes", p.SetCost, p.Keep)
		}
		in.Keep += in.Keep / 10
		larger := made(rt, in)
		var count int
		var bytes, cost int64
		for id := range in.Sizes.Len() {
			if id := sample.ID(id); p.InSet(id) {
				count++
				bytes += int64(in.Sizes.Size(id))
				cost += slot(in.Sizes.Size(id))
				if !larger.InSet(id) {
					rt.Fatalf("sample %d is kept with less and not with more", id)
				}
			}
		}
		if count != p.SetCount || bytes != p.SetBytes || cost != p.SetCost {
			rt.Fatalf("counts: %d, %d bytes, %d; want %d, %d, %d", p.SetCount, p.SetBytes, p.SetCost,
				count, bytes, cost)
		}
	})
}

// Law: who is kept depends on ids and seed alone, not on what comes before: samples added at the
// end leave the hashes of the others in place.
func TestSetIsIndependentOfOthers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		p := made(rt, in)
		seed := in.Seed
		in.Seed = seed + 1
		if q := made(rt, in); p.SetCount < in.Sizes.Len()*9/10 {
			same := 0
			for id := range in.Sizes.Len() {
				if p.InSet(sample.ID(id)) && q.InSet(sample.ID(id)) {
					same++
				}
			}
			if same == p.SetCount {
				rt.Fatalf("another seed keeps the same %d samples", same)
			}
		}
		in.Seed = seed
		if again := made(rt, in); again.SetCost != p.SetCost || again.Digest() != p.Digest() {
			rt.Fatal("the same input gives another plan")
		}
	})
}

func TestEverythingOrNothing(t *testing.T) {
	s := sizes{10, 20, 30}
	for _, c := range []struct {
		keep  int64
		count int
	}{{0, 0}, {60, 3}, {1 << 40, 3}, {9, 0}} {
		p, err := plan.Make(plan.Input{Sizes: s, Policy: "spread", Keep: c.keep, Staging: 1})
		if err != nil {
			t.Fatal(err)
		}
		if p.SetCount != c.count {
			t.Errorf("keep %d: %d samples are kept, want %d", c.keep, p.SetCount, c.count)
		}
	}
	for _, in := range []plan.Input{{Sizes: s, Policy: "best", Staging: 1},
		{Sizes: s, Policy: "spread"}, {Sizes: s, Policy: "spread", Keep: -1, Staging: 1}} {
		if _, err := plan.Make(in); err == nil {
			t.Errorf("%+v made a plan", in)
		}
	}
}

// The digest and the set are contracts between nodes: they change only with plan.Version.
func TestGolden(t *testing.T) {
	s := make(sizes, 1000)
	for i := range s {
		s[i] = uint32(100 + i*37%400)
	}
	in := plan.Input{Content: [32]byte{1, 2, 3}, Sizes: s, Seed: 42, Policy: "spread", Keep: 50_000,
		Staging: 1 << 20}
	p, err := plan.Make(in)
	if err != nil {
		t.Fatal(err)
	}
	var first []sample.ID
	for id := range s {
		if p.InSet(sample.ID(id)) && len(first) < 8 {
			first = append(first, sample.ID(id))
		}
	}
	digest := in.Digest()
	got := fmt.Sprintf("version %d, digest %x, set of %d, %d bytes: %v", plan.Version, digest[:8],
		p.SetCount, p.SetBytes, first)
	const want = "version 2, digest 0d0a6b1b57936af4, set of 175, 49641 bytes: [5 8 10 17 23 24 36 40]"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// BenchmarkMake14M: a plan of 14.2 M samples, half kept.
func BenchmarkMake14M(b *testing.B) {
	s := make(sizes, 14_200_000)
	for i := range s {
		s[i] = uint32(1000 + i*7919%4000)
	}
	for name, log := range map[string]int64{"ram": 0, "ram and log": 10 << 30} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := plan.Make(plan.Input{Sizes: s, Policy: policy.Default(false),
					Keep: 20 << 30, Staging: 1 << 30, Cost: slot, Log: log}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
