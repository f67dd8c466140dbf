package posix

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

// hanging is an origin that takes its reads for ones that may hang, and whose file "pipe" does: it
// is a FIFO, and opening one waits in the kernel until somebody writes. It lies in the folder at.
func hanging(t *testing.T, dir, at string) (f *files, release func()) {
	t.Helper()
	pipe := filepath.Join(at, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "file"), []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	f = o.(*files)
	f.local = false
	f.flags &^= syscall.O_NONBLOCK
	return f, func() {
		writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		// Every slot is free again once no read hangs.
		if err := f.wait.slots.Acquire(context.Background(), f.wait.most); err != nil {
			t.Fatal(err)
		}
		_ = writer.Close()
	}
}

// A read that hangs in the kernel ends at its deadline, with an error that may be retried; the
// caller's memory is its own again, and other reads go on.
func TestHangingRead(t *testing.T) {
	dir := t.TempDir()
	f, release := hanging(t, dir, dir)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	dst := []byte("mine!")
	err := f.Read(ctx, dataset.Part{Name: "pipe"}, dst)
	if !errors.Is(err, origin.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "does not answer") {
		t.Fatalf("got %v", err)
	}
	if string(dst) != "mine!" {
		t.Errorf("the caller's memory is %q", dst)
	}
	for range 3 {
		if err := f.Read(t.Context(), dataset.Part{Name: "file"}, dst); err != nil ||
			string(dst) != "bytes" {
			t.Errorf("read %q, %v", dst, err)
		}
	}
}

// However many reads hang, no more than so many threads and bytes do.
func TestHangingReadsAreBounded(t *testing.T) {
	for _, size := range []int{5, 2 * waitBytes} {
		dir := t.TempDir()
		f, release := hanging(t, dir, dir)
		f.wait = newWaits(8 * waitBytes)
		boundedReads(t, f, size, min(8, 8*waitBytes/size))
		release()
	}
}

func boundedReads(t *testing.T, f *files, size, most int) {
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		err := f.Read(ctx, dataset.Part{Name: "pipe"}, make([]byte, size))
		cancel()
		if !errors.Is(err, origin.ErrUnavailable) {
			t.Fatalf("read %d: %v", i, err)
		}
		if says := strings.Contains(err.Error(), "too many reads"); says != (i >= most) {
			t.Errorf("read %d of %d bytes: %v", i, size, err)
		}
	}
}

// A link may lead from a local disk to a server: its reads end at their deadline too.
func TestHangingReadBehindALink(t *testing.T) {
	elsewhere, err := os.MkdirTemp("/dev/shm", "belady-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	dir := t.TempDir()
	for link, target := range map[string]string{
		"folder": elsewhere, "file": elsewhere + "/file", "pipe": elsewhere + "/pipe",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f, release := hanging(t, dir, elsewhere)
	defer release()
	f.local = true
	for _, below := range []string{"", "folder/"} {
		dst := make([]byte, 5)
		err := f.Read(t.Context(), dataset.Part{Name: below + "file"}, dst)
		if err != nil || string(dst) != "bytes" {
			t.Errorf("read %q of %qfile, %v", dst, below, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err = f.Read(ctx, dataset.Part{Name: below + "pipe"}, dst)
		cancel()
		if !errors.Is(err, origin.ErrUnavailable) {
			t.Errorf("%qpipe: %v", below, err)
		}
	}
}

func TestLocalReadsAreDirect(t *testing.T) {
	if mayHang("/dev/shm") {
		t.Error("shared memory is taken for a network's file system")
	}
	if !mayHang("/proc") || !mayHang(filepath.Join(t.TempDir(), "nowhere")) {
		t.Error("an unknown file system is taken for a local one")
	}
}
