package scenario_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belady/internal/scenario"
)

func run(t *testing.T, text string, o scenario.Options) *scenario.Report {
	t.Helper()
	s, err := scenario.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// change replaces what must be there.
func change(t *testing.T, text, old, new string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("no %q in the scenario", old)
	}
	return strings.Replace(text, old, new, 1)
}

// The files of the papers are sound, and the smallest of them holds all its bars.
func TestPapersFiles(t *testing.T) {
	files, err := filepath.Glob("../../scenarios/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if base := filepath.Base(file); base != "nopfs-thesis-s1.yaml" && base != "nopfs-uses.yaml" {
			continue
		}
		r, err := s.Run(t.Context(), scenario.Options{})
		if err != nil || r.Missed > 0 {
			t.Errorf("%s: %d missed, %v", file, r.Missed, err)
		}
	}
}

// Rows come in the file's order, divided by the lower bound, and no strategy is faster than it nor
// takes less from the origin than one must who reads everything.
func TestRows(t *testing.T) {
	r := run(t, small, scenario.Options{})
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		if row.Ratio < 1-1e-9 || row.Ratio != row.Seconds/r.Rows[0].Seconds {
			t.Errorf("%s: %v s, %v × the bound", row.Name, row.Seconds, row.Ratio)
		}
		if row.Use != "perfect" && row.Origin.Ratio < 1 {
			t.Errorf("%s: %+v from the origin", row.Name, row.Origin)
		}
	}
	if !slices.Equal(names, []string{"perfect", "naive", "nopfs"}) {
		t.Errorf("rows %v", names)
	}
}

// Equal files give equal reports, whatever order the rows end in; another seed another one.
func TestDeterministic(t *testing.T) {
	for _, file := range []string{small, node, ringFile, usesFile} {
		text := func(o scenario.Options) string {
			json, err := json.Marshal(run(t, file, o))
			if err != nil {
				t.Fatal(err)
			}
			return string(json)
		}
		first, other := text(scenario.Options{}), uint64(99)
		if second := text(scenario.Options{}); second != first {
			t.Errorf("two runs differ:\n%s\n%s", first, second)
		}
		if text(scenario.Options{Seed: &other}) == first {
			t.Errorf("another seed gives the same: %s", first)
		}
	}
}

// A number that is farther off than it may be is missed, one without a bar is shown.
func TestBars(t *testing.T) {
	r := run(t, small, scenario.Options{})
	bound, naive := r.Rows[0].Seconds, r.Rows[1].Seconds
	if r.Missed != 0 || r.Rows[0].Says != scenario.Holds || r.Rows[2].Says != "" {
		t.Fatalf("%d missed, says %q, %q", r.Missed, r.Rows[0].Says, r.Rows[2].Says)
	}
	far := change(t, small, "lower_bound: 0.9, ratio: 0.9", "lower_bound: 0.01, ratio: 0.01")
	if r := run(t, far, scenario.Options{}); r.Missed == 0 {
		t.Errorf("published 0.1 s and 0.4 s hold with %v s and %v s", bound, naive)
	}
	none := change(t, small, "bars: {lower_bound: 0.9, ratio: 0.9}", "")
	if r := run(t, none, scenario.Options{}); r.Missed != 0 || r.Rows[1].Says != scenario.Shown {
		t.Errorf("without bars: %d missed, %q", r.Missed, r.Rows[1].Says)
	}
	claims := small + "claims: [{of: naive, over: best, is: 90, within: 0.1}, " +
		"{of: naive, over: perfect, is: 90}]\n"
	if r := run(t, claims, scenario.Options{}); r.Missed != 1 || len(r.Claims) != 2 ||
		r.Claims[0].Says != scenario.Missed || r.Claims[1].Says != scenario.Shown ||
		math.Abs(r.Claims[1].Ours-naive/bound) > 1e-9 {
		t.Errorf("claims %+v, %d missed", r.Claims, r.Missed)
	}
	ranked := change(t, small, "ratio: 0.9", "ratio: 0.9, ranking: [naive, nopfs]")
	if r := run(t, ranked, scenario.Options{}); r.Missed != 1 || r.Ranking.Got[0] != "nopfs" {
		t.Errorf("ranking %+v, %d missed", r.Ranking, r.Missed)
	}
}

