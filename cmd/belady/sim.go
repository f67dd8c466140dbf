package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/profile"
	"belady/internal/sim"
)

// simFlags are the verb's flags: a scenario, or a trace to replay.
type simFlags struct {
	spec                     order.Spec
	size, ram, staging, rate string
	epochs, concurrency      int
	policies                 []string
	latency, compute         time.Duration
	ssd                      ssdFlags
	replay, profile, plot    string
	json                     bool
}

// ssdFlags describe a log and the device under it.
type ssdFlags struct {
	bytes, rate, writeRate string
	latency                time.Duration
	depth                  int
	layout                 string
}

func newSimCommand(env *environment) *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "sim [SCENARIO.yaml]",
		Short: "Simulate a training job or a scenario, or replay a recorded job",
		Long: "Run the daemon's own decisions in virtual time: how long epochs take, what ranks wait\n" +
			"for and what the origin must send, for each policy, beside the roofline that none can\n" +
			"beat. Policies: " + strings.Join(policy.Names(), ", ") + ".\n\n" +
			"With a file, run the scenario in it, a cluster or one node, and print the published\n" +
			"numbers it names beside ours; where one is farther off than it may be, that row is\n" +
			"MISSED and the verb fails. --policy then chooses among its rows.\n\n" +
			"With --replay, feed a trace recorded by 'belady serve --trace' to a fresh pump and\n" +
			"check that it decides the same. If there is a profile, simulate the recorded run over its\n" +
			"sources too, and print what was predicted beside what was measured.",
		Example: "  belady sim --samples 1281167 --size 110KB --ram 70GB --world 8 --batch 256 \\\n" +
			"    --rate 1GB --latency 30ms --compute 180ms --policy spread,belady,lru\n" +
			"  belady sim --samples 1281167 --size 110KB --ram 20GB --ssd 70GB\n" +
			"  belady sim scenarios/nopfs-thesis-s3.yaml --plot s3.svg\n" +
			"  belady sim --replay traces/imagenet.trace --profile profile.yaml",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return f.simulateFile(cmd, env, args[0])
			}
			if f.plot != "" {
				return usagef("--plot draws a scenario's results: give its file")
			}
			if f.replay != "" {
				if flag := otherFlag(cmd, ofReplays); flag != "" {
					return usagef("--%s and --replay: the trace says all of it", flag)
				}
				return f.runReplay(env)
			}
			return f.simulate(cmd, env.Out)
		},
	}
	f.register(cmd)
	return cmd
}

// ofScenarios are the flags that go with a scenario's file, ofReplays those that go with a trace;
// the others describe what these describe.
var (
	ofScenarios = map[string]bool{"policy": true, "json": true, "plot": true, "seed": true}
	ofReplays   = map[string]bool{"replay": true, "profile": true, "json": true}
)

// otherFlag is one that was given and does not go with the rest, if there is any.
func otherFlag(cmd *cobra.Command, fitting map[string]bool) (other string) {
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && !fitting[flag.Name] {
			other = flag.Name
		}
	})
	return other
}

