package ssd

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/plan"
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
	carryDepth  = 8        // pieces written at a time while an order is followed
	syncBytes   = 64 << 20 // written and unsynced, at most
	syncAge     = 5 * time.Second
	bufferBytes = 64 << 20         // of slots being filled or written; two slots in any case
	fullPause   = 10 * time.Second // until room is looked for again

	wearGrain = 1 << 20 // carried bytes that are counted at once

	// reserve are free slots that samples are carried to only from a bucket that would else keep its
	// own, and twice as many those that are carried as they are read.
	reserve = 4
)

// writer writes what was appended to one directory. Its goroutine decides what is written next. In
// static that is one piece at a time: reads, which are many at a time, win over it.
type writer struct {
	log    *log
	dir    *dir
	wake   chan struct{}
	done   chan struct{} // closed when its goroutine has ended
	flight sync.WaitGroup

	buffered atomic.Int32 // fills whose bytes are in memory

	mu      sync.Mutex
	opens   map[target]*fill // take appends
	fills   []*fill          // all that are not wholly synced, in the sequence they were begun
	free    []slotRef
	spare   [][]byte  // slots' buffers, not in use
	buffers int       // all of them
	full    time.Time // when no segment could be made; zero: one can
	told    bool      // that it is full
	number  int       // of the last segment in the folder
	looked  time.Time // which file system is there
	promise promise
	progress
}

// progress is how far a directory's device has come.
type progress struct {
	flying   int       // pieces being written
	unsynced int64     // bytes written since the last sync
	since    time.Time // of the first of them
	hurry    bool      // sync as soon as what is closed is written
	syncing  bool
}

// slotRef names a slot.
type slotRef struct {
	file *file
	slot uint32
}

// fill is one slot on its way to the device.
type fill struct {
	slotRef
	target
	builder segment.Builder
	bytes   []byte    // of the slot; nil once all are written
	written uint32    // up to here
	closed  bool      // the footer is built
	flies   bool      // a piece of it is being written
	landed  []byte    // its buffer, once that was to be taken back while it flew
	synced  int       // so many of its entries are
	since   time.Time // of its oldest unwritten record
	shade   uint64    // the generation of a tainted footer that it writes over; 0: none
}

