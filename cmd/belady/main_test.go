package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// belady runs one command line and returns its exit code and what it printed.
func belady(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := &environment{OpenOrigin: openOrigin, Out: &stdout, Err: &stderr}
	code = run(t.Context(), env, args)
	return code, stdout.String(), stderr.String()
}

func TestExitCodes(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, c := range []struct {
		args string
		code int
		out  string
		errs string
	}{
		{"version", exitOK, "belady dev\n", ""},
		{"--version", exitOK, "belady dev\n", ""},
		{"version --json", exitOK, "{\n  \"version\": \"dev\"\n}\n", ""},
		{"verison", exitUsage, "",
			"belady: there is no verb \"verison\"; did you mean \"version\"? (see 'belady --help')\n"},
		{"version extra", exitUsage, "", "belady: unknown command \"extra\" for \"belady version\"" +
			" (see 'belady --help')\n"},
		{"version --nonsense", exitUsage, "",
			"belady: unknown flag: --nonsense (see 'belady --help')\n"},
	} {
		code, out, errs := belady(t, strings.Fields(c.args)...)
		if code != c.code || out != c.out || errs != c.errs {
			t.Errorf("belady %s: code %d, out %q, err %q; want %d, %q, %q",
				c.args, code, out, errs, c.code, c.out, c.errs)
		}
	}
}

// A flag's value is refused in the words of who wrote it, not in those of Go's packages.
func TestFlagValues(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for args, says := range map[string]string{
		"sim --samples x":                      `"x" for "--samples" flag: not a whole number`,
		"sim --seed 99999999999999999999":      `flag: too large or too small a number`,
		"sim --latency 5":                      `"5" for "--latency" flag: not a duration; write it like`,
		"read x --compute y":                   `flag: not a number`,
		"status --json=maybe":                  `flag: neither true nor false`,
		"sim --kind torch-weighted":            "--kind torch-weighted cannot be simulated",
		"sim --size 0":                         "--size: 0 is no size of a sample",
		"sim --ssd 1GB --ssd-latency tomorrow": "not a duration",
	} {
		code, _, errs := belady(t, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errs, says) {
			t.Errorf("belady %s: code %d, %q; want it to say %q", args, code, errs, says)
		}
		for _, leak := range []string{"strconv", "time:", "give one a sample"} {
			if strings.Contains(errs, leak) {
				t.Errorf("belady %s: %q speaks of %s", args, errs, leak)
			}
		}
	}
}

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 classes", 1: "1 class", 1000: "1,000 classes"} {
		if got := plural(n, "class", "classes"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestHelpIsNotAnError(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		code, out, errs := belady(t, args...)
		if code != exitOK || errs != "" || !strings.Contains(out, "Available Commands") {
			t.Errorf("belady %v: code %d, err %q, out %q", args, code, errs, out)
		}
	}
}

// A failing verb is exit code 1 and one line; one that finds itself asked wrongly is code 2.
func TestVerbErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		errs string
	}{
		{errors.Join(errors.New("read a"), errors.New("read b")), exitFailure,
			"belady: read a; read b\n"},
		{fmt.Errorf("order: %w", usagef("epoch is -1")), exitUsage,
			"belady: order: epoch is -1 (see 'belady --help')\n"},
	} {
		var stderr bytes.Buffer
		env := &environment{Dir: "d", Socket: "s", Out: &stderr, Err: &stderr}
		root, started := newRoot(env)
		root.AddCommand(&cobra.Command{
			Use: "fail", RunE: func(*cobra.Command, []string) error { return c.err },
		})
		if code := execute(t.Context(), env, root, started, []string{"fail"}); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, code, c.code)
		}
		if stderr.String() != c.errs {
			t.Errorf("printed %q, want %q", stderr.String(), c.errs)
		}
	}
}

func TestEnvironmentDefaults(t *testing.T) {
	for _, c := range []struct {
		name      string
		flags     environment
		variables map[string]string
		dir, sock string
	}{
		{"home", environment{}, map[string]string{"HOME": "/h"},
			"/h/.local/share/belady", "/h/.local/share/belady/belady.sock"},
		{"xdg", environment{}, map[string]string{
			"HOME": "/h", "XDG_DATA_HOME": "/data", "XDG_RUNTIME_DIR": "/run"},
			"/data/belady", "/run/belady.sock"},
		{"ours over xdg", environment{}, map[string]string{
			"BELADY_DIR": "/d", "BELADY_SOCKET": "/s",
			"XDG_DATA_HOME": "/data", "XDG_RUNTIME_DIR": "/run"}, "/d", "/s"},
		{"flags over ours", environment{Dir: "/fd", Socket: "/fs"},
			map[string]string{"BELADY_DIR": "/d", "BELADY_SOCKET": "/s"}, "/fd", "/fs"},
	} {
		env := c.flags
		if err := env.resolve(variables(c.variables)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if env.Dir != c.dir || env.Socket != c.sock {
			t.Errorf("%s: dir %s, socket %s; want %s, %s",
				c.name, env.Dir, env.Socket, c.dir, c.sock)
		}
	}
	if err := new(environment).resolve(variables(nil)); err == nil {
		t.Error("without HOME no folder is known, and nothing said so")
	}
}
