package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// syncedWithin is how long after its writing a record is on the disk for good, and a margin.
const syncedWithin = 7 * time.Second

// testPowerCutsStatic cuts while a log is filled, for the most part.
func testPowerCutsStatic(t *testing.T, bin string) {
	testPowerCuts(t, bin, "static", "32MiB", 20_000) // 1.2 GB in 120 s
}

// testPowerCutsCarry cuts while a log is carried from epoch to epoch: it is filled in 20 s. It
// takes memory for four buckets.
func testPowerCutsCarry(t *testing.T, bin string) {
	testPowerCuts(t, bin, "carry", "128MiB", 3500)
}

// testPowerCuts (F-22): what the disk has at one moment, while a daemon writes to it, is what a
// power cut leaves. The disk is an image in a btrfs, which copies it in an instant; the copy is
// mounted as after a cut, its journal replayed. `make crash` alone runs it: it needs root and takes
// minutes.
func testPowerCuts(t *testing.T, bin, layout, ram string, samples int) {
	const cuts = 8
	h, o := newCountedHost(t, bin, samples, 10_000_000)
	pool, disk := filepath.Join(h.dir, "pool"), filepath.Join(h.dir, "disk")
	image := filepath.Join(pool, "image")
	h.shell("mkdir", pool, disk)
	h.shell("truncate", "-s", "12G", pool+".image")
	h.shell("mkfs.btrfs", "-q", pool+".image")
	h.mount(pool+".image", pool)
	h.shell("truncate", "-s", "2G", image)
	h.shell("mkfs.ext4", "-q", image)
	h.mount(image, disk)
	flags := []string{"--ram", ram, "--staging", "16MiB", "--ssd-free", "1MiB", "--ssd-layout",
		layout, "--ssd-wear", "1TB", "--ssd"}
	c := newCrash(h, o, append(flags, disk)...)
	p := c.kills(0, nil)
	for cut := range cuts {
		synced := h.sound(disk)
		time.Sleep(syncedWithin)
		name := strconv.Itoa(cut)
		snapshot, after := filepath.Join(pool, name), filepath.Join(h.dir, name)
		h.shell("cp", "--reflink=always", image, snapshot)
		h.shell("mkdir", after)
		h.mount(snapshot, after)
		left := h.held(after)
		lost := 0
		for id := range synced {
			if synced[id] && !left[id] {
				lost++
			}
		}
		t.Logf("cut %d in epoch %d: %d samples written %v before, %d left after it", cut,
			c.epochs.Load(), count(synced), syncedWithin, count(left))
		if lost > 0 {
			t.Errorf("cut %d lost %d samples that had been synced", cut, lost)
		}
		h.readAfterCut(o, after, left, flags)
		h.shell("umount", after)
		h.shell("rm", snapshot)
	}
	if u := h.log(); layout == "carry" && (c.epochs.Load() < 2 || u.Written < 3*u.Used) {
		t.Errorf("the log was not carried in %d epochs: %+v", c.epochs.Load(), u)
	}
	if n := c.finish(p); n != 0 {
		t.Errorf("with all in the log an epoch made %d requests", n)
	}
	h.ends(p)
}

// readAfterCut starts a second daemon on what a cut left, and reads an epoch of the same dataset
// through a second origin that knows what it must not be asked for.
func (h *host) readAfterCut(first *counted, ssd string, left []bool, flags []string) {
	h.t.Helper()
	other, o := newCountedHost(h.t, h.bin, first.samples.Len(), 500_000_000)
	o.bar(left)
	p := other.serve(append(flags, ssd)...)
	other.epochs(o, 1, nil)
	other.ends(p)
	if wrong := o.asked(); len(wrong) > 0 {
		h.t.Errorf("after a cut the origin was asked %d times for what was left", len(wrong))
	}
}

// shell runs a command that must succeed.
func (h *host) shell(name string, args ...string) {
	h.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// mount mounts an image until the test ends.
func (h *host) mount(image, dir string) {
	h.t.Helper()
	h.shell("mount", "-o", "loop", image, dir)
	h.t.Cleanup(func() {
		_ = unix.Unmount(dir, 0) // the test may have done so
		_ = os.Remove(dir)
	})
}
