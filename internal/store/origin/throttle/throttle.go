// Package throttle makes any origin as slow, as narrow and as faulty as a benchmark or a test
// needs, and counts what goes through.
//
// A read takes max(latency, its stretch of a serial pipe of the given rate), and no more than
// concurrency reads are inside at once: exactly the terms of the roofline, so that measured time
// may be divided by it. The long-run rate is exact when there is demand. It changes no bytes
// unless a fault script says so. It never belongs between a user and real data.
package throttle

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

// slack is how early a read may return: sleeping for less costs more CPU than it gives accuracy,
// and the pipe's timeline keeps the rate exact all the same.
const slack = time.Millisecond

// Config says how the origin is to behave. The zero value changes nothing.
type Config struct {
	RateBytes   int64         // per second; 0: unlimited
	Latency     time.Duration // of every read, its transfer included
	Concurrency int           // reads inside at once; 0: unlimited
	CountsFile  string        // where Counters lie; empty: in memory only
	Faults      Script
}

const prefix = "throttle."

// ParseURL splits throttle+INNER://…?…&throttle.rate=200MB&throttle.latency=20ms&
// throttle.concurrency=256&throttle.counts=FILE&throttle.faults=… into the inner URL and the
// configuration.
func ParseURL(u *url.URL) (*url.URL, Config, error) {
	fail := func(err error) (*url.URL, Config, error) {
		return nil, Config{}, fmt.Errorf("origin %q: %w", u.Redacted(), err)
	}
	scheme, ok := strings.CutPrefix(u.Scheme, "throttle+")
	if !ok || scheme == "" {
		return fail(fmt.Errorf("write throttle+s3://, throttle+file:// or throttle+synth://"))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fail(fmt.Errorf("query does not parse: %w", err))
	}
	own, rest := url.Values{}, url.Values{}
	for key, values := range query {
		if strings.HasPrefix(key, prefix) {
			own[key] = values
		} else {
			rest[key] = values
		}
	}
	p := origin.NewParams(&url.URL{RawQuery: own.Encode()})
	c := Config{
		RateBytes:   p.Bytes(prefix+"rate", 0),
		Latency:     p.Duration(prefix+"latency", 0),
		Concurrency: int(p.Int(prefix+"concurrency", 0)),
		CountsFile:  p.String(prefix+"counts", ""),
	}
	script := p.String(prefix+"faults", "")
	if err := p.Err(); err != nil {
		return fail(err)
	}
	if c.Faults, err = ParseScript(script); err != nil {
		return fail(err)
	}
	inner := *u
	inner.Scheme, inner.RawQuery = scheme, rest.Encode()
	return &inner, c, nil
}

// Origin is the throttled origin.
type Origin struct {
	inner    origin.Origin
	config   Config
	opened   time.Time
	slots    chan slot     // the places inside; nil: unlimited
	closed   chan struct{} // ends hanging reads
	counters *Counters
	unmap    func() error
	close    sync.Once
	using    sync.RWMutex // held for reading while counters are used, so that Close can unmap
	timers   sync.Pool    // *time.Timer: making one costs more than the rest of a read

	inside   atomic.Int64
	sequence atomic.Uint64

	mu   sync.Mutex
	pipe pipe // guarded by mu
}

var _ origin.Origin = (*Origin)(nil)

// New throttles inner, and closes it when it is closed itself.
func New(inner origin.Origin, c Config) (*Origin, error) {
	if c.RateBytes < 0 || c.Latency < 0 || c.Concurrency < 0 {
		return nil, fmt.Errorf("throttle %s: rate, latency and concurrency must not be negative",
			inner.URL())
	}
	counters, unmap, err := openCounters(c.CountsFile)
	if err != nil {
		return nil, fmt.Errorf("throttle %s: %w", inner.URL(), err)
	}
	o := &Origin{inner: inner, config: c, opened: time.Now(), closed: make(chan struct{}),
		counters: counters, unmap: unmap, pipe: pipe{rate: uint64(c.RateBytes)}}
	if c.Concurrency > 0 {
		o.slots = make(chan slot, c.Concurrency)
		for range c.Concurrency {
			o.slots <- slot{}
		}
	}
	return o, nil
}

// URL is the inner origin's, marked as throttled.
func (o *Origin) URL() string { return "throttle+" + o.inner.URL() }

// Counters returns the counts so far; they must not be used after Close.
func (o *Origin) Counters() *Counters { return o.counters }

// List lists the inner origin after one latency.
func (o *Origin) List(ctx context.Context, fn func([]dataset.Object) error) error {
	if err := o.enter(); err != nil {
		return err
	}
	o.counters.Lists.Add(1)
	o.using.RUnlock()
	if err := o.wait(ctx, o.now()+int64(o.config.Latency)); err != nil {
		return err
	}
	return o.inner.List(ctx, fn)
}

// now is the time since the opening; monotonic.
func (o *Origin) now() int64 { return int64(time.Since(o.opened)) }

