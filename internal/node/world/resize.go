package world

import (
	"errors"
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
		before := w.Bytes
		if bytes > before {
			var added []uint16
			added, failed = w.arena.Grow(bytes - before)
			w.announce(added)
		} else {
			w.arena.Shrink(before - bytes)
			w.draining = true
		}
		w.Bytes = 0
		for _, s := range w.arena.Slabs() {
			if !s.Draining {
				w.Bytes += s.Bytes
			}
		}
		failed = errors.Join(failed, w.replanAll())
		w.tell(event.Resized{Dataset: w.Name, Bytes: w.Bytes, Before: before})
	})
	if err != nil {
		return err
	}
	return failed
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

// drain moves kept samples that nobody reads out of slabs that go, and together out of regions that
// the smaller plan has left half empty. Those in use are moved or dropped at a later pass.
func (w *World) drain() {
	w.draining = false // until the next pass
	left := false
	for _, s := range w.arena.Slabs() {
		left = left || s.Draining
	}
	if !left {
		return
	}
	begun, moved := time.Now(), false
	for id, p := range w.places {
		if p == 0 || !w.arena.Draining(p) && !w.arena.Sparse(p) || !w.pump.Idle(sample.ID(id)) {
			continue
		}
		if at, ok := w.arena.Relocate(p); ok {
			w.places[id] = at
			moved = true
		}
	}
	if w.drained++; moved {
		w.drained = 0
	}
	pause := min(drainPause<<min(w.drained, 16), drainPauseMax)
	pause = max(pause, drainShare*time.Since(begun))
	time.AfterFunc(pause, func() { w.mail.call(func() { w.draining = true }) })
}

// Minimum is the least memory a world of these sizes can serve with at all: one span of slots,
// one being filled, and staging.
func Minimum(staging int64) int64 { return staging + staging/16 + 4*arena.SpanBytes }
