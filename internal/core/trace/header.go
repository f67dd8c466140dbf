// Package trace is the written form of one pump's life: what it was told, when, and what it asked
// for. Feeding the events to a fresh pump must give the same moves; Replay does that and names the
// first difference.
//
// An Encoder appends to a slice and a Decoder reads one: whoever owns the file does the I/O. Orders
// are not stored but the readings they follow from; only windows that nobody can compute again are
// stored in full. The bytes are described in docs/format/trace.md. The package never decides
// anything, and a damaged tail is reported, not repaired.
package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"belady/internal/core/dataset"
	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// Version is the format's. A reader refuses others.
const Version = 2

// magic begins every trace; the version follows it.
const magic = "BLDYTRC\n"

// blockBytes is when a block is closed: large enough that its 8 bytes of frame do not matter,
// small enough that a crash loses little.
const blockBytes = 32 << 10

// maxBlock bounds what a reader believes; a step with many windows in full may be large.
const maxBlock = 1 << 30

// ErrCorrupt means that the bytes are no trace, or were changed since they were written.
var ErrCorrupt = errors.New("trace is corrupt")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the plan's input, but for the sizes: of those only a digest is kept.
type Header struct {
	Dataset string   `json:"dataset"` // its name, for finding it again
	Content [32]byte `json:"content"`
	Samples int      `json:"samples"`
	Sizes   [32]byte `json:"sizes"` // SHA-256 of the sizes as little-endian 32-bit numbers
	Seed    uint64   `json:"seed"`
	Policy  string   `json:"policy"`
	Keep    int64    `json:"keep"`
	Staging int64    `json:"staging"`
	Log     int64    `json:"log,omitempty"`
	LogMost uint32   `json:"log_most,omitempty"`
	Carry   bool     `json:"carry,omitempty"`
	// Costs is what samples take: a step for each change, by size. None means their size.
	Costs []Cost `json:"costs,omitempty"`
}

// Cost says that samples of up to Size bytes, and above the step before, take Takes bytes.
type Cost struct {
	Size  uint32 `json:"size"`
	Takes int64  `json:"takes"`
}

// HeaderOf describes a plan for the dataset of that name.
func HeaderOf(name string, p *plan.Plan) Header {
	return Header{Dataset: name, Content: p.Content, Samples: p.Sizes.Len(),
		Sizes: SizesDigest(p.Sizes), Seed: p.Seed, Policy: p.Input.Policy, Keep: p.Keep,
		Staging: p.Staging, Log: p.Log, LogMost: p.LogMost, Carry: p.Carry, Costs: costs(p)}
}

// SizesDigest identifies a dataset's sizes.
func SizesDigest(s dataset.Sizes) [32]byte {
	hash := sha256.New()
	buffer := make([]byte, 0, 1<<16)
	for id := range s.Len() {
		buffer = binary.LittleEndian.AppendUint32(buffer, s.Size(sample.ID(id)))
		if len(buffer) == cap(buffer) {
			hash.Write(buffer)
			buffer = buffer[:0]
		}
	}
	hash.Write(buffer)
	return [32]byte(hash.Sum(nil))
}

// costs finds the steps of the cost function over the sizes there are.
func costs(p *plan.Plan) []Cost {
	same := true
	for id := range p.Sizes.Len() {
		size := p.Size(sample.ID(id))
		same = same && p.Slot(size) == int64(size)
	}
	if same {
		return nil
	}
	all := make([]uint32, p.Sizes.Len())
	for id := range all {
		all[id] = p.Size(sample.ID(id))
	}
	slices.Sort(all)
	var steps []Cost
	for _, size := range slices.Compact(all) {
		takes := p.Slot(size)
		if n := len(steps); n > 0 && steps[n-1].Takes == takes {
			steps[n-1].Size = size
			continue
		}
		steps = append(steps, Cost{Size: size, Takes: takes})
	}
	return steps
}

// Plan makes the recorded plan again from the dataset's sizes.
func (h *Header) Plan(s dataset.Sizes) (*plan.Plan, error) {
	if s.Len() != h.Samples || SizesDigest(s) != h.Sizes {
		return nil, fmt.Errorf("dataset %q is not the one that was recorded: its sizes differ; "+
			"replay where the dataset is as it was", h.Dataset)
	}
	in := plan.Input{Content: h.Content, Sizes: s, Seed: h.Seed, Policy: h.Policy, Keep: h.Keep,
		Staging: h.Staging, Log: h.Log, LogMost: h.LogMost, Carry: h.Carry}
	if len(h.Costs) > 0 {
		in.Cost = h.cost
	}
	return plan.Make(in)
}

func (h *Header) cost(size uint32) int64 {
	i, _ := slices.BinarySearchFunc(h.Costs, size,
		func(c Cost, size uint32) int { return int(int64(c.Size) - int64(size)) })
	return h.Costs[min(i, len(h.Costs)-1)].Takes
}

// appendBlock frames a payload.
//
//	length 4 | CRC-32C of the payload 4 | payload
func appendBlock(dst, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(payload, castagnoli))
	return append(dst, payload...)
}

// AppendHeader begins a trace: the magic, the version, and a block of JSON.
func AppendHeader(dst []byte, h Header) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode a trace's header: %w", err)
	}
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, Version)
	return appendBlock(dst, text), nil
}
