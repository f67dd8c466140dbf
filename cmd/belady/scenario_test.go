package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belady/internal/scenario"
)

const scenarioText = `title: a small cluster
dataset: {samples: 400, size: {mean: 10KB}}
job: {epochs: 2, batch: 40}
nodes:
  count: 2
  compute: 100MB/s
  staging: {capacity: 1MB, threads: 2}
  tiers: [{name: ram, capacity: 1MB, threads: 1, read: [{threads: 1, rate: 10GB/s}]}]
origin: {readers: [{at: 1, rate: 100MB/s}]}
strategies: [perfect, staging, nopfs]
published: {seconds: {perfect: 0.04}}
bars: {lower_bound: 0.05}
`

func writeScenario(t *testing.T, old, new string) string {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	path := filepath.Join(t.TempDir(), "small.yaml")
	text := strings.Replace(scenarioText, old, new, 1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A scenario's file is run, printed beside what was published, and drawn.
func TestSimScenario(t *testing.T) {
	path := writeScenario(t, "", "")
	svg := filepath.Join(t.TempDir(), "out.svg")
	code, out, errs := belady(t, "sim", path, "--plot", svg)
	if code != exitOK || !strings.Contains(out, "a small cluster") ||
		!strings.Contains(out, "nopfs") || !strings.Contains(errs, "done") {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	if drawn, err := os.ReadFile(svg); err != nil || !strings.Contains(string(drawn), "</svg>") {
		t.Errorf("the picture: %v", err)
	}
	code, out, _ = belady(t, "sim", path, "--json", "--policy", "nopfs,staging", "--seed", "7")
	var report scenario.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitOK ||
		len(report.Rows) != 2 || report.Rows[0].Name != "staging" {
		t.Errorf("code %d, %v: %s", code, err, out)
	}
}

// A bar that is missed is printed, and fails the verb.
func TestSimScenarioMissed(t *testing.T) {
	path := writeScenario(t, "perfect: 0.04", "perfect: 0.05")
	code, out, errs := belady(t, "sim", path)
	if code != exitFailure || !strings.Contains(out, "MISSED") ||
		!strings.Contains(errs, "1 row is off what was published") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

func TestBadScenario(t *testing.T) {
	good := writeScenario(t, "", "")
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"unknown key": {[]string{"sim", writeScenario(t, "title:", "titel:")}, exitFailure,
			"small.yaml:1: there is no setting titel"},
		"zero capacity": {[]string{"sim", writeScenario(t, "ram, capacity: 1MB",
			"ram, capacity: 0B")}, exitFailure, "small.yaml:8: nodes.tiers[0].capacity is 0 bytes"},
		"no file":        {[]string{"sim", "none.yaml"}, exitFailure, "none.yaml"},
		"two files":      {[]string{"sim", good, good}, exitUsage, "at most 1"},
		"a flag besides": {[]string{"sim", good, "--ram", "1GB"}, exitUsage, "--ram and "},
		"unknown row":    {[]string{"sim", good, "--policy", "lru"}, exitUsage, `"lru" is not in`},
		"no memory": {[]string{"sim", writeScenario(t, "400, size: {mean: 10KB}}\njob: {",
			"2000000000, size: {mean: 10KB}}\njob: {count: 64, ")}, exitFailure,
			"a small cluster: this needs about"},
		"a plot of none": {[]string{"sim", "--plot", "x.svg"}, exitUsage, "--plot draws a scenario"},
		"no folder": {[]string{"sim", good, "--plot", "/nonexistent/x.svg"}, exitFailure,
			"draw /nonexistent/x.svg"},
		"a policy of a trace": {[]string{"sim", "--replay", "t.trace", "--policy", "lru"}, exitUsage,
			"--policy and --replay: the trace says all of it"},
		"papers of none": {[]string{"papers", t.TempDir()}, exitUsage, "has no scenarios"},
	} {
		code, _, errs := belady(t, test.args...)
		begun := test.args[0] == "sim" && name != "no folder" && strings.Contains(errs, "reads")
		if code != test.code || !strings.Contains(errs, test.says) || begun {
			t.Errorf("%s: code %d: %s", name, code, errs)
		}
	}
}

// A folder of scenarios becomes a page with pictures beside it.
func TestPapers(t *testing.T) {
	dir := filepath.Dir(writeScenario(t, "", ""))
	if err := os.WriteFile(filepath.Join(dir, "about.md"), []byte("# Title\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "results.md")
	if code, _, errs := belady(t, "papers", dir, "--out", out); code != exitOK {
		t.Fatalf("code %d: %s", code, errs)
	}
	page, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(page), "# Title") ||
		!strings.Contains(string(page), "![a small cluster](results/small.svg)") {
		t.Errorf("%v: %s", err, page)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(out), "results", "small.svg")); err != nil {
		t.Error(err)
	}
}

// A run that is interrupted says so, and not that it was done.
func TestSimInterrupted(t *testing.T) {
	path := writeScenario(t, "", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := run(ctx, &environment{OpenOrigin: openOrigin, Out: &out, Err: &errs},
		[]string{"sim", path})
	if said := errs.String(); code != exitFailure || !strings.Contains(said, "interrupted") ||
		strings.Contains(said, "done") || strings.Contains(said, "canceled") {
		t.Errorf("code %d: %s%s", code, out.String(), said)
	}
}
