// Package plan decides where samples live: a pure function from a canonical input to a plan.
//
// Every node computes the same plan from the same input, so plans are never sent, only the digests
// of their inputs are compared. Nothing here uses floats, because architectures round differently.
package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"belady/internal/core/dataset"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// Version is part of the digest: it changes whenever Make would answer differently.
const Version = 2

// Input is everything a plan follows from.
type Input struct {
	Content [32]byte      // the dataset's content id
	Sizes   dataset.Sizes // sizes of that content
	Seed    uint64        // salts the sets: the job's, or one of the content where a log is kept
	Policy  string        // a name in policy.Table
	Keep    int64         // bytes of ram for kept samples, in the unit of Cost
	Staging int64         // bytes of staging
	Log     int64         // bytes of records that the log may hold, in RecordCost's unit; 0: no log
	LogMost uint32        // the largest sample that the log takes; 0: any
	Carry   bool          // what is read from the log is appended to it for the next epoch
	// Cost is what a sample of that size takes in the arena. It follows from the dataset's sizes
	// and Keep, so it needs no place in the digest. Nil means the size itself.
	Cost func(size uint32) int64
}

// Plan is where samples live on this node. It is immutable.
type Plan struct {
	Input
	Rule      policy.Policy
	salt      uint64
	equal     bool   // all samples have one size: no need to look it up
	size      uint32 // that size, if equal
	slot      int64  // its cost, if equal
	ram       set    // the spread set
	log       set
	SetCount  int   // samples in the spread set
	SetBytes  int64 // their bytes
	SetCost   int64 // what they take in the arena, ≤ Keep
	TotalCost int64 // what the whole dataset would take
	LogCount  int   // samples in the log's set
	LogBytes  int64 // their bytes
	LogCost   int64 // what their records take, ≤ Log
	LogAll    bool  // there is a log, and its set is every sample that it takes
}

// Make computes the plan.
func Make(in Input) (*Plan, error) {
	pol, err := policy.Find(in.Policy)
	if err != nil {
		return nil, err
	}
	if in.Keep < 0 || in.Staging <= 0 || in.Log < 0 {
		return nil, fmt.Errorf("plan needs staging: %d bytes to keep, %d of staging, %d of log",
			in.Keep, in.Staging, in.Log)
	}
	if in.Cost == nil {
		in.Cost = func(size uint32) int64 { return int64(size) }
	}
	p := &Plan{Input: in, Rule: pol, salt: saltOf(in.Seed)}
	p.spread()
	if p.Log > 0 {
		p.fillLog()
	}
	return p, nil
}

// spread chooses the set that ram keeps, from the bottom of the hashes.
func (p *Plan) spread() {
	f := filler{Plan: p, budget: p.Keep, cost: p.Cost}
	p.ram = f.fill()
	p.SetCount, p.SetBytes, p.SetCost = int(p.ram.count), p.ram.bytes, p.ram.cost
	p.TotalCost = f.total.cost
	if p.equal = !f.varied; p.equal && p.Sizes.Len() > 0 {
		p.size = p.Sizes.Size(0)
		p.slot = p.Cost(p.size)
	}
}

// fillLog chooses the set that the log keeps, from the top.
func (p *Plan) fillLog() {
	f := filler{Plan: p, budget: p.Log, cost: RecordCost, flip: flipped}
	if p.LogMost > 0 {
		f.most = RecordCost(p.LogMost)
	}
	p.log = f.fill()
	p.LogCount, p.LogBytes, p.LogCost = int(p.log.count), p.log.bytes, p.log.cost
	p.LogAll = p.log.bin == f.total
}

// Direct is the size from which on samples are read from a log straight to where they are lent
// from; they and their records are aligned to directBlock for it.
const (
	Direct      = 64 << 10
	directBlock = 4096
)

// RecordCost is what a sample of that size takes of a log: its record and its entry in a footer, as
// docs/format/log.md draws them.
func RecordCost(size uint32) int64 {
	const header, entry = 32, 16
	n := int64(size)
	if n < Direct {
		return header + (n+15)&^15 + entry
	}
	return (n+header+directBlock-1)&^(directBlock-1) + entry
}

// InSet reports whether the sample belongs to the spread set: the K bytes of samples with the
// lowest hash(id, seed). Fixed for the plan, so misses are uniform along any order.
func (p *Plan) InSet(id sample.ID) bool {
	return p.ram.all || p.hash(id) < p.ram.cutoff && !p.isOutsize(id)
}

func (p *Plan) isOutsize(id sample.ID) bool {
	return p.ram.outsize > 0 && p.Slot(p.Size(id)) > p.ram.outsize
}

// InLog reports whether the sample belongs to the log's set: those with the highest hashes. So ram
// and log share none while they cannot hold all, and what both hold after that a restart need not
// fetch. It depends on neither ram nor policy: a log is written once.
func (p *Plan) InLog(id sample.ID) bool {
	return p.log.all || ^p.hash(id) < p.log.cutoff && !p.isTooLarge(id)
}

func (p *Plan) isTooLarge(id sample.ID) bool {
	return p.log.outsize > 0 && RecordCost(p.Size(id)) > p.log.outsize
}

// Size is the sample's size: what Sizes says, without asking where all are equal.
func (p *Plan) Size(id sample.ID) uint32 {
	if p.equal {
		return p.size
	}
	return p.Sizes.Size(id)
}

// Slot is what a kept sample of that size takes: what Cost says, without asking where all are
// equal.
func (p *Plan) Slot(size uint32) int64 {
	if p.equal {
		return p.slot
	}
	return p.Cost(size)
}

// Staged is what a sample of that size takes of staging: a slot where it may become a member later,
// else its bytes in a run, aligned.
func (p *Plan) Staged(size uint32) int64 {
	if !p.Rule.Fixed {
		return p.Slot(size)
	}
	if size >= Direct && p.Log > 0 {
		return (int64(size)+directBlock-1)&^(directBlock-1) + directBlock
	}
	return (int64(size) + 63) &^ 63
}

func (p *Plan) hash(id sample.ID) uint64 { return mix(uint64(id) + p.salt) }

// Reserve is the staging set aside for a cursor: two of its batches, of samples of mean cost, each
// aligned to a line of memory.
func (p *Plan) Reserve(batch int) int64 {
	mean := p.TotalCost/int64(max(p.Sizes.Len(), 1)) + 64
	if p.Log > 0 && mean >= Direct {
		mean += 2 * directBlock
	}
	return 2 * int64(max(batch, 1)) * mean
}

func saltOf(seed uint64) uint64 { return mix(seed ^ 0x9e3779b97f4a7c15) }

// mix is splitmix64's finaliser: a bijection, so no two ids of one dataset share a hash.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Digest identifies the input; nodes compare digests before they trust each other's plan.
func (in Input) Digest() [32]byte {
	b := make([]byte, 0, 128)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = append(b, in.Content[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(in.Sizes.Len()))
	b = binary.LittleEndian.AppendUint64(b, in.Seed)
	b = binary.LittleEndian.AppendUint64(b, uint64(in.Keep))
	b = binary.LittleEndian.AppendUint64(b, uint64(in.Staging))
	b = binary.LittleEndian.AppendUint64(b, uint64(in.Log))
	b = binary.LittleEndian.AppendUint32(b, in.LogMost)
	if in.Carry {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, in.Policy...)
	return sha256.Sum256(b)
}
