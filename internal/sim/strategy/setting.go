package strategy

import (
	"fmt"
	"slices"

	"belady/internal/core/sample"
)

// setting is a checked scenario, with what every strategy asks of it worked out: seconds a byte
// in place of rates, so that a limit that is not there is a zero.
type setting struct {
	*Scenario
	sizes   []uint32    // of the samples of all datasets, one after the other
	bases   []sample.ID // where each job's dataset begins
	bytes   int64       // of all samples
	compute float64     // seconds a byte
	store   float64     // seconds a byte that a thread needs to decode and store
	threads int         // that read ahead on each node
	slope   []float64   // bytes a second of one thread, by the nodes that read the origin
	options []option    // other sources than the origin, the fastest first
	places  []Place     // of each tier
	runs    int64       // that the strategy makes of the scenario
	ran     int64       // of them
}

// progress tells how far the strategy is.
func (s *setting) progress(done, all int64) error {
	if s.Progress != nil && !s.Progress((s.ran*all+done)/s.runs, all) {
		return ErrStopped
	}
	return nil
}

// option is a source to choose: a tier, the node's own or a peer's.
type option struct {
	tier  int
	own   bool
	rate  float64 // bytes a second of one thread
	place Place
}

func settle(s *Scenario) (*setting, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	set := &setting{Scenario: s, compute: 1 / s.Compute, runs: 1,
		threads: int(max(s.Staging.Threads, 1))}
	set.gather()
	for _, size := range set.sizes {
		set.bytes += int64(size)
	}
	if s.Preprocess > 0 {
		set.store = 1 / s.Preprocess
	}
	if written := s.Staging.Read.Rate(int64(set.threads)); written > 0 {
		set.store = max(set.store, float64(set.threads)/float64(written))
	}
	set.slope = make([]float64, s.Nodes+1)
	for readers := 1; readers <= s.Nodes; readers++ {
		set.slope[readers] = s.limit(float64(s.Origin.Rate(int64(readers))) / float64(readers))
	}
	set.rank()
	return set, nil
}

// gather puts the jobs' datasets one after the other. Jobs given the same list of sizes read the
// same dataset.
func (s *setting) gather() {
	if len(s.Jobs) == 1 {
		s.sizes, s.bases = s.Jobs[0].Sizes, []sample.ID{0}
		return
	}
	for i, job := range s.Jobs {
		same := slices.IndexFunc(s.Jobs[:i], func(j Job) bool { return &j.Sizes[0] == &job.Sizes[0] })
		if same >= 0 {
			s.bases = append(s.bases, s.bases[same])
			continue
		}
		s.bases = append(s.bases, sample.ID(len(s.sizes)))
		s.sizes = append(s.sizes, job.Sizes...)
	}
}

// limit is a thread's rate through its node's link to the origin.
func (c *Cluster) limit(rate float64) float64 {
	if c.OriginLink > 0 {
		return min(rate, c.OriginLink)
	}
	return rate
}

// rank lists the sources by what one thread gets of them; of equals the node's own comes first.
func (s *setting) rank() {
	for i, t := range s.Tiers {
		place := Ssd
		if t.Name == "ram" {
			place = Ram
		}
		s.places = append(s.places, place)
		rate := float64(t.Read.Rate(s.fillers(i))) / float64(s.fillers(i))
		s.insert(option{i, true, rate, place})
		if s.Peers > 0 && s.Nodes > 1 {
			s.insert(option{i, false, min(rate, s.Peers), Peer})
		}
	}
}

func (s *setting) insert(o option) {
	at := len(s.options)
	for at > 0 && s.options[at-1].rate < o.rate {
		at--
	}
	s.options = append(s.options, option{})
	copy(s.options[at+1:], s.options[at:])
	s.options[at] = o
}

// fillers is how many threads a tier is read and filled by.
func (s *setting) fillers(tier int) int64 { return max(s.Tiers[tier].Threads, 1) }

// least is what one thread gets of the origin when all nodes read it: what a source is compared
// with, because who reads at the moment is not known to a node.
func (s *setting) least() float64 {
	if s.Shared {
		return s.slope[s.Nodes] / float64(s.threads)
	}
	return s.slope[s.Nodes]
}

func (s *setting) size(id sample.ID) int64 { return int64(s.sizes[id]) }

// check refuses what the model cannot run. Files have said more about it, with the line.
func (s *Scenario) check() error {
	switch {
	case s.Nodes < 1 || s.Nodes > MaxNodes:
		return fmt.Errorf("the model runs 1 to %d nodes, not %d", MaxNodes, s.Nodes)
	case !(s.Compute > 0):
		return fmt.Errorf("compute is %v bytes a second; expected more than 0", s.Compute)
	case s.Preprocess < 0 || s.Peers < 0 || s.OriginLink < 0:
		return fmt.Errorf("a rate is below 0; expected 0, for no limit, or more")
	case s.Staging.Capacity <= 0:
		return fmt.Errorf("staging is %d bytes; expected more than 0", s.Staging.Capacity)
	case len(s.Jobs) == 0:
		return fmt.Errorf("there is no job; expected one at least")
	}
	if err := s.Origin.Validate(); err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	for _, t := range s.Tiers {
		if t.Capacity <= 0 {
			return fmt.Errorf("tier %s is %d bytes; expected more than 0", t.Name, t.Capacity)
		}
		if err := t.Read.Validate(); err != nil {
			return fmt.Errorf("tier %s: %w", t.Name, err)
		}
	}
	samples := 0
	for i := range s.Jobs {
		if err := s.Jobs[i].check(s.Nodes); err != nil {
			return err
		}
		samples += len(s.Jobs[i].Sizes)
	}
	if samples > sample.MaxCount {
		return fmt.Errorf("%d samples in all; expected at most %d", samples, int64(sample.MaxCount))
	}
	return s.checkFailures()
}

func (j *Job) check(nodes int) error {
	switch {
	case j.Epochs < 1:
		return fmt.Errorf("epochs is %d; expected 1 or more", j.Epochs)
	case j.Order.Ranks() != nodes:
		return fmt.Errorf("the order has %d ranks; the model runs one on each of %d nodes",
			j.Order.Ranks(), nodes)
	case !j.Order.Known():
		return fmt.Errorf("order %s is known only as it is sent; the model needs one it can compute",
			j.Order.Kind)
	case len(j.Sizes) != j.Order.Samples:
		return fmt.Errorf("%d sizes for %d samples: give one a sample", len(j.Sizes),
			j.Order.Samples)
	}
	return j.Order.Validate()
}
