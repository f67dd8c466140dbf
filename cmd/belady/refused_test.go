package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/client"
)

// refusal is a file system that comes to take no more writes, and then takes them again.
type refusal struct {
	disk   func(h *host) *disk // that takes a part of the dataset, where it does not refuse later
	refuse func(d *disk)       // in the middle of the first epoch; nil: by itself
	relent func(d *disk)       // nil: not while a daemon has it open
}

// testLogRefused (F-18): a disk without inodes, over its quota, or read-only costs nothing of what
// the log has, is told once, and the rest comes from the origin, right and without a pause. Once
// the disk takes writes again the log fills up. Where this user cannot mount disks the tests of
// the store itself stand for these: they inject the same answers below it.
func testLogRefused(t *testing.T, bin string) {
	for name, r := range map[string]refusal{
		"no inodes": {
			disk: func(h *host) *disk {
				d := h.newDisk(96, "-N", "64")
				d.takeInodes(6) // lock, memo, folder and three segments
				return d
			},
			relent: func(d *disk) {
				if err := os.RemoveAll(filepath.Join(d.dir, "taken")); err != nil {
					d.t.Error(err)
				}
			},
		},
		"quota": {
			disk: func(h *host) *disk {
				d := h.format(256, "mkfs.btrfs", "-q")
				d.must("btrfs", "quota", "enable", d.dir)
				d.dir = filepath.Join(d.dir, "limited")
				d.must("btrfs", "subvolume", "create", d.dir)
				d.must("btrfs", "qgroup", "limit", "12M", d.dir)
				return d
			},
			relent: func(d *disk) { d.must("btrfs", "qgroup", "limit", "none", d.dir) },
		},
		"read-only": {
			disk:   func(h *host) *disk { return h.newDisk(96, "-e", "remount-ro") },
			refuse: (*disk).readOnly,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()                                  // they wait most of the time
			h, o := newCountedHost(t, bin, 600, diskRate) // 36 MB, of which memory keeps 12
			if d := r.disk(h); d.mounted {
				h.refused(o, d, r)
			}
		})
	}
}

// refused fills a log in part, lets its disk refuse, and relent.
func (h *host) refused(o *counted, d *disk, r refusal) {
	h.t.Helper()
	p := h.serve(diskFlags(d.dir)...)
	batches := 0
	h.epochs(o, 3, func(*client.Batch) {
		if batches++; batches == 8 && r.refuse != nil {
			r.refuse(d)
		}
	})
	kept := int(h.log().Samples)
	most := (h.samples.Len()-kept)*11/10 + 50
	if n := h.epochs(o, 1, nil); kept == h.samples.Len() || n < 50 || n > most {
		h.t.Errorf("%d samples in the log, and %d requests for an epoch of %d", kept, n,
			h.samples.Len())
	}
	if n := strings.Count(p.log.String(), "log-full"); n != 1 ||
		strings.Contains(p.log.String(), "log-directory") {
		h.t.Errorf("told %d times: %s", n, p.log)
	}
	if r.relent == nil { // a daemon that starts on it reads what is there
		h.ends(p)
		p = h.serve(diskFlags(d.dir)...)
		if n := h.epochs(o, 1, nil); int(h.log().Samples) < kept || n > most {
			h.t.Errorf("after a restart %d of %d samples, and %d requests", h.log().Samples, kept, n)
		}
		h.ends(p)
		d.again()
		p = h.serve(diskFlags(d.dir)...)
	} else {
		r.relent(d)
	}
	h.soon(time.Minute, "an epoch without the origin", func() bool {
		return h.epochs(o, 1, nil) <= h.samples.Len()/50 // a few may be hedged
	})
	if now := int(h.log().Samples); now < kept+50 { // less what memory keeps
		h.t.Errorf("%d samples were in the log, and now there are %d", kept, now)
	}
	h.ends(p)
	h.must("log", "verify", d.dir)
}

// takeInodes makes files until there can be no more, and gives some of them back.
func (d *disk) takeInodes(left int) {
	d.t.Helper()
	dir := filepath.Join(d.dir, "taken")
	err := os.Mkdir(dir, 0o700)
	n := 0
	for ; err == nil && d.mounted; n++ {
		err = os.WriteFile(filepath.Join(dir, strconv.Itoa(n)), nil, 0o600)
	}
	if d.mounted && !errors.Is(err, unix.ENOSPC) {
		d.t.Fatal(err)
	}
	for i := range min(left, n) {
		if err := os.Remove(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			d.t.Fatal(err)
		}
	}
}

// readOnly lets an ext4 find an error in itself, on which it becomes read-only: a mount with files
// open for writing cannot be made so in another way.
func (d *disk) readOnly() {
	d.t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(d.dir, &s); err != nil {
		d.t.Fatal(err)
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(s.Dev),
		unix.Minor(s.Dev)))
	if err == nil {
		path := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
		err = os.WriteFile(path, []byte("tried by a test\n"), 0)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// again mends the file system and mounts it anew.
func (d *disk) again() {
	d.t.Helper()
	d.must("umount", d.dir)
	d.must("e2fsck", "-fy", d.image)
	d.must("mount", "-o", "loop", d.image, d.dir)
}

// must runs a program on a disk that is one.
func (d *disk) must(name string, args ...string) {
	d.t.Helper()
	if !d.mounted {
		return
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	var exit *exec.ExitError
	mended := name == "e2fsck" && errors.As(err, &exit) && exit.ExitCode() == 1
	if err != nil && !mended {
		d.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}
