package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"belady/internal/core/pump"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/arena"
	"belady/internal/store/catalog"
	"belady/internal/store/origin"
)

// causes maps what the pump says a batch waited for to what the wire calls it.
var causes = [pump.Causes]wire.Cause{pump.None: wire.CauseNone, pump.Origin: wire.CauseOrigin,
	pump.Arena: wire.CauseArena, pump.Order: wire.CauseOrder, pump.Ssd: wire.CauseSSD}

// send leaves frames in the outbox.
func (s *Session) send(frames []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	buf := s.pending()
	*buf = append(*buf, frames...)
	s.filled.Signal()
}

// pending is the buffer that frames are appended to; the caller holds mu.
func (s *Session) pending() *[]byte {
	if n := len(s.outbox); n > 0 && s.outbox[n-1].slab == nil && s.outbox[n-1].batch == nil {
		return &s.outbox[n-1].frames
	}
	s.outbox = append(s.outbox, parcel{frames: s.spare[:0]})
	s.spare = nil
	return &s.outbox[len(s.outbox)-1].frames
}

// Leased implements world.Consumer.
func (s *Session) Leased(l *world.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed--
	s.ahead -= int64(len(l.IDs))
	if s.ended {
		return
	}
	s.tally.leased(l)
	if b := s.packs.take(l); b != nil {
		b.lengths = s.fieldLengths(l)
		s.outbox = append(s.outbox, parcel{batch: b})
	} else {
		buf := s.pending()
		*buf = s.appendScattered(*buf, l)
		s.lent[l.Seq] = struct{}{}
	}
	s.filled.Signal()
}

func (s *Session) appendScattered(dst []byte, l *world.Lease) []byte {
	head := headOf(l)
	head.Fields = uint16(s.fields)
	s.places = wirePlaces(s.places[:0], l.Places)
	return wire.AppendLease(dst, &head, l.IDs, l.Lengths, s.places, s.fieldLengths(l))
}

func headOf(l *world.Lease) wire.Lease {
	head := wire.Lease{Seq: l.Seq, Epoch: uint32(l.Epoch), Batch: uint32(l.Batch),
		Cause: causes[l.Cause], Form: wire.FormScattered}
	if l.Last {
		head.Flags = wire.LeaseLastOfEpoch
	}
	return head
}

// fieldLengths lists the lengths of every sample's fields, where there is more than one.
func (s *Session) fieldLengths(l *world.Lease) []uint32 {
	if s.fields < 2 {
		return nil
	}
	out := make([]uint32, 0, len(l.IDs)*s.fields)
	members := s.world.Set.Members()
	for _, id := range l.IDs {
		m, local := s.world.Set.Locate(id)
		for f := range s.fields {
			out = append(out, members[m].FieldSize(local, f))
		}
	}
	return out
}

// Failed implements world.Consumer.
func (s *Session) Failed(epoch, batch int, err error) {
	e := toWire(err)
	e.Epoch, e.Batch = uint32(epoch), uint32(batch)
	s.because(e.Text)
	s.end(e)
}

// Finished implements world.Consumer.
func (s *Session) Finished() { s.send(wire.AppendEnd(nil)) }

