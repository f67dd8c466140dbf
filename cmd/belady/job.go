package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"belady/internal/core/order"
	"belady/internal/core/receipt"
	"belady/internal/store/jobs"
)

func newJobCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "List jobs, and prove what was delivered to them",
		Long: "A job is a training run, under the name its ranks give. The daemon records digests of\n" +
			"what it delivers to each rank; verify computes the order again and compares.\n" +
			"Both verbs read that record, whether a daemon runs or not.",
		Args: refuseUnknownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	asJSON := cmd.PersistentFlags().Bool("json", false, "print JSON")
	cmd.AddCommand(newJobListCommand(env, asJSON), newJobVerifyCommand(env, asJSON))
	return cmd
}

// jobSummary is a line of `job ls`.
type jobSummary struct {
	ID       string    `json:"id"`
	Job      string    `json:"job"`
	Datasets []string  `json:"datasets"`
	Orders   []string  `json:"orders"`
	World    int       `json:"world"`
	Epochs   int       `json:"epochs"` // that some rank was sent to the end
	Drifts   int       `json:"drifts"`
	Written  time.Time `json:"written"`
}

func newJobListCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the jobs that are recorded, the newest last",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			store := jobs.New(env.Dir)
			ids, err := store.IDs()
			if err != nil {
				return err
			}
			all := []jobSummary{}
			for _, id := range ids {
				log, err := store.Read(id)
				if errors.Is(err, jobs.ErrUnknown) {
					continue // it went while they were listed
				}
				if err != nil {
					return err
				}
				all = append(all, summarize(log))
			}
			if *asJSON {
				return printJSON(env.Out, all)
			}
			return printJobs(env.Out, all)
		},
	}
}

func summarize(log *jobs.Log) jobSummary {
	s := jobSummary{ID: log.ID, Datasets: []string{}, Orders: []string{}}
	epochs := map[int]bool{}
	add := func(list *[]string, name string) {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	for i := range log.Records {
		r := &log.Records[i]
		s.Job, s.Written = r.Job, r.Time
		s.World = max(s.World, r.Order.Ranks())
		for _, m := range r.Members {
			add(&s.Datasets, m.Name)
		}
		if r.Order.Kind != "" {
			add(&s.Orders, r.Order.Kind)
		}
		if r.Whole {
			epochs[r.Epoch] = true
		}
		if r.Kind == jobs.Drift {
			s.Drifts++
		}
	}
	s.Epochs = len(epochs)
	return s
}

func printJobs(w io.Writer, all []jobSummary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(all) > 0 {
		fmt.Fprintln(t, "JOB\tDATASETS\tORDER\tWORLD\tEPOCHS\tDRIFTS\tLAST")
	}
	for _, s := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", s.ID, strings.Join(s.Datasets, "+"),
			strings.Join(s.Orders, ","), s.World, s.Epochs, s.Drifts,
			s.Written.Local().Format(time.DateTime))
	}
	return t.Flush()
}

func newJobVerifyCommand(env *environment, asJSON *bool) *cobra.Command {
	epoch := -1
	cmd := &cobra.Command{
		Use:   "verify ID",
		Short: "Prove that what was delivered is what the job's order gives",
		Long: "Compute the job's order again, and compare it with the recorded digests of what each\n" +
			"rank was sent. Exits with 1 if anything differs, and names the first batch that does.\n" +
			"Ranks that the record has nothing of are not proven: then an epoch is ok so far.\n" +
			"Padding is what was delivered once more because an epoch does not divide by its ranks.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("epoch") && (epoch < 0 || epoch > order.MaxEpoch) {
				return usagef("--epoch is %d: epochs are 0 to %d", epoch, order.MaxEpoch)
			}
			log, err := jobs.New(env.Dir).Read(args[0])
			if err != nil {
				return err
			}
			v, err := verifyJob(log, epoch)
			if err != nil {
				return fmt.Errorf("job %s: %w", log.ID, err)
			}
			if *asJSON {
				err = printJSON(env.Out, v)
			} else {
				v.print(env.Out)
			}
			return errors.Join(err, v.verdict())
		},
	}
	cmd.Flags().IntVar(&epoch, "epoch", -1, "prove this epoch only (default all that are recorded)")
	return cmd
}

// verification is what `job verify` found.
type verification struct {
	ID       string          `json:"id"`
	OK       bool            `json:"ok"`
	Complete bool            `json:"complete"` // every begun epoch was sent to all of its ranks, whole
	Epochs   []receipt.Epoch `json:"epochs"`
	Explicit int             `json:"explicit_sessions"` // of orders that clients sent themselves
	Drifts   []string        `json:"drifts"`
	Damaged  []string        `json:"damaged"`
	Job      string          `json:"job"`
}

