package arena

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
)

// Config says how an arena is made.
type Config struct {
	// Pool is the node's budget; required.
	Pool *Pool
	// Bytes is how much the arena takes of it, rounded down to spans.
	Bytes int64
	// SlabBytes is the size of one slab, rounded down to spans; 0 means
	// max(256 MiB, Pool.Total()/64, 16 × the largest sample). Never more than Bytes.
	SlabBytes int64
	// Sizes is the dataset's histogram: slot classes come from it.
	Sizes Histogram
	// Packed says that kept samples come to stay: they are packed side by side in whatever sizes
	// they have, instead of into slots of classes, and waste next to nothing. What one of them
	// leaves behind is used again only when all of its region is free, or after Slide.
	Packed bool
	// Gone, if set, is called on the owner goroutine after a drained slab was unmapped and its
	// bytes were given back: clients must now be told to unmap it, then Recycle its index.
	Gone func(slab uint16)
}

// slabBytes is the size that new slabs get.
func (c Config) slabBytes() int64 {
	bytes := c.SlabBytes
	if bytes == 0 {
		bytes = max(256<<20, c.Pool.Total()/64)
		if n := len(c.Sizes); n > 0 {
			bytes = max(bytes, 16*int64(spansFor(c.Sizes[n-1].Max))*SpanBytes)
		}
	}
	return min(bytes, c.Bytes, MaxSlabBytes) / SpanBytes * SpanBytes
}

// Validate says what is wrong with the config.
func (c Config) Validate() error {
	switch {
	case c.Pool == nil:
		return errors.New("arena needs a pool to take its memory from")
	case c.Bytes < SpanBytes:
		return fmt.Errorf("arena of %d bytes is too small, give it at least %d", c.Bytes, SpanBytes)
	case c.SlabBytes != 0 && c.SlabBytes < SpanBytes:
		return fmt.Errorf("slabs of %d bytes are too small, make them at least %d",
			c.SlabBytes, SpanBytes)
	case c.Bytes/c.slabBytes() > MaxSlabs:
		return fmt.Errorf("arena of %d bytes has more than %d slabs of %d, make them larger",
			c.Bytes, MaxSlabs, c.slabBytes())
	}
	return nil
}

// Arena holds the samples of one dataset. See the package comment for who may call what.
type Arena struct {
	cfg      Config
	slabSize int64
	shape    *Shape    // of New's slabs; Shape has those of now
	partial  []spanRef // per class: the regions with free slots, those nearest full first
	words    int       // bitmap words per span, enough for the smallest class

	live     []*slab                            // by rising index
	draining int                                // of them
	spill    bool                               // what passes may lie in draining slabs
	table    [MaxSlabs + 1]atomic.Pointer[slab] // the same by index, for Bytes on any goroutine
	held     [MaxSlabs + 1]bool                 // indices that a client may still know

	runs  stream
	packs stream

	use    Usage
	copies atomic.Int64
	copied atomic.Int64

	stop    chan struct{}
	faulter sync.WaitGroup
	ready   atomic.Pointer[chan struct{}] // closed when the newest faulter, hence all, are done
	failed  atomic.Pointer[error]
}

// New takes cfg.Bytes from the pool and maps them. Faulting the memory in goes on in the
// background, WaitReady waits for it; samples can be placed at once.
func New(cfg Config) (*Arena, error) {
	shape, err := Outline(cfg)
	if err != nil {
		return nil, fmt.Errorf("make arena: %w", err)
	}
	a := &Arena{
		cfg: cfg, slabSize: cfg.slabBytes(), shape: shape, stop: make(chan struct{}),
		runs:    stream{kind: spanRun, spans: 1},
		packs:   stream{kind: spanPack, spans: shape.region},
		partial: make([]spanRef, len(shape.classes)),
	}
	if len(shape.classes) > 0 {
		a.words = int(SpanBytes/shape.classes[0].Size+63) / 64
	}
	if _, err := a.Grow(cfg.Bytes); err != nil {
		return nil, fmt.Errorf("make arena: %w", errors.Join(err, a.Close()))
	}
	return a, nil
}

