package origin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"belady/internal/core/dataset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is an origin whose reads do what a function says.
type scripted struct {
	read   func(ctx context.Context, n int64, dst []byte) error
	calls  atomic.Int64
	inside atomic.Int64
	most   atomic.Int64
}

func (s *scripted) URL() string { return "scripted://" }

func (s *scripted) List(context.Context, func([]dataset.Object) error) error { return nil }

func (s *scripted) Close() error { return nil }

func (s *scripted) Read(ctx context.Context, _ dataset.Part, dst []byte) error {
	in := s.inside.Add(1)
	defer s.inside.Add(-1)
	for most := s.most.Load(); in > most && !s.most.CompareAndSwap(most, in); most = s.most.Load() {
	}
	return s.read(ctx, s.calls.Add(1), dst)
}

func pause(ctx context.Context, d time.Duration) error { return sleep(ctx, d) }

func wrap(t testing.TB, o Origin, change func(*RetryConfig)) *resilient {
	t.Helper()
	c := RetryDefaults()
	if change != nil {
		change(&c)
	}
	r, err := Resilient(o, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r.(*resilient)
}

var part = dataset.Part{Name: "object"}

func TestRetriesWhatPassesOnly(t *testing.T) {
	for _, c := range []struct {
		err   error
		calls int64
		want  error
	}{
		{ErrUnavailable, 3, nil},
		{SlowDown(0, "busy"), 3, nil},
		{fmt.Errorf("x: %w", ErrUnavailable), 3, nil},
		{ErrAbsent, 1, ErrAbsent},
		{ErrChanged, 1, ErrChanged},
		{ErrDenied, 1, ErrDenied},
		{errors.New("no idea"), 1, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{read: func(_ context.Context, n int64, dst []byte) error {
				if n < 3 {
					dst[0] = 'x'
					return c.err
				}
				dst[0] = 'k'
				return nil
			}}
			dst := make([]byte, 1)
			err := wrap(t, s, nil).Read(t.Context(), part, dst)
			if got := s.calls.Load(); got != c.calls {
				t.Errorf("%v: %d attempts, want %d", c.err, got, c.calls)
			}
			if c.calls == 3 && (err != nil || dst[0] != 'k') {
				t.Errorf("%v: Read returned %v", c.err, err)
			}
			if c.calls == 1 && (err == nil || !errors.Is(err, c.err)) {
				t.Errorf("%v: Read returned %v", c.err, err)
			}
		})
	}
}

func TestTotalDeadline(t *testing.T) {
	for name, read := range map[string]func(context.Context, int64, []byte) error{
		"down": func(context.Context, int64, []byte) error { return ErrUnavailable },
		"hangs": func(ctx context.Context, _ int64, _ []byte) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{read: read}
				start := time.Now()
				err := wrap(t, s, nil).Read(t.Context(), part, make([]byte, 1))
				if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "timed out after") {
					t.Errorf("Read returned %v", err)
				}
				if took := time.Since(start); took > 30*time.Second || took < 20*time.Second {
					t.Errorf("Read took %v, want most of 30 s", took)
				}
				if s.calls.Load() < 3 {
					t.Errorf("%d attempts", s.calls.Load())
				}
			})
		})
	}
}

func TestCallerCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{read: func(ctx context.Context, _ int64, _ []byte) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		r := wrap(t, s, func(c *RetryConfig) { c.ConcurrencyMin, c.ConcurrencyMax = 1, 1 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 5 { // one inside, four waiting for their turn
			wg.Go(func() {
				if err := r.Read(ctx, part, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Read returned %v", err)
				}
			})
		}
		wg.Wait()
		s.read = func(context.Context, int64, []byte) error { return nil }
		if err := r.Read(t.Context(), part, nil); err != nil {
			t.Errorf("Read afterwards: %v", err)
		}
		if r.inside != 0 || len(r.waiting) != 0 {
			t.Errorf("%d inside and %d waiting after the end", r.inside, len(r.waiting))
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{read: func(_ context.Context, n int64, _ []byte) error {
			if n == 1 {
				return SlowDown(7*time.Second, "busy")
			}
			return nil
		}}
		start := time.Now()
		if err := wrap(t, s, nil).Read(t.Context(), part, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 7*time.Second {
			t.Errorf("came back after %v, asked to wait 7 s", took)
		}
	})
}

// An origin that serves 20 at once and refuses the rest: concurrency falls to what it serves, every
// read ends well, and once it has room the width comes back.
func TestSlowDownNarrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *scripted
		room := atomic.Int64{}
		room.Store(20)
		var refused atomic.Int64
		s = &scripted{read: func(ctx context.Context, _ int64, _ []byte) error {
			if s.inside.Load() > room.Load() {
				refused.Add(1)
				return SlowDown(0, "busy")
			}
			return pause(ctx, 10*time.Millisecond)
		}}
		r := wrap(t, s, func(c *RetryConfig) { c.ConcurrencyMax, c.HedgeAfterMin = 128, 0 })
		load := func(reads int) {
			var wg sync.WaitGroup
			for range 200 {
				wg.Go(func() {
					for range reads {
						if err := r.Read(t.Context(), part, nil); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		}
		load(50)
		if share := float64(refused.Load()) / float64(s.calls.Load()); share > 0.1 {
			t.Errorf("%.2f of the requests were refused, want at most 0.1", share)
		}
		room.Store(1000)
		load(100)
		if r.limit.limit < 100 {
			t.Errorf("the limit is %v after recovery, want about 128", r.limit.limit)
		}
		if s.most.Load() > 128 {
			t.Errorf("%d attempts at once, want at most 128", s.most.Load())
		}
	})
}

// Retries in a long outage are bounded by the budget, not by the number of readers.
func TestNoRetryStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{read: func(context.Context, int64, []byte) error { return ErrUnavailable }}
		r := wrap(t, s, nil)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if err := r.Read(t.Context(), part, nil); !errors.Is(err, ErrUnavailable) {
					t.Errorf("Read returned %v", err)
				}
			})
		}
		wg.Wait()
		// 1000 first attempts, the saved-up budget, a tenth of the reads, 32 a second for 30 s.
		if got, most := s.calls.Load(), int64(1000+256+100+32*30); got > most {
			t.Errorf("%d attempts, want at most %d", got, most)
		}
	})
}

func TestHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, value := int64(0), byte('k')
		s := &scripted{read: func(ctx context.Context, n int64, dst []byte) error {
			if n == slow {
				dst[0] = 'x'
				<-ctx.Done()
				return ctx.Err()
			}
			dst[0] = value
			return pause(ctx, 10*time.Millisecond)
		}}
		r := wrap(t, s, nil)
		dst := make([]byte, 1)
		read := func() {
			t.Helper()
			if err := r.Read(t.Context(), part, dst); err != nil || dst[0] != value {
				t.Fatalf("Read: %q, %v; want %q", dst, err, value)
			}
		}
		for range 200 {
			read()
		}
		// Twice, so that a lane that carried a hedge would bring the first one's bytes again.
		for value = 'l'; value < 'n'; value++ {
			slow = s.calls.Load() + 1
			start, before := time.Now(), s.calls.Load()
			read()
			if took, calls := time.Since(start), s.calls.Load()-before; took > time.Second || calls != 2 {
				t.Errorf("a hedged Read took %v and %d attempts", took, calls)
			}
		}
		for range 20 {
			read()
		}
	})
}

// The limit is halved once for all the answers to one wave of requests, and comes back by one per
// limit successes.
func TestLimiter(t *testing.T) {
	c := RetryDefaults()
	l := limiter{limit: 64}
	l.slowDown(&c, 10, 20)
	for started := range int64(20) {
		l.slowDown(&c, started, 30)
	}
	if l.limit != 32 {
		t.Errorf("one wave of refusals left the limit at %v, want 32", l.limit)
	}
	l.slowDown(&c, 21, 40)
	if l.limit != 16 {
		t.Errorf("the next wave left the limit at %v, want 16", l.limit)
	}
	for range 16 {
		l.success(&c)
	}
	if l.limit < 16.9 || l.limit > 17 {
		t.Errorf("16 successes raised the limit from 16 to %v, want about 17", l.limit)
	}
	for i := range int64(20) {
		l.slowDown(&c, 100+i, 100+i)
	}
	if l.limit != float64(c.ConcurrencyMin) {
		t.Errorf("the limit fell to %v, want %d", l.limit, c.ConcurrencyMin)
	}
}

