package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"belady/internal/core/perf"
	"belady/internal/store/probe"
	"belady/internal/store/vfs"
)

func newBenchCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what this node can do",
		Args:  refuseUnknownVerb,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchTiersCommand(env))
	return cmd
}

// tierRates is what was measured of one directory.
type tierRates struct {
	Dir   string     `json:"dir"`
	Rates perf.Rates `json:"rates"`
}

func newBenchTiersCommand(env *environment) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "tiers [DIR...]",
		Short: "Measure the disks that --ssd would use, as the layout auto does",
		Long: "Write a file of some hundred MB into each directory, read it past the page cache at " +
			"random and in sequence, read and write at once, and remove it. Without a directory, that " +
			"of Belady's own data is measured. What else uses the disk meanwhile lowers the figures.",
		RunE: func(_ *cobra.Command, dirs []string) error {
			if len(dirs) == 0 {
				dirs = []string{env.Dir}
			}
			var all []tierRates
			for _, dir := range dirs {
				rates, err := ratesOf(dir)
				if err != nil {
					return fmt.Errorf("measure %s: %w", dir, err)
				}
				all = append(all, tierRates{dir, rates})
			}
			if asJSON {
				return printJSON(env.Out, all)
			}
			return printTiers(env, all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func ratesOf(dir string) (perf.Rates, error) {
	fs, err := vfs.Dir(dir)
	if err != nil {
		return perf.Rates{}, err
	}
	defer fs.Close()
	return probe.Rates(fs, []int{4 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20})
}

func printTiers(env *environment, all []tierRates) error {
	t := tabwriter.NewWriter(env.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DIR\tPATTERN\tRATE\tREADS/S")
	rate := func(bytes int64) string { return humanize.Bytes(uint64(bytes)) + "/s" }
	for _, d := range all {
		for _, p := range d.Rates.Random {
			fmt.Fprintf(t, "%s\trandom reads of %s\t%s\t%d\n", printable(d.Dir),
				humanize.IBytes(uint64(p.Size)), rate(p.BytesPerS), p.BytesPerS/int64(p.Size))
		}
		fmt.Fprintf(t, "%s\treads in sequence\t%s\t\n", printable(d.Dir), rate(d.Rates.Read))
		fmt.Fprintf(t, "%s\treads and writes at once, together\t%s\t\n", printable(d.Dir),
			rate(d.Rates.Mixed))
	}
	return t.Flush()
}
