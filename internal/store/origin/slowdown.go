package origin

import (
	"errors"
	"fmt"
	"time"
)

// slowDown is ErrSlowDown with what the origin said about when to come back.
type slowDown struct {
	what  string
	after time.Duration
}

func (e *slowDown) Error() string {
	if e.after > 0 {
		return fmt.Sprintf("%s: %v (for %v)", e.what, ErrSlowDown, e.after)
	}
	return fmt.Sprintf("%s: %v", e.what, ErrSlowDown)
}

func (e *slowDown) Is(target error) bool {
	return target == ErrSlowDown || target == ErrUnavailable
}

// SlowDown makes the error of an origin that asks for fewer requests: it is both ErrSlowDown and
// ErrUnavailable. after is the origin's Retry-After, zero when it named none.
func SlowDown(after time.Duration, format string, args ...any) error {
	return &slowDown{what: fmt.Sprintf(format, args...), after: max(after, 0)}
}

// RetryAfter returns how long the origin asked the caller to wait, or zero.
func RetryAfter(err error) time.Duration {
	var s *slowDown
	if errors.As(err, &s) {
		return s.after
	}
	return 0
}