// SlabAdded implements world.Consumer. The arena may close the slab's descriptor before the writer
// comes to it, and the number may be another file's by then: so the parcel has one of its own.
func (s *Session) SlabAdded(info arena.SlabInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	fd, err := unix.FcntlInt(uintptr(info.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		s.endLocked(&wire.Error{Code: wire.CodeInternal, Text: fmt.Sprintf(
			"the daemon has no descriptor left to pass a slab (%v): raise its ulimit -n", err)})
		return
	}
	info.FD = fd
	s.outbox = append(s.outbox, parcel{slab: &info})
	s.filled.Signal()
}

// SlabGone implements world.Consumer. Of a slab that was not announced yet nothing is said: a
// client that does not read must not gather descriptors here.
func (s *Session) SlabGone(index uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.outbox {
		if p.slab != nil && p.slab.Index == index {
			_ = unix.Close(p.slab.FD)
			s.outbox = slices.Delete(s.outbox, i, i+1)
			return
		}
	}
	if !s.ended {
		buf := s.pending()
		*buf = wire.AppendSlabGone(*buf, index)
		s.filled.Signal()
	}
}

// end sends a last word, if there is one, and nothing after it.
func (s *Session) end(last *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(last)
}

// endLocked is end for those who hold mu.
func (s *Session) endLocked(last *wire.Error) {
	if s.ended {
		return
	}
	if last != nil {
		last.Fatal = true
		buf := s.pending()
		*buf = wire.AppendError(*buf, last)
	}
	s.ended = true
	s.filled.Broadcast()
}

// write sends what is in the outbox until the session ends, then shuts its side: the client sees
// the end of the stream after the last word.
func (s *Session) write() {
	defer s.Conn.CloseWrite()
	for {
		s.mu.Lock()
		for len(s.outbox) == 0 && !s.ended {
			s.filled.Wait()
		}
		out := s.outbox
		s.outbox = nil
		s.mu.Unlock()
		if len(out) == 0 {
			return
		}
		for i := range out {
			if err := s.deliver(&out[i]); err != nil {
				s.end(nil) // the reader sees the connection's end by itself
				s.mu.Lock()
				s.outbox = append(out[i+1:], s.outbox...)
				s.mu.Unlock()
				return
			}
		}
	}
}

// drop closes what was never sent. Nobody may add to the outbox any more.
func (s *Session) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, p := range s.outbox {
		if p.slab != nil && !s.packs.is(p.slab) {
			_ = unix.Close(p.slab.FD)
		}
	}
	s.outbox = nil
}

func (s *Session) deliver(p *parcel) error {
	switch {
	case p.slab != nil:
		kind := wire.SlabArena
		if s.packs.is(p.slab) {
			kind = wire.SlabPacked
		} else {
			defer unix.Close(p.slab.FD)
		}
		return s.writer.SendSlab(wire.Slab{Index: p.slab.Index, Kind: kind,
			Bytes: uint64(p.slab.Bytes)}, p.slab.FD)
	case p.batch != nil:
		return s.pack(p.batch)
	}
	_, err := s.writer.Send(p.frames)
	s.mu.Lock()
	s.spare = p.frames
	s.mu.Unlock()
	return err
}

// refuse answers a connection that never became a session.
func (s *Session) refuse(err error) {
	_, _ = s.writer.Send(wire.AppendError(nil, toWire(err)))
	_ = s.Conn.CloseWrite()
}

// codes says what each error means to a client, most specific first.
var codes = []struct {
	err  error
	code wire.Code
}{
	{origin.ErrAbsent, wire.CodeAbsent},
	{origin.ErrChanged, wire.CodeChanged},
	{origin.ErrDenied, wire.CodeDenied},
	{origin.ErrUnavailable, wire.CodeUnavailable},
	{catalog.ErrUnknown, wire.CodeUnknownDataset},
	{world.ErrTooSmall, wire.CodeArenaTooSmall},
	{arena.ErrNoBudget, wire.CodeArenaTooSmall},
	{world.ErrClosed, wire.CodeShuttingDown},
	{wire.ErrMalformed, wire.CodeProtocol},
	{wire.ErrTooLarge, wire.CodeTooLarge},
}

func toWire(err error) *wire.Error {
	var e *wire.Error
	if errors.As(err, &e) {
		own := *e // several sessions may be told one error
		own.Fatal = true
		return &own
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return &wire.Error{Code: c.code, Fatal: true, Text: err.Error()}
		}
	}
	code := wire.CodeBadRequest
	if errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.SyscallError)) {
		code = wire.CodeInternal // the daemon's own files, not what was asked
	}
	return &wire.Error{Code: code, Fatal: true, Text: err.Error()}
}
