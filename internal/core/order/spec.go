package order

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"belady/internal/core/order/torch"
	"belady/internal/core/sample"
)

// Limits of a spec. They bound every product of fields well inside 64 bits, and no training run
// comes near them.
const (
	MaxWorld = 1 << 20
	MaxEpoch = 1<<24 - 1
)

// Spec is everything that decides who reads what and when: all of it crosses the wire, and equal
// specs give equal orders on every machine. Names follow PyTorch's.
type Spec struct {
	// Kind is one of Kinds: sequential, torch-random, torch-distributed, torch-replacement,
	// torch-weighted, torchdata, accelerate, explicit.
	Kind string `json:"kind"`
	// Torch is the rule set: "1.13", "2.6" or "2.14" (the default). Other versions map to the
	// newest rule set not newer than they are.
	Torch string `json:"torch,omitempty"`
	// Samples is the number of samples of the dataset the sampler sees.
	Samples int `json:"samples"`
	// Seed is DistributedSampler's seed, or the generator's for the other kinds.
	Seed int64 `json:"seed"`
	// World is the number of ranks; 0 means 1.
	World int `json:"world,omitempty"`
	// Batch and DropLast are the loader's batch size and drop_last. Explicit windows carry their
	// own batches and need neither.
	Batch    int  `json:"batch"`
	DropLast bool `json:"drop_last,omitempty"`
	// SamplerDropLast is DistributedSampler's own drop_last.
	SamplerDropLast bool `json:"sampler_drop_last,omitempty"`
	// NoShuffle is shuffle=False of DistributedSampler, or of a loader given to Accelerate.
	NoShuffle bool `json:"no_shuffle,omitempty"`
	// Draws is num_samples of RandomSampler and WeightedRandomSampler; 0 means Samples.
	Draws int `json:"draws,omitempty"`
	// SplitBatches and UnevenBatches are Accelerate's split_batches and even_batches=False.
	SplitBatches  bool `json:"split_batches,omitempty"`
	UnevenBatches bool `json:"uneven_batches,omitempty"`
	// LoaderGenerator says that the sampler's generator is also the loader's, as in
	// DataLoader(shuffle=True, generator=g): the loader then draws a base_seed from it every
	// epoch. Without it only the sampler draws, as in RandomSampler(dataset, generator=g).
	LoaderGenerator bool `json:"loader_generator,omitempty"`
	// PersistentWorkers is the loader's persistent_workers: with LoaderGenerator the base_seed
	// is then drawn in epoch 0 only.
	PersistentWorkers bool `json:"persistent_workers,omitempty"`
	// State is a live torch.Generator's get_state() (5056 bytes) in place of Seed, taken before
	// epoch 0 draws anything.
	State []byte `json:"state,omitempty"`
	// Weights are WeightedRandomSampler's, one a sample. They come from the dataset's members or
	// from the client, never inside the spec's JSON.
	Weights []float64 `json:"-"`
}

// Digest names the order: the first 8 bytes of the SHA-256 of the spec's JSON. Weights are no part
// of it, so orders drawn by weights have none: 0, and neither has an explicit one.
func (s *Spec) Digest() uint64 {
	text, err := json.Marshal(s)
	if err != nil || s.Weights != nil || !s.Known() {
		return 0
	}
	sum := sha256.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:])
}

// Ranks is World with its default applied.
func (s *Spec) Ranks() int { return max(s.World, 1) }

// Length is n of the contract: the entries of one epoch's permutation over all ranks, before
// padding. For explicit it is not known and this is Samples.
func (s *Spec) Length() int {
	if s.Draws > 0 {
		return s.Draws
	}
	return s.Samples
}

// Repeats says whether one epoch may read a sample more than once. Padding, which repeats fewer
// than World entries (with Accelerate fewer than World·Batch), does not count: it is no reason to
// keep a sample.
func (s *Spec) Repeats() bool {
	kind, ok := find(s.Kind)
	return ok && kind.Repeats || s.Draws > s.Samples
}

// Known says whether every future epoch can be computed now. Only explicit orders cannot.
func (s *Spec) Known() bool { return s.Kind != Explicit }

// Validate reports the first thing that keeps the spec from naming exactly one order. A field that
// its kind does not read is an error too: ignoring it would give an order the user did not ask for.
func (s *Spec) Validate() error {
	kind, ok := find(s.Kind)
	if !ok {
		return fmt.Errorf("order kind %q is unknown: use one of %s",
			s.Kind, strings.Join(Names(), ", "))
	}
	if _, err := torch.RulesOf(s.Torch); err != nil {
		return fmt.Errorf("order %s: %w", s.Kind, err)
	}
	if err := s.checkRanges(); err != nil {
		return fmt.Errorf("order %s: %w", s.Kind, err)
	}
	if err := s.checkUnread(kind); err != nil {
		return err
	}
	if err := kind.check(s); err != nil {
		return fmt.Errorf("order %s: %w", s.Kind, err)
	}
	return nil
}

func (s *Spec) checkRanges() error {
	switch {
	case s.Samples < 0:
		return fmt.Errorf("samples is %d: it cannot be negative", s.Samples)
	case s.Samples == 0:
		return fmt.Errorf("samples is 0: there is nothing to read; give the dataset's length")
	case s.Samples > sample.MaxCount:
		return fmt.Errorf("samples is %d: one dataset holds at most %d; split it",
			s.Samples, int64(sample.MaxCount))
	case s.World < 0 || s.World > MaxWorld:
		return fmt.Errorf("world is %d: it must be 1 to %d ranks", s.World, MaxWorld)
	case s.Batch < 1 && s.Kind != Explicit || s.Batch < 0:
		return fmt.Errorf("batch is %d: it must be at least 1", s.Batch)
	case s.Batch > sample.MaxCount:
		return fmt.Errorf("batch is %d: it must be at most %d", s.Batch, int64(sample.MaxCount))
	case s.Draws < 0 || s.Draws > sample.MaxCount:
		return fmt.Errorf("draws is %d: it must be 1 to %d, or 0 for one a sample",
			s.Draws, int64(sample.MaxCount))
	case s.PersistentWorkers && !s.LoaderGenerator:
		return fmt.Errorf("persistent_workers without loader_generator changes nothing: " +
			"set loader_generator, or leave both out")
	}
	return nil
}

// checkUnread refuses fields set for a kind that does not read them.
func (s *Spec) checkUnread(kind Kind) error {
	for _, f := range []struct {
		name  string
		group reads
		set   bool
	}{
		{"sampler_drop_last", readsStride, s.SamplerDropLast},
		{"no_shuffle", readsShuffle, s.NoShuffle},
		{"draws", readsDraws, s.Draws != 0},
		{"split_batches", readsAccelerate, s.SplitBatches},
		{"uneven_batches", readsAccelerate, s.UnevenBatches},
		{"loader_generator", readsGenerator, s.LoaderGenerator},
		{"state", readsGenerator, s.State != nil},
		{"weights", readsWeights, s.Weights != nil},
		{"drop_last", readsBatch, s.DropLast},
	} {
		if f.set && kind.reads&f.group == 0 {
			return fmt.Errorf("order %s does not use %s: leave it out, or use another kind",
				s.Kind, f.name)
		}
	}
	return nil
}
