package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"belady/internal/core/perf"
	"belady/internal/profile"
	"belady/internal/progress"
	"belady/internal/store/catalog"
	"belady/internal/store/probe"
)

func newBenchCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what this node can do",
		Args:  refuseUnknownVerb,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchTiersCommand(env), newBenchPeerCommand(env))
	return cmd
}

func newBenchPeerCommand(env *environment) *cobra.Command {
	listen, minutes := "", 0
	cmd := &cobra.Command{
		Use:   "peer",
		Short: "Let another node measure the network to this one",
		Long: "Answer 'belady bench tiers --peer' of other nodes, until interrupted or for some\n" +
			"minutes. Whoever can reach the address may ask; nothing but bytes without meaning is sent,\n" +
			"to each connection for 5 s at most.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if minutes < 1 || minutes > 1440 {
				return usagef("--minutes is %d; give 1 to 1440", minutes)
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(minutes)*time.Minute)
			defer cancel()
			fmt.Fprintf(env.Out, "answering on %s for %d minutes\n", l.Addr(), minutes)
			return probe.Answer(ctx, l)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7411",
		"address to answer on, HOST:PORT: one of this node's for others to reach it")
	cmd.Flags().IntVar(&minutes, "minutes", 10, "how long to answer, 1 to 1440")
	return cmd
}

// benchFlags are those of `belady bench tiers`.
type benchFlags struct {
	peers   []string
	out     string
	seconds int
	json    bool
}

func newBenchTiersCommand(env *environment) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "tiers [DATASET]",
		Short: "Measure memory, disks and the origin of a dataset, and write the node's profile",
		Long: "Measure what the sources of this node give, and write it to a profile, which the\n" +
			"daemon, 'belady plan' and 'belady sim' use: docs/profile.md. Memory is copied; into each\n" +
			"folder of --ssd a file of up to 256 MB is written, read past the page cache, and removed;\n" +
			"of the dataset's origin, up to 512 MB of samples are read in up to 20 s, none twice, and\n" +
			"no more at once than bring more; the network to each --peer is filled for 2 s. It takes\n" +
			"less than a minute and can be interrupted.\n" +
			"What else uses a source meanwhile lowers its figures.",
		Example: "  belady bench tiers imagenet --ssd /nvme0 --ssd /nvme1",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.MaximumNArgs(1)(cmd, args); err != nil {
				return errors.New("name one dataset at most; folders are named with --ssd")
			}
			if len(args) == 1 {
				return catalog.CheckName(args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := env.Settings.withFolders(cmd, os.Getenv)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), env, settings, args)
		},
	}
	flags := cmd.Flags()
	flags.StringArray("ssd", nil, "folder whose device to measure; may be given again (default those "+
		"of the settings, or $BELADY_SSD)")
	flags.StringArrayVar(&f.peers, "peer", nil, "node that runs 'belady bench peer', as HOST:PORT; "+
		"may be given again, and the slowest link counts")
	flags.StringVar(&f.out, "out", "", "profile to write (default "+profile.Name+" in --dir)")
	flags.IntVar(&f.seconds, "seconds", 50, "most time to take, 30 to 600")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// withFolders is the settings with the folders on ssd that a verb's flag or the environment names.
func (c config) withFolders(cmd *cobra.Command, getenv func(string) string) (config, error) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == "ssd" })
	texts, from := settings[i].given(cmd, getenv)
	if len(texts) == 0 || texts[0] == "" {
		return c, nil
	}
	if err := settings[i].set(&c, texts); err != nil {
		return config{}, usagef("%s: %w", from, err)
	}
	return c, nil
}

// run measures, writes the profile and prints it.
func (f *benchFlags) run(ctx context.Context, env *environment, c config, args []string) error {
	n := probe.Node{Time: time.Duration(f.seconds) * time.Second, Peers: f.peers,
		Concurrency: c.Origin.Concurrency}
	for _, d := range c.Ssd.Dirs {
		if info, err := os.Stat(d.Path); err != nil || !info.IsDir() {
			return usagef("measure %s: it is no folder", printable(d.Path))
		}
		n.Dirs = append(n.Dirs, d.Path)
	}
	if f.seconds < 30 || f.seconds > 600 {
		return usagef("--seconds is %d; give 30 to 600", f.seconds)
	}
	if f.out == "" {
		f.out = filepath.Join(env.Dir, profile.Name)
	}
	if err := mayReplace(f.out); err != nil {
		return err
	}
	if len(args) == 1 {
		set, err := env.catalog().Open(args[0])
		if err != nil {
			return err
		}
		defer set.Close()
		if n.Origin, err = env.OpenOrigin(ctx, set.Info.URL); err != nil {
			return err
		}
		defer n.Origin.Close()
		n.Samples = set.Manifest
	}
	if !n.Enough() {
		return usagef("%d s are too few for %s and %s: give more --seconds, or fewer of them", f.seconds,
			plural(len(n.Dirs), "folder", "folders"), plural(len(n.Peers), "peer", "peers"))
	}
	p, note, err := f.measure(ctx, env.Err, &n)
	if err != nil {
		return fmt.Errorf("no profile was written: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(f.out), 0o700); err != nil {
		return err
	}
	if err := profile.Save(f.out, p); err != nil {
		return err
	}
	if f.json {
		return printJSON(env.Out, p)
	}
	if err := profile.Print(env.Out, p, notMeasured(&n, note)...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "wrote %s\n", printable(f.out))
	return err
}

// measure shows how far it is.
func (f *benchFlags) measure(
	ctx context.Context, w io.Writer, n *probe.Node,
) (*perf.Profile, string, error) {
	capacity, err := memory()
	if err != nil {
		return nil, "", err
	}
	bar, done := progress.New(w, "measure", int64(n.Steps()), "steps"), int64(0)
	p, note, err := n.Measure(ctx, func() { done++; bar.Set(done) })
	if err != nil {
		bar.Stop()
		return p, note, err
	}
	bar.Done()
	p.Ram.Capacity = capacity &^ (1<<20 - 1)
	return p, note, nil
}

// notMeasured says of what was left out why it was.
func notMeasured(n *probe.Node, note string) (all []profile.Note) {
	if len(n.Dirs) == 0 {
		all = append(all, profile.Note{Source: "ssd", Text: "not measured: name folders with --ssd"})
	}
	if n.Samples == nil {
		note = "not measured: name a dataset to read samples of"
	}
	if note != "" {
		all = append(all, profile.Note{Source: "origin", Text: note})
	}
	if len(n.Peers) == 0 {
		all = append(all, profile.Note{Source: "network to peers",
			Text: "not measured: name nodes with --peer; this daemon serves none yet"})
	}
	return all
}

// mayReplace refuses to write over a profile that somebody wrote by hand.
func mayReplace(path string) error {
	old, err := profile.Load(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: there is a file that is no profile: remove it, or give --out another",
			err)
	case old.Measured == 0:
		return usagef("%s was written by hand and is left as it is: give --out another file, or "+
			"remove it", printable(path))
	}
	return nil
}

// memory is how much the machine has.
func memory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("ask how much memory there is: %w", err)
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit)), nil
}
