package world

import (
	"errors"

	"belady/internal/node/event"
	"belady/internal/store/arena"
)

// Resize changes the world's memory by whole slabs. Growing takes effect at once. Shrinking changes
// the plan at once; the slabs go as ranks read on, when the pump has come down to the smaller plan
// and what stays has been moved out of them. Until then what passes may still use their room.
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
			w.draining, w.drained = true, 0
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
	if w.Bytes != before {
		w.tell(event.Resized{Dataset: w.Name, Bytes: w.Bytes, Before: before})
	}
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
