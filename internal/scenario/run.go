package scenario

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"
)

// Options are what a caller may choose of a run.
type Options struct {
	// Only names the rows to run; empty means all.
	Only []string
	// Seed, if given, takes the place of the file's.
	Seed *uint64
	// Progress, if given, is told how far a row is, from several goroutines at once.
	Progress func(row string, done, all int64)
}

// cell is one row at one size.
type cell struct {
	Row
	at Cell
}

// name is what progress calls it.
func (c *cell) name() string {
	if at := c.at.String(); at != "" {
		return c.Row.Name + " at " + at
	}
	return c.Row.Name
}

// Run simulates the scenario, as many rows at a time as the machine has cores.
func (s *Scenario) Run(ctx context.Context, o Options) (*Report, error) {
	run := *s
	if o.Seed != nil {
		run.Seed = *o.Seed
	}
	rows, err := run.chosen(o.Only)
	if err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	report := &Report{Title: s.Title, Summary: s.summary(), Source: s.Source, Engine: s.Engine,
		Notes: s.Notes}
	switch s.Engine {
	case Ring:
		err = run.ring(ctx, o, report)
	case Uses:
		err = run.uses(ctx, o, report)
	case Pump:
		err = run.each(ctx, rows, report, pumpEngine{&run, run.sizes(), o}.run)
	case Model:
		engine := modelEngine{Scenario: &run, sizes: run.sizes(), o: o}
		if engine.least, err = engine.bound(ctx); err == nil {
			err = run.each(ctx, rows, report, engine.run)
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // whatever an engine calls being stopped
	}
	if err != nil {
		return nil, err
	}
	run.judge(report)
	return report, nil
}

// summary says in one line what is simulated.
func (s *Scenario) summary() string {
	parts := []string{humanize.Comma(int64(s.Dataset.Samples)) + " samples"}
	if s.Dataset.Size.Mean > 0 {
		parts[0] += " of " + humanize.Bytes(uint64(s.Dataset.Size.Mean))
	}
	if s.Nodes.Count > 1 {
		parts = append(parts, humanize.Comma(int64(s.Nodes.Count))+" nodes")
	} else {
		parts = append(parts, "one node")
	}
	if s.Job.Count > 1 {
		parts = append(parts, fmt.Sprintf("%d jobs", s.Job.Count))
	}
	if s.Job.Epochs > 0 {
		parts = append(parts, humanize.Comma(int64(s.Job.Epochs))+" epochs")
	}
	if s.Trials.Count > 0 {
		parts = append(parts, humanize.Comma(int64(s.Trials.Count))+" trials")
	}
	return strings.Join(parts, ", ")
}

// Find refuses names that no row has.
func (s *Scenario) Find(names []string) error {
	for _, name := range names {
		if !s.row(name) {
			return fmt.Errorf("%q is not in this scenario: it has %s", name,
				strings.Join(s.names(), ", "))
		}
	}
	return nil
}

// chosen are the rows to run, in the file's order.
func (s *Scenario) chosen(only []string) ([]Row, error) {
	if err := s.Find(only); err != nil {
		return nil, err
	}
	if len(only) == 0 {
		return s.Rows, nil
	}
	return slices.DeleteFunc(slices.Clone(s.Rows), func(r Row) bool {
		return !slices.Contains(only, r.Name)
	}), nil
}

func (s *Scenario) names() (all []string) {
	for _, r := range s.Rows {
		all = append(all, r.Name)
	}
	return all
}

// each runs every row at every size, and puts the results in the file's order.
func (s *Scenario) each(ctx context.Context, rows []Row, report *Report,
	run func(context.Context, cell) (Result, error)) error {
	var cells []cell
	for _, row := range rows {
		for _, at := range s.cells() {
			cells = append(cells, cell{row, at})
		}
	}
	report.Rows = make([]Result, len(cells))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, c := range cells {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			result, err := run(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name(), err)
			}
			report.Rows[i] = result
			return nil
		})
	}
	return group.Wait()
}

// Work is how many results a run gives, and what is counted for each of them.
func (s *Scenario) Work(only []string) (cells, each int64, unit string) {
	switch s.Engine {
	case Ring:
		return int64(len(s.Trials.Points)), int64(s.Trials.Count), "trials"
	case Uses:
		return 1, int64(s.Job.Epochs), "epochs"
	}
	rows := len(s.Rows)
	if len(only) > 0 {
		rows = len(only)
	}
	reads := int64(s.Job.Epochs) * int64(s.Job.count()) * int64(s.Dataset.Samples)
	return int64(rows * len(s.cells())), reads, "reads"
}

// cells are the sizes of the sweep; without one, a single cell that changes nothing.
func (s *Scenario) cells() []Cell {
	var all []Cell
	for _, share := range s.Sweep.Kept {
		all = append(all, Cell{Kept: share})
	}
	rams, ssds := s.Sweep.Ram, s.Sweep.Ssd
	for i := range max(len(rams), 1) {
		for j := range max(len(ssds), 1) {
			var c Cell
			if len(rams) > 0 {
				c.Ram = (*int64)(&rams[i])
			}
			if len(ssds) > 0 {
				c.Ssd = (*int64)(&ssds[j])
			}
			if len(s.Sweep.Kept) == 0 {
				all = append(all, c)
			}
		}
	}
	return all
}

// tiers are the row's own, or the nodes', at the size of a cell; those without room are left out.
func (s *Scenario) tiers(c cell, total int64) []Tier {
	tiers := slices.Clone(s.Nodes.Tiers)
	if c.Tiers != nil {
		tiers = slices.Clone(c.Tiers)
	}
	for i := range tiers {
		t := &tiers[i]
		switch {
		case t.Name == "ram" && c.at.Ram != nil:
			t.Capacity = bytesOf(*c.at.Ram)
		case t.Name == "ssd" && c.at.Ssd != nil:
			t.Capacity = bytesOf(*c.at.Ssd)
		case t.Name == "ram" && c.at.Kept > 0:
			t.Capacity = bytesOf(int64(c.at.Kept * float64(total)))
		}
	}
	return slices.DeleteFunc(tiers, func(t Tier) bool { return t.Capacity == 0 })
}