func (f *simFlags) register(cmd *cobra.Command) {
	s, flags := &f.spec, cmd.Flags()
	flags.StringVar(&s.Kind, "kind", order.Distributed, "which order, as in 'belady order'")
	flags.IntVar(&s.Samples, "samples", 100_000, "samples in the dataset")
	flags.StringVar(&f.size, "size", "110KB", "size of a sample")
	flags.IntVar(&s.Batch, "batch", 256, "samples in a rank's batch")
	flags.IntVar(&s.World, "world", 1, "ranks on the node")
	flags.IntVar(&f.epochs, "epochs", 4, "epochs to run")
	flags.Int64Var(&s.Seed, "seed", 0, "the sampler's seed")
	flags.StringVar(&f.ram, "ram", "4GiB", "memory for samples, kept and on their way")
	flags.StringVar(&f.staging, "staging", "512MiB", "the part of --ram for batches on their way")
	flags.StringSliceVar(&f.policies, "policy", nil,
		"policies to compare (default the one a job of this order gets)")
	flags.StringVar(&f.rate, "rate", "1GB", "bytes the origin sends in a second")
	flags.DurationVar(&f.latency, "latency", 30*time.Millisecond, "latency of a request")
	flags.IntVar(&f.concurrency, "concurrency", 64, "most requests to the origin at once")
	flags.DurationVar(&f.compute, "compute", 100*time.Millisecond, "a batch's compute time")
	flags.StringVar(&f.ssd.bytes, "ssd", "0B", "bytes of the log on ssd (default none)")
	flags.StringVar(&f.ssd.rate, "ssd-rate", "3GB", "bytes the ssd reads in a second")
	flags.StringVar(&f.ssd.writeRate, "ssd-write-rate", "1GB", "bytes the ssd writes in a second")
	flags.DurationVar(&f.ssd.latency, "ssd-latency", 100*time.Microsecond, "latency of its reads")
	flags.IntVar(&f.ssd.depth, "ssd-depth", 32, "most reads from it at once")
	flags.StringVar(&f.ssd.layout, "ssd-layout", string(perf.Static),
		"static: written once; carry: written anew in every epoch")
	flags.StringVar(&f.replay, "replay", "", "trace to replay, in place of all the above")
	flags.StringVar(&f.profile, "profile", "", "profile to predict with what --replay "+
		"has measured (default the settings', or "+profile.Name+" in --dir if it is there)")
	flags.StringVar(&f.plot, "plot", "", "draw the results of a scenario's file as SVG, to here")
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

// evenSizes is a dataset of samples of one size.
type evenSizes struct {
	n    int
	size uint32
}

func (s evenSizes) Len() int              { return s.n }
func (s evenSizes) Size(sample.ID) uint32 { return s.size }

// simReport is one policy's result.
type simReport struct {
	Policy string     `json:"policy"`
	Epochs []simEpoch `json:"epochs"`
	// Mean is the time of an epoch after the first, Roofline what no policy can beat.
	Mean           time.Duration `json:"mean_epoch_ns"`
	Roofline       time.Duration `json:"roofline_ns"`
	Ratio          float64       `json:"times_roofline"`
	Binding        string        `json:"binding"` // the resource that Roofline is of
	MinOriginBytes int64         `json:"min_origin_bytes"`
	MinSsdBytes    int64         `json:"min_ssd_bytes"`
}

type simEpoch struct {
	Epoch       int                      `json:"epoch"`
	Time        time.Duration            `json:"time_ns"`
	Stall       map[string]time.Duration `json:"stall_ns"` // of a rank, on average
	OriginBytes int64                    `json:"origin_bytes"`
	SsdBytes    int64                    `json:"ssd_bytes"`
	LogBytes    int64                    `json:"log_bytes"`
}

func (f *simFlags) simulate(cmd *cobra.Command, w io.Writer) error {
	if f.profile != "" {
		return usagef("--profile goes with --replay: here rates are flags of their own")
	}
	s, err := f.scenario()
	if err != nil {
		return err
	}
	names := f.policies
	if len(names) == 0 {
		names = []string{policy.Default(f.spec.Repeats())}
	}
	in := s.Plan.Input
	var reports []simReport
	for _, name := range names {
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		in.Policy = name
		if s.Plan, err = plan.Make(in); err != nil {
			return usageError{err}
		}
		report, err := simulateOne(s)
		if err != nil {
			return fmt.Errorf("simulate %s: %w", name, err)
		}
		reports = append(reports, report)
	}
	if f.json {
		return printJSON(w, reports)
	}
	return printSim(w, reports)
}

// scenario builds what the flags describe; its plan has the first policy's place.
func (f *simFlags) scenario() (sim.Scenario, error) {
	var size, ram, staging, rate int64
	if err := parseSizes([]sizeFlag{{"size", f.size, &size}, {"ram", f.ram, &ram},
		{"staging", f.staging, &staging}, {"rate", f.rate, &rate}}); err != nil {
		return sim.Scenario{}, err
	}
	if staging > ram {
		return sim.Scenario{}, usagef("--staging (%s) is a part of --ram (%s) and cannot be more",
			f.staging, f.ram)
	}
	if f.latency < 0 || f.compute < 0 {
		return sim.Scenario{}, usagef("latency %v and compute %v: neither can be negative",
			f.latency, f.compute)
	}
	if rate < 1 || f.concurrency < 1 {
		return sim.Scenario{}, usagef("rate %s and concurrency %d: an origin sends at least a byte a "+
			"second, and takes at least one request", f.rate, f.concurrency)
	}
	if err := checkWorld(f.spec.World); err != nil {
		return sim.Scenario{}, err
	}
	if size < 1 || size > sample.MaxSize {
		return sim.Scenario{}, usagef("--size: %s is no size of a sample: give 1 to %d bytes", f.size,
			int64(sample.MaxSize))
	}
	if err := f.spec.Validate(); err != nil {
		return sim.Scenario{}, usageError{err}
	}
	if kind := f.spec.Kind; kind == order.Explicit || kind == order.Weighted {
		return sim.Scenario{}, usagef("--kind %s cannot be simulated: its samples or their weights "+
			"are a program's own; choose another --kind", kind)
	}
	log, device, err := f.ssd.device()
	if err != nil {
		return sim.Scenario{}, err
	}
	p, err := plan.Make(plan.Input{Sizes: evenSizes{f.spec.Samples, uint32(size)},
		Seed: uint64(f.spec.Seed), Policy: policy.Default(f.spec.Repeats()), Keep: ram - staging,
		Staging: staging, Log: log, Carry: f.ssd.layout == string(perf.Carry)})
	if err != nil {
		return sim.Scenario{}, usageError{err}
	}
	s := sim.Scenario{Plan: p, Compute: pump.Instant(f.compute), Ssd: device,
		Origin: sim.Origin{Rate: rate, Latency: pump.Instant(f.latency),
			Concurrency: f.concurrency}}
	for rank := range f.spec.Ranks() {
		r := job.Reading{Order: f.spec, Epochs: f.epochs, Rank: rank}
		if err := r.Validate(); err != nil {
			return sim.Scenario{}, usageError{err}
		}
		s.Readings = append(s.Readings, r)
	}
	return s, nil
}

// sizeFlag is a flag whose text is a number of bytes.
type sizeFlag struct {
	flag, text string
	into       *int64
}

func parseSizes(all []sizeFlag) error {
	for _, v := range all {
		n, err := parseBytes(v.text)
		if err != nil {
			return usagef("--%s: %w", v.flag, err)
		}
		*v.into = n
	}
	return nil
}

// device is the log's bytes and what they lie on.
func (f *ssdFlags) device() (log int64, d sim.Device, err error) {
	if err = parseSizes([]sizeFlag{{"ssd", f.bytes, &log}, {"ssd-rate", f.rate, &d.ReadRate},
		{"ssd-write-rate", f.writeRate, &d.WriteRate}}); err != nil {
		return 0, d, err
	}
	d.Latency, d.Depth = pump.Instant(f.latency), f.depth
	if d.ReadRate < 1 || d.WriteRate < 1 || d.Depth < 1 || d.Latency < 0 {
		return 0, d, usagef("--ssd-rate %s, --ssd-write-rate %s, --ssd-depth %d, --ssd-latency %v: "+
			"an ssd reads and writes at least a byte a second, takes at least one read, and answers "+
			"no sooner than asked", f.rate, f.writeRate, f.depth, f.latency)
	}
	if f.layout != string(perf.Static) && f.layout != string(perf.Carry) {
		return 0, d, usagef("--ssd-layout %q: use %s or %s", f.layout, perf.Static, perf.Carry)
	}
	return log, d, nil
}

func simulateOne(s sim.Scenario) (simReport, error) {
	bound, err := sim.Roofline(&s)
	if err != nil {
		return simReport{}, err
	}
	result, err := sim.Run(s)
	if err != nil {
		return simReport{}, err
	}
	report := simReport{Policy: s.Plan.Rule.Name, Roofline: time.Duration(bound.Epoch()),
		Binding: bound.Binding, MinOriginBytes: bound.OriginBytes, MinSsdBytes: bound.SsdBytes}
	epochs := result.ByEpoch()
	for _, e := range epochs {
		stall := map[string]time.Duration{}
		for cause, d := range e.Stall {
			if pump.Cause(cause) != pump.None {
				stall[pump.Cause(cause).String()] = time.Duration(d)
			}
		}
		report.Epochs = append(report.Epochs, simEpoch{Epoch: e.Epoch, Stall: stall,
			Time: time.Duration(e.End - e.Start), OriginBytes: e.OriginBytes,
			SsdBytes: e.SsdBytes, LogBytes: e.LogBytes})
	}
	if n := len(epochs); n > 1 {
		report.Mean = time.Duration(epochs[n-1].End-epochs[1].Start) / time.Duration(n-1)
		report.Ratio = float64(report.Mean) / float64(max(report.Roofline, 1))
	}
	return report, nil
}

func printSim(w io.Writer, reports []simReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tepoch\ttime\tstall: origin\tssd\tarena\torder\tfrom origin\tfrom ssd\t"+
		"÷ roofline, of\t")
	for _, r := range reports {
		for _, e := range r.Epochs {
			fmt.Fprintf(t, "%s\t%d\t%s\t", r.Policy, e.Epoch, seconds(e.Time))
			for _, cause := range []pump.Cause{pump.Origin, pump.Ssd, pump.Arena, pump.Order} {
				fmt.Fprintf(t, "%s\t", seconds(e.Stall[cause.String()]))
			}
			fmt.Fprintf(t, "%s\t%s\t\t\n", humanize.Bytes(uint64(e.OriginBytes)),
				humanize.Bytes(uint64(e.SsdBytes)))
		}
		if len(r.Epochs) > 1 {
			fmt.Fprintf(t, "%s\tmean of 1–%d\t%s\t\t\t\t\tat least %s\t%s\t%.3f, %s\t\n", r.Policy,
				r.Epochs[len(r.Epochs)-1].Epoch, seconds(r.Mean),
				humanize.Bytes(uint64(r.MinOriginBytes)), humanize.Bytes(uint64(r.MinSsdBytes)),
				r.Ratio, r.Binding)
		}
	}
	return t.Flush()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
