package show

import (
	"fmt"
	"io"
	"strings"

	"belady/internal/scenario"
)

// Section is one scenario of a page.
type Section struct {
	File     string // of the scenario, as the page names it
	Report   *scenario.Report
	Pictures []string // files of its pictures, as the page links them
}

// Page writes scenarios as Markdown: what stands above all, a summary, then each with its table.
func Page(w io.Writer, above string, all []Section) error {
	p := &page{w: w}
	p.say("%s\n", strings.TrimSpace(above))
	p.say("| scenario | engine | bars held | missed | shown without a bar |")
	p.say("|---|---|---:|---:|---:|")
	for _, s := range all {
		held, missed, shown := count(s.Report)
		p.say("| [%s](#%s) | %s | %d | %s | %d |", s.Report.Title, anchor(s.Report.Title),
			s.Report.Engine, held, bold(missed), shown)
	}
	for _, s := range all {
		p.section(s)
	}
	return p.err
}

// page writes lines until one fails.
type page struct {
	w   io.Writer
	err error
}

func (p *page) say(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *page) section(s Section) {
	r := s.Report
	p.say("\n## %s\n", r.Title)
	p.say("%s. `belady sim %s`\n", r.Summary, s.File)
	if r.Source != "" {
		p.say("Published in %s.\n", r.Source)
	}
	for _, picture := range s.Pictures {
		p.say("![%s](%s)\n", r.Title, picture)
	}
	rows := table(r)
	p.say("| %s |", strings.Join(rows[0], " | "))
	p.say("|---%s|", strings.Repeat("|---:", len(rows[0])-1))
	for _, cells := range rows[1:] {
		if last := len(cells) - 1; cells[last] == string(scenario.Missed) {
			cells[last] = "**" + cells[last] + "**"
		}
		p.say("| %s |", strings.Join(cells, " | "))
	}
	if lines := remarks(r); len(lines) > 0 {
		p.say("")
		for _, line := range lines[1:] {
			p.say("- %s", line)
		}
	}
}

// count tells how many numbers of a report hold their bar, miss it, and have none.
func count(r *scenario.Report) (held, missed, shown int) {
	says := []scenario.Say{}
	for i := range r.Rows {
		says = append(says, r.Rows[i].Says)
	}
	for _, p := range r.Rings {
		says = append(says, p.Verdict.Says)
	}
	for _, verdicts := range [][]scenario.Verdict{r.Uses, r.Claims} {
		for _, v := range verdicts {
			says = append(says, v.Says)
		}
	}
	if r.Ranking != nil {
		says = append(says, r.Ranking.Says)
	}
	for _, s := range says {
		switch s {
		case scenario.Holds:
			held++
		case scenario.Missed:
			missed++
		case scenario.Shown:
			shown++
		}
	}
	return held, missed, shown
}

func bold(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("**%d**", n)
}

// anchor is the name under which Markdown's readers find a title.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 0x7f:
			return r
		}
		return -1
	}, strings.ToLower(title))
}
