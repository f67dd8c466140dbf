package scenario

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/core/sample"
	"belady/internal/sim/strategy"
	"belady/internal/yamlfile"
)

// maxNodes is how many the model can tell apart.
const maxNodes = strategy.MaxNodes

// wrong collects problems, each with its place.
type wrong struct {
	*Scenario
	all []error
}

// must refuses a key unless it is sound.
func (w *wrong) must(sound bool, key, format string, args ...any) {
	if !sound {
		w.all = append(w.all, w.places.Wrong(key, format, args...))
	}
}

// check finds everything that is wrong with the file.
func (s *Scenario) check() error {
	w := &wrong{Scenario: s}
	w.must(s.Title != "", "title", "is missing; expected what the scenario is, in a few words")
	switch s.Engine {
	case Model:
		w.dataset()
		w.job()
		w.cluster(maxNodes)
		w.model()
	case Pump:
		w.dataset()
		w.job()
		w.cluster(1)
		w.node()
	case Ring:
		w.trials()
	case Uses:
		w.often()
	default:
		w.must(false, "engine", "is %q; expected %s, %s, %s or %s", s.Engine, Model, Pump, Ring, Uses)
		return errors.Join(w.all...)
	}
	if s.Engine == Model || s.Engine == Pump {
		w.rows()
		w.sweep()
		w.claims()
		w.sums()
	}
	w.published()
	w.bars()
	w.unused()
	return errors.Join(w.all...)
}

func (w *wrong) dataset() {
	d := w.Dataset
	w.must(d.Samples >= 1 && d.Samples < maxSamples, "dataset.samples",
		"is %d; expected 1 to %d", d.Samples, maxSamples-1)
	w.must(d.Size.Mean >= 1 && int64(d.Size.Mean) <= sample.MaxSize, "dataset.size.mean",
		"is %d bytes; expected a size of 1 to %d bytes, such as 110KB", d.Size.Mean,
		int64(sample.MaxSize))
	w.must(d.Size.Deviation >= 0 && d.Size.Deviation <= 10*d.Size.Mean, "dataset.size.deviation",
		"is %d bytes; expected at most ten times the mean", d.Size.Deviation)
	w.must(float64(d.Samples)*float64(d.Size.Mean) < maxBytes, "dataset",
		"is %.3g bytes in all; expected less than 2^62", float64(d.Samples)*float64(d.Size.Mean))
}

func (w *wrong) job() {
	j := w.Job
	w.must(j.Epochs >= 1 && j.Epochs <= order.MaxEpoch, "job.epochs", "is %d; expected 1 to %d",
		j.Epochs, order.MaxEpoch)
	w.must(j.Batch >= 1 && j.Batch <= max(w.Dataset.Samples, 1), "job.batch",
		"is %d; expected 1 to the number of samples (%d), over all nodes", j.Batch,
		w.Dataset.Samples)
	w.must(j.Count >= 0 && j.Count <= 64, "job.count", "is %d; expected 1 to 64 jobs alike", j.Count)
	w.kind()
}

// kind checks the order, which must be one that can be computed.
func (w *wrong) kind() {
	kinds := slices.DeleteFunc(order.Names(), func(kind string) bool {
		return kind == order.Explicit || kind == order.Weighted // a program's own
	})
	w.must(slices.Contains(kinds, w.Job.Order), "job.order", "is %q; expected %s", w.Job.Order,
		strings.Join(kinds, ", "))
}

