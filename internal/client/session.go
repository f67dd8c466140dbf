package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"belady/internal/core/sample"
	"belady/internal/node/wire"
)

// ErrClosed is returned by a Session that was closed.
var ErrClosed = errors.New("the session is closed")

// maxSpare bounds the leases kept for recycling.
const maxSpare = 64

// Stats is what a session has done so far.
type Stats struct {
	// First is the wait for the first batch: filling, not stalling.
	First time.Duration
	// Stall is the time Next waited for the other batches, by what delayed them.
	Stall [wire.Causes]time.Duration
	// Away is the time Next spent on reconnecting.
	Away                    time.Duration
	Batches, Samples, Bytes int64
	Reconnects              int
}

// Session is one rank's end of a job.
type Session struct {
	client   *Client
	attach   wire.Attach
	attached *wire.Attached

	// These belong to the goroutine that calls Next.
	next    wire.Start // the batch due
	skipped bool       // an Error stood for the batch before, so an epoch may have ended unsaid
	failed  error      // why no batch will come any more; io.EOF at the job's end

	mu      sync.Mutex // guards what follows, and the counts of links and tables
	link    *link      // nil while there is none
	windows []kept
	spare   []*lease
	stats   Stats
	waiting bool // Next has said all there was to say, and reads
	closed  bool
}

// kept is a Window that a new daemon would have to be told again.
type kept struct {
	epoch uint32
	frame []byte
}

// Open attaches one rank to a job. It waits as long as the daemon needs to know the dataset and
// the order.
func (c *Client) Open(ctx context.Context, a wire.Attach) (*Session, error) {
	if a.Client.PID == 0 {
		a.Client.PID = os.Getpid()
	}
	if a.Client.Name == "" {
		a.Client.Name = c.cfg.Name
	}
	l, attached, err := c.open(ctx, &a)
	if err != nil {
		return nil, err
	}
	return &Session{client: c, attach: a, attached: attached, next: attached.Start, link: l}, nil
}

// open makes a link on which batches have begun to come.
func (c *Client) open(ctx context.Context, a *wire.Attach) (*link, *wire.Attached, error) {
	frames, err := wire.AppendAttach(nil, a)
	if err != nil {
		return nil, nil, err
	}
	l, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	var attached *wire.Attached
	f, err := l.ask(ctx, wire.AppendCredit(frames, uint32(c.cfg.Depth)), wire.TypeAttached)
	if err == nil {
		attached, err = wire.DecodeAttached(f.Payload)
	}
	if err != nil {
		err = fmt.Errorf("attach job %q: %w", a.Job, errors.Join(err, l.close()))
		return nil, nil, c.unreached(err)
	}
	return l, attached, nil
}

// Info is the daemon's answer to Open.
func (s *Session) Info() wire.Attached { return *s.attached }

// Stats may be called at any time.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Next returns the batch that is due, waiting for it until ctx ends, or io.EOF after the last. A
// *Error that is not Fatal stands for one batch: the next call returns the one after it. Any other
// error but ctx's is final.
func (s *Session) Next(ctx context.Context) (*Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	waited := time.Duration(0)
	for s.failed == nil {
		if s.link == nil {
			if err := s.reconnect(ctx); err != nil {
				return nil, err
			}
		}
		f, wait, err := s.receive(ctx)
		waited += wait
		var b *Batch
		if err == nil {
			b, err = s.handle(f, waited)
		}
		var e *Error
		switch {
		case err == nil && b == nil: // a frame about slabs
		case err == nil:
			return b, nil
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil, err
		case errors.Is(err, errLost):
			s.lose()
		case errors.As(err, &e) && !e.Fatal:
			return nil, err
		case err == io.EOF:
			s.fail(err)
			if err := s.flush(ctx, s.link); err != nil {
				return nil, err
			}
		default:
			s.fail(err)
		}
	}
	return nil, s.failed
}

