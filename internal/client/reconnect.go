package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"belady/internal/node/wire"
)

// errLost means that the connection is gone and a new one may continue.
var errLost = errors.New("the connection to the daemon was lost")

// Reconnecting waits between attempts: doubling, from one a local daemon's restart hides in.
const (
	firstWait = 5 * time.Millisecond
	longWait  = 500 * time.Millisecond
)

// lost says whether an error means that the other end is gone.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// retire gives up the link; it is closed when none of its batches is held any more.
func (s *Session) retire() error {
	s.mu.Lock()
	l := s.link
	s.link = nil
	if l == nil {
		s.mu.Unlock()
		return nil
	}
	l.retired = true
	dead := l.table.drop(nil)
	last := l.held == 0
	s.mu.Unlock()
	err := unmap(dead)
	if last {
		err = errors.Join(err, l.close())
	}
	return err
}

// lose gives up a link whose other end is gone. After the last batch that is the end.
func (s *Session) lose() {
	_ = s.retire() // closing what is broken may fail; nothing depends on it
	if s.next.Epoch >= s.attach.Epochs {
		s.fail(io.EOF)
	}
}

// fail makes an error final.
func (s *Session) fail(err error) {
	if err != io.EOF {
		_ = s.retire()
		if errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrTooLarge) {
			err = fmt.Errorf("the daemon on %s is broken or is no belady: %w",
				s.client.cfg.Socket, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

// reconnect finds the daemon again and goes on where the session was.
func (s *Session) reconnect(ctx context.Context) error {
	start := time.Now()
	away := s.client.cfg.Away
	if away == nil {
		away = func(bool) {}
	}
	away(false)
	defer func() {
		s.mu.Lock()
		s.stats.Away += time.Since(start)
		s.mu.Unlock()
	}()
	limit := s.client.cfg.ReconnectFor
	try, cancel := context.WithTimeout(ctx, max(limit, 0))
	defer cancel()
	err := errLost
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		if try.Err() == nil {
			if err = s.resume(try); err == nil {
				away(true)
				return nil
			}
		}
		if permanent(err) {
			s.fail(err)
			return s.failed
		}
		select {
		case <-time.After(wait):
		case <-try.Done():
			if err := ctx.Err(); err != nil {
				return err
			}
			s.fail(fmt.Errorf("the daemon on %s went away and did not come back within %s: start"+
				" it with `belady serve` and resume the job at epoch %d, batch %d (%w)",
				s.client.cfg.Socket, limit, s.next.Epoch, s.next.Batch, err))
			return s.failed
		}
	}
}

// permanent says whether trying again cannot help.
func permanent(err error) bool {
	if errors.Is(err, &Error{Code: wire.CodeShuttingDown}) {
		return false
	}
	var e *Error
	return errors.As(err, &e) || errors.Is(err, wire.ErrMalformed) ||
		errors.Is(err, wire.ErrTooLarge) || errors.Is(err, fs.ErrPermission)
}

// resume attaches anew at the batch that is due.
func (s *Session) resume(ctx context.Context) error {
	a := s.attach
	a.Start, a.Begins = s.next, 0
	l, attached, err := s.client.open(ctx, &a)
	if err != nil {
		return err
	}
	if attached.Content != s.attached.Content {
		return errors.Join(&Error{Code: wire.CodeChanged, Fatal: true, Text: fmt.Sprintf(
			"the dataset is now %s, the job began with %s: scan it again and start the job anew",
			attached.Content, s.attached.Content)}, l.close())
	}
	if at := attached.Start; at != s.next && at != (wire.Start{Epoch: s.next.Epoch + 1}) {
		err := fmt.Errorf("%w: it begins at epoch %d, batch %d, asked for epoch %d, batch %d",
			wire.ErrMalformed, at.Epoch, at.Batch, s.next.Epoch, s.next.Batch)
		return errors.Join(err, l.close())
	}
	s.next = attached.Start
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.windows {
		l.queued = append(l.queued, w.frame...)
	}
	s.link = l
	s.stats.Reconnects++
	return nil
}
