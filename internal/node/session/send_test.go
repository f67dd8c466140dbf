package session

import (
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"belady/internal/node/wire"
	"belady/internal/store/arena"
)

// pair is a session's writing half and the client's end of its connection.
func pair(t *testing.T) (*Session, *wire.Reader) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		t.Cleanup(func() { _ = c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	s := &Session{Config: Config{Conn: ends[0]}, writer: wire.NewWriter(ends[0], wire.DaemonSide),
		lent: map[uint64]struct{}{}}
	s.filled = sync.NewCond(&s.mu)
	r, err := wire.NewReader(ends[1], wire.ClientSide)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func memory(t *testing.T, bytes int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("slab", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, bytes); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestASlabThatGoesBeforeItIsSent: the arena closes it, its number becomes another file's, and the
// client must still get the slab and no other file of the daemon's.
func TestASlabThatGoesBeforeItIsSent(t *testing.T) {
	s, r := pair(t)
	fd := memory(t, 4096)
	s.SlabAdded(arena.SlabInfo{Index: 3, FD: fd, Bytes: 4096})
	other := memory(t, 1<<20)
	defer unix.Close(other)
	if err := unix.Dup3(other, fd, unix.O_CLOEXEC); err != nil { // closes it and takes its number
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s.end(nil)
	s.write()
	f, err := r.Next()
	if err != nil || f.Type != wire.TypeSlab {
		t.Fatalf("%v came, %v", f.Type, err)
	}
	got, err := r.TakeFD()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(got)
	var st unix.Stat_t
	if err := unix.Fstat(got, &st); err != nil || st.Size != 4096 {
		t.Errorf("the client was passed a file of %d bytes, %v", st.Size, err)
	}
}

// TestSlabsOfADeafClient: slabs that come and go while a client reads nothing leave nothing behind.
func TestSlabsOfADeafClient(t *testing.T) {
	s, _ := pair(t)
	fd := memory(t, 4096)
	defer unix.Close(fd)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	for range 50 {
		s.SlabAdded(arena.SlabInfo{Index: 3, FD: fd, Bytes: 4096})
		s.SlabGone(3)
	}
	if len(s.outbox) != 0 {
		t.Errorf("%d parcels wait", len(s.outbox))
	}
	for i := range 50 {
		s.SlabAdded(arena.SlabInfo{Index: uint16(i), FD: fd, Bytes: 4096})
	}
	s.drop()
	if after := open(); after != before {
		t.Errorf("%d descriptors were open, %d are", before, after)
	}
}

// TestErrorsAreCopied: several sessions may be told one error, each adds its own batch to it.
func TestErrorsAreCopied(t *testing.T) {
	shared := &wire.Error{Code: wire.CodeChanged, Text: "it changed"}
	if got := toWire(shared); got == shared || !got.Fatal || shared.Fatal {
		t.Errorf("%+v became %+v", shared, got)
	}
}
