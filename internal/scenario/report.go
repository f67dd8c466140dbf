package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"belady/internal/sim"
	"belady/internal/yamlfile"
)

// Report is what a scenario gave, beside what was published.
type Report struct {
	Title   string      `json:"title"`
	Summary string      `json:"summary"` // of the machines and the job, in one line
	Source  string      `json:"published_in,omitempty"`
	Engine  string      `json:"engine"`
	Notes   []string    `json:"notes,omitempty"`
	Rows    []Result    `json:"rows,omitempty"`
	Rings   []RingPoint `json:"ring,omitempty"`
	Uses    []Verdict   `json:"uses,omitempty"`
	Claims  []Verdict   `json:"claims,omitempty"`
	Ranking *Ranking    `json:"ranking,omitempty"`
	Missed  int         `json:"missed"` // how many bars are not held
	// PublishedBound is the published seconds of the lower bound, if any.
	PublishedBound float64 `json:"published_bound_seconds,omitempty"`
}

// Result is a row, at one size of the sweep.
type Result struct {
	Name   string `json:"name"`
	Use    string `json:"use"`
	Engine string `json:"engine"`
	At     Cell   `json:"at"`
	// Unsupported says why the row cannot be run at all, Note what must be known of one that can.
	Unsupported string `json:"unsupported,omitempty"`
	Note        string `json:"note,omitempty"`
	// Seconds is the whole job's (model), or the mean of an epoch after the first (pump).
	Seconds float64   `json:"seconds"`
	Ratio   float64   `json:"times_lower_bound"`
	Epochs  []float64 `json:"epoch_seconds,omitempty"`
	Stall   float64   `json:"stall_seconds"`
	Fill    float64   `json:"fill_seconds"` // before the first batch could be read
	// Bytes is what training was given, by where it came from (pump: after the first epoch); Busy
	// is the time that it took.
	Bytes  map[string]int64   `json:"bytes,omitempty"`
	Busy   map[string]float64 `json:"busy_seconds,omitempty"`
	Origin Least              `json:"origin"`
	Hits   *float64           `json:"hits,omitempty"` // after the first epoch, of all reads
	// PublishedSeconds is what the verdict's ratio was made of, if it is one.
	PublishedSeconds float64 `json:"published_seconds,omitempty"`
	Verdict
}

// Least is what the origin sent, beside the least that it can be for one who reads the whole
// dataset in every epoch.
type Least struct {
	Bytes int64   `json:"bytes"`
	Least int64   `json:"least_bytes"`
	Ratio float64 `json:"times_least,omitempty"`
}

func newLeast(sent, least int64) Least {
	l := Least{Bytes: sent, Least: least}
	if least > 0 {
		l.Ratio = float64(sent) / float64(least)
	}
	return l
}

// Verdict compares one number with a published one.
type Verdict struct {
	What      string  `json:"what,omitempty"`
	Ours      float64 `json:"ours,omitempty"`
	Published float64 `json:"published,omitempty"`
	Off       float64 `json:"off,omitempty"`  // ours ÷ published − 1; of hit ratios the difference
	Bar       float64 `json:"bar,omitempty"`  // how far off it may be; 0: it is not judged
	Says      Say     `json:"says,omitempty"` // empty: nothing was published
}

// Say is what a verdict says.
type Say string

// The verdicts.
const (
	Holds  Say = "ok"
	Missed Say = "MISSED"
	Shown  Say = "shown" // beside what was published, with no bar
)

// compare makes a verdict of two numbers.
func compare(what string, ours, published, bar float64, off float64) Verdict {
	v := Verdict{What: what, Ours: ours, Published: published, Off: off, Bar: bar, Says: Shown}
	switch {
	case bar > 0 && math.Abs(off) <= bar:
		v.Says = Holds
	case bar > 0:
		v.Says = Missed
	}
	return v
}

// Ranking is rows from the fastest on, as they must be and as they are.
type Ranking struct {
	Wanted []string `json:"wanted"`
	Got    []string `json:"got"`
	Says   Say      `json:"says"`
}

// RingPoint is the trials with one number of points.
type RingPoint struct {
	sim.RingResult
	Published float64 `json:"published_receivers,omitempty"`
	Verdict   Verdict `json:"verdict"` // of the receivers, against points at random places
}

// Cell is a size of a sweep; empty where there is none.
type Cell struct {
	Ram  *int64  `json:"ram,omitempty"`
	Ssd  *int64  `json:"ssd,omitempty"`
	Kept float64 `json:"kept,omitempty"`
}

