// Package session is one rank's connection: it speaks wire on one side and attaches a cursor to a
// world on the other.
//
// Two goroutines serve a session. The reader takes the client's frames and passes them on; the
// writer sends what the world's owner has left in the outbox. The owner never waits for a client:
// what it may leave there is bounded by the client's own credits. When the client closes, or dies,
// its cursor is detached and its leases are taken back.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/policy"
	"belady/internal/node/event"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/arena"
	"belady/internal/store/jobs"
)

// handshakeTime bounds how long a connection may take to say what it wants.
const handshakeTime = 10 * time.Second

// Config is what a session needs.
type Config struct {
	ID   string
	Conn *net.UnixConn // the preamble has been read; Serve closes it
	PID  int
	Pool *arena.Pool // where packed rings come from
	// Open finds or makes the world of the datasets a client names. done gives it back.
	Open func(ctx context.Context, a *wire.Attach) (w *world.World, done func(), err error)
	// Begin holds where a rank begins against where the job's other ranks did, until end is called;
	// nil: nothing does.
	Begin func(ctx context.Context, b Beginning) (end func(), err error)
	// Spare makes room for a packed ring beside a world; nil if there is never any to make.
	Spare  func(ctx context.Context, w *world.World, bytes int64) error
	Listen event.Listener
	// NewOrder computes orders; nil: order.New. Tests put a wrong one here.
	NewOrder func(order.Spec) (order.Order, error)
	// Record is told what was delivered, and must not block; nil: nothing is recorded.
	Record func(jobs.Record)
	// RecordEvery is the longest that a part of an epoch goes unrecorded; 0: some minutes.
	RecordEvery time.Duration
}

// Session is one rank's end.
type Session struct {
	Config
	reader *wire.Reader
	writer *wire.Writer
	world  *world.World
	cursor *world.Cursor
	fields int
	packs  packs
	intake intake // of an explicit order's windows; the reader's
	agreed uint32 // features

	mu     sync.Mutex
	filled *sync.Cond
	outbox []parcel // guarded by mu, as all below
	spare  []byte
	places []wire.Place
	lent   map[uint64]struct{} // scattered leases that the client holds
	owed   uint32              // credits not spent
	ahead  int64               // samples of windows that came and were not leased yet
	ended  bool                // nothing more is sent
	reason string              // why it ended early
	tally  tally               // of what was delivered
}

// parcel is something to send: frames, a slab with its descriptor, or a batch to pack first.
type parcel struct {
	frames []byte
	slab   *arena.SlabInfo
	batch  *packable
}

// Serve runs a session to its end. Cancelling ctx says goodbye to the client.
func Serve(ctx context.Context, cfg Config) {
	s := &Session{Config: cfg, writer: wire.NewWriter(cfg.Conn, wire.DaemonSide),
		lent: map[uint64]struct{}{}}
	s.filled = sync.NewCond(&s.mu)
	defer cfg.Conn.Close()
	reader, err := wire.NewReader(cfg.Conn, wire.DaemonSide)
	if err != nil {
		return
	}
	s.reader = reader
	_ = cfg.Conn.SetReadDeadline(time.Now().Add(handshakeTime))
	attach, err := s.greet()
	if err == nil {
		_ = cfg.Conn.SetReadDeadline(time.Time{})
		err = s.serve(ctx, attach)
	}
	if err != nil && !lost(err) {
		s.refuse(err)
	}
}

// greet agrees on a version and reads what the client wants.
func (s *Session) greet() (*wire.Attach, error) {
	f, err := s.reader.Next()
	if err != nil {
		return nil, err
	}
	if f.Type != wire.TypeHello {
		return nil, &wire.Error{Code: wire.CodeProtocol, Fatal: true,
			Text: fmt.Sprintf("the first frame is %s: begin with Hello", f.Type)}
	}
	hello, err := wire.DecodeHello(f.Payload)
	if err != nil {
		return nil, err
	}
	welcome, refused := wire.Negotiate(hello)
	if refused != nil {
		return nil, refused
	}
	s.agreed = welcome.Features
	if _, err := s.writer.Send(wire.AppendWelcome(nil, welcome)); err != nil {
		return nil, err
	}
	if f, err = s.reader.Next(); err != nil {
		return nil, err
	}
	if f.Type != wire.TypeAttach {
		return nil, &wire.Error{Code: wire.CodeProtocol, Fatal: true,
			Text: fmt.Sprintf("%s came before Attach: attach first", f.Type)}
	}
	return wire.DecodeAttach(f.Payload)
}

