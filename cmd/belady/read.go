package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/policy"
	"belady/internal/node/daemon"
	"belady/internal/node/wire"
	"belady/internal/progress"
	"belady/internal/store/origin/throttle"
)

// readOptions are the flags of `belady read`.
type readOptions struct {
	order    order.Spec
	epochs   int
	rank     int
	compute  float64 // milliseconds a batch
	policy   string
	packed   bool
	noTouch  bool
	depth    int
	rate     string // of the origin, for the roofline
	asJSON   bool
	job      string
	datasets []wire.Dataset
}

func newReadCommand(env *environment) *cobra.Command {
	var o readOptions
	cmd := &cobra.Command{
		Use:   "read DATASET[=WEIGHT]...",
		Short: "Read a dataset through the daemon as a training loop would",
		Long: "Read datasets through the running daemon in the order of a seed, batch by batch, " +
			"as a training loop would: take a lease, compute, release. Prints epoch times, what " +
			"was waited for, where bytes came from, and the distance to the roofline.",
		Args: cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&o.order.Kind, "kind", order.Distributed, "order: "+strings.Join(order.Names(), ", "))
	f.Int64Var(&o.order.Seed, "seed", 0, "seed of the order")
	f.IntVar(&o.epochs, "epochs", 2, "epochs to read")
	f.IntVar(&o.order.Batch, "batch", 64, "samples a batch")
	f.IntVar(&o.rank, "rank", 0, "this process's rank")
	f.IntVar(&o.order.World, "world", 1, "number of ranks")
	f.BoolVar(&o.order.DropLast, "drop-last", false, "leave out a last, short batch")
	f.StringVar(&o.order.Torch, "torch", "", "PyTorch version whose rules hold (default newest)")
	f.Float64Var(&o.compute, "compute", 0, "milliseconds of emulated compute a batch")
	f.StringVar(&o.policy, "policy", "", "policy of the kept set (default by the order)")
	f.BoolVar(&o.packed, "packed", false, "ask for packed batches")
	f.BoolVar(&o.noTouch, "no-touch", false, "do not read the samples' bytes")
	f.IntVar(&o.depth, "depth", 0, "batches to take ahead (default 4)")
	f.StringVar(&o.rate, "origin-rate", "", "bytes a second of the origin, for the roofline")
	f.StringVar(&o.job, "job", "read", "the job's name, which all its ranks share")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			d, err := parseMember(arg)
			if err != nil {
				return err
			}
			o.datasets = append(o.datasets, d)
		}
		if err := o.check(); err != nil {
			return err
		}
		err := read(cmd.Context(), env, &o)
		if cmd.Context().Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	return cmd
}

// parseMember reads NAME or NAME=WEIGHT.
func parseMember(arg string) (wire.Dataset, error) {
	name, weight, has := strings.Cut(arg, "=")
	d := wire.Dataset{Name: name, Weight: 1}
	if has {
		w, err := strconv.ParseFloat(weight, 64)
		if err != nil || !(w > 0) || math.IsInf(w, 0) {
			return d, usagef("weight %q of %s is not a positive number", weight, name)
		}
		d.Weight = w
	}
	return d, nil
}

