package session

import (
	"fmt"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/node/wire"
)

// maxAhead bounds the samples of an explicit order that a client may send before they are leased:
// two epochs of the largest datasets, 256 MiB.
const maxAhead = 1 << 26

// intake holds the windows of an explicit order to their sequence, and cuts what was read before a
// resume.
type intake struct {
	start  job.Start
	epochs int
	epoch  int // the one due
	batch  int // how many of its batches came
	over   bool
}

// take makes a window of what came, less the batches before the start.
func (in *intake) take(v wire.WindowView) (*job.Window, error) {
	if in.over || int64(v.Epoch) != int64(in.epoch) {
		return nil, fmt.Errorf("%w: a window of epoch %d came, epoch %d of %d is due",
			wire.ErrMalformed, v.Epoch, in.epoch, in.epochs)
	}
	win := &job.Window{Epoch: in.epoch, Batch: in.batch, IDs: make([]sample.ID, v.Len()),
		Ends: make([]uint32, v.Batches()), LastOfEpoch: v.Flags&wire.WindowLastOfEpoch != 0,
		LastOfJob: v.Flags&wire.WindowLastOfJob != 0}
	for i := range win.IDs {
		win.IDs[i] = v.ID(i)
	}
	for i := range win.Ends {
		win.Ends[i] = v.End(i)
	}
	in.batch += len(win.Ends)
	if in.epoch == in.start.Epoch {
		win.Cut(min(in.start.Batch-win.Batch, len(win.Ends)))
	}
	if !win.LastOfEpoch {
		return win, nil
	}
	if in.epoch == in.start.Epoch && in.batch < in.start.Batch {
		return nil, fmt.Errorf("epoch %d has %d batches: it cannot start at batch %d",
			in.epoch, in.batch, in.start.Batch)
	}
	in.epoch, in.batch = in.epoch+1, 0
	in.over = win.LastOfJob || in.epoch == in.epochs
	win.LastOfJob = in.over
	return win, nil
}

// window takes a piece of an explicit order.
func (s *Session) window(p []byte, a *wire.Attach) error {
	if a.Order.Known() {
		return &wire.Error{Code: wire.CodeProtocol, Fatal: true,
			Text: fmt.Sprintf("order %s is computed here: windows are for explicit orders",
				a.Order.Kind)}
	}
	v, err := wire.DecodeWindow(p)
	if err != nil {
		return err
	}
	win, err := s.intake.take(v)
	if err != nil {
		return err
	}
	check := order.Window{Epoch: win.Epoch, IDs: win.IDs, BatchEnds: win.Ends, Last: true}
	if err := check.Validate(s.world.Set.Len()); err != nil {
		return fmt.Errorf("window of epoch %d: %w", win.Epoch, err)
	}
	if err := win.CheckRepeats(); err != nil {
		return err
	}
	if err := s.fits(win); err != nil {
		return err
	}
	s.cursor.Window(win)
	return nil
}

// fits checks a window against what a lease can carry and a session may hold.
func (s *Session) fits(win *job.Window) error {
	most, from := wire.MaxBatch(s.fields), uint32(0)
	for i, end := range win.Ends {
		if int(end-from) > most {
			return &wire.Error{Code: wire.CodeTooLarge, Fatal: true, Text: fmt.Sprintf(
				"batch %d of epoch %d has %d samples, over the limit of %d",
				win.Batch+i, win.Epoch, end-from, most)}
		}
		from = end
	}
	s.mu.Lock()
	s.ahead += int64(len(win.IDs))
	ahead := s.ahead
	s.mu.Unlock()
	if ahead > maxAhead {
		return &wire.Error{Code: wire.CodeTooLarge, Fatal: true, Text: fmt.Sprintf(
			"windows are %d samples ahead of the loop: send at most %d ahead", ahead, maxAhead)}
	}
	return nil
}
