package scenario_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belady/internal/scenario"
)

// small is a sound scenario of the model, small enough to run in a test.
const small = `title: a test
engine: model
seed: 1
dataset: {samples: 1000, size: {mean: 10KB, deviation: 1KB}}
job: {epochs: 3, batch: 100, drop_last: true}
nodes:
  count: 4
  compute: 100MB/s
  preprocess: 200MB/s
  staging: {capacity: 1MB, threads: 2}
  tiers:
    - {name: ram, capacity: 1MB, threads: 2, read: [{threads: 1, rate: 16GB/s}]}
    - {name: ssd, capacity: 2MB, threads: 2,
       read: [{threads: 1, rate: 66MB/s}, {threads: 2, rate: 86MB/s}]}
network: {peers: 10GB/s, origin: 2GB/s}
origin: {readers: [{at: 1, rate: 66MB/s}, {at: 4, rate: 146MB/s}]}
strategies: [perfect, naive, nopfs]
published: {seconds: {perfect: 0.1, naive: 0.4}}
bars: {lower_bound: 0.9, ratio: 0.9}
`

// sweptSmall is small at one size, with what was published of it.
var sweptSmall = strings.Replace(small, "published: {seconds: {perfect: 0.1, naive: 0.4}}",
	"sweep: {ram: [1MB]}\npublished:\n  points: [{row: nopfs, ram: 1MB, seconds: 1}]", 1)

// node is a sound scenario of the pump.
const node = `title: a node
engine: pump
dataset: {samples: 2000, size: {mean: 10KB}}
job: {epochs: 3, batch: 20}
nodes:
  count: 1
  compute: 1GB/s
  staging: {capacity: 2MB}
  tiers: [{name: ram, capacity: 10MB, read: [{threads: 1, rate: 10GB/s}]}]
origin: {readers: [{at: 1, rate: 100MB/s}], latency: 1ms, concurrency: 16}
strategies: [spread, lru]
sweep: {kept: [0.2, 0.5]}
`

const ringFile = `title: a ring
engine: ring
dataset: {samples: 4096}
nodes: {count: 16}
trials: {points: [10, 100], count: 20}
published: {points: [{points: 10, receivers: 3}]}
bars: {receivers: 0.2}
`

const usesFile = `title: uses
engine: uses
dataset: {samples: 1000}
job: {epochs: 300}
nodes: {count: 4}
trials: {above: 82}
published: {uses: 160}
bars: {uses: 0.3}
`

