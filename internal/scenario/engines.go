package scenario

import (
	"cmp"
	"context"
	"strconv"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/sim"
	"belady/internal/sim/strategy"
	"belady/internal/yamlfile"
)

func bytesOf(n int64) yamlfile.Bytes { return yamlfile.Bytes(n) }

// sizes are the samples', drawn from the seed.
type sizes []uint32

func (s sizes) Len() int                 { return len(s) }
func (s sizes) Size(id sample.ID) uint32 { return s[id] }

func (s sizes) total() (sum int64) {
	for _, size := range s {
		sum += int64(size)
	}
	return sum
}

func (s *Scenario) sizes() sizes {
	d := s.Dataset
	return strategy.Normal(d.Samples, float64(d.Size.Mean), float64(d.Size.Deviation), s.Seed)
}

// orders are what each job's ranks read, with a seed of its own. Samplers shuffle an epoch by seed
// and epoch added up, so seeds are farther apart than there are epochs: else one job's epoch would
// be another's next.
func (s *Scenario) orders(world int) []order.Spec {
	specs := make([]order.Spec, s.Job.count())
	for i := range specs {
		specs[i] = order.Spec{Kind: s.Job.Order, Samples: s.Dataset.Samples,
			Seed: int64(s.Seed) + int64(i)*int64(s.Job.Epochs), World: world, Batch: s.Job.Batch / world,
			DropLast: s.Job.DropLast}
	}
	return specs
}

// count is how many jobs there are.
func (j *Job) count() int { return max(j.Count, 1) }

func (t *Tier) perf() perf.Tier {
	return perf.Tier{Name: t.Name, Capacity: int64(t.Capacity), Threads: t.Threads,
		Read: curve(t.Read), Write: curve(t.Write)}
}

func (s *Scenario) readers() perf.Curve {
	c := make(perf.Curve, len(s.Origin.Readers))
	for i, r := range s.Origin.Readers {
		c[i] = perf.Step{At: r.At, Rate: int64(r.Rate)}
	}
	return c
}

// modelEngine runs rows by the cluster's model.
type modelEngine struct {
	*Scenario
	sizes sizes
	least strategy.Result // perfect's
	o     Options
}

// bound runs the row that all others are divided by.
func (e modelEngine) bound(ctx context.Context) (strategy.Result, error) {
	e.o.Progress = func(string, int64, int64) {} // it may be a row besides
	return strategy.Run(e.cluster(ctx, cell{}), perfect)
}

// cluster is the model's input for one cell.
func (e modelEngine) cluster(ctx context.Context, c cell) *strategy.Scenario {
	n := e.Nodes
	s := &strategy.Scenario{Cluster: strategy.Cluster{Nodes: n.Count, Compute: float64(n.Compute),
		Preprocess: float64(n.Preprocess), Staging: n.Staging.perf(), Origin: e.readers(),
		Peers: float64(e.Network.Peers), OriginLink: float64(e.Network.Origin),
		Shared: e.Origin.Share == ShareBytes}}
	for _, t := range e.tiers(c, e.sizes.total()) {
		s.Tiers = append(s.Tiers, t.perf())
	}
	for _, o := range e.orders(n.Count) {
		s.Jobs = append(s.Jobs, strategy.Job{Order: o, Epochs: e.Job.Epochs, Sizes: e.sizes})
	}
	for _, f := range e.Failures {
		then := cmp.Or(c.Then, f.Then)
		if then != Never {
			s.Failures = append(s.Failures, strategy.Failure{Node: f.Node, At: f.Epoch,
				Refill: then == Refill})
		}
	}
	s.Progress = func(done, all int64) bool {
		e.o.Progress(c.name(), done, all)
		return ctx.Err() == nil
	}
	return s
}

func (e modelEngine) run(ctx context.Context, c cell) (Result, error) {
	s := e.cluster(ctx, c)
	got, err := strategy.Run(s, c.Use)
	if err != nil {
		return Result{}, err
	}
	r := Result{Name: c.Row.Name, Use: c.Use, Engine: got.Engine, At: c.at, Note: got.Note,
		Unsupported: got.Unsupported, Seconds: got.Seconds, Epochs: got.Epochs, Stall: got.Stall,
		Fill: got.Prestage, Ratio: got.Seconds / e.least.Seconds,
		Bytes: map[string]int64{}, Busy: map[string]float64{}}
	var read int64
	for p := range strategy.Places {
		read += got.Bytes[p]
		if got.Bytes[p] > 0 {
			r.Bytes[p.String()], r.Busy[p.String()] = got.Bytes[p], got.Busy[p]
		}
	}
	if read == 0 {
		return r, nil
	}
	held := int64(e.Nodes.Staging.Capacity) * int64(e.Nodes.Count) * int64(e.Job.count())
	for _, t := range s.Tiers {
		held += t.Capacity * int64(e.Nodes.Count)
	}
	r.Origin = newLeast(got.OriginBytes(), e.least.Least(held))
	return r, nil
}

// pumpEngine runs rows by the daemon's own decisions, on one node.
type pumpEngine struct {
	*Scenario
	sizes sizes
	o     Options
}