// Grow takes bytes, rounded down to spans, from the pool as new slabs, whose indices it returns.
// It takes all or nothing; an error wraps ErrNoBudget where the pool is the reason.
func (a *Arena) Grow(bytes int64) ([]uint16, error) {
	bytes = bytes / SpanBytes * SpanBytes
	if err := a.cfg.Pool.take(bytes); err != nil {
		return nil, fmt.Errorf("grow arena: %w", err)
	}
	var fresh []*slab
	var indices []uint16
	for left := bytes; left > 0; {
		s, err := a.newSlab(min(left, a.slabSize))
		if err != nil {
			for _, s := range fresh {
				a.held[s.index] = false
				err = errors.Join(err, s.unmap())
			}
			a.cfg.Pool.give(bytes)
			return nil, fmt.Errorf("grow arena: %w", err)
		}
		fresh = append(fresh, s)
		indices = append(indices, s.index)
		left -= int64(len(s.mem))
	}
	for _, s := range fresh {
		a.table[s.index].Store(s)
		a.use.SpansFree += len(s.spans)
	}
	a.use.Total += bytes
	a.live = append(a.live, fresh...)
	sort.Slice(a.live, func(i, j int) bool { return a.live[i].index < a.live[j].index })
	done := make(chan struct{})
	before := a.ready.Swap(&done)
	a.faulter.Go(func() {
		defer close(done)
		if before != nil {
			<-*before
		}
		a.faultAll(fresh)
	})
	return indices, nil
}

func (a *Arena) newSlab(bytes int64) (*slab, error) {
	for i := 1; i <= MaxSlabs; i++ {
		if a.held[i] {
			continue
		}
		s, err := newSlab(uint16(i), bytes, a.words)
		if err == nil {
			a.held[i] = true
		}
		return s, err
	}
	return nil, fmt.Errorf("all %d slab numbers are in use, make slabs larger", MaxSlabs)
}

// faultAll backs the slabs with memory, step by step, until done, failed or stopped.
func (a *Arena) faultAll(slabs []*slab) {
	for _, s := range slabs {
		for more := true; more; {
			select {
			case <-a.stop:
				return
			default:
			}
			var err error
			if more, err = s.faultStep(); err != nil {
				a.fail(err)
				return
			}
		}
	}
}

