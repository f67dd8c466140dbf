package show

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"belady/internal/chart"
	"belady/internal/scenario"
)

// Drawing draws itself as SVG.
type Drawing interface{ Draw(w io.Writer) error }

// Pictures are those that a report asks for, the most telling first: bars where rows are compared
// at one size, a grid where two sizes change, curves where one does.
func Pictures(r *scenario.Report) []Drawing {
	switch {
	case len(r.Rings) > 0:
		return []Drawing{ringPicture(r)}
	case r.Uses != nil:
		return []Drawing{usesPicture(r)}
	case !swept(r):
		return []Drawing{barsPicture(r)}
	case r.Rows[0].At.Kept > 0:
		return []Drawing{curves(r, "hit ratio after the first epoch", hits),
			curves(r, "epoch after the first ÷ roofline", over)}
	}
	return []Drawing{gridPicture(r)}
}

// sources are the parts of a bar, in the order in which they are drawn.
var sources = []struct{ key, name string }{{"", "filling before the first batch"},
	{"ram", "own ram"}, {"ssd", "own ssd"}, {"peer", "peers"}, {"origin", "origin"},
	{"", "compute alone"}}

// barsPicture shows each row's time, split by the share of reading time with each source, as
// NoPFS's Fig. 7 does.
func barsPicture(r *scenario.Report) Drawing {
	s := &chart.Stacked{Title: r.Title, Subtitle: r.Summary,
		Axis: "seconds of the whole job, split by the reading time spent with each source"}
	if r.Engine == scenario.Pump {
		s.Axis = "seconds of an epoch after the first, split by the bytes from each source"
	}
	for _, source := range sources {
		if r.Engine == scenario.Pump && source.key == "ram" {
			source.name = "ram, or still in staging"
		}
		s.Parts = append(s.Parts, source.name)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Unsupported != "" {
			s.Bars = append(s.Bars, chart.Bar{Name: row.Name, Note: "not possible here"})
			continue
		}
		bar := chart.Bar{Name: row.Name, Parts: parts(row), Mark: row.PublishedSeconds,
			Note: fmt.Sprintf("%s s = %.2f×", number(row.Seconds), row.Ratio)}
		if r.Engine == scenario.Pump {
			bar.Note = fmt.Sprintf("%s s, %.2f × its roofline", number(row.Seconds), row.Ratio)
		}
		if row.PublishedSeconds > 0 {
			s.Mark = "published"
		}
		if row.Use == "perfect" {
			s.Line, s.LineName = row.Seconds, "lower bound (1.00×)"
		}
		s.Bars = append(s.Bars, bar)
	}
	return s
}

// parts splits a row's seconds.
func parts(row *scenario.Result) []float64 {
	shares, sum := make([]float64, len(sources)), 0.0
	for i, source := range sources {
		if source.key == "" {
			continue
		}
		shares[i] = row.Busy[source.key]
		if row.Busy == nil {
			shares[i] = float64(row.Bytes[source.key])
		}
		sum += shares[i]
	}
	if sum == 0 {
		sum, shares[len(shares)-1] = 1, 1
	}
	for i := range shares {
		shares[i] *= (row.Seconds - row.Fill) / sum
	}
	shares[0] = row.Fill
	return shares
}

func hits(row *scenario.Result) float64 { return *row.Hits }
func over(row *scenario.Result) float64 { return row.Ratio }

// curves shows a value of each row over the kept share. Rows whose curves lie on one another are
// drawn as one, with all their names.
func curves(r *scenario.Report, y string, value func(*scenario.Result) float64) Drawing {
	l := &chart.Lines{Title: r.Title, Subtitle: r.Summary, X: "share of the dataset kept, %", Y: y}
	var all []chart.Series
	for i := range r.Rows {
		row := &r.Rows[i]
		if len(all) == 0 || all[len(all)-1].Name != row.Name {
			all = append(all, chart.Series{Name: row.Name})
		}
		s, x := &all[len(all)-1], 100*row.At.Kept
		s.Points = append(s.Points, [2]float64{x, value(row)})
		if row.What == "hits" && row.Ours == value(row) {
			s.Published = append(s.Published, [2]float64{x, row.Published})
		}
	}
	for _, s := range all {
		if at := slices.IndexFunc(l.Series, func(t chart.Series) bool { return same(s, t) }); at >= 0 {
			t := &l.Series[at]
			t.Name, t.Published = t.Name+", "+s.Name, append(t.Published, s.Published...)
			continue
		}
		l.Series = append(l.Series, s)
	}
	return l
}

// same tells whether an eye would see one curve.
func same(a, b chart.Series) bool {
	for i, p := range a.Points {
		if i >= len(b.Points) || math.Abs(p[1]-b.Points[i][1]) > 0.005 {
			return false
		}
	}
	return true
}

// gridPicture shows the first row's seconds over ram and ssd, the published ones below ours.
func gridPicture(r *scenario.Report) Drawing {
	g := &chart.Grid{Title: r.Title, X: "ssd of a node", Y: "ram of a node"}
	name := r.Rows[0].Name
	g.Subtitle = fmt.Sprintf("%s: seconds of the job (published below) over %s", name, r.Summary)
	place := func(names *[]string, size *int64) int {
		label := "none"
		if size != nil && *size > 0 {
			label = scenario.SizeText(*size)
		}
		if i := slices.Index(*names, label); i >= 0 {
			return i
		}
		*names = append(*names, label)
		return len(*names) - 1
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Name != name {
			break
		}
		y, x := place(&g.Rows, row.At.Ram), place(&g.Columns, row.At.Ssd)
		if y == len(g.Values) {
			g.Values, g.Text = append(g.Values, nil), append(g.Text, nil)
		}
		words := number(row.Seconds)
		if row.PublishedSeconds > 0 {
			words += "\n(" + number(row.PublishedSeconds) + ")"
		}
		if x == len(g.Values[y]) {
			g.Values[y], g.Text[y] = append(g.Values[y], row.Seconds), append(g.Text[y], words)
		}
	}
	return g
}

func ringPicture(r *scenario.Report) Drawing {
	ours := chart.Series{Name: "nodes that receive a lost node's samples"}
	hash := chart.Series{Name: "points at random places"}
	for _, p := range r.Rings {
		x := float64(p.Points)
		ours.Points = append(ours.Points, [2]float64{x, p.Receivers.Mean})
		hash.Points = append(hash.Points, [2]float64{x, p.Perfect})
		if p.Published > 0 {
			ours.Published = append(ours.Published, [2]float64{x, p.Published})
		}
	}
	return &chart.Lines{Title: r.Title, Subtitle: r.Summary, X: "points a node", Y: "nodes",
		LogX: true, Series: []chart.Series{ours, hash}}
}

func usesPicture(r *scenario.Report) Drawing {
	s := &chart.Stacked{Title: r.Title, Subtitle: r.Summary, Mark: "published",
		Parts: []string{"", "ours"}} // the first part's grey is for what comes before a run
	for i, name := range []string{"expected", "in the order"} {
		v := r.Uses[i]
		s.Axis, _, _ = strings.Cut(v.What, ",")
		s.Bars = append(s.Bars, chart.Bar{Name: name, Parts: []float64{0, v.Ours}, Mark: v.Published,
			Note: fmt.Sprintf("%.2f", v.Ours)})
	}
	return s
}
