package strategy_test

import (
	"strings"
	"testing"

	"belady/internal/sim/strategy"
)

// pair is two jobs on one cluster, of one dataset or of two, in different orders.
func pair(same bool) *strategy.Scenario {
	c := listing()
	c.Shared = true
	c.Tiers[0].Capacity, c.Tiers[1].Capacity = 1000*mb, 1000*mb
	s := trained(c, 10_000, 3, 1, 0.1, 1)
	second := trained(c, 10_000, 5, 1, 0.1, 2).Jobs[0]
	if same {
		second.Sizes = s.Jobs[0].Sizes
	}
	s.Jobs = append(s.Jobs, second)
	return s
}

// Jobs take of one origin: each is slower than alone, none is faster than its bound, and the
// results are those of the one that ends last.
func TestJobs(t *testing.T) {
	for _, name := range []string{"naive", "staging", "belady"} {
		for _, same := range []bool{true, false} {
			s := pair(same)
			bound, both := run(t, s, "perfect"), run(t, s, name)
			for i, job := range both.Jobs {
				alone := *s
				alone.Jobs = s.Jobs[i : i+1]
				single := run(t, &alone, name)
				if job.Seconds < bound.Jobs[i].Seconds || job.Seconds < single.Seconds*0.999 && !same {
					t.Errorf("%s: job %d takes %v s, alone %v, at least %v", name, i, job.Seconds,
						single.Seconds, bound.Jobs[i].Seconds)
				}
				if len(job.Epochs) != s.Jobs[i].Epochs {
					t.Errorf("%s: job %d has %d epochs", name, i, len(job.Epochs))
				}
			}
			if both.Seconds != both.Jobs[1].Seconds || len(both.Epochs) != 5 {
				t.Errorf("%s: %v s in %d epochs, the longer job takes %v", name, both.Seconds,
					len(both.Epochs), both.Jobs[1].Seconds)
			}
			want := 3*sum(s.Jobs[0].Sizes) + 5*sum(s.Jobs[1].Sizes)
			if read := sum(both.Bytes[:]); read != want {
				t.Errorf("%s: %v bytes were read of %v", name, read, want)
			}
		}
	}
}

// Jobs of one dataset share what is kept of it: what has a home comes from the origin once.
func TestJobsShare(t *testing.T) {
	s := pair(true)
	r := run(t, s, "belady")
	// Each of the eight tiers may leave less room than a sample takes.
	dataset, pool := sum(s.Jobs[0].Sizes), 8000.0*mb
	least := dataset + 7*(dataset-pool)
	if got := float64(r.OriginBytes()) / least; got < 1 || got > 1+7*8*1.5*mb/least {
		t.Errorf("%.5f of the least", got)
	}
	s = pair(false)
	dataset += sum(s.Jobs[1].Sizes)
	if r := run(t, s, "belady"); float64(r.OriginBytes()) < dataset {
		t.Errorf("%d bytes of the origin of two datasets of %v", r.OriginBytes(), dataset)
	}
	if r := run(t, s, "nopfs"); !strings.Contains(r.Unsupported, "knows one job") {
		t.Errorf("nopfs: %+v", r)
	}
}
