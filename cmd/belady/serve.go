package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"belady/internal/node/daemon"
	"belady/internal/node/event"
	"belady/internal/store/origin"
	"belady/internal/store/tier"
	"belady/internal/store/tier/ssd"
)

// newServeCommand is the node daemon.
func newServeCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the node daemon: keep samples in memory and lend batches to local ranks",
		Long: "Run the node daemon in the foreground. It serves datasets added with 'belady " +
			"dataset add' to local training processes over a Unix socket, until it is " +
			"interrupted. One daemon serves one --dir.",
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := env.Settings.override(cmd, os.Getenv)
		if err != nil {
			return err
		}
		return serve(cmd.Context(), env, c)
	}
	return cmd
}

// checkMemory refuses more memory than the machine has: it would be found missing one slab at a
// time, in the middle of a job.
func checkMemory(ram byteSize) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("ask how much memory there is: %w", err)
	}
	if total := byteSize(uint64(info.Totalram) * uint64(info.Unit)); ram > total {
		return usagef("ram is %s, but this machine has %s: give less", ram, total)
	}
	return nil
}

func serve(ctx context.Context, env *environment, c config) (err error) {
	if err := checkMemory(c.RAM); err != nil {
		return err
	}
	retry := origin.RetryDefaults()
	retry.ConcurrencyMax = c.Origin.Concurrency
	retry.TotalTimeout = time.Duration(c.Origin.DeadlineSeconds) * time.Second
	retry.AttemptTimeout = min(retry.AttemptTimeout, retry.TotalTimeout)
	disks, err := openDisks(c.Ssd)
	if err != nil {
		return err
	}
	log := newEventLog(env.Err)
	defer log.close()
	cfg := daemon.Config{Dir: c.Dir, Socket: c.Socket, Version: version, RAM: int64(c.RAM),
		Staging: int64(c.Staging), Trace: c.Trace,
		IdleExit:    time.Duration(c.IdleExitSeconds) * time.Second,
		Concurrency: c.Origin.Concurrency, Retry: retry,
		OpenOrigin: env.OpenOrigin, Listen: log.listen, Layout: tier.Layout(c.Ssd.Layout)}
	if disks != nil { // an interface that holds a nil would not be nil
		cfg.Disks = disks
		defer func() { err = errors.Join(err, disks.Close()) }()
	}
	d, err := daemon.New(cfg)
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// openDisks takes the folders for samples on ssd: those of another daemon are refused.
func openDisks(c ssdConfig) (*ssd.Disks, error) {
	if len(c.Dirs) == 0 {
		return nil, nil
	}
	o := ssd.Options{Free: int64(c.Free), WearBytesPerDay: int64(c.Wear)}
	for _, d := range c.Dirs {
		o.Dirs = append(o.Dirs, ssd.Dir{Path: d.Path, Quota: int64(d.Bytes)})
	}
	return ssd.Open(o)
}

// eventLog writes events as log lines: with colours on a terminal, plain elsewhere. Lines pass
// through a bounded queue, so that a stuck reader of the log never holds up data: what does not
// fit is counted and said later.
type eventLog struct {
	logger *slog.Logger
	queue  chan event.Event
	lost   atomic.Int64
	quit   chan struct{}
	done   chan struct{}
}

func newEventLog(w io.Writer) *eventLog {
	var handler slog.Handler = slog.NewTextHandler(w, nil)
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		handler = tint.NewTextHandler(w, &tint.Options{TimeFormat: time.TimeOnly})
	}
	l := &eventLog{logger: slog.New(handler), queue: make(chan event.Event, 1024),
		quit: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// listen is an event.Listener.
func (l *eventLog) listen(e event.Event) {
	select {
	case l.queue <- e:
	default:
		l.lost.Add(1)
	}
}

func (l *eventLog) run() {
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

func (l *eventLog) write(e event.Event) {
	if n := l.lost.Swap(0); n > 0 {
		l.logger.Warn("events were left out because the log could not be written", "count", n)
	}
	switch e.(type) {
	case event.FetchFailed, event.Trouble, event.Tightened, event.Drifted, event.LogClosed,
		event.LogDropped, event.LogFull, event.LogDirectory, event.LogWear:
		l.logger.Warn(e.String(), "code", e.Code())
	default:
		l.logger.Info(e.String(), "code", e.Code())
	}
}

// close writes out what is queued, unless the log is stuck.
func (l *eventLog) close() {
	close(l.quit)
	select {
	case <-l.done:
	case <-time.After(time.Second):
	}
}
