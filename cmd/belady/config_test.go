package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"pgregory.net/rapid"
)

// verb has the flags serve has, the root's and the settings', and was given args.
func verb(t *testing.T, args ...string) *cobra.Command {
	t.Helper()
	cmd := &cobra.Command{Use: "serve"}
	cmd.Flags().String("dir", "", "")
	cmd.Flags().String("socket", "", "")
	addConfigFlags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func variables(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestConfigPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "belady.yaml")
	text := "dir: /file\nram: 2GiB\nstaging: 64MiB\norigin:\n  concurrency: 7\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := loadConfig(
		verb(t, "--ram", "3GiB"),
		variables(map[string]string{
			"BELADY_CONFIG": file, "BELADY_RAM": "9GiB", "BELADY_STAGING": "128MiB",
		}))
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		Dir:     "/file",             // from the file
		Socket:  "/file/belady.sock", // a default that follows dir
		RAM:     3 << 30,             // flag over environment over file
		Staging: 128 << 20,           // environment over file
		Origin:  originConfig{Concurrency: 7, DeadlineSeconds: 30},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestConfigNeedsNoFile(t *testing.T) {
	got, err := loadConfig(verb(t), variables(map[string]string{"HOME": "/home/ada"}))
	if err != nil {
		t.Fatal(err)
	}
	want := configDefaults()
	want.Dir = "/home/ada/.local/share/belady"
	want.Socket = "/home/ada/.local/share/belady/belady.sock"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"unknown key", "ram: 1GiB\nrma: 2GiB\n", "line 2: there is no setting rma"},
		{"unknown nested key", "origin:\n  retries: 3\n", "line 2: there is no setting retries"},
		{"bad size", "\nram: lots\n", `line 2: size "lots" is not`},
		{"size of several", "ram: [1, 2]\n", "line 1: "},
		{"bad number", "origin:\n  concurrency: many\n", "line 2: "},
		{"second document", "ram: 1GiB\n---\nram: 2GiB\n", "second one"},
		{"not YAML", "ram: {\n", "line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings := configDefaults()
			err := settings.decode([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want it to say %q", err, c.says)
			}
		})
	}
}

func TestConfigValidates(t *testing.T) {
	home := variables(map[string]string{"HOME": "/home/ada"})
	for _, c := range []struct{ flag, value, says string }{
		{"--staging", "1KiB", "staging is 1.0 KiB"},
		{"--origin-concurrency", "0", "origin concurrency is 0"},
		{"--origin-deadline-seconds", "-1", "origin deadline is -1 s"},
		{"--origin-concurrency", "x", `--origin-concurrency: "x" is not a whole number`},
		{"--ram", "-1GiB", `--ram: size "-1GiB" is not`},
		{"--config", "/nowhere/belady.yaml", "read settings from /nowhere/belady.yaml"},
	} {
		_, err := loadConfig(verb(t, c.flag, c.value), home)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: got %v, want it to say %q", c.flag, c.value, err, c.says)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"4GiB": 4 << 30, "4 GiB": 4 << 30, "4GB": 4e9, "1.5MiB": 3 << 19, "4096": 4096, "0": 0,
	} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("parseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	refused := []string{"", "GiB", "1,5GiB", "-1", "4XiB", "9EiB", "1e3", "1GiB/s", "99999999PB"}
	for _, text := range refused {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("parseBytes(%q) = %d, want a refusal", text, got)
		}
	}
}

// A whole number of any unit is read exactly: sizes are compared and added up.
func TestParseBytesIsExact(t *testing.T) {
	units := map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"B", "KiB", "MiB", "GiB", "TiB"}).Draw(t, "unit")
		n := rapid.Int64Range(0, (1<<63-1)/units[unit]).Draw(t, "n")
		text := rapid.StringMatching("[ ]?").Draw(t, "space") + unit
		got, err := parseBytes(strconv.FormatInt(n, 10) + text)
		if err != nil || got != n*units[unit] {
			t.Fatalf("parseBytes(%s%s) = %d, %v", strconv.FormatInt(n, 10), text, got, err)
		}
	})
}

func FuzzConfigDecode(f *testing.F) {
	f.Add([]byte("ram: 4GiB\norigin: {concurrency: 8}\n"))
	f.Add([]byte("# nothing\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := configDefaults()
		if c.decode(text) == nil && c.RAM < 0 {
			t.Fatalf("accepted a negative size: %+v", c)
		}
	})
}