// check refuses what can be seen to be wrong without a daemon.
func (o *readOptions) check() error {
	if err := checkWorld(o.order.World); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, d := range o.datasets {
		if names[d.Name] {
			return usagef("%s is named twice: name each dataset once", d.Name)
		}
		names[d.Name] = true
		if d.Weight != 1 && o.order.Kind != order.Weighted {
			return usagef("%s has a weight, but only --kind %s draws by weights", d.Name, order.Weighted)
		}
	}
	switch {
	case o.rank < 0 || o.rank >= o.order.World:
		return usagef("rank %d is not in a world of %d: ranks are 0 to %d", o.rank, o.order.World,
			o.order.World-1)
	case o.order.Kind == order.Explicit:
		return usagef("an explicit order is sent by a program: read it through a client of your own")
	case !slices.Contains(order.Names(), o.order.Kind):
		return usagef("order kind %q is unknown: use one of %s", o.order.Kind,
			strings.Join(order.Names(), ", "))
	case o.order.Batch < 1:
		return usagef("batch is %d: it must be at least 1", o.order.Batch)
	case o.epochs < 1:
		return usagef("epochs is %d: it must be at least 1", o.epochs)
	case o.compute < 0 || o.depth < 0 || o.depth > wire.MaxCredit:
		return usagef("compute is %g ms and depth %d: give 0 or more, and a depth of at most %d",
			o.compute, o.depth, wire.MaxCredit)
	}
	if o.policy == "" {
		return nil
	}
	if _, err := policy.Find(o.policy); err != nil {
		return usageError{err}
	}
	return nil
}

func read(ctx context.Context, env *environment, o *readOptions) error {
	rate, err := o.originRate(env)
	if err != nil {
		return err
	}
	l := &loop{options: o, errOut: env.Err, rate: rate}
	c, err := client.Dial(ctx, client.Config{Socket: env.Socket, Depth: o.depth, Name: "belady read",
		Away: l.away})
	if err != nil {
		return err
	}
	before, err := o.status(ctx, c)
	if err != nil {
		return err
	}
	s, err := c.Open(ctx, wire.Attach{Job: o.job, Datasets: o.datasets, Order: o.order,
		Epochs: o.epochs, Rank: o.rank, Policy: o.policy, Packed: o.packed})
	if err != nil {
		return err
	}
	defer s.Close()
	l.client, l.session = c, s
	l.fetched, l.ssd = before.ReadBytes()
	l.held = heldBytes(before)
	l.report = readReport{Samples: s.Info().Samples, World: o.order.World}
	if err := l.run(ctx); err != nil {
		return err
	}
	if o.asJSON {
		return printJSON(env.Out, &l.report)
	}
	l.report.print(env.Out)
	return nil
}

// originRate is what --origin-rate says, or what a throttled origin's own URL does.
func (o *readOptions) originRate(env *environment) (int64, error) {
	if o.rate != "" {
		rate, err := parseBytes(o.rate)
		if err != nil {
			return 0, usagef("--origin-rate: %w", err)
		}
		return rate, nil
	}
	if len(o.datasets) > 1 {
		return 0, nil
	}
	info, err := env.catalog().Show(o.datasets[0].Name)
	if err != nil || !strings.HasPrefix(info.URL, "throttle+") {
		return 0, nil //nolint:nilerr // the daemon says it better if the dataset is unknown
	}
	u, err := url.Parse(info.URL)
	if err != nil {
		return 0, nil //nolint:nilerr // no rate is known, and none is needed to read
	}
	_, cfg, err := throttle.ParseURL(u)
	if err != nil {
		return 0, nil //nolint:nilerr // as above
	}
	return cfg.RateBytes, nil
}

// loop is the emulated training loop.
type loop struct {
	options *readOptions
	client  *client.Client
	session *client.Session
	errOut  io.Writer
	rate    int64
	report  readReport
	bar     progress.Bar // while the loop runs

	before  client.Stats
	fetched int64
	ssd     int64
	held    int64  // kept when the reading began
	sum     uint64 // of the bytes read, so that reading them is not optimised away
}

func (l *loop) run(ctx context.Context) error {
	total := int64(l.options.epochs) * int64(l.session.Info().Batches)
	bar := progress.New(l.errOut, "reading", total, "batches")
	defer bar.Done()
	l.bar = bar
	var e *epochReport
	for n := int64(0); ; n++ {
		asked := time.Now()
		b, err := l.session.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if e == nil {
			l.report.Epochs = append(l.report.Epochs, epochReport{Epoch: int(b.Epoch), Start: asked})
			e = &l.report.Epochs[len(l.report.Epochs)-1]
		}
		l.compute(e, b)
		last := b.Last
		b.Release()
		if last {
			l.endEpoch(ctx, e)
			e = nil
		}
		bar.Set(n + 1)
	}
}

