package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"belady/internal/core/pump"
	"belady/internal/core/trace"
)

// TestReplay: a recorded daemon run gives the same moves again, for policies of each kind, with
// several ranks and an origin that errs; and a damaged trace is not
// taken for a whole one.
func TestReplay(t *testing.T) {
	traces := filepath.Join(t.TempDir(), "traces")
	n := startNode(t, "48MiB", "--trace", traces)
	n.does("dataset", "add", "d", "throttle+synth://d?samples=1500&size=20KB&spread=0.5"+
		"&throttle.latency=1ms&throttle.faults=seed:7,error:0.02")
	for _, policy := range []string{"spread", "belady", "lru"} {
		var ranks sync.WaitGroup
		for rank := range 3 {
			ranks.Go(func() {
				args := []string{"read", "d", "--policy", policy, "--epochs", "3", "--batch", "16",
					"--world", "3", "--rank", strconv.Itoa(rank)}
				if code, _, errs := n.belady(args...); code != exitOK {
					t.Errorf("belady %v: %s", args, errs)
				}
			})
		}
		ranks.Wait()
	}
	n.stop()
	files, err := filepath.Glob(filepath.Join(traces, "d-*.trace"))
	if err != nil || len(files) != 3 {
		t.Fatalf("traces: %v, %v", files, err)
	}
	for _, file := range files {
		code, out, errs := n.belady("sim", "--replay", file)
		if code != exitOK || !strings.Contains(out, "identical") {
			t.Errorf("replay: code %d, %s%s", code, out, errs)
		}
	}
	changed, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	changed[len(changed)/2] ^= 1
	if err := os.WriteFile(files[0], changed, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := n.belady("sim", "--replay", files[0])
	if code == exitOK && !strings.Contains(errs, "cut off and left out") {
		t.Errorf("a damaged trace was replayed without a word: %s%s", out, errs)
	}
}

// TestReplayWithLog: so does a run with a log on ssd, while it is filled, and after a restart that
// finds part of it damaged.
func TestReplayWithLog(t *testing.T) {
	ssd := filepath.Join(t.TempDir(), "ssd")
	for life := range 2 {
		traces := filepath.Join(t.TempDir(), "traces")
		n := startNode(t, "24MiB", "--trace", traces, "--ssd", ssd+":64MiB", "--ssd-free", "1MiB",
			"--ssd-layout", "static")
		n.does("dataset", "add", "d", "throttle+synth://d?samples=1500&size=20KB&spread=0.5"+
			"&throttle.latency=1ms&throttle.faults=seed:7,error:0.02")
		var ranks sync.WaitGroup
		for rank := range 2 {
			ranks.Go(func() {
				code, out, errs := n.belady("read", "d", "--epochs", "2", "--batch", "16", "--world",
					"2", "--rank", strconv.Itoa(rank), "--json")
				if code != exitOK || !strings.Contains(out, `"ssd_bytes"`) {
					t.Errorf("life %d, rank %d: %s%s", life, rank, out, errs)
				}
			})
		}
		ranks.Wait()
		n.stop()
		files, err := filepath.Glob(filepath.Join(traces, "d-*.trace"))
		if err != nil || len(files) != 1 {
			t.Fatalf("traces: %v, %v", files, err)
		}
		if code, out, errs := n.belady("sim", "--replay", files[0]); code != exitOK ||
			!strings.Contains(out, "identical") {
			t.Errorf("life %d: replay: code %d, %s%s", life, code, out, errs)
		}
		checkSources(t, files[0], life)
		damage(t, ssd)
	}
}

// checkSources looks whether a trace has what its life is about: a log that is filled, then read.
func checkSources(t *testing.T, file string, life int) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := trace.NewDecoder(data)
	if err != nil {
		t.Fatal(err)
	}
	origin, ssd := 0, 0
	for {
		s, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		if s == nil {
			break
		}
		for i := range s.Moves {
			for at := range pump.MaxRun {
				if m := &s.Moves[i]; m.Kind == pump.Fetch && m.Ssd.Has(at) {
					ssd++
				} else if m.Kind == pump.Fetch && m.Mask.Has(at) {
					origin++
				}
			}
		}
	}
	if ssd < 500 || life > 0 && origin > 500 {
		t.Errorf("life %d: %d samples come from the log, %d from the origin", life, ssd, origin)
	}
}

// damage flips bits all over a log.
func damage(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "log-*", "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("segments: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 100_000; at < len(data); at += 2_000_000 {
			data[at] ^= 1
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
