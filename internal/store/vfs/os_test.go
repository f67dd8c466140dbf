package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"belady/internal/store/vfs"
	"belady/internal/store/vfs/vfstest"
)

func open(t *testing.T) (*vfs.OS, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made", "here")
	o, err := vfs.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o, dir
}

func TestOSConforms(t *testing.T) {
	vfstest.Conformance(t, func(t *testing.T) vfs.FS {
		o, _ := open(t)
		return o
	})
}

// TestDirect reads and writes whole blocks past the page cache, into memory of Aligned.
func TestDirect(t *testing.T) {
	o, dir := open(t)
	f, err := o.Open("a/b.seg", vfs.How{Create: true, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := vfs.Aligned(3 * vfs.Block)
	defer vfs.Free(b)
	if !vfs.IsAligned(b) || vfs.IsAligned(b[64:]) {
		t.Error("IsAligned does not know what Aligned returns")
	}
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)
	}
	want := bytes.Clone(b)
	if _, err := f.WriteAt(b, vfs.Block); err != nil {
		t.Fatal(err)
	}
	clear(b)
	if n, err := f.ReadAt(b, vfs.Block); n != len(b) || err != nil && err != io.EOF {
		t.Fatal(n, err)
	}
	if !bytes.Equal(b, want) {
		t.Error("other bytes come back")
	}
	if info, err := os.Stat(filepath.Join(dir, "a/b.seg")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder is %v, %v", info.Mode(), err)
	}
}

// TestMovedDirectory: what is opened lies in the directory that was opened, wherever that went.
func TestMovedDirectory(t *testing.T) {
	o, dir := open(t)
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := o.Open("x", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := os.Stat(filepath.Join(dir+"-moved", "x")); err != nil {
		t.Errorf("the file is not where the directory went: %v", err)
	}
}

func TestRemovedDirectory(t *testing.T) {
	o, dir := open(t)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Space(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Space of a removed directory: %v", err)
	}
	if _, err := o.Open("x", vfs.How{Create: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open in a removed directory: %v", err)
	}
}

// TestOutside: no name leads out of the directory.
func TestOutside(t *testing.T) {
	o, dir := open(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../x", "/etc/passwd", "link"} {
		if f, err := o.Open(name, vfs.How{}); err == nil {
			f.Close()
			t.Errorf("%s was opened", name)
		}
	}
}

func TestAllocateTooMuch(t *testing.T) {
	o, _ := open(t)
	f, err := o.Open("x", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.Allocate(1 << 60)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EFBIG) {
		t.Errorf("2^60 bytes: %v", err)
	}
}

// TestBuffered: a file system without direct reads opens files as usual, and that can be seen. The
// kernel has one such: ramfs, which only root mounts.
func TestBuffered(t *testing.T) {
	o, _ := open(t)
	for _, how := range []vfs.How{{Create: true, Direct: true}, {Direct: true}, {}} {
		f, err := o.Open("a", how)
		if err != nil {
			t.Fatal(err)
		}
		if vfs.IsBuffered(f) {
			t.Errorf("opened with %+v it is buffered", how)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := syscall.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
		t.Logf("no ramfs here: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	small, err := vfs.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	f, err := small.Open("a", vfs.How{Create: true, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, vfs.Block), 0); err != nil || !vfs.IsBuffered(f) {
		t.Errorf("buffered %v, %v", vfs.IsBuffered(f), err)
	}
}