func (c Cell) String() string {
	var parts []string
	for _, part := range []struct {
		name  string
		bytes *int64
	}{{"ram", c.Ram}, {"ssd", c.Ssd}} {
		if part.bytes != nil {
			parts = append(parts, part.name+" "+SizeText(*part.bytes))
		}
	}
	if c.Kept > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %% kept", 100*c.Kept))
	}
	return strings.Join(parts, ", ")
}

// SizeText is a capacity as a file has it: whole gigabytes, or megabytes.
func SizeText(bytes int64) string {
	if bytes%1e9 != 0 && bytes%1e6 == 0 {
		return humanize.Comma(bytes/1e6) + " MB"
	}
	return humanize.Bytes(uint64(bytes))
}

// judge compares the report with what was published, and counts what is missed.
func (s *Scenario) judge(r *Report) {
	r.PublishedBound = s.Published.Seconds[perfect]
	for i := range r.Rows {
		s.judgeRow(&r.Rows[i])
		r.count(r.Rows[i].Says)
	}
	for _, c := range s.Claims {
		if v, ran := s.judgeClaim(c, r.Rows); ran {
			r.Claims = append(r.Claims, v)
			r.count(v.Says)
		}
	}
	if wanted := s.Bars.Ranking; len(wanted) > 0 && s.ranAll(r.Rows, wanted) {
		got := slices.Clone(wanted)
		slices.SortStableFunc(got, func(a, b string) int {
			return int(math.Copysign(1, find(r.Rows, a).Seconds-find(r.Rows, b).Seconds))
		})
		r.Ranking = &Ranking{wanted, got, Holds}
		if !slices.Equal(wanted, got) {
			r.Ranking.Says = Missed
		}
		r.count(r.Ranking.Says)
	}
}

func (r *Report) count(says Say) {
	if says == Missed {
		r.Missed++
	}
}

func find(rows []Result, name string) *Result {
	for i := range rows {
		if rows[i].Name == name && rows[i].Unsupported == "" {
			return &rows[i]
		}
	}
	return nil
}

func (s *Scenario) ranAll(rows []Result, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return find(rows, name) == nil })
}

// judgeRow compares a row's seconds, its ratio to the lower bound, or its hit ratio. One that
// cannot be run is as far off as can be.
func (s *Scenario) judgeRow(r *Result) {
	published, bound := s.Published.Seconds[r.Name], s.Published.Seconds[perfect]
	p := s.point(r)
	if p != nil {
		published = p.Seconds
	}
	r.PublishedSeconds = published
	what, ours, theirs, bar := "seconds", r.Seconds, published, s.Bars.Seconds
	switch {
	case p != nil && p.Hits > 0:
		what, theirs, bar = "hits", p.Hits, s.Bars.Hits
	case p != nil:
	case published == 0:
		return
	case r.Use == perfect || bound == 0:
		bar = s.Bars.LowerBound
	default:
		what, ours, theirs, bar = "times the lower bound", r.Ratio, published/bound, s.Bars.Ratio
	}
	switch {
	case r.Unsupported != "":
		r.Verdict = compare(what, 0, theirs, bar, -1)
		if bar > 0 {
			r.Says = Missed // a bar of 1 too
		}
	case what == "hits":
		r.Verdict = compare(what, *r.Hits, theirs, bar, *r.Hits-theirs)
	default:
		r.Verdict = compare(what, ours, theirs, bar, ours/theirs-1)
	}
}

// point is what was published of a row at its size.
func (s *Scenario) point(r *Result) *Point {
	same := func(ours *int64, theirs yamlfile.Bytes) bool {
		return ours == nil || *ours == int64(theirs)
	}
	for i := range s.Published.Points {
		p := &s.Published.Points[i]
		if p.Row == r.Name && same(r.At.Ram, p.Ram) && same(r.At.Ssd, p.Ssd) && p.Kept == r.At.Kept {
			return p
		}
	}
	return nil
}

// judgeClaim compares the ratio of two rows; ran is false where one of them was not run.
func (s *Scenario) judgeClaim(c Claim, rows []Result) (v Verdict, ran bool) {
	of, over := find(rows, c.Of), find(rows, c.Over)
	if c.Over == best {
		for i := range rows {
			r := &rows[i]
			theirs := r.Unsupported == "" && r.Use != perfect && r.Use != belady
			if theirs && (over == nil || r.Seconds < over.Seconds) {
				over = r
			}
		}
	}
	if of == nil || over == nil || over.Seconds == 0 {
		return v, false
	}
	what := fmt.Sprintf("%s ÷ %s", c.Of, over.Name)
	if c.Over == best {
		what = fmt.Sprintf("%s ÷ the best (%s)", c.Of, over.Name)
	}
	ours := of.Seconds / over.Seconds
	return compare(what, ours, c.Is, c.Within, ours/c.Is-1), true
}
