package probe_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"belady/internal/core/dataset"
	"belady/internal/core/perf"
	"belady/internal/core/sample"
	"belady/internal/store/origin"
	"belady/internal/store/origin/synth"
	"belady/internal/store/origin/throttle"
	"belady/internal/store/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manifest is of samples that a synthetic origin computes.
func manifest(t *testing.T, o origin.Origin) *dataset.Manifest {
	t.Helper()
	var all []dataset.Object
	err := o.List(t.Context(), func(some []dataset.Object) error {
		all = append(all, some...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := dataset.Build(all, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := dataset.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func throttled(
	t *testing.T, samples, size int64, c throttle.Config,
) (*throttle.Origin, *dataset.Manifest) {
	t.Helper()
	inner, err := synth.New(synth.Config{Name: "d", Samples: samples, SizeBytes: size, Classes: 1})
	if err != nil {
		t.Fatal(err)
	}
	o, err := throttle.New(inner, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o, manifest(t, inner)
}

func limits() probe.Limits {
	return probe.Limits{Span: 1600 * time.Millisecond, Bytes: 512e6,
		Readers: []int{1, 4, 16, 64, 256}}
}

func within(t *testing.T, what string, got, want int64) {
	t.Helper()
	if off := float64(got)/float64(want) - 1; off < -0.1 || off > 0.1 {
		t.Errorf("%s: %d, want %d within 10 %%", what, got, want)
	}
}

// What a throttled origin gives is found by how many read at once, its latency too.
func TestOrigin(t *testing.T) {
	for _, c := range []struct {
		name       string
		rate, size int64
		latency    time.Duration
		readers    []int64 // steps that are expected, those that bring nothing more left out
	}{
		{"bound by its rate", 50e6, 100_000, 0, []int64{1, 4}},
		{"bound by latency first", 50e6, 100_000, 20 * time.Millisecond, []int64{1, 4, 16, 64}},
		{"bound by latency", 10e9, 10_000, 100 * time.Millisecond, []int64{1, 4, 16, 64, 256}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, m := throttled(t, 20_000, c.size, throttle.Config{RateBytes: c.rate, Latency: c.latency})
				steps, began := 0, time.Now()
				got, note, err := probe.Origin(t.Context(), o, m, limits(), func() { steps++ })
				if err != nil || note != "" {
					t.Fatal(note, err)
				}
				if len(got.Readers) != len(c.readers) || steps != 1+len(c.readers) {
					t.Fatalf("%+v in %d steps, want readers %v", got, steps, c.readers)
				}
				for i, s := range got.Readers {
					want := c.rate
					if c.latency > 0 {
						want = min(want, int64(float64(s.At*c.size)/c.latency.Seconds()))
					}
					if s.At != c.readers[i] {
						t.Errorf("%d readers, want %d", s.At, c.readers[i])
					}
					within(t, "rate", s.Rate, want)
				}
				if c.latency > 0 {
					within(t, "latency", got.Latency, int64(c.latency))
				}
				within(t, "size", got.Size, c.size)
				if took := time.Since(began); took > 12*time.Second {
					t.Errorf("it took %v", took)
				}
				counted := o.Counters()
				if counted.Bytes.Load() > 512e6 || counted.ConcurrencyMax.Load() > 256 {
					t.Errorf("%d bytes, %d at once", counted.Bytes.Load(), counted.ConcurrencyMax.Load())
				}
			})
		})
	}
}

// The bytes of all steps together are bounded, and so is each piece of a large sample.
func TestOriginKeepsWithinBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, m := throttled(t, 50_000, 1_000_000, throttle.Config{RateBytes: 10e9,
			Latency: 5 * time.Millisecond})
		l := limits()
		l.Bytes = 100e6
		if _, _, err := probe.Origin(t.Context(), o, m, l, func() {}); err != nil {
			t.Fatal(err)
		}
		if read := o.Counters().Bytes.Load(); read > 100e6 || read < 50e6 {
			t.Errorf("%d bytes were read", read)
		}
	})
}

// Samples are read once each, so that what was read before does not make an origin look fast.
func TestOriginReadsNothingTwice(t *testing.T) {
	inner, err := synth.New(synth.Config{Name: "d", Samples: 300, SizeBytes: 1000, Classes: 1})
	if err != nil {
		t.Fatal(err)
	}
	o := &counting{Origin: inner, seen: map[string]int{}}
	got, note, err := probe.Origin(t.Context(), o, manifest(t, inner), limits(), func() {})
	if err != nil || len(got.Readers) == 0 {
		t.Fatalf("%+v, %s: %v", got, note, err)
	}
	for name, times := range o.seen {
		if times > 1 {
			t.Errorf("%s was read %d times", name, times)
		}
	}
	one := probe.Limits{Span: time.Second, Bytes: 1e6, Readers: []int{1, 4, 512}}
	inner, _ = synth.New(synth.Config{Name: "d", Samples: 40, SizeBytes: 1000, Classes: 1})
	slow := &counting{Origin: inner, seen: map[string]int{}, pause: 2 * time.Millisecond}
	_, note, err = probe.Origin(t.Context(), slow, manifest(t, inner), one, func() {})
	if err != nil || !strings.Contains(note, "too few samples to read more than 4 at once") {
		t.Errorf("%q: %v", note, err)
	}
	inner, _ = synth.New(synth.Config{Name: "d", Samples: 1, SizeBytes: 1000, Classes: 1})
	_, note, err = probe.Origin(t.Context(), inner, manifest(t, inner), one, func() {})
	if err != nil || !strings.Contains(note, "too few samples to measure its origin by") {
		t.Errorf("%q: %v", note, err)
	}
}

