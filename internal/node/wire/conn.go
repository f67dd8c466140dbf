package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sniff reads a new connection's first four bytes and says which protocol follows. For this one
// they are consumed; otherwise the returned connection gives them back to whoever speaks HTTP.
// The caller sets the deadline before and clears it after.
func Sniff(c *net.UnixConn) (speaksWire bool, conn net.Conn, err error) {
	p := &prefixed{UnixConn: c, rest: make([]byte, len(Preamble))}
	if _, err := io.ReadFull(c, p.rest); err != nil {
		return false, nil, fmt.Errorf("read the first bytes of a connection: %w", err)
	}
	if string(p.rest) == Preamble {
		return true, c, nil
	}
	return false, p, nil
}

// prefixed gives back bytes that were read too early.
type prefixed struct {
	*net.UnixConn
	rest []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return p.UnixConn.Read(b)
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Side is one end of a connection.
type Side uint8

const (
	ClientSide Side = iota
	DaemonSide
)

// maxSends is the largest payload a side may send.
func (s Side) maxSends() int {
	if s == ClientSide {
		return MaxFromClient
	}
	return MaxFromDaemon
}

// maxFDs bounds the descriptors that were received and not yet taken. The kernel stops a receive
// after each message that carries some, so a reader that takes them in turn holds one or two.
const maxFDs = 16

// Reader cuts the bytes of a connection into frames, with as few system calls as there are: one
// receive may bring many frames. It is not safe for concurrent use. A deadline that passes in the
// middle of a frame loses nothing: the next call continues.
type Reader struct {
	conn  *net.UnixConn
	raw   syscall.RawConn
	max   int
	buf   []byte
	r, w  int // buf[r:w] is unread
	oob   []byte
	fds   []int
	recvd struct { // the last receive's result: kept here so that receiving allocates nothing
		n, oobn int
		err     error
	}
	once, wait func(fd uintptr) bool
}

// NewReader reads what the other side sends to this side. Only a client accepts descriptors; the
// kernel closes any that are sent to a daemon.
func NewReader(c *net.UnixConn, here Side) (*Reader, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read from a closed connection: %w", err)
	}
	r := &Reader{conn: c, raw: raw, max: MaxFromClient, buf: make([]byte, 64<<10)}
	if here == ClientSide {
		r.max = MaxFromDaemon
		r.oob = make([]byte, unix.CmsgSpace(4*maxFDs))
	}
	r.once = func(fd uintptr) bool { r.receive(int(fd)); return true }
	r.wait = func(fd uintptr) bool { r.receive(int(fd)); return r.recvd.err != unix.EAGAIN }
	return r, nil
}

func (r *Reader) receive(fd int) {
	for {
		s := &r.recvd
		s.n, s.oobn, _, _, s.err = unix.Recvmsg(fd, r.buf[r.w:], r.oob, unix.MSG_CMSG_CLOEXEC)
		if s.err != unix.EINTR {
			return
		}
	}
}

// Buffered returns the next frame if it has arrived already, without a system call.
func (r *Reader) Buffered() (f Frame, ok bool, err error) {
	f, size, need, err := Parse(r.buf[r.r:r.w], r.max)
	if err != nil {
		return Frame{}, false, err
	}
	if need > 0 {
		r.room(need)
		return Frame{}, false, nil
	}
	r.r += size
	return f, true, nil
}