// cluster checks what both engines need of the machines.
func (w *wrong) cluster(most int) {
	n := w.Nodes
	w.must(n.Count >= 1 && n.Count <= most, "nodes.count", "is %d; engine %s takes 1 to %d",
		n.Count, w.Engine, most)
	if n.Count >= 1 && w.Job.Batch >= 1 {
		w.must(w.Job.Batch%n.Count == 0, "job.batch",
			"is %d; expected a multiple of nodes.count (%d): every node gets the same share",
			w.Job.Batch, n.Count)
	}
	w.must(n.Compute > 0, "nodes.compute",
		"is missing; expected the rate at which a node trains, such as 100MB/s")
	w.rate("nodes.compute", n.Compute)
	w.rate("nodes.preprocess", n.Preprocess)
	w.rate("network.peers", w.Network.Peers)
	w.rate("network.origin", w.Network.Origin)
	w.must(n.Staging.Capacity > 0 && n.Staging.Capacity <= maxCapacity, "nodes.staging.capacity",
		"is %v; expected more than zero, and at most 2^60, such as 1GB", n.Staging.Capacity)
	if w.places.Has("nodes.staging.read") {
		w.curve("nodes.staging.read", "threads", curve(n.Staging.Read), "{threads: 1, rate: 3GB/s}")
	}
	w.tiers("nodes.tiers", n.Tiers)
	readers := make(perf.Curve, len(w.Origin.Readers))
	for i, r := range w.Origin.Readers {
		readers[i] = perf.Step{At: r.At, Rate: int64(r.Rate)}
	}
	w.curve("origin.readers", "at", readers, "{at: 1, rate: 66MB/s}")
	w.must(w.Origin.Share == ShareThread || w.Origin.Share == ShareBytes, "origin.share",
		"is %q; expected %s or %s", w.Origin.Share, ShareThread, ShareBytes)
}

// tiers checks a list of them.
func (w *wrong) tiers(key string, tiers []Tier) {
	for i, t := range tiers {
		at := fmt.Sprintf("%s[%d]", key, i)
		w.must(t.Name == "ram" || t.Name == "ssd", at+".name", "is %q; expected ram or ssd", t.Name)
		w.must(t.Capacity > 0 && t.Capacity <= maxCapacity, at+".capacity",
			"is %d bytes; expected more than zero, and less than 2^60 (a tier without room is left "+
				"out)", t.Capacity)
		w.must(t.Threads >= 0 && t.Threads <= maxThreads, at+".threads", "is %d; expected 1 to %d",
			t.Threads, maxThreads)
		w.curve(at+".read", "threads", curve(t.Read), "{threads: 1, rate: 3GB/s}")
		if len(t.Write) > 0 {
			w.curve(at+".write", "threads", curve(t.Write), "{threads: 1, rate: 1GB/s}")
		}
		twice := slices.ContainsFunc(tiers[:i], func(other Tier) bool { return other.Name == t.Name })
		w.must(!twice, at+".name", "is %q a second time; expected each tier once", t.Name)
	}
}

func curve(points []ThreadRate) perf.Curve {
	c := make(perf.Curve, len(points))
	for i, p := range points {
		c[i] = perf.Step{At: p.Threads, Rate: int64(p.Rate)}
	}
	return c
}

// model checks what only the cluster's model uses.
func (w *wrong) model() {
	w.must(w.Nodes.Staging.Threads >= 1 && w.Nodes.Staging.Threads <= 1<<10,
		"nodes.staging.threads", "is %d; expected the threads of a node that read ahead, 1 to %d",
		w.Nodes.Staging.Threads, 1<<10)
	for i, f := range w.Failures {
		at := fmt.Sprintf("failures[%d]", i)
		w.must(f.Node >= 0 && f.Node < w.Nodes.Count, at+".node", "is %d; expected 0 to %d", f.Node,
			w.Nodes.Count-1)
		w.must(f.Epoch >= 0 && f.Epoch < float64(w.Job.Epochs), at+".epoch",
			"is %v; expected a point of the job in epochs, 0 to less than %d", f.Epoch, w.Job.Epochs)
		w.must(f.Then == Refill || f.Then == Bypass, at+".then", "is %q; expected %s or %s", f.Then,
			Refill, Bypass)
	}
}

// node checks what only a single node uses.
func (w *wrong) node() {
	w.must(w.Origin.Concurrency >= 1 && w.Origin.Concurrency <= 1<<16, "origin.concurrency",
		"is %d; expected the most requests at once, 1 to %d", w.Origin.Concurrency, 1<<16)
	w.must(w.Origin.Latency <= maxLatency, "origin.latency", "is %v; expected at most an hour",
		w.Origin.Latency)
	alone := len(w.Origin.Readers) == 1 && w.Origin.Readers[0].At == 1
	w.must(alone || len(w.Origin.Readers) == 0, "origin.readers",
		"has more than {at: 1}; engine %s has one reader: expected its rate alone", Pump)
	w.must(w.Job.Epochs >= 2, "job.epochs", "is %d; expected 2 at least: the first one finds nothing",
		w.Job.Epochs)
}

