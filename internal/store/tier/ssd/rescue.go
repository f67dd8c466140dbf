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
	slotPatience = 5 * time.Second
	slotHaste    = 20 * time.Millisecond
	slotPause    = time.Millisecond
)

// rescue carries what epochs that are over, and other orders, have left in their slots, where that
// is less than half of one. It begins when the second bucket of an epoch is wanted: by then the
// copies of the epoch before are synced.
func (l *log) rescue(t target) {
	f := l.follow.Load()
	if f == nil || t.bucket == 0 {
		return
	}
	c := f.course(t.epoch)
	if c == nil || !c.rescued.CompareAndSwap(false, true) {
		return
	}
	l.chains.loads.Go(func() {
		buf := vfs.Aligned(int(l.shape.slotBytes))
		defer vfs.Free(buf)
		for _, file := range *l.files.Load() {
			for i := range file.slots {
				s := &file.slots[i]
				was := s.target()
				left := (was.order != t.order || was.epoch < t.epoch) && s.state() == closed &&
					s.live.Load() > 0 && file.header.SlotBytes == l.shape.slotBytes
				if left && !l.rescueSlot(f, slotRef{file, uint32(i)}, t, buf) {
					return
				}
			}
		}
	})
}

// rescueSlot copies the records of a slot that are still read from it, if they are less than half
// of it: else little would be won. False: there is no room for more.
func (l *log) rescueSlot(f *following, ref slotRef, t target, buf []byte) bool {
	file := ref.file
	n := int64(file.slots[ref.slot].live.Load())
	if n*l.shape.cost/int64(len(l.index.places)) > int64(len(buf))*3/4 {
		return true // most of it is, whatever the sizes: not worth a look
	}
	if _, err := file.io.ReadAt(buf, file.header.SlotAt(ref.slot)); err != nil {
		return true // whoever reads these says so
	}
	var live []segment.Entry
	bytes := 0
	l.eachLive(ref, buf, func(e segment.Entry, _ []byte) bool {
		live = append(live, e)
		bytes += int(e.Length)
		return true
	})
	if bytes > len(buf)/2 {
		return true
	}
	t.bucket = lateBucket
	next := f.course(t.epoch + 1)
	for _, e := range live {
		if next != nil && next.has(e.ID) { // its copy is on the way
			continue
		}
		b := buf[e.At+segment.RecordHeader:][:e.Length]
		to, c, ok := l.wanted(int32(t.epoch), e.ID, true)
		if !ok {
			to = t
		}
		if !l.wait(f, func() error { return l.appendTo(to, e.ID, b) }) {
			if c != nil {
				c.giveBack(e.ID)
			}
			return false
		}
	}
	return true
}

// eachLive goes over the records of a slot whose bytes are given that are still read from it, and
// sound.
func (l *log) eachLive(ref slotRef, slot []byte, do func(segment.Entry, []byte) bool) {
	bind := ref.file.header.Bind(ref.slot)
	footer, err := segment.ParseFooter(bind, ref.file.header.SlotBytes, slot)
	if err != nil || footer.Generation != ref.file.slots[ref.slot].generation.Load() {
		return
	}
	for _, e := range footer.Entries {
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
	c.mu.Lock()
	for !c.listed {
		c.loaded.Wait()
	}
	c.mu.Unlock()
	for i, ref := range c.refs {
		if next == nil || c.stateOf(i) != there {
			continue
		}
		slot := c.buf[i*int(l.shape.slotBytes):][:l.shape.slotBytes]
		ok := true
		l.eachLive(ref, slot, func(e segment.Entry, b []byte) bool {
			ok = next.has(e.ID) ||
				l.wait(f, func() error { return l.append(int32(c.epoch), e.ID, b) })
			return ok
		})
		if !ok {
			return
		}
	}
}