// room makes space to receive into. The buffer doubles as bytes arrive; it is never grown on the
// word of a header alone.
func (r *Reader) room(need int) {
	if r.r > 0 && (r.r == r.w || r.r+need > len(r.buf)) {
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	if r.w == len(r.buf) {
		r.buf = append(r.buf, make([]byte, min(len(r.buf), HeaderSize+r.max-len(r.buf)))...)
	}
}

// Poll returns the next frame if it can be had without waiting.
func (r *Reader) Poll() (f Frame, ok bool, err error) { return r.next(r.once) }

// Next waits for the next frame until the connection's read deadline. At the end of the stream it
// returns io.EOF, inside a frame io.ErrUnexpectedEOF.
func (r *Reader) Next() (Frame, error) {
	f, _, err := r.next(r.wait)
	return f, err
}

func (r *Reader) next(read func(fd uintptr) bool) (Frame, bool, error) {
	for {
		if f, ok, err := r.Buffered(); ok || err != nil {
			return f, ok, err
		}
		if err := r.raw.Read(read); err != nil {
			return Frame{}, false, err
		}
		switch s := &r.recvd; {
		case s.err == unix.EAGAIN:
			return Frame{}, false, nil
		case s.err != nil:
			return Frame{}, false, fmt.Errorf("receive: %w", s.err)
		case s.n == 0 && r.r == r.w:
			return Frame{}, false, io.EOF
		case s.n == 0:
			return Frame{}, false, io.ErrUnexpectedEOF
		default:
			r.w += s.n
			if s.oobn > 0 {
				if err := r.keepFDs(r.oob[:s.oobn]); err != nil {
					return Frame{}, false, err
				}
			}
		}
	}
}

// keepFDs queues received descriptors. They come in the order of the frames that announce them.
func (r *Reader) keepFDs(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: control message: %w", ErrMalformed, err)
	}
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			r.fds = append(r.fds, fds...)
		}
	}
	if len(r.fds) > maxFDs {
		return fmt.Errorf("%w: more than %d descriptors without a Slab", ErrMalformed, maxFDs)
	}
	return nil
}

// TakeFD gives the caller the descriptor that belongs to the Slab frame just read.
func (r *Reader) TakeFD() (int, error) {
	if len(r.fds) == 0 {
		return -1, fmt.Errorf("%w: Slab came without its descriptor", ErrMalformed)
	}
	fd := r.fds[0]
	r.fds = append(r.fds[:0], r.fds[1:]...)
	return fd, nil
}

// Close closes descriptors nobody took. The connection is its owner's to close.
func (r *Reader) Close() error {
	var err error
	for _, fd := range r.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	r.fds = nil
	return err
}

// Writer sends frames. It is not safe for concurrent use.
type Writer struct {
	conn *net.UnixConn
	max  int
	buf  []byte
}

// NewWriter writes what this side sends.
func NewWriter(c *net.UnixConn, here Side) *Writer {
	return &Writer{conn: c, max: here.maxSends()}
}

// Send writes whole frames, as many as buf holds, in one go; no descriptor travels with them. It
// refuses, before a byte is sent, frames that the other side would refuse. n is how much was
// sent: after a write deadline the caller continues with Resume(buf[n:]).
func (w *Writer) Send(buf []byte) (n int, err error) {
	for rest := buf; len(rest) > 0; {
		_, size, need, err := Parse(rest, w.max)
		if err != nil {
			return 0, fmt.Errorf("send: %w", err)
		}
		if need > 0 {
			return 0, fmt.Errorf("send: %w: the last frame is cut short", ErrMalformed)
		}
		rest = rest[size:]
	}
	return w.Resume(buf)
}

// Resume sends the rest of what a Send could not.
func (w *Writer) Resume(rest []byte) (n int, err error) {
	if len(rest) == 0 {
		return 0, nil
	}
	n, err = w.conn.Write(rest)
	if err != nil {
		return n, fmt.Errorf("send: %w", err)
	}
	return n, nil
}

// SendSlab announces a slab with its descriptor, in a message of its own. The descriptor stays
// the caller's.
func (w *Writer) SendSlab(s Slab, fd int) error {
	w.buf = AppendSlab(w.buf[:0], s)
	n, _, err := w.conn.WriteMsgUnix(w.buf, unix.UnixRights(fd), nil)
	if err != nil {
		return fmt.Errorf("send slab %d: %w", s.Index, err)
	}
	// The descriptor went with the first byte; whatever is left is ordinary.
	_, err = w.Resume(w.buf[n:])
	return err
}
