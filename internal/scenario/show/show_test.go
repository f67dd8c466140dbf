package show_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belady/internal/scenario"
	"belady/internal/scenario/show"
)

// sample is a report with one of everything that a table of strategies can say.
func sample() *scenario.Report {
	return &scenario.Report{Title: "Thesis, scenario 4", Summary: "400,000 samples of 3.0 MB, 4 nodes",
		Source: "a thesis", Engine: scenario.Model, Notes: []string{"epochs are inferred"},
		PublishedBound: 15204.78, Missed: 1,
		Rows: []scenario.Result{
			{Name: "perfect", Use: "perfect", Seconds: 15208, Ratio: 1, PublishedSeconds: 15204.78,
				Verdict: scenario.Verdict{What: "seconds", Ours: 15208, Published: 15204.78, Off: 0.0002,
					Bar: 0.01, Says: scenario.Holds}},
			{Name: "nopfs", Use: "nopfs", Seconds: 26574, Ratio: 1.747, PublishedSeconds: 16795.17,
				Stall: 1367, Bytes: map[string]int64{"origin": 2e12, "ram": 4e12},
				Busy:   map[string]float64{"origin": 600, "ram": 400},
				Origin: scenario.Least{Bytes: 3.9e12, Least: 3.5e12, Ratio: 1.10},
				Verdict: scenario.Verdict{What: "times the lower bound", Ours: 1.747, Published: 1.105,
					Off: 0.581, Bar: 0.1, Says: scenario.Missed}},
			{Name: "lbann-preload", Use: "lbann-preload", Unsupported: "the dataset does not fit"}},
		Claims: []scenario.Verdict{{What: "nopfs ÷ perfect", Ours: 1.747, Published: 1.1, Off: 0.588,
			Says: scenario.Shown}},
		Ranking: &scenario.Ranking{Wanted: []string{"perfect", "nopfs"},
			Got: []string{"perfect", "nopfs"}, Says: scenario.Holds}}
}

// The table says of every row what was published, how far off ours is, and the verdict.
func TestTable(t *testing.T) {
	var text bytes.Buffer
	if err := show.Table(&text, sample(), false); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range strings.Split(text.String(), "\n") {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"Thesis, scenario 4", "published in a thesis", "",
		"strategy seconds ÷ bound published ÷ bound off stall fill from origin ÷ least verdict",
		"perfect 15,208 1.000 15,205 1.000 +0.0 % 0 0 0 B – ok",
		"nopfs 26,574 1.747 16,795 1.105 +58.1 % 1,367 0 3.9 TB 1.10 MISSED",
		"lbann-preload n/a – – –", "",
		"nopfs ÷ perfect: 1.75, published 1.10, off +58.8 %: shown",
		"from the fastest on: perfect < nopfs: ok",
		"lbann-preload: the dataset does not fit", "note: epochs are inferred", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table differs (- wanted, + got):\n%s", diff)
	}
}

// What is missed is red for a person, and only there.
func TestMissedIsRed(t *testing.T) {
	for _, coloured := range []bool{true, false} {
		var text bytes.Buffer
		if err := show.Table(&text, sample(), coloured); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "\x1b[1;31mMISSED\x1b[0m") != coloured {
			t.Errorf("coloured %v: %q", coloured, text.String())
		}
	}
}

// A page names every scenario, counts its bars, and links to its pictures.
func TestPage(t *testing.T) {
	var text bytes.Buffer
	err := show.Page(&text, "# Results\n\nwritten by hand\n", []show.Section{
		{File: "scenarios/s4.yaml", Report: sample(), Pictures: []string{"papers/s4.svg"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"# Results", "written by hand",
		"| [Thesis, scenario 4](#thesis-scenario-4) | model | 2 | **1** | 1 |",
		"## Thesis, scenario 4", "`belady sim scenarios/s4.yaml`", "Published in a thesis.",
		"![Thesis, scenario 4](papers/s4.svg)",
		"| nopfs | 26,574 | 1.747 | 16,795 | 1.105 | +58.1 % | 1,367 | 0 | 3.9 TB | 1.10 | **MISSED** |",
		"- note: epochs are inferred"} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("the page lacks %q:\n%s", line, text.String())
		}
	}
}

// Every engine's report has a picture and a table.
func TestEveryEngine(t *testing.T) {
	const pump = `title: p
engine: pump
dataset: {samples: 500, size: {mean: 10KB}}
job: {epochs: 2, batch: 20}
nodes:
  count: 1
  compute: 1GB/s
  staging: {capacity: 1MB}
  tiers: [{name: ram, capacity: 2MB, read: [{threads: 1, rate: 10GB/s}]}]
origin: {readers: [{at: 1, rate: 100MB/s}], latency: 1ms, concurrency: 16}
strategies: [spread, pin, lru]
`
	const model = `title: m
dataset: {samples: 400, size: {mean: 10KB}}
job: {epochs: 2, batch: 40}
nodes:
  count: 2
  compute: 100MB/s
  staging: {capacity: 1MB, threads: 2}
  tiers: [{name: ram, capacity: 1MB, threads: 1, read: [{threads: 1, rate: 10GB/s}]}]
origin: {readers: [{at: 1, rate: 100MB/s}]}
strategies: [nopfs]
`
	for text, pictures := range map[string]int{
		model:                                1,
		model + "sweep: {ram: [0B, 1MB]}\n":  1,
		pump:                                 1,
		pump + "sweep: {kept: [0.2, 0.5]}\n": 2,
		"title: r\nengine: ring\ndataset: {samples: 99}\nnodes: {count: 4}\n" +
			"trials: {points: [1, 10], count: 3}\n": 1,
		"title: u\nengine: uses\ndataset: {samples: 99}\njob: {epochs: 20}\nnodes: {count: 4}\n" +
			"trials: {above: 5}\npublished: {uses: 40}\n": 1,
	} {
		s, err := scenario.Decode("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(t.Context(), scenario.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all := show.Pictures(r)
		if len(all) != pictures {
			t.Errorf("%s: %d pictures", text, len(all))
		}
		for _, p := range all {
			var svg bytes.Buffer
			if err := p.Draw(&svg); err != nil || !strings.Contains(svg.String(), "</svg>") {
				t.Errorf("%s: %v", text, err)
			}
		}
		var table bytes.Buffer
		if err := show.Table(&table, r, false); err != nil || strings.Count(table.String(), "\n") < 4 {
			t.Errorf("%s: %v\n%s", text, err, table.String())
		}
	}
}