// rows checks what is compared.
func (w *wrong) rows() {
	w.must(len(w.Names)+len(w.Rows) > 0 && len(w.Names)+len(w.Rows) <= maxRows, "strategies",
		"names %d; expected 1 to %d of %s", len(w.Names)+len(w.Rows), maxRows,
		strings.Join(w.known(), ", "))
	seen := map[string]bool{}
	one := func(key, name, use string) {
		w.must(name != "" && name != best, key, "has no name; expected what the row is called")
		w.must(!seen[name], key, "is %q a second time; expected each row once", name)
		seen[name] = true
		w.must(slices.Contains(w.known(), use), key, "is %q; engine %s knows %s", use, w.Engine,
			strings.Join(w.known(), ", "))
	}
	for i, r := range w.Rows {
		at := fmt.Sprintf("rows[%d]", i)
		one(at+".use", r.Name, r.Use)
		w.must(slices.Contains([]string{"", Refill, Bypass, Never}, r.Then), at+".then",
			"is %q; expected %s, %s or %s", r.Then, Refill, Bypass, Never)
		w.must(r.Origin > 0 || !w.places.Has(at+".origin"), at+".origin",
			"is zero; expected what the origin gives this row, such as 1GB/s")
		w.rate(at+".origin", r.Origin)
		w.tiers(at+".tiers", r.Tiers)
	}
	for i, name := range w.Names {
		one(fmt.Sprintf("strategies[%d]", i), name, name)
	}
}

// sweep checks the sizes that rows are run at.
func (w *wrong) sweep() {
	s := w.Sweep
	cells := max(len(s.Ram), 1) * max(len(s.Ssd), 1) * max(len(s.Kept), 1)
	w.must(cells <= maxSweep, "sweep", "has %d cells; expected at most %d", cells, maxSweep)
	w.must(len(s.Kept) == 0 || len(s.Ram)+len(s.Ssd) == 0, "sweep",
		"has shares and sizes; expected kept alone, or ram and ssd")
	for i, share := range s.Kept {
		w.must(share > 0 && share <= 1 && (i == 0 || share > s.Kept[i-1]),
			fmt.Sprintf("sweep.kept[%d]", i), "is %v; expected shares above 0, to 1, that rise", share)
	}
	rising := func(key string, sizes []yamlfile.Bytes) {
		for i, size := range sizes {
			w.must((i == 0 || size > sizes[i-1]) && size <= maxCapacity, fmt.Sprintf("%s[%d]", key, i),
				"is %d bytes; expected sizes that rise, at most 2^60", size)
		}
	}
	rising("sweep.ram", s.Ram)
	rising("sweep.ssd", s.Ssd)
	has := func(name string) bool {
		return slices.ContainsFunc(w.Nodes.Tiers, func(t Tier) bool { return t.Name == name })
	}
	w.must(len(s.Ram)+len(s.Kept) == 0 || has("ram"), "sweep",
		"changes ram; expected a tier ram in nodes.tiers, for its rates")
	w.must(len(s.Ssd) == 0 || has("ssd"), "sweep.ssd",
		"changes ssd; expected a tier ssd in nodes.tiers, for its rates")
}

// trials checks what the ring uses.
func (w *wrong) trials() {
	w.must(w.Nodes.Count >= 2 && w.Nodes.Count <= maxRing, "nodes.count", "is %d; expected 2 to %d",
		w.Nodes.Count, maxRing)
	w.must(w.Dataset.Samples >= 1 && w.Dataset.Samples <= 1<<27, "dataset.samples",
		"is %d; expected 1 to %d", w.Dataset.Samples, 1<<27)
	w.must(w.Trials.Count >= 1 && w.Trials.Count <= maxTrials, "trials.count",
		"is %d; expected 1 to %d", w.Trials.Count, maxTrials)
	w.must(len(w.Trials.Points) > 0, "trials.points",
		"is missing; expected how many points a node has, such as [10, 100]")
	for i, points := range w.Trials.Points {
		w.must(points >= 1 && points <= 1<<24/max(w.Nodes.Count, 1) &&
			(i == 0 || points > w.Trials.Points[i-1]), fmt.Sprintf("trials.points[%d]", i),
			"is %d; expected numbers that rise, at most %d over all nodes", points, 1<<24)
	}
}

