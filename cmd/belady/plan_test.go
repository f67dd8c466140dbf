package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belady/internal/client"
	"belady/internal/node/daemon"
	"belady/internal/prospect"
)

const planProfile = `version: 1
ram:    {read: [{threads: 1, rate: 10GB/s}]}
disks:
  - {dir: /nvme, read: [{threads: 1, rate: 500MB/s}, {threads: 4, rate: 1GB/s}],
     write: [{threads: 1, rate: 400MB/s}]}
origin: {readers: [{at: 1, rate: 60MB/s}, {at: 4, rate: 100MB/s}], latency: 20ms, concurrency: 4}
peers:  {link: [{threads: 1, rate: 1GB/s}]}
`

// plannedBy runs the verb with a profile.
func plannedBy(t *testing.T, args string) (code int, out, errs string) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "profile.yaml")
	if err := os.WriteFile(file, []byte(planProfile), 0o600); err != nil {
		t.Fatal(err)
	}
	return belady(t, append(strings.Fields("plan "+args), "--profile", file)...)
}

func planJSON(t *testing.T, args string) (r prospect.Report) {
	t.Helper()
	code, out, errs := plannedBy(t, args+" --json")
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK || errs != "" {
		t.Fatalf("code %d, %v: %s", code, err, errs)
	}
	return r
}

