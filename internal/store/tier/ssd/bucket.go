package ssd

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// settleMost is how long a bucket waits for its last records to be synced.
const settleMost = 2 * time.Second

const (
	chainsMax    = 3 // in memory: the one that is read, the next, and one whose rest is carried
	chainsAhead  = 2 // of them, those that are read or will be
	chainLoaders = 8
)

// chain is one bucket in memory: the slots that were filled for it, read side by side.
type chain struct {
	target
	left atomic.Int32 // records not read yet
	most atomic.Int32 // records

	mu     sync.Mutex
	loaded sync.Cond
	listed bool            // guarded by mu; once set, the slots and the buffer stay as they are
	slots  map[slotRef]int // where in buf, in slots
	refs   []slotRef
	buf    []byte
	state  []loadState

	users   int       // guarded by chains, as all below
	touched time.Time // when a user left
	gone    bool
}

// idleAfter is how long nobody must have read a bucket of an epoch before, until it is given up for
// another one whatever is left in it.
const idleAfter = time.Second

type loadState uint8

const (
	loading loadState = iota
	there
	missed
)

// chains are the buckets in memory.
type chains struct {
	mu     sync.Mutex
	freed  sync.Cond // a bucket's memory is free
	open   []*chain
	alive  int // chains with memory: those open, and those whose rest is being carried
	idle   [][]byte
	kept   bool // idle memory is, for the next bucket
	loads  sync.WaitGroup
	closed bool
}

// use returns a bucket, in memory or on its way there; nil: read its samples singly. It waits for
// memory only while what was read before is carried on. It is given back with leave.
func (l *log) use(t target) *chain {
	s := &l.chains
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		if f := l.follow.Load(); f == nil || f.order != t.order {
			return nil
		}
		for _, c := range s.open {
			if c.target == t {
				c.users++
				return c
			}
		}
		if s.alive < chainsMax {
			c := l.fetchChain(t)
			c.users++
			return c
		}
		if l.disks.serial || s.alive == len(s.open) && !l.makePlace(t) {
			return nil
		}
		s.freed.Wait()
	}
	return nil
}

// makePlace gives up a bucket that lies behind.
func (l *log) makePlace(t target) bool {
	for _, c := range l.chains.open {
		behind := c.epoch == t.epoch && c.bucket+1 < t.bucket || c.epoch < t.epoch &&
			(c.left.Load() <= c.most.Load()/4 || c.users == 0 && time.Since(c.touched) > idleAfter)
		if behind || c.order != t.order {
			l.retire(c)
			return true
		}
	}
	return false
}

// giveUp takes a bucket out; its memory is free when its last user leaves.
func (s *chains) giveUp(c *chain) {
	c.gone = true
	s.open = slices.DeleteFunc(s.open, func(o *chain) bool { return o == c })
	s.free(c)
}

func (s *chains) free(c *chain) {
	if !c.gone || c.users > 0 {
		return
	}
	if s.kept && c.buf != nil {
		s.idle = append(s.idle, c.buf)
	} else if c.buf != nil {
		vfs.Free(c.buf)
	}
	s.alive--
	s.freed.Broadcast()
}

func (l *log) leave(c *chain) {
	s := &l.chains
	s.mu.Lock()
	defer s.mu.Unlock()
	c.users--
	c.touched = time.Now()
	s.free(c)
	left, most := c.left.Load(), c.most.Load()
	if c.gone || most == 0 {
		return
	}
	if left < most-most/8 {
		for _, o := range slices.Clone(s.open) { // some of its samples are wanted no more
			if o.order == c.order && (o.epoch < c.epoch || o.epoch == c.epoch && o.bucket < c.bucket) {
				l.retire(o)
			}
		}
		l.ahead(c.target)
	}
	if left <= 0 && c.users == 0 {
		l.retire(c)
	}
}

// retire gives a bucket up that was read, once what of it was not carried is: samples that memory
// had, that nobody wanted, or that the log was too busy for. Else each of them would keep a slot,
// and without free slots nothing can be carried any more. The caller has the lock of the chains.
func (l *log) retire(c *chain) {
	s := &l.chains
	if s.closed {
		s.giveUp(c)
		return
	}
	c.users++
	s.giveUp(c)
	s.loads.Go(func() {
		l.sweep(c)
		l.leave(c)
	})
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
	if f := l.follow.Load(); f == nil || f.order != t.order || !f.course(t.epoch).reaches(t.bucket) {
		return
	}
	if len(s.open) < chainsAhead && s.alive < chainsMax && !s.closed {
		l.fetchChain(t)
	}
}

// fetchChain has a bucket read.
func (l *log) fetchChain(t target) *chain {
	s := &l.chains
	c := &chain{target: t, users: 1} // the loaders
	c.loaded.L = &c.mu
	s.kept = true
	s.open = append(s.open, c)
	s.alive++
	s.loads.Go(func() {
		l.loadAll(c)
		l.leave(c)
	})
	l.rescue(t)
	return c
}

