package ssd

import (
	"errors"
	"fmt"
	"math"
	"time"

	"belady/internal/store/segment"
	"belady/internal/store/tier"
)

// stock makes a segment, ahead of the slots being needed. The last one that a quota has room for
// may be smaller.
func (w *writer) stock(now time.Time) {
	if !w.log.findsDir(w.dir) { // one that is gone is not full
		return
	}
	room := w.dir.room(&w.promise)
	if w.log.follow.Load() != nil { // slots fall free again: more than was claimed is waste
		room = min(room, w.dir.promisedTo(&w.promise))
	}
	slots := min(w.log.shape.fits(room), w.needs())
	if slots == 0 {
		w.ranOut(now, fmt.Errorf("%w: %s has no room for another slot of %d bytes", tier.ErrFull,
			w.dir.path, w.log.shape.slotBytes))
		return
	}
	f, err := w.log.makeSegment(w, slots)
	if err != nil {
		w.ranOut(now, err)
		if !refused(err) {
			w.log.failed(w.dir, err)
		}
		return
	}
	w.log.counts.written.Add(2 * segment.HeaderBytes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.log.add(f); err != nil {
		w.full = now
		return
	}
	for i := range f.slots {
		w.free = append(w.free, slotRef{f, uint32(i)})
	}
	w.full, w.told = time.Time{}, false
}

// needs is how many slots at most are worth making now: what is not held yet takes them, as far as
// the log was said to hold it, and the claim of a log that follows an order.
func (w *writer) needs() uint32 {
	l := w.log
	if l.follow.Load() != nil {
		return math.MaxUint32
	}
	left := min(l.shape.cost, l.counts.capacity.Load()) - l.counts.used.Load()
	if left <= 0 {
		return 0
	}
	return uint32(int64(float64(left)/l.shape.each())/int64(len(l.writers)) + 2)
}

// ranOut notes that no segment can be made or written, and says so once.
func (w *writer) ranOut(now time.Time, err error) {
	w.mu.Lock()
	told := w.told
	w.full, w.told = now, true
	w.mu.Unlock()
	if !told {
		w.log.tell(tier.Notice{Kind: tier.Full, Dir: w.dir.path, Err: err,
			Text: "no more is written there until it takes writes again"})
	}
}

// finish writes and syncs all that is left, once the goroutine has ended and nothing is appended.
func (w *writer) finish() error {
	<-w.done
	w.mu.Lock()
	for _, f := range w.opens {
		w.close(f)
	}
	w.mu.Unlock()
	for w.dir.health.writable() {
		now := w.log.now()
		w.mu.Lock()
		pieces := w.pieces(now, 1)
		w.mu.Unlock()
		if len(pieces) == 0 {
			break
		}
		w.settle(pieces[0], w.put(pieces[0], now), now)
	}
	var failed []error
	if w.dir.health.writable() {
		w.sync()
		failed = w.seal()
	}
	w.mu.Lock()
	for _, f := range w.fills { // of a directory that fails
		w.recycle(f)
	}
	w.fills = nil
	w.mu.Unlock()
	w.dir.promise(&w.promise, -w.promise.bytes)
	w.tidy()
	return errors.Join(failed...)
}

// seal lets the headers say what is durable, so that the next opening need not verify it.
func (w *writer) seal() (failed []error) {
	for _, f := range *w.log.files.Load() {
		if f.writer != w || f.shut || f.said >= f.top {
			continue
		}
		err := f.io.Sync()
		if err == nil {
			w.mu.Lock()
			w.raise(f)
			w.mu.Unlock()
			err = f.writeHeaders(true)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("close %s: %w", f.name, err))
		}
	}
	return failed
}
