package origin

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"belady/internal/core/dataset"
)

// lane carries one attempt at a time and keeps what attempts need: a cancellable context and a
// timer. Making those costs more than a small read, so a lane is used again as long as nothing
// was cancelled, no timer fired, and the caller's context is the same.
type lane struct {
	r          *resilient
	parent     context.Context // ctx is derived from it; nil: from one that cannot be compared
	ctx        context.Context
	cancel     context.CancelFunc
	timer      *time.Timer
	hedgeAfter time.Duration // zero: no hedge
	reusable   bool

	mu       sync.Mutex
	part     dataset.Part // guarded by mu, as all below
	size     int
	timeout  time.Duration // of the attempt, from its start
	finished bool
	expired  bool
	hedge    *hedge
}

// hedge is a second attempt beside a slow one, into memory of its own: dst belongs to the first.
type hedge struct {
	cancel context.CancelFunc
	done   chan struct{}
	bytes  []byte
	err    error // after done
}

// attempt reads once, within timeout. dst is not touched after it returns.
func (l *lane) attempt(ctx context.Context, part dataset.Part, dst []byte,
	timeout time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.ctx == nil || l.parent != ctx || l.ctx.Err() != nil {
		if l.cancel != nil {
			l.cancel()
		}
		l.ctx, l.cancel = context.WithCancel(ctx)
		l.parent = nil
		if reflect.TypeOf(ctx).Comparable() {
			l.parent = ctx
		}
	}
	first := timeout
	if l.hedgeAfter > 0 && l.hedgeAfter < timeout {
		first = l.hedgeAfter
	} else {
		l.hedgeAfter = 0
	}
	l.mu.Lock()
	l.part, l.size, l.timeout, l.finished = part, len(dst), timeout, false
	if l.timer == nil {
		l.timer = time.AfterFunc(first, l.fire)
	} else {
		l.timer.Reset(first)
	}
	l.mu.Unlock()
	err := l.r.inner.Read(l.ctx, part, dst)
	return l.settle(ctx, err, dst)
}

// settle ends the attempt whose own read returned err.
func (l *lane) settle(ctx context.Context, err error, dst []byte) error {
	l.mu.Lock()
	h := l.hedge
	join := h != nil && err != nil && ctx.Err() == nil && (l.ctx.Err() != nil || retryable(err))
	l.finished = !join
	l.mu.Unlock()
	if join {
		<-h.done // ends at the latest when the timer cancels ctx
		if h.err == nil {
			copy(dst, h.bytes)
			err = nil
		}
		l.mu.Lock()
		l.finished = true
		l.mu.Unlock()
	} else if h != nil {
		h.cancel()
	}
	// A timer that has fired may still be on its way to this lane: it must not meet a later
	// attempt here.
	l.reusable = l.timer.Stop() && h == nil && err == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.expired && ctx.Err() == nil {
		return fmt.Errorf("%w: %q in %s: no answer within %v", ErrUnavailable, l.part.Name,
			l.r.URL(), l.timeout)
	}
	return err
}

// fire is the timer's: it starts the hedge if there is to be one, and ends the attempt otherwise.
func (l *lane) fire() {
	l.mu.Lock()
	if l.finished {
		l.mu.Unlock()
		return
	}
	if l.hedgeAfter == 0 || l.hedge != nil || !l.r.mayHedge() {
		if l.hedgeAfter > 0 && l.hedge == nil {
			l.timer.Reset(l.timeout - l.hedgeAfter) // no token for a hedge: wait for the deadline
			l.hedgeAfter = 0
		} else {
			l.expired = true
			l.cancel()
		}
		l.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(l.ctx)
	h := &hedge{cancel: cancel, done: make(chan struct{}), bytes: make([]byte, l.size)}
	l.hedge = h
	part, stop := l.part, l.cancel
	l.timer.Reset(l.timeout - l.hedgeAfter)
	l.mu.Unlock()
	defer l.r.hedges.Done()
	defer cancel()
	h.err = l.r.inner.Read(ctx, part, h.bytes)
	close(h.done)
	if h.err == nil {
		stop() // the first attempt has lost
	}
}

// mayHedge pays for a hedge and counts it among those Close waits for.
func (r *resilient) mayHedge() bool {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.budget.takeNow(&r.config, now) {
		return false
	}
	r.hedges.Add(1)
	return true
}
