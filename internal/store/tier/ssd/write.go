package ssd

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// How writing is paced: docs/format/log.md, "Writing".
const (
	pieceMin    = 1 << 20 // less is written only when it has waited for pieceAge
	pieceMax    = 4 << 20 // at a time, so that a sync or another slot is not kept waiting
	pieceAge    = time.Second
	syncBytes   = 64 << 20 // written and unsynced, at most
	syncAge     = 5 * time.Second
	bufferBytes = 64 << 20         // of slots being filled or written; two slots in any case
	fullPause   = 10 * time.Second // until room is looked for again
)

// writer writes what was appended to one directory. Its goroutine is the only one that does, one
// piece at a time: reads, which are many at a time, win over it.
type writer struct {
	log  *log
	dir  *dir
	wake chan struct{}
	done chan struct{} // closed when its goroutine has ended

	buffered atomic.Int32 // fills whose bytes are in memory

	mu       sync.Mutex
	open     *fill   // takes appends; nil: none does
	fills    []*fill // all that are not wholly synced, in the sequence they were begun
	free     []slotRef
	spare    [][]byte  // slots' buffers, not in use
	buffers  int       // all of them
	full     time.Time // when no segment could be made; zero: one can
	told     bool      // that it is full
	number   int       // of the last segment in the folder
	unsynced int64     // bytes written since the last sync
	since    time.Time // of the first of them
	looked   time.Time // which file system is there
	promise  promise
}

// slotRef names a slot.
type slotRef struct {
	file *file
	slot uint32
}

// fill is one slot on its way to the device.
type fill struct {
	slotRef
	builder segment.Builder
	bytes   []byte    // of the slot; nil once all are written
	written uint32    // up to here
	closed  bool      // the footer is built
	synced  int       // so many of its entries are
	since   time.Time // of its oldest unwritten record
}

