package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"belady/internal/progress"
	"belady/internal/scenario"
	"belady/internal/scenario/show"
)

// simulateFile runs a scenario's file, prints it beside what was published, and fails where a bar
// is missed.
func (f *simFlags) simulateFile(cmd *cobra.Command, env *environment, path string) error {
	if flag := otherFlag(cmd, ofScenarios); flag != "" {
		return usagef("--%s and %s: the file says all of it; change it there", flag, path)
	}
	s, err := scenario.Load(path)
	if err != nil {
		return err
	}
	if err := s.Find(f.policies); err != nil {
		return usagef("--policy: %w", err)
	}
	o := scenario.Options{Only: f.policies}
	if cmd.Flags().Changed("seed") {
		seed := uint64(f.spec.Seed)
		o.Seed = &seed
	}
	report, err := runScenario(cmd, env, s, o)
	if err != nil {
		return err
	}
	if f.plot != "" {
		if err := draw(f.plot, show.Pictures(report)[0]); err != nil {
			return err
		}
	}
	if f.json {
		err = printJSON(env.Out, report)
	} else {
		err = show.Table(env.Out, report, terminal(env.Out))
	}
	return errors.Join(err, missedBars(report))
}

// missedBars is the failure of a report that misses a bar.
func missedBars(r *scenario.Report) error {
	if r.Missed == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s off what was published by more than it may be", r.Title,
		plural(r.Missed, "row is", "rows are"))
}

// runScenario runs it under a bar.
func runScenario(
	cmd *cobra.Command, env *environment, s *scenario.Scenario, o scenario.Options,
) (*scenario.Report, error) {
	if err := fits(s); err != nil {
		return nil, err
	}
	cells, each, unit := s.Work(o.Only)
	bar := progress.New(env.Err, s.Title, cells*each, unit)
	var mu sync.Mutex
	done := map[string]int64{}
	sum := int64(0)
	o.Progress = func(row string, now, all int64) {
		mu.Lock()
		defer mu.Unlock()
		share := int64(float64(now) / float64(max(all, 1)) * float64(each))
		sum += share - done[row]
		done[row] = share
		bar.Set(sum)
	}
	report, err := s.Run(cmd.Context(), o)
	switch {
	case cmd.Context().Err() != nil:
		bar.Stop()
		return nil, errInterrupted
	case err != nil:
		bar.Stop()
		return nil, err
	}
	bar.Set(cells * each)
	bar.Done()
	return report, nil
}

// errInterrupted means that whoever asked for a run no longer wants it.
var errInterrupted = errors.New("interrupted")

// fits refuses a scenario that the machine has no memory for, before it takes hours to find out.
func fits(s *scenario.Scenario) error {
	has, err := memory()
	if err != nil {
		return err
	}
	if needs := s.Memory(); needs > has {
		return fmt.Errorf("%s: this needs about %s of memory, and the machine has %s: simulate fewer "+
			"samples, with sizes and rates in proportion", s.Title, humanize.IBytes(uint64(needs)),
			humanize.IBytes(uint64(has)))
	}
	return nil
}

// draw writes a picture into a file.
func draw(path string, picture show.Drawing) error {
	var svg bytes.Buffer
	if err := picture.Draw(&svg); err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	if err := renameio.WriteFile(path, svg.Bytes(), 0o644); err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return nil
}

// terminal tells whether a person reads w.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
