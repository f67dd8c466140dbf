// Package prospect says what a job would come to before it runs: what would be kept where, what the
// origin must send, the least time of an epoch and what binds it.
//
// It asks the daemon's own arithmetic and takes none of its memory: docs/plan.md.
package prospect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
	"belady/internal/node/world"
	"belady/internal/store/tier/ssd"
	"belady/internal/yamlfile"
)

// Question is a job, and what the nodes have that it would run on.
type Question struct {
	Order   order.Spec
	Epochs  int
	Nodes   int
	Compute time.Duration // of a batch
	Policy  string        // empty: the order's default
	Size    string        // of each of Order.Samples, without a Dataset; empty: usualSize
	// RAM, Staging and Ssd are of each node, as people write bytes; where empty, those of Has count.
	RAM, Staging, Ssd string
	Has               Node
	Rates             *perf.Profile // nil: nothing is known
	Dataset           Dataset       // whose samples; of none where Name is empty
}

// Node is the memory of a daemon, in bytes. Staging may be 0: a share of RAM.
type Node struct{ RAM, Staging, Ssd int64 }

// Dataset is what is read.
type Dataset struct {
	Name    string
	Content [32]byte
	Sizes   dataset.Sizes
}

// A WrongError is a question that cannot be asked, whatever the dataset.
type WrongError struct{ Err error }

func (e WrongError) Error() string { return e.Err.Error() }
func (e WrongError) Unwrap() error { return e.Err }

func wrong(format string, args ...any) error { return WrongError{fmt.Errorf(format, args...)} }

// Register has flags fill the question.
func (q *Question) Register(flags *pflag.FlagSet) {
	s := &q.Order
	flags.StringVar(&s.Kind, "kind", order.Distributed, "which order, as in 'belady order'")
	flags.IntVar(&s.Samples, "samples", 0, "samples, where no dataset is named")
	flags.StringVar(&q.Size, "size", "", "size of each of those samples (default "+usualSize+")")
	flags.IntVar(&q.Epochs, "epochs", 4, "epochs of the job")
	flags.IntVar(&s.World, "world", 1, "ranks of the job, on all nodes together")
	flags.IntVar(&s.Batch, "batch", 256, "samples in a rank's batch")
	flags.Int64Var(&s.Seed, "seed", 0, "the sampler's seed")
	flags.BoolVar(&s.DropLast, "drop-last", false, "the loader's drop_last")
	flags.IntVar(&q.Nodes, "nodes", 1, "nodes that share the ranks")
	flags.StringVar(&q.RAM, "ram", "", "memory of each node's daemon (default the settings')")
	flags.StringVar(&q.Staging, "staging", "",
		"the part of --ram for batches on their way (default the settings')")
	flags.StringVar(&q.Ssd, "ssd", "",
		"bytes that each node may use on ssd (default the settings', or none)")
	flags.StringVar(&q.Policy, "policy", "", "which policy (default the one a job of this order gets)")
	flags.DurationVar(&q.Compute, "compute", 0, "a batch's compute time")
}

// usualSize is about the mean of ImageNet.
const usualSize = "110KB"

// prospect is a question that can be answered.
type prospect struct {
	world.Prospect
	epochs, nodes int
	quota         int64 // of each node's ssd
	compute       time.Duration
	batches       int64      // of the rank with most, in an epoch
	plan          *plan.Plan // of one node

	horizon int       // epochs that were counted
	uses    plan.Uses // by node, in those
	first   []uint8   // of all nodes, in the first
}

// Answer makes the plan and says what it comes to. How far it is, if that takes long, is told to
// progress.
func (q *Question) Answer(ctx context.Context, progress io.Writer) (*Report, error) {
	p := &prospect{epochs: q.Epochs, nodes: q.Nodes, compute: q.Compute}
	for _, fill := range []func(*prospect) error{q.check, q.subject, q.capacities, q.reading} {
		if err := fill(p); err != nil {
			return nil, err
		}
	}
	var err error
	if p.plan, err = p.Plan(); err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	if err := p.count(ctx, progress); err != nil {
		return nil, fmt.Errorf("plan %s: count uses: %w", p.Name, err)
	}
	return p.report(q.Rates)
}

