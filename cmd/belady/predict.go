package main

import (
	"fmt"
	"io"
	"reflect"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"belady/internal/core/dataset"
	"belady/internal/core/perf"
	"belady/internal/core/pump"
	"belady/internal/core/trace"
	"belady/internal/sim"
)

// comparedEpoch is one epoch of a job, as it was predicted and as it was measured.
type comparedEpoch struct {
	Job       int       `json:"job"` // in the order they began
	Ranks     int       `json:"ranks"`
	Epoch     int       `json:"epoch"`
	Predicted epochView `json:"predicted"`
	Measured  epochView `json:"measured"`
}

// epochView is an epoch over all ranks of a job: from the first beginning to the last end, the mean
// stall of a rank, and the bytes of the samples it used by where they came from.
type epochView struct {
	begun, ended pump.Instant

	Time   time.Duration            `json:"time_ns"`
	Waited time.Duration            `json:"stall_ns"`
	Stall  map[string]time.Duration `json:"stall_by_cause_ns"`
	Origin int64                    `json:"origin_bytes"`
	Shared int64                    `json:"shared_bytes"`
	Ssd    int64                    `json:"ssd_bytes"`
	Ram    int64                    `json:"ram_bytes"`
}

// add takes what one of so many ranks saw.
func (v *epochView) add(s *trace.Seen, ranks int) {
	if v.Stall == nil {
		v.begun, v.Stall = s.Begun, map[string]time.Duration{}
	}
	v.begun, v.ended = min(v.begun, s.Begun), max(v.ended, s.Ended)
	v.Time = time.Duration(v.ended - v.begun)
	for cause, d := range s.Stall {
		each := time.Duration(d) / time.Duration(ranks)
		v.Waited += each
		v.Stall[pump.Cause(cause).String()] += each
	}
	v.Origin, v.Shared = v.Origin+s.Origin, v.Shared+s.Shared
	v.Ssd, v.Ram = v.Ssd+s.Ssd, v.Ram+s.Ram
}

// compare lists the epochs that every rank of a job read to the end.
func compare(told, seen *trace.Measured) []comparedEpoch {
	var all []comparedEpoch
	for number, ranks := range jobsOf(seen.Readers) {
		for _, first := range seen.Readers[ranks[0]].Epochs {
			epoch := first.Epoch
			c := comparedEpoch{Job: number, Ranks: len(ranks), Epoch: epoch}
			whole := 0
			for _, i := range ranks {
				t, s := find(told.Readers[i].Epochs, epoch), find(seen.Readers[i].Epochs, epoch)
				if t != nil && s != nil && s.Whole {
					whole++
					c.Predicted.add(t, len(ranks))
					c.Measured.add(s, len(ranks))
				}
			}
			if whole == len(ranks) {
				all = append(all, c)
			}
		}
	}
	return all
}

// jobsOf puts readers of one order together: a rank that comes again begins another job.
func jobsOf(readers []trace.Reader) [][]int {
	var jobs [][]int
	for i := range readers {
		r := &readers[i].Reading
		at := -1
		for k, ranks := range jobs {
			if first := &readers[ranks[0]].Reading; reflect.DeepEqual(first.Order, r.Order) {
				at = k
				for _, other := range ranks {
					if readers[other].Reading.Rank == r.Rank {
						at = -1
					}
				}
			}
		}
		if at < 0 {
			jobs = append(jobs, nil)
			at = len(jobs) - 1
		}
		jobs[at] = append(jobs[at], i)
	}
	return jobs
}

func find(epochs []trace.Seen, epoch int) *trace.Seen {
	for i := range epochs {
		if epochs[i].Epoch == epoch {
			return &epochs[i]
		}
	}
	return nil
}

// predict simulates what a trace recorded over the sources of a profile, and compares.
func (f *simFlags) predict(
	h *trace.Header, set dataset.Sizes, seen *trace.Measured, sources *perf.Profile,
) ([]comparedEpoch, error) {
	p, err := h.Plan(set)
	if err != nil {
		return nil, err
	}
	told, err := sim.Predict(p, seen, sources)
	if err != nil {
		return nil, fmt.Errorf("predict %s with the profile %s: %w", f.replay, f.profile, err)
	}
	return compare(told, seen), nil
}

func printCompared(w io.Writer, all []comparedEpoch) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "job\tepoch\t\tpredicted\tmeasured\t÷\t")
	for i := range all {
		c := &all[i]
		head := fmt.Sprintf("%d\t%d\t", c.Job, c.Epoch)
		row := func(what, told, seen string, a, b float64) {
			ratio := ""
			if b > 0 {
				ratio = fmt.Sprintf("%.3f", a/b)
			}
			fmt.Fprintf(t, "%s%s\t%s\t%s\t%s\t\n", head, what, told, seen, ratio)
			head = "\t\t"
		}
		spans := func(what string, a, b time.Duration) {
			row(what, seconds(a), seconds(b), a.Seconds(), b.Seconds())
		}
		bytes := func(what string, a, b int64) {
			if a > 0 || b > 0 {
				row(what, humanize.Bytes(uint64(a)), humanize.Bytes(uint64(b)), float64(a), float64(b))
			}
		}
		told, seen := &c.Predicted, &c.Measured
		spans("time", told.Time, seen.Time)
		spans("stall", told.Waited, seen.Waited)
		bytes("origin", told.Origin, seen.Origin)
		bytes("shared", told.Shared, seen.Shared)
		bytes("both", told.Origin+told.Shared, seen.Origin+seen.Shared)
		bytes("ssd", told.Ssd, seen.Ssd)
		bytes("ram", told.Ram, seen.Ram)
	}
	return t.Flush()
}
