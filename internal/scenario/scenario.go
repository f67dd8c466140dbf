// Package scenario reads the files that describe what is simulated, runs them, and judges what came
// out by the published numbers that stand in the same file.
//
// A file names its engine: "model" is a cluster of nodes in step, as NoPFS's performance model has
// it; "pump" is one node that runs the daemon's own decisions; "ring" is what happens to a lost
// node's samples; "uses" is how often a node reads them. Everything else in it is the machines, the
// job, and what others have published of them. Files are read strictly: what is unknown, missing or
// absurd is refused with its line.
//
// Runs are deterministic: equal files give equal reports, whatever runs beside them.
package scenario

import (
	"slices"

	"belady/internal/core/order"
	"belady/internal/core/policy"
	"belady/internal/sim/strategy"
	"belady/internal/yamlfile"
)

// The engines.
const (
	Model = "model"
	Pump  = "pump"
	Ring  = "ring"
	Uses  = "uses"
)

// Scenario is a file of one, as it was written and found sound.
type Scenario struct {
	Title     string    `yaml:"title"`
	Source    string    `yaml:"published_in"` // where the published numbers are from
	Notes     []string  `yaml:"notes"`        // what a reader of the results must know
	Engine    string    `yaml:"engine"`
	Seed      uint64    `yaml:"seed"`
	Dataset   Dataset   `yaml:"dataset"`
	Job       Job       `yaml:"job"`
	Nodes     Nodes     `yaml:"nodes"`
	Network   Network   `yaml:"network"`
	Origin    Origin    `yaml:"origin"`
	Rows      []Row     `yaml:"rows"` // what is compared; strategies is the short form
	Names     []string  `yaml:"strategies"`
	Failures  []Failure `yaml:"failures"`
	Sweep     Sweep     `yaml:"sweep"`
	Trials    Trials    `yaml:"trials"`
	Published Published `yaml:"published"`
	Claims    []Claim   `yaml:"claims"`
	Bars      Bars      `yaml:"bars"`
	places    *yamlfile.Places
}

// Dataset is how many samples there are and how large.
type Dataset struct {
	Samples int  `yaml:"samples"`
	Size    Size `yaml:"size"`
}

// Size is a normal distribution, cut off at zero.
type Size struct {
	Mean      yamlfile.Bytes `yaml:"mean"`
	Deviation yamlfile.Bytes `yaml:"deviation"`
}

// Job is what reads the dataset.
type Job struct {
	Epochs   int    `yaml:"epochs"`
	Batch    int    `yaml:"batch"` // over all nodes
	Order    string `yaml:"order"`
	DropLast bool   `yaml:"drop_last"`
	Count    int    `yaml:"count"` // jobs alike, each with a seed of its own; 0 means 1
}

// Nodes is the machines, all alike.
type Nodes struct {
	Count      int           `yaml:"count"`
	Compute    yamlfile.Rate `yaml:"compute"`    // what training takes of a node
	Preprocess yamlfile.Rate `yaml:"preprocess"` // what a thread decodes and stores
	Staging    Tier          `yaml:"staging"`
	Tiers      []Tier        `yaml:"tiers"`
}

// Tier is a place of a node.
type Tier struct {
	Name     string         `yaml:"name"`
	Capacity yamlfile.Bytes `yaml:"capacity"`
	Threads  int64          `yaml:"threads"`
	Read     []ThreadRate   `yaml:"read"`
	Write    []ThreadRate   `yaml:"write"`
}

// ThreadRate is what so many threads get together.
type ThreadRate struct {
	Threads int64         `yaml:"threads"`
	Rate    yamlfile.Rate `yaml:"rate"`
}

// Network is the links of a node.
type Network struct {
	Peers  yamlfile.Rate `yaml:"peers"`
	Origin yamlfile.Rate `yaml:"origin"`
}

// Origin is what all nodes share.
type Origin struct {
	Share       string            `yaml:"share"`
	Readers     []ReaderRate      `yaml:"readers"`
	Latency     yamlfile.Duration `yaml:"latency"`
	Concurrency int               `yaml:"concurrency"`
}

// ReaderRate is what so many reading nodes get together.
type ReaderRate struct {
	At   int64         `yaml:"at"`
	Rate yamlfile.Rate `yaml:"rate"`
}

// How an origin is shared: each thread gets a node's share, as NoPFS's model has it, or all threads
// divide one pipe.
const (
	ShareThread = "thread"
	ShareBytes  = "bytes"
)

