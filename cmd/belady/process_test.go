package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testReadReconnects: a reader whose daemon goes away says so, and that it reads on.
func testReadReconnects(t *testing.T, bin string) {
	h := newHost(t, bin, 1000)
	p := h.serve()
	reader := h.run(h.command("read", "d", "--epochs", "1000", "--compute", "5", "--batch", "16"))
	h.soon(10*time.Second, "the reader reads", func() bool { return len(h.status().Ranks) == 1 })
	p.kill()
	h.soon(10*time.Second, "it tells", func() bool {
		return strings.Contains(reader.log.String(), "the daemon went away: reconnecting\n")
	})
	h.serve()
	h.soon(10*time.Second, "it reads on", func() bool {
		return strings.Contains(reader.log.String(), "the daemon is back: reading on at the same batch\n")
	})
	reader.kill()
}

// testFullDisk (F-17): what does not fit on the disk is refused in a sentence, and nothing that was
// there is lost. The disk is a real one: a small tmpfs where this user may mount it, else the limit
// a user may set on the size of files.
func testFullDisk(t *testing.T, bin string) {
	h := newHost(t, bin, 10)
	small := filepath.Join(h.dir, "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	wrap := func(cmd *exec.Cmd) *exec.Cmd { return cmd }
	err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=256k")
	switch {
	case err == nil:
		t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	case errors.Is(err, unix.EPERM):
		wrap = func(cmd *exec.Cmd) *exec.Cmd {
			args := append([]string{"-c", `ulimit -f 256; exec "$@"`, "sh"}, cmd.Args...)
			limited := exec.Command("sh", args...)
			limited.Env = cmd.Env
			return limited
		}
	default:
		t.Fatal(err)
	}
	h.socket = filepath.Join(h.dir, "s")
	h.dir = small
	h.must("dataset", "add", "d", h.url)
	before := h.must("dataset", "show", "d", "--json")
	large := "synth://x?samples=100000&size=20KB"
	for range 2 {
		add := h.run(wrap(h.command("dataset", "add", "large", large)))
		if code := add.ends(20 * time.Second); code != exitFailure ||
			!strings.Contains(add.log.String(), "belady: ") ||
			!strings.Contains(add.log.String(), "no space left on device") &&
				!strings.Contains(add.log.String(), "file too large") {
			t.Errorf("a manifest too large ended with %d: %s", code, add.log)
		}
	}
	if after := h.must("dataset", "show", "d", "--json"); after != before {
		t.Errorf("the dataset that was there is now %s", after)
	}
	if all := h.must("dataset", "ls"); strings.Contains(all, "large") {
		t.Errorf("the dataset that did not fit is listed: %s", all)
	}
	p := h.serve() // without the limit, which would be one on its memory too
	fill(t, filepath.Join(small, "filler"))
	if _, err := h.read(0, 3, nil); err != nil {
		t.Errorf("reading beside a full disk: %v: %s", err, p.log)
	}
}

// fill writes until the disk is full, or as much as would fill it.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 256 {
		if _, err := f.Write(make([]byte, 1024)); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
