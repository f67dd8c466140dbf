package prospect

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/progress"
)

// countMemory is about what counting may take for going faster, countMost what it may take at all:
// a machine that swaps counts nothing.
const (
	countMemory = 512 << 20
	countMost   = 8 << 30
)

// countBytes is what counting in one goroutine takes: counts, a permutation, one rank's list.
func countBytes(s *order.Spec, nodes int) int64 { return int64(s.Length()) * int64(nodes+5) }

// maxHorizon is how many epochs a byte can count, manyReads from where on counting takes long
// enough to show how far it is.
const (
	maxHorizon = 255
	manyReads  = 50_000_000
)

// count counts the uses of each node: of the first epoch by itself, in which all comes from the
// origin, and of all of them.
func (p *prospect) count(ctx context.Context, out io.Writer) error {
	p.horizon = min(p.epochs, maxHorizon)
	p.uses = plan.NewUses(p.nodes, p.Sizes.Len())
	told := func() {}
	if p.horizon*p.Order.Length() >= manyReads {
		bar := progress.New(out, "counting uses", int64(p.horizon), "epochs")
		defer bar.Done()
		var done atomic.Int64
		told = func() { bar.Set(done.Add(1)) }
	}
	if err := countUses(ctx, p.Order, 0, 1, p.uses, told); err != nil {
		return err
	}
	p.first = make([]uint8, p.Sizes.Len())
	for _, uses := range p.uses {
		for id, n := range uses {
			p.first[id] |= min(n, 1)
		}
	}
	return countUses(ctx, p.Order, 1, p.horizon, p.uses, told)
}

// countUses counts uses of epochs [from, to), in parallel: each goroutine has an order, counts and
// consecutive epochs of its own. It tells of each epoch that was counted.
func countUses(
	ctx context.Context, s order.Spec, from, to int, into plan.Uses, told func(),
) error {
	affordable := int(countMemory / max(1, countBytes(&s, len(into))))
	workers := min(to-from, runtime.GOMAXPROCS(0), max(1, affordable))
	parts := []plan.Uses{into}
	for len(parts) < workers {
		parts = append(parts, plan.NewUses(len(into), s.Samples))
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, uses := range parts {
		begin, end := from+(to-from)*i/len(parts), from+(to-from)*(i+1)/len(parts)
		g.Go(func() error {
			o, err := order.New(s)
			if err != nil {
				return err
			}
			for epoch := begin; epoch < end; epoch++ {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := uses.Count(o, s.Ranks(), epoch, epoch+1); err != nil {
					return err
				}
				told()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, part := range parts[1:] {
		into.Merge(part)
	}
	return nil
}