// verifyJob proves what a record claims; of one epoch if it is not negative.
func verifyJob(log *jobs.Log, epoch int) (*verification, error) {
	v := &verification{ID: log.ID, Drifts: []string{}, Damaged: log.Damaged}
	var accounts []receipt.Account
	for i := range log.Records {
		r := &log.Records[i]
		v.Job = r.Job
		switch {
		case r.Kind == jobs.Drift && (epoch < 0 || r.Epoch == epoch):
			v.Drifts = append(v.Drifts, fmt.Sprintf("rank %d computed another order from batch %d "+
				"of epoch %d on", r.Rank, r.Batch, r.Epoch))
		case r.Kind == jobs.Drift:
		case r.Order.Known():
			accounts = append(accounts, r.Account)
		default:
			v.Explicit++
		}
	}
	var err error
	if v.Epochs, err = receipt.ProveAll(accounts, epoch); err != nil {
		return nil, err
	}
	if epoch >= 0 && len(v.Epochs) == 0 {
		return nil, fmt.Errorf("nothing is recorded of epoch %d", epoch)
	}
	v.Complete = len(v.Epochs) > 0 && !slices.ContainsFunc(v.Epochs, func(e receipt.Epoch) bool {
		return e.Begun && (!e.Whole() || !allRanks(&e))
	})
	v.OK = len(v.Drifts) == 0 && len(v.Damaged) == 0 &&
		!slices.ContainsFunc(v.Epochs, func(e receipt.Epoch) bool { return e.Wrong() })
	return v, nil
}

// allRanks says whether the record has something of every rank of an epoch.
func allRanks(e *receipt.Epoch) bool { return len(e.Ranks) == e.Reading.Order.Ranks() }

func (v *verification) print(w io.Writer) {
	for i := range v.Epochs {
		printEpoch(w, &v.Epochs[i])
	}
	if slices.ContainsFunc(v.Epochs, func(e receipt.Epoch) bool { return !allRanks(&e) }) {
		fmt.Fprintln(w, "only the ranks counted above are proven: of the others nothing is recorded "+
			"here; they read nothing yet, or from another node's daemon")
	}
	if v.Explicit > 0 {
		fmt.Fprintf(w, "%d sessions read orders that their client sent: those cannot be computed "+
			"again\n", v.Explicit)
	}
	for _, d := range v.Drifts {
		fmt.Fprintf(w, "WRONG: %s\n", d)
	}
	for _, d := range v.Damaged {
		fmt.Fprintf(w, "WRONG: the record is damaged at %s\n", d)
	}
}

func printEpoch(w io.Writer, e *receipt.Epoch) {
	name := fmt.Sprintf("epoch %d", e.Number)
	if e.Position > 0 {
		name += fmt.Sprintf(" from position %d", e.Position)
	}
	batches, short := 0, ""
	for _, r := range e.Ranks {
		batches += r.Sent
		if r.Wrong != "" {
			fmt.Fprintf(w, "%s: WRONG: rank %d: %s\n", name, r.Rank, r.Wrong)
		}
		if r.Sent < r.Due && short == "" {
			short = fmt.Sprintf("rank %d was sent %d of %d batches", r.Rank, r.Sent, r.Due)
		}
	}
	ranks := fmt.Sprintf("%d of %d ranks, %d batches; padding: %s", len(e.Ranks),
		e.Reading.Order.Ranks(), batches, paddingText(e.Padding))
	switch {
	case e.Wrong():
	case e.Whole() && allRanks(e):
		fmt.Fprintf(w, "%s: ok: %s\n", name, ranks)
	case e.Whole():
		fmt.Fprintf(w, "%s: ok so far: %s\n", name, ranks)
	case !e.Begun:
		fmt.Fprintf(w, "%s: not begun: %s, ahead of its loop; what was sent is ok: %s\n", name, short,
			ranks)
	default:
		fmt.Fprintf(w, "%s: unfinished: %s; what was sent is ok: %s\n", name, short, ranks)
	}
}

// paddingShown is how many padding entries are named for people.
const paddingShown = 8

func paddingText(all []receipt.Padding) string {
	if len(all) == 0 {
		return "none"
	}
	var named []string
	for _, p := range all[:min(len(all), paddingShown)] {
		named = append(named, fmt.Sprintf("sample %d (rank %d)", p.Sample, p.Rank))
	}
	text := strings.Join(named, ", ")
	if more := len(all) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more (--json has all)", more)
	}
	return text
}

func (v *verification) verdict() error {
	if v.OK {
		return nil
	}
	return fmt.Errorf("job %s was not delivered as its order says, or its record is damaged", v.ID)
}
