package world

import (
	"cmp"
	"slices"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/arena"
)

// The rest between two passes: some times as long as a pass took, since a pass holds up the owner,
// and longer where passes move nothing, unless a rank may be waiting for one.
const (
	drainPause    = 5 * time.Millisecond
	drainPauseMax = time.Second
	stuckPauseMax = 40 * time.Millisecond
	drainShare    = 4 // a pass may take a quarter of the owner's time
	// passBytes bounds how much of the arena one pass looks at, and so what it moves.
	passBytes = 64 << 20
)

// requestPass asks for a pass with the next step, unless the last was just now: a timer will.
func (w *World) requestPass() {
	if !w.scheduled || time.Since(w.passed) >= w.rest {
		w.draining = true
	}
}

// drain makes a pass while slabs are to go or something waits for room: samples that stay are moved
// together and out of what goes. Those that clients hold are moved at a later pass.
func (w *World) drain() {
	w.draining = false
	if len(w.stuck) == 0 && w.arena.Draining() == 0 {
		return
	}
	w.scheduled = true
	w.passes++
	pass, begun := w.passes, time.Now()
	c := w.survey()
	moved := c.gather()
	for some := true; some && len(w.stuck) > 0 && c.fill(w.stuck[0].wants()); {
		head, placed := w.stuck[0], w.stuck[0].placed
		w.unstick(true)
		some = len(w.stuck) == 0 || w.stuck[0] != head || head.placed > placed
	}
	moved = c.clear() || moved
	w.unstick(moved)
	w.drained++
	if left := c.leaving(); moved || left != w.leaving {
		w.drained, w.leaving = 0, left
	}
	c.fill(1) // where the next are to go
	switch settled := w.spare() >= 0; {
	case settled:
		w.arena.Spill(false)
		w.arena.Reap()
	case len(w.stuck) > 0:
		w.arena.Spill(true)
	}
	most := drainPauseMax
	if len(w.stuck) > 0 {
		most = stuckPauseMax
	}
	w.passed, w.rest = time.Now(), max(drainPause, drainShare*time.Since(begun))
	pause := max(w.rest, min(drainPause<<min(w.drained, 16), most))
	time.AfterFunc(pause, func() {
		w.mail.call(func() {
			if w.passes == pass { // none was made meanwhile, which has a timer of its own
				w.draining, w.scheduled = true, false
			}
		})
	})
}

// spare is how much of the slabs that stay is left for samples that stay, beyond what is staging's.
// While it is negative nothing new is moved there, what passes may use the slabs that go, and none
// of those goes: a plan that shrinks must not take from ranks what the larger one has promised.
func (w *World) spare() int64 {
	free := int64(w.arena.Usage().SpansFree) * arena.SpanBytes
	switch {
	case w.pump.Stats().StagingBytes > w.plan.Staging:
		return free - w.plan.Staging/4 // for ranks with nothing staged, beside others that have much
	case packed(w.Rule):
		// One span is being filled, and some wait for one last release.
		return w.arena.Passing() - w.plan.Staging - 2*arena.SpanBytes
	}
	return free // slots that are free serve both
}

// compaction is one pass over regions of the arena that have room between their samples.
type compaction struct {
	w     *World
	lent  map[sample.ID]bool
	stay  []*region // the emptiest first: their samples fill up the last
	leave []*region // of slabs that go
}

// region is a region of the arena and what lies in it.
type region struct {
	arena.Region
	ids  []sample.ID // by rising offset
	done bool        // emptied or filled in this pass
}

// survey picks the regions of a pass and finds their samples.
func (w *World) survey() *compaction {
	c := &compaction{w: w, lent: map[sample.ID]bool{}}
	for _, id := range w.pump.Lent(nil) {
		c.lent[id] = true
	}
	w.arena.Regions(func(at arena.Region) {
		if r := (&region{Region: at}); at.Draining {
			c.leave = append(c.leave, r)
		} else {
			c.stay = append(c.stay, r)
		}
	})
	picked := map[uint32]*region{}
	c.stay, c.leave = pick(c.stay, picked), pick(c.leave, picked)
	for i, p := range w.places {
		if p == 0 {
			continue
		}
		if r := picked[w.arena.RegionOf(p)]; r != nil {
			r.ids = append(r.ids, sample.ID(i))
		}
	}
	for _, r := range picked {
		slices.SortFunc(r.ids, func(a, b sample.ID) int {
			return cmp.Compare(w.places[a].Offset(), w.places[b].Offset())
		})
	}
	return c
}