type counting struct {
	origin.Origin
	mu    sync.Mutex
	seen  map[string]int
	pause time.Duration
}

func (c *counting) Read(ctx context.Context, part dataset.Part, dst []byte) error {
	c.mu.Lock()
	c.seen[part.Name]++
	c.mu.Unlock()
	time.Sleep(c.pause)
	return c.Origin.Read(ctx, part, dst)
}

func TestOriginStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, err := throttle.ParseScript("hang:1@500ms-1h")
		if err != nil {
			t.Fatal(err)
		}
		o, m := throttled(t, 2000, 100_000, throttle.Config{RateBytes: 50e6, Faults: hangs})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, _, err = probe.Origin(ctx, o, m, limits(), func() {})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// What is wrong with an origin is said; what passes is not held against it.
func TestOriginTroubles(t *testing.T) {
	for _, c := range []struct {
		faults, note, err string
		wraps             error
	}{
		{"slowdown:1@1s-1h", "asked to slow down with 4 readers", "", nil},
		{"slowdown:1", "", "asks to slow down", origin.ErrSlowDown},
		{"error:1@1s-1h", "", "measure the origin with 4 at once", origin.ErrUnavailable},
		{"error:0.02@1s-1h", "", "", nil},
		{"hang:1@46ms-1h", "", "nothing was read in", nil},
	} {
		t.Run(c.faults, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script, err := throttle.ParseScript(c.faults)
				if err != nil {
					t.Fatal(err)
				}
				o, m := throttled(t, 50_000, 10_000, throttle.Config{RateBytes: 500e6,
					Latency: 5 * time.Millisecond, Faults: script})
				l := limits()
				l.Span = 940 * time.Millisecond // the first step ends before the faults begin
				_, note, err := probe.Origin(t.Context(), o, m, l, func() {})
				said := ""
				if err != nil {
					said = err.Error()
				}
				if !strings.Contains(note, c.note) || (c.note == "") != (note == "") ||
					!strings.Contains(said, c.err) || (c.err == "") != (err == nil) ||
					c.wraps != nil && !errors.Is(err, c.wraps) {
					t.Errorf("note %q, error %v", note, err)
				}
			})
		})
	}
}

func TestRam(t *testing.T) {
	steps := 0
	read, write, err := probe.Ram(t.Context(), 20*time.Millisecond, func() { steps++ })
	if err != nil || steps != probe.RamSteps() {
		t.Fatalf("%d steps: %v", steps, err)
	}
	for _, c := range []perf.Curve{read, write} {
		if err := c.Validate(); err != nil || c[0].At != 1 {
			t.Errorf("%v: %v", c, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := probe.Ram(ctx, time.Hour, func() {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

var _ probe.Samples = (*dataset.Set)(nil)

// Empty samples cannot be measured by.
func TestOriginOfNothing(t *testing.T) {
	_, _, err := probe.Origin(t.Context(), nil, nothing{}, limits(), func() {})
	if err == nil || !strings.Contains(err.Error(), "empty") {
		t.Error(err)
	}
}

type nothing struct{}

func (nothing) Len() int { return 3 }
func (nothing) Parts(_ sample.ID, dst []dataset.Part) []dataset.Part {
	return append(dst, dataset.Part{Name: "a"})
}

// The link to a node is measured; one that closes, or answers nothing, is refused.
func TestPeer(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ctx, cancel := context.WithCancel(t.Context())
	l, done := listen(), make(chan error, 1)
	go func() { done <- probe.Answer(ctx, l) }()
	steps := 0
	link, err := probe.Peer(ctx, l.Addr().String(), func() { steps++ })
	if err != nil || link.Validate() != nil || len(link) != 4 || steps != 4 {
		t.Errorf("%v in %d steps: %v", link, steps, err)
	}
	// Who does not greet as a node does gets nothing.
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(conn); len(got) > 0 {
		t.Errorf("a stranger was sent %d bytes", len(got))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for name, serve := range map[string]func(net.Conn){
		"closes": func(c net.Conn) { _ = c.Close() },
		"silent": func(c net.Conn) { time.AfterFunc(3*time.Second, func() { _ = c.Close() }) },
	} {
		l := listen()
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				serve(c)
			}
		}()
		_, err := probe.Peer(t.Context(), l.Addr().String(), func() {})
		if err == nil || !strings.Contains(err.Error(), "measure the link to "+l.Addr().String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
