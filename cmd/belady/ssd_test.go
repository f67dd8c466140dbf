package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/client"
	"belady/internal/store/tier"
)

// TestLogs tries what happens to a log on a disk around the real program.
func TestLogs(t *testing.T) {
	runAll(t, map[string]func(t *testing.T, bin string){
		"restart":       testLogRestart,
		"two daemons":   testLogTwoDaemons,
		"foreign files": testLogForeign,
		"flipped bits":  testLogFlips,
		"full disk":     testLogFull,
		"injured":       testLogInjured,
		"refused":       testLogRefused,
	})
}

// diskRate is the counted origin's where time is not what is tried.
const diskRate = 200_000_000

// diskFlags are a daemon's that keeps next to nothing in memory.
func diskFlags(ssd string, more ...string) []string {
	return append([]string{"--ram", "32MiB", "--staging", "16MiB", "--ssd", ssd, "--ssd-free", "1MiB",
		"--ssd-layout", "static"}, more...)
}

// log is what the daemon says of the log of dataset "d".
func (h *host) log() tier.Usage {
	h.t.Helper()
	var s struct {
		Datasets []struct {
			Ssd tier.Usage `json:"ssd"`
		} `json:"datasets"`
	}
	h.statusInto(&s)
	if len(s.Datasets) != 1 {
		h.t.Fatalf("the status has %d datasets", len(s.Datasets))
	}
	return s.Datasets[0].Ssd
}

// epochs reads that many and returns how often the origin was asked.
func (h *host) epochs(o *counted, n int, each func(*client.Batch)) int {
	h.t.Helper()
	before := o.total()
	if _, err := h.read(0, n, each); err != nil {
		h.t.Fatal(err)
	}
	return o.total() - before
}

// testLogRestart: what a log holds is not read from the origin again, by whom and in whatever
// order it is read; and a daemon with another ram or without any log reads on.
func testLogRestart(t *testing.T, bin string) {
	h, o := newCountedHost(t, bin, 1000, diskRate)
	ssd := filepath.Join(h.dir, "ssd")
	p := h.serve(diskFlags(ssd)...)
	if n := h.epochs(o, 2, nil); n > h.samples.Len()*11/10+50 {
		t.Errorf("two epochs took %d requests for %d samples", n, h.samples.Len())
	}
	h.ends(p)
	if n := count(h.held(ssd)); n != h.samples.Len() {
		t.Errorf("a daemon that was stopped left %d of %d samples in the log", n, h.samples.Len())
	}
	p = h.serve(diskFlags(ssd, "--ram", "96MiB")...)
	if n := h.epochs(o, 2, nil); n != 0 {
		t.Errorf("after a restart, %d requests", n)
	}
	h.ends(p)
	p = h.serve()
	if n := h.epochs(o, 1, nil); n < h.samples.Len() {
		t.Errorf("a daemon without a log made %d requests for %d samples", n, h.samples.Len())
	}
	h.ends(p)
}

// testLogTwoDaemons (F-25): a directory has one daemon; a dead one's is taken over.
func testLogTwoDaemons(t *testing.T, bin string) {
	h, o := newCountedHost(t, bin, 100, diskRate)
	ssd := filepath.Join(h.dir, "ssd")
	p := h.serve(diskFlags(ssd)...)
	h.epochs(o, 1, nil)
	other, _ := newCountedHost(t, bin, 100, diskRate)
	second := other.run(other.command(append([]string{"serve"}, diskFlags(ssd)...)...))
	if code := second.ends(10 * time.Second); code != exitFailure ||
		!strings.Contains(second.log.String(), strconv.Itoa(p.cmd.Process.Pid)) ||
		!strings.Contains(second.log.String(), ssd) {
		t.Errorf("the second ended with %d: %s", code, second.log)
	}
	h.epochs(o, 1, nil)
	p.kill()
	other.serve(diskFlags(ssd)...)
	if _, err := other.read(0, 1, nil); err != nil {
		t.Errorf("after the first was killed: %v", err)
	}
}

