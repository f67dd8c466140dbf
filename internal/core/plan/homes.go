package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"belady/internal/core/dataset"
	"belady/internal/core/sample"
)

// Tier is where on a node a home is.
type Tier uint8

// The tiers that keep samples, the faster one first.
const (
	Ram Tier = iota
	Ssd
	tiers
)

func (t Tier) String() string { return [tiers]string{"ram", "ssd"}[t] }

// Node is what one node can keep.
type Node struct {
	Ram int64 // bytes for kept samples, in the unit of Cost
	Log int64 // bytes of records in its log, in RecordCost's unit; 0: no log
}

// HomesInput is everything that homes follow from.
type HomesInput struct {
	Content [32]byte
	Sizes   dataset.Sizes
	Seed    uint64 // salts the sets, as Input's does
	Nodes   []Node
	LogMost uint32 // the largest sample that a log takes; 0: any
	Uses    Uses   // by node; nil: all nodes read all samples equally often
	// Cost and Record are what a sample takes of a node's ram and log. Nil means the size itself,
	// and RecordCost.
	Cost, Record func(size uint32) int64
}

// maxNodes leaves a number for "nowhere".
const (
	nowhere  = 1<<16 - 1
	maxNodes = nowhere
)

// Homes are the nodes and tiers of all samples in a cluster. They are immutable.
type Homes struct {
	digest [32]byte
	tier   [tiers]placement
	second placement // more copies in ram, where ram is left over
}

// placement is the node of each sample in one tier, added up by node.
type placement struct {
	node  []uint16 // by sample; nil: there are none
	count []int
	bytes []int64
}

// MakeHomes decides where samples live in a cluster. Which of them are in the pool is the same
// spread as a single node's: the lowest hashes in ram, the highest in a log, each sample once while
// the pool is short. At which node follows from uses: the home is where a sample is read most often
// among the nodes that still have room; and of samples that cost a node the same, its ram has those
// that it reads most. Where all nodes' ram holds more than the dataset, what is left keeps second
// copies at whoever reads them most next to the home.
func MakeHomes(in HomesInput) (*Homes, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if in.Cost == nil {
		in.Cost = func(size uint32) int64 { return int64(size) }
	}
	if in.Record == nil {
		in.Record = RecordCost
	}
	p := &Plan{Input: Input{Sizes: in.Sizes, Seed: in.Seed}, salt: saltOf(in.Seed)}
	var room [tiers][]int64
	for _, node := range in.Nodes {
		room[Ram], room[Ssd] = append(room[Ram], node.Ram), append(room[Ssd], node.Log)
	}
	lower := filler{Plan: p, budget: sum(room[Ram]), cost: in.Cost}
	lower.fill()
	d := dealing{{HomesInput: in, filler: &lower, room: room[Ram]}}
	d[Ram].deal()
	if pool := sum(room[Ssd]); pool > 0 {
		upper := filler{Plan: p, budget: pool, cost: in.Record, flip: flipped}
		if in.LogMost > 0 {
			upper.most = in.Record(in.LogMost)
		}
		upper.fill()
		d = append(d, &dealer{HomesInput: in, filler: &upper, room: room[Ssd]})
		d[Ssd].deal()
	}
	h := &Homes{digest: in.Digest()}
	settled, holdsAll := d.settle(), lower.bin == lower.total
	switch {
	case len(in.Nodes) == 1: // whose log is written once for all jobs, whatever they use
	case !holdsAll:
		d.exchange()
	case settled:
		h.second = d[Ram].again()
	}
	for tier, dealer := range d {
		h.tier[tier] = dealer.placement
	}
	return h, nil
}

func (in *HomesInput) check() error {
	if len(in.Nodes) < 1 || len(in.Nodes) > maxNodes {
		return fmt.Errorf("homes for %d nodes: there must be 1 to %d", len(in.Nodes), maxNodes)
	}
	for i, n := range in.Nodes {
		if n.Ram < 0 || n.Log < 0 {
			return fmt.Errorf("node %d has %d bytes of ram and %d of log: neither can be negative",
				i, n.Ram, n.Log)
		}
	}
	if in.Uses == nil {
		return nil
	}
	if len(in.Uses) != len(in.Nodes) {
		return fmt.Errorf("uses of %d nodes, but there are %d", len(in.Uses), len(in.Nodes))
	}
	for i, uses := range in.Uses {
		if len(uses) != in.Sizes.Len() {
			return fmt.Errorf("node %d has uses of %d samples, but there are %d", i, len(uses),
				in.Sizes.Len())
		}
	}
	return nil
}

// sum stops at the largest number there is: more room than that is as good.
func sum(all []int64) (total int64) {
	for _, n := range all {
		total += min(n, math.MaxInt64-total)
	}
	return total
}

// Of is the sample's home: the fastest tier that has it. Without one it is read from the origin.
func (h *Homes) Of(id sample.ID) (node int, tier Tier, ok bool) {
	for tier := range tiers {
		if node, ok := h.In(tier, id); ok {
			return node, tier, true
		}
	}
	return 0, 0, false
}

// In is the node that has the sample in that tier. Ram and log both have it only where they hold
// all samples together: a restart then fetches less.
func (h *Homes) In(tier Tier, id sample.ID) (node int, ok bool) { return h.tier[tier].of(id) }

// Second is the node with another copy in ram.
func (h *Homes) Second(id sample.ID) (node int, ok bool) { return h.second.of(id) }

func (p *placement) of(id sample.ID) (int, bool) {
	if p.node == nil || p.node[id] == nowhere {
		return 0, false
	}
	return int(p.node[id]), true
}

// Held adds up what a node has in a tier; second copies are Ram's too.
func (h *Homes) Held(node int, tier Tier) (samples int, bytes int64) {
	all := []placement{h.tier[tier]}
	if tier == Ram {
		all = append(all, h.second)
	}
	for _, p := range all {
		if p.node != nil {
			samples += p.count[node]
			bytes += p.bytes[node]
		}
	}
	return samples, bytes
}

// Digest identifies the input; nodes compare digests before they trust each other's homes.
func (h *Homes) Digest() [32]byte { return h.digest }

// Digest identifies the input. Cost and Record follow from content and capacities.
func (in *HomesInput) Digest() [32]byte {
	b := make([]byte, 0, 256)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = append(b, "homes"...)
	b = append(b, in.Content[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(in.Sizes.Len()))
	b = binary.LittleEndian.AppendUint64(b, in.Seed)
	b = binary.LittleEndian.AppendUint32(b, in.LogMost)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(in.Nodes)))
	for _, n := range in.Nodes {
		b = binary.LittleEndian.AppendUint64(b, uint64(n.Ram))
		b = binary.LittleEndian.AppendUint64(b, uint64(n.Log))
	}
	for _, uses := range in.Uses {
		sum := sha256.Sum256(uses)
		b = append(b, sum[:]...)
	}
	return sha256.Sum256(b)
}