// list finds the slots of a bucket and takes memory for them; none where nothing was filled for it,
// or too much.
func (l *log) list(c *chain) {
	l.settle(c.target)
	var refs []slotRef
	most := int32(0)
	for _, f := range *l.files.Load() {
		for i := range f.slots {
			live := f.slots[i].live.Load()
			if live > 0 && f.slots[i].target() == c.target && f.header.SlotBytes == l.shape.slotBytes {
				refs = append(refs, slotRef{f, uint32(i)})
				most += live
			}
		}
	}
	w := int64(l.shape.slotBytes)
	if int64(len(refs))*w > 2*l.BucketBytes()+16*w {
		refs, most = nil, 0
	}
	slots := map[slotRef]int{}
	for i, ref := range refs {
		slots[ref] = i
	}
	var buf []byte
	if len(refs) > 0 {
		buf = l.chains.buffer(int64(len(refs))*w, l.BucketBytes()*9/8+4*w)
	}
	c.left.Store(most)
	c.most.Store(most)
	c.mu.Lock()
	c.listed, c.slots, c.refs, c.buf = true, slots, refs, buf
	c.state = make([]loadState, len(refs))
	c.mu.Unlock()
	c.loaded.Broadcast()
}

// settle closes what is being filled for a bucket, and waits until it is synced: only then is it
// what the index names.
func (l *log) settle(t target) {
	if f := l.follow.Load(); f != nil && f.order == t.order {
		f.course(t.epoch).begin(t.bucket)
	}
	ends := func(o target) bool {
		return o == t || o.order == t.order && o.epoch == t.epoch && t.bucket >= chainsAhead
	}
	for began := time.Now(); ; {
		filled := false
		for _, w := range l.writers { // again and again: an append may have come in between
			w.endAll(ends)
			filled = filled || w.fillsFor(t)
		}
		if !filled || l.disks.serial || time.Since(began) > settleMost {
			return
		}
		select {
		case <-l.closing:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// buffer takes memory for a bucket, at least so much that most buckets fit.
func (s *chains) buffer(bytes, least int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	return vfs.Aligned(int(max(bytes, least)))
}

// loadAll reads the slots of a bucket side by side, and then the next bucket.
func (l *log) loadAll(c *chain) {
	l.list(c)
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
func (l *log) copyFrom(c *chain, w *want) bool {
	c.mu.Lock()
	for !c.listed {
		c.loaded.Wait()
	}
	c.mu.Unlock()
	i, at, ok := l.slotIn(c, w.place)
	if !ok { // its copy there may be synced by now
		if w.place, w.sum = l.index.get(w.read.ID); w.place == 0 { // or it was given up
			w.read.Err = tier.ErrAbsent
			return false
		}
		i, at, ok = l.slotIn(c, w.place)
	}
	if !ok || c.stateOf(i) == missed {
		return false
	}
	from := i*int(l.shape.slotBytes) + int(at) + recordHeader
	copy(w.read.Dst, c.buf[from:])
	if !l.fits(*w) {
		return false
	}
	c.left.Add(-1)
	l.counts.bucketed.Add(1)
	l.counts.read.Add(int64(len(w.read.Dst)))
	l.counts.copied.Add(int64(len(w.read.Dst)))
	return true
}

// slotIn is which slot of a bucket a place is in, and where there.
func (l *log) slotIn(c *chain, p place) (i int, at uint32, ok bool) {
	f := l.fileOf(p)
	slot, at := f.locate(p)
	i, ok = c.slots[slotRef{f, slot}]
	return i, at, ok
}

// stateOf waits until a slot is there, or was missed.
func (c *chain) stateOf(i int) loadState {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.state[i] == loading {
		c.loaded.Wait()
	}
	return c.state[i]
}

// drop gives up all buckets and their memory.
func (s *chains) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = false
	for len(s.open) > 0 {
		s.giveUp(s.open[0])
	}
	s.freed.Broadcast()
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
	f := l.follow.Load()
	if f == nil {
		return wants
	}
	course := f.course(uint32(epoch))
	rest = wants[:0]
	var c *chain
	for _, w := range wants {
		t, ok := l.bucketOf(f, course, w)
		if c != nil && (!ok || c.target != t) {
			l.leave(c)
			c = nil
		}
		if ok && c == nil {
			c = l.use(t)
		}
		if c == nil || !l.copyFrom(c, &w) {
			rest = append(rest, w)
		}
	}
	if c != nil {
		l.leave(c)
	}
	return slices.DeleteFunc(rest, func(w want) bool { return w.place == 0 })
}

// bucketOf is the bucket that a sample was carried to for an epoch, if it is still there. Its copy
// there may not be synced yet.
func (l *log) bucketOf(f *following, c *course, w want) (target, bool) {
	if c == nil {
		return target{}, false
	}
	t := target{f.order, c.epoch, uint32(c.buckets[w.read.ID])}
	lies := l.targetOf(w.place)
	return t, c.has(w.read.ID) && t.bucket != tier.Uncarried && lies.bucket != lateBucket &&
		(lies.order != f.order || lies.epoch <= c.epoch)
}
