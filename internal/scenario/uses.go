package scenario

import (
	"context"
	"fmt"

	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
)

// uses counts how many samples a node reads more often than Trials.Above times, by arithmetic and
// by reading the order, which is the one that training would get.
func (s *Scenario) uses(ctx context.Context, o Options, report *Report) error {
	expected, err := perf.Above(s.Dataset.Samples, s.Nodes.Count, s.Job.Epochs, s.Trials.Above)
	if err != nil {
		return err
	}
	counts, err := s.count(ctx, o)
	if err != nil {
		return err
	}
	seen := 0
	for _, node := range counts {
		for _, n := range node {
			if n > s.Trials.Above {
				seen++
			}
		}
	}
	mean := float64(seen) / float64(s.Nodes.Count)
	what := fmt.Sprintf("samples that a node uses more than %d times", s.Trials.Above)
	theirs := s.Published.Uses
	report.Uses = []Verdict{
		compare(what+", expected", expected, theirs, s.Bars.Uses, expected/theirs-1),
		compare(what+", in the order, mean of all nodes", mean, theirs, s.Bars.Uses, mean/theirs-1)}
	for _, v := range report.Uses {
		report.count(v.Says)
	}
	return nil
}

// count adds up the uses of all epochs, a few at a time: a plan's counts end at 255, and a run that
// is no longer wanted ends between them.
func (s *Scenario) count(ctx context.Context, o Options) ([][]int, error) {
	const most, reads = 200, 1 << 24
	few := min(max(reads/s.Dataset.Samples, 1), most)
	spec := s.orders(s.Nodes.Count)[0]
	spec.Batch = 1
	read, err := order.New(spec)
	if err != nil {
		return nil, err
	}
	sums := make([][]int, s.Nodes.Count)
	for node := range sums {
		sums[node] = make([]int, s.Dataset.Samples)
	}
	for from := 0; from < s.Job.Epochs; from += few {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		u := plan.NewUses(s.Nodes.Count, s.Dataset.Samples)
		to := min(from+few, s.Job.Epochs)
		if err := u.Count(read, s.Nodes.Count, from, to); err != nil {
			return nil, err
		}
		for node := range u {
			for id, n := range u[node] {
				sums[node][id] += int(n)
			}
		}
		o.Progress("uses", int64(to), int64(s.Job.Epochs))
	}
	return sums, nil
}