// Err is the first failure to reserve memory; nil as long as there was none. Once it is set the
// arena works on with the memory it has and refuses what would need more. Any goroutine.
func (a *Arena) Err() error {
	if e := a.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// fail remembers the first failure. The error escapes to the heap here, and not where it is nil.
func (a *Arena) fail(err error) { a.failed.CompareAndSwap(nil, &err) }

// WaitReady returns once every slab made so far is backed by memory, with Err, or with ctx's error.
// Any goroutine.
func (a *Arena) WaitReady(ctx context.Context) error {
	select {
	case <-*a.ready.Load():
		return a.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SlabInfo is what a client needs in order to map a slab.
type SlabInfo struct {
	Index    uint16
	FD       int // the arena's; duplicate or pass it before the next call that may free a place
	Bytes    int64
	Draining bool
}

// Slabs lists the slabs by rising index.
func (a *Arena) Slabs() []SlabInfo {
	infos := make([]SlabInfo, len(a.live))
	for i, s := range a.live {
		infos[i] = SlabInfo{s.index, s.fd, int64(len(s.mem)), s.draining}
	}
	return infos
}

// Shrink marks slabs of at least the given bytes as draining, emptiest first, and returns their
// indices. Nothing that stays is placed in them any more, and after Spill(false) nothing that
// passes either. When they are empty, Reap lets them go.
func (a *Arena) Shrink(bytes int64) []uint16 {
	a.spill = true
	var order []*slab
	for _, s := range a.live {
		if !s.draining {
			order = append(order, s)
		}
	}
	sort.SliceStable(order, func(i, j int) bool {
		return order[i].used() < order[j].used()
	})
	n := 0
	for ; n < len(order)-1 && bytes > 0; n++ { // one stays: an arena of nothing serves nobody
		bytes -= int64(len(order[n].mem))
	}
	var indices []uint16
	for _, s := range order[:n] {
		if size := int64(len(s.mem)); bytes+size <= 0 {
			bytes += size // larger ones are enough
			continue
		}
		indices = append(indices, s.index)
		a.drain(s)
	}
	return indices
}

// Restore calls off what is left of shrinking: slabs still draining are used again. It reports
// whether there were any.
func (a *Arena) Restore() bool {
	found := false
	for _, s := range a.live {
		if !s.draining {
			continue
		}
		found = true
		s.draining = false
		a.draining--
		a.freed(s, s.free)
		for i := range s.spans {
			sp := &s.spans[i]
			if sp.kind == spanSlots && int(sp.head) == i && sp.live < sp.slots {
				a.link(sp, makeRef(s.index, i))
			}
		}
	}
	return found
}

// drain takes a slab's free room out of every list.
func (a *Arena) drain(s *slab) {
	a.freed(s, -s.free)
	s.draining = true
	a.draining++
	for i := range s.spans {
		sp := &s.spans[i]
		if sp.kind == spanSlots && int(sp.head) == i && sp.live < sp.slots {
			a.unlink(sp, makeRef(s.index, i))
		}
	}
	for _, b := range []*stream{&a.runs, &a.packs} {
		if b.open.slab() == s.index {
			a.closeStream(b)
		}
	}
}

// Spill says whether samples that pass may lie in draining slabs where no others have room: while
// those that stay are still strewn over all of them.
func (a *Arena) Spill(may bool) { a.spill = may }

// Reap gives the memory of empty draining slabs back: see Config.Gone. It reports whether any went.
func (a *Arena) Reap() bool {
	found := false
	for i := len(a.live) - 1; i >= 0; i-- {
		if s := a.live[i]; s.draining && s.used() == 0 {
			a.release(s)
			found = true
		}
	}
	return found
}

// release unmaps a drained slab. Its index stays taken until Recycle.
func (a *Arena) release(s *slab) {
	bytes := int64(len(s.mem))
	a.table[s.index].Store(nil)
	for i := range a.live {
		if a.live[i] == s {
			a.live = append(a.live[:i], a.live[i+1:]...)
			break
		}
	}
	a.draining--
	if err := s.unmap(); err != nil {
		panic(fmt.Sprintf("arena: unmap slab %d: %v", s.index, err))
	}
	a.use.Total -= bytes
	a.cfg.Pool.give(bytes)
	if a.cfg.Gone != nil {
		a.cfg.Gone(s.index)
	}
}

// Recycle says that no client knows the slab index any more, so that Grow may use it again.
func (a *Arena) Recycle(slab uint16) {
	if slab == 0 || slab > MaxSlabs || a.table[slab].Load() != nil {
		panic(fmt.Sprintf("arena: recycle slab index %d, which is in use", slab))
	}
	a.held[slab] = false
}

// Draining is how many slabs are to go.
func (a *Arena) Draining() int { return a.draining }

// Close stops the faulting and unmaps everything. No slice from Bytes may be touched after it. Call
// it once.
func (a *Arena) Close() error {
	close(a.stop)
	a.faulter.Wait()
	var errs []error
	for _, s := range a.live {
		a.table[s.index].Store(nil)
		bytes := int64(len(s.mem))
		errs = append(errs, s.unmap())
		a.cfg.Pool.give(bytes)
	}
	a.live = nil
	return errors.Join(errs...)
}
