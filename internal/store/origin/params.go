package origin

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	humanize "github.com/dustin/go-humanize"
)

// ParseBytes reads a size: "110KB" is 110,000 and "110KiB" is 112,640. A rate is the same with an
// optional "/s".
func ParseBytes(s string) (int64, error) {
	n, err := humanize.ParseBytes(strings.TrimSuffix(s, "/s"))
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("size %q is not a number of bytes; write it like 4096, 110KB or 2GiB", s)
	}
	return int64(n), nil
}

// Params reads the query of an origin's URL, each key once, and remembers what was wrong and what
// nobody asked for: a misspelt key must be an error, not a default.
type Params struct {
	values url.Values
	errs   []error
}

// NewParams reads the query of u.
func NewParams(u *url.URL) *Params {
	values, err := url.ParseQuery(u.RawQuery)
	p := &Params{values: values}
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("query does not parse: %w", err))
	}
	return p
}

func (p *Params) take(key string) (string, bool) {
	v, ok := p.values[key]
	if !ok {
		return "", false
	}
	delete(p.values, key)
	if len(v) != 1 {
		p.errs = append(p.errs, fmt.Errorf("parameter %q is given %d times; give it once", key, len(v)))
	}
	return v[0], true
}

func (p *Params) fail(key, value, want string) {
	p.errs = append(p.errs, fmt.Errorf("parameter %s=%q: want %s", key, value, want))
}

// String returns the value of key, or def when it is not given.
func (p *Params) String(key, def string) string {
	if v, ok := p.take(key); ok {
		return v
	}
	return def
}

// Int returns the whole number at key, which must not be negative.
func (p *Params) Int(key string, def int64) int64 {
	v, ok := p.take(key)
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		p.fail(key, v, "a whole number, zero or more")
		return def
	}
	return n
}

// Uint64 returns the unsigned number at key.
func (p *Params) Uint64(key string, def uint64) uint64 {
	v, ok := p.take(key)
	if !ok {
		return def
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		p.fail(key, v, "a whole number below 2^64")
		return def
	}
	return n
}

// Fraction returns the number between 0 and 1 at key.
func (p *Params) Fraction(key string, def float64) float64 {
	v, ok := p.take(key)
	if !ok {
		return def
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f >= 0 && f <= 1) {
		p.fail(key, v, "a number between 0 and 1")
		return def
	}
	return f
}

// Bool returns the truth at key.
func (p *Params) Bool(key string, def bool) bool {
	v, ok := p.take(key)
	if !ok {
		return def
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		p.fail(key, v, "true or false")
		return def
	}
	return b
}

// Bytes returns the size or rate at key.
func (p *Params) Bytes(key string, def int64) int64 {
	v, ok := p.take(key)
	if !ok {
		return def
	}
	n, err := ParseBytes(v)
	if err != nil {
		p.fail(key, v, "a size like 4096, 110KB or 2GiB")
		return def
	}
	return n
}

// Duration returns the duration at key, which must not be negative.
func (p *Params) Duration(key string, def time.Duration) time.Duration {
	v, ok := p.take(key)
	if !ok {
		return def
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		p.fail(key, v, "a duration like 20ms or 1.5s")
		return def
	}
	return d
}

// Err says everything that was wrong, including keys that no call asked for.
func (p *Params) Err() error {
	errs := p.errs
	keys := make([]string, 0, len(p.values))
	for k := range p.values {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		errs = append(errs, fmt.Errorf("unknown parameter %q; remove it or correct its spelling", k))
	}
	return errors.Join(errs...)
}
