package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/core/sample"
)

// pair is the two ends of a Unix stream.
func pair(t testing.TB) (client, daemon *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

func reader(t testing.TB, c *net.UnixConn, here Side) *Reader {
	t.Helper()
	r, err := NewReader(c, here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func memfd(t testing.TB, content string) int {
	t.Helper()
	fd, err := unix.MemfdCreate("slab", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.Pwrite(fd, []byte(content), 0); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestDescriptorsArriveWithTheirSlabs(t *testing.T) {
	client, daemon := pair(t)
	w := NewWriter(daemon, DaemonSide)
	contents := []string{"first", "second", "third"}
	for i, c := range contents {
		if _, err := w.Send(AppendEnd(AppendEnd(nil))); err != nil {
			t.Fatal(err)
		}
		if err := w.SendSlab(Slab{Index: uint16(i), Bytes: 4096}, memfd(t, c)); err != nil {
			t.Fatal(err)
		}
	}
	r := reader(t, client, ClientSide)
	for i, want := range contents {
		for range 2 {
			if f, err := r.Next(); err != nil || f.Type != TypeEnd {
				t.Fatalf("got %v, %v", f.Type, err)
			}
		}
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		s, err := DecodeSlab(f.Payload)
		if err != nil || int(s.Index) != i {
			t.Fatalf("slab %d: %+v, %v", i, s, err)
		}
		fd, err := r.TakeFD()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := unix.Pread(fd, got, 0); err != nil || string(got) != want {
			t.Errorf("slab %d holds %q, %v", i, got, err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil ||
			flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("slab %d's descriptor would leak into child processes", i)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.TakeFD(); !errors.Is(err, ErrMalformed) {
		t.Errorf("a Slab without a descriptor: %v", err)
	}
}

func TestDaemonTakesNoDescriptors(t *testing.T) {
	client, daemon := pair(t)
	fd := memfd(t, "x")
	if _, _, err := client.WriteMsgUnix(AppendDetach(nil), unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	r := reader(t, daemon, DaemonSide)
	if f, err := r.Next(); err != nil || f.Type != TypeDetach {
		t.Fatalf("got %v, %v", f.Type, err)
	}
	if _, err := r.TakeFD(); err == nil {
		t.Error("a client handed the daemon a descriptor")
	}
}

func TestTooManyDescriptorsAreRefused(t *testing.T) {
	client, daemon := pair(t)
	fd := memfd(t, "x")
	for range maxFDs + 1 {
		if _, _, err := daemon.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil); err != nil {
			t.Fatal(err)
		}
	}
	r := reader(t, client, ClientSide)
	var err error
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v", err)
	}
}

// Frames of all sizes, written in pieces that fit nothing, come out whole and in order, and the
// buffer grows no faster than they arrive.
func TestReaderPutsFramesTogether(t *testing.T) {
	client, daemon := pair(t)
	var stream []byte
	sizes := []int{0, 1, 255, 70_000, 3, 300_000, 900_000, 0, 17}
	for i, n := range sizes {
		ids := make([]sample.ID, n)
		for j := range ids {
			ids[j] = sample.ID(j * (i + 1))
		}
		ends := []uint32{uint32(n)}
		if n == 0 {
			ends = nil
		}
		stream = AppendWindow(stream, uint32(i), 0, ids, ends)
	}
	sent := make(chan error, 1)
	go func() {
		for len(stream) > 0 {
			n := min(len(stream), 50_021)
			if _, err := client.Write(stream[:n]); err != nil {
				sent <- err
				return
			}
			stream = stream[n:]
		}
		sent <- client.CloseWrite()
	}()
	r := reader(t, daemon, DaemonSide)
	for i, n := range sizes {
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		v, err := DecodeWindow(f.Payload)
		if err != nil || v.Len() != n || v.Epoch != uint32(i) {
			t.Fatalf("window %d: %d ids, %v", i, v.Len(), err)
		}
		for j := range n {
			if v.ID(j) != sample.ID(j*(i+1)) {
				t.Fatalf("window %d: id %d is %d", i, j, v.ID(j))
			}
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestReaderSurvivesDeadlinesInsideAFrame(t *testing.T) {
	client, daemon := pair(t)
	frame := AppendRelease(nil, []uint64{1, 2, 3})
	r := reader(t, daemon, DaemonSide)
	if _, ok, err := r.Poll(); ok || err != nil {
		t.Fatalf("nothing was sent: %v, %v", ok, err)
	}
	for i := range frame {
		if _, err := client.Write(frame[i : i+1]); err != nil {
			t.Fatal(err)
		}
		if i == len(frame)-1 {
			break
		}
		if err := daemon.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if err := daemon.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := r.Poll(); ok || err != nil {
			t.Fatalf("byte %d: %v, %v", i, ok, err)
		}
	}
	f, err := r.Next()
	if err != nil || !bytes.Equal(f.Payload, frame[HeaderSize:]) {
		t.Fatalf("got %x, %v", f.Payload, err)
	}
	if _, err := client.Write(frame[:5]); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != io.ErrUnexpectedEOF {
		t.Errorf("a frame cut off: %v", err)
	}
}

func TestOversizedFramesAreNeitherReadNorSent(t *testing.T) {
	client, daemon := pair(t)
	header := []byte{65, 0, 64, 0, byte(TypeWindow), 0, 0, 0} // MaxFromClient + 1
	if _, err := client.Write(header); err != nil {
		t.Fatal(err)
	}
	r := reader(t, daemon, DaemonSide)
	if _, err := r.Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("read: %v", err)
	}
	ids := make([]sample.ID, MaxFromClient/4)
	frame := AppendWindow(nil, 0, 0, ids, []uint32{uint32(len(ids))})
	if n, err := NewWriter(client, ClientSide).Send(frame); n != 0 || !errors.Is(err, ErrTooLarge) {
		t.Errorf("sent %d bytes: %v", n, err)
	}
	if n, err := NewWriter(client, ClientSide).Send(frame[:9]); n != 0 || err == nil {
		t.Errorf("half a frame: sent %d bytes: %v", n, err)
	}
}

func TestSniff(t *testing.T) {
	client, daemon := pair(t)
	if _, err := client.Write(AppendHello([]byte(Preamble), OurHello())); err != nil {
		t.Fatal(err)
	}
	if wire, _, err := Sniff(daemon); !wire || err != nil {
		t.Fatalf("got %v, %v", wire, err)
	}
	if f, err := reader(t, daemon, DaemonSide).Next(); err != nil || f.Type != TypeHello {
		t.Errorf("after the preamble: %v, %v", f.Type, err)
	}

	const request = "GET /v1/status HTTP/1.1\r\n\r\n"
	client, daemon = pair(t)
	if _, err := client.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wire, conn, err := Sniff(daemon)
	if wire || err != nil {
		t.Fatalf("got %v, %v", wire, err)
	}
	if got, err := io.ReadAll(conn); string(got) != request {
		t.Errorf("HTTP sees %q, %v", got, err)
	}
}
