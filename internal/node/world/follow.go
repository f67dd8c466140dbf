package world

import (
	"sync"
	"sync/atomic"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/sample"
	"belady/internal/node/event"
	"belady/internal/store/tier"
)

// following is the carrying of a log along one job's order: while an epoch is read, samples are
// appended to where the next one will read them.
type following struct {
	follower tier.Follower          // nil: the log is not carried
	asked    atomic.Pointer[course] // what the ranks want carried; nil: nothing. The owner's to set
	stays    atomic.Pointer[string] // why the log would not follow it; nil: it does, or is not asked

	mu  sync.Mutex // held while the log is told, which takes an epoch's computing
	led *course    // what the log was told last; nil: to end. Guarded by mu
}

// course is one job's order, from its first rank's joining to its last one's leaving. A job that
// begins again is another one: it may read epochs again that the log was led through.
type course struct {
	order  uint64       // its digest
	epochs map[int]bool // whose buckets the log knows. Guarded by following.mu, as all below
	told   bool         // that it cannot be carried
}

// carried is the log as one that is carried; nil if it is not.
func (l *Log) carried() tier.Follower {
	if l == nil || l.room.Layout != tier.Carry {
		return nil
	}
	f, _ := l.Log.(tier.Follower)
	return f
}

// Memory is what the log will ask of the node's pool while it is carried.
func (l *Log) Memory() int64 {
	if f := l.carried(); f != nil {
		return 4 * f.BucketBytes()
	}
	return 0
}

// follow decides whether the log follows the order of a rank that joins: it does if nobody reads in
// another one. The owner calls it.
func (w *World) follow(c *Cursor) {
	spec := &c.reading.Order
	digest := spec.Digest()
	if w.follower == nil || c.feed == nil || spec.Repeats() || digest == 0 {
		return
	}
	var on *course
	for _, other := range w.cursors {
		if other == nil || other == c {
			continue
		}
		if on = other.follows; on == nil || on.order != digest {
			return
		}
	}
	if on == nil {
		on = &course{order: digest, epochs: map[int]bool{}}
	}
	c.follows = on
	w.asked.Store(on)
}

// unfollow ends the carrying once the last rank of the order it follows has gone. The owner calls
// it.
func (w *World) unfollow(gone *Cursor) {
	if gone.follows == nil {
		return
	}
	for _, c := range w.cursors {
		if c != nil && c.follows == gone.follows {
			return
		}
	}
	w.asked.CompareAndSwap(gone.follows, nil)
	w.helpers.Go(func() {
		w.following.mu.Lock()
		defer w.following.mu.Unlock()
		if w.led == gone.follows { // else another job has begun meanwhile
			w.led = nil
			w.stays.Store(nil)
			w.follower.Unfollow()
		}
	})
}

// lead has the log know where the samples of the epoch after this one are wanted, before this one
// is read; and of this one, if a job begins with it, that an earlier run may have carried samples
// to. A helper calls it.
func (w *World) lead(c *Cursor, epoch int, p *plan.Plan) {
	on := c.follows
	if on == nil {
		return
	}
	w.following.mu.Lock()
	defer w.following.mu.Unlock()
	for e := max(epoch, 1); e <= epoch+1 && e < c.reading.Epochs; e++ { // none is carried to epoch 0
		if on.epochs[e] || w.asked.Load() != on {
			continue
		}
		on.epochs[e] = true
		if w.led != on {
			if w.led != nil {
				w.follower.Unfollow()
			}
			w.led = on
		}
		err := w.bucket(&c.reading.Order, e, p)
		if err == nil {
			w.stays.Store(nil)
			continue
		}
		why := "its samples stay where they are: " + err.Error()
		w.stays.Store(&why)
		if !on.told {
			on.told = true
			w.tell(event.LogLayout{Dataset: w.Name, Why: why})
		}
	}
}

func (w *World) bucket(spec *order.Spec, epoch int, p *plan.Plan) error {
	o, err := order.New(*spec)
	if err != nil {
		return err
	}
	buckets := make([]uint16, w.Set.Len())
	each := w.follower.BucketBytes()
	in := func(id sample.ID) bool { return p.InLog(id) && !p.InSet(id) }
	if _, err = job.Buckets(o, spec, epoch, w.Set, in, each, buckets); err != nil {
		return err
	}
	for id := range buckets {
		if p.InSet(sample.ID(id)) {
			buckets[id] = tier.Uncarried
		}
	}
	return w.follower.Follow(w.led.order, epoch, buckets)
}