// away says what a bar that stands still waits for.
func (l *loop) away(back bool) {
	if back {
		l.bar.Message("the daemon is back: reading on at the same batch")
		return
	}
	l.bar.Message("the daemon went away: reconnecting")
}

// compute stands for a training step: it reads every byte, then waits out the step's time.
func (l *loop) compute(e *epochReport, b *client.Batch) {
	begun := time.Now()
	if !l.options.noTouch {
		for i := range b.Len() {
			l.sum += client.Touch(b.Bytes(i))
		}
	}
	e.Batches++
	e.Samples += int64(b.Len())
	e.Bytes += b.Size()
	step := time.Duration(l.options.compute * float64(time.Millisecond))
	if rest := step - time.Since(begun); rest > 0 {
		time.Sleep(rest)
	}
	e.Compute += time.Since(begun)
}

// endEpoch takes stock. What the daemon counted is unknown if it is away or was started anew; the
// reading goes on all the same.
func (l *loop) endEpoch(ctx context.Context, e *epochReport) {
	e.End = time.Now()
	now := l.session.Stats()
	for i := range now.Stall {
		e.Stall[i] = now.Stall[i] - l.before.Stall[i]
	}
	e.First = now.First - l.before.First
	e.Away = now.Away - l.before.Away
	l.before = now
	status, err := l.options.status(ctx, l.client)
	fetched, ssd := status.ReadBytes()
	e.OriginKnown = err == nil && now.Reconnects == 0 && fetched >= l.fetched
	if e.OriginKnown {
		e.OriginBytes, e.SsdBytes = fetched-l.fetched, max(0, ssd-l.ssd)
	}
	l.fetched, l.ssd = fetched, ssd
	l.roofline(e, status)
}

// heldBytes is what need not be read from the origin. Memory and ssd share no sample while they
// cannot hold all of them.
func heldBytes(s worldStatus) int64 {
	if s.Ssd == nil {
		return s.Pump.KeptBytes
	}
	if s.SsdKeep >= s.Bytes {
		return max(s.Pump.KeptBytes, s.Ssd.Used)
	}
	return s.Pump.KeptBytes + s.Ssd.Used
}

// roofline is the least an epoch can take: the computing, or the bytes that no memory and no ssd of
// this size can hold, at the origin's rate.
func (l *loop) roofline(e *epochReport, s worldStatus) {
	e.MinOriginBytes = max(0, s.Bytes-s.Keep-s.SsdKeep)
	if len(l.report.Epochs) == 1 {
		e.MinOriginBytes = max(0, s.Bytes-l.held)
	}
	if l.options.compute > 0 || l.rate > 0 {
		e.Roofline = e.Compute
	}
	if l.rate > 0 {
		origin := time.Duration(float64(e.MinOriginBytes) / float64(l.rate) * 1e9)
		e.Roofline = max(e.Roofline, origin)
	}
	e.RateKnown = l.rate > 0
}

// status asks the daemon about the datasets being read; the answer is empty while it has not
// opened them.
func (o *readOptions) status(ctx context.Context, c *client.Client) (worldStatus, error) {
	raw, err := c.Status(ctx)
	if err != nil {
		return worldStatus{}, err
	}
	var s daemon.Status
	if err := json.Unmarshal(raw, &s); err != nil {
		return worldStatus{}, fmt.Errorf("read the daemon's status: %w", err)
	}
	var names []string
	for _, d := range o.datasets {
		names = append(names, d.Name)
	}
	name := strings.Join(names, "+")
	for _, d := range s.Datasets {
		if d.Dataset == name {
			return d, nil
		}
	}
	return worldStatus{}, nil
}
