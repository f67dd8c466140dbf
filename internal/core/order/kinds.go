package order

import (
	"fmt"

	"belady/internal/core/order/torch"
	"belady/internal/core/sample"
)

// The kinds by name. A name is a contract with a framework; docs/format/order.md states each.
const (
	Sequential  = "sequential"
	Random      = "torch-random"
	Distributed = "torch-distributed"
	Replacement = "torch-replacement"
	Weighted    = "torch-weighted"
	Torchdata   = "torchdata"
	Accelerate  = "accelerate"
	Explicit    = "explicit"
)

// reads are the groups of optional Spec fields a kind takes into account.
type reads uint

const (
	readsBatch reads = 1 << iota
	readsStride
	readsShuffle
	readsDraws
	readsGenerator
	readsWeights
	readsAccelerate
)

// A Kind is one row of Kinds.
type Kind struct {
	Name    string
	Summary string
	// Repeats says that an epoch draws with replacement, or may.
	Repeats bool

	reads reads
	check func(*Spec) error
	make  func(Spec) (Order, error)
}

// Kinds is every order there is.
var Kinds = []Kind{
	{Name: Sequential, Summary: "0, 1, 2, … in every epoch",
		reads: readsBatch | readsStride, check: noCheck, make: makeStrided},
	{Name: Random, Summary: "RandomSampler with a known generator",
		reads: readsBatch | readsStride | readsDraws | readsGenerator,
		check: noCheck, make: makeStrided},
	{Name: Distributed, Summary: "DistributedSampler: seed + epoch, padded, strided by rank",
		reads: readsBatch | readsStride | readsShuffle, check: noCheck, make: makeStrided},
	{Name: Replacement, Summary: "RandomSampler(replacement=True) with a known generator",
		Repeats: true, reads: readsBatch | readsStride | readsDraws | readsGenerator,
		check: noCheck, make: makeStrided},
	{Name: Weighted, Summary: "WeightedRandomSampler with replacement and a known generator",
		Repeats: true,
		reads:   readsBatch | readsStride | readsDraws | readsGenerator | readsWeights,
		check:   checkWeighted, make: makeStrided},
	{Name: Torchdata, Summary: "StatefulDataLoader's RandomSampler with a known generator",
		reads: readsBatch | readsStride | readsDraws | readsGenerator,
		check: checkTorchdata, make: makeStrided},
	{Name: Accelerate, Summary: "SeedableRandomSampler, batches dealt by BatchSamplerShard",
		reads: readsBatch | readsShuffle | readsAccelerate,
		check: checkAccelerate, make: makeDealt},
	{Name: Explicit, Summary: "lists sent by the client as it draws them",
		Repeats: true, check: noCheck, make: makeExplicit},
}

// Names lists the kinds' names in the order of Kinds.
func Names() []string {
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = k.Name
	}
	return names
}

func find(name string) (Kind, bool) {
	for _, k := range Kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

func noCheck(*Spec) error { return nil }

func checkWeighted(s *Spec) error {
	switch {
	case s.Samples > torch.MaxCategories:
		return fmt.Errorf("samples is %d: torch.multinomial takes at most %d weights",
			s.Samples, torch.MaxCategories)
	case s.Length() < 2:
		return fmt.Errorf("draws is %d: PyTorch draws a single sample by another rule "+
			"that cannot be reproduced; draw at least 2", s.Length())
	case s.Weights != nil && len(s.Weights) != s.Samples:
		return fmt.Errorf("%d weights for %d samples: give one a sample",
			len(s.Weights), s.Samples)
	}
	return nil
}

func checkTorchdata(s *Spec) error {
	if s.Draws > s.Samples {
		return fmt.Errorf("draws is %d of %d samples: beyond one permutation an epoch "+
			"torchdata's order is not modelled; send it as kind explicit", s.Draws, s.Samples)
	}
	return nil
}

func checkAccelerate(s *Spec) error {
	if s.SplitBatches && s.Batch%s.Ranks() != 0 {
		return fmt.Errorf("batch %d is not a multiple of world %d, as split_batches needs",
			s.Batch, s.Ranks())
	}
	return nil
}

// filler writes one epoch's permutation P into dst, whose length is Spec.Length.
type filler func(epoch int, dst []sample.ID)

func makeFiller(s Spec) (filler, error) {
	rules, err := torch.RulesOf(s.Torch)
	if err != nil {
		return nil, err
	}
	switch s.Kind {
	case Distributed, Accelerate:
		if s.NoShuffle {
			return fillSequential, nil
		}
		return func(epoch int, dst []sample.ID) {
			// Accelerate and DistributedSampler both seed a fresh generator every epoch.
			g := torch.Seeded(s.Seed + int64(epoch))
			torch.Randperm(&g, rules, dst)
		}, nil
	case Random, Replacement, Weighted, Torchdata:
		return makeChained(s, rules)
	}
	return fillSequential, nil
}

func fillSequential(_ int, dst []sample.ID) {
	for i := range dst {
		dst[i] = sample.ID(i)
	}
}
