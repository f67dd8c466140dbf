package session

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/sample"
	"belady/internal/node/wire"
)

func view(t *rapid.T, epoch, flags uint32, ids []sample.ID, ends []uint32) wire.WindowView {
	frame := wire.AppendWindow(nil, epoch, flags, ids, ends)
	v, err := wire.DecodeWindow(frame[wire.HeaderSize:])
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestIntakeCutsWhatWasRead: however an epoch is cut into windows, what passes is its batches from
// the start on, with their numbers.
func TestIntakeCutsWhatWasRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 20).Draw(t, "sizes")
		start := rapid.IntRange(0, len(sizes)).Draw(t, "start")
		in := intake{start: job.Start{Epoch: 3, Batch: start}, epochs: 5, epoch: 3}
		var want, got []sample.ID
		next, batch := sample.ID(0), start
		for first := 0; first < len(sizes); {
			count := rapid.IntRange(1, len(sizes)-first).Draw(t, "count")
			var ids []sample.ID
			var ends []uint32
			for i, size := range sizes[first : first+count] {
				for range size {
					if ids = append(ids, next); first+i >= start {
						want = append(want, next)
					}
					next++
				}
				ends = append(ends, uint32(len(ids)))
			}
			first += count
			flags := uint32(0)
			if first == len(sizes) {
				flags = wire.WindowLastOfEpoch
			}
			w, err := in.take(view(t, 3, flags, ids, ends))
			if err != nil {
				t.Fatal(err)
			}
			if len(w.Ends) > 0 && w.Batch != batch {
				t.Fatalf("the window begins at batch %d, not %d", w.Batch, batch)
			}
			if n := len(w.Ends); n > 0 && int(w.Ends[n-1]) != len(w.IDs) {
				t.Fatalf("%d ids end at %d", len(w.IDs), w.Ends[n-1])
			}
			batch += len(w.Ends)
			got = append(got, w.IDs...)
		}
		if !slices.Equal(got, want) || batch != len(sizes) {
			t.Fatalf("passed %v up to batch %d, wanted %v up to %d", got, batch, want, len(sizes))
		}
		if in.epoch != 4 || in.batch != 0 || in.over {
			t.Fatalf("epoch %d, batch %d is due", in.epoch, in.batch)
		}
	})
}

func TestIntakeRefusesAStartPastTheEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := intake{start: job.Start{Batch: 3}, epochs: 1}
		_, err := in.take(view(t, 0, wire.WindowLastOfEpoch, []sample.ID{1, 2}, []uint32{1, 2}))
		if err == nil || errors.Is(err, wire.ErrMalformed) {
			t.Fatalf("the error is %v", err)
		}
	})
}

// TestTooFarAhead: what a client may send before it is leased is bounded.
func TestTooFarAhead(t *testing.T) {
	s := &Session{ahead: maxAhead}
	err := s.fits(&job.Window{IDs: []sample.ID{1}, Ends: []uint32{1}})
	if !errors.Is(err, &wire.Error{Code: wire.CodeTooLarge}) {
		t.Errorf("the error is %v", err)
	}
}
