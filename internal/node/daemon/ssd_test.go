package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/node/daemon"
	"belady/internal/node/event"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/tier"
	"belady/internal/store/tier/ssd"
)

// disks are real folders that can be taken away and given to another daemon.
type disks struct {
	*ssd.Disks
	t *testing.T
	o ssd.Options
}

func newDisks(t *testing.T, quota int64) *disks {
	d := &disks{t: t, o: ssd.Options{Dirs: []ssd.Dir{{Path: t.TempDir(), Quota: quota}}, Free: 1}}
	d.reopen()
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *disks) reopen() {
	d.t.Helper()
	if d.Disks != nil {
		if err := d.Close(); err != nil {
			d.t.Fatal(err)
		}
	}
	var err error
	if d.Disks, err = ssd.Open(d.o); err != nil {
		d.t.Fatal(err)
	}
}

func withDisks(d *disks) func(*daemon.Config) {
	return func(c *daemon.Config) { c.Disks, c.Layout = d, tier.Static }
}

// restarted stops a daemon and starts another one over the same folders.
func (n *node) restarted(d *disks) {
	n.t.Helper()
	if err := n.stop(); err != nil {
		n.t.Fatal(err)
	}
	d.reopen()
	n.restart()
}

// TestTheLogSurvives: what one daemon has read, the next reads from ssd, whatever the order and
// however much memory; the origin is not asked once.
func TestTheLogSurvives(t *testing.T) {
	d := newDisks(t, 0)
	n := start(t, 48*mib, withDisks(d))
	all := n.addSynth("d", "throttle+", "samples=900&size=110KB&spread=0.5&throttle.latency=1ms")
	n.mustRead(reading{Attach: all.attach(order.Random, 16, 1), data: all, depth: 3})
	if got := n.counters().Requests.Load(); got != uint64(all.len) {
		t.Errorf("the first epoch makes %d requests for %d samples", got, all.len)
	}
	s := n.fill(all)
	if got := int64(n.counters().Requests.Load()); got > int64(all.len)+s.Pump.Unlogged {
		t.Errorf("some epochs make %d requests for %d samples: %+v", got, all.len, s.Pump)
	}
	if s.Ssd.Lost > 0 || s.Pump.SsdHits == 0 {
		t.Errorf("%+v, %d read from ssd", s.Ssd, s.Pump.SsdHits)
	}
	if got := n.status().Ssd; len(got) != 1 || got[0].Path != d.o.Dirs[0].Path || got[0].Used == 0 {
		t.Errorf("%+v", got)
	}
	n.restarted(d)
	other := all.attach(order.Random, 7, 2)
	other.Order.Seed = 99
	n.mustRead(reading{Attach: other, data: all, depth: 3})
	if got := int64(n.counters().Requests.Load()); got > n.of("d").Ssd.Hedged { // a stalled disk
		t.Errorf("after a restart there are %d requests", got)
	}
	opened := n.told("log-opened")
	if len(opened) != 2 || opened[1].(event.LogOpened).Samples != int64(all.len) {
		t.Errorf("%v", opened)
	}
}

// TestHalfOnSsd: where the log holds a part, memory keeps another one, and an epoch asks the origin
// for the rest, once each.
func TestHalfOnSsd(t *testing.T) {
	d := newDisks(t, 64*mib)
	n := start(t, 48*mib, withDisks(d))
	all := n.addSynth("d", "throttle+", "samples=1500&size=80KB&throttle.latency=1ms")
	epoch := func() (bytes uint64) {
		before := uint64(0)
		if len(n.throttled) > 0 {
			before = n.counters().Bytes.Load()
		}
		n.mustRead(reading{Attach: all.attach(order.Random, 16, 1), data: all, depth: 3})
		return n.counters().Bytes.Load() - before
	}
	if got := epoch(); got != uint64(all.bytes) {
		t.Errorf("the first epoch reads %d bytes of %d", got, all.bytes)
	}
	var got uint64
	var before, s world.Status
	for range 20 { // until an epoch in which the log refused nothing and got nothing new
		before = n.quiet("d")
		if got, s = epoch(), n.quiet("d"); before.Ssd.Samples == s.Ssd.Samples &&
			before.Pump.Unlogged == s.Pump.Unlogged {
			break
		}
	}
	kept := s.Pump.KeptBytes + s.Ssd.Samples*80_000
	if most := all.bytes - kept*98/100; int64(got) > most || s.Ssd.Samples == 0 {
		t.Errorf("an epoch reads %d bytes, %d are kept of %d: %+v", got, kept, all.bytes, s.Ssd)
	}
	if s.Ssd.Disk > 64*mib {
		t.Errorf("%d bytes on ssd", s.Ssd.Disk)
	}
}

