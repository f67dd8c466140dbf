package world

import (
	"sync"

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
	follower tier.Follower // nil: the log is not carried

	mu    sync.Mutex
	order uint64 // what is followed, by its digest; 0: nothing. Guarded by mu, as all below
	epoch int    // the last one whose buckets the log knows
	told  bool   // that it cannot be
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
	for _, other := range w.cursors {
		if other != nil && other != c && other.follows != digest {
			return
		}
	}
	c.follows = digest
	w.following.mu.Lock()
	defer w.following.mu.Unlock()
	if w.following.order != digest {
		w.following.order, w.epoch, w.told = digest, 0, false
	}
}

// unfollow ends the carrying once the last rank of the order it follows has gone.
func (w *World) unfollow(gone *Cursor) {
	if gone.follows == 0 {
		return
	}
	for _, c := range w.cursors {
		if c != nil && c.follows == gone.follows {
			return
		}
	}
	w.helpers.Go(func() {
		w.following.mu.Lock()
		defer w.following.mu.Unlock()
		if w.following.order == gone.follows {
			w.following.order = 0
			w.follower.Unfollow()
		}
	})
}

// lead has the log know where the samples of the epoch after this one are wanted, before this one
// is read. A helper calls it.
func (w *World) lead(c *Cursor, epoch int, p *plan.Plan) {
	if c.follows == 0 || epoch+1 >= c.reading.Epochs {
		return
	}
	f := &w.following
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.order != c.follows || f.epoch > epoch {
		return
	}
	err := w.bucket(&c.reading.Order, epoch+1, p)
	if f.epoch = epoch + 1; err != nil && !f.told {
		f.told = true
		w.tell(event.LogLayout{Dataset: w.Name, Why: "its samples stay where they are: " + err.Error()})
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
	return w.follower.Follow(w.following.order, epoch, buckets)
}
