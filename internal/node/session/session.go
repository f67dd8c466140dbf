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
	"sync"
	"time"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
	"belady/internal/node/event"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/arena"
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
	Open   func(ctx context.Context, a *wire.Attach) (w *world.World, done func(), err error)
	Listen event.Listener
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

	mu     sync.Mutex
	filled *sync.Cond
	outbox []parcel // guarded by mu, as all below
	spare  []byte
	places []wire.Place
	ended  bool   // nothing more is sent
	reason string // why it ended early
}

// parcel is something to send: frames, a slab with its descriptor, or a batch to pack first.
type parcel struct {
	frames []byte
	slab   *arena.SlabInfo
	batch  *packable
}

// Serve runs a session to its end. Cancelling ctx says goodbye to the client.
func Serve(ctx context.Context, cfg Config) {
	s := &Session{Config: cfg, writer: wire.NewWriter(cfg.Conn, wire.DaemonSide)}
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
	if err != nil && !errors.Is(err, io.EOF) {
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
	frame, err := wire.AppendAttached(nil, attached)
	if err != nil {
		return err
	}
	s.send(frame)
	if a.Packed {
		if err := s.packs.open(s.Pool, w.Set, a.Order.Batch); err != nil {
			return err
		}
		defer s.packs.close()
		s.mu.Lock()
		s.outbox = append(s.outbox, parcel{slab: s.packs.slab()})
		s.mu.Unlock()
	}
	if s.cursor, err = w.Attach(reading, feed, s); err != nil {
		return err
	}
	s.tell(event.Attached{Session: s.ID, Dataset: w.Name, Rank: a.Rank,
		World: a.Order.Ranks(), PID: s.PID})
	var writer sync.WaitGroup
	writer.Go(s.write)
	goodbye := context.AfterFunc(ctx, func() {
		s.end(&wire.Error{Code: wire.CodeShuttingDown, Fatal: true,
			Text: "the daemon is stopping: reconnect when it is back"})
	})
	err = s.read(a)
	goodbye()
	s.packs.stop()
	s.cursor.Detach()
	if err != nil && !errors.Is(err, io.EOF) {
		s.reason = err.Error()
		s.end(toWire(err))
	}
	s.end(nil)
	writer.Wait()
	s.tell(event.Detached{Session: s.ID, Reason: s.reason})
	return nil
}

func (s *Session) tell(e event.Event) {
	if s.Listen != nil {
		s.Listen(e)
	}
}

// prepare turns an attach into a reading that can be fed, with its start in normal form.
func (s *Session) prepare(a *wire.Attach) (job.Reading, *job.Feed, *wire.Attached, error) {
	set := s.world.Set
	r := job.Reading{Order: a.Order, Epochs: a.Epochs, Rank: a.Rank, Start: job.Start(a.Start)}
	if r.Order.Samples == 0 {
		r.Order.Samples = set.Len()
	}
	if r.Order.Samples != set.Len() {
		return r, nil, nil, fmt.Errorf("the order is over %d samples but %s has %d: "+
			"leave samples out, or scan the dataset again", r.Order.Samples, s.world.Name, set.Len())
	}
	if r.Order.Kind == order.Weighted {
		r.Order.Weights = set.SampleWeights()
	}
	members := set.Members()
	names := members[0].Fields()
	if len(names) > 1 {
		s.fields = len(names)
	}
	if most := wire.MaxBatch(s.fields); r.Order.Batch > most {
		return r, nil, nil, &wire.Error{Code: wire.CodeTooLarge, Fatal: true,
			Text: fmt.Sprintf("a batch of %d samples is over the limit of %d", r.Order.Batch, most)}
	}
	out := &wire.Attached{Session: s.ID, Samples: set.Len(), Content: fmt.Sprintf("%x", set.ID()),
		Start: a.Start}
	if s.fields > 1 {
		out.Fields = names
	}
	if !r.Order.Known() {
		if err := r.Validate(); err != nil {
			return r, nil, nil, err
		}
		return r, nil, out, nil
	}
	rule, err := policy.Find(s.world.Rule)
	if err != nil {
		return r, nil, nil, err
	}
	feed, start, batches, err := job.Begin(r, rule.Ahead)
	if err != nil {
		return r, nil, nil, err
	}
	r.Start = start
	out.Start, out.Batches = wire.Start(start), batches
	return r, feed, out, nil
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
			s.cursor.Credit(n)
		case wire.TypeRelease:
			v, err := wire.DecodeRelease(f.Payload)
			if err != nil {
				return err
			}
			seqs = seqs[:0]
			for i := range v.Len() {
				if !s.unpack(v.At(i)) {
					seqs = append(seqs, v.At(i))
				}
			}
			s.cursor.Release(seqs...)
		case wire.TypeWindow:
			if err := s.window(f.Payload, a); err != nil {
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

// window takes a piece of an explicit order.
func (s *Session) window(p []byte, a *wire.Attach) error {
	if a.Order.Known() {
		return &wire.Error{Code: wire.CodeProtocol, Fatal: true,
			Text: fmt.Sprintf("order %s is computed here: windows are for explicit orders",
				a.Order.Kind)}
	}
	v, err := wire.DecodeWindow(p)
	if err != nil {
		return err
	}
	win := &job.Window{Epoch: int(v.Epoch), IDs: make([]sample.ID, v.Len()),
		Ends: make([]uint32, v.Batches()), LastOfEpoch: v.Flags&wire.WindowLastOfEpoch != 0,
		LastOfJob: v.Flags&wire.WindowLastOfJob != 0}
	for i := range win.IDs {
		win.IDs[i] = v.ID(i)
	}
	for i := range win.Ends {
		win.Ends[i] = v.End(i)
	}
	check := order.Window{Epoch: win.Epoch, IDs: win.IDs, BatchEnds: win.Ends,
		Last: win.LastOfEpoch}
	if err := check.Validate(s.world.Set.Len()); err != nil {
		return fmt.Errorf("window of epoch %d: %w", win.Epoch, err)
	}
	s.cursor.Window(win)
	return nil
}
