package ssd

import (
	"errors"
	"time"

	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// How long carrying waits for a slot to fall free: patience, and haste once that was in vain.
const (
	slotPatience = 300 * time.Millisecond
	slotHaste    = 20 * time.Millisecond
	slotPause    = time.Millisecond
)

// overdueAfter is how many buckets behind the one that is read a slot should have fallen free: its
// samples are carried then, and the slots that took them closed and synced.
const overdueAfter = 4

// rescue carries what is left in slots that should have fallen free: samples that were read singly
// while the log was busy, or that another order or a larger memory has left there. Each would keep
// a slot, and without free slots nothing can be carried. It is called as a bucket begins.
func (l *log) rescue(t target) {
	f := l.follow.Load()
	if f == nil || f.order != t.order || f.worn.Load() || f.course(t.epoch+1) == nil ||
		!f.rescuing.CompareAndSwap(false, true) {
		return
	}
	l.chains.loads.Go(func() {
		defer f.rescuing.Store(false)
		buf := vfs.Aligned(int(l.shape.slotBytes))
		defer vfs.Free(buf)
		for _, file := range *l.files.Load() {
			for i := range file.slots {
				ref := slotRef{file, uint32(i)}
				if l.overdue(ref, t) && (f.worn.Load() || !l.rescueSlot(f, ref, t, buf)) {
					return
				}
			}
		}
	})
}

// overdue tells whether a slot is to be rescued while a bucket is read. Where nothing is meant to
// leave it, only if less than half of it is alive: else little would be won.
func (l *log) overdue(ref slotRef, t target) bool {
	s := &ref.file.slots[ref.slot]
	live := int64(s.live.Load())
	if live == 0 || s.state() != closed || ref.file.header.SlotBytes != l.shape.slotBytes {
		return false
	}
	was := s.target()
	if was.order == t.order && was.bucket != lateBucket {
		return was.epoch < t.epoch && t.bucket >= chainsAhead ||
			was.epoch == t.epoch && was.bucket+overdueAfter <= t.bucket
	}
	return live*l.shape.cost/int64(len(l.index.spots)) < int64(l.shape.slotBytes)/2
}

// rescueSlot copies the records of a slot that are still read from it. False: there is no room.
func (l *log) rescueSlot(f *following, ref slotRef, t target, buf []byte) bool {
	file := ref.file
	if _, err := file.io.ReadAt(buf, file.header.SlotAt(ref.slot)); err != nil {
		return true // whoever reads these says so
	}
	next := f.course(t.epoch + 1)
	if next == nil {
		return false
	}
	t.bucket = lateBucket
	ok := true
	l.eachLeft(ref, buf, next, func(e segment.Entry, b []byte) bool {
		to, c, wanted := l.wanted(int32(t.epoch), e.ID, true)
		if !wanted {
			to = t
		}
		ok = l.wait(f, func() error { return l.appendTo(to, e.ID, b, 0) })
		if !ok && c != nil {
			c.giveBack(e.ID)
		}
		return ok
	})
	return ok
}

// eachLeft goes over the records of a slot, whose bytes are given, that are still read from it,
// sound, and not on their way to the next epoch.
func (l *log) eachLeft(
	ref slotRef, slot []byte, next *course, do func(segment.Entry, []byte) bool,
) {
	bind := ref.file.header.Bind(ref.slot)
	footer, err := segment.ParseFooter(bind, ref.file.header.SlotBytes, slot)
	if err != nil || footer.Generation != ref.file.slots[ref.slot].generation.Load() {
		return
	}
	for _, e := range footer.Entries {
		if next.has(e.ID) {
			continue
		}
		if p, _ := l.index.get(e.ID); p != ref.file.place(ref.slot, e.At) {
			continue
		}
		b := slot[e.At+segment.RecordHeader:][:e.Length]
		if bind.Sum(e, footer.Generation, b) == e.Sum && !do(e, b) {
			return
		}
	}
}

// wait tries an append until the log has a slot for it.
func (l *log) wait(f *following, try func() error) bool {
	most := slotPatience
	if f.stuck.Load() {
		most = slotHaste
	}
	for began := time.Now(); ; {
		err := try()
		if err == nil {
			f.stuck.Store(false)
			return true
		}
		if !errors.Is(err, tier.ErrBusy) && !errors.Is(err, tier.ErrFull) || l.follow.Load() != f {
			return false
		}
		if time.Since(began) > most {
			f.stuck.Store(true)
			return false
		}
		select {
		case <-l.closing:
			return false
		case <-time.After(slotPause):
		}
	}
}

// sweep appends the samples of a bucket that were not carried, from memory.
func (l *log) sweep(c *chain) {
	f := l.follow.Load()
	if f == nil || f.order != c.order || f.worn.Load() {
		return
	}
	next := f.course(c.epoch + 1) // held: the job may go on to another epoch meanwhile
	if next == nil {
		return
	}
	c.mu.Lock()
	for !c.listed {
		c.loaded.Wait()
	}
	c.mu.Unlock()
	for i, ref := range c.refs {
		if c.stateOf(i) != there {
			continue
		}
		slot := c.buf[i*int(l.shape.slotBytes):][:l.shape.slotBytes]
		ok := true
		l.eachLeft(ref, slot, next, func(e segment.Entry, b []byte) bool {
			ok = l.wait(f, func() error { return l.append(int32(c.epoch), e.ID, b, reserve) })
			return ok
		})
		if !ok {
			return
		}
	}
}
