package pump_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/pump"
)

// inStep are ranks of one job that wait for each other after every batch, as collective operations
// make them: none asks for its next before all have the last.
type inStep struct {
	*rapid.T
	pump    *pump.Pump
	plan    *plan.Plan
	feeds   []*job.Feed
	batch   int
	hold    []int // batches that a rank keeps while it asks for another
	held    [][]uint64
	got     []int
	ended   []bool
	fetches []pump.Run
	now     pump.Instant
}

func newInStep(t *rapid.T) *inStep {
	n := rapid.IntRange(20, 200).Draw(t, "samples")
	all := make(sizes, n)
	for i := range all {
		all[i] = 64 * uint32(rapid.IntRange(1, 10).Draw(t, "size"))
	}
	all[0] *= uint32(rapid.IntRange(1, 40).Draw(t, "outlier"))
	ranks, batch := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 8).Draw(t, "batch")
	w := &inStep{T: t, batch: batch}
	in := plan.Input{Sizes: all, Policy: rapid.SampledFrom(policy.Names()).Draw(t, "policy")}
	w.make(w.drawn(in, ranks, batch))
	w.pump = pump.New(w.plan)
	w.got, w.held, w.ended = make([]int, ranks), make([][]uint64, ranks), make([]bool, ranks)
	var events []pump.Event
	for r := range ranks {
		spec := order.Spec{Kind: order.Distributed, Samples: n, World: ranks, Batch: batch,
			Seed: int64(rapid.IntRange(0, 99).Draw(t, "seed"))}
		feed, err := job.NewFeed(job.Reading{Order: spec, Epochs: 2, Rank: r}, w.plan.Rule.Ahead)
		if err != nil {
			t.Fatal(err)
		}
		w.feeds = append(w.feeds, feed)
		w.hold = append(w.hold, rapid.IntRange(0, 1).Draw(t, "hold"))
		events = append(events, pump.Event{Kind: pump.Attached, Cursor: int32(r), N: int32(batch),
			Reserve: w.plan.Reserve(batch)})
		if rapid.Bool().Draw(t, "late") { // others fill staging before the next one comes
			w.settle(events)
			events = nil
		}
	}
	w.settle(events)
	return w
}

// drawn draws memory that a world would let these ranks in with.
func (w *inStep) drawn(in plan.Input, ranks, batch int) plan.Input {
	total, largest := int64(0), int64(0)
	for id := range in.Sizes.Len() {
		size := int64(in.Sizes.(sizes)[id])
		total, largest = total+size, max(largest, size)
	}
	least := max(2*int64(ranks*batch)*(total/int64(in.Sizes.Len())+64),
		largest+int64(batch)*640)
	in.Keep = rapid.Int64Range(0, total).Draw(w.T, "keep")
	in.Staging = least + rapid.Int64Range(0, 4*least).Draw(w.T, "staging")
	return in
}

func (w *inStep) make(in plan.Input) {
	p, err := plan.Make(in)
	if err != nil {
		w.Fatal(err)
	}
	w.plan = p
}

// settle steps until nothing more comes of the events.
func (w *inStep) settle(events []pump.Event) {
	for first := true; first || len(events) > 0 || w.pump.More() || len(w.fetches) > 0; first = false {
		if len(w.fetches) > 0 && (len(events) == 0 || rapid.Bool().Draw(w.T, "arrives")) {
			i := rapid.IntRange(0, len(w.fetches)-1).Draw(w.T, "which")
			events = append(events, pump.Event{Kind: pump.Staged, Cursor: w.fetches[i].Cursor,
				Run: w.fetches[i]})
			w.fetches = append(w.fetches[:i], w.fetches[i+1:]...)
		}
		w.now += 1000
		moves := w.pump.Step(w.now, events, nil)
		events = nil
		for _, m := range moves {
			switch m.Kind {
			case pump.Fetch:
				w.fetches = append(w.fetches, m.Run)
			case pump.Lease:
				w.got[m.Cursor]++
				w.held[m.Cursor] = append(w.held[m.Cursor], m.Seq)
			case pump.Finish:
				w.ended[m.Cursor] = true
			case pump.Need:
				win, err := w.feeds[m.Cursor].Window(int(m.Epoch))
				if err != nil {
					w.Fatal(err)
				}
				events = append(events, pump.Event{Kind: pump.Ordered, Cursor: m.Cursor, Window: win})
			case pump.Refuse:
				w.Fatalf("cursor %d is refused a batch of %d, staging has %d", m.Cursor, m.Bytes,
					w.plan.Staging)
			}
		}
	}
}

// Law: ranks that wait for each other are always served, whoever came first, whatever was staged
// before, and however the plan changes, as long as each holds no more than one batch beside the one
// it asks for.
func TestRanksInStepAreServed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newInStep(rt)
		for round := 1; ; round++ {
			var events []pump.Event
			for r := range w.feeds {
				events = append(events, pump.Event{Kind: pump.Credited, Cursor: int32(r), N: 1})
			}
			if rapid.IntRange(0, 5).Draw(rt, "replan") == 0 {
				w.make(w.drawn(w.plan.Input, len(w.feeds), w.batch))
				events = append(events, pump.Event{Kind: pump.Replanned, Plan: w.plan})
			}
			w.settle(events)
			done := 0
			for r := range w.feeds {
				switch {
				case w.ended[r]:
					done++
				case w.got[r] < round:
					rt.Fatalf("rank %d waits for batch %d: %v, staging %d, %+v", r, round, w.got,
						w.plan.Staging, w.pump.Stats())
				}
			}
			if done == len(w.feeds) {
				return
			}
			events = nil
			for r, held := range w.held {
				for len(held) > w.hold[r] {
					events = append(events, pump.Event{Kind: pump.Released, Cursor: int32(r),
						Seq: held[0]})
					held = held[1:]
				}
				w.held[r] = held
			}
			w.settle(events)
		}
	})
}
