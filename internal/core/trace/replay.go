package trace

import (
	"fmt"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/pump"
)

// Replayed is how far a replay went.
type Replayed struct {
	Steps, Moves int
	// Tail is how many bytes of the trace were left out, because the recorder was cut off.
	Tail int
}

// Difference is the first move in which a replay and its trace part. A side that has no such move
// is the zero Move.
type Difference struct {
	Step, Move         int
	Now                pump.Instant
	Recorded, Replayed pump.Move
}

func (d *Difference) Error() string {
	return fmt.Sprintf("step %d (at %d ns), move %d: recorded %s, replayed %s",
		d.Step, d.Now, d.Move, describe(&d.Recorded), describe(&d.Replayed))
}

// describe writes a move with what counts of it.
func describe(m *pump.Move) string {
	switch m.Kind {
	case 0:
		return "no move"
	case pump.Fetch, pump.Drop:
		return fmt.Sprintf("%s cursor %d, run %d: %d+%d, epoch %d, mask %x, slots %x, ssd %x, "+
			"log %x", m.Kind, m.Cursor, m.Run.Handle, m.Run.First, m.Run.Count, m.Epoch, m.Mask,
			m.Slots, m.Ssd, m.Log)
	case pump.Lease:
		return fmt.Sprintf("lease cursor %d, epoch %d, batch %d, seq %d: %d+%d, cause %s, last %t, "+
			"failed %t", m.Cursor, m.Epoch, m.Batch, m.Seq, m.Run.First, m.Run.Count, m.Cause,
			m.Last, m.Failed)
	case pump.Evict:
		return fmt.Sprintf("evict samples %d", m.Evicted())
	default:
		return fmt.Sprintf("%s cursor %d, epoch %d, batch %d, seq %d, %d bytes", m.Kind, m.Cursor,
			m.Epoch, m.Batch, m.Seq, m.Bytes)
	}
}

// player feeds a trace to a pump.
type player struct {
	header Header
	sizes  dataset.Sizes
	pump   *pump.Pump
	feeds  map[int32]*feed
}

// feed is where a cursor's windows come from: the k-th is next.
type feed struct {
	*job.Feed
	k int
}

// Replay feeds a trace's events to a fresh pump and compares the moves. The error is a *Difference
// if they are not the same.
func Replay(data []byte, s dataset.Sizes) (Replayed, error) {
	return play(data, s, func(*pump.Pump, *Step) {})
}

// play is Replay with somebody who looks at the pump after each step.
func play(data []byte, s dataset.Sizes, look func(*pump.Pump, *Step)) (Replayed, error) {
	var done Replayed
	d, err := NewDecoder(data)
	if err != nil {
		return done, err
	}
	p, err := d.Header.Plan(s)
	if err != nil {
		return done, err
	}
	r := player{header: d.Header, sizes: s, pump: pump.New(p), feeds: map[int32]*feed{}}
	var moves []pump.Move
	for {
		step, err := d.Next()
		done.Tail = d.Tail()
		if err != nil || step == nil {
			return done, err
		}
		if err := r.prepare(step); err != nil {
			return done, fmt.Errorf("step %d: %w", done.Steps, err)
		}
		moves = r.pump.Step(step.Now, step.Events, moves[:0])
		if diff := compare(step, moves); diff != nil {
			diff.Step = done.Steps
			return done, diff
		}
		look(r.pump, step)
		done.Steps++
		done.Moves += len(moves)
	}
}

func compare(step *Step, moves []pump.Move) *Difference {
	for i := range max(len(step.Moves), len(moves)) {
		var want, got pump.Move
		if i < len(step.Moves) {
			want = step.Moves[i]
		}
		if i < len(moves) {
			got = moves[i]
		}
		if want != got {
			return &Difference{Move: i, Now: step.Now, Recorded: want, Replayed: got}
		}
	}
	return nil
}

// prepare computes what the step's events leave out.
func (r *player) prepare(step *Step) error {
	for _, reading := range step.Readings {
		delete(r.feeds, reading.Cursor)
		if !reading.Known {
			continue
		}
		if n := reading.Reading.Order.Samples; n != r.sizes.Len() {
			return fmt.Errorf("%w: cursor %d reads %d samples of a dataset of %d", ErrCorrupt,
				reading.Cursor, n, r.sizes.Len())
		}
		f, err := job.NewFeed(reading.Reading, r.pump.Plan().Rule.Ahead)
		if err != nil {
			return err
		}
		r.feeds[reading.Cursor] = &feed{Feed: f}
	}
	for i := range step.Events {
		if err := r.complete(&step.Events[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *player) complete(e *pump.Event) error {
	switch {
	case e.Kind == pump.Replanned:
		h := r.header
		h.Keep, h.Staging = e.Plan.Keep, e.Plan.Staging
		h.Log, h.Carry = e.Plan.Log, e.Plan.Carry
		p, err := h.Plan(r.sizes)
		e.Plan = p
		return err
	case e.Kind != pump.Ordered:
		return nil
	case e.Window != nil:
		for _, id := range e.Window.IDs {
			if int(id) >= r.sizes.Len() {
				return fmt.Errorf("%w: cursor %d reads sample %d of a dataset of %d", ErrCorrupt,
					e.Cursor, id, r.sizes.Len())
			}
		}
		return nil
	}
	f := r.feeds[e.Cursor]
	if f == nil {
		return fmt.Errorf("%w: a window of cursor %d, whose reading is not recorded", ErrCorrupt,
			e.Cursor)
	}
	w, err := f.Window(f.k)
	e.Window = w
	f.k++
	return err
}
