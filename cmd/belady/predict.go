package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"belady/internal/core/dataset"
	"belady/internal/core/perf"
	"belady/internal/core/pump"
	"belady/internal/core/trace"
	"belady/internal/sim"
)

// predict simulates what a trace recorded over the sources of a profile, and compares.
func (f *simFlags) predict(
	h *trace.Header, set dataset.Sizes, seen *trace.Measured, sources *perf.Profile,
) ([]trace.Compared, error) {
	p, err := h.Plan(set)
	if err != nil {
		return nil, err
	}
	told, err := sim.Predict(p, seen, sources)
	if err != nil {
		return nil, fmt.Errorf("predict %s: %w", f.replay, err)
	}
	return trace.Compare(told, seen), nil
}

func printCompared(w io.Writer, all []trace.Compared) error {
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
		spans := func(what string, a, b pump.Instant) {
			row(what, seconds(time.Duration(a)), seconds(time.Duration(b)), float64(a), float64(b))
		}
		bytes := func(what string, a, b int64) {
			if a > 0 || b > 0 {
				row(what, humanize.Bytes(uint64(a)), humanize.Bytes(uint64(b)), float64(a), float64(b))
			}
		}
		told, seen := &c.Predicted, &c.Measured
		spans("time", told.Time, seen.Time)
		spans("stall", told.Stall, seen.Stall)
		bytes("origin", told.Origin, seen.Origin)
		bytes("ssd", told.Ssd, seen.Ssd)
		bytes("ram", told.Ram, seen.Ram)
		bytes("shared", told.Shared, seen.Shared)
		if told.Shared > 0 || seen.Shared > 0 {
			bytes("origin, with shared", told.FromOrigin(), seen.FromOrigin())
			bytes("ssd, with shared", told.FromSsd(), seen.FromSsd())
		}
	}
	return t.Flush()
}
