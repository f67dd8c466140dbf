// Package show says what a scenario gave: as a table to read, as a picture, and as a page of all
// scenarios. It decides nothing: what is missed was judged before.
package show

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"belady/internal/scenario"
)

// Table writes the report for a person to read; in colour only where coloured.
func Table(w io.Writer, r *scenario.Report, coloured bool) error {
	fmt.Fprintln(w, r.Title)
	if r.Source != "" {
		fmt.Fprintln(w, "published in "+r.Source)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cells := range table(r) {
		if says := &cells[len(cells)-1]; coloured && *says == string(scenario.Missed) {
			*says = "\x1b[1;31m" + *says + "\x1b[0m" // the last column: nothing is aligned after it
		}
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range remarks(r) {
		fmt.Fprintln(w, line)
	}
	return nil
}

// table is the report's rows of text, the first of them the heads.
func table(r *scenario.Report) [][]string {
	switch {
	case len(r.Rings) > 0:
		return ringTable(r)
	case r.Uses != nil:
		return usesTable(r)
	case r.Engine == scenario.Pump:
		return pumpTable(r)
	}
	rows := [][]string{{"strategy", "at", "seconds", "÷ bound", "published", "÷ bound", "off",
		"stall", "fill", "from origin", "÷ least", "verdict"}}
	if !swept(r) {
		rows[0] = append(rows[0][:1], rows[0][2:]...)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		cells := []string{row.Name}
		if swept(r) {
			cells = append(cells, row.At.String())
		}
		if row.Unsupported != "" {
			theirs := publishedCells(r, row)
			rows = append(rows, append(cells, "n/a", "", theirs[0], theirs[1], "", "", "", "", "",
				said(row.Says)))
			continue
		}
		cells = append(cells, number(row.Seconds), fmt.Sprintf("%.3f", row.Ratio))
		cells = append(cells, publishedCells(r, row)...)
		cells = append(cells, number(row.Stall), number(row.Fill),
			humanize.Bytes(uint64(row.Origin.Bytes)), ratio(row.Origin.Ratio), said(row.Says))
		rows = append(rows, cells)
	}
	return rows
}

// publishedCells are the published seconds, their ratio to the published bound, and how far off.
func publishedCells(r *scenario.Report, row *scenario.Result) []string {
	v := row.Verdict
	switch {
	case v.Says == "":
		return []string{"–", "–", "–"}
	case v.What == "seconds":
		theirs := "–"
		if row.PublishedSeconds > 0 && row.Ratio > 0 && r.PublishedBound > 0 {
			theirs = fmt.Sprintf("%.3f", row.PublishedSeconds/r.PublishedBound)
		}
		return []string{number(v.Published), theirs, percent(v.Off)}
	}
	return []string{number(row.PublishedSeconds), fmt.Sprintf("%.3f", v.Published), percent(v.Off)}
}

func pumpTable(r *scenario.Report) [][]string {
	rows := [][]string{{"policy", "at", "epoch", "÷ roofline", "hits", "published", "off",
		"from origin", "÷ least", "verdict"}}
	if !swept(r) {
		rows[0] = append(rows[0][:1], rows[0][2:]...)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		cells := []string{row.Name}
		if swept(r) {
			cells = append(cells, row.At.String())
		}
		theirs, off := "–", "–"
		if row.Says != "" {
			theirs, off = fmt.Sprintf("%.3f", row.Published), fmt.Sprintf("%+.3f", row.Off)
		}
		rows = append(rows, append(cells, number(row.Seconds)+" s", fmt.Sprintf("%.3f", row.Ratio),
			fmt.Sprintf("%.3f", *row.Hits), theirs, off, humanize.Bytes(uint64(row.Origin.Bytes)),
			ratio(row.Origin.Ratio), said(row.Says)))
	}
	return rows
}

func ringTable(r *scenario.Report) [][]string {
	rows := [][]string{{"points", "receivers", "±", "published", "perfect hash", "÷ perfect",
		"samples each", "±", "load ±", "most ÷ mean", "after a loss", "verdict"}}
	for _, p := range r.Rings {
		published := "–"
		if p.Published > 0 {
			published = fmt.Sprintf("≈ %g", p.Published)
		}
		rows = append(rows, []string{humanize.Comma(int64(p.Points)),
			fmt.Sprintf("%.1f", p.Receivers.Mean), fmt.Sprintf("%.1f", p.Receivers.Deviation),
			published, fmt.Sprintf("%.1f", p.Perfect),
			fmt.Sprintf("%.3f", p.Receivers.Mean/p.Perfect), fmt.Sprintf("%.1f", p.PerReceiver.Mean),
			fmt.Sprintf("%.1f", p.PerReceiver.Deviation), fmt.Sprintf("%.1f", p.Load.Deviation),
			fmt.Sprintf("%.2f", p.Most), fmt.Sprintf("%.2f", p.MostAfter), said(p.Verdict.Says)})
	}
	return rows
}

func usesTable(r *scenario.Report) [][]string {
	rows := [][]string{{"what", "ours", "published", "off", "verdict"}}
	for _, v := range r.Uses {
		rows = append(rows, []string{v.What, fmt.Sprintf("%.2f", v.Ours), number(v.Published),
			percent(v.Off), said(v.Says)})
	}
	return rows
}

// remarks are what a table cannot hold: claims, ranking, reasons and notes.
func remarks(r *scenario.Report) (lines []string) {
	for _, c := range r.Claims {
		lines = append(lines, fmt.Sprintf("%s: %.2f, published %.2f, off %s: %s", c.What, c.Ours,
			c.Published, percent(c.Off), said(c.Says)))
	}
	if r.Ranking != nil {
		lines = append(lines, fmt.Sprintf("from the fastest on: %s: %s",
			strings.Join(r.Ranking.Got, " < "), r.Ranking.Says))
		if r.Ranking.Says == scenario.Missed {
			lines = append(lines, "published: "+strings.Join(r.Ranking.Wanted, " < "))
		}
	}
	told := map[string]bool{}
	for i := range r.Rows {
		row := &r.Rows[i]
		for _, words := range []string{row.Unsupported, row.Note} {
			if line := row.Name + ": " + words; words != "" && !told[line] {
				told[line] = true
				lines = append(lines, line)
			}
		}
	}
	for _, note := range r.Notes {
		lines = append(lines, "note: "+note)
	}
	if len(lines) > 0 {
		lines = append([]string{""}, lines...)
	}
	return lines
}

func swept(r *scenario.Report) bool {
	return len(r.Rows) > 0 && r.Rows[0].At.String() != ""
}

func said(s scenario.Say) string {
	if s == "" {
		return "–"
	}
	return string(s)
}

// number writes as many digits as say something.
func number(v float64) string {
	switch {
	case math.Abs(v) < 0.005:
		return "0"
	case v >= 1000:
		return humanize.Comma(int64(v + 0.5))
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func percent(share float64) string { return fmt.Sprintf("%+.1f %%", 100*share) }

func ratio(v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}
