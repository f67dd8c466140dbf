package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/trace"
	"belady/internal/sim"
)

func TestSimTable(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	code, out, errs := belady(t, strings.Fields("sim --samples 1000 --size 1MB --ram 700MB "+
		"--batch 50 --rate 100MB --compute 1ms --staging 200MB --policy spread,lru")...)
	if code != exitOK || errs != "" {
		t.Fatalf("code %d: %s", code, errs)
	}
	// Half of 1 GB is not kept, of which 200 MB may be staged when an epoch begins.
	for _, want := range []string{"spread  mean of 1–3", "lru  mean of 1–3", "at least 300 MB"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestSimJSON(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	code, out, errs := belady(t, strings.Fields("sim --samples 1000 --size 1MB --ram 700MB "+
		"--batch 5 --rate 100MB --compute 1ms --staging 20MB --world 2 --json")...)
	var reports []simReport
	if err := json.Unmarshal([]byte(out), &reports); err != nil || code != exitOK {
		t.Fatalf("code %d, %v: %s", code, err, errs)
	}
	if r := reports[0]; len(reports) != 1 || r.Policy != "spread" || len(r.Epochs) != 4 ||
		r.Ratio > 1.15 || r.Ratio < 1 {
		t.Errorf("reports: %+v", reports)
	}
}

// With a log the origin sends what neither ram nor ssd keeps, and the ssd the rest.
func TestSimSsd(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	args := "sim --samples 1000 --size 1MB --ram 220MB --batch 5 --rate 100MB --compute 1ms " +
		"--staging 20MB --ssd 310MB --json --ssd-layout "
	for _, layout := range []string{"static", "carry"} {
		code, out, errs := belady(t, strings.Fields(args+layout)...)
		var reports []simReport
		if err := json.Unmarshal([]byte(out), &reports); err != nil || code != exitOK {
			t.Fatalf("code %d, %v: %s", code, err, errs)
		}
		r := reports[0]
		if r.MinOriginBytes < 465e6 || r.MinOriginBytes > 485e6 || r.MinSsdBytes < 275e6 ||
			r.Ratio > 1.15 || r.Ratio < 1 {
			t.Errorf("%s: %+v", layout, r)
		}
		for _, e := range r.Epochs[1:3] {
			if wrote := e.LogBytes > 0; wrote != (layout == "carry") || e.SsdBytes < 200e6 {
				t.Errorf("%s: %+v", layout, e)
			}
		}
	}
}

func TestSimAskedWrongly(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, args := range []string{"sim --policy best", "sim --size 1,5", "sim --samples 0",
		"sim --kind explicit", "sim --ssd-layout auto", "sim --ssd-depth 0", "sim --ssd 1,5",
		"sim --epochs 0", "sim --staging 0B"} {
		if code, _, errs := belady(t, strings.Fields(args)...); code != exitUsage {
			t.Errorf("belady %s: code %d: %s", args, code, errs)
		}
	}
}

// recordTrace simulates a job over a dataset and writes its trace.
func recordTrace(t *testing.T, path, name string, sizes plan.Input, tamper bool) {
	t.Helper()
	p, err := plan.Make(sizes)
	if err != nil {
		t.Fatal(err)
	}
	e, err := trace.NewEncoder(trace.HeaderOf(name, p))
	if err != nil {
		t.Fatal(err)
	}
	s := sim.Scenario{Plan: p, Origin: sim.Origin{Rate: 1e6, Latency: 1e6, Concurrency: 2},
		Readings: []job.Reading{{Epochs: 2, Order: order.Spec{Kind: order.Distributed, Batch: 3,
			Samples: p.Sizes.Len()}}},
		Attach: func(cursor int32, r job.Reading) {
			if err := e.Reading(cursor, r); err != nil {
				t.Fatal(err)
			}
		},
		Observe: func(now pump.Instant, events []pump.Event, moves []pump.Move) {
			moves = append([]pump.Move(nil), moves...)
			if tamper && len(moves) > 0 && moves[0].Kind == pump.Lease {
				moves[0].Batch += 100
			}
			e.Step(now, events, moves)
		}}
	if _, err := sim.Run(s); err != nil {
		t.Fatal(err)
	}
	e.Flush()
	if err := os.WriteFile(path, e.Take(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSimReplay(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	for i := range 20 {
		text := strings.Repeat("x", 100*i)
		if err := os.WriteFile(filepath.Join(data, fmt.Sprintf("%02d.jpg", i)), []byte(text),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, errs := belady(t, "dataset", "add", "--dir", dir, "numbers", data); code != exitOK {
		t.Fatal(errs)
	}
	env := &environment{Dir: dir, OpenOrigin: openOrigin}
	d, err := env.catalog().Open("numbers")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	in := plan.Input{Content: d.Manifest.ID(), Sizes: d.Manifest, Policy: "belady", Keep: 9000,
		Staging: 1 << 16}
	path := filepath.Join(dir, "t.trace")

	recordTrace(t, path, "numbers", in, false)
	code, out, errs := belady(t, "sim", "--dir", dir, "--replay", path)
	if code != exitOK || !strings.HasSuffix(out, "moves: identical\n") {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
	recordTrace(t, path, "numbers", in, true)
	code, _, errs = belady(t, "sim", "--dir", dir, "--replay", path)
	if code != exitFailure || !strings.Contains(errs, "recorded lease cursor 0, epoch 0, batch 100") {
		t.Errorf("tampered: code %d, %s", code, errs)
	}
	recordTrace(t, path, "letters", in, false)
	if code, _, errs = belady(t, "sim", "--dir", dir, "--replay", path); code != exitFailure {
		t.Errorf("a dataset nobody knows: code %d, %s", code, errs)
	}
}
