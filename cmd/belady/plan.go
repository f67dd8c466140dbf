package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"belady/internal/profile"
	"belady/internal/prospect"
)

func newPlanCommand(env *environment) *cobra.Command {
	var q prospect.Question
	var rates string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan [DATASET…]",
		Short: "Say what would be kept where, before any run",
		Long: "Make the plan that a daemon would make for a job: what it would keep in ram and on\n" +
			"ssd, what the origin must send in each epoch, how long an epoch takes at the least, and\n" +
			"what binds it. Nothing is read but the manifest and the profile, and no memory is taken.\n" +
			"Sizes are those of datasets that were added, joined if several, or of --samples and\n" +
			"--size. Times need a profile: 'belady bench tiers' measures one, and one written by\n" +
			"hand may describe hardware that is not there yet.",
		Example: "  belady plan imagenet --epochs 90 --world 8 --ram 40GB --ssd 80GB --compute 180ms\n" +
			"  belady plan --samples 14200000 --size 110KB --world 32 --nodes 4 --ram 200GB",
		Args: cobra.ArbitraryArgs,
	}
	q.Register(cmd.Flags())
	cmd.Flags().StringVar(&rates, "profile", "",
		"file of rates (default the settings', or "+profile.Name+" in --dir if it is there)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, names []string) (err error) {
		q.Has = prospect.Node{RAM: int64(env.Settings.RAM), Staging: int64(env.Settings.Staging)}
		for _, d := range env.Settings.Ssd.Dirs {
			if d.Bytes == 0 && q.Ssd == "" {
				return usagef("the settings do not say how much %s may hold: give --ssd", d.Path)
			}
			q.Has.Ssd += int64(d.Bytes)
		}
		if q.Rates, err = env.profile(rates); err != nil {
			return err
		}
		if len(names) > 0 {
			set, closeAll, failed := env.catalog().OpenSet(names)
			if failed != nil {
				return failed
			}
			defer func() { err = errors.Join(err, closeAll()) }()
			q.Dataset = prospect.Dataset{Name: strings.Join(names, "+"), Content: set.ID(), Sizes: set}
		}
		report, err := q.Answer(cmd.Context(), env.Err)
		switch {
		case errors.As(err, new(prospect.WrongError)):
			return usageError{err}
		case err != nil:
			return err
		case asJSON:
			return printJSON(env.Out, report)
		}
		return report.Print(env.Out)
	}
	return cmd
}
