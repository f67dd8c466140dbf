package ssd

import (
	"context"
	"errors"
	"testing"
	"time"

	"belady/internal/core/perf"
)

func TestProbe(t *testing.T) {
	files := folderFS(t)
	rates, err := Probe(files, []int{100_000, 3000})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", rates)
	if len(rates.Random) != 2 || rates.Random[0].Size != 3000 || rates.Random[0].BytesPerS <= 0 ||
		rates.Random[1].BytesPerS <= 0 || rates.Mixed <= 0 || rates.Read <= 0 {
		t.Errorf("%+v", rates)
	}
	if left, err := files.List("."); err != nil || len(left) != 0 {
		t.Errorf("left %v: %v", left, err)
	}
}

func TestMeasure(t *testing.T) {
	files, steps := folderFS(t), 0
	d, err := Measure(t.Context(), files, 20*time.Millisecond, func() { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]perf.Curve{"read": d.Read, "write": d.Write, "random": d.Random} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d.Mixed <= 0 || d.Capacity <= 0 || steps != MeasureSteps() {
		t.Errorf("%+v in %d steps", d, steps)
	}
	if left, err := files.List("."); err != nil || len(left) != 0 {
		t.Errorf("left %v: %v", left, err)
	}
}

// Measuring that is stopped ends soon, and leaves nothing.
func TestMeasureStops(t *testing.T) {
	for after := range 3 {
		files, steps := folderFS(t), 0
		ctx, cancel := context.WithCancel(t.Context())
		if after == 0 {
			cancel()
		}
		_, err := Measure(ctx, files, 20*time.Millisecond, func() {
			if steps++; steps >= after {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d steps: %v", after, err)
		}
		if left, err := files.List("."); err != nil || len(left) != 0 {
			t.Errorf("after %d steps: left %v: %v", after, left, err)
		}
	}
}

// What is known from elsewhere is not measured.
func TestKnownRates(t *testing.T) {
	known := perf.Rates{Mixed: 12, Read: 34, Random: []perf.Point{{Size: 4096, BytesPerS: 56}}}
	d := open(t, 0, folderFS(t))
	d.options.Rates = func(path string) (perf.Rates, bool) { return known, path == d.dirs[0].path }
	if got := rates(t, d); got.Mixed != 12 || got.Read != 34 || got.RandomAt(4096) != 56 {
		t.Errorf("%+v", got)
	}
}

// Rates are measured once a day and remembered in between.
func TestRatesAreRemembered(t *testing.T) {
	files := folderFS(t)
	first := rates(t, open(t, 0, files))
	again := rates(t, open(t, 0, files))
	if first.Mixed != again.Mixed || first.Read != again.Read {
		t.Errorf("%+v, then %+v", first, again)
	}
	d := open(t, 0, files)
	d.now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	if later := rates(t, d); later.Mixed == first.Mixed && later.Read == first.Read {
		t.Error("the day after they were not measured again")
	}
}

func rates(t *testing.T, d *Disks) perf.Rates {
	t.Helper()
	rates, err := d.Rates()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return rates
}
