package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/core/policy"
	"belady/internal/core/pump"
	"belady/internal/core/trace"
	"belady/internal/node/world"
	"belady/internal/profile"
	"belady/internal/sim"
	"belady/internal/store/catalog"
	"belady/internal/store/tier/ssd"
)

// barForetold is how far a measured time may be from the predicted one, either way.
const barForetold = 0.10

// leastLog is the smallest quota that a daemon takes.
const leastLog = 16 << 20

// foretold is a cell whose dataset is scanned, and what is predicted of it before a daemon runs.
type foretold struct {
	cell
	dir  string
	log  int64 // quota of the log; 0: none
	told trace.Reader
	// profiled says that the measured origin, not the drawn one, decided the rate or the latency.
	profiled bool
}

// simReal: the simulator against the daemon. A profile is measured and frozen, then all cells are
// drawn and predicted, and only then a daemon reads them.
func (s *suite) simReal() (*table, error) {
	t := &table{header: []string{"cell", "epoch: predicted", "measured", "÷", "first: predicted",
		"measured", "÷", "stall: predicted", "measured", "bytes", "origin alone: ÷", ""}}
	p, err := s.freeze(t)
	if err != nil {
		return nil, err
	}
	cells, err := s.foretell(t, p)
	if err != nil {
		return nil, err
	}
	exact, profiled := 0, 0
	for i := range cells {
		f := &cells[i]
		l, err := s.live(f)
		if err != nil {
			return nil, fmt.Errorf("cell %s: %w", f.name, err)
		}
		if s.match(t, f, l) {
			exact++
		}
		if f.profiled {
			profiled++
		}
		if err := os.RemoveAll(f.dir); err != nil {
			return nil, err
		}
	}
	t.note("Bars: the mean of epochs 2 to %d and the first one within %.0f %% of what was predicted, "+
		"and bytes exact: in every epoch origin + shared, log + shared and ram as predicted, to the "+
		"byte, and the origin's own count equal to the trace's. Shared is what was still in staging "+
		"as the next epoch wanted it; it depends on timing, and so do the origin's bytes alone, which "+
		"have no bar. Exact: %d of %d cells.", epochsRead, 100*barForetold, exact, len(cells))
	t.note("Drawn from seed %d: the origin's rate and latency, which an emulated origin holds, kept "+
		"share, compute, sizes and batch, as for the roofline, and every third time a log. Measured "+
		"before, in the profile: the disk, and an origin that nothing slows; it decided the rate or "+
		"latency of %d of %d cells, where it was the slower. Measured after all was predicted: times, "+
		"by the loop's clock, and bytes, by the trace and by the origin.", s.seed, profiled, len(cells))
	return t, nil
}

// freeze measures this node's sources with an origin that nothing slows.
func (s *suite) freeze(t *table) (*perf.Profile, error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.outputs(), 0o755); err != nil {
		return nil, err
	}
	if _, err := s.add(dir, "data", "synth://data?samples=4000&size=110000"); err != nil {
		return nil, err
	}
	file := filepath.Join(s.outputs(), fmt.Sprintf("profile-%d.yaml", s.seed))
	if err := os.RemoveAll(file); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(s.ctx, s.belady(), "bench", "tiers", "data", "--dir", dir, "--socket",
		filepath.Join(dir, "s"), "--ssd", dir, "--out", file)
	cmd.Env = environ()
	var log tail
	cmd.Stderr = &log
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("measure the tiers: %w: %s", err, &log)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s.say("profile frozen: SHA-256 %x", sha256.Sum256(text))
	t.note("Profile frozen before: SHA-256 %x.", sha256.Sum256(text))
	return profile.Load(file)
}

