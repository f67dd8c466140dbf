package daemon_test

import (
	"strings"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/node/event"
	"belady/internal/store/tier/ssd"
	"belady/internal/store/vfs"
	"belady/internal/store/vfs/vfstest"
)

// newFaultyDisks are a real folder whose operations can be made to fail, or to take long.
func newFaultyDisks(t *testing.T) (*disks, *vfstest.Faults) {
	t.Helper()
	path := t.TempDir()
	files, err := vfs.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the directories are closed
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	faults := vfstest.NewFaults(files)
	d := &disks{t: t, o: ssd.Options{Dirs: []ssd.Dir{{Path: path}}, Free: 1,
		FS: func(string) (vfs.FS, error) { return faults, nil }}}
	d.reopen()
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, faults
}

// TestASlowDisk (F-27): the device of a log answers each read after seconds. Ranks that wait get
// their samples from the origin, nothing is dropped, and once the device is well again the log is
// read as before.
func TestASlowDisk(t *testing.T) {
	const slow = 6 * time.Second // a hedge waits for two
	d, faults := newFaultyDisks(t)
	n := start(t, 32*mib, withDisks(d))
	all := n.addSynth("d", "throttle+", "samples=900&size=110KB&spread=0.5&throttle.latency=1ms")
	n.fill(all)
	before, batches := n.counters().Requests.Load(), 0
	begun := time.Now()
	n.mustRead(reading{Attach: all.attach(order.Random, 16, 1), data: all, depth: 3,
		each: func(*client.Batch) bool {
			if batches++; batches == 4 {
				faults.Add(vfstest.Rule{Op: vfstest.ReadAt, Name: "*.seg", Delay: slow})
			}
			return true
		}})
	took, s := time.Since(begun), n.of("d")
	// 32 reads at a time would take more than a minute and a half.
	if s.Ssd.Hedged == 0 || s.Ssd.Lost > 0 || s.Ssd.Corrupt > 0 || took > time.Minute {
		t.Errorf("an epoch took %v: %+v", took, *s.Ssd)
	}
	if got := n.counters().Requests.Load() - before; got == 0 || got > uint64(all.len)*11/10 {
		t.Errorf("%d requests for %d samples", got, all.len)
	}
	eventually(t, "count of all that the origin gave", func() bool { // a hedge may be on its way
		s := n.of("d")
		got, _ := s.ReadBytes()
		return uint64(got) == n.counters().Bytes.Load()
	})
	if got := len(n.told("log-slow")); got == 0 || got > 2 { // once a minute
		t.Errorf("it is told %d times", got)
	}
	if u := n.status().Ssd[0]; u.State != "ok" || u.Failures > 0 {
		t.Errorf("a slow directory is %+v", u)
	}
	faults.Heal()
	time.Sleep(slow) // what is on its way comes late, and harms nothing
	before, hedged := n.counters().Requests.Load(), n.of("d").Ssd.Hedged
	n.mustRead(reading{Attach: all.attach(order.Random, 16, 2), data: all, depth: 3})
	s = n.quiet("d")
	if got := int64(n.counters().Requests.Load() - before); got > s.Ssd.Hedged-hedged ||
		s.Ssd.Samples != int64(all.len) {
		t.Errorf("%d requests once the device is well again: %+v", got, *s.Ssd)
	}
}

// TestABufferedDisk: a file system without direct reads is told once, and shown.
func TestABufferedDisk(t *testing.T) {
	d, faults := newFaultyDisks(t)
	faults.Add(vfstest.Rule{Op: vfstest.Open, Name: "*.seg", Buffered: true})
	n := start(t, 64*mib, withDisks(d))
	for _, seed := range []string{"1", "2"} {
		n.fill(n.addSynth("d"+seed, "", "samples=100&size=50KB&seed="+seed))
	}
	told := n.told("log-directory")
	if len(told) != 1 || told[0].(event.LogDirectory).State != "buffered" ||
		!strings.Contains(told[0].String(), "page cache") {
		t.Errorf("%v", told)
	}
	if u := n.status().Ssd[0]; !u.Buffered || u.State != "ok" {
		t.Errorf("%+v", u)
	}
}
