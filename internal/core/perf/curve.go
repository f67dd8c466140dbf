package perf

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Step is one measured point of a curve.
type Step struct {
	At   int64 `json:"at"`          // so many threads, readers or bytes, as the curve says
	Rate int64 `json:"bytes_per_s"` // of all of them together
}

// Curve is a rate as a function of one number, by rising At.
type Curve []Step

// Rate is the rate at that number: between two steps in proportion, beyond them as at the nearest.
// A curve without steps knows none: zero.
func (c Curve) Rate(at int64) int64 {
	if len(c) == 0 {
		return 0
	}
	before := c[0]
	for _, s := range c {
		switch {
		case at > s.At:
			before = s
			continue
		case s.At == before.At:
			return s.Rate
		}
		part, whole := at-before.At, s.At-before.At
		if s.Rate < before.Rate {
			return before.Rate - scale(before.Rate-s.Rate, part, whole)
		}
		return before.Rate + scale(s.Rate-before.Rate, part, whole)
	}
	return before.Rate
}

// Best is the highest rate of the curve at up to so many.
func (c Curve) Best(most int64) int64 {
	best := c.Rate(most)
	for _, s := range c {
		if s.At <= most {
			best = max(best, s.Rate)
		}
	}
	return best
}

// Widest is the fewest that give the curve's best rate: more would only queue.
func (c Curve) Widest() int64 {
	best := Step{At: 1}
	for _, s := range c {
		if s.Rate > best.Rate {
			best = s
		}
	}
	return best.At
}

// Most is where the curve ends.
func (c Curve) Most() int64 {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1].At
}

// A StepError is what is wrong with one step of a curve.
type StepError struct {
	Step int
	What string
}

func (e *StepError) Error() string { return fmt.Sprintf("step %d %s", e.Step+1, e.What) }

// Validate refuses a curve that says nothing, or that a typing error may have made.
func (c Curve) Validate() error {
	if len(c) == 0 {
		return errors.New("has no steps; expected one at least")
	}
	for i, s := range c {
		switch {
		case s.At <= 0:
			return &StepError{i, fmt.Sprintf("is at %d; expected more than 0", s.At)}
		case s.Rate <= 0:
			return &StepError{i, fmt.Sprintf("has a rate of %d bytes a second; expected more than 0",
				s.Rate)}
		case i > 0 && s.At <= c[i-1].At:
			return &StepError{i, fmt.Sprintf("is at %d, after one at %d; expected steps that rise",
				s.At, c[i-1].At)}
		}
	}
	return nil
}

// nanoseconds is how long so many bytes take at that rate.
func nanoseconds(bytes, rate int64) int64 { return scale(bytes, 1e9, rate) }

// scale is n·times/over, at most the largest number there is, and nothing where one of them is not
// positive.
func scale(n, times, over int64) int64 {
	if n <= 0 || times <= 0 || over <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), uint64(times))
	if high >= uint64(over) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(over))
	return int64(min(quotient, math.MaxInt64))
}