// receive returns the next frame. What the daemon should know is written when enough of it has
// gathered, and always before waiting.
func (s *Session) receive(ctx context.Context) (f wire.Frame, wait time.Duration, err error) {
	l := s.link
	if s.due(l) > s.client.cfg.Depth/2 {
		if err := s.flush(ctx, l); err != nil {
			return f, 0, err
		}
	}
	f, ok, err := l.r.Poll()
	if !ok && (err == nil || errors.Is(err, os.ErrDeadlineExceeded)) {
		s.setWaiting(true)
		defer s.setWaiting(false)
		if err := s.flush(ctx, l); err != nil {
			return f, 0, err
		}
		start := time.Now()
		f, err = l.read(ctx)
		wait = time.Since(start)
	}
	if lost(err) {
		err = errLost
	}
	return f, wait, err
}

func (s *Session) setWaiting(waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = waiting
}

func (s *Session) due(l *link) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(int(l.credits), len(l.releases))
}

// flush writes everything that waits, in one system call.
func (s *Session) flush(ctx context.Context, l *link) error {
	l.out.Lock()
	defer l.out.Unlock()
	s.mu.Lock()
	if l.credits > 0 {
		l.out.buf = wire.AppendCredit(l.out.buf, l.credits)
	}
	if len(l.releases) > 0 {
		l.out.buf = wire.AppendRelease(l.out.buf, l.releases)
	}
	l.out.buf = append(l.out.buf, l.queued...)
	l.credits, l.releases, l.queued = 0, l.releases[:0], nil
	s.mu.Unlock()
	// A daemon that is gone may have said why before: reading finds that, or the end.
	if err := l.write(ctx); err != nil && !lost(err) {
		return err
	}
	return nil
}

// handle acts on one frame; a nil batch without an error means that there is more to read.
func (s *Session) handle(f wire.Frame, waited time.Duration) (*Batch, error) {
	switch f.Type {
	case wire.TypeLease:
		return s.take(f.Payload, waited)
	case wire.TypeSlab:
		a, err := wire.DecodeSlab(f.Payload)
		if err != nil {
			return nil, err
		}
		fd, err := s.link.r.TakeFD()
		if err != nil {
			return nil, err
		}
		m, err := mapSlab(a, fd)
		if err != nil {
			return nil, err
		}
		return nil, s.remap(a.Index, m)
	case wire.TypeSlabGone:
		index, err := wire.DecodeSlabGone(f.Payload)
		if err != nil {
			return nil, err
		}
		return nil, s.remap(index, nil)
	case wire.TypeEnd:
		if err := wire.DecodeEnd(f.Payload); err != nil {
			return nil, err
		}
		return nil, io.EOF
	case wire.TypeError:
		e, err := wire.DecodeError(f.Payload)
		if err != nil {
			return nil, err
		}
		return nil, s.refused(e)
	}
	return nil, fmt.Errorf("%w: a daemon does not send %s", wire.ErrMalformed, f.Type)
}

// refused is what an Error of the daemon means for the session.
func (s *Session) refused(e *Error) error {
	if e.Code == wire.CodeShuttingDown {
		return errLost
	}
	if !e.Fatal {
		s.next.Batch++
		s.skipped = true
		s.mu.Lock()
		s.link.credits++
		s.mu.Unlock()
	}
	return e
}

// remap replaces one slab of the link's table.
func (s *Session) remap(index uint16, m *slab) error {
	s.mu.Lock()
	old := s.link.table
	s.link.table = old.with(index, m)
	dead := old.drop(nil)
	s.mu.Unlock()
	return unmap(dead)
}

// take turns a lease into a batch, if it is the one that is due and lies in slabs we know.
func (s *Session) take(payload []byte, waited time.Duration) (*Batch, error) {
	le := s.recycled()
	le.buf = append(le.buf[:0], payload...)
	v, err := wire.DecodeLease(le.buf)
	if err != nil {
		return nil, err
	}
	le.view, le.link, le.table = v, s.link, s.link.table
	if err := s.check(le); err != nil {
		return nil, err
	}
	b := &Batch{
		Epoch: v.Epoch, Index: v.Batch, Last: v.Flags&wire.LeaseLastOfEpoch != 0,
		Private: v.Flags&wire.LeasePrivate != 0, Cause: v.Cause, Receipt: v.Receipt,
		session: s, lease: le,
	}
	s.skipped = false
	s.next.Epoch, s.next.Batch = int(v.Epoch), int(v.Batch)+1
	if b.Last {
		s.next = wire.Start{Epoch: int(v.Epoch) + 1}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	le.table.refs++
	le.link.held++
	le.link.credits++
	s.count(&v, waited)
	for len(s.windows) > 0 && int(s.windows[0].epoch) < s.next.Epoch {
		s.windows = s.windows[1:]
	}
	return b, nil
}

func (s *Session) recycled() *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.spare)
	if n == 0 {
		return new(lease)
	}
	le := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return le
}