// enter takes the reading lock, or fails after Close.
func (o *Origin) enter() error {
	o.using.RLock()
	select {
	case <-o.closed:
		o.using.RUnlock()
		return fmt.Errorf("origin %s is closed", o.URL())
	default:
		return nil
	}
}

// Read reads from the inner origin and returns when a real origin of this kind would have.
func (o *Origin) Read(ctx context.Context, part dataset.Part, dst []byte) error {
	if err := o.enter(); err != nil {
		return err
	}
	defer o.using.RUnlock()
	place, waited, err := o.take(ctx)
	if err != nil {
		return err
	}
	raise(&o.counters.ConcurrencyMax, uint64(o.inside.Add(1)))
	start := o.now()
	o.counters.Requests.Add(1)
	if o.counters.FirstNs.Load() == 0 {
		o.counters.FirstNs.CompareAndSwap(0, o.wall(start))
	}
	early := start + int64(o.config.Latency) - place.credit(start, o.config.Latency, waited)
	due, err := o.read(ctx, start, early, part, dst)
	if err == nil {
		o.counters.Bytes.Add(uint64(len(dst)))
	}
	end := o.now()
	raise(&o.counters.LastNs, o.wall(end))
	o.inside.Add(-1) // before the place is given away, or the next would be counted beside this one
	if o.slots != nil {
		o.slots <- slot{due: due, released: end}
	}
	return err
}

// take waits for a place inside and says whether it had to.
func (o *Origin) take(ctx context.Context) (place slot, waited bool, err error) {
	if o.slots == nil {
		return slot{}, false, nil
	}
	select {
	case place = <-o.slots:
		return place, false, nil
	default:
	}
	select {
	case place = <-o.slots:
		return place, true, nil
	case <-ctx.Done():
		return slot{}, true, ctx.Err()
	}
}

// wall turns a time since the opening into Unix time.
func (o *Origin) wall(at int64) uint64 { return uint64(o.opened.UnixNano() + at) }

// read answers not before early, and returns also when it should have.
func (o *Origin) read(ctx context.Context, start, early int64, part dataset.Part, dst []byte) (
	due int64, err error) {
	fault := o.config.Faults.Pick(o.sequence.Add(1), time.Duration(start), part.Name)
	switch fault {
	case None, Drip, Short, Corrupt:
	default:
		return early, o.refuse(ctx, fault, early, part)
	}
	n := len(dst)
	if fault == Short {
		n /= 2
	}
	o.mu.Lock()
	end := o.pipe.reserve(start, uint64(n))
	o.mu.Unlock()
	if err := o.inner.Read(ctx, part, dst); err != nil {
		return early, err
	}
	if fault == Drip {
		end = max(end, start+int64(n)*int64(time.Second)/dripRate)
	}
	due = max(early, end-int64(slack))
	if err := o.wait(ctx, due); err != nil {
		return due, err
	}
	if fault != None {
		o.counters.Faults.Add(1)
	}
	switch {
	case fault == Short:
		clear(dst[n:])
		return due, fmt.Errorf("%w: %q in %s: the connection was cut after %d of %d bytes (injected)",
			origin.ErrUnavailable, part.Name, o.URL(), n, len(dst))
	case fault == Corrupt && n > 0:
		dst[n/2] ^= 0x80
	}
	return due, nil
}

// refuse answers a read without any bytes, after the latency an answer takes.
func (o *Origin) refuse(ctx context.Context, fault Fault, at int64, part dataset.Part) error {
	o.counters.Faults.Add(1)
	if fault == Hang {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.closed:
			return fmt.Errorf("origin %s is closed", o.URL())
		}
	}
	if err := o.wait(ctx, at); err != nil {
		return err
	}
	switch fault {
	case SlowDown:
		return origin.SlowDown(0, "%q in %s (injected)", part.Name, o.URL())
	case Absent:
		return fmt.Errorf("%w: %q in %s (injected)", origin.ErrAbsent, part.Name, o.URL())
	case Changed:
		return fmt.Errorf("%w: %q in %s (injected)", origin.ErrChanged, part.Name, o.URL())
	default:
		return fmt.Errorf("%w: %q in %s (injected)", origin.ErrUnavailable, part.Name, o.URL())
	}
}

// wait returns at the time given, or at once when it is past.
func (o *Origin) wait(ctx context.Context, until int64) error {
	d := time.Duration(until - o.now())
	if d <= 0 {
		return ctx.Err()
	}
	timer, ok := o.timers.Get().(*time.Timer)
	if ok {
		timer.Reset(d)
	} else {
		timer = time.NewTimer(d)
	}
	defer func() {
		timer.Stop()
		o.timers.Put(timer)
	}()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-o.closed:
		return fmt.Errorf("origin %s is closed", o.URL())
	}
}

// Close ends waiting reads, waits for running ones and closes the inner origin.
func (o *Origin) Close() error {
	var err error
	o.close.Do(func() {
		close(o.closed)
		err = o.inner.Close()
		o.using.Lock()
		defer o.using.Unlock()
		if unmapErr := o.unmap(); err == nil {
			err = unmapErr
		}
	})
	return err
}
