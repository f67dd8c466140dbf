package session

import (
	"context"
	"fmt"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/node/wire"
)

// Beginning is where a rank of a job begins to read an order.
type Beginning struct {
	Common
	Rank     int
	Epoch    int
	Position int64
	PID      int
}

// Common is what ranks that train together have in common.
type Common struct {
	Job     string
	Content string
	Order   order.Spec
	// Times is how often each rank's process has begun to read this order, this time included.
	Times int
}

// Agrees says that two ranks can be training together: they begin at one position, or one of them
// has gone on to a later epoch, which all read from its first entry.
func (b *Beginning) Agrees(other *Beginning) bool {
	switch {
	case b.Epoch > other.Epoch:
		return b.Position == 0
	case b.Epoch < other.Epoch:
		return other.Position == 0
	}
	return b.Position == other.Position
}

// begin holds where a rank begins against the others of its job. Only what the client says is a
// beginning is: who reconnects goes on. A rank's workers begin where their share of it does.
func (s *Session) begin(
	ctx context.Context, a *wire.Attach, r *job.Reading, start wire.Start,
) (end func(), err error) {
	b := Beginning{Common: Common{Job: a.Job, Content: fmt.Sprintf("%x", s.world.Set.ID()),
		Order: r.Order, Times: a.Begins}, Rank: a.Rank, Epoch: start.Epoch,
		Position: start.Position, PID: s.PID}
	if share := a.Share; share != nil {
		b.Order, b.Rank = share.Order, share.Rank
		b.Epoch, b.Position = share.Epoch, share.Position
	}
	if s.Begin == nil || b.Times == 0 || b.Order.Ranks() == 1 || !b.Order.Known() {
		return func() {}, nil
	}
	return s.Begin(ctx, b)
}
