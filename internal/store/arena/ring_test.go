package arena

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestRingAgainstModel(t *testing.T) {
	const size = 4 * 4096
	pool := NewPool(size)
	rapid.Check(t, func(t *rapid.T) {
		r, err := NewRing(pool, size-100)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		type piece struct{ off, n int64 }
		var held []piece
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "alloc") {
				n := rapid.Int64Range(0, size/2).Draw(t, "bytes")
				off, ok := r.Alloc(n)
				if !ok {
					if len(held) == 0 {
						t.Fatalf("an empty ring refused %d bytes", n)
					}
					continue
				}
				if off%Align != 0 || off+n > size {
					t.Fatalf("piece of %d at %d", n, off)
				}
				for _, h := range held {
					if off < h.off+max(h.n, 1) && h.off < off+max(n, 1) {
						t.Fatalf("[%d,+%d) overlaps [%d,+%d)", off, n, h.off, h.n)
					}
				}
				held = append(held, piece{off, n})
			} else if len(held) > 0 {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "release")
				if !r.Release(held[i].off) || r.Release(held[i].off) {
					t.Fatalf("release of %d, then again", held[i].off)
				}
				held = append(held[:i], held[i+1:]...)
			}
		}
		for _, h := range held {
			r.Release(h.off)
		}
		if off, ok := r.Alloc(size); !ok || off != 0 {
			t.Fatalf("a released ring refused its whole size: %d, %v", off, ok)
		}
	})
	if pool.Left() != size {
		t.Fatalf("%d bytes left of %d", pool.Left(), size)
	}
}

func TestRingRefusesWhatThePoolLacks(t *testing.T) {
	if _, err := NewRing(NewPool(4096), 4097); !errors.Is(err, ErrNoBudget) {
		t.Fatalf("made a ring: %v", err)
	}
}

func TestRingBoundsItsPieces(t *testing.T) {
	r, err := NewRing(NewPool(1<<20), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 10 * maxRingPieces {
		off, ok := r.Alloc(1)
		if ok != (i < maxRingPieces) {
			t.Fatalf("piece %d: %v", i, ok)
		}
		if i >= maxRingPieces {
			continue
		}
		if off != int64(i)*Align {
			t.Fatalf("piece %d at %d", i, off)
		}
	}
}
