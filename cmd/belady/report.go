package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"belady/internal/node/wire"
	"belady/internal/node/world"
)

type worldStatus = world.Status

// readReport is what `belady read` prints.
type readReport struct {
	Samples int           `json:"samples"`
	World   int           `json:"world"`
	Epochs  []epochReport `json:"epochs"`
}

// epochReport is one epoch as a rank saw it.
type epochReport struct {
	Epoch          int                        `json:"epoch"`
	Start          time.Time                  `json:"start"` // of the first request
	End            time.Time                  `json:"end"`   // of the last release
	Batches        int                        `json:"batches"`
	Samples        int64                      `json:"samples"`
	Bytes          int64                      `json:"bytes"`
	OriginBytes    int64                      `json:"origin_bytes"` // of all ranks of the node
	SsdBytes       int64                      `json:"ssd_bytes"`    // likewise
	OriginKnown    bool                       `json:"origin_bytes_known"`
	MinOriginBytes int64                      `json:"min_origin_bytes"`
	Compute        time.Duration              `json:"compute_ns"`
	First          time.Duration              `json:"first_batch_ns"`
	Away           time.Duration              `json:"reconnecting_ns"`
	Stall          [wire.Causes]time.Duration `json:"-"`
	Roofline       time.Duration              `json:"roofline_ns"`
	RateKnown      bool                       `json:"origin_rate_known"`
}

// MarshalJSON names the causes of stall.
func (e epochReport) MarshalJSON() ([]byte, error) {
	type plain epochReport
	stall := map[string]time.Duration{}
	for cause, d := range e.Stall {
		stall[wire.Cause(cause).String()] = d
	}
	return json.Marshal(struct {
		plain
		Stall map[string]time.Duration `json:"stall_ns"`
	}{plain(e), stall})
}

func (e *epochReport) seconds() float64 { return e.End.Sub(e.Start).Seconds() }

// print writes a table for people.
func (r *readReport) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "epoch\ttime\tsamples/s\tread\tfrom memory\tfrom ssd\tfrom origin\twaited\tfor\t"+
		"× roofline\t")
	for i := range r.Epochs {
		e := &r.Epochs[i]
		waited, what := e.waited()
		kept, ssd, fetched := "–", "–", "–"
		if e.OriginKnown {
			ssd, fetched = humanize.Bytes(uint64(e.SsdBytes)), humanize.Bytes(uint64(e.OriginBytes))
		}
		if e.OriginKnown && r.World == 1 {
			kept = humanize.Bytes(uint64(max(0, e.Bytes-e.OriginBytes-e.SsdBytes)))
		}
		fmt.Fprintf(t, "%d\t%.2fs\t%.0f\t%s\t%s\t%s\t%s\t%.2fs\t%s\t%s\t\n", e.Epoch, e.seconds(),
			float64(e.Samples)/e.seconds(), humanize.Bytes(uint64(e.Bytes)), kept, ssd, fetched,
			waited.Seconds(), what, e.distance())
	}
	_ = t.Flush()
	if n := len(r.Epochs); n > 0 && !r.Epochs[n-1].RateKnown {
		fmt.Fprintln(w, "The roofline counts computing only: give --origin-rate to count the origin.")
	}
	if r.World > 1 {
		fmt.Fprintln(w, "What came from ssd and origin is the node's, for all of its ranks.")
	}
}

// waited adds up the stalls and names the largest.
func (e *epochReport) waited() (time.Duration, string) {
	total, most, what := e.First+e.Away, time.Duration(0), "–"
	if e.First > 0 {
		most, what = e.First, "first batch"
	}
	for cause, d := range e.Stall {
		total += d
		if d > most && d > time.Millisecond && wire.Cause(cause) != wire.CauseNone {
			most, what = d, wire.Cause(cause).String()
		}
	}
	return total, what
}

func (e *epochReport) distance() string {
	if e.Roofline <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f", e.seconds()/e.Roofline.Seconds())
}
