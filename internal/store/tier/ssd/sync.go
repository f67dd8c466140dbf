package ssd

import (
	"slices"

	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// covered is how much of a fill a sync covers that begins now.
type covered struct {
	fill    *fill
	entries int
	whole   bool
}

// sync makes what was written durable, file by file.
func (w *writer) sync() {
	w.mu.Lock()
	byFile := map[*file][]covered{}
	hurry := w.hurry
	w.unsynced, w.hurry = 0, false
	for _, f := range w.fills {
		w.hurry = w.hurry || hurry && f.closed && f.bytes != nil // what is not written is still awaited
		entries := f.builder.Entries()
		n, _ := slices.BinarySearchFunc(entries, f.written, func(e segment.Entry, to uint32) int {
			return int(int64(e.End()) - int64(to) - 1) // the first that ends behind it
		})
		if f.bytes == nil {
			n = len(entries)
		}
		byFile[f.file] = append(byFile[f.file], covered{f, n, f.bytes == nil})
	}
	w.mu.Unlock()
	for f, fills := range byFile {
		if err := f.io.Sync(); err != nil {
			w.abandon(f, err)
			continue
		}
		if w.commit(f, fills) {
			if err := f.writeHeaders(true); err != nil {
				w.abandon(f, err)
			}
		}
	}
	w.tidy()
	w.dir.memo.Keep(w.log.now())
}

// commit notes what a sync of a file covered, and tells whether its headers should say so: all its
// slots are closed.
func (w *writer) commit(f *file, fills []covered) bool {
	var emptied []slotRef
	defer func() {
		for _, ref := range emptied {
			ref.file.writer.emptied(ref.file, ref.slot)
		}
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.shut { // abandoned while it was synced, and its fills with it
		return false
	}
	for _, c := range fills {
		entries := c.fill.builder.Entries()[c.fill.synced:c.entries]
		for _, e := range entries {
			w.log.counts.pending.Add(-int64(e.Length))
		}
		if c.fill.order != 0 {
			emptied = append(emptied, w.moveIn(c.fill, entries)...)
		}
		c.fill.synced = c.entries
		if c.whole {
			f.slots[c.fill.slot].status.Store(uint32(closed))
			w.fills = slices.DeleteFunc(w.fills, func(o *fill) bool { return o == c.fill })
			w.reuse(f, c.fill.slot)
		}
	}
	w.raise(f)
	for i := range f.slots {
		if f.slots[i].state() != closed {
			return false
		}
	}
	return true
}

// raise moves a file's durable generation up to the first that is not wholly synced. It follows a
// sync of the file.
func (w *writer) raise(f *file) {
	f.durable = f.top
	for _, open := range w.fills {
		if open.file == f {
			f.durable = min(f.durable, open.builder.Tag().Generation-1)
			if open.shade > 0 {
				f.durable = min(f.durable, open.shade-1)
			}
		}
	}
	for i := range f.slots { // the next opening must verify these, too
		s := &f.slots[i]
		if (s.state() == unknown || s.tainted() && s.state() != filling) && s.generation.Load() > 0 {
			f.durable = min(f.durable, s.generation.Load()-1)
		}
	}
	f.header.Durable = f.durable
}

// tidy gives memory back once nothing more will be appended soon.
func (w *writer) tidy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fills) > 1 {
		return
	}
	for _, buf := range w.spare {
		vfs.Free(buf)
	}
	w.buffers -= len(w.spare)
	w.spare = nil
}

// abandon gives a file up for writing after a write or a sync of it failed. What was synced in it
// is read on; what was not is lost, since nobody knows what of it the device has.
func (w *writer) abandon(f *file, err error) {
	var ids []sample.ID
	w.mu.Lock()
	if f.shut {
		w.mu.Unlock()
		return
	}
	f.shut = true
	w.free = slices.DeleteFunc(w.free, func(r slotRef) bool { return r.file == f })
	w.fills = slices.DeleteFunc(w.fills, func(fill *fill) bool {
		if fill.file != f {
			return false
		}
		for _, e := range fill.builder.Entries()[fill.synced:] {
			w.log.counts.pending.Add(-int64(e.Length))
			if w.log.unhold(e.ID, f.place(fill.slot, e.At)) {
				ids = append(ids, e.ID)
			}
		}
		w.recycle(fill)
		f.slots[fill.slot].become(closed)
		if w.opens[fill.target] == fill {
			delete(w.opens, fill.target)
		}
		return true
	})
	w.mu.Unlock()
	w.log.changed(false, ids)
	w.log.counts.dropped.Add(int64(len(ids)))
	w.log.tell(tier.Notice{Kind: tier.Dropped, Dir: w.dir.path, Samples: int64(len(ids)), Err: err,
		Text: "writing " + f.name + " failed: what was not synced is read from the origin again"})
	if refused(err) {
		w.ranOut(w.log.now(), err)
		return
	}
	w.log.failed(w.dir, err)
}