func newWriter(l *log, d *dir) *writer {
	return &writer{log: l, dir: d, opens: map[target]*fill{},
		wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// append adds a record to the open slot of its target, or to a new one if that is full and so many
// others are left.
func (w *writer) append(t target, id sample.ID, b []byte, spare int) error {
	if !w.dir.health.writable() {
		return tier.ErrDown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.opens[t]
	if f != nil {
		if e, ok := f.builder.Add(id, b); ok {
			w.added(f, e)
			return nil
		}
		w.close(f)
	}
	f, err := w.begin(t, spare)
	if err != nil {
		return err
	}
	e, ok := f.builder.Add(id, b)
	if !ok {
		return tier.ErrFull
	}
	w.added(f, e)
	return nil
}

// added lets a record be found that has no older copy; one that has is found when it is synced.
func (w *writer) added(f *fill, e segment.Entry) {
	if f.since.IsZero() {
		f.since = w.log.now()
		w.nudge()
	}
	w.log.counts.pending.Add(int64(e.Length))
	if !w.log.hold(f.file, f.slot, e) {
		w.dir.carried.Add(plan.RecordCost(e.Length))
	}
	if f.builder.Used()-f.written >= pieceMin {
		w.nudge()
	}
}

// begin opens a slot for appends, without any I/O: slots are made ahead by the goroutine.
func (w *writer) begin(t target, spare int) (*fill, error) {
	if w.full.IsZero() && w.short() {
		w.nudge()
	}
	if w.log.follow.Load() == nil {
		spare = 0
	}
	if len(w.free) <= spare {
		if w.full.IsZero() && w.short() || w.frees() {
			return nil, tier.ErrBusy
		}
		return nil, tier.ErrFull
	}
	buf, ok := w.buffer()
	if !ok {
		return nil, tier.ErrBusy
	}
	ref := w.free[0]
	w.free = w.free[1:]
	f := &fill{slotRef: ref, target: t, bytes: buf}
	generation := w.log.generation.Add(1)
	at := &ref.file.slots[ref.slot]
	if at.tainted() {
		f.shade = at.generation.Load()
	}
	at.become(filling)
	at.begin(t.tag(generation))
	ref.file.top = max(ref.file.top, generation)
	f.builder.Begin(ref.file.header.Bind(ref.slot), t.tag(generation), buf)
	w.opens[t] = f
	w.fills = append(w.fills, f)
	w.buffered.Add(1)
	return f, nil
}

// frees tells whether a sync will let slots fall free, and has it done soon. If nothing else is
// left to sync, the fuller half of the open slots is closed: the copies in these keep the slots
// that they were read from.
func (w *writer) frees() bool {
	if w.log.follow.Load() == nil {
		return false
	}
	if w.unsynced == 0 && len(w.fills) == len(w.opens) {
		open := slices.SortedFunc(maps.Values(w.opens), func(a, b *fill) int {
			return cmp.Compare(b.builder.Used(), a.builder.Used())
		})
		if len(open) == 0 {
			return false
		}
		for _, f := range open[:(len(open)+1)/2] {
			w.close(f)
		}
	}
	w.hurry = true
	w.nudge()
	return true
}

// short tells whether another segment should be made, so that appends do not have to wait for one.
func (w *writer) short() bool {
	left := w.log.shape.cost - w.log.counts.used.Load()
	switch {
	case w.log.follow.Load() != nil:
		open := int(w.log.BucketBytes()/int64(w.log.shape.slotBytes)) / len(w.log.writers)
		return len(w.free) < open+16 && w.dir.promisedTo(&w.promise) > int64(w.log.shape.slotBytes)
	case w.complete() || left <= 0:
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
	if w.buffers >= w.buffersMax() {
		return nil, false
	}
	w.buffers++
	return vfs.Aligned(int(w.log.shape.slotBytes)), true
}

// buffersMax bounds the slots in memory: those being written, and in carry two epochs' open ones.
func (w *writer) buffersMax() int {
	n := max(2, bufferBytes/int(w.log.shape.slotBytes))
	if w.log.follow.Load() != nil {
		n += 2 * int(w.log.BucketBytes()/int64(w.log.shape.slotBytes)+1)
	}
	return n
}

// close builds the footer of a slot that takes no more.
func (w *writer) close(f *fill) {
	f.builder.Close(f.file.durable)
	f.closed = true
	delete(w.opens, f.target)
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
	if w.buffered.Load() == 0 || f.slots[slot].state() != filling {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fill := w.inMemory(slotRef{f, slot})
	if fill == nil {
		return false
	}
	copy(dst, fill.bytes[at+segment.RecordHeader:])
	return true
}

// copySlot copies all that is in a slot so far, if that is in memory.
func (w *writer) copySlot(ref slotRef, dst []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	fill := w.inMemory(ref)
	if fill == nil {
		return false
	}
	n := int(fill.builder.Used())
	if fill.closed { // with its footer
		n = len(fill.bytes)
	}
	copy(dst, fill.bytes[:n])
	return true
}

func (w *writer) inMemory(ref slotRef) *fill {
	for _, f := range w.fills {
		if f.slotRef == ref && f.bytes != nil {
			return f
		}
	}
	return nil
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
	if s.state() != closed || s.live.Load() > 0 || f.shut {
		return
	}
	s.become(blank)
	if f.header.SlotBytes == w.log.shape.slotBytes { // those of another layout stay as they are
		w.free = append(w.free, slotRef{f, slot})
		w.full = time.Time{}
	}
}

// run is the goroutine. It ends when the log closes; what is left then is finish's.
func (w *writer) run() {
	defer close(w.done)
	defer w.flight.Wait()
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
		for w.drive(w.log.now()) {
			select {
			case <-w.log.closing:
				return
			default:
			}
		}
		timer.Reset(w.pause(w.log.now()))
	}
}

// look sees now and then whether the directory is still the one that was locked.
func (w *writer) look(now time.Time) {
	if now.Sub(w.looked) < spacePause {
		return
	}
	w.looked = now
	w.log.findsDir(w.dir)
}

// drive begins what can be done now, and tells whether there may be more. Writes go on while others
// are synced: a device that is left alone between them gives half of what it can.
func (w *writer) drive(now time.Time) bool {
	if w.log.disks.serial {
		return w.step(now)
	}
	if !w.dir.health.writable() {
		return false
	}
	w.mu.Lock()
	stock, due, hurry := w.urgent(now)
	pieces := w.pieces(now, w.depth()-w.flying)
	for _, p := range pieces {
		p.flies = true
	}
	w.flying += len(pieces)
	sync := !w.syncing && (due || hurry && w.flying == 0)
	w.syncing = w.syncing || sync
	w.mu.Unlock()
	for _, p := range pieces {
		w.flight.Go(func() {
			w.settle(p, w.put(p, now), w.log.now())
			w.nudge()
		})
	}
	if sync {
		w.flight.Go(func() {
			w.sync()
			w.mu.Lock()
			w.syncing = false
			w.mu.Unlock()
			w.nudge()
		})
	}
	if stock {
		w.stock(now)
	}
	return stock
}

// urgent tells what is to be done before more is written: a segment made, and a sync, at once or
// when nothing is left to write.
func (w *writer) urgent(now time.Time) (stock, due, hurry bool) {
	return w.short() && now.Sub(w.full) >= fullPause,
		w.unsynced >= w.syncAt() || w.unsynced > 0 && now.Sub(w.since) >= syncAge,
		w.hurry && w.unsynced > 0
}

// step does the most urgent thing, and tells whether there was one.
func (w *writer) step(now time.Time) bool {
	if !w.dir.health.writable() {
		return false
	}
	w.mu.Lock()
	stock, due, hurry := w.urgent(now)
	var pieces []piece
	if !stock && !due {
		pieces = w.pieces(now, w.depth())
	}
	w.mu.Unlock()
	switch {
	case stock:
		w.stock(now)
	case due:
		w.sync()
	case len(pieces) > 0:
		for _, p := range pieces {
			w.settle(p, w.put(p, now), now)
		}
	case hurry:
		w.sync()
	default:
		return false
	}
	return true
}

// syncAt is how much is written between syncs. In carry slots fall free by them.
func (w *writer) syncAt() int64 {
	if w.log.follow.Load() == nil {
		return syncBytes
	}
	return min(syncBytes, w.log.BucketBytes()/2/int64(len(w.log.writers)))
}

// complete tells whether nothing more will be appended, since all is held.
func (w *writer) complete() bool {
	return w.log.follow.Load() == nil &&
		w.log.counts.samples.Load() >= int64(len(w.log.index.spots))
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
	if f := w.opens[target{}]; f != nil && !f.since.IsZero() {
		pause = min(pause, pieceAge-now.Sub(f.since))
	}
	return max(pause, time.Millisecond)
}

// piece is what of a fill is written at once.
type piece struct {
	*fill
	buf      []byte // of the slot
	from, to uint32
}

// pieces picks what is written next, of so many fills.
func (w *writer) pieces(now time.Time, most int) (found []piece) {
	if w.complete() {
		for _, f := range w.opens {
			w.close(f)
		}
	}
	for _, f := range w.fills {
		if len(found) >= most {
			break
		}
		if f.flies {
			continue
		}
		if from, to := f.piece(now); to > from {
			found = append(found, piece{f, f.bytes, from, min(to, from+pieceMax)})
		}
	}
	return found
}

// depth is how many pieces are written at a time. In static reads win over them; carry writes as
// much as it reads.
func (w *writer) depth() int {
	if w.log.disks.serial || w.log.follow.Load() == nil {
		return 1
	}
	return carryDepth
}

// piece is what of a fill should be written now: whole pieces, or records that have waited.
func (f *fill) piece(now time.Time) (from, to uint32) {
	switch used := f.builder.Used(); {
	case f.bytes == nil:
	case f.closed:
		return f.rest()
	case f.order != 0: // carried: its samples have another copy, or can wait
	case !f.since.IsZero() && now.Sub(f.since) >= pieceAge:
		f.builder.Skip()
		to = f.builder.Used()
		if to-f.written <= pieceMax {
			f.since = time.Time{}
		}
		return f.written, to
	case used-f.written >= pieceMin:
		f.since = now
		return f.written, used / segment.Block * segment.Block
	}
	return 0, 0
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

// put brings one piece to the device.
func (w *writer) put(p piece, now time.Time) error {
	n, err := p.file.io.WriteAt(p.buf[p.from:p.to], p.file.header.SlotAt(p.slot)+int64(p.from))
	w.log.counts.written.Add(int64(n))
	w.dir.memo.Wrote(int64(n), now)
	return err
}

// settle notes that the device has a piece, or that it failed.
func (w *writer) settle(p piece, err error, now time.Time) {
	w.mu.Lock()
	if p.flies {
		p.flies = false
		w.flying--
	}
	if p.landed != nil {
		w.spare, p.landed = append(w.spare, p.landed), nil
	}
	if err == nil && p.bytes != nil { // else its file was abandoned
		p.written = p.to
		if w.unsynced == 0 {
			w.since = now
		}
		w.unsynced += int64(p.to - p.from)
		if p.closed && int(p.to) == len(p.bytes) {
			w.recycle(p.fill)
		}
	}
	w.mu.Unlock()
	if err != nil {
		w.abandon(p.file, err)
	}
	w.log.wears(w.dir)
}

// recycle takes a fill's buffer back once the device has all of it.
func (w *writer) recycle(f *fill) {
	if f.bytes == nil {
		return
	}
	if f.flies {
		f.landed = f.bytes // the device still reads it
	} else {
		w.spare = append(w.spare, f.bytes)
	}
	f.bytes = nil
	w.buffered.Add(-1)
}
