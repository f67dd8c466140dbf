package throttle

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
	"belady/internal/store/origin/origintest"
	"belady/internal/store/origin/posix"
	"belady/internal/store/origin/synth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSynth(t testing.TB, samples, size int64) *synth.Origin {
	t.Helper()
	o, err := synth.New(synth.Config{Samples: samples, SizeBytes: size, Seed: 3, Classes: 1})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func newThrottle(t testing.TB, inner origin.Origin, c Config) *Origin {
	t.Helper()
	o, err := New(inner, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func script(t testing.TB, text string) Script {
	t.Helper()
	s, err := ParseScript(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformanceOverSynth(t *testing.T) {
	origintest.Run(t, func(t *testing.T, _ map[string][]byte) origintest.Subject {
		inner := newSynth(t, 50, 700)
		c := Config{RateBytes: 1e9, Concurrency: 3, CountsFile: filepath.Join(t.TempDir(), "n")}
		return origintest.Subject{Origin: newThrottle(t, inner, c),
			Files: origintest.ComputedFiles(inner)}
	})
}

func TestConformanceOverPosix(t *testing.T) {
	origintest.Run(t, func(t *testing.T, files map[string][]byte) origintest.Subject {
		return origintest.Folder(t, files, func(dir string) origin.Origin {
			inner, err := posix.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			return newThrottle(t, inner, Config{})
		})
	})
}

// drive reads n samples from each of g goroutines and returns the time it took.
func drive(t *testing.T, o *Origin, part dataset.Part, size, g, n int) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	for range g {
		wg.Go(func() {
			dst := make([]byte, size)
			for range n {
				if err := o.Read(t.Context(), part, dst); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// Time is max(bytes/rate, requests·latency/concurrency), whichever term rules.
func TestTimeIsTheRoofline(t *testing.T) {
	for _, c := range []struct {
		name      string
		config    Config
		size      int64
		g, n      int
		want      time.Duration
		tolerance time.Duration
	}{
		{"rate, one reader", Config{RateBytes: 100e6}, 110_000, 1, 1000, 1100 * time.Millisecond, 7e6},
		{"rate, many readers", Config{RateBytes: 100e6}, 110_000, 64, 20, 1408 * time.Millisecond, 7e6},
		{"rate, small reads", Config{RateBytes: 100e6}, 3000, 16, 1000, 480 * time.Millisecond, 7e6},
		{"latency", Config{Latency: 20e6}, 3000, 4, 50, time.Second, 1e6},
		{"concurrency", Config{Latency: 20e6, Concurrency: 8}, 3000, 32, 10, 800 * time.Millisecond, 1e6},
		{"latency below rate", Config{RateBytes: 1e6, Latency: 20e6}, 100_000, 1, 10, time.Second, 7e6},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newSynth(t, 1, c.size)
				o := newThrottle(t, inner, c.config)
				part := origintest.Whole(inner.Object(0))
				got := drive(t, o, part, int(c.size), c.g, c.n)
				if diff := (got - c.want).Abs(); diff > c.tolerance {
					t.Errorf("took %v, want %v ± %v", got, c.want, c.tolerance)
				}
				count := o.Counters()
				if want := uint64(c.g * c.n); count.Requests.Load() != want ||
					count.Bytes.Load() != want*uint64(c.size) {
					t.Errorf("counted %d requests and %d bytes, want %d and %d",
						count.Requests.Load(), count.Bytes.Load(), want, want*uint64(c.size))
				}
				most := uint64(c.g)
				if c.config.Concurrency > 0 {
					most = uint64(c.config.Concurrency)
				}
				if got := count.ConcurrencyMax.Load(); got > most {
					t.Errorf("%d reads were inside at once, want at most %d", got, most)
				}
				span := time.Duration(count.LastNs.Load() - count.FirstNs.Load())
				if (span - got).Abs() > time.Millisecond {
					t.Errorf("first to last is %v, the run took %v", span, got)
				}
			})
		})
	}
}

// However reads are sized and timed, the pipe lets through no more than rate × time + its credit,
// and loses nothing while it is busy.
func TestPipeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pipe{rate: rapid.Uint64Range(1, 1e11).Draw(t, "rate")}
		now, total := int64(0), uint64(0)
		start := p.reserve(0, 0)
		for range rapid.IntRange(1, 50).Draw(t, "reads") {
			n := rapid.Uint64Range(0, 1<<24).Draw(t, "bytes")
			total += n
			end := p.reserve(now, n)
			now = max(now, end-rapid.Int64Range(0, int64(idleCredit)).Draw(t, "early"))
		}
		want := int64(total * 1e9 / p.rate)
		if got := p.next - start; got != want {
			t.Fatalf("%d bytes at %d took %v ns of the pipe, want %v", total, p.rate, got, want)
		}
		idle := p.next + int64(time.Hour)
		if got := p.reserve(idle, 0); got != idle-int64(idleCredit) {
			t.Fatalf("after an hour the pipe is free from %d, want %d", got, idle-int64(idleCredit))
		}
	})
}

// A late wake-up is made up for by the slot's next read, but only while the slot is wanted.
func TestCreditForLateness(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		slot    slot
		start   int64
		latency time.Duration
		waited  bool
		want    int64
		why     string
	}{
		{slot{}, 100 * ms, 20e6, true, 0, "a fresh slot"},
		{slot{100 * ms, 101 * ms}, 101 * ms, 20e6, false, ms, "taken again at once"},
		{slot{100 * ms, 101 * ms}, 103 * ms, 20e6, false, 0, "left idle"},
		{slot{100 * ms, 101 * ms}, 103 * ms, 20e6, true, 3 * ms, "wanted all the while"},
		{slot{100 * ms, 200 * ms}, 200 * ms, 20e6, true, 5 * ms, "not beyond the idle credit"},
		{slot{100 * ms, 104 * ms}, 104 * ms, 2e6, true, ms, "not beyond half the latency"},
		{slot{100 * ms, 90 * ms}, 90 * ms, 20e6, true, 0, "ended early: cancelled"},
	} {
		if got := c.slot.credit(c.start, c.latency, c.waited); got != c.want {
			t.Errorf("%s: credit %v, want %v", c.why, time.Duration(got), time.Duration(c.want))
		}
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]error{
		"error:1":                  origin.ErrUnavailable,
		"slowdown:1":               origin.ErrSlowDown,
		"short:1":                  origin.ErrUnavailable,
		"hang:1":                   context.DeadlineExceeded,
		"drip:1":                   context.DeadlineExceeded,
		"absent:c0000%2Fs00000000": origin.ErrAbsent,
		"changed:c0000/s00000000":  origin.ErrChanged,
		"error:1@3s-4s":            nil,
		"error:0":                  nil,
	} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newSynth(t, 2, 10_000)
				o := newThrottle(t, inner, Config{Faults: script(t, text)})
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				dst := make([]byte, 10_000)
				err := o.Read(ctx, origintest.Whole(inner.Object(0)), dst)
				if !errors.Is(err, want) {
					t.Errorf("Read returned %v, want %v", err, want)
				}
				if want == origin.ErrSlowDown && !errors.Is(err, origin.ErrUnavailable) {
					t.Error("slow down is not unavailable too")
				}
			})
		})
	}
}