// testLogForeign: what is not ours is named and left as it is, whatever its name.
func testLogForeign(t *testing.T, bin string) {
	h, o := newCountedHost(t, bin, 300, diskRate)
	ssd := filepath.Join(h.dir, "ssd")
	var shown struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(h.must("dataset", "show", "d", "--json")), &shown); err != nil ||
		len(shown.ID) != 64 {
		t.Fatalf("the dataset's id is %q, %v", shown.ID, err)
	}
	draw := rand.New(rand.NewPCG(1, 0))
	foreign := map[string][]byte{}
	for name, bytes := range map[string]int{"notes.txt": 10, "log-of-my-trip/day.txt": 100,
		"log-" + shown.ID + "/readme":       1000,
		"log-" + shown.ID + "/00000001.seg": 3 << 20,
		"log-" + shown.ID + "/00000002.seg": 17} {
		text := make([]byte, bytes)
		for i := range text {
			text[i] = byte(draw.Uint32() | 1)
		}
		path := filepath.Join(ssd, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		foreign[path] = text
	}
	p := h.serve(diskFlags(ssd)...)
	h.epochs(o, 2, nil)
	h.ends(p)
	p = h.serve(diskFlags(ssd)...)
	if n := h.epochs(o, 1, nil); n != 0 {
		t.Errorf("beside foreign files the log lost what %d requests brought", n)
	}
	h.ends(p)
	listed := h.must("log", "ls", ssd)
	for path, text := range foreign {
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
			t.Errorf("%s was changed: %d bytes, %v", path, len(now), err)
		}
		below, _ := filepath.Rel(ssd, path)
		if !strings.Contains(listed, below) && !strings.Contains(listed, filepath.Dir(below)+"\n") {
			t.Errorf("log ls does not name %s: %s", below, listed)
		}
	}
}

// testLogFlips (F-20): flipped bits are found, by verify and by the daemon; what they hit comes
// from the origin once, and is in the log again. Many of them make the directory unstable, and it
// takes longer.
func testLogFlips(t *testing.T, bin string) {
	h, o := newCountedHost(t, bin, 500, diskRate)
	ssd := filepath.Join(h.dir, "ssd")
	p := h.serve(diskFlags(ssd)...)
	h.epochs(o, 2, nil)
	h.ends(p)
	for _, flips := range []int{2, 40} {
		flip(t, ssd, flips)
		if out, err := h.command("log", "verify", ssd).CombinedOutput(); err == nil {
			t.Errorf("verify finds nothing wrong with %d flipped bits: %s", flips, out)
		}
		p = h.serve(diskFlags(ssd)...)
		n := h.epochs(o, 3, nil)
		h.ends(p)
		held := count(h.sound(ssd))
		t.Logf("%d flipped bits: %d requests, then the log has %d of %d samples", flips, n, held,
			h.samples.Len())
		if flips == 2 && (n > 2+5 || held != h.samples.Len()) { // a few may have been hedged
			t.Errorf("2 flipped bits took %d requests, and left %d samples", n, held)
		}
		if n > 3*h.samples.Len() || held < h.samples.Len()-flips {
			t.Errorf("%d flipped bits took %d requests, and left %d samples", flips, n, held)
		}
	}
}

