package pump_test

import (
	"testing"

	"belady/internal/core/plan"
	"belady/internal/core/policy"
)

// Law: in steady state Step allocates nothing, under any policy.
func TestStepAllocatesNothing(t *testing.T) {
	s := make(sizes, 20_000)
	total := int64(0)
	for i := range s {
		s[i] = uint32(1000 + i*7919%4000)
		total += int64(s[i])
	}
	for i, rule := range append(policy.Names(), policy.Names()...) {
		in := plan.Input{Sizes: s, Policy: rule, Keep: total / 2, Staging: 8 << 20, Cost: slot}
		if i < len(policy.Table) {
			in.Log, in.Carry = total/4, true
		}
		p, err := plan.Make(in)
		if err != nil {
			t.Fatal(err)
		}
		l := newLoop(t, p, 64)
		for l.epochs < 3 {
			l.step()
		}
		if allocs := testing.AllocsPerRun(500, func() { l.step() }); allocs != 0 {
			t.Errorf("%s, log of %d: %v allocations a step", rule, in.Log, allocs)
		}
	}
}
