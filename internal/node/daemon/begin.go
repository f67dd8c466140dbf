package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/node/session"
	"belady/internal/node/wire"
	"belady/internal/node/world"
)

// beginnings are where the ranks that read now began, by what they have in common. Ranks that
// loaded unequal checkpoints would train on some samples twice and on others never, and nothing
// else would say so.
type beginnings struct {
	mu   sync.Mutex
	live map[string][]*session.Beginning // guarded by mu
}

// begin refuses a rank that begins elsewhere than those it trains together with. Those of an
// earlier run may be about to leave, so it waits a while for them to.
func (d *Daemon) begin(ctx context.Context, b session.Beginning) (end func(), err error) {
	text, err := json.Marshal(b.Common)
	if err != nil {
		return nil, fmt.Errorf("a job's order cannot be told: %w", err)
	}
	key := string(text)
	deadline := time.Now().Add(orphaned * d.Patience)
	for {
		other := d.beginnings.enter(key, &b)
		if other == nil {
			return func() { d.beginnings.leave(key, &b) }, nil
		}
		if ctx.Err() != nil {
			return nil, world.ErrClosed
		}
		if time.Now().After(deadline) {
			return nil, unequal(&b, other)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// enter adds a beginning, or returns one that it does not agree with.
func (s *beginnings) enter(key string, b *session.Beginning) *session.Beginning {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := apart(s.live[key], b); other != nil {
		return other
	}
	if s.live == nil {
		s.live = map[string][]*session.Beginning{}
	}
	s.live[key] = append(s.live[key], b)
	return nil
}

// apart finds a rank that reads, but nowhere that agrees with b. A rank that reads already may
// begin elsewhere too: by a second loader, or in a second run of that name.
func apart(live []*session.Beginning, b *session.Beginning) *session.Beginning {
	of := func(rank int, agreeing bool) bool {
		return slices.ContainsFunc(live, func(other *session.Beginning) bool {
			return other.Rank == rank && (!agreeing || b.Agrees(other))
		})
	}
	if of(b.Rank, false) {
		return nil
	}
	for _, other := range live {
		if !of(other.Rank, true) && !dead(other.PID) {
			return other
		}
	}
	return nil
}

// dead says that a client's process has ended. Its children may hold its connection for a while.
func dead(pid int) bool { return pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func (s *beginnings) leave(key string, b *session.Beginning) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.live[key], b)
	if s.live[key] = slices.Delete(s.live[key], i, i+1); len(s.live[key]) == 0 {
		delete(s.live, key)
	}
}

func unequal(b, other *session.Beginning) error {
	return &wire.Error{Code: wire.CodeUnequalStart, Fatal: true, Text: fmt.Sprintf("rank %d of job "+
		"%s begins at position %d of epoch %d, but rank %d (process %d) began at position %d of "+
		"epoch %d: load the same checkpoint on every rank, and end what is left of an earlier run",
		b.Rank, b.Job, b.Position, b.Epoch, other.Rank, other.PID, other.Position, other.Epoch)}
}
