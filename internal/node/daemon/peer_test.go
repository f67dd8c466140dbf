package daemon_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/node/wire"
)

// peer is a client that says exactly what a test wants, the right thing or not.
type peer struct {
	t    *testing.T
	conn *net.UnixConn
	r    *wire.Reader
}

func dial(t *testing.T, socket string) *peer {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.NewReader(conn, wire.ClientSide)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	p := &peer{t: t, conn: conn, r: r}
	t.Cleanup(p.close)
	return p
}

func (p *peer) close() {
	_ = p.r.Close()
	_ = p.conn.Close()
}

// send writes bytes; a daemon that has hung up is for the next read to find.
func (p *peer) send(b []byte) { _, _ = p.conn.Write(b) }

func (p *peer) hello() {
	p.send(wire.AppendHello([]byte(wire.Preamble), wire.OurHello()))
	p.expect(wire.TypeWelcome)
}

// attach opens a session with credits.
func (p *peer) attach(a wire.Attach, credits uint32) {
	p.t.Helper()
	p.hello()
	frames, err := wire.AppendAttach(nil, &a)
	if err != nil {
		p.t.Fatal(err)
	}
	if credits > 0 {
		frames = wire.AppendCredit(frames, credits)
	}
	p.send(frames)
	p.expect(wire.TypeAttached)
}

// expect reads up to the next frame of a type; slabs are taken and closed on the way.
func (p *peer) expect(want wire.Type) wire.Frame {
	p.t.Helper()
	for {
		f, err := p.r.Next()
		if err != nil {
			p.t.Fatalf("waiting for %s: %v", want, err)
		}
		if f.Type == wire.TypeSlab {
			fd, err := p.r.TakeFD()
			if err != nil {
				p.t.Fatal(err)
			}
			_ = unix.Close(fd)
		}
		if f.Type == want {
			return f
		}
		if f.Type != wire.TypeSlab && f.Type != wire.TypeLease && f.Type != wire.TypeSlabGone {
			e, _ := wire.DecodeError(f.Payload)
			p.t.Fatalf("waiting for %s: %s came (%v)", want, f.Type, e)
		}
	}
}

// refused reads on to a fatal error of that code and the end of the stream.
func (p *peer) refused(want wire.Code) *wire.Error {
	p.t.Helper()
	f := p.expect(wire.TypeError)
	e, err := wire.DecodeError(f.Payload)
	if err != nil {
		p.t.Fatal(err)
	}
	if e.Code != want || !e.Fatal {
		p.t.Fatalf("refused with %v (fatal %t), wanted %v", e, e.Fatal, want)
	}
	if f, err := p.r.Next(); err == nil {
		p.t.Fatalf("%s came after the last word", f.Type)
	}
	return e
}