// At random: whatever the origin does, a read that says nil has the right bytes, and nothing is
// left inside.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{read: func(ctx context.Context, n int64, dst []byte) error {
				random := rand.New(rand.NewPCG(seed, uint64(n)))
				dst[0] = 'x'
				switch random.IntN(12) {
				case 0:
					return ErrUnavailable
				case 1:
					return SlowDown(0, "busy")
				case 2:
					<-ctx.Done()
					return ctx.Err()
				}
				if err := pause(ctx, time.Duration(random.IntN(300))*time.Millisecond); err != nil {
					return err
				}
				dst[0] = 'k'
				return nil
			}}
			r := wrap(t, s, nil)
			var wg sync.WaitGroup
			for g := range 50 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(g)))
					for range 50 {
						ctx, cancel := t.Context(), context.CancelFunc(func() {})
						if random.IntN(4) == 0 {
							ctx, cancel = context.WithTimeout(ctx,
								time.Duration(random.IntN(1000))*time.Millisecond)
						}
						dst := make([]byte, 1)
						if err := r.Read(ctx, part, dst); err == nil && dst[0] != 'k' {
							t.Error("Read returned nil and wrong bytes")
						} else if err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
							t.Errorf("Read returned %v", err)
						}
						cancel()
					}
				})
			}
			wg.Wait()
			if r.inside != 0 || len(r.waiting) != 0 {
				t.Errorf("%d inside and %d waiting after the end", r.inside, len(r.waiting))
			}
		})
	}
}

func TestBackoffBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := RetryDefaults()
		n := rapid.IntRange(0, 200).Draw(t, "n")
		d := c.backoff(n, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
		if d < 0 || d > c.BackoffMax || (n == 0 && d > c.BackoffMin) {
			t.Fatalf("the pause after attempt %d is %v", n, d)
		}
	})
}

func TestTailFollowsThePercentile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var x tail
	for range 50_000 {
		x.add(1 + random.Int64N(1_000_000))
	}
	if x.ns < 900_000 || x.ns > 1_200_000 {
		t.Errorf("the 99th percentile of even numbers up to 1e6 is %v", x.ns)
	}
}

func TestRetryConfigIsValidated(t *testing.T) {
	if err := RetryDefaults().Validate(); err != nil {
		t.Error(err)
	}
	err := RetryConfig{BudgetShare: 2, HedgeAfterMin: -1}.Validate()
	for _, named := range []string{"timeouts", "backoff", "budget", "concurrency", "hedging"} {
		if err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("%s is not named in %v", named, err)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]int64{
		"110KB": 110_000, "110KiB": 112_640, "200MB": 200e6, "200MB/s": 200e6, "4096": 4096,
		"1.5GB": 15e8,
	} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "-1", "1XB", "99999999999999999999GB", "NaN"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d", in, got)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	f.Add("110KB")
	f.Add("1e9TiB/s")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseBytes(s); err == nil && n < 0 {
			t.Errorf("ParseBytes(%q) = %d", s, n)
		}
	})
}

func TestGoodReadsDoNotAllocate(t *testing.T) {
	s := &scripted{read: func(context.Context, int64, []byte) error { return nil }}
	r := wrap(t, s, nil)
	ctx, dst := t.Context(), make([]byte, 1)
	if n := testing.AllocsPerRun(1000, func() {
		if err := r.Read(ctx, part, dst); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a read", n)
	}
}

func BenchmarkResilientOverhead(b *testing.B) {
	s := &scripted{read: func(context.Context, int64, []byte) error { return nil }}
	for name, o := range map[string]Origin{"bare": s, "resilient": wrap(b, s, nil)} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := o.Read(ctx, part, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