// Row is one line of the result: a strategy (model) or a policy (pump), on tiers of its own where
// it gives any, from an origin of its own rate (pump), and with an end of its own to the scenario's
// failures (model).
type Row struct {
	Name   string        `yaml:"name"`
	Use    string        `yaml:"use"`
	Tiers  []Tier        `yaml:"tiers"`
	Origin yamlfile.Rate `yaml:"origin"`
	Then   string        `yaml:"then"`
}

// Failure takes a node's tiers away.
type Failure struct {
	Node  int     `yaml:"node"`
	Epoch float64 `yaml:"epoch"` // 1.5: in the middle of the second
	Then  string  `yaml:"then"`
}

// What becomes of the samples that a failure loses; in a row never means that none happens.
const (
	Refill = "refill"
	Bypass = "bypass"
	Never  = "never"
)

// Sweep runs every row at several sizes: a grid of ram and ssd, or shares of the dataset kept in
// ram.
type Sweep struct {
	Ram  []yamlfile.Bytes `yaml:"ram"`
	Ssd  []yamlfile.Bytes `yaml:"ssd"`
	Kept []float64        `yaml:"kept"`
}

// Trials are what the engines ring and uses count: what becomes of a lost node's samples with so
// many points a node, Count times; or how many samples a node uses more than Above times.
type Trials struct {
	Points []int `yaml:"points"`
	Count  int   `yaml:"count"`
	Above  int   `yaml:"above"`
}

// Published is what others printed.
type Published struct {
	Seconds map[string]float64 `yaml:"seconds"` // by row
	Points  []Point            `yaml:"points"`  // of a sweep or of trials
	Uses    float64            `yaml:"uses"`    // samples that are used more than Trials.Above times
}

// Point is one published value of a sweep or of trials.
type Point struct {
	Row       string         `yaml:"row"`
	Ram       yamlfile.Bytes `yaml:"ram"`
	Ssd       yamlfile.Bytes `yaml:"ssd"`
	Kept      float64        `yaml:"kept"`
	Points    int            `yaml:"points"`
	Seconds   float64        `yaml:"seconds"`
	Hits      float64        `yaml:"hits"`
	Receivers float64        `yaml:"receivers"`
}

// Claim is a published ratio of two rows' times: Of takes Is times as long as Over. Over may be
// "best", the fastest row that is neither a bound nor ours. Without Within it is shown, not judged.
type Claim struct {
	Of     string  `yaml:"of"`
	Over   string  `yaml:"over"`
	Is     float64 `yaml:"is"`
	Within float64 `yaml:"within"`
}

// best stands in a claim for the fastest row.
const best = "best"

// perfect is the strategy that every other is divided by; belady is the one nobody published.
const (
	perfect = "perfect"
	belady  = "belady"
)

// Bars are how far ours may be from what was published; zero means that nothing is judged.
type Bars struct {
	LowerBound float64  `yaml:"lower_bound"` // of perfect's seconds, as a share
	Ratio      float64  `yaml:"ratio"`       // of the other rows' ratio to perfect, as a share
	Hits       float64  `yaml:"hits"`        // of hit ratios, as they are
	Seconds    float64  `yaml:"seconds"`     // of a sweep's seconds, as a share
	Receivers  float64  `yaml:"receivers"`   // of what points at random places give, as a share
	Uses       float64  `yaml:"uses"`        // of the samples used often, as a share
	Ranking    []string `yaml:"ranking"`     // rows from the fastest on
}

// Load reads a scenario's file.
func Load(path string) (*Scenario, error) {
	var s Scenario
	places, err := yamlfile.Read(path, &s)
	if err != nil {
		return nil, err
	}
	return s.settle(places)
}

// Decode reads a scenario's text; path is what problems are said to be in.
func Decode(path string, text []byte) (*Scenario, error) {
	var s Scenario
	places, err := yamlfile.Decode(path, text, &s)
	if err != nil {
		return nil, err
	}
	return s.settle(places)
}

// settle checks the file and fills in what follows from the rest.
func (s *Scenario) settle(places *yamlfile.Places) (*Scenario, error) {
	s.places = places
	if s.Engine == "" {
		s.Engine = Model
	}
	if s.Job.Order == "" {
		s.Job.Order = order.Distributed
	}
	if s.Origin.Share == "" {
		s.Origin.Share = ShareThread
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, name := range s.Names {
		s.Rows = append(s.Rows, Row{Name: name, Use: name})
	}
	return s, nil
}

// known are the strategies or policies of the engine.
func (s *Scenario) known() []string {
	if s.Engine == Pump {
		return policy.Names()
	}
	return strategy.Names()
}

// row finds a row by name.
func (s *Scenario) row(name string) bool {
	return slices.ContainsFunc(s.Rows, func(r Row) bool { return r.Name == name }) ||
		slices.Contains(s.Names, name)
}
