package origin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"belady/internal/core/dataset"
)

// resilient is the origin Resilient returns.
type resilient struct {
	inner  Origin
	config RetryConfig
	opened time.Time
	hedges sync.WaitGroup

	mu      sync.Mutex
	limit   limiter   // guarded by mu, as all below
	budget  budget    //
	tail    tail      //
	inside  int       // attempts running, hedges not counted
	waiting []*waiter // first come, first served
	free    []*lane   // at most ConcurrencyMax
	closed  bool
}

// waiter is a read waiting for its turn.
type waiter struct{ ready chan struct{} }

// Resilient makes reads of o survive what passes: unavailable origins are asked again after a
// pause, attempts have deadlines, slow ones are hedged once, and an origin that asks to slow down
// is asked less at once. ErrAbsent, ErrChanged and ErrDenied are never retried. A read that fails
// to the end is ErrUnavailable and says "timed out after". Identical reads at the same time are
// read twice: joining them is the pump's. List passes through: a listing cannot be repeated in the
// middle, and drivers retry its pages. Close closes o.
func Resilient(o Origin, c RetryConfig) (Origin, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("retry configuration of %s: %w", o.URL(), err)
	}
	r := &resilient{inner: o, config: c, opened: time.Now()}
	r.limit.limit = float64(c.ConcurrencyMax)
	r.budget.tokens = budgetCap
	return r, nil
}

func (r *resilient) URL() string { return r.inner.URL() }

func (r *resilient) List(ctx context.Context, fn func([]dataset.Object) error) error {
	return r.inner.List(ctx, fn)
}

func (r *resilient) Close() error {
	r.mu.Lock()
	r.closed = true
	for _, l := range r.free {
		l.cancel()
	}
	r.free = nil
	r.mu.Unlock()
	err := r.inner.Close()
	r.hedges.Wait()
	return err
}

// now is the time since the opening; monotonic.
func (r *resilient) now() int64 { return int64(time.Since(r.opened)) }

func (r *resilient) Read(ctx context.Context, part dataset.Part, dst []byte) error {
	deadline := int64(0)
	for n := 0; ; n++ {
		l, err := r.acquire(ctx)
		if err != nil {
			return err
		}
		started := r.now()
		if n == 0 {
			deadline = started + int64(r.config.TotalTimeout)
		}
		left := time.Duration(deadline - started)
		err = l.attempt(ctx, part, dst, min(r.config.AttemptTimeout, left))
		now := r.now()
		pause := r.finish(l, err, n, started, now)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !retryable(err) {
			return err
		}
		if now+int64(pause) >= deadline {
			return fmt.Errorf("%w: timed out after %v and %d attempts: %w; see whether the origin "+
				"is up", ErrUnavailable, time.Duration(now-deadline)+r.config.TotalTimeout, n+1, err)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acquire waits for a turn and returns a lane for ctx.
func (r *resilient) acquire(ctx context.Context) (*lane, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, fmt.Errorf("origin %s is closed", r.URL())
	}
	if r.inside >= int(r.limit.limit) || len(r.waiting) > 0 {
		w := &waiter{ready: make(chan struct{}, 1)}
		r.waiting = append(r.waiting, w)
		r.mu.Unlock()
		select {
		case <-w.ready:
		case <-ctx.Done():
			r.abandon(w)
			return nil, ctx.Err()
		}
		r.mu.Lock()
	} else {
		r.inside++
	}
	var l *lane
	if n := len(r.free); n > 0 {
		l, r.free = r.free[n-1], r.free[:n-1]
	}
	hedge := r.tail.hedgeAfter(&r.config)
	r.mu.Unlock()
	if l == nil {
		l = &lane{r: r}
	}
	l.hedgeAfter = hedge
	return l, nil
}

// abandon takes a waiter that gave up out of the queue, or passes its turn on.
func (r *resilient) abandon(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.waiting {
		if other == w {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			return
		}
	}
	r.inside--
	r.admit()
}

// admit gives turns to those who wait; mu is held.
func (r *resilient) admit() {
	for len(r.waiting) > 0 && r.inside < int(r.limit.limit) {
		r.inside++
		r.waiting[0].ready <- struct{}{}
		r.waiting = r.waiting[1:]
	}
}

// finish records how an attempt ended, gives its lane back and returns the pause before the next.
func (r *resilient) finish(l *lane, err error, n int, started, now int64) (pause time.Duration) {
	again := err != nil && retryable(err)
	slow := again && errors.Is(err, ErrSlowDown)
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == 0 {
		r.budget.earn(&r.config)
	}
	switch {
	case err == nil:
		r.limit.success(&r.config)
		r.tail.add(now - started)
	case slow:
		r.limit.slowDown(&r.config, started, now)
	}
	if again {
		pause = max(r.config.backoff(n, rand.Float64()), RetryAfter(err)) +
			r.budget.take(&r.config, now)
	}
	r.inside--
	if l.reusable && !r.closed && len(r.free) < r.config.ConcurrencyMax {
		r.free = append(r.free, l)
	} else if l.cancel != nil {
		l.cancel()
	}
	r.admit()
	return pause
}