func TestCorruptIsSilent(t *testing.T) {
	inner := newSynth(t, 1, 1000)
	o := newThrottle(t, inner, Config{Faults: script(t, "corrupt:1")})
	dst := make([]byte, 1000)
	if err := o.Read(t.Context(), origintest.Whole(inner.Object(0)), dst); err != nil {
		t.Fatal(err)
	}
	if inner.Check(0, 0, dst) == nil {
		t.Error("no byte is wrong")
	}
}

// The share of faults is the script's, the same seed gives the same faults, another gives others.
func TestScriptIsSeeded(t *testing.T) {
	a, b := script(t, "seed:1,error:0.1"), script(t, "seed:1,error:0.1")
	c := script(t, "seed:2,error:0.1")
	const n = 20_000
	faults, differ := 0, 0
	for i := range uint64(n) {
		x := a.Pick(i, 0, "")
		if x != b.Pick(i, 0, "") {
			t.Fatal("one seed gave two scripts")
		}
		if x != c.Pick(i, 0, "") {
			differ++
		}
		if x == Error {
			faults++
		}
	}
	if faults < n/10-200 || faults > n/10+200 || differ == 0 {
		t.Errorf("%d of %d failed, want a tenth; %d differ by seed", faults, n, differ)
	}
}

func TestCountsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counts")
	for range 2 { // the second opening adds to what the first left
		inner := newSynth(t, 1, 1000)
		o := newThrottle(t, inner, Config{CountsFile: path, Faults: script(t, "error:1@1h-2h")})
		for range 3 {
			part, dst := origintest.Whole(inner.Object(0)), make([]byte, 1000)
			if err := o.Read(t.Context(), part, dst); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var words [8]uint64
	if err := binary.Read(bytes.NewReader(got), binary.NativeEndian, &words); err != nil {
		t.Fatal(err)
	}
	if words[0] != 6 || words[1] != 6000 || words[2] != 0 || words[3] != 1 || words[4] == 0 ||
		words[5] <= words[4] {
		t.Errorf("counts file holds %v", words)
	}
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(newSynth(t, 1, 1), Config{CountsFile: path}); err == nil {
		t.Error("a file that is no counts file was accepted")
	}
}

func TestCloseEndsHangingReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newSynth(t, 1, 1000)
		o := newThrottle(t, inner, Config{Faults: script(t, "hang:1")})
		done := make(chan error)
		go func() {
			done <- o.Read(t.Context(), origintest.Whole(inner.Object(0)), make([]byte, 1000))
		}()
		synctest.Wait()
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil {
			t.Error("a hanging read succeeded")
		}
	})
}

