package prospect

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"belady/internal/core/plan"
)

func bytesOf(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

// plural is a number and what is counted.
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return humanize.Comma(int64(n)) + " " + what
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// Print writes it for people.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "dataset %s: %s, %s; %s, %s", r.Dataset, plural(r.Samples, "sample"),
		bytesOf(r.Bytes), plural(r.Epochs, "epoch"), plural(r.World, "rank"))
	if r.Nodes > 1 {
		fmt.Fprintf(out, ", %d nodes", r.Nodes)
	}
	fmt.Fprintf(out, ", policy %s\n\n", r.Policy)
	if err := r.printTiers(out); err != nil {
		return err
	}
	least := ""
	if !r.Exact {
		least = "at least "
	}
	fmt.Fprintf(out, "\nstaging  %s of each node's memory\n", bytesOf(r.Staging))
	fmt.Fprintf(out, "origin   sends %s in the first epoch", bytesOf(r.Origin.First))
	if r.Epochs > 1 {
		fmt.Fprintf(out, ", then %s%s in each: %s in all", least, bytesOf(r.Origin.Later),
			bytesOf(r.Origin.All))
	}
	fmt.Fprintf(out, "\nuses     %s\n", r.Uses.sentence(r.Nodes))
	r.First.print(out, "first")
	if r.Epochs > 1 {
		r.Later.print(out, "epoch")
	}
	fmt.Fprintf(out, "digest   %.16s\n", r.Digest)
	for _, n := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", n)
	}
	return nil
}

func (r *Report) printTiers(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "tier\tsamples\tbytes\tshare\tread in an epoch\t"
	if r.Nodes > 1 {
		head = "tier\tsamples\tbytes\tshare\tread at home\tby peers\t"
	}
	fmt.Fprintln(t, head)
	row := func(tier, samples string, bytes int64, share float64, read ...int64) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f %%\t", tier, samples, bytesOf(bytes), 100*share)
		for _, n := range read {
			fmt.Fprintf(t, "%s\t", bytesOf(n))
		}
		if len(read) == 1 && r.Nodes > 1 {
			fmt.Fprint(t, "\t")
		}
		fmt.Fprintln(t)
	}
	for i, one := range r.Tiers {
		samples, read := humanize.Comma(int64(one.Samples)), []int64{one.Home}
		if !r.Exact && i == int(plan.Ram) {
			samples = "–" // which ones changes
		}
		if r.Nodes > 1 {
			read = append(read, one.Peers)
		}
		row(one.Tier, samples, one.Bytes, one.Share, read...)
	}
	o := r.Origin
	row("origin", humanize.Comma(int64(o.Samples)), o.Later, o.Share, o.Later)
	return t.Flush()
}

// sentence says how often samples are read.
func (u *Uses) sentence(nodes int) string {
	who := "the node"
	if nodes > 1 {
		who = "a node"
	}
	if u.Least == u.Most {
		return fmt.Sprintf("%s reads each sample %s in %s", who, plural(u.Most, "time"),
			plural(u.Epochs, "epoch"))
	}
	text := fmt.Sprintf("%s reads a sample %d to %d times in %s, %.3g on average", who, u.Least,
		u.Most, plural(u.Epochs, "epoch"), u.Mean)
	if u.Expected > 0 {
		text += fmt.Sprintf("; node 0 reads %s more than %s (by chance %s)",
			humanize.Comma(int64(u.Counted)), plural(u.Above, "time"),
			humanize.Comma(int64(u.Expected+0.5)))
	}
	return text
}

func (e *Epoch) print(out io.Writer, name string) {
	if e == nil {
		return
	}
	var parts []string
	for _, b := range e.all {
		if b.Ns > 0 {
			parts = append(parts, b.Binding+" "+seconds(time.Duration(b.Ns)))
		}
	}
	if len(parts) == 0 {
		fmt.Fprintf(out, "%-7s  takes no time that the profile or --compute knows of\n", name)
		return
	}
	is := "≥"
	if e.Estimate {
		is = "≈"
	}
	fmt.Fprintf(out, "%-7s  %s %s, bound by %s; stall %s %s (%s)\n", name, is, seconds(e.Time),
		e.Binding, is, seconds(e.Stall), strings.Join(parts, ", "))
}
