package ssd

import (
	"testing"

	"belady/internal/store/tier"
	"belady/internal/store/tier/tiertest"
)

// What a log would hold is what one that is opened holds.
func TestHoldsWhatALogDoes(t *testing.T) {
	var sizes tiertest.Sizes
	for i := range uint32(3000) {
		sizes = append(sizes, 2000+i*7919%60_000)
	}
	sizes[77] = 9 << 20
	for _, quota := range []int64{4 << 20, 20 << 20, 64 << 20, 1 << 30} {
		d := open(t, quota, folderFS(t))
		l, err := d.Open(tier.Config{Content: [32]byte{1}, Name: "d", Sizes: sizes,
			Layout: tier.Static})
		if err != nil {
			t.Fatal(err)
		}
		bytes, most := Holds(sizes, quota)
		if u := l.Usage(); u.Capacity != bytes || u.SampleMax != most {
			t.Errorf("quota %d: holds %d, samples up to %d; foretold %d and %d", quota, u.Capacity,
				u.SampleMax, bytes, most)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