func parse(s string) (*url.URL, Config, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, Config{}, err
	}
	return ParseURL(u)
}

func TestParseURL(t *testing.T) {
	inner, c, err := parse("throttle+synth://x?samples=10&throttle.rate=200MB&throttle.latency=20ms" +
		"&throttle.concurrency=256&throttle.counts=/tmp/c" +
		"&throttle.faults=seed:1,error:0.5@1s-2s&size=3KB")
	if err != nil {
		t.Fatal(err)
	}
	if inner.String() != "synth://x?samples=10&size=3KB" {
		t.Errorf("inner is %s", inner)
	}
	if c.RateBytes != 200e6 || c.Latency != 20e6 || c.Concurrency != 256 || c.CountsFile != "/tmp/c" ||
		len(c.Faults.rules) != 1 {
		t.Errorf("config is %+v", c)
	}
	for bad, named := range map[string]string{
		"synth://x":                                  "throttle+",
		"throttle+synth://x?throttle.speed=1":        "throttle.speed",
		"throttle+synth://x?throttle.rate=fast":      "throttle.rate",
		"throttle+synth://x?throttle.faults=boom":    "boom",
		"throttle+synth://x?throttle.faults=error:2": "between 0 and 1",
	} {
		if _, _, err := parse(bad); err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("ParseURL(%q) returned %v, want %q named", bad, err, named)
		}
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add("seed:7,error:0.01,slowdown:0.5@2s-5s,absent:a%20b")
	f.Add("hang:1@-")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScript(text)
		if err == nil {
			s.Pick(1, time.Second, "name")
		}
	})
}

func BenchmarkOverhead3KB(b *testing.B) {
	inner := newSynth(b, 1, 3000)
	for name, o := range map[string]origin.Origin{
		"bare":      inner,
		"unlimited": newThrottle(b, inner, Config{}),
		"paced": newThrottle(b, inner, Config{RateBytes: 1e12, Concurrency: 256,
			CountsFile: filepath.Join(b.TempDir(), "counts")}),
	} {
		b.Run(name, func(b *testing.B) {
			part := origintest.Whole(inner.Object(0))
			dst := make([]byte, 3000)
			b.ReportAllocs()
			for b.Loop() {
				if err := o.Read(b.Context(), part, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
