package profile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belady/internal/core/perf"
	"belady/internal/profile"
)

const written = `# by hand
version: 1
ram: {capacity: 64GiB, read: [{threads: 1, rate: 16.5GB/s}, {threads: 2, rate: 21GB/s}]}
disks:
  - dir: /nvme
    capacity: 900GB
    threads: 4
    read: [{threads: 1, rate: 600MB/s}, {threads: 8, rate: 3GB/s}]
    write: [{threads: 1, rate: 1GB/s}]
    random: [{size: 4KiB, rate: 400MB/s}, {size: 1MiB, rate: 3GB/s}]
    mixed: 2.5GB/s
origin: {readers: [{at: 1, rate: 66MB/s}, {at: 4, rate: 146MB/s}], latency: 20ms, concurrency: 64}
peers: {link: [{threads: 1, rate: 1.2GB/s}]}
decode: 200MB/s
`

var want = perf.Profile{
	Ram: perf.Tier{Name: "ram", Capacity: 64 << 30, Read: steps(1, 16.5e9, 2, 21e9)},
	Disks: []perf.Disk{{Tier: perf.Tier{Name: "/nvme", Capacity: 900e9, Threads: 4,
		Read: steps(1, 600e6, 8, 3e9), Write: steps(1, 1e9)},
		Random: steps(4<<10, 400e6, 1<<20, 3e9), Mixed: 2.5e9}},
	Origin: perf.Origin{Readers: steps(1, 66e6, 4, 146e6), Latency: 20e6, Concurrency: 64},
	Peers:  steps(1, 1.2e9),
	Decode: 200e6,
}

// steps makes a curve of pairs.
func steps(pairs ...int64) (c perf.Curve) {
	for i := 0; i < len(pairs); i += 2 {
		c = append(c, perf.Step{At: pairs[i], Rate: pairs[i+1]})
	}
	return c
}

func load(t *testing.T, text string) (*perf.Profile, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return profile.Load(path)
}