func (e pumpEngine) run(ctx context.Context, c cell) (Result, error) {
	s, err := e.node(c)
	if err != nil {
		return Result{}, err
	}
	total, reads := e.sizes.total(), int64(0)
	batches := int64(0)
	all := int64(len(s.Readings)*e.Job.Epochs) * int64(e.Dataset.Samples/e.Job.Batch)
	s.Stop = func() bool { return ctx.Err() != nil }
	s.Deliver = func(_, _, _ int, ids []sample.ID) {
		reads += int64(len(ids))
		if batches++; batches%1024 == 0 || batches == all {
			e.o.Progress(c.name(), min(batches, all), all)
		}
	}
	bound, err := sim.Roofline(&s)
	if err != nil {
		return Result{}, err
	}
	got, err := sim.Run(s)
	if err != nil {
		return Result{}, err
	}
	r := Result{Name: c.Row.Name, Use: c.Use, Engine: Pump, At: c.at}
	epochs := got.ByEpoch()
	for _, epoch := range epochs {
		r.Epochs = append(r.Epochs, seconds(epoch.End-epoch.Start))
	}
	for cause, stall := range epochs[len(epochs)-1].Stall {
		if pump.Cause(cause) != pump.None {
			r.Stall += seconds(stall)
		}
	}
	later := len(epochs) - 1
	r.Seconds = seconds(epochs[later].End-epochs[1].Start) / float64(later)
	r.Ratio = r.Seconds / max(seconds(bound.Epoch()), 1e-9)
	hits := float64(reads-got.Stats.Misses) / float64(max(reads-int64(e.Dataset.Samples), 1))
	r.Hits = &hits
	mean := float64(total) / float64(len(e.sizes))
	r.Bytes = e.bytes(epochs[1:], int64(float64(reads*int64(later)/int64(len(epochs)))*mean))
	r.Origin = newLeast(got.Stats.FetchedBytes, bound.FirstBytes+int64(later)*bound.OriginBytes)
	return r, nil
}

// bytes splits what ranks read in some epochs by where it came from.
func (e pumpEngine) bytes(epochs []sim.EpochResult, read int64) map[string]int64 {
	var origin, ssd int64
	for _, epoch := range epochs {
		origin, ssd = origin+epoch.OriginBytes, ssd+epoch.SsdBytes
	}
	return map[string]int64{"origin": origin, "ssd": ssd, "ram": max(0, read-origin-ssd)}
}

func seconds(d pump.Instant) float64 { return float64(d) / 1e9 }

// node is the pump's input for one cell.
func (e pumpEngine) node(c cell) (sim.Scenario, error) {
	in := plan.Input{Sizes: e.sizes, Seed: e.Seed, Policy: c.Use,
		Staging: int64(e.Nodes.Staging.Capacity)}
	var device sim.Device
	for _, t := range e.tiers(c, e.sizes.total()) {
		if t.Name == "ram" {
			in.Keep = int64(t.Capacity)
			continue
		}
		in.Log = int64(t.Capacity)
		p := t.perf()
		device = sim.Device{Depth: int(max(p.Threads, 1)), ReadRate: p.Read.Rate(max(p.Threads, 1)),
			WriteRate: p.Read.Rate(max(p.Threads, 1))}
		if len(p.Write) > 0 {
			device.WriteRate = p.Write.Rate(max(p.Threads, 1))
		}
	}
	made, err := plan.Make(in)
	if err != nil {
		return sim.Scenario{}, err
	}
	s := sim.Scenario{Plan: made, Ssd: device,
		Compute: pump.Instant(float64(e.Job.Batch) * float64(e.Dataset.Size.Mean) /
			float64(e.Nodes.Compute) * 1e9),
		Origin: sim.Origin{Rate: cmp.Or(int64(c.Origin), e.readers().Rate(1)),
			Latency: pump.Instant(e.Origin.Latency), Concurrency: e.Origin.Concurrency}}
	for _, o := range e.orders(1) {
		r := job.Reading{Order: o, Epochs: e.Job.Epochs}
		if err := r.Validate(); err != nil {
			return sim.Scenario{}, err
		}
		s.Readings = append(s.Readings, r)
	}
	return s, nil
}

// ring plays the trials with each number of points.
func (s *Scenario) ring(ctx context.Context, o Options, report *Report) error {
	for _, points := range s.Trials.Points {
		trial := sim.RingTrial{Nodes: s.Nodes.Count, Points: points, Samples: s.Dataset.Samples,
			Trials: s.Trials.Count, Seed: s.Seed}
		got, err := trial.Run(ctx, func(done int) {
			o.Progress(strconv.Itoa(points), int64(done), int64(s.Trials.Count))
		})
		if err != nil {
			return err
		}
		at := RingPoint{RingResult: got}
		for _, p := range s.Published.Points {
			if p.Points == points {
				at.Published = p.Receivers
			}
		}
		at.Verdict = compare("receivers ÷ perfect", got.Receivers.Mean, got.Perfect,
			s.Bars.Receivers, got.Receivers.Mean/got.Perfect-1)
		report.Rings = append(report.Rings, at)
		report.count(at.Verdict.Says)
	}
	return nil
}
