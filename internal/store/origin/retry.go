package origin

import (
	"errors"
	"fmt"
	"time"
)

// RetryConfig says how Resilient treats an origin that errs.
type RetryConfig struct {
	// AttemptTimeout ends one attempt; TotalTimeout all attempts and pauses of one read, counted
	// from the start of the first attempt.
	AttemptTimeout, TotalTimeout time.Duration
	// The pause after failed attempt n = 0, 1, … is drawn evenly from
	// [0, min(BackoffMax, BackoffMin·2ⁿ)], and is at least what the origin asked for.
	BackoffMin, BackoffMax time.Duration
	// Retries and hedges together are at most BudgetShare of all reads, beyond a floor of
	// BudgetPerSecond. A retry beyond the budget waits for its turn.
	BudgetShare, BudgetPerSecond float64
	// At most ConcurrencyMax attempts run at once. The origin's wish to slow down halves that, not
	// below ConcurrencyMin; every success adds 1/limit.
	ConcurrencyMin, ConcurrencyMax int
	// A second attempt starts beside one that takes longer than twice the 99th percentile, and
	// longer than HedgeAfterMin. Zero: never.
	HedgeAfterMin time.Duration
}

// RetryDefaults suits object stores and network file systems.
func RetryDefaults() RetryConfig {
	return RetryConfig{
		AttemptTimeout:  10 * time.Second,
		TotalTimeout:    30 * time.Second,
		BackoffMin:      50 * time.Millisecond,
		BackoffMax:      5 * time.Second,
		BudgetShare:     0.1,
		BudgetPerSecond: 32,
		ConcurrencyMin:  4,
		ConcurrencyMax:  256,
		HedgeAfterMin:   250 * time.Millisecond,
	}
}

// Validate says what is wrong with the configuration.
func (c RetryConfig) Validate() error {
	var errs []error
	if c.AttemptTimeout <= 0 || c.TotalTimeout < c.AttemptTimeout {
		errs = append(errs, fmt.Errorf("timeouts are %v an attempt and %v in all; "+
			"want 0 < attempt ≤ total", c.AttemptTimeout, c.TotalTimeout))
	}
	if c.BackoffMin <= 0 || c.BackoffMax < c.BackoffMin {
		errs = append(errs, fmt.Errorf("backoff is %v to %v; want 0 < min ≤ max",
			c.BackoffMin, c.BackoffMax))
	}
	if !(c.BudgetShare >= 0 && c.BudgetShare <= 1) || !(c.BudgetPerSecond > 0) {
		errs = append(errs, fmt.Errorf("retry budget is %v of reads and %v a second; "+
			"want 0 to 1 and more than 0", c.BudgetShare, c.BudgetPerSecond))
	}
	if c.ConcurrencyMin < 1 || c.ConcurrencyMax < c.ConcurrencyMin {
		errs = append(errs, fmt.Errorf("concurrency is %d to %d; want 1 ≤ min ≤ max",
			c.ConcurrencyMin, c.ConcurrencyMax))
	}
	if c.HedgeAfterMin < 0 {
		errs = append(errs, fmt.Errorf("hedging after %v; want 0 (never) or more", c.HedgeAfterMin))
	}
	return errors.Join(errs...)
}

// backoff is the pause after failed attempt n, random being even in [0, 1). Full jitter: readers
// that failed together must not come back together.
func (c *RetryConfig) backoff(n int, random float64) time.Duration {
	top := c.BackoffMax
	if n < 30 && c.BackoffMin<<n < top && c.BackoffMin<<n > 0 {
		top = c.BackoffMin << n
	}
	return time.Duration(random * float64(top))
}

// budgetCap is how many retries may be saved up: one for every read that can be in flight.
const budgetCap = 256

// budget is the bucket retries and hedges are paid from. Times are ns of one clock.
type budget struct {
	tokens float64
	at     int64
}

// earn adds a read's share.
func (b *budget) earn(c *RetryConfig) { b.tokens = min(b.tokens+c.BudgetShare, budgetCap) }

func (b *budget) refill(c *RetryConfig, now int64) {
	b.tokens = min(b.tokens+float64(now-b.at)*c.BudgetPerSecond/1e9, budgetCap)
	b.at = now
}

// take pays for one retry and returns how long it has to wait for its turn.
func (b *budget) take(c *RetryConfig, now int64) time.Duration {
	b.refill(c, now)
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / c.BudgetPerSecond * 1e9)
}

// takeNow pays for one hedge if there is a token to spare.
func (b *budget) takeNow(c *RetryConfig, now int64) bool {
	b.refill(c, now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// limiter is additive increase, multiplicative decrease of the number of attempts at once.
type limiter struct {
	limit float64
	cut   int64 // when it was last halved
}

// slowDown halves the limit. Attempts begun before the last cut say nothing about the new limit.
func (l *limiter) slowDown(c *RetryConfig, started, now int64) {
	if started < l.cut {
		return
	}
	l.limit = max(l.limit/2, float64(c.ConcurrencyMin))
	l.cut = now
}

// success raises the limit by one per limit successes.
func (l *limiter) success(c *RetryConfig) {
	l.limit = min(l.limit+1/l.limit, float64(c.ConcurrencyMax))
}

// tail follows the 99th percentile of a stream of durations in constant space: every longer one
// raises the estimate 99 times as much as a shorter one lowers it.
type tail struct {
	ns   float64
	seen int
}

func (t *tail) add(ns int64) {
	t.seen++
	switch x := float64(ns); {
	case t.seen == 1:
		t.ns = max(x, 1)
	case x > t.ns:
		t.ns *= 1 + 0.99*0.05
	default:
		t.ns *= 1 - 0.01*0.05
	}
}

// hedgeAfter is when to start a second attempt; zero: not at all.
func (t *tail) hedgeAfter(c *RetryConfig) time.Duration {
	const enough = 100 // durations seen before the estimate means anything
	if c.HedgeAfterMin == 0 || t.seen < enough {
		return 0
	}
	after := max(c.HedgeAfterMin, time.Duration(2*t.ns))
	if after >= c.AttemptTimeout {
		return 0
	}
	return after
}

// retryable says whether another attempt may end differently.
func retryable(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrAbsent) &&
		!errors.Is(err, ErrChanged) && !errors.Is(err, ErrDenied)
}