func newWriter(l *log, d *dir) *writer {
	return &writer{log: l, dir: d, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// append adds a record to the open slot, and begins one if there is none or it is full.
func (w *writer) append(id sample.ID, b []byte) error {
	if !w.dir.health.writable() {
		return tier.ErrDown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	e, ok := w.open.builder.Add(id, b)
	if !ok {
		w.close(w.open)
		if err := w.begin(); err != nil {
			return err
		}
		if e, ok = w.open.builder.Add(id, b); !ok {
			return tier.ErrFull
		}
	}
	f := w.open
	if f.since.IsZero() {
		f.since = w.log.now()
		w.nudge()
	}
	w.log.counts.pending.Add(int64(len(b)))
	w.log.hold(f.file, f.slot, e)
	if f.builder.Used()-f.written >= pieceMin {
		w.nudge()
	}
	return nil
}

// begin opens a slot for appends, without any I/O: slots are made ahead by the goroutine.
func (w *writer) begin() error {
	if w.full.IsZero() && w.short() {
		w.nudge()
	}
	if len(w.free) == 0 {
		if w.full.IsZero() {
			return tier.ErrBusy
		}
		return tier.ErrFull
	}
	buf, ok := w.buffer()
	if !ok {
		return tier.ErrBusy
	}
	ref := w.free[0]
	w.free = w.free[1:]
	f := &fill{slotRef: ref, bytes: buf}
	generation := w.log.generation.Add(1)
	at := &ref.file.slots[ref.slot]
	at.generation.Store(generation)
	at.state, at.tainted = filling, false
	ref.file.top = max(ref.file.top, generation)
	f.builder.Begin(ref.file.header.Bind(ref.slot), segment.Tag{Generation: generation}, buf)
	w.open = f
	w.fills = append(w.fills, f)
	w.buffered.Add(1)
	return nil
}

// short tells whether another segment should be made, so that appends do not have to wait for one.
func (w *writer) short() bool {
	left := w.log.shape.cost - w.log.counts.used.Load()
	switch {
	case !w.wanted() || left <= 0:
		return false
	case len(w.free) == 0:
		return true
	}
	return len(w.free) <= bufferBytes/2/int(w.log.shape.slotBytes) &&
		w.log.shape.holds(int64(len(w.free))) < left/int64(len(w.log.writers))
}

func (w *writer) buffer() ([]byte, bool) {
	if n := len(w.spare); n > 0 {
		buf := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return buf, true
	}
	if w.buffers >= max(2, bufferBytes/int(w.log.shape.slotBytes)) {
		return nil, false
	}
	w.buffers++
	return vfs.Aligned(int(w.log.shape.slotBytes)), true
}

// close builds the footer of a slot that takes no more.
func (w *writer) close(f *fill) {
	f.builder.Close(f.file.durable)
	f.closed = true
	if w.open == f {
		w.open = nil
	}
	w.nudge()
}

func (w *writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// copyOut copies a record's bytes from memory, if its slot is not wholly written yet.
func (w *writer) copyOut(f *file, slot, at uint32, dst []byte) bool {
	if w.buffered.Load() == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fill := range w.fills {
		if fill.file == f && fill.slot == slot && fill.bytes != nil {
			copy(dst, fill.bytes[at+segment.RecordHeader:])
			return true
		}
	}
	return false
}

// emptied is called when the last record of a slot lost its authority: the slot is free, unless it
// is still being written.
func (w *writer) emptied(f *file, slot uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reuse(f, slot)
}

func (w *writer) reuse(f *file, slot uint32) {
	s := &f.slots[slot]
	if s.state == closed && s.live.Load() == 0 && !f.shut {
		s.state = blank
		w.free = append(w.free, slotRef{f, slot})
		w.full = time.Time{}
	}
}

// run is the goroutine. It ends when the log closes; what is left then is finish's.
func (w *writer) run() {
	defer close(w.done)
	timer := time.NewTimer(spacePause)
	defer timer.Stop()
	for {
		select {
		case <-w.log.closing:
			return
		case <-w.wake:
		case <-timer.C:
		}
		w.look(w.log.now())
		for w.step(w.log.now()) {
			select {
			case <-w.log.closing:
				return
			default:
			}
		}
		timer.Reset(w.pause(w.log.now()))
	}
}

// look sees whether the directory is still the one that was locked.
func (w *writer) look(now time.Time) {
	if now.Sub(w.looked) < spacePause {
		return
	}
	w.looked = now
	space, err := w.dir.fs.Space()
	s, changed := w.dir.health.looked(space.ID, err)
	w.log.fares(w.dir, s, changed, err)
}

// step does the most urgent thing, and tells whether there was one.
func (w *writer) step(now time.Time) bool {
	if !w.dir.health.writable() {
		return false
	}
	w.mu.Lock()
	stock := w.short() && now.Sub(w.full) >= fullPause
	due := w.unsynced >= syncBytes || w.unsynced > 0 && now.Sub(w.since) >= syncAge
	var f *fill
	var from, to uint32
	if !stock && !due {
		f, from, to = w.piece(now)
	}
	w.mu.Unlock()
	switch {
	case stock:
		w.stock(now)
	case due:
		w.sync()
	case f != nil:
		w.write(f, from, to, now)
	default:
		return false
	}
	return true
}

// wanted tells whether anything may still be appended.
func (w *writer) wanted() bool {
	return w.log.counts.samples.Load() < int64(len(w.log.index.places))
}

// pause is how long there is nothing to do, unless there is a nudge.
func (w *writer) pause(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause := spacePause
	if !w.dir.health.writable() {
		return pause
	}
	if w.unsynced > 0 {
		pause = min(pause, syncAge-now.Sub(w.since))
	}
	if f := w.open; f != nil && !f.since.IsZero() {
		pause = min(pause, pieceAge-now.Sub(f.since))
	}
	return max(pause, time.Millisecond)
}

// piece picks what is written next: of the oldest fill that has whole pieces, or whose records have
// waited.
func (w *writer) piece(now time.Time) (f *fill, from, to uint32) {
	if w.open != nil && !w.wanted() {
		w.close(w.open)
	}
	for _, f := range w.fills {
		if f.bytes == nil {
			continue
		}
		used := f.builder.Used()
		switch {
		case f.closed:
			from, to = f.rest()
		case !f.since.IsZero() && now.Sub(f.since) >= pieceAge:
			f.builder.Skip()
			from, to = f.written, f.builder.Used()
			if to-from <= pieceMax {
				f.since = time.Time{}
			}
		case used-f.written >= pieceMin:
			from, to = f.written, used/segment.Block*segment.Block
			f.since = now
		default:
			continue
		}
		return f, from, min(to, from+pieceMax)
	}
	return nil, 0, 0
}

// rest is what of a closed slot is written next: its records, then its footer. A wide gap between
// them is passed over: nothing is read there.
func (f *fill) rest() (from, to uint32) {
	end := uint32(len(f.bytes))
	used := (f.builder.Used() + segment.Block - 1) / segment.Block * segment.Block
	footer := end - uint32(segment.FooterBytes(len(f.builder.Entries())))
	if footer > used+pieceMin {
		if f.written < used {
			return f.written, used
		}
		return max(f.written, footer), end
	}
	return f.written, end
}

// write writes a piece of a slot. What it covers is not changed by appends meanwhile.
func (w *writer) write(f *fill, from, to uint32, now time.Time) {
	n, err := f.file.io.WriteAt(f.bytes[from:to], f.file.header.SlotAt(f.slot)+int64(from))
	w.log.counts.written.Add(int64(n))
	w.dir.memo.wrote(int64(n), now)
	if err != nil {
		w.abandon(f.file, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.written = to
	if w.unsynced == 0 {
		w.since = now
	}
	w.unsynced += int64(to - from)
	if f.closed && int(to) == len(f.bytes) {
		w.recycle(f)
	}
}

// recycle takes a fill's buffer back once the device has all of it.
func (w *writer) recycle(f *fill) {
	if f.bytes == nil {
		return
	}
	w.spare = append(w.spare, f.bytes)
	f.bytes = nil
	w.buffered.Add(-1)
}

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
	for _, f := range w.fills {
		entries := f.builder.Entries()
		n, _ := slices.BinarySearchFunc(entries, f.written, func(e segment.Entry, to uint32) int {
			return int(int64(e.End()) - int64(to) - 1) // the first that ends behind it
		})
		if f.bytes == nil {
			n = len(entries)
		}
		byFile[f.file] = append(byFile[f.file], covered{f, n, f.bytes == nil})
	}
	w.unsynced = 0
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
}

// commit notes what a sync of a file covered, and tells whether its headers should say so: all its
// slots are closed.
func (w *writer) commit(f *file, fills []covered) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range fills {
		for _, e := range c.fill.builder.Entries()[c.fill.synced:c.entries] {
			w.log.counts.pending.Add(-int64(e.Length))
		}
		c.fill.synced = c.entries
		if c.whole {
			f.slots[c.fill.slot].state = closed
			w.fills = slices.DeleteFunc(w.fills, func(o *fill) bool { return o == c.fill })
			w.reuse(f, c.fill.slot)
		}
	}
	w.raise(f)
	for i := range f.slots {
		if f.slots[i].state != closed {
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
		}
	}
	for i := range f.slots { // the next opening must verify these, too
		s := &f.slots[i]
		if (s.state == unknown || s.tainted) && s.generation.Load() > 0 {
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
		f.slots[fill.slot].state = closed
		if w.open == fill {
			w.open = nil
		}
		return true
	})
	w.mu.Unlock()
	w.log.changed(false, ids)
	w.log.counts.dropped.Add(int64(len(ids)))
	w.log.tell(tier.Notice{Kind: tier.Dropped, Dir: w.dir.path, Samples: int64(len(ids)), Err: err,
		Text: "writing " + f.name + " failed: what was not synced is read from the origin again"})
	if errors.Is(err, syscall.ENOSPC) {
		w.ranOut(w.log.now(), err)
		return
	}
	w.log.failed(w.dir, err)
}
