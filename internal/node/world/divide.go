package world

import (
	"encoding/binary"
	"fmt"

	"belady/internal/core/dataset"
	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
	"belady/internal/store/arena"
)

// slabBytes gives an arena at least eight slabs, so that memory can move between datasets, unless
// that would make them smaller than pays, or too small for a few of the largest samples: four of
// them, or as many as a quarter of the arena holds, but one.
func slabBytes(total int64, largest uint32) int64 {
	bytes := max(total/64, min(256<<20, max(total/8, 16<<20)))
	one := (int64(largest) + arena.SpanBytes - 1) / arena.SpanBytes * arena.SpanBytes
	few := max(one, min(4*one, total/4))
	return min(max(bytes, few), total) / arena.SpanBytes * arena.SpanBytes
}

// arenaFor is the arena of a dataset with those sizes in so many bytes.
func arenaFor(name string, bytes int64, sizes arena.Histogram, rule string) (arena.Config, error) {
	largest := uint32(0)
	if n := len(sizes); n > 0 {
		largest = sizes[n-1].Max
	}
	slab := slabBytes(bytes, largest)
	if slab < int64(largest) {
		return arena.Config{}, fmt.Errorf("%w: the largest sample of %s has %d MiB, its arena %d MiB: "+
			"start the daemon with a larger --ram", ErrTooSmall, name, largest>>20+1, bytes>>20)
	}
	return arena.Config{Bytes: bytes, Sizes: sizes, SlabBytes: slab, Packed: packed(rule)}, nil
}

// packed tells whether kept samples come to stay: a spread set is fixed.
func packed(rule string) bool { return rule == policy.Default(false) }

// measure is the histogram of a dataset.
func measure(s dataset.Sizes) arena.Histogram {
	return arena.Measure(s.Len(), func(i int) uint32 { return s.Size(sample.ID(i)) })
}

// StagingShare is the staging of an arena of that size when none is configured: an eighth, but
// room for a few batches, and never more than half.
func StagingShare(bytes int64) int64 {
	return min(bytes/2, max(64<<20, min(bytes/8, 1<<30)))
}

// Wants is all the memory that a dataset of so many bytes can use: its samples, with some to spare,
// and staging, or without one the share of a node with so much ram.
func Wants(total, staging, ram int64) int64 {
	if staging == 0 {
		staging = StagingShare(ram)
	}
	return total + total/12 + staging + staging/8 + 16*arena.SpanBytes
}

// extent is an arena to be divided into what is kept and what passes.
type extent struct {
	shape *arena.Shape
	sizes arena.Histogram
	bytes int64 // that it was given
	// staging is what is configured; where nothing is, wanted is what the ranks need.
	staging, wanted int64
}

// divide says how much a plan may keep, how much it may stage, and what a kept sample costs.
func (e extent) divide(in *plan.Input) {
	capacity := e.shape.Capacity()
	// No more than half, also after a shrink: a lease keeps whole spans from being used again.
	staging := min(e.staging, capacity/2)
	if e.staging == 0 {
		staging = max(StagingShare(e.bytes), e.wanted)
	}
	staging = min(staging, capacity)
	// Runs are cut from whole spans: the one being filled, and those that wait for one last
	// release, are staging's too, as far as it can spare thee.
	spans := staging/16 + 3*arena.SpanBytes
	inside := min(spans, staging/4)
	aside := staging + spans - inside
	in.Staging = staging - inside
	if packed(in.Policy) {
		in.Keep = e.shape.Fits(e.sizes, aside)
		return
	}
	in.Keep = max(0, capacity-e.shape.Reserve()-aside)
	in.Cost = e.shape.SlotCost
}

// stagingFor is the staging that ranks get who need so much at the least: four batches each where
// that leaves half of the arena for keeping, two where it must be. A third is added for what a plan
// sets aside of it.
func stagingFor(need, capacity int64) int64 {
	return max(min(2*need, capacity/2), min(need+need/3, capacity*3/4))
}

func tooLittleStaging(need int64, p *plan.Plan) error {
	return fmt.Errorf("%w: two batches for each rank take about %d MiB, staging has %d MiB: "+
		"start the daemon with a larger --staging (and --ram), or use smaller batches",
		ErrTooSmall, need>>20+1, p.Staging>>20)
}

// inLog adds a log to what a plan is made of. Its share of the samples follows from their content
// alone, so that neither another seed nor another size of memory rewrites it.
func inLog(in *plan.Input, capacity int64, most uint32) {
	in.Log, in.LogMost = capacity, most
	in.Seed = binary.LittleEndian.Uint64(in.Content[:])
}

// Prospect is a dataset and what a daemon would have for it, were it the only one.
type Prospect struct {
	Name    string
	Content [32]byte
	Sizes   dataset.Sizes
	Policy  string
	Order   order.Spec
	Ranks   int // of the order, on this node
	// RAM and Staging are the daemon's; Staging 0: none is configured.
	RAM, Staging int64
	// Log is what a new log would hold, in plan.RecordCost's unit, and LogMost its largest sample;
	// 0: no log.
	Log     int64
	LogMost uint32
}

// Plan is the plan that the daemon would make once all ranks read: by the same arithmetic, with no
// byte of the memory taken.
func (p *Prospect) Plan() (*plan.Plan, error) {
	e := extent{sizes: measure(p.Sizes), staging: p.Staging}
	total := uint64(0)
	for _, b := range e.sizes {
		total += b.Bytes
	}
	e.bytes = min(Wants(int64(total), p.Staging, p.RAM), p.RAM)
	e.staging = min(p.Staging, e.bytes)
	cfg, err := arenaFor(p.Name, e.bytes, e.sizes, p.Policy)
	if err != nil {
		return nil, err
	}
	cfg.Pool = arena.NewPool(p.RAM)
	if e.shape, err = arena.Outline(cfg); err != nil {
		return nil, err
	}
	in := plan.Input{Content: p.Content, Sizes: p.Sizes, Seed: uint64(p.Order.Seed),
		Policy: p.Policy}
	if p.Log > 0 {
		inLog(&in, p.Log, p.LogMost)
	}
	e.divide(&in)
	made, err := plan.Make(in)
	if err != nil {
		return nil, err
	}
	need := int64(p.Ranks) * made.Reserve(LargestBatch(&p.Order, p.Sizes.Len()))
	if want := stagingFor(need, e.shape.Capacity()); p.Staging == 0 && want > made.Staging {
		e.wanted = want
		e.divide(&in)
		if made, err = plan.Make(in); err != nil {
			return nil, err
		}
	}
	if need > made.Staging {
		return nil, tooLittleStaging(need, made)
	}
	return made, nil
}