// foretell draws the cells, scans their datasets and predicts them all.
func (s *suite) foretell(t *table, p *perf.Profile) ([]foretold, error) {
	seconds, n := 3.0, 12
	if s.quick {
		seconds, n = 2, 3
	}
	draw := rand.New(rand.NewPCG(uint64(s.seed), 1))
	var cells []foretold
	var text []string
	for i := range n {
		f := foretold{cell: randomCell(draw, seconds)}
		share := 0.1 + 0.4*draw.Float64()
		if i%3 == 2 {
			f.log = max(leastLog, int64(share*float64(f.samples())*float64(f.size)))
			f.name += fmt.Sprintf(", log %.0f %%", 100*share)
		}
		if !strings.Contains(f.name, s.only) {
			continue
		}
		if err := s.predict(&f, p); err != nil {
			return nil, fmt.Errorf("predict %s: %w", f.name, err)
		}
		line, err := json.Marshal(map[string]any{"cell": f.name, "epochs": f.told.Epochs})
		if err != nil {
			return nil, err
		}
		text = append(text, string(line))
		cells = append(cells, f)
	}
	all := []byte(strings.Join(text, "\n") + "\n")
	s.say("%d cells predicted: SHA-256 %x", len(cells), sha256.Sum256(all))
	t.note("Predictions written before: SHA-256 %x.", sha256.Sum256(all))
	file := filepath.Join(s.outputs(), fmt.Sprintf("foretold-%d.json", s.seed))
	return cells, os.WriteFile(file, all, 0o644)
}

// outputs is where files go that outlive a run.
func (s *suite) outputs() string { return filepath.Join(s.root, "bench", "out") }

// predict simulates a cell with the plan that the daemon will make.
func (s *suite) predict(f *foretold, p *perf.Profile) (err error) {
	if f.dir, err = s.folder(); err != nil {
		return err
	}
	if _, err := s.add(f.dir, "data", f.url(f.counts())); err != nil {
		return err
	}
	set, closeAll, err := f.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	spec := order.Spec{Kind: order.Distributed, Seed: s.seed, Batch: f.batch, World: 1,
		Samples: set.Len()}
	ahead := world.Prospect{Name: "data", Content: set.ID(), Sizes: set,
		Policy: policy.Default(false), Order: spec, Ranks: 1, RAM: f.ram(set.TotalBytes()),
		Staging: f.staging}
	sc := sim.Scenario{Readings: []job.Reading{{Order: spec, Epochs: epochsRead}},
		Compute: pump.Instant(f.compute(set.Len()))}
	if f.log > 0 {
		ahead.Log, ahead.LogMost = ssd.Holds(set, f.log)
		if sc.Ssd, err = sim.DeviceOf(p.Disks, f.size, false); err != nil {
			return err
		}
	}
	if sc.Plan, err = ahead.Plan(); err != nil {
		return err
	}
	if sc.Origin, err = sim.OriginOf(&p.Origin, f.size); err != nil {
		return err
	}
	f.profiled = sc.Origin.Rate < f.rate || sc.Origin.Latency > pump.Instant(f.latency)
	sc.Origin.Rate = min(sc.Origin.Rate, f.rate)
	sc.Origin.Latency = max(sc.Origin.Latency, pump.Instant(f.latency))
	sc.Origin.Concurrency = inside
	told, err := sim.Measure(sc)
	if err != nil {
		return err
	}
	f.told = told.Readers[0]
	return nil
}

func (f *foretold) counts() string { return filepath.Join(f.dir, "counts") }

func (f *foretold) open() (*dataset.Set, func() error, error) {
	return catalog.New(f.dir, nil).OpenSet([]string{"data"})
}

// lived is what a daemon made of a cell.
type lived struct {
	epochs  []epoch      // as the loop saw them
	seen    trace.Reader // as the trace has them
	counted int64        // bytes, by the origin
	said    string       // by the daemon
}

