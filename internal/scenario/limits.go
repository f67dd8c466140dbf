package scenario

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"belady/internal/core/perf"
	"belady/internal/yamlfile"
)

// Limits of a scenario. Beyond them a number is a slip of the pen, or sums of it overflow. Rates,
// capacities and latencies have those of a profile.
const (
	maxSamples  = 1 << 31
	maxBytes    = 1 << 62
	maxCapacity = 1 << 60
	maxRate     = 1e15 // bytes a second
	maxLatency  = 3600e9
	maxThreads  = 1 << 16
	maxSeconds  = 4e9 // a node's clock counts nanoseconds and ends at 9.2e9 seconds
	maxRing     = 1 << 20
	maxTrials   = 1 << 20
	maxRows     = 64
	maxSweep    = 400
)

// rate refuses a rate beyond reason; one that is left out is judged elsewhere.
func (w *wrong) rate(key string, rate yamlfile.Rate) {
	w.must(rate <= maxRate, key, "is %v; expected at most %v", rate, yamlfile.Rate(maxRate))
}

// curve checks points, naming the one that is wrong.
func (w *wrong) curve(key, at string, c perf.Curve, example string) {
	if len(c) == 0 {
		w.must(false, key, "is missing; expected a list of rates, such as [%s]", example)
		return
	}
	for i, step := range c {
		place := fmt.Sprintf("%s[%d]", key, i)
		sound := step.At >= 1 && step.Rate > 0 && (i == 0 || step.At > c[i-1].At)
		w.must(sound, place, "is %d at %v; expected points that rise from 1, with rates above "+
			"zero, such as %s", step.At, yamlfile.Rate(step.Rate), example)
		w.must(step.At <= maxThreads, place+"."+at, "is %d; expected at most %d", step.At, maxThreads)
		w.rate(place+".rate", yamlfile.Rate(step.Rate))
	}
}

// sums checks what is added up over nodes, epochs and jobs.
func (w *wrong) sums() {
	d, n := w.Dataset, w.Nodes
	reads := float64(d.Samples) * float64(w.Job.Epochs) * float64(w.Job.count())
	bytes := reads * (float64(d.Size.Mean) + float64(d.Size.Deviation))
	w.must(bytes < maxBytes, "job", "reads about %.3g bytes in all epochs; expected less than 2^62",
		bytes)
	pool := float64(n.Staging.Capacity)
	for _, t := range n.Tiers {
		pool += float64(t.Capacity)
	}
	for _, sizes := range [][]yamlfile.Bytes{w.Sweep.Ram, w.Sweep.Ssd} {
		if len(sizes) > 0 {
			pool += float64(sizes[len(sizes)-1])
		}
	}
	w.must(pool*float64(n.Count) < maxBytes, "nodes", "hold %.3g bytes together; expected less than "+
		"2^62", pool*float64(n.Count))
	if w.Engine != Pump || len(w.all) > 0 {
		return
	}
	slowest := float64(min(n.Compute, w.Origin.Readers[0].Rate))
	tiers := slices.Clone(n.Tiers)
	for _, r := range w.Rows {
		tiers = append(tiers, r.Tiers...)
		if r.Origin > 0 {
			slowest = min(slowest, float64(r.Origin))
		}
	}
	for _, t := range tiers {
		for _, step := range slices.Concat(t.Read, t.Write) {
			slowest = min(slowest, float64(step.Rate))
		}
	}
	took := bytes/slowest + reads*float64(w.Origin.Latency)/1e9
	w.must(took < maxSeconds, "job", "may take %.3g seconds; expected less than %.0g", took,
		maxSeconds)
}

// used are the keys that each engine reads; a name stands for all below it, [] for every place of
// a list.
var used = map[string][]string{
	Model: {"dataset", "job", "nodes.count", "nodes.compute", "nodes.preprocess",
		"nodes.staging.capacity", "nodes.staging.threads", "nodes.staging.read",
		"nodes.tiers[].name", "nodes.tiers[].capacity", "nodes.tiers[].threads",
		"nodes.tiers[].read", "network", "origin.share", "origin.readers", "rows[].name",
		"rows[].use", "rows[].then", "rows[].tiers[].name", "rows[].tiers[].capacity",
		"rows[].tiers[].threads", "rows[].tiers[].read", "strategies", "failures", "sweep.ram",
		"sweep.ssd", "published.seconds", "published.points[].row", "published.points[].ram",
		"published.points[].ssd", "published.points[].seconds", "claims", "bars.lower_bound",
		"bars.ratio", "bars.seconds", "bars.ranking"},
	Pump: {"dataset", "job", "nodes.count", "nodes.compute", "nodes.staging.capacity", "nodes.tiers",
		"origin.readers", "origin.latency", "origin.concurrency", "rows[].name", "rows[].use",
		"rows[].tiers", "rows[].origin", "strategies", "sweep", "published.seconds",
		"published.points[].row",
		"published.points[].ram", "published.points[].ssd", "published.points[].kept",
		"published.points[].seconds", "published.points[].hits", "claims", "bars.lower_bound",
		"bars.hits", "bars.seconds", "bars.ranking"},
	Ring: {"dataset.samples", "nodes.count", "trials.points", "trials.count",
		"published.points[].points", "published.points[].receivers", "bars.receivers"},
	Uses: {"dataset.samples", "job.epochs", "job.order", "job.drop_last", "nodes.count",
		"trials.above", "published.uses", "bars.uses"},
}

// unused refuses what the file says and the engine does not read: what is changed there would
// change nothing.
func (w *wrong) unused() {
	reads := append([]string{"title", "published_in", "notes", "engine", "seed"}, used[w.Engine]...)
	w.walk(reflect.TypeFor[Scenario](), "", "", reads)
}

// walk goes through the keys of a type; kind is key with [] for every place.
func (w *wrong) walk(t reflect.Type, key, kind string, reads []string) {
	for _, f := range reflect.VisibleFields(t) {
		name := f.Tag.Get("yaml")
		if name == "" {
			continue // places, which no file has
		}
		key, kind := strings.TrimPrefix(key+"."+name, "."), strings.TrimPrefix(kind+"."+name, ".")
		inside := func(read string) bool { return strings.HasPrefix(read, kind+"[].") }
		switch {
		case slices.Contains(reads, kind) || !w.places.Has(key):
		case f.Type.Kind() == reflect.Struct:
			w.walk(f.Type, key, kind, reads)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct &&
			slices.ContainsFunc(reads, inside):
			for i := 0; w.places.Has(fmt.Sprintf("%s[%d]", key, i)); i++ {
				w.walk(f.Type.Elem(), fmt.Sprintf("%s[%d]", key, i), kind+"[]", reads)
			}
		default:
			w.must(false, key, "is nothing that engine %s reads; expected it to be left out", w.Engine)
		}
	}
}

// Memory is about what a run needs: of every sample its size, and for each row that runs at the
// same time what the engine remembers of it, measured with 14 million samples.
func (s *Scenario) Memory() int64 {
	samples, nodes := int64(s.Dataset.Samples), int64(s.Nodes.Count)
	rows := min(int64(runtime.GOMAXPROCS(0)), int64(len(s.Rows)*len(s.cells())))
	switch s.Engine {
	case Ring:
		return 16 * samples
	case Uses:
		return samples * (16 + 9*nodes)
	case Pump:
		return samples * (4 + rows*60*int64(s.Job.count()))
	}
	return samples * (4 + rows*(40+4*nodes+12*int64(s.Job.count())))
}