func TestLoad(t *testing.T) {
	got, err := load(t, written)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := profile.Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A part of the sources is enough: not every node has all of them.
func TestLoadParts(t *testing.T) {
	got, err := load(t, "version: 1\norigin: {readers: [{at: 1, rate: 66MB/s}]}\n")
	if err != nil || len(got.Origin.Readers) != 1 || len(got.Ram.Read) != 0 {
		t.Fatalf("%+v: %v", got, err)
	}
}

// Law: what is saved is loaded again, to the byte.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	curve := func(rt *rapid.T, most int64) (c perf.Curve) {
		at := int64(0)
		for range rapid.IntRange(1, 4).Draw(rt, "steps") {
			at += rapid.Int64Range(1, most/4).Draw(rt, "at")
			c = append(c, perf.Step{At: at, Rate: rapid.Int64Range(1, 1e15).Draw(rt, "rate")})
		}
		return c
	}
	rapid.Check(t, func(rt *rapid.T) {
		p := perf.Profile{Measured: rapid.Int64Range(0, 1<<33).Draw(rt, "measured"),
			Ram:    perf.Tier{Name: "ram", Read: curve(rt, 64)},
			Origin: perf.Origin{Readers: curve(rt, 4096), Latency: 1234567, Size: 110_000},
			Decode: rapid.Int64Range(0, 1e15).Draw(rt, "decode")}
		for i := range rapid.IntRange(0, 3).Draw(rt, "disks") {
			p.Disks = append(p.Disks, perf.Disk{Tier: perf.Tier{
				Name: "/" + string(rune('a'+i)) + rapid.StringMatching(`[ -~]{0,5}`).Draw(rt, "dir"),
				Read: curve(rt, 64), Write: curve(rt, 64),
				Capacity: rapid.Int64Range(1, 1<<60).Draw(rt, "capacity")},
				Random: curve(rt, 1<<31), Alone: curve(rt, 1<<31), Mixed: 77})
		}
		if err := profile.Save(path, &p); err != nil {
			rt.Fatal(err)
		}
		got, err := profile.Load(path)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(&p, got); diff != "" {
			rt.Fatal(diff)
		}
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestBadProfiles(t *testing.T) {
	for _, c := range []struct{ name, old, new, says string }{
		{"unknown key", "decode:", "encode:", ":14: there is no setting encode; expected version, "},
		{"unknown nested key", "mixed:", "blended:", ":11: there is no setting blended; expected dir"},
		{"no version", "version: 1\n", "", ":2: has no version; expected version: 1"},
		{"a later version", "version: 1", "version: 2", ":2: version is 2; expected 1"},
		{"missing rate", "{threads: 1, rate: 1GB/s}", "{threads: 1}",
			":9: disks[0].write[0] has a rate of 0 bytes a second; expected more than 0"},
		{"missing curve", "    read: [{threads: 1, rate: 600MB/s}, {threads: 8, rate: 3GB/s}]\n", "",
			":5: disks[0].read has no steps; expected one at least, like {threads: 1, rate: 66MB/s}"},
		{"no curve", "[{at: 1, rate: 66MB/s}, {at: 4, rate: 146MB/s}]", "[]",
			":12: origin.readers has no steps"},
		{"zero capacity", "900GB", "0B", ":6: disks[0].capacity is 0B; expected more than 0"},
		{"negative capacity", "64GiB", "-64GiB", `:3: size "-64GiB" is not a number of bytes`},
		{"absurd capacity", "900GB", "9000000TB", ":6: disks[0].capacity is 9000000TB; expected"},
		{"absurd rate", "rate: 1.2GB/s", "rate: 1200000TB/s", ":13: peers.link[0].rate is 1200000TB/s"},
		{"absurd size", "size: 1MiB", "size: 5GiB",
			":10: disks[0].random[1].size is 5368709120; expected at most 4294967294"},
		{"absurd threads", "threads: 8", "threads: 100000",
			":8: disks[0].read[1].threads is 100000; expected at most 65536"},
		{"absurd latency", "20ms", "20000s", ":12: origin.latency is 5h33m20s; expected at most 1h"},
		{"no threads", "    threads: 4", "    threads: 0", ":7: disks[0].threads is 0; expected 1 to"},
		{"points that do not rise", "{at: 4,", "{at: 1,",
			":12: origin.readers[1] is at 1, after one at 1; expected steps that rise"},
		{"points that fall", "size: 1MiB", "size: 1KiB",
			":10: disks[0].random[1] is at 1024, after one at 4096; expected steps that rise"},
		{"a point at zero", "{at: 1,", "{at: 0,", ":12: origin.readers[0] is at 0; expected more"},
		{"a rate without time", "200MB/s", "200MB", `:14: rate "200MB" is not bytes a second`},
		{"a zero rate", "decode: 200MB/s", "decode: 0MB/s", ":14: decode is 0B/s; expected more than 0"},
		{"concurrency", "concurrency: 64", "concurrency: 0", ":12: origin.concurrency is 0; expected 1"},
		{"a relative folder", "/nvme", "nvme", `:5: disks[0].dir is "nvme"; expected a path from the`},
		{"a folder twice", "origin:", "  - {dir: /nvme/, read: [{threads: 1, rate: 1B/s}]}\norigin:",
			`:12: disks[1].dir is "/nvme/" once more`},
		{"alone", "    random: [{size: 4KiB, rate: 400MB/s}, {size: 1MiB, rate: 3GB/s}]",
			"    alone: [{size: 4KiB, rate: 1MB/s}]", ":5: disks[0].random is missing; expected it beside"},
		{"a time", "version: 1", "version: 1\nmeasured: yesterday",
			`:3: "yesterday" is not a time`},
		{"before its time", "version: 1", "version: 1\nmeasured: 1969-01-01T00:00:00Z",
			":3: measured is before 1970"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Count(written, c.old) != 1 {
				t.Fatalf("%q does not stand once in the text", c.old)
			}
			_, err := load(t, strings.Replace(written, c.old, c.new, 1))
			if err == nil || !strings.Contains(err.Error(), "p.yaml"+c.says) {
				t.Fatalf("got %v, want it to say %q", err, c.says)
			}
		})
	}
	if _, err := load(t, "# nothing\n"); err == nil {
		t.Error("an empty file was accepted")
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(written)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := load(t, text)
		if err != nil {
			return
		}
		p.Roofline(perf.Load{OriginBytes: 1e12, DiskRead: []int64{1e12}, PeerBytes: 1e12})
		p.Fastest(110_000, 4, make([]bool, 1+len(p.Disks)), make([]bool, 1+len(p.Disks)))
	})
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	err := profile.Print(&out, &want, profile.Note{Source: "origin", Text: "was slow"})
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"reads by 1 thread ", "reads by 2 threads", `ssd "/nvme"`,
		"random reads of 4.0 KiB, 32 at once", "400 MB/s", "writes of 1.0 MiB by 1 thread ",
		"reads and writes at once", "2.5 GB/s", "reads by 1 reader ", "146 MB/s", "answers after 20ms",
		"network to peers", "was slow"} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("it does not say %q:\n%s", says, out.String())
		}
	}
}
