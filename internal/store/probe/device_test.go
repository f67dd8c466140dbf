package probe

import (
	"context"
	"errors"
	"testing"
	"time"

	"belady/internal/core/perf"
	"belady/internal/store/vfs"
)

func folder(t *testing.T) vfs.FS {
	t.Helper()
	f, err := vfs.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRates(t *testing.T) {
	files := folder(t)
	rates, err := Rates(files, []int{100_000, 3000})
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

func TestDevice(t *testing.T) {
	files, steps := folder(t), 0
	d, err := Device(t.Context(), files, 20*time.Millisecond, func() { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]perf.Curve{"read": d.Read, "write": d.Write, "random": d.Random} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d.Mixed <= 0 || d.Capacity <= 0 || steps != DeviceSteps() {
		t.Errorf("%+v in %d steps", d, steps)
	}
	if left, err := files.List("."); err != nil || len(left) != 0 {
		t.Errorf("left %v: %v", left, err)
	}
}

// Measuring that is stopped ends soon, and leaves nothing.
func TestDeviceStops(t *testing.T) {
	for after := range 3 {
		files, steps := folder(t), 0
		ctx, cancel := context.WithCancel(t.Context())
		if after == 0 {
			cancel()
		}
		_, err := Device(ctx, files, 20*time.Millisecond, func() {
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
