package plan_test

import (
	"testing"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

type sizes []uint32

func (s sizes) Len() int                 { return len(s) }
func (s sizes) Size(id sample.ID) uint32 { return s[id] }

// A few giants must not empty the kept set, wherever their hashes fall.
func TestGiantsDoNotEmptyTheSet(t *testing.T) {
	for seed := range uint64(50) {
		s := make(sizes, 10_000)
		for i := range s {
			s[i] = 100_000
			if i%1000 == 0 {
				s[i] = 400_000_000
			}
		}
		const keep = 500_000_000
		p, err := plan.Make(plan.Input{Sizes: s, Seed: seed, Policy: "spread", Keep: keep,
			Staging: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if p.SetCost > keep || p.SetCost < keep*98/100 {
			t.Errorf("seed %d: the set takes %d of %d bytes", seed, p.SetCost, keep)
		}
		if p.InSet(0) {
			t.Errorf("seed %d: a giant of 80 %% of the budget is kept", seed)
		}
	}
}

// Where all but a giant fit, all but the giant are kept, and the counts are those of the set.
func TestAllButTheGiantFit(t *testing.T) {
	s := make(sizes, 1000)
	for i := range s {
		s[i] = 100 + uint32(i%7)
	}
	s[17] = 1 << 30
	for _, keep := range []int64{40_000, 110_000, 200_000} {
		p, err := plan.Make(plan.Input{Sizes: s, Seed: 3, Policy: "spread", Keep: keep,
			Staging: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		count, bytes := 0, int64(0)
		for i := range s {
			if p.InSet(sample.ID(i)) {
				count++
				bytes += int64(s[i])
			}
		}
		if count != p.SetCount || bytes != p.SetBytes || bytes != p.SetCost || bytes > keep {
			t.Errorf("keep %d: %d samples of %d bytes, said are %d of %d", keep, count, bytes,
				p.SetCount, p.SetBytes)
		}
		if keep >= 110_000 && count != len(s)-1 {
			t.Errorf("keep %d: %d of %d are kept", keep, count, len(s)-1)
		}
	}
}
