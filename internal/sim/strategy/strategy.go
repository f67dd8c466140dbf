// Package strategy is NoPFS's performance model in virtual time: nodes that train in step, each
// with threads that read ahead into its staging, tiers that are filled beside them, and one origin
// that all of them share. Belady's own row stands beside those of the systems it is compared with.
//
// The decisions of other systems are theirs and are written here; Belady's homes come from
// core/plan. A run is one goroutine's, draws nothing but from the scenario's seed, and adds floats
// in one fixed order, so equal scenarios give equal results. It reads no clock and no store; which
// of the model's rules were chosen to fit the published table is said in docs/model.md.
package strategy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"belady/internal/core/order"
	"belady/internal/core/perf"
)

// Engine names this model in results, beside the others that a scenario can be run by.
const Engine = "model"

// MaxNodes bounds the cluster: who has a sample is a bit each in one word, beside a few others.
const MaxNodes = 59

// Cluster is the machines. Rates are bytes a second.
type Cluster struct {
	Nodes      int
	Compute    float64     // what a node's training takes
	Preprocess float64     // what one thread decodes and stores; 0: it costs nothing
	Staging    perf.Tier   // its Threads read ahead
	Tiers      []perf.Tier // the fastest first; each is filled by Threads of its own
	Peers      float64     // from one node's tier to another node; 0: nodes serve each other nothing
	OriginLink float64     // the most that one thread gets of the origin; 0: no limit
	Origin     perf.Curve  // of all readers together, by the nodes that read at the same time
	// Shared makes the origin one pipe that all threads divide. Without it every thread gets the
	// share of a node, as NoPFS's model has it: more threads then are more bytes a second.
	Shared bool
}

// Job is what is trained: rank i of its order runs on node i, with compute, staging and threads of
// its own. Jobs share the origin and the tiers.
type Job struct {
	Order  order.Spec
	Epochs int
	Sizes  []uint32 // bytes of each sample
}

// Failure takes away what a node's tiers hold, at a point of the first job in epochs (1.5 is the
// middle of the second); its ranks go on. What was lost comes from the origin from then on; with
// Refill other nodes keep what is lost by then as it is read again, where they have room.
type Failure struct {
	Node   int
	At     float64
	Refill bool
}

// Scenario is what is simulated.
type Scenario struct {
	Cluster
	Jobs     []Job
	Failures []Failure
	// Progress, if given, is told now and then how many samples of all were read. False ends the
	// run with ErrStopped.
	Progress func(done, all int64) bool
}

// ErrStopped means that Progress ended a run.
var ErrStopped = errors.New("stopped")

// Place is where a sample was read from.
type Place uint8

// The places. A tier named "ram" is Ram, every other Ssd; both are the reader's own.
const (
	Origin Place = iota
	Peer
	Ram
	Ssd
	Places
)

func (p Place) String() string {
	return [Places]string{"origin", "peer", "ram", "ssd"}[p]
}

// Result is what a strategy made of a scenario.
type Result struct {
	Strategy, Engine string
	// Unsupported says why the strategy cannot run the scenario at all; the rest is then empty.
	Unsupported string
	Note        string // what a reader of the figures must know
	Seconds     float64
	Prestage    float64         // of Seconds, before the first batch could be read
	Stall       float64         // of Seconds, what batches took beyond prestaging and computing
	Epochs      []float64       // each epoch's seconds, prestaging not counted
	Jobs        []JobResult     // Seconds, Stall and Epochs are of the last to end
	Bytes       [Places]int64   // what the nodes' training was given, by where it came from
	Busy        [Places]float64 // seconds that threads spent on it, all added up
	Filled      int64           // read from the origin besides, to fill tiers
}

// JobResult is what became of one job.
type JobResult struct {
	Seconds, Stall float64 // prestaging not counted
	Epochs         []float64
	// What different samples take that each epoch reads, and that all do: perfect's only.
	distinct []int64
	ever     int64
}

// end makes the job that ends last the result's.
func (r *Result) end() {
	var last JobResult
	for _, job := range r.Jobs {
		if job.Seconds >= last.Seconds {
			last = job
		}
	}
	r.Seconds, r.Stall, r.Epochs = r.Prestage+last.Seconds, last.Stall, last.Epochs
}

// OriginBytes is all that the origin sent.
func (r *Result) OriginBytes() int64 { return r.Bytes[Origin] + r.Filled }

// Strategy is a row of Table.
type Strategy struct {
	Name    string
	Summary string
	several bool // jobs at once; the others are systems of one job
	run     func(s *setting) (Result, error)
}

// Table is every strategy.
var Table = []Strategy{
	{"perfect", "every sample is there when it is wanted: the lower bound", true, perfect},
	{"naive", "each sample from the origin when it is wanted, one by one", true, naive},
	{"staging", "from the origin, ahead of use, in order", true, staging},
	{"deepio-ordered", "a shard in each node's ram; what is in none blocks", false, deepioOrdered},
	{"deepio-opportunistic", "a shard in each node's ram; nothing else is read", false, deepioAny},
	{"parallel-staging", "a shard on each node, which reads nothing else", false, parallelStaging},
	{"lbann-dynamic", "each node's ram keeps what it read in the first epoch", false, lbannDynamic},
	{"lbann-preload", "all samples in the nodes' ram before the first epoch", false, lbannPreload},
	{"locality-aware", "samples stay; batches go where their samples are", false, localityAware},
	{"nopfs", "each node keeps what it uses most, filled in order of use", false, nopfs},
	{"belady", "each sample has one home while the pool is short", true, belady},
}

// Names lists the strategies in the order of Table.
func Names() []string {
	names := make([]string, len(Table))
	for i, s := range Table {
		names[i] = s.Name
	}
	return names
}

// Run simulates the scenario under one strategy. An error is the scenario's; a strategy that
// cannot run a sound scenario says so in the result.
func Run(s *Scenario, name string) (Result, error) {
	at := slices.IndexFunc(Table, func(t Strategy) bool { return t.Name == name })
	if at < 0 {
		return Result{}, fmt.Errorf("strategy %q is unknown: use one of %s", name,
			strings.Join(Names(), ", "))
	}
	set, err := settle(s)
	if err != nil {
		return Result{}, err
	}
	var result Result
	if row := Table[at]; len(s.Jobs) > 1 && !row.several {
		result.Unsupported = fmt.Sprintf("%s knows one job, and there are %d", name, len(s.Jobs))
	} else {
		result, err = row.run(set)
	}
	result.Strategy, result.Engine = name, Engine
	return result, err
}