// serve attaches and passes frames on until the client is gone.
func (s *Session) serve(ctx context.Context, a *wire.Attach) error {
	w, done, err := s.Open(ctx, a)
	if err != nil {
		return err
	}
	defer done()
	s.world = w
	reading, feed, attached, err := s.prepare(a)
	if err != nil {
		return err
	}
	ended, err := s.begin(ctx, a, &reading, attached.Start)
	if err != nil {
		return err
	}
	defer ended()
	frame, err := wire.AppendAttached(nil, attached)
	if err != nil {
		return err
	}
	if attached.Start.Epoch >= a.Epochs {
		return s.over(ctx, frame)
	}
	s.send(frame)
	s.beginTally(a, &reading, attached.Start)
	if a.Packed {
		if err := s.openPacks(ctx, world.LargestBatch(&a.Order, w.Set.Len())); err != nil {
			return err
		}
		defer s.packs.close()
	}
	if s.cursor, err = w.Attach(reading, feed, s); err != nil {
		s.drop()
		return err
	}
	s.tell(event.Attached{Session: s.ID, Job: a.Job, Dataset: w.Name, Rank: a.Rank,
		World: a.Order.Ranks(), PID: s.PID, Client: a.Client.Name})
	var writer sync.WaitGroup
	writer.Go(s.write)
	goodbye := context.AfterFunc(ctx, func() {
		s.end(&wire.Error{Code: wire.CodeShuttingDown, Fatal: true,
			Text: "the daemon is stopping: reconnect when it is back"})
		// A client that computes need not be waited for: what is sent it finds when it looks, and
		// what it was lent stays its own for as long as it maps it.
		writer.Wait()
		_ = s.Conn.SetReadDeadline(time.Unix(1, 0))
	})
	err = s.read(a)
	goodbye()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	s.finish(err)
	// Only then may its leases go: until here the writer may be gathering one of them.
	writer.Wait()
	s.cursor.Detach()
	s.drop()
	s.endTally()
	s.tell(event.Detached{Session: s.ID, Reason: s.reason})
	return nil
}

// over serves a rank that has read everything: it is told so, and what it says is not heard.
func (s *Session) over(ctx context.Context, attached []byte) error {
	if _, err := s.writer.Send(wire.AppendEnd(attached)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = s.Conn.CloseRead() })()
	for {
		if _, err := s.reader.Next(); err != nil {
			return err
		}
	}
}

// lastWordTime is how long a client may take to read why it is being refused.
const lastWordTime = time.Second

// finish ends a session whose client has gone, or has sent what err says.
func (s *Session) finish(err error) {
	patience := time.Unix(1, 0) // nobody reads any more
	if err != nil && !lost(err) {
		patience = time.Now().Add(lastWordTime)
		e := toWire(err)
		s.because(e.Text)
		s.end(e)
	}
	_ = s.Conn.SetWriteDeadline(patience)
	s.packs.stop()
	s.end(nil)
}

// lost says whether the client's end is simply gone.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET)
}

// because remembers why the session ends; the first reason counts.
func (s *Session) because(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		s.reason = reason
	}
}

func (s *Session) tell(e event.Event) {
	if s.Listen != nil {
		s.Listen(e)
	}
}

// prepare turns an attach into a reading that can be fed, with its start in normal form.
func (s *Session) prepare(a *wire.Attach) (job.Reading, *job.Feed, *wire.Attached, error) {
	set := s.world.Set
	r := job.Reading{Order: a.Order, Epochs: a.Epochs, Rank: a.Rank, Start: a.Start}
	if r.Order.Samples == 0 {
		r.Order.Samples = set.Len()
	}
	if r.Order.Samples != set.Len() {
		return r, nil, nil, fmt.Errorf("the order is over %d samples but %s has %d: "+
			"leave samples out, or scan the dataset again", r.Order.Samples, s.world.Name, set.Len())
	}
	if a.Share != nil && a.Share.Order.Samples != set.Len() {
		return r, nil, nil, fmt.Errorf("a share is of an order over %d samples but %s has %d",
			a.Share.Order.Samples, s.world.Name, set.Len())
	}
	if r.Order.Kind == order.Weighted {
		weighted, err := dataset.NewSet(set.Members(), weights(a))
		if err != nil {
			return r, nil, nil, err
		}
		r.Order.Weights = weighted.SampleWeights()
	}
	members := set.Members()
	names := members[0].Fields()
	if len(names) > 1 {
		s.fields = len(names)
	}
	if n, most := world.LargestBatch(&r.Order, set.Len()), wire.MaxBatch(s.fields); n > most {
		return r, nil, nil, &wire.Error{Code: wire.CodeTooLarge, Fatal: true,
			Text: fmt.Sprintf("a batch of %d samples is over the limit of %d", n, most)}
	}
	out := &wire.Attached{Session: s.ID, Samples: set.Len(), Content: fmt.Sprintf("%x", set.ID()),
		Start: a.Start}
	if s.fields > 1 {
		out.Fields = names
	}
	if r.Order.Draws > maxDraws {
		return r, nil, nil, &wire.Error{Code: wire.CodeTooLarge, Fatal: true, Text: fmt.Sprintf(
			"an epoch of %d draws is over the limit of %d", r.Order.Draws, maxDraws)}
	}
	if ended, err := ends(r); err != nil || ended {
		out.Start = wire.Start{Epoch: r.Epochs}
		return r, nil, out, err
	}
	if !r.Order.Known() {
		if err := r.Validate(); err != nil {
			return r, nil, nil, err
		}
		s.intake = intake{start: r.Start, epochs: r.Epochs, epoch: r.Start.Epoch}
		return r, nil, out, nil
	}
	rule, err := policy.Find(s.world.Rule)
	if err != nil {
		return r, nil, nil, err
	}
	newOrder := s.NewOrder
	if newOrder == nil {
		newOrder = order.New
	}
	o, err := newOrder(r.Order)
	if err != nil {
		return r, nil, nil, err
	}
	feed, start, batches, err := job.BeginWith(o, r, rule.Ahead)
	if err != nil {
		return r, nil, nil, err
	}
	r.Start = start
	out.Start, out.Batches = start, batches
	return r, feed, out, nil
}

