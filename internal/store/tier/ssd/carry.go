package ssd

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/tier"
)

// target is what a slot is filled for; the zero one is no order's.
type target struct {
	order         uint64
	epoch, bucket uint32
}

// lateBucket has the samples that were carried once their epoch's buckets were closed: read singly.
const lateBucket = math.MaxUint32

func (t target) tag(generation uint64) segment.Tag {
	return segment.Tag{Generation: generation, Order: t.order, Epoch: t.epoch, Bucket: t.bucket}
}

// following is the order that a log is carried along.
type following struct {
	order uint64
	lent  int64
	worn  atomic.Bool // the day's bytes are written
	stuck atomic.Bool // no slot has fallen free for long

	rescuing atomic.Bool

	mu      sync.Mutex
	courses []*course // of some epochs, the latest one last
}

// coursesKept is how many epochs have known buckets: orders are computed up to three epochs ahead
// of the one whose last samples are read.
const coursesKept = 4

// course is where the samples of one epoch are wanted.
type course struct {
	epoch   uint32
	buckets []uint16
	last    uint32          // bucket
	carried []atomic.Uint64 // a bit a sample
	begun   atomic.Int64    // buckets up to this one are being read, or were: their slots are closed
}

// begin notes that a bucket is being read. By the third of an epoch, the last of the one before are
// carried, and no more is expected for any.
func (c *course) begin(bucket uint32) {
	if c == nil {
		return
	}
	to := int64(bucket)
	if bucket >= chainsAhead {
		to = lateBucket
	}
	for was := c.begun.Load(); was < to && !c.begun.CompareAndSwap(was, to); was = c.begun.Load() {
	}
}

func (c *course) reaches(bucket uint32) bool { return c != nil && bucket <= c.last }

func (f *following) course(epoch uint32) *course {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.courses {
		if c.epoch == epoch {
			return c
		}
	}
	return nil
}

// takes tells whether a sample is on its way to an epoch before this one.
func (f *following) takes(id sample.ID, epoch uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.courses, func(c *course) bool { return c.epoch < epoch && c.has(id) })
}

func (c *course) take(id sample.ID) bool {
	bit := uint64(1) << (id % 64)
	return c.carried[id/64].Or(bit)&bit == 0
}

func (c *course) has(id sample.ID) bool {
	return c.carried[id/64].Load()>>(id%64)&1 == 1
}

func (c *course) giveBack(id sample.ID) {
	if c == nil {
		return
	}
	c.carried[id/64].And(^(uint64(1) << (id % 64)))
}

// BucketBytes is how many bytes of samples a bucket should have: √(kept · slot), which makes the
// memory for open slots and the memory for a bucket equal.
func (l *log) BucketBytes() int64 {
	kept := float64(min(l.shape.cost, l.counts.capacity.Load()))
	return max(int64(math.Sqrt(kept*float64(l.shape.slotBytes))), int64(l.shape.slotBytes))
}

// Follow begins to carry samples, as they are read in the epoch before, to their buckets of epoch.
func (l *log) Follow(order uint64, epoch int, buckets []uint16) error {
	if !l.gate.enter() {
		return tier.ErrDown
	}
	defer l.gate.leave()
	if l.layout != tier.Carry {
		return fmt.Errorf("follow an order: the log of %s is %s", l.config.Name, l.layout)
	}
	if order == 0 || len(buckets) != len(l.index.spots) {
		return errors.New("follow an order: it is not one of this dataset")
	}
	f := l.follow.Load()
	if f == nil || f.order != order {
		l.Unfollow()
		var err error
		if f, err = l.begins(order, uint32(epoch), buckets); err != nil {
			return err
		}
	}
	c := &course{epoch: uint32(epoch), buckets: buckets,
		carried: make([]atomic.Uint64, (len(buckets)+63)/64)}
	c.begun.Store(-1)
	for id := range sample.ID(len(buckets)) {
		if b := uint32(buckets[id]); b != tier.Uncarried {
			c.last = max(c.last, b)
		}
		if t := l.liesFor(id); t.order == order && t.epoch == c.epoch && !f.takes(id, c.epoch) {
			c.take(id)
		}
	}
	f.mu.Lock()
	f.courses = append(slices.DeleteFunc(f.courses, func(o *course) bool {
		return o.epoch == c.epoch || o.epoch+coursesKept <= c.epoch
	}), c)
	f.mu.Unlock()
	l.follow.Store(f)
	if d := l.worn(); d == nil {
		f.worn.Store(false)
	} else {
		l.wears(d)
	}
	return nil
}

// begins checks whether an order can be followed. Slots filled for another one fall free late, so
// that there must be room for a second copy of what lies in those.
func (l *log) begins(order uint64, epoch uint32, buckets []uint16) (*following, error) {
	foreign := int64(0)
	for id := range sample.ID(len(buckets)) {
		p, _ := l.index.get(id)
		if p == 0 || buckets[id] == tier.Uncarried {
			continue
		}
		lies := l.targetOf(p)
		if lies.order != order || lies.epoch > epoch { // a job that is begun again
			foreign += plan.RecordCost(l.config.Sizes.Size(id))
		}
	}
	if err := l.promiseCopy(foreign + foreign/10); err != nil {
		return nil, err
	}
	f := &following{order: order, lent: 4 * l.BucketBytes()}
	if l.config.Lend != nil && !l.config.Lend(f.lent) {
		return nil, fmt.Errorf("follow an order: carrying takes %d bytes of memory", f.lent)
	}
	return f, nil
}

