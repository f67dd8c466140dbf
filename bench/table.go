package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// table is a benchmark's result.
type table struct {
	header []string
	rows   [][]string
	notes  []string
	missed int
}

// newTable has the usual columns; see bar.
func newTable() *table {
	return &table{header: []string{"what", "measured", "limit", "ratio", "bar", ""}}
}

// bar adds a row: ratio must be at most bar, or at least where least says so.
func (t *table) bar(what, measured, limit string, ratio, bar float64, least bool) {
	sign, ok := "≤", ratio <= bar
	if least {
		sign, ok = "≥", ratio >= bar
	}
	t.rows = append(t.rows, []string{what, measured, limit, fmt.Sprintf("%.3f", ratio),
		fmt.Sprintf("%s %.2f", sign, bar), t.verdict(ok)})
}

// most adds a row whose limit is a constant of the demands.
func (t *table) most(what string, measured, limit float64, unit string) {
	t.bar(what, fmt.Sprintf("%.3g %s", measured, unit), fmt.Sprintf("%.3g %s", limit, unit),
		measured/limit, 1, false)
}

// info adds a row that has no bar.
func (t *table) info(what, measured string) {
	t.rows = append(t.rows, []string{what, measured, "", "", "", ""})
}

// verdict counts what was missed.
func (t *table) verdict(ok bool) string {
	if ok {
		return "ok"
	}
	t.missed++
	return "**missed**"
}

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// String is the table in Markdown, its columns aligned so that it reads well as text too.
func (t *table) String() string {
	all := append([][]string{t.header}, t.rows...)
	width := make([]int, len(t.header))
	for _, row := range all {
		for i, text := range row {
			width[i] = max(width[i], len([]rune(text)))
		}
	}
	var b strings.Builder
	for i, row := range all {
		for c, text := range row {
			fmt.Fprintf(&b, "| %s%s ", text, strings.Repeat(" ", width[c]-len([]rune(text))))
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, w := range width {
				b.WriteString("|" + strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
	if len(t.notes) > 0 {
		b.WriteString("\n")
	}
	for _, n := range t.notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	return b.String()
}

const resultsHead = `# Results

Written by ` + "`make bench`" + `, which replaces the section of each benchmark it runs. Every ratio
is to a limit taken in the same run or to a constant of the demands; "missed" says a bar was.
`

// record replaces a benchmark's section of RESULTS.md.
func (s *suite) record(b bench, t *table) error {
	name := filepath.Join(s.root, "bench", "RESULTS.md")
	old, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	sections := map[string]string{}
	for _, text := range strings.Split(string(old), "\n## ")[1:] {
		title, _, _ := strings.Cut(text, ":")
		sections[title] = strings.TrimSpace(text)
	}
	command := "make bench BENCH=" + b.name
	if b.name == "fastest" || b.name == "roofline" || b.name == "sim-vs-real" {
		command += fmt.Sprintf(" SEED=%d", s.seed)
	}
	sections[b.name] = fmt.Sprintf("%s: %s\n\n%s, %s, Belady %s: `%s`\n\n%s", b.name, b.what,
		time.Now().UTC().Format(time.DateOnly), machine(), s.version(), command,
		strings.TrimSpace(t.String()))
	text := resultsHead
	for _, b := range benches {
		if section, ok := sections[b.name]; ok {
			text += "\n## " + section + "\n"
		}
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
