package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"belady/internal/core/perf"
	"belady/internal/node/daemon"
	"belady/internal/node/eventlog"
	"belady/internal/profile"
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
	total, err := memory()
	if err != nil {
		return err
	}
	if ram > byteSize(total) {
		return usagef("ram is %s, but this machine has %s: give less", ram, byteSize(total))
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
	known, err := ratesOf(c)
	if err != nil {
		return err
	}
	disks, err := openDisks(c.Ssd, known)
	if err != nil {
		return err
	}
	log := eventlog.New(env.Err)
	defer log.Close()
	cfg := daemon.Config{Dir: c.Dir, Socket: c.Socket, Version: version, RAM: int64(c.RAM),
		Staging: int64(c.Staging), Trace: c.Trace,
		IdleExit:    time.Duration(c.IdleExitSeconds) * time.Second,
		Concurrency: c.Origin.Concurrency, Retry: retry,
		OpenOrigin: env.OpenOrigin, Listen: log.Listen, Layout: tier.Layout(c.Ssd.Layout)}
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

// ratesOf is what the profile says of folders' devices. One that was named is believed; that in Dir
// only while it is fresh, or if somebody wrote it. A file that is no profile is refused.
func ratesOf(c config) (func(path string) (perf.Rates, bool), error) {
	path := cmp.Or(c.Profile, filepath.Join(c.Dir, profile.Name))
	p, err := profile.Load(path)
	switch {
	case c.Profile == "" && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, usagef("read the profile: %w", err)
	}
	age := time.Since(time.Unix(p.Measured, 0))
	if c.Profile == "" && p.Measured != 0 && (age < 0 || age > 24*time.Hour) {
		return nil, nil
	}
	return func(path string) (perf.Rates, bool) {
		whole, err := filepath.Abs(path)
		i := slices.IndexFunc(p.Disks, func(d perf.Disk) bool {
			return err == nil && filepath.Clean(d.Name) == whole
		})
		if i < 0 {
			return perf.Rates{}, false
		}
		rates := p.Disks[i].Rates()
		return rates, len(rates.Random) > 0 && rates.Mixed > 0
	}, nil
}

// openDisks takes the folders for samples on ssd: those of another daemon are refused.
func openDisks(
	c ssdConfig, known func(path string) (perf.Rates, bool),
) (*ssd.Disks, error) {
	if len(c.Dirs) == 0 {
		return nil, nil
	}
	o := ssd.Options{Free: int64(c.Free), WearBytesPerDay: int64(c.Wear), Rates: known}
	for _, d := range c.Dirs {
		o.Dirs = append(o.Dirs, ssd.Dir{Path: d.Path, Quota: int64(d.Bytes)})
	}
	return ssd.Open(o)
}
