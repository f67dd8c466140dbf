package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// settingsOf is what serve makes of args and variables.
func settingsOf(t *testing.T, getenv func(string) string, args ...string) (config, error) {
	t.Helper()
	var env environment
	cmd := &cobra.Command{Use: "serve"}
	cmd.Flags().StringVar(&env.SettingsFile, "config", "", "")
	addConfigFlags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := env.resolve(getenv); err != nil {
		return config{}, err
	}
	return env.Settings.override(cmd, getenv)
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
	got, err := settingsOf(t, variables(map[string]string{
		"BELADY_CONFIG": file, "BELADY_RAM": "9GiB", "BELADY_STAGING": "128MiB",
	}), "--ram", "3GiB")
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		Dir:     "/file",             // from the file
		Socket:  "/file/belady.sock", // a default that follows dir
		RAM:     3 << 30,             // flag over environment over file
		Staging: 128 << 20,           // environment over file
		Origin:  originConfig{Concurrency: 7, DeadlineSeconds: 30},
		Ssd:     ssdConfig{Layout: "auto"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

// Dir and socket of the file hold for every verb, below flags and the environment.
func TestConfigPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "belady.yaml")
	if err := os.WriteFile(file, []byte("dir: /file\nsocket: /file.sock\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env         environment
		variables   map[string]string
		dir, socket string
	}{
		{environment{SettingsFile: file}, nil, "/file", "/file.sock"},
		{environment{}, map[string]string{"BELADY_CONFIG": file, "BELADY_DIR": "/variable"},
			"/variable", "/file.sock"},
		{environment{SettingsFile: file, Dir: "/flag"},
			map[string]string{"BELADY_DIR": "/variable", "BELADY_SOCKET": "/variable.sock"},
			"/flag", "/variable.sock"},
	} {
		if err := c.env.resolve(variables(c.variables)); err != nil {
			t.Fatal(err)
		}
		if c.env.Dir != c.dir || c.env.Socket != c.socket {
			t.Errorf("%v: dir %s, socket %s", c.variables, c.env.Dir, c.env.Socket)
		}
	}
	// A verb that has nothing to do with serving reads the dataset of the file's dir.
	dir := t.TempDir()
	if err := os.WriteFile(file, []byte("dir: "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"dataset", "add", "s", "synth://s?samples=3&size=10B", "--dir", dir},
		{"dataset", "show", "s", "--config", file},
	} {
		if code, _, errs := belady(t, args...); code != exitOK {
			t.Errorf("%v: code %d: %s", args, code, errs)
		}
	}
}

func TestConfigNeedsNoFile(t *testing.T) {
	got, err := settingsOf(t, variables(map[string]string{"HOME": "/home/ada"}))
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

// Folders on ssd come from the file, the variable or the flag, which may be given again; the later
// of these replaces the former.
func TestConfigSsd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "belady.yaml")
	text := "ssd:\n  dirs: [/file:1TB, /other]\n  layout: static\n  free: 1GiB\n  wear: 2TB\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	of := func(dirs ...ssdDir) ssdConfig {
		return ssdConfig{Dirs: dirs, Layout: "static", Free: 1 << 30, Wear: 2e12}
	}
	for _, c := range []struct {
		variable string
		flags    []string
		want     ssdConfig
	}{
		{"", nil, of(ssdDir{"/file", 1e12}, ssdDir{"/other", 0})},
		{"/v:1GiB,/w", nil, of(ssdDir{"/v", 1 << 30}, ssdDir{"/w", 0})},
		{"/v", []string{"--ssd", "/a:b", "--ssd", "/a,c:64MiB"},
			of(ssdDir{"/a:b", 0}, ssdDir{"/a,c", 64 << 20})},
		{"", []string{"--ssd", "/a:5XB/", "--ssd", "/a"},
			of(ssdDir{"/a:5XB/", 0}, ssdDir{"/a", 0})},
	} {
		got, err := settingsOf(t, variables(map[string]string{"HOME": "/home/ada",
			"BELADY_CONFIG": file, "BELADY_SSD": c.variable}), c.flags...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got.Ssd); diff != "" {
			t.Error(diff)
		}
	}
}

func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"unknown key", "ram: 1GiB\nrma: 2GiB\n", "line 2: there is no setting rma"},
		{"unknown nested key", "origin:\n  retries: 3\n", "line 2: there is no setting retries"},
		{"bad size", "\nram: lots\n", `line 2: size "lots" is not`},
		{"size of several", "ram: [1, 2]\n", "line 1: "},
		{"bad folder", "ssd:\n  dirs:\n  - /a\n  - :1GiB\n", "line 4: "},
		{"bad number", "origin:\n  concurrency: many\n", "line 2: "},
		{"whole number", "idle_exit_seconds: abc\n",
			"line 1: `abc` stands where a whole number must"},
		{"no group", "ram: 1GiB\norigin: 5\n", "line 2: `5` stands where settings must"},
		{"no settings", "- a\n", "line 1: a list stands where settings must"},
		{"no list", "ssd: {dirs: 5}\n", "line 1: `5` stands where a list must"},
		{"a group", "trace: {a: 1}\n", "line 1: a group of settings stands where a text must"},
		{"second document", "ram: 1GiB\n---\nram: 2GiB\n", "second one"},
		{"not YAML", "ram: {\n", "line 1: it is not YAML: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings := configDefaults()
			err := settings.decode([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want it to say %q", err, c.says)
			}
			for _, leak := range []string{"yaml:", "unmarshal", "main."} {
				if strings.Contains(err.Error(), leak) {
					t.Errorf("%v: it speaks of %s", err, leak)
				}
			}
		})
	}
}

// What help calls a setting's default is its default.
func TestHelpTellsDefaults(t *testing.T) {
	says := regexp.MustCompile(`\(default ([^:)]+)`)
	for _, s := range settings {
		m := says.FindStringSubmatch(s.usage)
		if m == nil {
			t.Errorf("--%s: help tells no default", s.name)
			continue
		}
		c := configDefaults()
		if m[1] == "none" || s.set(&c, m[1:]) != nil {
			continue // it is told in words
		}
		if diff := cmp.Diff(configDefaults(), c); diff != "" {
			t.Errorf("--%s: help tells another default: %s", s.name, diff)
		}
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
		{"--ssd", "/a:1000", "needs at least 16 MiB"},
		{"--ssd", ":1GiB", "names no folder"},
		{"--ssd", "/a:5XB", `"/a:5XB": size "5XB" is not`},
		{"--ssd", "/a:-1GB", `"/a:-1GB": size "-1GB" is not`},
		{"--ssd", "/a:999999999TB", `"/a:999999999TB": size "999999999TB" is`},
		{"--ssd", "/a --ssd /a/", "ssd folder /a/ is named twice"},
		{"--ssd", "/a --ssd /a/b", "one lies in the other"},
		{"--ssd", "a/..b --ssd a", "one lies in the other"},
		{"--ssd-layout", "fast", `ssd layout is "fast"`},
		{"--ssd-free", "some", `--ssd-free: size "some" is not`},
		{"--config", "/nowhere/belady.yaml", "read settings from /nowhere/belady.yaml"},
	} {
		_, err := settingsOf(t, home, append([]string{c.flag}, strings.Fields(c.value)...)...)
		if err == nil || !strings.Contains(err.Error(), c.says) || !errors.As(err, new(usageError)) {
			t.Errorf("%s %s: got %v, want a usage error that says %q", c.flag, c.value, err, c.says)
		}
	}
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
