package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/node/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The dataset of the scripted daemon: sample i is length(i) bytes of byte(i), one after another in
// a slab; batch b of epoch e is batchSize consecutive ids from an offset that tells both apart.
const (
	samples   = 1000
	batchSize = 8
	batches   = 12 // of an epoch
)

func length(id sample.ID) uint32 { return uint32(id % 50) }

func idsOf(epoch, batch int) []sample.ID {
	ids := make([]sample.ID, batchSize)
	for i := range ids {
		ids[i] = sample.ID((epoch*131 + batch*batchSize + i) % samples)
	}
	return ids
}

var anAttach = wire.Attach{
	Job: "test", Datasets: []wire.Dataset{{Name: "numbers"}}, Epochs: 3,
	Order: order.Spec{Kind: "sequential", Samples: samples, Batch: batchSize},
}

// fake is a daemon that serves its connections one after another, each by the next of its scripts.
type fake struct {
	socket string
	ln     *net.UnixListener
	wg     sync.WaitGroup
}

func listen(t testing.TB, socket string, scripts ...func(*peer)) *fake {
	t.Helper()
	if socket == "" {
		dir, err := os.MkdirTemp("", "belady") // t.TempDir may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		socket = filepath.Join(dir, "s")
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	d := &fake{socket: socket, ln: ln}
	d.wg.Go(func() {
		defer func() { _ = ln.Close() }()
		for _, script := range scripts {
			c, err := ln.AcceptUnix()
			if err != nil {
				return // the test is over
			}
			p := &peer{t: t, c: c, w: wire.NewWriter(c, wire.DaemonSide)}
			script(p)
			_ = c.Close()
			for _, fd := range p.fds {
				_ = unix.Close(fd)
			}
		}
	})
	t.Cleanup(func() { _ = ln.Close(); d.wg.Wait() })
	return d
}

// peer is the daemon's end of one connection.
type peer struct {
	t        testing.TB
	c        *net.UnixConn
	r        *wire.Reader
	w        *wire.Writer
	fds      []int
	seq      uint64
	credits  uint32
	reads    int // frames read after attaching
	frames   int // of them, Release
	released map[uint64]bool
	detached bool
	windows  []int // ids of each Window
}

func (p *peer) send(frames []byte) {
	if _, err := p.w.Send(frames); err != nil && !errors.Is(err, unix.EPIPE) {
		p.t.Errorf("daemon: %v", err)
	}
}

// greet answers preamble and Hello.
func (p *peer) greet() {
	ok, _, err := wire.Sniff(p.c)
	if !ok || err != nil {
		p.t.Errorf("daemon: sniffed %v, %v", ok, err)
	}
	if p.r, err = wire.NewReader(p.c, wire.DaemonSide); err != nil {
		p.t.Errorf("daemon: %v", err)
	}
	f, err := p.r.Next()
	if err != nil || f.Type != wire.TypeHello {
		p.t.Errorf("daemon: %s, %v instead of Hello", f.Type, err)
	}
	p.send(wire.AppendWelcome(nil, wire.Welcome{Version: 1, PID: 7}))
}

// attach reads Attach and answers it.
func (p *peer) attach() *wire.Attach {
	f, err := p.r.Next()
	if err != nil || f.Type != wire.TypeAttach {
		p.t.Errorf("daemon: %s, %v instead of Attach", f.Type, err)
		return &wire.Attach{}
	}
	a, err := wire.DecodeAttach(f.Payload)
	if err != nil {
		p.t.Errorf("daemon: %v", err)
		return &wire.Attach{}
	}
	out, err := wire.AppendAttached(nil, &wire.Attached{
		Session: "s", Samples: samples, Batches: batches, Content: "c", Start: a.Start,
	})
	if err != nil {
		p.t.Errorf("daemon: %v", err)
	}
	p.released = map[uint64]bool{}
	p.send(out)
	return a
}

// slab announces a slab that holds the whole dataset.
func (p *peer) slab(index uint16, kind wire.SlabKind) {
	var data []byte
	for id := range sample.ID(samples) {
		for range length(id) {
			data = append(data, byte(id))
		}
	}
	fd, err := unix.MemfdCreate("slab", unix.MFD_CLOEXEC)
	if err != nil {
		p.t.Errorf("daemon: %v", err)
		return
	}
	p.fds = append(p.fds, fd)
	if _, err := unix.Pwrite(fd, data, 0); err != nil {
		p.t.Errorf("daemon: %v", err)
	}
	s := wire.Slab{Index: index, Kind: kind, Bytes: uint64(len(data))}
	if err := p.w.SendSlab(s, fd); err != nil {
		p.t.Errorf("daemon: %v", err)
	}
}

// lease is the frame of one batch, whose samples lie in this slab.
func (p *peer) lease(slab uint16, epoch, batch int, cause wire.Cause) []byte {
	ids := idsOf(epoch, batch)
	lengths, places := make([]uint32, len(ids)), make([]wire.Place, len(ids))
	for i, id := range ids {
		at := uint64(0)
		for j := range id {
			at += uint64(length(j))
		}
		lengths[i], places[i] = length(id), wire.At(slab, at)
	}
	p.seq++
	l := &wire.Lease{Seq: p.seq, Epoch: uint32(epoch), Batch: uint32(batch), Cause: cause}
	if batch == batches-1 {
		l.Flags |= wire.LeaseLastOfEpoch
	}
	return wire.AppendLease(nil, l, ids, lengths, places, nil)
}

// hear reads one frame of the client's; false at the end of the stream.
func (p *peer) hear() bool {
	f, err := p.r.Next()
	if err != nil {
		return false
	}
	p.reads++
	switch f.Type {
	case wire.TypeCredit:
		n, err := wire.DecodeCredit(f.Payload)
		if err != nil {
			p.t.Errorf("daemon: %v", err)
		}
		p.credits += n
	case wire.TypeRelease:
		v, err := wire.DecodeRelease(f.Payload)
		if err != nil {
			p.t.Errorf("daemon: %v", err)
		}
		p.frames++
		for i := range v.Len() {
			if p.released[v.At(i)] {
				p.t.Errorf("daemon: lease %d is released twice", v.At(i))
			}
			p.released[v.At(i)] = true
		}
	case wire.TypeWindow:
		v, err := wire.DecodeWindow(f.Payload)
		if err != nil {
			p.t.Errorf("daemon: %v", err)
		}
		p.windows = append(p.windows, v.Len())
	case wire.TypeDetach:
		p.detached = true
	default:
		p.t.Errorf("daemon: a client sent %s", f.Type)
	}
	return true
}

// drain hears the client out.
func (p *peer) drain() {
	for p.hear() {
	}
}

// deliver sends batches from a start on while there are credits, at most n; true at the job's end.
func (p *peer) deliver(a *wire.Attach, n int) bool {
	epoch, batch := a.Start.Epoch, a.Start.Batch
	for range n {
		if epoch == a.Epochs {
			return true
		}
		for p.credits == 0 {
			if !p.hear() {
				return false
			}
		}
		p.credits--
		p.send(p.lease(0, epoch, batch, wire.CauseOrigin))
		if batch++; batch == batches {
			epoch, batch = epoch+1, 0
		}
	}
	return epoch == a.Epochs
}

// whole serves a job to its end.
func whole(p *peer) {
	p.greet()
	a := p.attach()
	p.slab(0, wire.SlabArena)
	if p.deliver(a, 1<<30) {
		p.send(wire.AppendEnd(nil))
	}
	p.drain()
}

// dial reaches a fake daemon past its first connection, which Dial uses up.
func dial(t testing.TB, d *fake, cfg Config) *Client {
	t.Helper()
	cfg.Socket = d.socket
	c, err := Dial(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func greetOnly(p *peer) { p.greet(); p.released = map[uint64]bool{}; p.drain() }

// control answers one HTTP request with a handler.
func control(h http.HandlerFunc) func(*peer) {
	return func(p *peer) {
		_, conn, err := wire.Sniff(p.c)
		if err != nil {
			p.t.Errorf("daemon: %v", err)
			return
		}
		done := make(chan struct{})
		srv := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				close(done)
			}
		}}
		l := &oneConn{conn: make(chan net.Conn, 1), addr: p.c.LocalAddr()}
		l.conn <- conn
		close(l.conn)
		_ = srv.Serve(l) // returns when the one connection was taken
		<-done
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn chan net.Conn
	addr net.Addr
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.addr }

func memory(t testing.TB, size int64) (fd int, bytes uint64) {
	t.Helper()
	fd, err := unix.MemfdCreate("slab", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err != nil {
		t.Error(err)
	}
	return fd, uint64(size)
}
