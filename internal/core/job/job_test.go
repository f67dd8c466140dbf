package job_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/sample"
)

func draw(t *rapid.T) job.Reading {
	world := rapid.IntRange(1, 3).Draw(t, "world")
	r := job.Reading{Epochs: 3, Rank: rapid.IntRange(0, world-1).Draw(t, "rank"),
		Order: order.Spec{Kind: "torch-distributed", World: world,
			Samples: rapid.IntRange(world, 60).Draw(t, "samples"),
			Seed:    int64(rapid.IntRange(0, 99).Draw(t, "seed")),
			Batch:   rapid.IntRange(1, 9).Draw(t, "batch")}}
	if world == 1 && rapid.Bool().Draw(t, "repeats") {
		r.Order.Kind = "torch-replacement"
	}
	return r
}

func windows(t *rapid.T, r job.Reading) []*job.Window {
	f, err := job.NewFeed(r, true)
	if err != nil {
		t.Fatal(err)
	}
	var all []*job.Window
	for k := range r.Epochs - r.Start.Epoch {
		w, err := f.Window(k)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

// reads gives every rank's ids of an epoch, by position.
func reads(t *rapid.T, r job.Reading, epoch int) [][]sample.ID {
	o, err := order.New(r.Order)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]sample.ID
	for rank := range r.Order.Ranks() {
		e, err := o.Epoch(epoch, rank, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, append([]sample.ID(nil), e.IDs...))
	}
	return all
}

// nextUse looks for the next use of position i of a window, in plain sight: this rank's later
// positions, then any rank's in the next epoch.
func nextUse(t *rapid.T, r job.Reading, w *job.Window, i int) uint32 {
	for j := i + 1; j < len(w.IDs); j++ {
		if w.IDs[j] == w.IDs[i] {
			return uint32(j)
		}
	}
	if w.Epoch+1 == r.Epochs {
		return job.NoNext
	}
	next := uint32(job.NoNext)
	for _, ids := range reads(t, r, w.Epoch+1) {
		for j, id := range ids {
			if id == w.IDs[i] {
				next = min(next, uint32(len(w.IDs)+j))
				break
			}
		}
	}
	return next
}

func TestNextUses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := draw(rt)
		for k, w := range windows(rt, r) {
			if diff := cmp.Diff(reads(rt, r, k)[r.Rank], w.IDs); diff != "" {
				rt.Fatalf("epoch %d (-want +got):\n%s", k, diff)
			}
			for i := range w.IDs {
				if want := nextUse(rt, r, w, i); w.Next[i] != want {
					rt.Fatalf("epoch %d, position %d: next use %d, want %d", k, i, w.Next[i], want)
				}
			}
			if w.LastOfJob != (k == 2) || !w.LastOfEpoch || int(w.Ends[len(w.Ends)-1]) != len(w.IDs) {
				rt.Fatalf("epoch %d: %+v", k, w)
			}
		}
	})
}

// Law: a reading that starts at batch b is the rest of the whole one.
func TestStartAtBatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := draw(rt)
		whole := windows(rt, r)
		r.Start.Epoch = rapid.IntRange(0, 2).Draw(rt, "epoch")
		whole = whole[r.Start.Epoch:]
		r.Start.Batch = rapid.IntRange(0, len(whole[0].Ends)-1).Draw(rt, "from")
		rest := windows(rt, r)
		cut := uint32(0)
		if r.Start.Batch > 0 {
			cut = whole[0].Ends[r.Start.Batch-1]
		}
		want := *whole[0]
		want.Batch, want.IDs, want.Ends, want.Next = r.Start.Batch, want.IDs[cut:], nil, nil
		for _, end := range whole[0].Ends[r.Start.Batch:] {
			want.Ends = append(want.Ends, end-cut)
		}
		for _, next := range whole[0].Next[cut:] {
			if next != job.NoNext {
				next -= cut
			}
			want.Next = append(want.Next, next)
		}
		whole[0] = &want
		if diff := cmp.Diff(whole, rest); diff != "" {
			rt.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// Begin puts a start at the end of an epoch at the beginning of the next.
func TestBegin(t *testing.T) {
	r := job.Reading{Epochs: 2, Order: order.Spec{Kind: "sequential", Samples: 10, Batch: 3}}
	r.Start.Batch = 4
	_, start, batches, err := job.Begin(r, false)
	if err != nil || start != (job.Start{Epoch: 1}) || batches != 4 {
		t.Errorf("start %+v, %d batches, %v", start, batches, err)
	}
	r.Start.Batch = 5
	if _, _, _, err := job.Begin(r, false); err == nil {
		t.Error("a batch past the end was found")
	}
}

func TestValidate(t *testing.T) {
	good := job.Reading{Epochs: 1, Order: order.Spec{Kind: "sequential", Samples: 10, Batch: 3}}
	for _, c := range []struct {
		change func(*job.Reading)
		want   string
	}{
		{func(r *job.Reading) { r.Rank = 1 }, "ranks are 0 to 0"},
		{func(r *job.Reading) { r.Epochs = 0 }, "nothing to read"},
		{func(r *job.Reading) { r.Start.Epoch = 1 }, "nothing to read"},
		{func(r *job.Reading) { r.Start.Batch = -1 }, "use 0 or more"},
		{func(r *job.Reading) { r.Order.Kind = "best" }, "unknown"},
	} {
		r := good
		c.change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", r, err, c.want)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// BenchmarkWindow14M: the windows of an epoch of 14.2 M samples, with next uses.
func BenchmarkWindow14M(b *testing.B) {
	r := job.Reading{Epochs: 1 << 20, Order: order.Spec{Kind: "torch-distributed",
		Samples: 14_200_000, Batch: 256}}
	for _, ahead := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "ahead"}[ahead]
		b.Run(name, func(b *testing.B) {
			f, err := job.NewFeed(r, ahead)
			if err != nil {
				b.Fatal(err)
			}
			for i := range b.N {
				if _, err := f.Window(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
