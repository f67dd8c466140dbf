package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"belady/internal/core/trace"
)

// replayReport is what a replay found.
type replayReport struct {
	Dataset    string `json:"dataset"`
	Steps      int    `json:"steps"`
	Moves      int    `json:"moves"`
	TailBytes  int    `json:"tail_bytes"`
	Identical  bool   `json:"identical"`
	Difference string `json:"difference,omitempty"`
	// Epochs are those that were read to the end, beside what a profile predicts of them.
	Epochs []trace.Compared `json:"epochs,omitempty"`
}

// errNoProfile means that nobody named a profile, and there is none.
var errNoProfile = errors.New("there is no profile; 'belady bench tiers DATASET' measures one")

func (f *simFlags) runReplay(env *environment) (err error) {
	sources, err := env.profile(f.profile)
	if err != nil {
		return usageError{err}
	}
	data, err := os.ReadFile(f.replay)
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	d, err := trace.NewDecoder(data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.replay, err)
	}
	name := d.Header.Dataset
	set, closeAll, err := env.catalog().OpenSet(strings.Split(name, "+"))
	if err != nil {
		return fmt.Errorf("replay needs the sizes of %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	done, err := trace.Measure(data, set)
	var differs *trace.Difference
	if err != nil && !errors.As(err, &differs) {
		return fmt.Errorf("replay %s: %w", f.replay, err)
	}
	if done.Steps == 0 && differs == nil {
		return fmt.Errorf("replay %s: it holds no whole step; %d bytes were cut off", f.replay,
			done.Tail)
	}
	report := replayReport{Dataset: name, Steps: done.Steps, Moves: done.Moves,
		TailBytes: done.Tail, Identical: differs == nil}
	if differs != nil {
		report.Difference = differs.Error()
	}
	why := errNoProfile
	if sources != nil && differs == nil {
		report.Epochs, why = f.predict(&d.Header, set, done, sources)
		if why != nil && f.profile != "" {
			return why
		}
	}
	if f.json {
		return errors.Join(printJSON(env.Out, report), err)
	}
	if differs != nil {
		return fmt.Errorf("replay %s: %w", f.replay, differs)
	}
	fmt.Fprintf(env.Out, "%d steps, %d moves: identical\n", done.Steps, done.Moves)
	if done.Tail > 0 {
		fmt.Fprintf(env.Err, "%d bytes at the end were cut off and left out\n", done.Tail)
	}
	if why != nil {
		fmt.Fprintf(env.Err, "not predicted: %v\n", why)
		return nil
	}
	if f.profile == "" {
		fmt.Fprintf(env.Err, "predicted with %s, which does not say of which dataset's origin it is; "+
			"--profile names another\n", printable(env.profilePath("")))
	}
	return printCompared(env.Out, report.Epochs)
}
