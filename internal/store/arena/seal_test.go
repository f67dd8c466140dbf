package arena

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A client has the descriptor and nothing else; these are the things it could try.
func TestSlabIsReadOnlyForClients(t *testing.T) {
	a := newArena(t, Config{Bytes: 8 << 20, Sizes: equalSizes(3000, 1000)})
	p, ok := a.AllocSlot(5)
	if !ok {
		t.Fatal("full")
	}
	slab := a.Slabs()[0]
	fd, err := unix.Dup(slab.FD) // as received over a socket
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	size := int(slab.Bytes)
	rw := unix.PROT_READ | unix.PROT_WRITE
	if m, err := unix.Mmap(fd, 0, size, rw, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
		_ = unix.Munmap(m)
		t.Fatalf("read-write map: %v", err)
	}
	m, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	copy(a.Bytes(p, 5), "hello")
	if got := string(m[p.Offset() : p.Offset()+5]); got != "hello" {
		t.Fatalf("client sees %q", got)
	}
	if err := unix.Mprotect(m, rw); !errors.Is(err, unix.EACCES) {
		t.Fatalf("make the read-only map writable: %v", err)
	}
	if _, err := unix.Pwrite(fd, []byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Fatalf("write: %v", err)
	}
	for _, n := range []int64{0, slab.Bytes / 2, slab.Bytes * 2} {
		if err := unix.Ftruncate(fd, n); !errors.Is(err, unix.EPERM) {
			t.Fatalf("resize to %d: %v", n, err)
		}
	}
	hole := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
	if err := unix.Fallocate(fd, hole, 0, SpanBytes); !errors.Is(err, unix.EPERM) {
		t.Fatalf("punch a hole: %v", err)
	}
	seal := unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal); !errors.Is(err, unix.EPERM) {
		t.Fatalf("add a seal: %v", err)
	}
}

func TestRingIsWritableButNotResizable(t *testing.T) {
	r, err := NewRing(NewPool(1<<20), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	off, ok := r.Alloc(100)
	if !ok {
		t.Fatal("full")
	}
	copy(r.Bytes(off, 5), "hello")
	rw := unix.PROT_READ | unix.PROT_WRITE
	m, err := unix.Mmap(r.FD(), 0, int(r.Size()), rw, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	if string(m[off:off+5]) != "hello" {
		t.Fatalf("client sees %q", m[off:off+5])
	}
	m[off] = 'j'
	for _, n := range []int64{0, 2 << 20} {
		if err := unix.Ftruncate(r.FD(), n); !errors.Is(err, unix.EPERM) {
			t.Fatalf("resize to %d: %v", n, err)
		}
	}
}
