package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/core/perf"
	"belady/internal/profile"
)

// TestProfiles tries the profile around the real program: measured, used, refused.
func TestProfiles(t *testing.T) {
	runAll(t, map[string]func(t *testing.T, bin string){
		"interrupted": testBenchInterrupted,
		"peers":       testBenchPeers,
		"used":        testProfileUsed,
		"refused":     testProfileRefused,
	})
}

// What is measured is printed, and written as a profile that can be read again.
func TestBenchTiers(t *testing.T) {
	dir := t.TempDir()
	ssd := filepath.Join(dir, "ssd")
	if err := os.Mkdir(ssd, 0o700); err != nil {
		t.Fatal(err)
	}
	code, _, errs := belady(t, "dataset", "add", "s", "synth://s?samples=2000&size=10KB", "--dir", dir)
	if code != exitOK {
		t.Fatal(errs)
	}
	code, out, errs := belady(t, "bench", "tiers", "s", "--ssd", ssd, "--dir", dir)
	if code != exitOK {
		t.Fatal(errs)
	}
	for _, says := range []string{"ram ", "reads by 1 thread", "ssd " + strconv.Quote(ssd),
		"random reads of 4.0 KiB", "reads and writes at once", "origin ", "reads by 1 reader",
		"answers after", "network to peers", "serves none yet",
		"wrote " + filepath.Join(dir, "profile.yaml")} {
		if !strings.Contains(out, says) {
			t.Errorf("it does not say %q:\n%s", says, out)
		}
	}
	if !strings.Contains(errs, "measure: ") {
		t.Errorf("no progress was shown: %s", errs)
	}
	p, err := profile.Load(filepath.Join(dir, "profile.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Disks) != 1 || p.Disks[0].Name != ssd || p.Origin.Concurrency != 256 ||
		time.Since(time.Unix(p.Measured, 0)) > time.Minute {
		t.Errorf("%+v", p)
	}
	if left, err := os.ReadDir(ssd); err != nil || len(left) != 0 {
		t.Errorf("left %v: %v", left, err)
	}
	// Without a dataset and folders only memory is measured, over what was measured before.
	code, out, errs = belady(t, "bench", "tiers", "--json", "--dir", dir)
	var again perf.Profile
	if code != exitOK || json.Unmarshal([]byte(out), &again) != nil {
		t.Fatalf("%s%s", out, errs)
	}
	if again.Ram.Read.Validate() != nil || len(again.Disks) != 0 || len(again.Origin.Readers) != 0 {
		t.Errorf("%+v", again)
	}
}

func TestBenchTiersRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hand := write("hand.yaml", "version: 1\ndecode: 1MB/s\n")
	bad := write("bad.yaml", "version: 1\n\nram: {read: []}\n")
	for args, says := range map[string]string{
		"a b":                                "name one dataset at most; folders are named with --ssd",
		"/nvme":                              "name",
		"nowhere":                            "nowhere",
		"--ssd " + dir + "/none":             "it is no folder",
		"--ssd " + hand:                      "it is no folder",
		"--ssd :1GiB":                        "names no folder",
		"--seconds 3":                        "give 30 to 600",
		"--seconds 30 x --ssd " + dir:        "",
		"--out " + hand:                      "was written by hand and is left as it is",
		"--out " + bad:                       bad + ":3: ram.read has no steps; expected one at least",
		"--seconds 30" + many(" --ssd /", 9): "30 s are too few for 9 folders and 0 peers",
	} {
		code, out, errs := belady(t, append([]string{"bench", "tiers", "--dir", dir},
			strings.Fields(args)...)...)
		if code == exitOK || out != "" || !strings.Contains(errs, says) {
			t.Errorf("%s: code %d, %s%s, want it to say %q", args, code, out, errs, says)
		}
	}
	if text, err := os.ReadFile(hand); err != nil || !strings.HasPrefix(string(text), "version: 1\n") {
		t.Errorf("the profile by hand is %q: %v", text, err)
	}
}

func many(text string, times int) string { return strings.Repeat(text, times) }

// testBenchInterrupted: an interrupt ends it soon, and leaves neither files nor a profile.
func testBenchInterrupted(t *testing.T, bin string) {
	h := newHost(t, bin, 100)
	ssd := filepath.Join(h.dir, "ssd")
	if err := os.Mkdir(ssd, 0o700); err != nil {
		t.Fatal(err)
	}
	p := h.run(h.command("bench", "tiers", "d", "--ssd", ssd))
	h.soon(20*time.Second, "a file to measure with", func() bool {
		found, err := os.ReadDir(ssd)
		return err == nil && len(found) > 0
	})
	if err := p.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.ends(10 * time.Second); code != exitFailure {
		t.Errorf("it ended with %d: %s", code, p.log)
	}
	if !strings.Contains(p.log.String(), "no profile was written") {
		t.Errorf("it said %s", p.log)
	}
	if left, err := os.ReadDir(ssd); err != nil || len(left) != 0 {
		t.Errorf("left %v: %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, profile.Name)); !os.IsNotExist(err) {
		t.Errorf("a profile was written: %v", err)
	}
}

// testBenchPeers: two nodes measure the network between them; who does not answer is named.
func testBenchPeers(t *testing.T, bin string) {
	h := newHost(t, bin, 10)
	cmd := h.command("bench", "peer", "--listen", "127.0.0.1:0")
	out := &processLog{}
	cmd.Stdout = out
	p := h.run(cmd)
	h.soon(10*time.Second, "an address",
		func() bool { return strings.Contains(out.String(), "for 10") })
	address := strings.Fields(out.String())[2]
	said := h.must("bench", "tiers", "--peer", address, "--peer", address)
	if !strings.Contains(said, "network to peers") || strings.Contains(said, "--peer") {
		t.Errorf("it said %s", said)
	}
	measured, err := profile.Load(filepath.Join(h.dir, profile.Name))
	if err != nil || len(measured.Peers) != 4 {
		t.Errorf("%+v: %v", measured, err)
	}
	if err := p.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.ends(10 * time.Second); code != exitOK {
		t.Errorf("it ended with %d: %s", code, p.log)
	}
	nobody, err := h.command("bench", "tiers", "--peer", address).CombinedOutput()
	if err == nil || !strings.Contains(string(nobody), "measure the link to "+address) ||
		!strings.Contains(string(nobody), "on that node run 'belady bench peer --listen HOST:PORT'") {
		t.Errorf("%v: %s", err, nobody)
	}
}

// disksOf is a profile of a folder whose device gives that at random, and 1 GB/s else.
func disksOf(dir string, random int64) *perf.Profile {
	return &perf.Profile{Disks: []perf.Disk{{Tier: perf.Tier{Name: dir,
		Read: perf.Curve{{At: 1, Rate: 1e9}}}, Random: perf.Curve{{At: 4096, Rate: random}},
		Mixed: 1e9}}}
}

// testProfileUsed: the layout is chosen by the rates of a profile that is named, or that lies in
// --dir and is fresh or written by hand.
func testProfileUsed(t *testing.T, bin string) {
	now := time.Now()
	for _, c := range []struct {
		name     string
		named    bool
		measured int64
		used     bool
	}{
		{"named", true, now.Add(-48 * time.Hour).Unix(), true},
		{"fresh", false, now.Add(-time.Hour).Unix(), true},
		{"by hand", false, 0, true},
		{"old", false, now.Add(-48 * time.Hour).Unix(), false},
	} {
		h := newHost(t, bin, 100)
		ssd := filepath.Join(h.dir, "ssd")
		p := disksOf(ssd, 987e6)
		p.Measured = c.measured
		path := filepath.Join(h.dir, profile.Name)
		flags := []string{"--ssd", ssd, "--ssd-layout", "auto"}
		if c.named {
			path = filepath.Join(h.dir, "other.yaml")
			flags = append(flags, "--profile", path)
		}
		if err := profile.Save(path, p); err != nil {
			t.Fatal(err)
		}
		d := h.serve(flags...)
		if _, err := h.read(0, 1, nil); err != nil {
			t.Fatal(err)
		}
		const says = "random reads of 20000 bytes give "
		h.soon(10*time.Second, "the layout",
			func() bool { return strings.Contains(d.log.String(), says) })
		if used := strings.Contains(d.log.String(), says+"987 MB/s"); used != c.used {
			t.Errorf("%s: %s", c.name, d.log)
		}
		h.ends(d)
	}
}

// testProfileRefused: a daemon does not start with a profile that is none.
func testProfileRefused(t *testing.T, bin string) {
	h := newHost(t, bin, 10)
	path := filepath.Join(h.dir, profile.Name)
	if err := os.WriteFile(path, []byte("version: 1\nram: {capacity: 0B}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--profile", path}, {"--profile", path + ".none"}} {
		p := h.run(h.command(append([]string{"serve"}, flags...)...))
		if code := p.ends(10 * time.Second); code != exitUsage {
			t.Errorf("%v: it ended with %d: %s", flags, code, p.log)
		}
		says := path + ":2: ram.capacity is 0B; expected more than 0"
		if len(flags) > 0 && strings.HasSuffix(flags[1], ".none") {
			says = path + ".none: no such file"
		}
		if !strings.Contains(p.log.String(), says) {
			t.Errorf("%v: it said %s, want %q", flags, p.log, says)
		}
	}
}
