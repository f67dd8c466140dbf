package ssd

import (
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
