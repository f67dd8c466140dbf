package ssd

import (
	"slices"
	"sync"
	"sync/atomic"

	"belady/internal/store/vfs"
)

const (
	chainsMax    = 2 // in memory: the one that is read, and the next
	chainLoaders = 8
)

// chain is one bucket in memory: the slots that were filled for it, read side by side.
type chain struct {
	target
	slots map[slotRef]int // where in buf, in slots
	refs  []slotRef
	buf   []byte
	left  atomic.Int32 // records not read yet
	most  int32        // of them

	mu     sync.Mutex
	loaded sync.Cond
	state  []loadState

	users int  // guarded by chains
	gone  bool // guarded by chains
}

type loadState uint8

const (
	loading loadState = iota
	there
	missed
)

// chains are the buckets in memory. What cannot be had here is read singly, so nothing ever waits
// for a buffer.
type chains struct {
	mu     sync.Mutex
	open   []*chain
	swept  *chain // whose leftovers are being carried; nil: none
	idle   [][]byte
	kept   bool // idle memory is, for the next bucket
	loads  sync.WaitGroup
	closed bool
}

// use returns the bucket that a place belongs to, in memory or on its way there; nil: read it
// singly. It is given back with leave.
func (l *log) use(p place, epoch int32) *chain {
	f := l.follow.Load()
	t := l.targetOf(p)
	if f == nil || t.order != f.order || t.epoch != uint32(epoch) || t.bucket == lateBucket {
		return nil
	}
	s := &l.chains
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		if c.target == t {
			c.users++
			return c
		}
	}
	if !l.makePlace(t) {
		return nil
	}
	c := l.loadChain(t)
	l.rescue(t)
	if c != nil {
		c.users++
	}
	return c
}

// makePlace gives up a bucket that lies behind, if there is no room for another one.
func (l *log) makePlace(t target) bool {
	s := &l.chains
	if s.closed {
		return false
	}
	if len(s.open) < chainsMax {
		return true
	}
	for _, c := range s.open {
		behind := c.epoch == t.epoch && c.bucket+1 < t.bucket ||
			c.epoch < t.epoch && c.left.Load() < c.most/4 // else both would be read in turns
		if behind || c.order != t.order {
			l.retire(c)
			return true
		}
	}
	return false
}

// giveUp takes a bucket out; its memory is free when its last reader leaves.
func (s *chains) giveUp(c *chain) {
	c.gone = true
	s.open = slices.DeleteFunc(s.open, func(o *chain) bool { return o == c })
	if c.users == 0 {
		s.put(c.buf)
	}
}

func (s *chains) put(buf []byte) {
	if s.kept {
		s.idle = append(s.idle, buf)
	} else {
		vfs.Free(buf)
	}
}

func (l *log) leave(c *chain) {
	s := &l.chains
	s.mu.Lock()
	defer s.mu.Unlock()
	c.users--
	switch {
	case c.gone && c.users == 0:
		s.put(c.buf)
	case !c.gone && c.left.Load() <= 0 && c.users == 0:
		l.retire(c)
		l.ahead(c.target)
	case !c.gone && c.left.Load() < c.most/2:
		for _, o := range slices.Clone(s.open) { // some of its samples are wanted no more
			if o.order == c.order && o.epoch == c.epoch && o.bucket < c.bucket {
				l.retire(o)
			}
		}
		l.ahead(c.target)
	}
}

// ahead loads the bucket behind t, if there is room for it.
func (l *log) ahead(t target) {
	s := &l.chains
	t.bucket++
	for _, c := range s.open {
		if c.target == t {
			t.bucket++
		}
	}
	if len(s.open) < chainsMax && !s.closed {
		l.loadChain(t)
	}
}