// maxDraws bounds an epoch that the client sets the length of: its list takes 4 bytes a draw.
const maxDraws = 1 << 28

// ends reports whether a reading starts where it ends, after the last epoch's last batch.
func ends(r job.Reading) (bool, error) {
	last := r.Start.Epoch == r.Epochs-1 && r.Start.Batch > 0 && r.Order.Known()
	if r.Start.Epoch < r.Epochs && !last {
		return false, nil
	}
	longer := r
	longer.Epochs++
	if !last {
		return true, longer.Validate()
	}
	_, start, _, err := job.Begin(longer, false)
	return err == nil && start.Epoch == r.Epochs, err
}

// weights are those of the datasets a client names; they are the job's own, not the world's.
func weights(a *wire.Attach) []float64 {
	all := make([]float64, len(a.Datasets))
	for i, d := range a.Datasets {
		if all[i] = d.Weight; d.Weight == 0 {
			all[i] = 1
		}
	}
	return all
}

// read passes the client's frames on until it closes.
func (s *Session) read(a *wire.Attach) error {
	var seqs []uint64
	for {
		f, err := s.reader.Next()
		if err != nil {
			return err
		}
		switch f.Type {
		case wire.TypeCredit:
			n, err := wire.DecodeCredit(f.Payload)
			if err != nil {
				return err
			}
			if err := s.credit(n); err != nil {
				return err
			}
		case wire.TypeRelease:
			v, err := wire.DecodeRelease(f.Payload)
			if err != nil {
				return err
			}
			if seqs, err = s.release(v, seqs[:0]); err != nil {
				return err
			}
			s.cursor.Release(seqs...)
		case wire.TypeWindow:
			if err := s.window(f.Payload, a); err != nil {
				return err
			}
		case wire.TypeDrift:
			if s.agreed&wire.FeatureDrift == 0 {
				return &wire.Error{Code: wire.CodeProtocol, Fatal: true,
					Text: "Drift was not agreed on in Hello"}
			}
			if err := s.drifted(f.Payload, a); err != nil {
				return err
			}
		case wire.TypeDetach:
			// Leases stay lent until the client closes; what comes for its credits goes unsent.
			s.end(nil)
		default:
			return &wire.Error{Code: wire.CodeProtocol, Fatal: true,
				Text: fmt.Sprintf("a client does not send %s", f.Type)}
		}
	}
}

// credit lets more batches come, as many as the protocol allows.
func (s *Session) credit(n uint32) error {
	s.mu.Lock()
	s.owed += n
	s.tally.credited(n)
	owed := s.owed
	s.mu.Unlock()
	if owed > wire.MaxCredit {
		return &wire.Error{Code: wire.CodeProtocol, Fatal: true, Text: fmt.Sprintf(
			"%d credits are unspent: at most %d may be", owed, wire.MaxCredit)}
	}
	s.packs.credited(n)
	s.cursor.Credit(n)
	return nil
}

// release ends leases on this side and appends to seqs those that the pump has to hear of. A lease
// that the client does not hold is refused: taking it would let a client grow the world's mailbox
// at will.
func (s *Session) release(v wire.ReleaseView, seqs []uint64) ([]uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range v.Len() {
		seq := v.At(i)
		if _, scattered := s.lent[seq]; scattered {
			delete(s.lent, seq)
			seqs = append(seqs, seq)
		} else if !s.unpack(seq) {
			return seqs, &wire.Error{Code: wire.CodeProtocol, Fatal: true, Text: fmt.Sprintf(
				"lease %d was released but is not held: release each lease once", seq)}
		}
	}
	return seqs, nil
}
