package plan_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// Laws of the log's set: it fits and uses nearly all of its budget; ram and log share nothing while
// they cannot hold all; neither ram's size nor its policy moves it.
func TestLogSet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		n := in.Sizes.Len()
		records := int64(0)
		for id := range n {
			records += plan.RecordCost(in.Sizes.Size(sample.ID(id)))
		}
		in.Log = records * int64(rapid.IntRange(2, 110).Draw(rt, "log percent")) / 100
		p := made(rt, in)
		in.Keep /= 3
		in.Policy = "lru"
		other := made(rt, in)
		var count, both int
		var bytes, cost int64
		for id := range n {
			id := sample.ID(id)
			if p.InLog(id) != other.InLog(id) {
				rt.Fatalf("sample %d moves when ram does", id)
			}
			if p.InLog(id) {
				size := in.Sizes.Size(id)
				count++
				bytes += int64(size)
				cost += plan.RecordCost(size)
				if p.InSet(id) {
					both++
				}
			}
		}
		if count != p.LogCount || bytes != p.LogBytes || cost != p.LogCost ||
			p.LogAll != (count == n) {
			rt.Fatalf("%d samples of %d bytes, %d in records; the plan says %d, %d, %d, all %t", count,
				bytes, cost, p.LogCount, p.LogBytes, p.LogCost, p.LogAll)
		}
		if cost > in.Log || cost < min(records, in.Log*95/100) {
			rt.Fatalf("the set takes %d of %d", cost, in.Log)
		}
		if want := max(0, p.SetCount+count-n); both != want {
			rt.Fatalf("%d of %d are in ram, %d in the log: %d in both, want %d", p.SetCount, n, count,
				both, want)
		}
	})
}

// Samples that a log does not take are not in its set, and it may be whole without them.
func TestLogLeavesLargeSamplesOut(t *testing.T) {
	s := make(sizes, 1000)
	for i := range s {
		s[i] = 3000
		if i%10 == 0 {
			s[i] = 2 << 20
		}
	}
	for _, log := range []int64{1 << 20, 900 * 3100, 1 << 40} {
		p, err := plan.Make(plan.Input{Sizes: s, Policy: "spread", Staging: 1, Log: log,
			LogMost: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for i := range s {
			if p.InLog(sample.ID(i)) {
				count++
				if s[i] > 1<<20 {
					t.Errorf("sample %d of %d bytes is in the log", i, s[i])
				}
			}
		}
		if all := log > 1<<20; p.LogAll != all || all && count != 900 || count != p.LogCount {
			t.Errorf("log %d: %d samples, said are %d, all %t", log, count, p.LogCount, p.LogAll)
		}
	}
}

func TestRecordCost(t *testing.T) {
	for size, want := range map[uint32]int64{0: 48, 1: 64, 16: 64, 3000: 3056, 65535: 65584,
		65536: 69648, 110_000: 110_608, 131_040: 131_088, 131_041: 135_184} {
		if got := plan.RecordCost(size); got != want {
			t.Errorf("a sample of %d bytes takes %d, want %d", size, got, want)
		}
	}
}