// leaving is how many samples were in the slabs that go.
func (c *compaction) leaving() (samples int) {
	for _, r := range c.leave {
		samples += r.Samples
	}
	return samples
}

// pick sorts regions by what lies in them and leaves those of one pass.
func pick(all []*region, picked map[uint32]*region) []*region {
	slices.SortFunc(all, func(a, b *region) int { return cmp.Compare(a.Bytes, b.Bytes) })
	bytes := int64(0)
	for i, r := range all {
		if bytes += r.Bytes; bytes > passBytes && i > 1 {
			return all[:i]
		}
		picked[r.ID] = r
	}
	return all
}

// movable tells whether nobody writes or reads a sample's bytes.
func (c *compaction) movable(id sample.ID) bool { return c.w.pump.Present(id) && !c.lent[id] }

// gather moves samples together, region by region, because only one that is wholly empty is room
// for anything, until nothing waits for spans. It reports whether any was moved.
func (c *compaction) gather() (moved bool) {
	w := c.w
	for _, r := range slices.Clone(c.stay) {
		if len(w.stuck) == 0 && w.spare() >= 0 {
			break
		}
		if r.done {
			continue
		}
		some, full := c.trim(r), false
		if !some && c.fillable(r) { // unless it is the last that others can be moved to
			some, full = c.empty(r)
		}
		if some { // what was found there is there no more
			r.done, moved = true, true
			w.unstick(true)
		}
		if full {
			break
		}
	}
	return moved
}

// clear moves samples out of the slabs that go. It reports whether any was moved.
func (c *compaction) clear() (moved bool) {
	for _, r := range c.leave {
		some, full := c.empty(r)
		moved = moved || some
		if full {
			break
		}
	}
	return moved
}

// fillable tells whether there is a region to be filled up but this one.
func (c *compaction) fillable(but *region) bool {
	return slices.ContainsFunc(c.stay, func(r *region) bool {
		return r != but && r.Packed && !r.done
	})
}

// empty moves the samples that stay out of a region, until there is no room for more. Those that
// pass leave it by themselves.
func (c *compaction) empty(r *region) (moved, full bool) {
	w := c.w
	for _, id := range r.ids {
		if !w.pump.Kept(id) || !c.movable(id) {
			continue
		}
		size := w.Set.Size(id)
		if packed(w.Rule) && !c.fill(size) && w.spare() < arena.Fresh(size) {
			return moved, true
		}
		at, ok := w.arena.Relocate(w.places[id])
		if !ok {
			return moved, true
		}
		w.places[id] = at
		moved = true
	}
	return moved, false
}

// fill makes room for a kept sample of that size between others, which are pushed together as far
// as nobody holds them. False: there is none.
func (c *compaction) fill(size uint32) bool {
	w := c.w
	if size > arena.SpanBytes {
		return false // it takes spans of its own
	}
	for w.arena.Room() < max(int64(size), 1) {
		last := len(c.stay) - 1
		if last < 0 {
			return false
		}
		r := c.stay[last]
		c.stay = c.stay[:last]
		if r.done || !r.Packed {
			continue
		}
		r.done = true
		c.slide(r, func(places []arena.Place, fixed func(int) bool) bool {
			return w.arena.Slide(places, fixed, size)
		})
	}
	return true
}

// trim frees the spans at a region's end, if there are as many bytes between its samples.
func (c *compaction) trim(r *region) bool {
	return r.Size-r.Bytes >= arena.SpanBytes && c.slide(r, c.w.arena.Trim)
}

// slide has a region's samples pushed together, but for those that somebody holds.
func (c *compaction) slide(
	r *region, push func(places []arena.Place, fixed func(i int) bool) bool,
) bool {
	places := make([]arena.Place, len(r.ids))
	for i, id := range r.ids {
		places[i] = c.w.places[id]
	}
	pushed := push(places, func(i int) bool { return !c.movable(r.ids[i]) })
	for i, id := range r.ids {
		c.w.places[id] = places[i]
	}
	return pushed
}
