package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"belady/internal/store/catalog"
)

// changing is what differs from run to run in the output of dataset verbs.
var changing = regexp.MustCompile(
	`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?|\b[0-9a-f]{64}\b|in [0-9.µms]+\b`)

// datasetVerb runs one dataset command line over a folder of its own.
func datasetVerb(t *testing.T, dir string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := &environment{OpenOrigin: openOrigin, Out: &stdout, Err: &stderr}
	root, started := newRoot(env)
	root.AddCommand(newDatasetCommand(env))
	code = execute(t.Context(), env, root, started,
		append([]string{"--dir", dir, "dataset"}, args...))
	return code, stdout.String(), stderr.String()
}

func TestDatasetTranscript(t *testing.T) {
	dir, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(data, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cat/1.jpg", "cat/1.json", "dog/2.jpg", "dog/2.json", ".DS_Store"} {
		write(name, "0123456789")
	}
	say := func(want string, args ...string) {
		t.Helper()
		code, out, errs := datasetVerb(t, dir, args...)
		got := changing.ReplaceAllString(out, "~")
		for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
			if code != exitOK || !strings.Contains(got, strings.TrimSpace(line)) {
				t.Errorf("belady dataset %v: code %d, err %q, out\n%s\nwant %s",
					args, code, errs, got, line)
			}
		}
	}
	refuse := func(want string, args ...string) {
		t.Helper()
		code, out, errs := datasetVerb(t, dir, args...)
		if code == exitOK || out != "" || !strings.Contains(errs, want) ||
			strings.Count(errs, "belady:") != 1 {
			t.Errorf("belady dataset %v: code %d, out %q, err %q, want %q", args, code, out, errs, want)
		}
	}
	say("NAME", "ls")
	refuse(`"pets" (there are none yet)`, "show", "pets")
	say(`added pets: 2 samples, 40 B, 2 classes, ~
		left out: 1 hidden`, "add", "pets", data, "--fields", "jpg,json")
	write("dog/3.jpg", "x")
	refuse(`sample "dog/3" has no json`, "add", "pets", data)
	write("dog/3.json", "x")
	say(`scanned again pets: 3 samples, 42 B, 2 classes, ~
		1 added, 0 changed, 0 removed, 2 the same`, "add", "pets", data)
	write("dog/4.jpg", "x")
	write("dog/4.json", "x")
	say("1 added, 0 changed, 0 removed, 3 the same", "add", "pets")
	refuse("add it with: belady dataset add cats URL", "add", "cats")
	say("added s: 100 samples", "add", "s", "synth://s?samples=100&size=1000")
	say(`pets  4`, "ls")
	say(`fields          jpg, json
		largest sample  20 B
		content id      ~`, "show", "pets")
	refuse("the formats are folder", "add", "x", data, "--format", "zip")
	refuse("is not possible", "add", "../x", data)
	refuse("there is no verb", "lst")
	say("removed pets", "rm", "pets")
	refuse("known are s", "rm", "pets")
	if _, err := os.Stat(filepath.Join(data, "cat", "1.jpg")); err != nil {
		t.Errorf("the origin was touched: %v", err)
	}
}

func TestDatasetJSON(t *testing.T) {
	dir := t.TempDir()
	parse := func(into any, args ...string) {
		t.Helper()
		code, out, errs := datasetVerb(t, dir, append([]string{"--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), into); code != exitOK || err != nil {
			t.Fatalf("belady dataset %v: code %d, err %q, %v in %q", args, code, errs, err, out)
		}
	}
	var none, all []catalog.Info
	parse(&none, "ls")
	if none == nil || len(none) != 0 {
		t.Errorf("no datasets are listed as %v", none)
	}
	var added catalog.Result
	parse(&added, "add", "s", "synth://s?samples=100&size=1000")
	var shown catalog.Info
	parse(&shown, "show", "s")
	parse(&all, "ls")
	if added.Info.ID == "" || shown.ID != added.Info.ID || len(all) != 1 || all[0].ID != shown.ID {
		t.Errorf("added %+v, shown %+v, listed %+v", added.Info, shown, all)
	}
	var removed map[string]string
	parse(&removed, "rm", "s")
	if removed["removed"] != "s" {
		t.Errorf("removed %v", removed)
	}
}
