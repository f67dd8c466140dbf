package arena

import (
	"reflect"
	"testing"
)

// A plan for memory that nobody has must be the daemon's plan for memory that it has.
func TestOutlineIsTheArenasShape(t *testing.T) {
	for _, mix := range mixes() {
		for _, packed := range []bool{false, true} {
			_, h := drawMix(mix, 10_000)
			a := newArena(t, Config{Bytes: 37<<20 + 5, SlabBytes: 8 << 20, Sizes: h, Packed: packed})
			outline, err := Outline(a.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Shape(); !reflect.DeepEqual(got, outline) {
				t.Errorf("%s, packed %t: an arena of slabs %v, outlined %v", mix.name, packed, got.slabs,
					outline.slabs)
			}
		}
	}
	if _, err := Outline(Config{Pool: NewPool(0), Bytes: SpanBytes - 1}); err == nil {
		t.Error("less than a span has a shape")
	}
}
