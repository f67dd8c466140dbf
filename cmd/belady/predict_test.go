package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const handProfile = `version: 1
ram: {capacity: 48MiB, read: [{threads: 1, rate: 5GB/s}]}
origin: {readers: [{at: 64, rate: 40MB/s}], latency: 1ms, concurrency: 64}
`

// record reads a job of two ranks, then another, and returns the only trace of it.
func (n *node) record(t *testing.T, traces string) string {
	t.Helper()
	n.does("dataset", "add", "d", "throttle+synth://d?samples=1500&size=20KB&spread=0.5"+
		"&throttle.latency=1ms&throttle.rate=40MB")
	for _, seed := range []string{"1", "2"} {
		var ranks sync.WaitGroup
		for rank := range 2 {
			ranks.Go(func() {
				args := []string{"read", "d", "--epochs", "3", "--batch", "16", "--world", "2", "--rank",
					strconv.Itoa(rank), "--seed", seed}
				if code, _, errs := n.belady(args...); code != exitOK {
					t.Errorf("belady %v: %s", args, errs)
				}
			})
		}
		ranks.Wait()
	}
	for left := false; !left; { // a daemon that is stopped does not wait for the last releases
		_, out, _ := n.belady("status", "--json")
		left = strings.Contains(out, `"ranks": 0`)
	}
	n.stop()
	files, err := filepath.Glob(filepath.Join(traces, "d-*.trace"))
	if err != nil || len(files) != 1 {
		t.Fatalf("traces: %v, %v", files, err)
	}
	return files[0]
}

// TestPredicted: what a trace has measured stands beside what a profile predicts, and a job's bytes
// are the same whatever the time was.
func TestPredicted(t *testing.T) {
	traces := filepath.Join(t.TempDir(), "traces")
	n := startNode(t, "40MiB", "--trace", traces)
	trace := n.record(t, traces)
	file := filepath.Join(t.TempDir(), "profile.yaml")
	if err := os.WriteFile(file, []byte(handProfile), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := n.belady("sim", "--replay", trace, "--profile", file, "--json")
	if code != exitOK {
		t.Fatal(errs)
	}
	var report replayReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if !report.Identical || len(report.Epochs) != 6 {
		t.Fatalf("%s", out)
	}
	// More predicted than measured. Who is first to want a sample, and in which epoch, is timing's.
	var ram, rest int64
	for _, e := range report.Epochs {
		told, seen := &e.Predicted, &e.Measured
		ram += told.Ram - seen.Ram
		rest += told.FromOrigin() - seen.FromOrigin()
		if e.Ranks != 2 || seen.Time <= 0 || told.Time <= 0 || seen.Stall > seen.Time ||
			seen.Origin == 0 || e.Job+e.Epoch > 0 && seen.Ram == 0 {
			t.Errorf("job %d, epoch %d: predicted %+v, measured %+v", e.Job, e.Epoch, told, seen)
		}
		if e.Epoch == 2 && (ram != 0 || rest != 0) {
			t.Errorf("job %d: %d bytes more from ram, %d from elsewhere: %s", e.Job, ram, rest, out)
		}
	}
	code, out, errs = n.belady("sim", "--replay", trace, "--profile", file)
	if code != exitOK || !strings.Contains(out, "predicted") || strings.Count(out, "stall") != 6 {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	t.Run("bad", func(t *testing.T) { badPrediction(t, n, trace) })
}

// badPrediction: what cannot be predicted is said.
func badPrediction(t *testing.T, n *node, trace string) {
	file := filepath.Join(t.TempDir(), "profile.yaml")
	for _, c := range []struct{ profile, says string }{
		{"version: 1\nram: {capacity: 48MiB, read: [{threads: 1, rate: 5GB/s}]}\n",
			"no rate of the origin"},
		{strings.Replace(handProfile, "40MB/s", "-1MB/s", 1), file + ":3"},
	} {
		if err := os.WriteFile(file, []byte(c.profile), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := n.belady("sim", "--replay", trace, "--profile", file)
		if code == exitOK || !strings.Contains(errs, c.says) {
			t.Errorf("%q: code %d, %s", c.profile, code, errs)
		}
	}
	if code, _, errs := n.belady("sim", "--profile", file); code != exitUsage ||
		!strings.Contains(errs, "--replay") {
		t.Errorf("a profile without a trace: code %d, %s", code, errs)
	}
}