// promiseCopy has the directories promise room for so many bytes beyond the slots that are free.
func (l *log) promiseCopy(bytes int64) error {
	free, room := int64(0), make([]int64, len(l.writers))
	for i, w := range l.writers {
		w.mu.Lock()
		free += int64(len(w.free)) * int64(l.shape.slotBytes)
		w.mu.Unlock()
		free += w.dir.promisedTo(&w.promise)
		room[i] = max(0, w.dir.room(&w.promise)-w.dir.promisedTo(&w.promise))
	}
	lacks, all := bytes-free, int64(0)
	for _, r := range room {
		all += r
	}
	if lacks > all {
		return fmt.Errorf("follow an order: the log of %s was filled for another one, and a second "+
			"copy of it takes %d bytes: %d are free", l.config.Name, bytes, free+all)
	}
	for i, w := range l.writers {
		if lacks > 0 {
			w.dir.promise(&w.promise, min(room[i], lacks*room[i]/all+int64(l.shape.slotBytes)))
		}
	}
	return nil
}

// Unfollow ends carrying. What was carried stays where it is, and is read as in static.
func (l *log) Unfollow() {
	f := l.follow.Swap(nil)
	if f == nil {
		return
	}
	for _, w := range l.writers {
		w.endAll(func(t target) bool { return t.order == f.order })
	}
	l.chains.drop()
	if l.config.Return != nil {
		l.config.Return(f.lent)
	}
}

// worn is a directory that has had its bytes for the day; nil: none.
func (l *log) worn() *dir {
	for _, w := range l.writers {
		if w.dir.memo.CarriedToday(l.now()) >= w.dir.wear {
			return w.dir
		}
	}
	return nil
}

// wears counts what was carried to a directory, and stops carrying once the day's bytes are.
func (l *log) wears(d *dir) {
	f := l.follow.Load()
	d.memo.Carried(d.carried.Swap(0), l.now())
	if f == nil || d.memo.CarriedToday(l.now()) < d.wear || !f.worn.CompareAndSwap(false, true) {
		return
	}
	l.tell(tier.Notice{Kind: tier.Worn, Dir: d.path, Bytes: d.wear,
		Text: "the bytes of the day are written: nothing is carried until the next epoch that begins " +
			"with some left"})
}

// wanted returns what a sample read in epoch is appended for, its bucket of the next one if the log
// follows an order; and whether it is to be appended at all.
func (l *log) wanted(epoch int32, id sample.ID, held bool) (t target, c *course, ok bool) {
	f := l.follow.Load()
	if f == nil || f.worn.Load() {
		return target{}, nil, !held
	}
	c = f.course(uint32(epoch) + 1)
	if c == nil {
		return target{}, nil, !held
	}
	if c.buckets[id] == tier.Uncarried && (!held || !l.moves(id, f.order)) {
		return target{}, nil, !held
	}
	if !c.take(id) {
		return target{}, nil, false
	}
	if was := l.liesFor(id); was.order == f.order && was.epoch > c.epoch {
		f.course(was.epoch).giveBack(id) // an earlier run has carried it there
	}
	t = target{f.order, c.epoch, uint32(c.buckets[id])}
	if t.bucket == tier.Uncarried || int64(t.bucket) <= c.begun.Load() {
		t.bucket = lateBucket
	}
	return t, c, true
}

// moves tells whether a sample lies in a bucket of an order, whose slots are to fall free.
func (l *log) moves(id sample.ID, order uint64) bool {
	t := l.liesFor(id)
	return t.order == order && t.bucket != lateBucket
}

// liesFor is what the slot of a sample was filled for; of one that is not held, nothing.
func (l *log) liesFor(id sample.ID) target {
	p, _ := l.index.get(id)
	if p == 0 {
		return target{}
	}
	return l.targetOf(p)
}

// endAll closes the open slots of some targets and has them synced soon.
func (w *writer) endAll(which func(target) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t, f := range w.opens {
		if which(t) {
			w.close(f)
			w.hurry = true
		}
	}
}

// fillsFor tells whether a slot of a target is on its way to the device, and has it synced soon.
func (w *writer) fillsFor(t target) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.fills, func(f *fill) bool { return f.target == t }) {
		return false
	}
	w.hurry = true
	w.nudge()
	return true
}

// targetOf is what the slot of a place was filled for.
func (l *log) targetOf(p place) target {
	f := l.fileOf(p)
	slot, _ := f.locate(p)
	return f.slots[slot].target()
}

// moveIn makes the synced copies of carried samples the authoritative records. It returns the slots
// that have none left.
func (w *writer) moveIn(f *fill, entries []segment.Entry) (emptied []slotRef) {
	l := w.log
	s := &f.file.slots[f.slot]
	for _, e := range entries {
		to := f.file.place(f.slot, e.At)
		was, ok := l.supersede(e, to, s.generation.Load())
		if !ok || was == to {
			continue
		}
		s.live.Add(1)
		if was == 0 { // it was given up meanwhile
			l.counts.samples.Add(1)
			l.counts.used.Add(plan.RecordCost(e.Length))
			continue
		}
		old := l.fileOf(was)
		slot, _ := old.locate(was)
		if old.slots[slot].live.Add(-1) == 0 {
			emptied = append(emptied, slotRef{old, slot})
		}
	}
	return emptied
}
