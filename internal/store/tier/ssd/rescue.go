package ssd

import (
	"errors"
	"time"

	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// rescueWait is how long the rescue of a slot waits for the device at most.
const rescueWait = 5 * time.Second

// rescue carries what epochs that are over have left in their slots: samples that nobody read, or
// whose copies were refused. Each of them would keep a whole slot, and without free slots nothing
// can be carried any more. It begins when the second bucket of an epoch is wanted: by then the
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
				left := was.order == t.order && was.epoch < t.epoch && s.state() == closed &&
					s.live.Load() > 0 && file.header.SlotBytes == l.shape.slotBytes
				if left && !l.rescueSlot(slotRef{file, uint32(i)}, t, buf) {
					return
				}
			}
		}
	})
}

// rescueSlot copies the records of a slot that are still read from it, if they are less than half
// of it: else little would be won. False: there is no room for more.
func (l *log) rescueSlot(ref slotRef, t target, buf []byte) bool {
	f := ref.file
	generation := f.slots[ref.slot].generation.Load()
	if _, err := f.io.ReadAt(buf, f.header.SlotAt(ref.slot)); err != nil {
		return true // whoever reads these says so
	}
	bind := f.header.Bind(ref.slot)
	footer, err := segment.ParseFooter(bind, f.header.SlotBytes, buf)
	if err != nil || footer.Generation != generation {
		return true
	}
	var live []segment.Entry
	bytes := 0
	for _, e := range footer.Entries {
		p, _ := l.index.get(e.ID)
		if p == f.place(ref.slot, e.At) {
			live = append(live, e)
			bytes += int(e.Length)
		}
	}
	if bytes > len(buf)/2 {
		return true
	}
	t.bucket = lateBucket
	for _, e := range live {
		b := buf[e.At+segment.RecordHeader:][:e.Length]
		if bind.Sum(e, generation, b) != e.Sum {
			continue
		}
		if !l.wait(func() error { return l.appendTo(t, e.ID, b) }) {
			return false
		}
	}
	return true
}

// wait tries an append until the log is not busy, for a while.
func (l *log) wait(try func() error) bool {
	for began := l.now(); ; {
		err := try()
		if !errors.Is(err, tier.ErrBusy) {
			return err == nil
		}
		if l.now().Sub(began) > rescueWait || l.follow.Load() == nil {
			return false
		}
		select {
		case <-l.closing:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// retire gives a bucket up that was read, and carries what is left in it, as if it had been read.
// The caller has the lock of the chains.
func (l *log) retire(c *chain) {
	s := &l.chains
	c.users++
	s.giveUp(c)
	if s.swept != nil || s.closed { // one at a time: the rescue of the epoch has the rest
		c.users--
		if c.users == 0 {
			s.put(c.buf)
		}
		return
	}
	s.swept = c
	s.loads.Go(func() {
		l.sweep(c)
		s.mu.Lock()
		s.swept = nil
		s.mu.Unlock()
		l.leave(c)
	})
}

// sweep appends the samples of a bucket that were not carried, from memory.
func (l *log) sweep(c *chain) {
	f := l.follow.Load()
	if f == nil || f.order != c.order {
		return
	}
	next := f.course(c.epoch + 1) // held: the job may go on to another epoch meanwhile
	if next == nil {
		return
	}
	for i, ref := range c.refs {
		c.mu.Lock()
		state := c.state[i]
		c.mu.Unlock()
		if state != there {
			continue
		}
		slot := c.buf[i*int(l.shape.slotBytes):][:l.shape.slotBytes]
		bind := ref.file.header.Bind(ref.slot)
		footer, err := segment.ParseFooter(bind, l.shape.slotBytes, slot)
		if err != nil { // it was still open: its samples are new here
			continue
		}
		for _, e := range footer.Entries {
			p, _ := l.index.get(e.ID)
			b := slot[e.At+segment.RecordHeader:][:e.Length]
			if p != ref.file.place(ref.slot, e.At) ||
				next.has(e.ID) || bind.Sum(e, footer.Generation, b) != e.Sum {
				continue
			}
			if !l.wait(func() error { return l.append(int32(c.epoch), e.ID, b) }) {
				return
			}
		}
	}
}
