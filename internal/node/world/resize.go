package world

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"belady/internal/core/sample"
	"belady/internal/node/event"
	"belady/internal/store/arena"
)

// Resize changes the world's memory by whole slabs. Growing takes effect at once; shrinking as
// samples are dropped or moved out of the slabs that go, while ranks read on.
func (w *World) Resize(bytes int64) error {
	var failed error
	err := w.do(func() {
		if bytes > w.Bytes {
			w.arena.Restore()
			var added []uint16
			if more := bytes - w.arena.Capacity(); more >= arena.SpanBytes {
				added, failed = w.arena.Grow(more)
			}
			w.announce(added)
		} else {
			w.arena.Shrink(w.Bytes - bytes)
			w.requestPass()
		}
		failed = errors.Join(failed, w.resized())
	})
	if err != nil {
		return err
	}
	return failed
}

// resized takes stock of the arena's slabs and plans for them.
func (w *World) resized() error {
	before := w.Bytes
	w.Bytes = 0
	for _, s := range w.arena.Slabs() {
		if !s.Draining {
			w.Bytes += s.Bytes
		}
	}
	w.tell(event.Resized{Dataset: w.Name, Bytes: w.Bytes, Before: before})
	return w.replanAll()
}

func (w *World) announce(added []uint16) {
	for _, s := range w.arena.Slabs() {
		for _, index := range added {
			if s.Index != index {
				continue
			}
			for _, c := range w.cursors {
				if c != nil {
					c.consumer.SlabAdded(s)
				}
			}
		}
	}
}

// slabGone is told by the arena, on the owner's goroutine, when a draining slab is empty.
func (w *World) slabGone(index uint16) {
	for _, c := range w.cursors {
		if c != nil {
			c.consumer.SlabGone(index)
		}
	}
	w.arena.Recycle(index)
}

// The rest between two passes over the samples of draining slabs: some times as long as a pass
// took, since a pass holds up the owner, and longer while a lease is all that keeps a slab.
const (
	drainPause    = 5 * time.Millisecond
	drainPauseMax = time.Second
	drainShare    = 10 // a pass may take a tenth of the owner's time
)

// requestPass asks for a drain with the next step, unless one is due already.
func (w *World) requestPass() {
	if !w.scheduled {
		w.draining = true
	}
}

// drain moves kept samples that nobody holds out of slabs that go, and together out of regions
// that a smaller plan has left half empty, while something waits for the room. Those in use are
// moved or dropped at a later pass.
func (w *World) drain() {
	w.draining = false // until the next pass
	wanted := len(w.stuck) > 0
	for _, s := range w.arena.Slabs() {
		wanted = wanted || s.Draining
	}
	if !wanted {
		return
	}
	begun := time.Now()
	regions := w.movable()
	if w.drained++; w.moveAll(regions) {
		w.drained = 0
	}
	pause := min(drainPause<<min(w.drained, 16), drainPauseMax)
	pause = max(pause, drainShare*time.Since(begun))
	w.scheduled = true
	time.AfterFunc(pause, func() {
		w.mail.call(func() { w.draining, w.scheduled = true, false })
	})
	w.unstick(w.drained == 0)
	for len(w.stuck) > 0 && w.reopen(regions) {
		w.unstick(true)
	}
}

// region is the movable samples of one region of the arena.
type region struct {
	arena.Region
	draining bool
	ids      []sample.ID   // movable
	places   []arena.Place // of all
	done     bool
}

// moveAll moves samples region by region, because only one that is wholly empty is room again.
// It reports whether any was moved.
func (w *World) moveAll(regions []*region) (moved bool) {
	for _, r := range regions {
		if r.done {
			continue
		}
		r.done = true
		if r.draining && !w.roomToMove() {
			break
		}
		for _, id := range r.ids {
			at, ok := w.arena.Relocate(w.places[id])
			if !ok && w.reopen(regions) {
				at, ok = w.arena.Relocate(w.places[id])
			}
			if !ok {
				return moved
			}
			w.places[id] = at
			moved = true
		}
	}
	return moved
}

// reopen makes room where there is none: the samples of a sparse region that stays are pushed
// together, and others can follow them.
func (w *World) reopen(regions []*region) bool {
	for _, r := range regions {
		if r.done || r.draining || len(r.ids) != int(r.Samples) {
			continue
		}
		slices.SortFunc(r.ids, func(a, b sample.ID) int {
			return cmp.Compare(w.places[a].Offset(), w.places[b].Offset())
		})
		places := make([]arena.Place, len(r.ids))
		for i, id := range r.ids {
			places[i] = w.places[id]
		}
		r.done = true
		if !w.arena.Reopen(places) {
			continue
		}
		for i, id := range r.ids {
			w.places[id] = places[i]
		}
		return true
	}
	// Where each holds a sample that a client does, go on behind those.
	for _, r := range regions {
		if !r.done && !r.draining && w.arena.ReopenBehind(r.places) {
			r.done = true
			return true
		}
	}
	return false
}

// roomToMove reports whether there is room for kept samples beyond what staging may still take:
// until the smaller plan has made some, what must go stays where it is. Slots that are free can be
// had at any time.
func (w *World) roomToMove() bool {
	use := w.arena.Usage()
	staging := max(0, w.plan.Staging-use.Runs) + 2*arena.SpanBytes
	return !w.packed() || int64(use.SpansFree)*arena.SpanBytes > staging
}

// movable lists what drain is to move: sparse regions that stay first, since they make the room,
// the emptiest before; then those of slabs that go.
func (w *World) movable() []*region {
	lent := map[sample.ID]bool{}
	for _, id := range w.pump.Lent(nil) {
		lent[id] = true
	}
	found := map[uint32]*region{}
	var all []*region
	for i, p := range w.places {
		id := sample.ID(i)
		if p == 0 || !w.arena.Draining(p) && !w.arena.Sparse(p) {
			continue
		}
		at := w.arena.Region(p)
		r := found[at.ID]
		if r == nil {
			r = &region{Region: at, draining: w.arena.Draining(p)}
			found[at.ID] = r
			all = append(all, r)
		}
		r.places = append(r.places, p)
		if w.pump.Present(id) && !lent[id] {
			r.ids = append(r.ids, id)
		}
	}
	slices.SortStableFunc(all, func(a, b *region) int {
		if a.draining != b.draining {
			if a.draining {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.Bytes, b.Bytes)
	})
	return all
}
