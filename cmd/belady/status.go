package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"belady/internal/client"
	"belady/internal/node/daemon"
	"belady/internal/node/world"
	"belady/internal/store/tier"
)

// newStatusCommand shows what the running daemon does.
func newStatusCommand(env *environment) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running daemon serves, keeps and fetches",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := client.Dial(cmd.Context(), client.Config{Socket: env.Socket})
			if err != nil {
				return err
			}
			raw, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			var s daemon.Status
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("read the daemon's status: %w", err)
			}
			if asJSON {
				return printJSON(env.Out, &s)
			}
			return printStatus(env, &s)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printStatus(env *environment, s *daemon.Status) error {
	fmt.Fprintf(env.Out, "belady %s, pid %d, up %.0fs, %s, %s of %s memory free\n",
		s.Version, s.PID, s.UptimeS, plural(s.Sessions, "session", "sessions"),
		humanize.IBytes(uint64(s.RAMLeft)), humanize.IBytes(uint64(s.RAM)))
	if s.Drifts > 0 {
		fmt.Fprintf(env.Out, "%d sessions computed another order than this daemon, and read on "+
			"demand: see order-drift in its log, and 'belady job ls'\n", s.Drifts)
	}
	t := tabwriter.NewWriter(env.Out, 0, 0, 2, ' ', 0)
	if len(s.Datasets) > 0 {
		fmt.Fprintln(t, "DATASET\tSAMPLES\tPOLICY\tRANKS\tKEPT\tOF\tSTAGED\tHITS\tFETCHED")
	}
	for _, d := range s.Datasets {
		fetched, _ := d.ReadBytes()
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", d.Dataset, d.Samples, d.Policy,
			d.Ranks, humanize.IBytes(uint64(d.Pump.KeptBytes)), humanize.IBytes(uint64(d.Keep)),
			humanize.IBytes(uint64(d.Pump.StagingBytes)), d.Pump.Hits,
			humanize.IBytes(uint64(fetched)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := printSsd(t, s); err != nil {
		return err
	}
	if len(s.Ranks) > 0 {
		fmt.Fprintln(t, "JOB\tRANK\tOF\tDATASET\tPID\tCLIENT")
	}
	for _, r := range s.Ranks {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%d\t%s\n", printable(r.Job), r.Rank, r.World, r.Dataset,
			r.PID, printable(r.Client))
	}
	return t.Flush()
}

// printSsd shows what is kept on ssd, and where.
func printSsd(t *tabwriter.Writer, s *daemon.Status) error {
	bytes := func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
	if len(s.Ssd) == 0 {
		return nil
	}
	fmt.Fprintln(t, "SSD\tSTATE\tUSED\tOF\tFREE\tWRITTEN TODAY\tFAILURES")
	for _, d := range s.Ssd {
		state := d.State
		if d.Buffered {
			state += ", buffered: reads go through the page cache"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", d.Path, state, bytes(d.Used),
			bytes(d.Quota), bytes(d.Free), bytes(d.WrittenToday), d.Failures)
	}
	for _, d := range s.Ssd {
		if d.Plain != "" {
			fmt.Fprintf(t, "%s is slower than it could be: the kernel gives no asynchronous I/O (%s)\n",
				d.Path, d.Plain)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	header := "LOG\tLAYOUT\tSAMPLES\tUSED\tOF\tREAD\tWRITTEN\tLOST\tREPAIRED\tHEDGED\n"
	for _, d := range s.Datasets {
		if l := d.Ssd; l != nil {
			fmt.Fprintf(t, "%s%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", header, d.Dataset,
				layoutOf(l, s.Ssd), l.Samples, bytes(l.Used), bytes(l.Capacity), bytes(l.ReadBytes),
				bytes(l.Written), l.Lost, l.Repaired, l.Hedged)
			header = ""
		}
	}
	for _, d := range s.Datasets {
		if d.Ssd != nil && d.Ssd.Stays != "" {
			fmt.Fprintf(t, "%s: %s\n", d.Dataset, d.Ssd.Stays)
		}
	}
	return t.Flush()
}

// layoutOf is the layout of a log, and whether something keeps it from being carried now.
func layoutOf(l *world.LogStatus, dirs []tier.DirUsage) string {
	worn := func(d tier.DirUsage) bool { return d.WearBudget > 0 && d.CarriedToday >= d.WearBudget }
	switch {
	case l.Layout != tier.Carry:
	case l.Stays != "":
		return "carry (waits)"
	case slices.ContainsFunc(dirs, worn):
		return "carry (worn)"
	}
	return string(l.Layout)
}
