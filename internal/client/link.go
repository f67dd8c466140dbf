package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/node/wire"
)

// link is one connection to a daemon. It outlives its session's use of it for as long as one of
// its batches is held: while it is open, the daemon leaves their bytes alone.
type link struct {
	conn *net.UnixConn
	r    *wire.Reader
	w    *wire.Writer
	// table is what the next lease's places mean. The session's goroutine replaces it; the
	// counts in it are guarded by Session.mu.
	table *table
	// abortRead and abortWrite end a call that waits, when its context ends.
	abortRead, abortWrite func()

	// out is taken before Session.mu, and held while writing: it is what makes writes one by one.
	out struct {
		sync.Mutex
		buf []byte // frames, the first of which may be partly sent
	}

	// The rest is guarded by Session.mu: what the next write takes along, and what is held.
	credits  uint32
	releases []uint64
	queued   []byte
	held     int
	retired  bool
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// connect dials and agrees on a version.
func (c *Client) connect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	r, err := wire.NewReader(conn, wire.ClientSide)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l := &link{
		conn: conn, r: r, w: wire.NewWriter(conn, wire.ClientSide), table: &table{refs: 1},
		abortRead:  func() { _ = conn.SetReadDeadline(past) },
		abortWrite: func() { _ = conn.SetWriteDeadline(past) },
	}
	if err := l.greet(ctx); err != nil {
		err = fmt.Errorf("greet the daemon on %s: %w", c.cfg.Socket, errors.Join(err, l.close()))
		return nil, c.unreached(err)
	}
	return l, nil
}

func (l *link) greet(ctx context.Context) error {
	f, err := l.ask(ctx, wire.AppendHello([]byte(wire.Preamble), wire.OurHello()), wire.TypeWelcome)
	if err != nil {
		return err
	}
	w, err := wire.DecodeWelcome(f.Payload)
	if err != nil {
		return err
	}
	if w.Version < wire.MinVersion || w.Version > wire.MaxVersion {
		return fmt.Errorf("%w: it chose protocol version %d, which was not offered",
			wire.ErrMalformed, w.Version)
	}
	return nil
}

// ask sends and waits for the one answer that may follow, or the daemon's Error.
func (l *link) ask(ctx context.Context, frames []byte, want wire.Type) (wire.Frame, error) {
	// A failed write is not the end: a daemon that refuses says why before it closes.
	l.out.Lock()
	l.out.buf = append(l.out.buf, frames...)
	sendErr := l.write(ctx)
	l.out.Unlock()
	f, err := l.read(ctx)
	if err != nil {
		return wire.Frame{}, errors.Join(sendErr, err)
	}
	switch f.Type {
	case want:
		return f, nil
	case wire.TypeError:
		e, err := wire.DecodeError(f.Payload)
		if err != nil {
			return wire.Frame{}, err
		}
		return wire.Frame{}, e
	}
	return wire.Frame{}, fmt.Errorf("%w: it sent %s, not %s", wire.ErrMalformed, f.Type, want)
}

// read waits for a frame until ctx ends; what has arrived of one by then is kept for the next call.
func (l *link) read(ctx context.Context) (wire.Frame, error) {
	stop := context.AfterFunc(ctx, l.abortRead)
	defer stop()
	for {
		f, err := l.r.Next()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return f, err
		}
		if err := ctx.Err(); err != nil {
			return f, err
		}
		// The deadline is one that an earlier context left behind.
		if err := l.conn.SetReadDeadline(time.Time{}); err != nil {
			return f, err
		}
	}
}

// write sends l.out.buf, which the caller has locked; what ctx leaves unsent stays in it.
func (l *link) write(ctx context.Context) error {
	if len(l.out.buf) == 0 {
		return nil
	}
	stop := context.AfterFunc(ctx, l.abortWrite)
	defer stop()
	for {
		n, err := l.w.Resume(l.out.buf)
		l.out.buf = append(l.out.buf[:0], l.out.buf[n:]...)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.conn.SetWriteDeadline(time.Time{}); err != nil {
			return err
		}
	}
}

// close ends a link none of whose batches is held.
func (l *link) close() error { return errors.Join(l.r.Close(), l.conn.Close()) }

// slab is one mapped slab. refs counts the tables that name it.
type slab struct {
	data []byte
	refs int
}

// table is the slabs by index at one moment. It is never changed, only replaced, so that a batch
// keeps the meaning its places had when it came. refs counts the batches and the link that use it.
type table struct {
	slabs []*slab
	refs  int
}

// with is t but for one index; s may be nil.
func (t *table) with(index uint16, s *slab) *table {
	n := &table{slabs: make([]*slab, max(len(t.slabs), int(index)+1)), refs: 1}
	copy(n.slabs, t.slabs)
	n.slabs[index] = s
	for _, s := range n.slabs {
		if s != nil {
			s.refs++
		}
	}
	return n
}

// drop gives up one use of t and adds to dead the slabs nobody can see any more.
func (t *table) drop(dead []*slab) []*slab {
	t.refs--
	if t.refs > 0 {
		return dead
	}
	for _, s := range t.slabs {
		if s == nil {
			continue
		}
		if s.refs--; s.refs == 0 {
			dead = append(dead, s)
		}
	}
	return dead
}

// find is the memory at a place, nil if the daemon named one it never announced.
func (t *table) find(p wire.Place, length uint32) []byte {
	i := int(p.Slab())
	if i >= len(t.slabs) || t.slabs[i] == nil {
		return nil
	}
	data, from := t.slabs[i].data, p.Offset()
	to := from + uint64(length)
	if to > uint64(len(data)) {
		return nil
	}
	return data[from:to:to]
}

// unmap is called outside the lock: unmapping gigabytes takes milliseconds.
func unmap(dead []*slab) error {
	var err error
	for _, s := range dead {
		err = errors.Join(err, unix.Munmap(s.data))
	}
	return err
}

// mapSlab maps the descriptor and closes it.
func mapSlab(a wire.Slab, fd int) (s *slab, err error) {
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("slab %d: %w", a.Index, err)
	}
	// Mapping more than there is would end in a bus error at some later read.
	if st.Size < 0 || uint64(st.Size) < a.Bytes {
		return nil, fmt.Errorf("%w: slab %d of %d bytes has %d",
			wire.ErrMalformed, a.Index, a.Bytes, st.Size)
	}
	prot := unix.PROT_READ
	if a.Kind == wire.SlabPacked {
		prot |= unix.PROT_WRITE
	}
	data, err := unix.Mmap(fd, 0, int(a.Bytes), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map slab %d of %d bytes: %w (is the address space limited?"+
			" see ulimit -v)", a.Index, a.Bytes, err)
	}
	return &slab{data: data}, nil
}