// flip turns single bits in the records of the segments below dir, each in another sample.
func flip(t *testing.T, dir string, n int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "log-*", "*.seg"))
	if err != nil || len(names) == 0 {
		t.Fatalf("the segments are %v, %v", names, err)
	}
	draw := rand.New(rand.NewPCG(2, 0))
	for left := n; left > 0; {
		file, err := os.OpenFile(names[draw.IntN(len(names))], os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		at := 8192 + draw.Int64N(info.Size()-16384)
		if _, err := file.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		if b[0] != 0 { // most of a gap, or of a slot never used, is zero
			b[0] ^= 1 << draw.IntN(8)
			if _, err := file.WriteAt(b[:], at); err != nil {
				t.Fatal(err)
			}
			left--
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// disk is a small file system of its own where this user may mount one, else a plain folder.
type disk struct {
	t       *testing.T
	dir     string // where it is mounted
	image   string // that it lies in
	mounted bool
}

// newDisk makes an ext4 of that many MiB on a loop device.
func (h *host) newDisk(mib int, options ...string) *disk {
	h.t.Helper()
	return h.format(mib, append([]string{"mkfs.ext4", "-q", "-m", "0"}, options...)...)
}

// format makes a file system of that many MiB on a loop device.
func (h *host) format(mib int, mkfs ...string) *disk {
	h.t.Helper()
	d := &disk{t: h.t, dir: filepath.Join(h.dir, "disk"), image: filepath.Join(h.dir, "image")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		h.t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return d
	}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
	for _, cmd := range [][]string{
		{"truncate", "-s", strconv.Itoa(mib) + "M", d.image},
		append(mkfs, d.image),
		{"mount", "-o", "loop", d.image, d.dir},
	} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			h.t.Logf("no loop device here, a plain folder stands for the disk: %v: %v: %s", cmd, err, out)
			return d
		}
	}
	d.mounted = true
	at := d.dir
	h.t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // it may be unmounted already
	return d
}

// testLogFull (F-17): a log meets the end of its disk, or of its quota where this user cannot mount
// a disk, and is read on; nothing half-written is left.
func testLogFull(t *testing.T, bin string) {
	h, o := newCountedHost(t, bin, 1500, diskRate) // 90 MB
	d := h.newDisk(64)
	ssd := d.dir
	if !d.mounted {
		ssd += ":48MiB"
	}
	p := h.serve(diskFlags(ssd)...)
	h.epochs(o, 1, nil)
	kept := int(h.log().Samples)
	if kept < h.samples.Len()/4 || kept >= h.samples.Len() {
		t.Errorf("a disk for half of it holds %d of %d samples", kept, h.samples.Len())
	}
	if n, most := h.epochs(o, 1, nil), (h.samples.Len()-kept)*11/10+50; n > most {
		t.Errorf("with %d samples in the log an epoch took %d requests, at most %d are right", kept, n,
			most)
	}
	if d.mounted {
		fillUp(t, filepath.Join(d.dir, "filler"))
	}
	h.epochs(o, 1, nil)
	h.ends(p)
	p = h.serve(diskFlags(ssd)...) // on a disk without a free byte
	h.epochs(o, 1, nil)
	h.ends(p)
	if n := count(h.held(d.dir)); n < kept {
		t.Errorf("the log had %d samples, and %d in the end", kept, n)
	}
}

// fillUp takes all that is left of a disk.
func fillUp(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := file.Write(block); errors.Is(err, unix.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// testLogInjured (F-19, F-26): what happens to a directory under a running daemon never shows
// in a byte, never stops it, and nothing is written where the disk was mounted.
func testLogInjured(t *testing.T, bin string) {
	injuries := map[string]struct {
		needsDisk bool
		do        func(d *disk) error
	}{
		"removed": {false, func(d *disk) error {
			names, err := filepath.Glob(filepath.Join(d.dir, "*"))
			for _, name := range names {
				err = errors.Join(err, os.RemoveAll(name))
			}
			return err
		}},
		"unmounted": {true, func(d *disk) error { return unix.Unmount(d.dir, unix.MNT_DETACH) }},
		"shut down": {true, func(d *disk) error { // by the file system itself: all fails with EIO
			dir, err := os.Open(d.dir)
			if err != nil {
				return err
			}
			defer dir.Close()
			const ext4Shutdown, noFlush = 0x8004587d, 2
			return unix.IoctlSetPointerInt(int(dir.Fd()), ext4Shutdown, noFlush)
		}},
		"dead": {true, func(d *disk) error { return os.Truncate(d.image, 0) }}, // the device answers EIO
	}
	for name, injury := range injuries {
		t.Run(name, func(t *testing.T) {
			h, o := newCountedHost(t, bin, 400, diskRate) // 24 MB, 25 batches
			d := h.newDisk(96)
			if injury.needsDisk && !d.mounted {
				return // said by newDisk: nothing can be done to a disk that is not one
			}
			p := h.serve(diskFlags(d.dir)...)
			batches := 0
			n := h.epochs(o, 5, func(*client.Batch) {
				if batches++; batches == 35 {
					if err := injury.do(d); err != nil {
						t.Fatal(err)
					}
				}
			})
			// The worst is a log that is gone in the second epoch: then every epoch reads the origin.
			if most := 5*h.samples.Len()*11/10 + 50; n > most {
				t.Errorf("%d requests, at most %d are right", n, most)
			}
			t.Logf("%d requests for 5 epochs of %d samples", n, h.samples.Len())
			h.ends(p)
			if name == "unmounted" {
				if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
					t.Errorf("below the mount point lies %v, %v", left, err)
				}
			}
		})
	}
}