// often checks what the count of uses needs.
func (w *wrong) often() {
	w.must(w.Nodes.Count >= 1 && w.Nodes.Count <= maxNodes, "nodes.count", "is %d; expected 1 to %d",
		w.Nodes.Count, maxNodes)
	w.must(w.Job.Epochs >= 1 && w.Job.Epochs <= 1<<20, "job.epochs", "is %d; expected 1 to %d",
		w.Job.Epochs, 1<<20)
	w.must(w.Dataset.Samples >= 1 && w.Dataset.Samples <= 1<<27, "dataset.samples",
		"is %d; expected 1 to %d", w.Dataset.Samples, 1<<27)
	w.kind()
	w.must(w.Trials.Above >= 1 && w.Trials.Above < max(w.Job.Epochs, 2), "trials.above",
		"is %d; expected a number of uses, 1 to less than the epochs (%d)", w.Trials.Above,
		w.Job.Epochs)
	w.must(finite(w.Published.Uses) && w.Published.Uses > 0, "published.uses",
		"is %v; expected how many samples are used more often, above zero", w.Published.Uses)
}

// published checks that numbers belong to something that is run.
func (w *wrong) published() {
	for _, name := range slices.Sorted(maps.Keys(w.Published.Seconds)) {
		key, seconds := "published.seconds."+name, w.Published.Seconds[name]
		w.must(w.row(name), key, "is of no row; expected one of those that are run")
		w.must(finite(seconds) && seconds > 0, key, "is %v; expected seconds above zero", seconds)
	}
	for i, p := range w.Published.Points {
		key := fmt.Sprintf("published.points[%d]", i)
		w.must(w.runs(p), key, "is of nothing that is run; expected a row and a size of the sweep, "+
			"or a number of points of the trials")
		says := "seconds above zero"
		sound := w.Engine == Model && finite(p.Seconds) && p.Seconds > 0
		switch w.Engine {
		case Ring:
			says, sound = "receivers above zero", finite(p.Receivers) && p.Receivers > 0
		case Pump:
			says = "hits, above 0 to 1, or seconds above zero"
			hits := p.Hits > 0 && p.Hits <= 1 && p.Seconds == 0
			sound = hits || p.Hits == 0 && finite(p.Seconds) && p.Seconds > 0
		}
		w.must(sound, key, "has no number that can be compared; engine %s expects %s", w.Engine, says)
	}
}

// runs tells whether a point is one of those that are run.
func (w *wrong) runs(p Point) bool {
	at := func(swept []yamlfile.Bytes, size yamlfile.Bytes) bool {
		return slices.Contains(swept, size) || len(swept) == 0 && size == 0
	}
	switch w.Engine {
	case Ring:
		return slices.Contains(w.Trials.Points, p.Points)
	case Uses:
		return false
	}
	kept := slices.Contains(w.Sweep.Kept, p.Kept) || len(w.Sweep.Kept) == 0 && p.Kept == 0
	return kept && w.row(p.Row) && at(w.Sweep.Ram, p.Ram) && at(w.Sweep.Ssd, p.Ssd)
}

func (w *wrong) claims() {
	for i, c := range w.Claims {
		at := fmt.Sprintf("claims[%d]", i)
		w.must(w.row(c.Of), at+".of", "is %q; expected a row", c.Of)
		w.must(w.row(c.Over) || c.Over == best, at+".over", "is %q; expected a row or %s", c.Over, best)
		w.must(finite(c.Is) && c.Is > 0, at+".is", "is %v; expected a ratio above zero", c.Is)
		w.must(c.Within >= 0 && c.Within <= 1, at+".within", "is %v; expected a share, 0 to 1",
			c.Within)
	}
}

func (w *wrong) bars() {
	for _, bar := range []struct {
		key   string
		share float64
	}{{"lower_bound", w.Bars.LowerBound}, {"ratio", w.Bars.Ratio}, {"hits", w.Bars.Hits},
		{"seconds", w.Bars.Seconds}, {"receivers", w.Bars.Receivers}, {"uses", w.Bars.Uses}} {
		w.must(bar.share >= 0 && bar.share <= 1, "bars."+bar.key, "is %v; expected a share, 0 to 1",
			bar.share)
	}
	for i, name := range w.Bars.Ranking {
		key := fmt.Sprintf("bars.ranking[%d]", i)
		w.must(w.row(name), key, "is %q; expected a row", name)
		w.must(!slices.Contains(w.Bars.Ranking[:i], name), key,
			"is %q a second time; expected each row once", name)
	}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
