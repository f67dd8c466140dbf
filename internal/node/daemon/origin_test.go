package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/order"
	"belady/internal/node/wire"
	"belady/internal/store/origin"
)

// try reads and expects to fail.
func (n *node) try(r reading) error {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := n.read(ctx, r)
	if err == nil {
		n.t.Fatal("nothing went wrong")
	}
	if ctx.Err() != nil {
		n.t.Fatal("no bytes and no error within 30 s")
	}
	return err
}

// TestPassingFaultsAreInvisible (F-29, F-30, F-31): what a retry cures, no rank sees.
func TestPassingFaultsAreInvisible(t *testing.T) {
	for _, script := range []string{"seed:1,error:0.2", "seed:2,slowdown:0.2", "seed:3,hang:0.01",
		"seed:4,short:0.2", "seed:5,error:1@0s-300ms",
		"seed:6,error:0.1,short:0.1,slowdown:0.1,hang:0.005"} {
		n := start(t, 32*mib, func(c *config) {
			c.Retry.TotalTimeout, c.Retry.AttemptTimeout = 10*time.Second, 150*time.Millisecond
		})
		d := n.addSynth("d", "throttle+", "samples=400&size=4KB&throttle.faults="+
			url.QueryEscape(script))
		n.mustRead(reading{Attach: d.attach(order.Random, 16, 2), data: d})
		n.quiet("d")
		if n.counters().Faults.Load() == 0 {
			t.Errorf("%s: no fault fired", script)
		}
		if got := n.told("fetch-failed"); len(got) > 0 {
			t.Errorf("%s: %v", script, got[0])
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLastingFaultsAreTyped (F-30, F-32, F-33): what no retry cures reaches the rank as an error
// that names the sample, and the daemon goes on.
func TestLastingFaultsAreTyped(t *testing.T) {
	for _, c := range []struct {
		script string
		code   wire.Code
		names  bool
	}{
		{"absent:NAME", wire.CodeAbsent, true},
		{"changed:NAME", wire.CodeChanged, true},
		{"error:1", wire.CodeUnavailable, false},
		{"hang:1", wire.CodeUnavailable, false},
		{"slowdown:1", wire.CodeUnavailable, false},
		{"drip:1", wire.CodeUnavailable, false},
		{"short:1", wire.CodeUnavailable, false},
	} {
		n := start(t, 32*mib, func(c *config) {
			c.Retry.TotalTimeout, c.Retry.AttemptTimeout = 400*time.Millisecond, 150*time.Millisecond
		})
		name := n.nameOf("synth://x?samples=400&size=4KB", 123)
		script := strings.ReplaceAll(c.script, "NAME", url.PathEscape(name))
		d := n.addSynth("d", "throttle+", "samples=400&size=4KB&throttle.faults="+
			url.QueryEscape(script))
		err := n.try(reading{Attach: d.attach(order.Random, 16, 2), data: d})
		wantError(t, err, c.code, "sample ", " of d")
		if c.names {
			wantError(t, err, c.code, "sample 123", name)
		}
		// A drip that is given up on is not counted; that it took too long is proof enough.
		if n.counters().Faults.Load() == 0 && c.script != "drip:1" {
			t.Errorf("%s: no fault fired", c.script)
		}
		if len(n.told("fetch-failed")) == 0 {
			t.Errorf("%s: no event tells of it", c.script)
		}
		n.quiet("d")
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// nameOf is the name an origin gives its i-th object.
func (n *node) nameOf(where string, i int) string {
	n.t.Helper()
	o, err := n.openOrigin(context.Background(), where)
	if err != nil {
		n.t.Fatal(err)
	}
	defer o.Close()
	var names []string
	err = o.List(context.Background(), func(batch []dataset.Object) error {
		for _, object := range batch {
			names = append(names, object.Name)
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return names[i]
}

// TestWrongBytes (F-34b): bytes that nothing can vouch for are delivered; the test's own check
// finds them, which shows that it looks.
func TestWrongBytes(t *testing.T) {
	n := start(t, 32*mib, nil)
	d := n.addSynth("d", "throttle+", "samples=50&size=4KB&throttle.faults=corrupt:1")
	err := n.try(reading{Attach: d.attach(order.Random, 16, 1), data: d})
	if code(err) != 0 || !strings.Contains(err.Error(), "sample") {
		t.Errorf("the check says %v", err)
	}
}

// gate is an origin that a test can take down.
type gate struct {
	origin.Origin
	down chan struct{} // closed: down
}

func (g *gate) Read(ctx context.Context, p dataset.Part, dst []byte) error {
	select {
	case <-g.down:
		return fmt.Errorf("%w: it is down (test)", origin.ErrUnavailable)
	default:
		return g.Origin.Read(ctx, p, dst)
	}
}

// TestOriginDownAfterWarmUp (F-34): with everything kept, ranks do not notice; with a part kept,
// the first missing sample is an error; when the origin is back, all is well.
func TestOriginDownAfterWarmUp(t *testing.T) {
	down, back := make(chan struct{}), make(chan struct{})
	n := start(t, 64*mib, func(c *config) {
		open := c.OpenOrigin
		c.OpenOrigin = func(ctx context.Context, name string) (origin.Origin, error) {
			o, err := open(ctx, name)
			select {
			case <-back:
				return o, err
			default:
				return &gate{o, down}, err
			}
		}
	})
	d := n.addSynth("d", "", "samples=500&size=4KB")
	taken := false
	at := d.attach(order.Random, 16, 5)
	n.mustRead(reading{Attach: at, data: d, each: func(b *batch) bool {
		if b.Epoch == 1 && !taken {
			taken = true
			close(down)
		}
		return true
	}})
	s := n.quiet("d")
	if s.Pump.FetchedBytes != d.bytes {
		t.Errorf("%d bytes were fetched of %d", s.Pump.FetchedBytes, d.bytes)
	}
	fresh := n.addSynth("fresh", "", "samples=500&size=4KB&seed=9")
	err := n.try(reading{Attach: fresh.attach(order.Random, 16, 1), data: fresh})
	wantError(t, err, wire.CodeUnavailable, "down (test)", "of fresh")
	n.quiet("fresh")
	close(back)
	lru := fresh.attach(order.Random, 16, 1) // another policy opens the dataset anew
	lru.Policy = "lru"
	n.mustRead(reading{Attach: lru, data: fresh})
}

// TestFilesThatChange (F-32, F-33): deleted, replaced, shortened or no longer a file.
func TestFilesThatChange(t *testing.T) {
	const name = "c0/00000.bin"
	for what, c := range map[string]struct {
		change func(path string) error
		code   wire.Code
	}{
		"deleted": {os.Remove, wire.CodeAbsent},
		"grown": {func(p string) error {
			return os.WriteFile(p, make([]byte, 9000), 0o600)
		}, wire.CodeChanged},
		"shortened": {func(p string) error { return os.Truncate(p, 7) }, wire.CodeChanged},
		"rewritten": {func(p string) error {
			return errors.Join(os.WriteFile(p, make([]byte, 4000), 0o600),
				os.Chtimes(p, time.Time{}, time.Unix(1, 0)))
		}, wire.CodeChanged},
		"a folder": {func(p string) error {
			return errors.Join(os.Remove(p), os.Mkdir(p, 0o700))
		}, wire.CodeAbsent},
		"a circle": {func(p string) error {
			return errors.Join(os.Remove(p), os.Symlink(p, p))
		}, 0},
	} {
		f := makeFiles(t, someFiles(40, 4000))
		n := start(t, 32*mib, nil)
		d := n.addFiles("d", f)
		if err := c.change(filepath.Join(f.dir, name)); err != nil {
			t.Fatal(what, err)
		}
		err := n.try(reading{Attach: d.attach(order.Random, 4, 1), data: d})
		if got := code(err); got != c.code && (c.code != 0 || got == 0) {
			t.Errorf("%s: the error is %v (%v), wanted %v", what, err, got, c.code)
		}
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error %q does not name the sample", what, err)
		}
		n.quiet("d")
		// Scanned anew, it is what it is.
		if what == "deleted" {
			delete(f.sizes, name)
		} else if what != "a folder" && what != "a circle" {
			f.write(t, name)
		} else {
			if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
				t.Fatal(err)
			}
			f.write(t, name)
		}
		d = n.addFiles("d", f)
		n.mustRead(reading{Attach: d.attach(order.Random, 4, 1), data: d})
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheFaultIsTheBatchs: of several samples that fail, the one named is of the batch that fails.
func TestTheFaultIsTheBatchs(t *testing.T) {
	n := start(t, 32*mib, nil)
	var script []string
	for _, i := range []int{5, 17, 40, 63} {
		name := n.nameOf("synth://x?samples=64&size=4KB", i)
		script = append(script, "absent:"+url.PathEscape(name))
	}
	d := n.addSynth("d", "throttle+", "samples=64&size=4KB&throttle.faults="+
		url.QueryEscape(strings.Join(script, ",")))
	for range 5 {
		err := n.try(reading{Attach: d.attach(order.Sequential, 2, 1), data: d})
		wantError(t, err, wire.CodeAbsent, "sample 5 ")
	}
}

// TestAFaultOfOneRankIsNamedToAll: ranks that count on another's fetch hear which sample failed.
func TestAFaultOfOneRankIsNamedToAll(t *testing.T) {
	n := start(t, 32*mib, nil)
	name := n.nameOf("synth://x?samples=64&size=4KB", 5)
	d := n.addSynth("d", "throttle+", "samples=64&size=4KB&throttle.latency=20ms&throttle.faults="+
		url.QueryEscape("absent:"+url.PathEscape(name)))
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() { errs <- n.readErr(reading{Attach: d.attach(order.Random, 64, 1), data: d}) }()
	}
	for range cap(errs) {
		wantError(t, <-errs, wire.CodeAbsent, name)
	}
	n.quiet("d")
}

func (n *node) readErr(r reading) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := n.read(ctx, r)
	return err
}
