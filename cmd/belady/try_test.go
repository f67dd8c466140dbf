package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakePython stands for a Python: it says yes to the probe, then prints its arguments and fails.
func fakePython(t *testing.T, probe, code string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	script := "#!/bin/sh\n[ \"$1\" = -c ] && exit " + probe +
		"\necho \"$BELADY_BIN\" >&2\necho \"$@\"\nexit " + code + "\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BELADY_PYTHON", path)
	t.Setenv("HOME", t.TempDir())
}

func TestTryHandsOver(t *testing.T) {
	fakePython(t, "0", "0")
	code, out, errs := belady(t, "try", "/data/train", "--seconds", "9.5", "--compute", "20", "--json")
	want := "-m belady try /data/train --seconds 9.5 --batch 64 --compute 20 --ram  --json\n"
	if code != exitOK || out != want {
		t.Errorf("code %d, out %q; want 0, %q", code, out, want)
	}
	self, err := os.Executable()
	if err != nil || errs != self+"\n" {
		t.Errorf("Python was told of the binary %q, want %q (%v)", errs, self, err)
	}
}

func TestTryKeepsTheExitCodeAndAddsNothing(t *testing.T) {
	fakePython(t, "0", "2")
	code, _, errs := belady(t, "try", "s3://bucket")
	if code != exitUsage || strings.Contains(errs, "belady:") {
		t.Errorf("code %d, err %q; want 2 and nothing but what Python said", code, errs)
	}
}

func TestTryWithoutPyTorch(t *testing.T) {
	fakePython(t, "1", "0")
	code, out, errs := belady(t, "try", "/data")
	if code != exitFailure || out != "" || !strings.Contains(errs, "needs Python with PyTorch") ||
		strings.Count(errs, "\n") != 1 {
		t.Errorf("code %d, out %q, err %q", code, out, errs)
	}
}

func TestPackageBeside(t *testing.T) {
	root := t.TempDir()
	for _, c := range []struct{ pkg, bin, want string }{
		{"checkout/python/belady", "checkout/bin", "checkout/python"},
		{"site/belady", "site/belady/bin", "site"},
	} {
		if got := packageBeside(filepath.Join(root, c.bin, "belady")); got != "" {
			t.Errorf("%s: %q before there is a package", c.bin, got)
		}
		if err := os.MkdirAll(filepath.Join(root, c.pkg), 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(root, c.pkg, "trial.py")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		got := packageBeside(filepath.Join(root, c.bin, "belady"))
		if got != filepath.Join(root, c.want) {
			t.Errorf("%s: %q, want %s", c.bin, got, c.want)
		}
	}
}
