package profile

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"belady/internal/core/perf"
)

// table is a profile as people read it.
type table struct{ *tabwriter.Writer }

// Note is what is to be said of a source beside its rates.
type Note struct{ Source, Text string }

// Print writes a profile as a table, and below it the notes.
func Print(w io.Writer, p *perf.Profile, notes ...Note) error {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t, "SOURCE\tPATTERN\tRATE\t")
	t.curve("ram", "reads by %s", p.Ram.Read, threadCount)
	t.curve("ram", "writes by %s", p.Ram.Write, threadCount)
	for i := range p.Disks {
		t.disk(&p.Disks[i])
	}
	t.curve("origin", "reads by %s", p.Origin.Readers,
		func(n int64) string { return plural(n, "reader") })
	if p.Origin.Latency > 0 {
		t.text("origin", "answers after "+time.Duration(p.Origin.Latency).String())
	}
	t.curve("network to peers", "by %s", p.Peers, threadCount)
	for _, n := range notes {
		t.text(n.Source, n.Text)
	}
	return t.Flush()
}

func (t table) text(source, what string) { fmt.Fprintf(t, "%s\t%s\t\t\n", source, what) }

func (t table) rate(source, pattern string, rate int64) {
	fmt.Fprintf(t, "%s\t%s\t%s/s\t\n", source, pattern, humanize.Bytes(uint64(rate)))
}

// curve prints a row for each step; pattern has one place, for what count says of it.
func (t table) curve(source, pattern string, c perf.Curve, count func(int64) string) {
	for _, s := range c {
		t.rate(source, fmt.Sprintf(pattern, count(s.At)), s.Rate)
	}
}

func (t table) disk(d *perf.Disk) {
	source := fmt.Sprintf("ssd %q", d.Name)
	size := func(size int64) string { return humanize.IBytes(uint64(size)) }
	t.curve(source, "random reads of %s, one at a time", d.Alone, size)
	t.curve(source, "random reads of %s, 32 at once", d.Random, size)
	t.curve(source, "reads of 1.0 MiB by %s", d.Read, threadCount)
	t.curve(source, "writes of 1.0 MiB by %s", d.Write, threadCount)
	if d.Mixed > 0 {
		t.rate(source, "reads and writes at once, together", d.Mixed)
	}
}

func threadCount(n int64) string { return plural(n, "thread") }

func plural(n int64, of string) string {
	if n != 1 {
		of += "s"
	}
	return humanize.Comma(n) + " " + of
}
