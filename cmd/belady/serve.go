package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"belady/internal/node/daemon"
	"belady/internal/node/event"
	"belady/internal/store/origin"
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
		c, err := loadConfig(cmd, os.Getenv)
		if err != nil {
			return err
		}
		return serve(cmd.Context(), env, c)
	}
	return cmd
}

func serve(ctx context.Context, env *environment, c config) error {
	retry := origin.RetryDefaults()
	retry.ConcurrencyMax = c.Origin.Concurrency
	retry.TotalTimeout = time.Duration(c.Origin.DeadlineSeconds) * time.Second
	retry.AttemptTimeout = min(retry.AttemptTimeout, retry.TotalTimeout)
	cfg := daemon.Config{Dir: c.Dir, Socket: c.Socket, Version: version, RAM: int64(c.RAM),
		Staging: int64(c.Staging), Concurrency: c.Origin.Concurrency, Retry: retry,
		OpenOrigin: env.OpenOrigin, Listen: logEvents(env.Err)}
	d, err := daemon.New(cfg)
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// logEvents writes events as log lines: with colours on a terminal, plain elsewhere. Lines pass
// through a bounded queue, so that a stuck reader of the log never holds up data: what does not
// fit is counted and left out.
func logEvents(w io.Writer) event.Listener {
	var handler slog.Handler = slog.NewTextHandler(w, nil)
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		handler = tint.NewTextHandler(w, &tint.Options{TimeFormat: time.TimeOnly})
	}
	logger := slog.New(handler)
	queue := make(chan event.Event, 1024)
	go func() {
		for e := range queue {
			switch e.(type) {
			case event.FetchFailed, event.Trouble, event.Tightened:
				logger.Warn(e.String(), "code", e.Code())
			default:
				logger.Info(e.String(), "code", e.Code())
			}
		}
	}()
	return func(e event.Event) {
		select {
		case queue <- e:
		default:
		}
	}
}
