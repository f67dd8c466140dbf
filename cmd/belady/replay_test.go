package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
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
