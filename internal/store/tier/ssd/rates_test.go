package ssd

import (
	"testing"
	"time"

	"belady/internal/core/perf"
)

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
