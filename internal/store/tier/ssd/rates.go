package ssd

import (
	"fmt"

	"belady/internal/core/perf"
	"belady/internal/store/probe"
)

// Rates returns what the directories together give: as Options know it, else as it was measured,
// anew once a day.
func (d *Disks) Rates() (perf.Rates, error) {
	all := make([]perf.Rates, len(d.dirs))
	for i, one := range d.dirs {
		rates, ok := perf.Rates{}, false
		if d.options.Rates != nil {
			rates, ok = d.options.Rates(one.path)
		}
		if !ok {
			rates, ok = one.memo.Rates(d.now())
		}
		if !ok {
			var err error
			if rates, err = probe.Rates(one.fs, []int{4 << 10, 16 << 10, 100 << 10, 1 << 20}); err != nil {
				return perf.Rates{}, fmt.Errorf("%s: %w", one.path, err)
			}
			one.memo.Measured(rates, d.now())
			one.memo.Save(d.now())
		}
		all[i] = rates
	}
	return perf.Together(all), nil
}