func (s *Session) check(le *lease) error {
	v := &le.view
	due := int(v.Epoch) == s.next.Epoch && int(v.Batch) == s.next.Batch
	if s.skipped && int(v.Epoch) == s.next.Epoch+1 && v.Batch == 0 {
		due = true
	}
	if !due {
		return fmt.Errorf("%w: batch %d of epoch %d came, batch %d of epoch %d is due",
			wire.ErrMalformed, v.Batch, v.Epoch, s.next.Batch, s.next.Epoch)
	}
	if !v.CheckReceipt() {
		return fmt.Errorf("%w: the receipt of batch %d of epoch %d is not that of its ids",
			wire.ErrMalformed, v.Batch, v.Epoch)
	}
	for i := range v.Len() {
		if p := v.Place(i); le.table.find(p, v.Length(i)) == nil {
			return fmt.Errorf("%w: sample %d of batch %d lies outside slab %d",
				wire.ErrMalformed, i, v.Batch, p.Slab())
		}
	}
	return nil
}

// count adds a batch to the statistics; s.mu is held.
func (s *Session) count(v *wire.LeaseView, waited time.Duration) {
	st := &s.stats
	switch {
	case st.Batches == 0:
		st.First = waited
	case v.Cause < wire.Causes:
		st.Stall[v.Cause] += waited
	default: // a newer daemon's; the time must not vanish
		st.Stall[wire.CauseNone] += waited
	}
	st.Batches++
	st.Samples += int64(v.Len())
	st.Bytes += int64(v.Bytes)
}

func (s *Session) release(b *Batch) {
	s.mu.Lock()
	le := b.lease
	if le == nil {
		s.mu.Unlock()
		return
	}
	b.lease = nil
	l := le.link
	l.held--
	l.releases = append(l.releases, le.view.Seq)
	dead := le.table.drop(nil)
	last := l.retired && l.held == 0
	// Where no Next will come to tell the daemon, tell it now; above all if it is for want of
	// this room that Next waits.
	tell := !last && (s.closed || !l.retired && (s.failed != nil || s.waiting))
	if le.link, le.table = nil, nil; len(s.spare) < maxSpare {
		s.spare = append(s.spare, le)
	}
	s.mu.Unlock()
	// Neither can fail in a way that matters here: the link is being given up, and a slab that
	// could not be unmapped is address space, not memory.
	if last {
		_ = l.close()
	} else if tell {
		ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.Timeout)
		_ = s.flush(ctx, l)
		cancel()
	}
	_ = unmap(dead)
}

// Window tells the daemon a piece of an explicit order: see wire.AppendWindow, whose rules ids and
// ends must follow. It is kept until its epoch has been read, for a daemon that restarts.
func (s *Session) Window(
	ctx context.Context, epoch, flags uint32, ids []sample.ID, ends []uint32,
) error {
	if n := len(ids) + len(ends); n > 2*wire.MaxWindowIDs {
		return fmt.Errorf("a window of %d ids in %d batches: send at most %d ids at a time",
			len(ids), len(ends), wire.MaxWindowIDs)
	}
	frame := wire.AppendWindow(nil, epoch, flags, ids, ends)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.windows = append(s.windows, kept{epoch, frame})
	l := s.link
	if l != nil {
		l.queued = append(l.queued, frame...)
	}
	s.mu.Unlock()
	if l == nil {
		return nil // the next reconnect sends it
	}
	return s.flush(ctx, l)
}

// Close ends the session. Batches still held stay valid until they are released. It must not be
// called while Next runs: end Next's context first.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	if s.failed == nil {
		s.failed = ErrClosed
	}
	l := s.link
	held := l != nil && l.held > 0
	if held {
		l.queued = wire.AppendDetach(l.queued)
	}
	s.mu.Unlock()
	var err error
	if held {
		ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.Timeout)
		defer cancel()
		err = s.flush(ctx, l)
	}
	return errors.Join(err, s.retire())
}
