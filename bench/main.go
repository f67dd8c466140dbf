// Command bench measures what Belady demands of itself, each figure against a limit taken in the
// same run, and fails if a bar is missed. `make bench` runs it from the repository's root;
// RESULTS.md is what it wrote last.
//
// It drives the real daemon as a process of its own and reads through the Go client. It never
// trusts the daemon's figures where it can measure: bytes come from the throttled origin's own
// counts, times from the reading loop, CPU and memory from the kernel. What it starts it ends, by
// process; what it writes lies in one temporary folder, removed at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// bench is one thing to measure.
type bench struct {
	name, what string
	run        func(s *suite) (*table, error)
}

// benches are all there are, in the order they run.
var benches = []bench{
	{"order", "computing one epoch's order", (*suite).order},
	{"pump", "the pump's Step", (*suite).pump},
	{"uses", "counting uses and giving samples homes, before any run", (*suite).uses},
	{"sim", "the simulator's largest scenario", (*suite).sim},
	{"manifest", "opening a manifest", (*suite).manifest},
	{"leases", "the ram tier through leases", (*suite).leases},
	{"memory", "the daemon's memory and the arena's overhead", (*suite).memory},
	{"s3", "a real S3 server on loopback", (*suite).s3},
	{"ssd", "the ssd tier beside fio on the same disk", (*suite).ssd},
	{"fastest", "the source that the model chooses against the one that is faster", (*suite).fastest},
	{"roofline", "epoch times against the roofline", (*suite).roofline},
	{"sim-vs-real", "the simulator against the daemon", (*suite).simReal},
	{"python", "belady.DataLoader beside PyTorch's own", (*suite).python},
}

// suite is one run of benchmarks.
type suite struct {
	ctx    context.Context
	out    io.Writer
	root   string // the repository
	work   string // temporary, removed at the end
	quick  bool
	seed   int64
	only   string // cells of the roofline, or parts of ssd, whose name holds it
	nodes  int    // started so far, to name them
	bigDir string // holds the large dataset, once made
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// errMissed means that everything ran but a bar was missed.
var errMissed = errors.New("a bar was missed")

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	s := &suite{ctx: ctx, out: out}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&s.quick, "quick", false, "short runs for development; RESULTS.md is not written")
	flags.Int64Var(&s.seed, "seed", 1, "draws the random cells of fastest, roofline and sim-vs-real")
	flags.StringVar(&s.only, "cells", "",
		"run only cells of the roofline or sim-vs-real, or parts of ssd, whose name holds this")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	if s.root, err = os.Getwd(); err != nil {
		return err
	}
	if s.work, err = os.MkdirTemp("", "belady-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.work)) }()
	fmt.Fprintf(out, "%s\n", machine())
	begun := time.Now()
	var missed []string
	for i, b := range chosen {
		fmt.Fprintf(out, "\n## %s: %s (%d of %d, %s so far)\n\n", b.name, b.what, i+1, len(chosen),
			time.Since(begun).Round(time.Second))
		t, err := s.one(b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		fmt.Fprintf(out, "\n%s", t)
		if t.missed > 0 {
			missed = append(missed, b.name)
		}
		if !s.quick && s.only == "" {
			if err := s.record(b, t); err != nil {
				return err
			}
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%w: %s", errMissed, strings.Join(missed, ", "))
	}
	return nil
}

// one runs a benchmark and says how quiet the machine was.
func (s *suite) one(b bench) (*table, error) {
	before, err := loadNow()
	if err != nil {
		return nil, err
	}
	t, err := b.run(s)
	if err != nil {
		return nil, err
	}
	others, err := before.others()
	if err != nil {
		return nil, err
	}
	doubt := ""
	if others > noisy {
		doubt = ": doubtful, run it again on a quiet machine"
	}
	t.note("Others used %.2f cores meanwhile%s.", others, doubt)
	return t, nil
}

// choose finds benchmarks by name; none, or all, is every one.
func choose(names []string) ([]bench, error) {
	if len(names) == 0 || len(names) == 1 && names[0] == "all" {
		return benches, nil
	}
	var chosen []bench
	for _, name := range names {
		found := false
		for _, b := range benches {
			if b.name == name {
				chosen, found = append(chosen, b), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no benchmark %q: use %s or all", name, known())
		}
	}
	return chosen, nil
}

func known() string {
	var names []string
	for _, b := range benches {
		names = append(names, b.name)
	}
	return strings.Join(names, ", ")
}

// say shows progress.
func (s *suite) say(format string, args ...any) {
	fmt.Fprintf(s.out, "  %s\n", fmt.Sprintf(format, args...))
}

// folder makes a new folder for one node.
func (s *suite) folder() (string, error) {
	s.nodes++
	dir := filepath.Join(s.work, fmt.Sprint(s.nodes))
	return dir, os.Mkdir(dir, 0o700)
}