// live runs a daemon on the cell.
func (s *suite) live(f *foretold) (l *lived, err error) {
	traces := filepath.Join(f.dir, "traces")
	env := []string{"BELADY_TRACE=" + traces}
	if f.log > 0 {
		env = append(env, fmt.Sprintf("BELADY_SSD=%s:%d", filepath.Join(f.dir, "ssd"), f.log),
			"BELADY_SSD_LAYOUT=static", "BELADY_SSD_FREE=1GiB")
	}
	set, closeAll, err := f.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	n, err := s.start(f.dir, f.ram(set.TotalBytes()), f.staging, env...)
	if err != nil {
		return nil, err
	}
	l = new(lived)
	l.epochs, err = s.readAll(f, n, set.Len())
	l.said = n.log.String()
	if err := errors.Join(err, n.stop()); err != nil {
		return nil, err
	}
	count, err := readCounts(f.counts())
	if err != nil {
		return nil, err
	}
	l.counted = count.bytes
	files, err := filepath.Glob(filepath.Join(traces, "*.trace"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("the daemon left %d traces, not one (%v)", len(files), err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	m, err := trace.Measure(data, set)
	if err != nil {
		return nil, err
	}
	if len(m.Readers) != 1 || len(m.Readers[0].Epochs) != epochsRead {
		return nil, fmt.Errorf("the trace has %d readers; the daemon said: %s", len(m.Readers), l.said)
	}
	l.seen = m.Readers[0]
	return l, nil
}

// readAll is the training loop. It waits until the daemon knows that it has left: a daemon that is
// stopped records no more.
func (s *suite) readAll(f *foretold, n *node, samples int) ([]epoch, error) {
	ctx, cancel := context.WithTimeout(s.ctx, f.limit())
	defer cancel()
	r := reading{socket: n.socket, dataset: "data", epochs: epochsRead, batch: f.batch,
		samples: samples, seed: s.seed, compute: f.compute(samples), steady: true}
	epochs, err := r.run(ctx)
	if err != nil {
		return nil, err
	}
	for {
		status, err := n.status(ctx)
		if err != nil || status.Datasets[0].Ranks == 0 {
			return epochs, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// differences lists where bytes by source are not what was predicted; empty: nowhere.
func (f *foretold) differences(l *lived) (wrong string) {
	fetched := int64(0)
	for i, a := range f.told.Epochs {
		b := l.seen.Epochs[i]
		fetched += b.Origin
		if a.Origin+a.Shared-a.SharedSsd != b.Origin+b.Shared-b.SharedSsd ||
			a.Ssd+a.SharedSsd != b.Ssd+b.SharedSsd || a.Ram != b.Ram {
			wrong += fmt.Sprintf("; epoch %d: predicted %+v, measured %+v", i+1, a.Sources, b.Sources)
		}
	}
	if fetched != l.counted {
		wrong += fmt.Sprintf("; the origin counted %d bytes, the trace %d", l.counted, fetched)
	}
	return wrong
}

// alone is the origin's bytes after the first epoch, predicted over measured.
func (f *foretold) alone(l *lived) float64 {
	var told, seen int64
	for i := range f.told.Epochs[1:] {
		told += f.told.Epochs[i+1].Origin
		seen += l.seen.Epochs[i+1].Origin
	}
	if told == seen {
		return 1
	}
	return float64(told) / float64(max(seen, 1))
}

func inSeconds(t pump.Instant) float64 { return time.Duration(t).Seconds() }

// match adds a cell's row: times by the loop's clock, bytes by the trace and by the origin. It says
// whether bytes are exact.
func (s *suite) match(t *table, f *foretold, l *lived) bool {
	told, epochs, last := f.told.Epochs, l.epochs, epochsRead-1
	span := func(from, to int) float64 { return inSeconds(told[to].Ended - told[from].Begun) }
	mean := [2]float64{span(1, last) / float64(last),
		epochs[last].end.Sub(epochs[1].begun).Seconds() / float64(last)}
	first := [2]float64{span(0, 0), epochs[0].seconds()}
	var stall [2]float64
	for i := range told {
		stall[0] += inSeconds(told[i].Waited())
		stall[1] += inSeconds(l.seen.Epochs[i].Waited())
	}
	wrong := f.differences(l)
	bytes := "exact"
	if wrong != "" {
		bytes = "differ"
		t.note("%s: bytes differ%s.", f.name, wrong)
		s.say("%s: bytes differ%s; the daemon said: %s", f.name, wrong, l.said)
	}
	row := []string{f.name}
	ok := wrong == ""
	for _, pair := range [][2]float64{mean, first} {
		ratio := pair[0] / pair[1]
		row = append(row, fmt.Sprintf("%.2f s", pair[0]), fmt.Sprintf("%.2f s", pair[1]),
			fmt.Sprintf("%.3f", ratio))
		ok = ok && math.Abs(ratio-1) <= barForetold
	}
	if !ok {
		compute := 0.0
		for i := range epochs[1:] {
			compute += epochs[i+1].compute.Seconds() / float64(last)
		}
		t.note("%s: computing took %.2f s an epoch, drawn were %.2f s.", f.name, compute,
			f.ratio*f.missTime())
	}
	row = append(row, fmt.Sprintf("%.2f s", stall[0]), fmt.Sprintf("%.2f s", stall[1]), bytes,
		fmt.Sprintf("%.3f", f.alone(l)), t.verdict(ok))
	t.rows = append(t.rows, row)
	s.say("%s", strings.Join(row, " | "))
	return wrong == ""
}