// TestOneLogUnderTwoNames: a log has one writer; who comes second reads without it.
func TestOneLogUnderTwoNames(t *testing.T) {
	d := newDisks(t, 0)
	n := start(t, 64*mib, withDisks(d))
	const query = "samples=100&size=50KB"
	one, two := n.addSynth("one", "", query), n.addSynth("two", "", query)
	n.mustRead(reading{Attach: one.attach(order.Random, 8, 1), data: one, depth: 2})
	n.mustRead(reading{Attach: two.attach(order.Random, 8, 1), data: two, depth: 2})
	if got := n.told("log-closed"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// TestForeignFiles in the folder are left alone.
func TestForeignFiles(t *testing.T) {
	d := newDisks(t, 0)
	mine := filepath.Join(d.o.Dirs[0].Path, "thesis.tex")
	if err := os.WriteFile(mine, []byte("\\documentclass"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := start(t, 64*mib, withDisks(d))
	all := n.addSynth("d", "", "samples=100&size=50KB")
	for range 2 {
		n.mustRead(reading{Attach: all.attach(order.Random, 8, 1), data: all, depth: 2})
		n.restarted(d)
	}
	if text, err := os.ReadFile(mine); err != nil || string(text) != "\\documentclass" {
		t.Errorf("%q, %v", text, err)
	}
}

// fill reads a dataset until its log holds all of it. One epoch is enough for a device that writes
// as fast as the origin gives; what a busy one refuses comes with the next.
func (n *node) fill(d data) world.Status {
	n.t.Helper()
	held := func() bool {
		s := n.of(d.name)
		return s.Ssd.Samples == int64(d.len)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		n.mustRead(reading{Attach: d.attach(order.Random, 16, 1), data: d, depth: 3})
		for wait := time.Now().Add(500 * time.Millisecond); time.Now().Before(wait); {
			if held() { // what memory keeps is appended beside
				return n.quiet(d.name)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	n.t.Fatalf("the log of %s does not fill: %+v", d.name, n.of(d.name).Ssd)
	return world.Status{}
}

// TestLogsMakeRoom: of several datasets in one quota the one that was not used for longest loses
// its log, never one that is being read.
func TestLogsMakeRoom(t *testing.T) {
	d := newDisks(t, 96*mib)
	n := start(t, 256*mib, withDisks(d))
	const query = "samples=400&size=100KB&seed="
	one, two, three := n.addSynth("one", "", query+"1"), n.addSynth("two", "", query+"2"),
		n.addSynth("three", "", query+"3")
	n.fill(one)
	n.fill(two)
	if got := n.told("log-removed"); len(got) > 0 {
		t.Fatalf("there is room for both: %v", got)
	}
	first := true
	n.mustRead(reading{Attach: two.attach(order.Random, 8, 1), data: two, depth: 2,
		each: func(*client.Batch) bool { // while two is read
			if first {
				first = false
				n.fill(three)
			}
			return true
		}})
	if got := n.told("log-removed"); len(got) == 0 {
		t.Error("no log made room")
	}
	if s := n.of("two"); s.Ssd.Samples != 400 || s.Ssd.Lost > 0 {
		t.Errorf("the log that was being read has %+v", *s.Ssd)
	}
}

// TestACarriedLog is read in the order of each epoch, through restarts, in the middle of an epoch
// too; the origin is asked for nothing twice.
func TestACarriedLog(t *testing.T) {
	d := newDisks(t, 256*mib)
	n := start(t, 48*mib, func(c *daemon.Config) { c.Disks, c.Layout = d, tier.Carry })
	all := n.addSynth("d", "throttle+", "samples=16000&size=3KB&spread=0.5&throttle.latency=1ms")
	n.mustRead(reading{Attach: all.attach(order.Random, 64, 4), data: all, depth: 3})
	s := n.quiet("d")
	if got := int64(n.counters().Requests.Load()); got > int64(all.len)+s.Pump.Unlogged {
		t.Errorf("four epochs make %d requests for %d samples: %+v", got, all.len, s.Pump)
	}
	if s.Ssd.Layout != tier.Carry || s.Ssd.Written < s.Ssd.Used*11/10 || s.Ssd.Lost > 0 {
		t.Errorf("nothing was carried: %+v, %v", *s.Ssd, n.told("log-layout"))
	}
	if s.Ssd.Disk > 115*all.bytes/100+64*mib {
		t.Errorf("%d bytes on ssd for %d of samples", s.Ssd.Disk, all.bytes)
	}
	for _, from := range []wire.Start{{Epoch: 4}, {Epoch: 3, Batch: 100}} {
		n.restarted(d)
		on := all.attach(order.Random, 64, 6)
		on.Start = from
		n.mustRead(reading{Attach: on, data: all, depth: 3})
		opened := n.told("log-opened")
		lacks := int64(all.len) - opened[len(opened)-1].(event.LogOpened).Samples
		s := n.of("d")
		if got := int64(n.counters().Requests.Load()); got > lacks+s.Pump.Unlogged+s.Ssd.Hedged {
			t.Errorf("after a restart there are %d requests for %d samples", got, lacks)
		}
	}
}

// TestJoinedRanksAreCarried: neither a rank that joins nor a second job takes the memory that the
// log is carried with.
func TestJoinedRanksAreCarried(t *testing.T) {
	n := start(t, 48*mib, func(c *daemon.Config) {
		c.Disks, c.Layout, c.Staging = newDisks(t, 512*mib), tier.Carry, 8*mib
	})
	all := n.addSynth("d", "", "samples=20000&size=3KB")
	var ranks []reading
	for rank := range 2 {
		a := all.attach(order.Distributed, 64, 3)
		a.Order.World, a.Rank = 2, rank
		ranks = append(ranks, reading{Attach: a, data: all, depth: 3})
	}
	before := all.bytes / 3 // the first job writes all once in any case
	for job := range 2 {
		for i := range ranks {
			ranks[i].Order.Seed += int64(job)
		}
		n.together(ranks...)
		s := n.quiet("d")
		if got := s.Ssd.Written - before; got < all.bytes {
			t.Errorf("job %d: %d bytes were written, the dataset has %d: %v",
				job, got, all.bytes, n.told("log-layout"))
		}
		before = s.Ssd.Written
	}
	if got := fmt.Sprint(n.told("log-layout")); strings.Contains(got, "stay where they are") {
		t.Error(got)
	}
}

// rated are directories of a device with these rates.
type rated struct {
	*disks
	rates perf.Rates
}

func (r *rated) Rates() (perf.Rates, error) { return r.rates, nil }

// TestAutoSaysWhy: the layout is chosen from what the devices give at the dataset's sizes and from
// what the job reads, and told.
func TestAutoSaysWhy(t *testing.T) {
	slow := perf.Rates{Random: []perf.Point{{Size: 4096, BytesPerS: 200e6}}, Mixed: 2e9, Read: 3e9}
	fast := perf.Rates{Random: []perf.Point{{Size: 4096, BytesPerS: 2e9}}, Mixed: 2e9, Read: 3e9}
	for _, c := range []struct {
		size   string
		rates  perf.Rates
		epochs int
		layout tier.Layout
		says   string
	}{
		{"100KB", slow, 4, tier.Static, "large enough"},
		{"3KB", fast, 4, tier.Static, "random reads of 3000 bytes give 2000 MB/s"},
		{"3KB", slow, 2, tier.Static, "only one job with an order known two epochs ahead"},
		{"3KB", slow, 4, tier.Carry, "carrying gives 1000 MB/s"},
	} {
		d := &rated{newDisks(t, 0), c.rates}
		n := start(t, 64*mib, func(cfg *daemon.Config) { cfg.Disks, cfg.Layout = d, tier.Auto })
		all := n.addSynth("d", "", "samples=200&size="+c.size)
		n.mustRead(reading{Attach: all.attach(order.Random, 16, c.epochs), data: all, depth: 2})
		if got := n.told("log-layout"); !strings.Contains(fmt.Sprint(got), c.says) {
			t.Errorf("%s: %v, want %q", c.size, got, c.says)
		}
		if u := n.of("d").Ssd; u.Layout != c.layout {
			t.Errorf("%s: %+v", c.size, *u)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
