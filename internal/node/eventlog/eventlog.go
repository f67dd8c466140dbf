// Package eventlog writes the daemon's events as lines for people.
package eventlog

import (
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"belady/internal/node/event"
)

// Log writes events as log lines: with colours on a terminal, plain elsewhere. Lines pass
// through a bounded queue, so that a stuck reader of the log never holds up data: what does not
// fit is counted and said later.
type Log struct {
	logger *slog.Logger
	queue  chan event.Event
	lost   atomic.Int64
	quit   chan struct{}
	done   chan struct{}
}

// New writes to w, until Close.
func New(w io.Writer) *Log {
	var handler slog.Handler = slog.NewTextHandler(w, nil)
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		handler = tint.NewTextHandler(w, &tint.Options{TimeFormat: time.TimeOnly})
	}
	l := &Log{logger: slog.New(handler), queue: make(chan event.Event, 1024),
		quit: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// Listen is an event.Listener.
func (l *Log) Listen(e event.Event) {
	select {
	case l.queue <- e:
	default:
		l.lost.Add(1)
	}
}

func (l *Log) run() {
	defer close(l.done)
	for {
		select {
		case e := <-l.queue:
			l.write(e)
			continue
		default:
		}
		select {
		case e := <-l.queue:
			l.write(e)
		case <-l.quit:
			return
		}
	}
}

func (l *Log) write(e event.Event) {
	if n := l.lost.Swap(0); n > 0 {
		l.logger.Warn("events were left out because the log could not be written", "count", n)
	}
	switch e.(type) {
	case event.FetchFailed, event.Trouble, event.Tightened, event.Drifted, event.LogClosed,
		event.LogDropped, event.LogFull, event.LogDirectory, event.LogWear,
		event.LogSlow:
		l.logger.Warn(e.String(), "code", e.Code())
	default:
		l.logger.Info(e.String(), "code", e.Code())
	}
}

// Close writes out what is queued, unless the log is stuck.
func (l *Log) Close() {
	close(l.quit)
	select {
	case <-l.done:
	case <-time.After(time.Second):
	}
}