// check refuses what no dataset could make right.
func (q *Question) check(*prospect) error {
	switch {
	case (q.Dataset.Name == "") == (q.Order.Samples == 0):
		return wrong("name a dataset, or give --samples and --size for one that is not there")
	case q.Dataset.Name != "" && q.Size != "":
		return wrong("--size is for --samples: %s has sizes of its own", q.Dataset.Name)
	case q.Order.World < 1 || q.Order.World > order.MaxWorld:
		return wrong("--world %d: it must be 1 to %d ranks", q.Order.World, order.MaxWorld)
	case q.Nodes < 1 || q.Order.World%q.Nodes != 0:
		return wrong("--nodes %d cannot share --world %d: each needs the same number of ranks",
			q.Nodes, q.Order.World)
	case q.Compute < 0:
		return wrong("--compute %v: it cannot be negative", q.Compute)
	case q.Order.Kind == order.Explicit || q.Order.Kind == order.Weighted:
		return wrong("--kind %s cannot be planned here: its samples or their weights are a program's "+
			"own; choose another --kind", q.Order.Kind)
	}
	rule, err := policy.Find(job.PolicyName(q.Policy, &q.Order))
	if err != nil {
		return WrongError{err}
	}
	if q.Nodes > 1 && (!rule.Fixed || q.Order.Repeats()) {
		return wrong("policy %s changes what is kept as it runs, but homes on %d nodes stay: use "+
			"--policy %s, and an order that reads each sample once an epoch", rule.Name, q.Nodes,
			policy.Default(false))
	}
	return nil
}

// even is a dataset of samples of one size.
type even struct {
	n    int
	size uint32
}

func (s even) Len() int              { return s.n }
func (s even) Size(sample.ID) uint32 { return s.size }

// subject is whose samples they are.
func (q *Question) subject(p *prospect) error {
	p.Name, p.Content, p.Sizes = q.Dataset.Name, q.Dataset.Content, q.Dataset.Sizes
	if p.Name != "" {
		return nil
	}
	n, text := q.Order.Samples, cmp.Or(q.Size, usualSize)
	size, err := yamlfile.ParseBytes(text)
	switch {
	case err != nil:
		return wrong("--size: %w", err)
	case size < 1 || size > sample.MaxSize:
		return wrong("--size: %s is no size of a sample: give 1 to %d bytes", text,
			int64(sample.MaxSize))
	case n < 0 || n > sample.MaxCount:
		return wrong("--samples %d: give 1 to %d", n, int64(sample.MaxCount))
	}
	p.Name, p.Sizes = fmt.Sprintf("%d×%s", n, text), even{n, uint32(size)}
	p.Content = sha256.Sum256(fmt.Appendf(nil, "belady plan %d %d", n, size))
	return nil
}

// A log, and a daemon, are made of no less, and an arena numbers no more slabs than fill mostRAM.
const (
	leastSsd = 16 << 20
	leastRAM = 16 << 20
	mostRAM  = 15 << 40
)

// capacities are those of the question, or else what its nodes have.
func (q *Question) capacities(p *prospect) error {
	quota := q.Has.Ssd
	p.RAM, p.Staging = q.Has.RAM, q.Has.Staging
	for _, one := range []struct {
		name, text string
		into       *int64
	}{{"ram", q.RAM, &p.RAM}, {"staging", q.Staging, &p.Staging}, {"ssd", q.Ssd, &quota}} {
		if one.text == "" {
			continue
		}
		bytes, err := yamlfile.ParseBytes(one.text)
		if err != nil {
			return wrong("--%s: %w", one.name, err)
		}
		*one.into = bytes
	}
	bytes := func(n int64) string { return humanize.IBytes(uint64(n)) }
	switch {
	case p.RAM < leastRAM:
		return wrong("--ram is %s, but must be at least %s", bytes(p.RAM), bytes(leastRAM))
	case p.RAM > mostRAM:
		return wrong("--ram is %s, but a daemon uses at most %s", bytes(p.RAM), bytes(mostRAM))
	case p.Staging > p.RAM:
		return wrong("--staging (%s) is a part of --ram (%s) and cannot be more", bytes(p.Staging),
			bytes(p.RAM))
	case quota != 0 && quota < leastSsd:
		return wrong("--ssd is %s, but a log needs at least %s", bytes(quota), bytes(leastSsd))
	}
	if p.quota = quota; quota > 0 {
		p.Log, p.LogMost = ssd.Holds(p.Sizes, quota)
	}
	return nil
}

// reading is the order, now that its length is known.
func (q *Question) reading(p *prospect) error {
	s := q.Order
	s.Samples = p.Sizes.Len()
	p.Order, p.Ranks, p.Policy = s, s.World/q.Nodes, job.PolicyName(q.Policy, &s)
	reading := job.Reading{Order: s, Epochs: q.Epochs}
	if err := reading.Validate(); err != nil {
		return WrongError{err}
	}
	if bytes := countBytes(&s, q.Nodes); bytes > countMost {
		return wrong("counting the uses of %s samples on %s takes %s of memory, more than %s: "+
			"plan for fewer", humanize.Comma(int64(s.Samples)), plural(q.Nodes, "node"),
			humanize.IBytes(uint64(bytes)), humanize.IBytes(countMost))
	}
	o, err := order.New(s)
	if err != nil {
		return WrongError{err}
	}
	for rank := range s.World {
		p.batches = max(p.batches, int64(o.Batches(rank, 0)))
	}
	if p.batches > math.MaxInt64/max(1, int64(p.compute)) {
		return wrong("--compute %v: no clock counts %s batches of it; give less", p.compute,
			humanize.Comma(p.batches))
	}
	return nil
}