func TestPlanText(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--samples 10000 --size 100KB --ram 512MiB --ssd 300MB --world 2 --batch 50 --compute 20ms", `
dataset 10000×100KB: 10,000 samples, 1.0 GB; 4 epochs, 2 ranks, policy spread

    tier  samples   bytes   share  read in an epoch
     ram    4,657  466 MB  46.6 %            466 MB
     ssd    2,825  283 MB  28.2 %            283 MB
  origin    2,518  252 MB  25.2 %            252 MB

staging  57 MB of each node's memory
origin   sends 1.0 GB in the first epoch, then 252 MB in each: 1.8 GB in all
uses     the node reads each sample 4 times in 4 epochs
first    ≥ 50.00 s, bound by origin requests; stall ≥ 48.00 s (compute 2.00 s, ` +
			`origin bytes 10.00 s, origin requests 50.00 s, ssd /nvme 0.71 s)
epoch    ≥ 12.59 s, bound by origin requests; stall ≥ 10.59 s (compute 2.00 s, ` +
			`origin bytes 2.52 s, origin requests 12.59 s, ssd /nvme 0.28 s)
`},
		{"--samples 10000 --size 100KB --ram 160MiB --world 4 --nodes 4 --epochs 10 --batch 50", `
dataset 10000×100KB: 10,000 samples, 1.0 GB; 10 epochs, 4 ranks, 4 nodes, policy spread

    tier  samples   bytes   share  read at home  by peers
     ram    3,992  399 MB  39.9 %        166 MB    233 MB
  origin    6,008  601 MB  60.1 %        601 MB          
`},
	} {
		code, out, errs := plannedBy(t, c.args)
		if code != exitOK || errs != "" {
			t.Fatalf("code %d: %s", code, errs)
		}
		if want := strings.TrimPrefix(c.want, "\n"); !strings.HasPrefix(out, want) {
			t.Errorf("belady plan %s:\n%s\nwant\n%s", c.args, out, want)
		}
	}
}

// What a plan says adds up: every byte of the dataset has a home or comes from the origin, and an
// epoch reads each once.
func TestPlanAddsUp(t *testing.T) {
	for _, args := range []string{
		"--samples 20000 --size 50KB --ram 300MiB --world 4",
		"--samples 20000 --size 50KB --ram 300MiB --ssd 400MB --world 4",
		"--samples 20000 --size 50KB --ram 128MiB --ssd 100MB --world 8 --nodes 4 --batch 16",
		"--samples 20000 --size 50KB --ram 1GiB --world 4 --nodes 2",
		"--samples 20001 --size 50KB --ram 300MiB --world 4", // padded
	} {
		r := planJSON(t, args)
		read, held := r.Origin.Later, r.Origin.Later
		for _, tier := range r.Tiers {
			read += tier.Home + tier.Peers
			held += tier.Bytes
		}
		if read < r.Bytes || read > r.Bytes+4*50_000 {
			t.Errorf("%s: an epoch reads %d of %d bytes", args, read, r.Bytes)
		}
		if r.Origin.Later > 0 && held != r.Bytes || held < r.Bytes {
			t.Errorf("%s: %d of %d bytes have a place", args, held, r.Bytes)
		}
		if r.Origin.First != r.Bytes || r.Origin.All != r.Bytes+3*r.Origin.Later || !r.Exact {
			t.Errorf("%s: %+v", args, r.Origin)
		}
		if r.Later == nil || r.Later.Stall != r.Later.Time || r.Later.Time == 0 {
			t.Errorf("%s: %+v", args, r.Later)
		}
	}
}

// Nodes use samples differently, as often as chance has it; the digest names who decided what.
func TestPlanOfACluster(t *testing.T) {
	const args = "--samples 20000 --size 50KB --ram 128MiB --world 8 --nodes 4 --batch 16 --epochs 200"
	r := planJSON(t, args)
	u := r.Uses
	if u.Mean != 50 || u.Above != 55 || u.Expected < 3000 || u.Expected > 4000 ||
		float64(u.Counted) < u.Expected*0.9 || float64(u.Counted) > u.Expected*1.1 {
		t.Errorf("%+v", u)
	}
	if ram := r.Tiers[0]; ram.Home*4 < ram.Peers+ram.Home {
		t.Errorf("homes that follow uses are read at home less than chance has it: %+v", ram)
	}
	if len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "does not serve peers yet") {
		t.Errorf("notes: %q", r.Notes)
	}
	if again := planJSON(t, args); again.Digest != r.Digest {
		t.Error("another digest of the same plan")
	}
	if other := planJSON(t, args+" --seed 1"); other.Digest == r.Digest {
		t.Error("the same digest of another order")
	}
}

// A policy that decides as it runs has bounds only, and says so.
func TestPlanBounds(t *testing.T) {
	r := planJSON(t, "--samples 10000 --size 100KB --ram 512MiB --policy lru")
	spread := planJSON(t, "--samples 10000 --size 100KB --ram 512MiB")
	if r.Exact || r.Origin.Later > r.Bytes-r.Keep || r.Origin.Later < spread.Origin.Later*9/10 {
		t.Errorf("%+v beside %+v", r.Origin, spread.Origin)
	}
	drawn := planJSON(t, "--samples 10000 --size 100KB --ram 512MiB --kind torch-replacement")
	if drawn.Exact || drawn.Policy != "belady" || drawn.Origin.First > r.Bytes*65/100 {
		t.Errorf("%+v", drawn)
	}
}

func TestPlanAskedWrongly(t *testing.T) {
	for _, args := range []string{"", "--samples 0", "--samples -5",
		"--samples 9 --size 0B", "--samples 9 --size x", "--samples 99 --nodes 3 --world 4",
		"--samples 9 --nodes 0", "--samples 9 --world 0", "--samples 9 --ram 1MB",
		"--samples 9 --ram 1,5", "--samples 9 --ram 64MiB --staging 1GiB", "--samples 9 --ssd 1MB",
		"--samples 9 --ssd x", "--samples 9 --policy best", "--samples 9 --epochs 0",
		"--samples 9 --nodes 2 --world 2 --policy lru", "--samples 9 --kind explicit",
		"--samples 9 --nodes 2 --world 2 --kind torch-replacement", "--samples 9 --batch 0",
		"--samples 9 --compute -1s", "--samples 4294967295", "--samples 99999999999",
		"--samples 9 --kind torch-weighted", "--samples 9 --ram 16TiB",
		"--samples 100000 --batch 1 --compute 2000000h",
		"--samples 100000 --size 1MB --batch 1 --epochs 999999999999999"} {
		if code, out, errs := plannedBy(t, args); code != exitUsage || out != "" {
			t.Errorf("belady plan %s: code %d: %s%s", args, code, out, errs)
		}
	}
	t.Setenv("HOME", t.TempDir())
	for _, args := range []string{"plan nothing", "plan --samples 9 --profile /nowhere",
		"plan --samples 999 --size 1MB --ram 64MiB --batch 500"} {
		if code, out, errs := belady(t, strings.Fields(args)...); code != exitFailure || out != "" {
			t.Errorf("belady %s: code %d: %s%s", args, code, out, errs)
		}
	}
}

// What is planned is what the daemon then has: the same memory for keeping and staging, the same
// samples on ssd.
func TestPlanIsTheDaemons(t *testing.T) {
	runAll(t, map[string]func(t *testing.T, bin string){
		"ram": func(t *testing.T, bin string) {
			comparePlan(t, bin, []string{"--ram", "48MiB"}, "--ram 48MiB")
		},
		"staging": func(t *testing.T, bin string) {
			comparePlan(t, bin, []string{"--ram", "64MiB", "--staging", "20MiB"},
				"--ram 64MiB --staging 20MiB")
		},
		"ssd": func(t *testing.T, bin string) {
			comparePlan(t, bin, diskFlags(filepath.Join(t.TempDir(), "ssd")+":24MiB"),
				"--ram 32MiB --staging 16MiB --ssd 24MiB")
		},
	})
}

func comparePlan(t *testing.T, bin string, flags []string, args string) {
	h, _ := newCountedHost(t, bin, 2000, diskRate)
	var planned prospect.Report
	command := append(strings.Fields("plan d --kind torch-random --seed 3 --batch 16 --json"),
		strings.Fields(args)...)
	if err := json.Unmarshal([]byte(h.must(command...)), &planned); err != nil {
		t.Fatal(err)
	}
	p := h.serve(flags...)
	var s daemon.Status
	if _, err := h.read(0, 1, func(*client.Batch) {
		if len(s.Datasets) == 0 {
			s = h.status()
		}
	}); err != nil {
		t.Fatal(err)
	}
	h.ends(p)
	d := s.Datasets[0]
	ssd := int64(0)
	if len(planned.Tiers) > 1 {
		ssd = planned.Tiers[1].Bytes
	}
	if d.Keep != planned.Keep || d.Staging != planned.Staging || d.SsdKeep != ssd ||
		d.Bytes != planned.Bytes || d.Keep == 0 || d.Keep > d.Bytes*9/10 {
		t.Errorf("the daemon keeps %d, stages %d and has %d on ssd; planned are %d, %d and %d", d.Keep,
			d.Staging, d.SsdKeep, planned.Keep, planned.Staging, ssd)
	}
}
