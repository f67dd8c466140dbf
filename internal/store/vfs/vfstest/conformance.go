// Package vfstest has file systems for tests: one that loses power, one that fails on demand, and
// what every file system must do.
package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belady/internal/store/vfs"
)

// Conformance holds a file system to the contract of package vfs. Each call of open returns a new,
// empty one.
func Conformance(t *testing.T, open func(t *testing.T) vfs.FS) {
	for name, test := range map[string]func(*testing.T, vfs.FS){
		"files": testFiles, "names": testNames, "lock": testLock, "allocate": testAllocate,
		"space": testSpace,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func create(t *testing.T, f vfs.FS, name string) vfs.File {
	t.Helper()
	file, err := f.Open(name, vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func testFiles(t *testing.T, f vfs.FS) {
	file := create(t, f, "folder/x")
	if n, err := file.WriteAt([]byte("hello"), 3); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := f.Open("folder/x", vfs.How{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b := make([]byte, 10)
	n, err := file.ReadAt(b, 0)
	if n != 8 || err != io.EOF || !bytes.Equal(b[:n], []byte("\x00\x00\x00hello")) {
		t.Errorf("read %q, %v", b[:n], err)
	}
	if n, err := file.ReadAt(b[:2], 100); n != 0 || err != io.EOF {
		t.Errorf("behind the end: %d, %v", n, err)
	}
	if n, err := file.ReadAt(b[:2], 4); n != 2 || err != nil || string(b[:2]) != "el" {
		t.Errorf("in the middle: %q, %v", b[:n], err)
	}
	if _, err := file.WriteAt(b, 0); err == nil {
		t.Error("a file opened for reading was written")
	}
}

func testNames(t *testing.T, f vfs.FS) {
	if found, err := f.List("absent"); len(found) > 0 || err != nil {
		t.Errorf("an absent folder holds %v, %v", found, err)
	}
	if _, err := f.Open("absent", vfs.How{Write: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
	for _, name := range []string{"b", "a/y", "a/x"} {
		file := create(t, f, name)
		if _, err := file.WriteAt([]byte(name), 0); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	if _, err := f.Open("b", vfs.How{Create: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file made twice: %v", err)
	}
	top, err := f.List(".")
	if err != nil {
		t.Fatal(err)
	}
	for i := range top {
		if top[i].Dir {
			top[i].Bytes = 0 // file systems differ
		}
	}
	if d := cmp.Diff([]vfs.Entry{{Name: "a", Dir: true}, {Name: "b", Bytes: 1}}, top); d != "" {
		t.Error(d)
	}
	if err := f.Remove("a/x"); err != nil {
		t.Error(err)
	}
	if err := f.Remove("a/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file removed twice: %v", err)
	}
	if err := f.Remove("a"); err == nil {
		t.Error("a folder with a file in it was removed")
	}
	below, err := f.List("a")
	if d := cmp.Diff([]vfs.Entry{{Name: "y", Bytes: 3}}, below); d != "" || err != nil {
		t.Error(d, err)
	}
	if err := errors.Join(f.SyncDir("a"), f.SyncDir("."), f.Remove("a/y"), f.Remove("a")); err != nil {
		t.Error(err)
	}
	if err := f.SyncDir("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent folder synced: %v", err)
	}
}

func testLock(t *testing.T, f vfs.FS) {
	file := create(t, f, "lock")
	file.Close()
	first, err := f.Open("lock", vfs.How{Write: true, Lock: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Open("lock", vfs.How{Write: true, Lock: true}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if file, err := f.Open("lock", vfs.How{}); err != nil {
		t.Errorf("a locked file cannot be read: %v", err)
	} else {
		file.Close()
	}
	first.Close()
	second, err := f.Open("lock", vfs.How{Write: true, Lock: true})
	if err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	second.Close()
}

func testAllocate(t *testing.T, f vfs.FS) {
	file := create(t, f, "x")
	defer file.Close()
	if _, err := file.WriteAt([]byte("stays"), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Allocate(10000), file.Sync()); err != nil {
		t.Fatal(err)
	}
	found, err := f.List(".")
	if d := cmp.Diff([]vfs.Entry{{Name: "x", Bytes: 10000}}, found); d != "" || err != nil {
		t.Error(d, err)
	}
	b, want := make([]byte, 10000), make([]byte, 10000)
	copy(want, "stays")
	if n, err := file.ReadAt(b, 0); n != 10000 || !bytes.Equal(b, want) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func testSpace(t *testing.T, f vfs.FS) {
	a, err := f.Space()
	if err != nil || a.Free <= 0 || a.Total < a.Free {
		t.Errorf("%+v, %v", a, err)
	}
	if b, err := f.Space(); err != nil || b.ID != a.ID {
		t.Errorf("the file system is %d, and then %d, %v", a.ID, b.ID, err)
	}
}