// Each file differs from a sound one in one thing; the refusal names the file, the line of that
// thing, and what is expected in its place.
func TestBadInput(t *testing.T) {
	for name, bad := range map[string]struct{ from, old, new, says string }{
		"unknown key":        {small, "seed: 1", "sead: 1", ":3: there is no setting sead; expected"},
		"unknown key inside": {small, "threads: 2}", "thread: 2}", ":10: there is no setting thread"},
		"a key twice":        {small, "seed: 1", "seed: 1\nseed: 2", ":4: "},
		"two documents":      {small, "bars:", "---\nbars:", "second"},
		"not YAML":           {small, "seed: 1", "seed: [", "not YAML"},
		"no title":           {small, "title: a test\n", "", "title is missing"},
		"engine": {small, "engine: model", "engine: magic",
			`:2: engine is "magic"; expected model, pump`},
		"no samples":       {small, "samples: 1000", "samples: 0", ":4: dataset.samples is 0; expected"},
		"negative samples": {small, "samples: 1000", "samples: -5", ":4: dataset.samples is -5"},
		"absurd samples":   {small, "samples: 1000", "samples: 99999999999", ":4: dataset.samples"},
		"fraction of samples": {small, "samples: 1000", "samples: 10.5",
			":4: `10.5` stands where a whole"},
		"no size":        {small, "mean: 10KB, ", "", ":4: dataset.size.mean is 0 bytes; expected"},
		"absurd size":    {small, "mean: 10KB", "mean: 9EB", ":4: dataset.size.mean"},
		"negative size":  {small, "mean: 10KB", "mean: -10KB", ":4: size \"-10KB\" is not"},
		"wild deviation": {small, "deviation: 1KB", "deviation: 1GB", ":4: dataset.size.deviation"},
		"no epochs":      {small, "epochs: 3", "epochs: 0", ":5: job.epochs is 0"},
		"absurd epochs":  {small, "epochs: 3", "epochs: 99999999", ":5: job.epochs"},
		"no batch":       {small, "batch: 100, ", "", ":5: job.batch is 0"},
		"huge batch":     {small, "batch: 100", "batch: 4000", ":5: job.batch is 4000; expected 1"},
		"uneven batch": {small, "batch: 100", "batch: 101",
			":5: job.batch is 101; expected a multiple"},
		"order":              {small, "batch: 100", "batch: 100, order: mine", `:5: job.order is "mine"`},
		"order of a program": {small, "batch: 100", "batch: 100, order: explicit", ":5: job.order"},
		"too many jobs":      {small, "batch: 100", "batch: 100, count: 65", ":5: job.count is 65"},
		"no nodes":           {small, "count: 4", "count: 0", ":7: nodes.count is 0; engine model takes"},
		"many nodes":         {small, "count: 4", "count: 100", ":7: nodes.count is 100"},
		"no compute": {small, "  compute: 100MB/s\n", "",
			"nodes.compute is missing; expected the rate"},
		"compute no rate": {small, "compute: 100MB/s", "compute: 100MB",
			`:8: rate "100MB" is not bytes a second`},
		"zero rate": {small, "compute: 100MB/s", "compute: 0MB/s", ":8: nodes.compute"},
		"no staging": {small, "capacity: 1MB, threads: 2}\n  t", "threads: 2}\n  t",
			":10: nodes.staging.capacity"},
		"no staging threads": {small, "threads: 2}\n  t", "threads: 0}\n  t",
			":10: nodes.staging.threads is 0"},
		"zero capacity": {small, "ram, capacity: 1MB", "ram, capacity: 0B",
			":12: nodes.tiers[0].capacity is 0 bytes; expected more than zero"},
		"negative capacity": {small, "ram, capacity: 1MB", "ram, capacity: -1MB",
			":12: size \"-1MB\" is not"},
		"absurd capacity": {small, "ram, capacity: 1MB", "ram, capacity: 2EiB",
			":12: nodes.tiers[0].capacity"},
		"unknown tier": {small, "name: ram", "name: tape",
			`:12: nodes.tiers[0].name is "tape"; expected ram or ssd`},
		"a tier twice": {small, "name: ssd", "name: ram",
			`:13: nodes.tiers[1].name is "ram" a second time`},
		"no read rates": {small, ", read: [{threads: 1, rate: 16GB/s}]", "",
			":12: nodes.tiers[0].read is missing"},
		"missing rate": {small, "{threads: 1, rate: 16GB/s}", "{threads: 1}",
			":12: nodes.tiers[0].read[0]"},
		"falling points": {small, "{threads: 2, rate: 86MB/s}", "{threads: 1, rate: 86MB/s}",
			":14: nodes.tiers[1].read[1]"},
		"no readers": {small, "readers: [{at: 1, rate: 66MB/s}, {at: 4, rate: 146MB/s}]", "share: thread",
			"origin.readers is missing"},
		"falling readers": {small, "{at: 4,", "{at: 1,", ":16: origin.readers[1]"},
		"share": {small, "origin: {", "origin: {share: fair, ",
			`:16: origin.share is "fair"; expected thread or bytes`},
		"unknown strategy": {small, "naive, nopfs]", "naive, magic]",
			`:17: strategies[2] is "magic"; engine model knows perfect`},
		"a strategy twice": {small, "naive, nopfs]", "naive, naive]",
			`:17: strategies[2] is "naive" a second time`},
		"no strategies": {small, "strategies: [perfect, naive, nopfs]", "strategies: []",
			"strategies names 0"},
		"published of none": {small, "naive: 0.4", "belady: 0.4",
			":18: published.seconds.belady is of no row"},
		"published zero":     {small, "naive: 0.4", "naive: 0", ":18: published.seconds.naive is 0"},
		"published infinite": {small, "naive: 0.4", "naive: .inf", ":18: published.seconds.naive"},
		"wide bar":           {small, "ratio: 0.9", "ratio: 9", ":19: bars.ratio is 9; expected a share"},
		"ranking of none": {small, "ratio: 0.9", "ratio: 0.9, ranking: [lru]",
			`:19: bars.ranking[0] is "lru"`},
		"failure of none": {small, "bars:", "failures: [{node: 4, epoch: 1, then: refill}]\nbars:",
			":19: failures[0].node is 4"},
		"failure too late": {small, "bars:", "failures: [{node: 1, epoch: 3, then: refill}]\nbars:",
			":19: failures[0].epoch is 3"},
		"failure then what": {small, "bars:", "failures: [{node: 1, epoch: 1, then: cry}]\nbars:",
			`:19: failures[0].then is "cry"; expected refill or bypass`},
		"a row then what": {small, "bars:", "rows: [{name: x, use: nopfs, then: cry}]\nbars:",
			`:19: rows[0].then is "cry"; expected refill, bypass or never`},
		"claim of none": {small, "bars:", "claims: [{of: lru, over: best, is: 2}]\nbars:",
			`:19: claims[0].of is "lru"`},
		"claim of nothing": {small, "bars:", "claims: [{of: naive, over: best}]\nbars:",
			":19: claims[0].is is 0"},
		"falling sweep": {small, "bars:", "sweep: {ram: [2MB, 1MB]}\nbars:", ":19: sweep.ram[1]"},
		"huge sweep": {small, "bars:", "sweep: {ram: [" + strings.Repeat("1MB, ", 500) + "]}\nbars:",
			":19: sweep has 500 cells"},
		"two sweeps": {small, "bars:", "sweep: {ram: [1MB], kept: [0.5]}\nbars:",
			":19: sweep has shares and sizes"},
		"many nodes of pump": {node, "count: 1", "count: 2",
			":6: nodes.count is 2; engine pump takes 1"},
		"one epoch":        {node, "epochs: 3", "epochs: 1", ":4: job.epochs is 1; expected 2"},
		"no concurrency":   {node, ", concurrency: 16", "", ":10: origin.concurrency is 0"},
		"negative latency": {node, "latency: 1ms", "latency: -1ms", ":10: \"-1ms\" is not a time"},
		"unknown policy": {node, "lru]", "nopfs]",
			`:11: strategies[1] is "nopfs"; engine pump knows spread`},
		"share above one":  {node, "0.5]", "1.5]", ":12: sweep.kept[1] is 1.5"},
		"share of nothing": {node, "[0.2", "[0", ":12: sweep.kept[0] is 0"},
		"falling shares":   {node, "0.5]", "0.1]", ":12: sweep.kept[1] is 0.1"},
		"ring of one":      {ringFile, "count: 16", "count: 1", ":4: nodes.count is 1; expected 2"},
		"no trials":        {ringFile, "count: 20", "count: 0", ":5: trials.count is 0"},
		"no points":        {ringFile, "points: [10, 100], count", "count", "trials.points is missing"},
		"absurd points":    {ringFile, "100], count", "99999999], count", ":5: trials.points[1]"},
		"published no points": {ringFile, "points: 10, receivers", "points: 11, receivers",
			":6: published.points[0] is of nothing"},
		"a point without a number": {sweptSmall, ", seconds: 1}", "}",
			":20: published.points[0] has no number"},
		"a negative point": {sweptSmall, "seconds: 1}", "seconds: -4}",
			":20: published.points[0] has no number"},
		"a point of no size": {sweptSmall, "ram: 1MB, s", "ram: 2MB, s", ":20: published.points[0] is"},
		"a point's hits of the model": {sweptSmall, "seconds: 1}", "hits: 0.5}",
			":20: published.points[0].hits is nothing that engine model reads"},
		"hits and seconds": {node + "published: {points: [{row: lru, kept: 0.2, hits: 0.5}]}\n",
			"hits: 0.5", "hits: 0.5, seconds: 3", ":13: published.points[0] has no number"},
		"hits above one": {node + "published: {points: [{row: lru, kept: 0.2, hits: 0.5}]}\n",
			"hits: 0.5", "hits: 1.5", ":13: published.points[0] has no number"},
		"receivers of none": {ringFile, "receivers: 3", "receivers: 0", ":6: published.points[0] has"},
		"absurd staging": {small, "staging: {capacity: 1MB", "staging: {capacity: 9EB",
			":10: nodes.staging.capacity is"},
		"absurd sweep":   {small, "bars:", "sweep: {ram: [8EB]}\nbars:", ":19: sweep.ram[0]"},
		"absurd compute": {small, "compute: 100MB/s", "compute: 8EB/s", ":8: nodes.compute is"},
		"absurd link":    {small, "peers: 10GB/s", "peers: 8EB/s", ":15: network.peers is"},
		"absurd rate":    {small, "rate: 16GB/s", "rate: 8EB/s", ":12: nodes.tiers[0].read[0].rate is"},
		"absurd threads": {small, "threads: 1, rate: 16GB/s", "threads: 99999, rate: 16GB/s",
			":12: nodes.tiers[0].read[0].threads is 99999"},
		"absurd sum": {small, "ssd, capacity: 2MB", "ssd, capacity: 1EiB", ":7: nodes hold"},
		"absurd reading": {strings.Replace(small, "samples: 1000", "samples: 2000000000", 1),
			"epochs: 3", "epochs: 60000, count: 64", ":5: job reads about"},
		"an age": {strings.Replace(node, "1GB/s", "1B/s", 1), "2000,", "200000000,",
			":4: job may"},
		"absurd latency": {node, "latency: 1ms", "latency: 2h", ":10: origin.latency is 2h0m0s"},
		"latency of the model": {small, "origin: {", "origin: {latency: 1ms, ",
			":16: origin.latency is nothing that engine model reads"},
		"writes of the model": {small, "rate: 16GB/s}]}",
			"rate: 16GB/s}], write: [{threads: 1, rate: 1GB/s}]}",
			":12: nodes.tiers[0].write is nothing that engine model reads"},
		"network of pump": {node, "origin:", "network: {peers: 1GB/s}\norigin:",
			":10: network.peers is nothing that engine pump reads"},
		"preprocess of pump": {node, "  compute", "  preprocess: 1GB/s\n  compute",
			":7: nodes.preprocess is nothing"},
		"an origin of nothing": {node, "strategies: [spread, lru]",
			"rows: [{name: x, use: lru, origin: 0B/s}]", ":11: rows[0].origin is zero"},
		"a row's origin in the model": {small, "bars:",
			"rows: [{name: x, use: nopfs, origin: 1GB/s}]\nbars:", ":19: rows[0].origin is nothing"},
		"readers of pump": {node, "rate: 100MB/s}", "rate: 100MB/s}, {at: 2, rate: 150MB/s}",
			":10: origin.readers has more than {at: 1}"},
		"failures of pump": {node, "origin:", "failures: [{node: 0}]\norigin:", ":10: failures is"},
		"job of ring":      {ringFile, "nodes:", "job: {epochs: 3}\nnodes:", ":4: job.epochs is"},
		"size of ring":     {ringFile, "4096}", "4096, size: {mean: 1KB}}", ":3: dataset.size.mean is"},
		"rows of uses": {usesFile, "trials:", "strategies: [lru]\ntrials:",
			":6: strategies is nothing that engine uses reads"},
		"order of uses": {usesFile, "epochs: 300", "epochs: 300, order: mine", ":4: job.order is"},
		"ranking twice": {small, "ratio: 0.9", "ratio: 0.9, ranking: [nopfs, nopfs]",
			`:19: bars.ranking[1] is "nopfs" a second time`},
		"uses above epochs": {usesFile, "above: 82", "above: 300", ":6: trials.above is 300"},
	} {
		text := strings.Replace(bad.from, bad.old, bad.new, 1)
		if text == bad.from {
			t.Fatalf("%s: nothing is changed", name)
		}
		path := filepath.Join(t.TempDir(), "bad.yaml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := scenario.Load(path)
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		if said := err.Error(); !strings.HasPrefix(said, path) || !strings.Contains(said, bad.says) {
			t.Errorf("%s: refused by %q, expected %q", name, said, path+bad.says)
		}
	}
	if _, err := scenario.Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is not there is taken")
	}
}

// Whatever a file says, it is taken or refused with its name, and a small one that is taken runs
// and can be printed: never worse.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{small, sweptSmall, node, ringFile, usesFile, "", "title: [",
		"rows: [{}]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := scenario.Decode("some.yaml", text)
		if err != nil {
			if !strings.Contains(err.Error(), "some.yaml") {
				t.Errorf("refused without its name: %v", err)
			}
			return
		}
		cells, each, _ := s.Work(nil)
		points := slices.Max(append(s.Trials.Points, 0))
		if cells > 20 || each > 10_000 || s.Dataset.Samples > 10_000 || s.Nodes.Count > 20 ||
			points > 1000 {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := s.Run(ctx, scenario.Options{})
		if err != nil {
			return // what only a run can find: a batch that staging cannot hold
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("cannot be printed: %v", err)
		}
	})
}