// Rows may be chosen; then neither claims nor a ranking of the others is judged.
func TestOnly(t *testing.T) {
	ranked := change(t, small, "ratio: 0.9", "ratio: 0.9, ranking: [naive, nopfs]")
	r := run(t, ranked, scenario.Options{Only: []string{"nopfs"}})
	if len(r.Rows) != 1 || r.Rows[0].Name != "nopfs" || r.Rows[0].Ratio < 1 || r.Ranking != nil {
		t.Errorf("%+v", r)
	}
	s, err := scenario.Decode("test.yaml", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Run(t.Context(), scenario.Options{Only: []string{"lru"}})
	if err == nil || !strings.Contains(err.Error(), "perfect, naive, nopfs") {
		t.Errorf("a row that is not there: %v", err)
	}
}

// Every row runs at every size, ram and ssd of nothing too; more of them is never slower.
func TestSweeps(t *testing.T) {
	r := run(t, small+"sweep: {ram: [0B, 1MB, 4MB], ssd: [0B, 2MB]}\n",
		scenario.Options{Only: []string{"nopfs"}})
	if len(r.Rows) != 6 || r.Rows[0].Seconds < r.Rows[5].Seconds {
		t.Errorf("%d rows: %+v", len(r.Rows), r.Rows)
	}
	r = run(t, node, scenario.Options{})
	if len(r.Rows) != 4 {
		t.Fatalf("%d rows", len(r.Rows))
	}
	for _, row := range r.Rows {
		if row.Use == "spread" && math.Abs(*row.Hits-row.At.Kept) > 0.02 ||
			*row.Hits > row.At.Kept+0.08 || row.Ratio < 1-1e-9 || row.Origin.Ratio < 1 {
			t.Errorf("%s: %.3f hits, %.3f × the roofline, %+v", row.Name, *row.Hits, row.Ratio,
				row.Origin)
		}
	}
}

// Two jobs of one dataset share what either fetched.
func TestSeveralJobs(t *testing.T) {
	one := run(t, node, scenario.Options{Only: []string{"spread"}})
	two := run(t, change(t, node, "batch: 20", "batch: 20, count: 2"),
		scenario.Options{Only: []string{"spread"}})
	if got, alone := two.Rows[0].Origin.Bytes, one.Rows[0].Origin.Bytes; got >= 2*alone {
		t.Errorf("two jobs take %d bytes from the origin, one %d", got, alone)
	}
	rows := run(t, change(t, change(t, small, "batch: 100", "batch: 100, count: 2"),
		"naive, nopfs]", "naive, nopfs, belady]"), scenario.Options{}).Rows
	for _, row := range rows {
		if (row.Unsupported != "") != (row.Use == "nopfs") ||
			row.Unsupported == "" && row.Use != "perfect" && row.Origin.Ratio < 1 {
			t.Errorf("two jobs by %s: %+v", row.Use, row)
		}
	}
}

// A lost node costs reads from the origin, and fewer where others keep what was lost.
func TestFailures(t *testing.T) {
	roomy := change(t, small, "ram, capacity: 1MB", "ram, capacity: 5MB")
	roomy = change(t, roomy, "naive, nopfs]", "naive, belady]")
	sent := func(more string) int64 {
		r := run(t, roomy+more, scenario.Options{Only: []string{"belady"}})
		return r.Rows[0].Origin.Bytes
	}
	none := sent("")
	refill := sent("failures: [{node: 1, epoch: 1, then: refill}]\n")
	bypass := sent("failures: [{node: 1, epoch: 1, then: bypass}]\n")
	if none >= refill || refill >= bypass {
		t.Errorf("from the origin: %d, with refill %d, with bypass %d", none, refill, bypass)
	}
}

// A run that is no longer wanted ends.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, file := range []string{small, node, ringFile, usesFile} {
		s, err := scenario.Decode("test.yaml", []byte(file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(ctx, scenario.Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", s.Title, err)
		}
	}
}

// So does one that is under way, with either engine.
func TestEndsUnderWay(t *testing.T) {
	large := strings.NewReplacer("samples: 1000,", "samples: 1000000,", "samples: 2000,",
		"samples: 1000000,")
	for _, file := range []string{small, node} {
		s, err := scenario.Decode("test.yaml", []byte(large.Replace(file)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err = s.Run(ctx, scenario.Options{Progress: func(string, int64, int64) { cancel() }})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", s.Title, err)
		}
	}
}

// What a run needs of memory grows with what it simulates: two thousand million samples are more
// than a machine has, those of the papers are not.
func TestMemory(t *testing.T) {
	s, err := scenario.Decode("test.yaml",
		[]byte(change(t, small, "samples: 1000,", "samples: 2000000000,")))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Memory(); got < 64e9 {
		t.Errorf("two thousand million samples in %d bytes", got)
	}
	s, err = scenario.Load("../../scenarios/nopfs-paper-s4.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Memory(); got > 64e9 {
		t.Errorf("paper S4 in %d bytes", got)
	}
}

// So does a count of uses: it looks up every few million reads.
func TestUsesEnds(t *testing.T) {
	large := change(t, change(t, usesFile, "samples: 1000", "samples: 4000000"), "epochs: 300",
		"epochs: 100")
	s, err := scenario.Decode("test.yaml", []byte(large))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := int64(0)
	_, err = s.Run(ctx, scenario.Options{Progress: func(_ string, done, _ int64) {
		seen = done
		cancel()
	}})
	if !errors.Is(err, context.Canceled) || seen > 10 {
		t.Errorf("stopped after %d epochs: %v", seen, err)
	}
}

// A published row that cannot be run is missed where it has a bar, and shown where it has none.
func TestUnsupportedIsJudged(t *testing.T) {
	two := change(t, change(t, small, "batch: 100", "batch: 100, count: 2"), "naive: 0.4",
		"nopfs: 0.4")
	r := run(t, two, scenario.Options{})
	if row := r.Rows[2]; row.Unsupported == "" || row.Says != scenario.Missed || r.Missed < 1 ||
		row.PublishedSeconds != 0.4 {
		t.Errorf("%d missed: %+v", r.Missed, row)
	}
	r = run(t, change(t, two, "ratio: 0.9", "ratio: 0"), scenario.Options{})
	if row := r.Rows[2]; row.Says != scenario.Shown {
		t.Errorf("without a bar: %+v", row)
	}
}

// A row may have an origin of its own: half the rate takes longer.
func TestRowsOrigin(t *testing.T) {
	r := run(t, change(t, node, "strategies: [spread, lru]", "rows: [{name: fast, use: spread}, "+
		"{name: slow, use: spread, origin: 50MB/s}]"), scenario.Options{})
	for i := range 2 {
		fast, slow := r.Rows[i].Seconds, r.Rows[2+i].Seconds
		if slow < 1.5*fast || r.Rows[2+i].Ratio < 1-1e-9 || r.Rows[2+i].Ratio > 1.3 {
			t.Errorf("%v s at 100 MB/s, %v s at 50 MB/s: %+v", fast, slow, r.Rows[2+i])
		}
	}
}