// loadChain begins to read a bucket; nil where nothing was filled for it, or too much.
func (l *log) loadChain(t target) *chain {
	c := &chain{target: t, slots: map[slotRef]int{}}
	c.loaded.L = &c.mu
	for _, f := range *l.files.Load() {
		for i := range f.slots {
			live := f.slots[i].live.Load()
			if live > 0 && f.slots[i].target() == t && f.header.SlotBytes == l.shape.slotBytes {
				ref := slotRef{f, uint32(i)}
				c.slots[ref] = len(c.refs)
				c.refs = append(c.refs, ref)
				c.left.Add(live)
				c.most += live
			}
		}
	}
	w := int64(l.shape.slotBytes)
	if len(c.refs) == 0 || int64(len(c.refs))*w > 2*l.BucketBytes()+16*w {
		return nil
	}
	c.state = make([]loadState, len(c.refs))
	s := &l.chains
	s.kept = true
	c.buf = s.buffer(int64(len(c.refs)) * w)
	s.open = append(s.open, c)
	c.users++ // the loaders
	s.loads.Go(func() { l.loadAll(c) })
	return c
}

func (s *chains) buffer(bytes int64) []byte {
	for i, buf := range s.idle {
		if int64(len(buf)) >= bytes {
			s.idle = slices.Delete(s.idle, i, i+1)
			return buf
		}
	}
	for _, buf := range s.idle { // too small: the next ones are not
		vfs.Free(buf)
	}
	s.idle = nil
	return vfs.Aligned(int(bytes + bytes/8))
}

// loadAll reads the slots of a bucket side by side, and then the next bucket.
func (l *log) loadAll(c *chain) {
	var next atomic.Int32
	var loaders sync.WaitGroup
	for range min(chainLoaders, len(c.refs)) {
		loaders.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(c.refs); i = int(next.Add(1)) - 1 {
				state := l.loadSlot(c, i)
				c.mu.Lock()
				c.state[i] = state
				c.mu.Unlock()
				c.loaded.Broadcast()
			}
		})
	}
	loaders.Wait()
	l.chains.mu.Lock()
	if !c.gone {
		l.ahead(c.target)
	}
	l.chains.mu.Unlock()
	l.leave(c)
}

func (l *log) loadSlot(c *chain, i int) loadState {
	ref := c.refs[i]
	w := int(l.shape.slotBytes)
	dst := c.buf[i*w:][:w]
	if ref.file.writer.copySlot(ref, dst) {
		return there
	}
	if ref.file.dir.health.state() != sound {
		return missed
	}
	if _, err := ref.file.io.ReadAt(dst, ref.file.header.SlotAt(ref.slot)); err != nil {
		return missed // each record of it is then read singly, and says what is wrong
	}
	records := int(ref.file.slots[ref.slot].live.Load())
	ref.file.dir.health.lately.count(outcome{records: records}, l.now())
	return there
}

// copyFrom takes a sample out of a bucket, once its slot is there. False: read it singly.
func (l *log) copyFrom(c *chain, w want) bool {
	f := l.fileOf(w.place)
	slot, at := f.locate(w.place)
	i, ok := c.slots[slotRef{f, slot}]
	if !ok {
		return false
	}
	c.mu.Lock()
	for c.state[i] == loading {
		c.loaded.Wait()
	}
	state := c.state[i]
	c.mu.Unlock()
	if state == missed {
		return false
	}
	from := i*int(l.shape.slotBytes) + int(at) + recordHeader
	copy(w.read.Dst, c.buf[from:])
	if !l.fits(w) {
		return false
	}
	c.left.Add(-1)
	l.counts.bucketed.Add(1)
	l.counts.read.Add(int64(len(w.read.Dst)))
	l.counts.copied.Add(int64(len(w.read.Dst)))
	return true
}

// drop gives up all buckets and their memory.
func (s *chains) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = false
	for len(s.open) > 0 {
		s.giveUp(s.open[0])
	}
	for _, buf := range s.idle {
		vfs.Free(buf)
	}
	s.idle = nil
}

// close waits for loaders and gives the memory back. Nobody reads any more.
func (s *chains) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drop()
	s.loads.Wait()
}

// fromBuckets serves what lies in buckets that are in memory, and returns the rest.
func (l *log) fromBuckets(epoch int32, wants []want) (rest []want) {
	rest = wants[:0]
	var c *chain
	for _, w := range wants {
		if c == nil || l.targetOf(w.place) != c.target {
			if c != nil {
				l.leave(c)
			}
			c = l.use(w.place, epoch)
		}
		if c == nil || !l.copyFrom(c, w) {
			rest = append(rest, w)
		}
	}
	if c != nil {
		l.leave(c)
	}
	return rest
}
