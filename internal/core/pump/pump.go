// Package pump is the state machine that turns a plan and events into moves.
//
// One pump serves one dataset on one node; the jobs that read it are cursors. The same code runs
// in the daemon and in the simulator: it knows no clock, no memory and no network, only instants,
// bytes on paper and runs. Whoever owns a pump calls Step from one goroutine, carries out the
// moves in the order they come, and reports what happened as events. Equal events give equal
// moves, always: a recorded run can be replayed.
//
// A run is fetched, then leased as part of its batch, then released. The pump touches a sample's
// record twice, when the frontier passes it and when it is released; all between is per run.
package pump

import (
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// stepWork bounds the positions one Step handles, so that a call takes well under a millisecond;
// More then says that another is due.
const stepWork = 4096

// Stats counts what a pump did. As the frontier passes a sample it is a hit if ram keeps it, shared
// if it is in staging for another position, an ssd hit if the log has it, and a miss otherwise.
// Misses and fetched bytes are the origin's alone; logged is what was asked to be appended.
type Stats struct {
	Hits         int64 `json:"hits"`
	Shared       int64 `json:"shared"`
	SsdHits      int64 `json:"ssd_hits"`
	SsdBytes     int64 `json:"ssd_bytes"`
	Misses       int64 `json:"misses"`
	FetchedBytes int64 `json:"fetched_bytes"`
	Logged       int64 `json:"logged"`
	LoggedBytes  int64 `json:"logged_bytes"`
	Unlogged     int64 `json:"unlogged"`
	Kept         int64 `json:"kept"`
	Evicted      int64 `json:"evicted"`
	Dropped      int64 `json:"dropped"`
	Failed       int64 `json:"failed"`
	StagingBytes int64 `json:"staging_bytes"`
	KeptBytes    int64 `json:"kept_bytes"`
}

// Pump is the state machine. It is not safe for concurrent use.
type Pump struct {
	plan    *plan.Plan
	recs    []record
	queue   queue
	cursors []cursor
	runs    []run
	idle    []uint32 // free handles in runs

	staging  int64 // bytes of samples in memory that are no members
	promised int64 // bytes that batches not yet wholly issued were admitted for
	kept     int64 // bytes of members
	stats    Stats

	clockBase int64 // ticks of former reference cursors
	ref       int   // the cursor whose batches are the ticks
	backlog
	sweeping
	budget int // positions this Step may still handle
	more   bool
	steps  uint64
	scratch
	moves []Move
}

// backlog is what Steps get round to by and by.
type backlog struct {
	reclaims []reclaim
	later    []uint32 // runs to look at again in the next Step
	previews []preview
	changes  []change
}

// scratch is what the loops over a run leave behind for each other.
type scratch struct {
	touched uint64                   // gives the loads of touch a purpose
	chosen  [MaxRun]sample.ID        // the samples of a run that a loop picked
	values  [touchAhead]policy.Value // of the samples at the frontier, where the rule looks ahead
	sources
}

// sweeping is the coming down to a new plan.
type sweeping struct {
	sweep int  // next record to look at; len(recs) when done
	late  bool // it passed members that were pinned: their last release lets them go
}

// reclaim is a released batch whose samples are being let go.
type reclaim struct {
	cursor int32
	seq    uint64
}

// New makes a pump for a plan.
func New(p *plan.Plan) *Pump { return NewIn(p, make([]Record, p.Sizes.Len())) }

// NewIn makes a pump whose records live in memory it is given: zero, one for each of the plan's
// samples. They are read at random, so how the memory is mapped tells in every Step, and mapping is
// not for the core to do.
func NewIn(p *plan.Plan, records []Record) *Pump {
	n := p.Sizes.Len()
	pm := &Pump{plan: p, recs: records[:n], ref: -1, sweeping: sweeping{sweep: n}}
	for id := range pm.recs {
		pm.recs[id].setSize(p.Size(sample.ID(id)))
	}
	if !p.Rule.Fixed {
		pm.queue = newQueue(pm.recs, p.Rule, horizon(n))
	}
	return pm
}

// horizon is how many ticks the queue spans: two epochs of known future, two of remembered past.
func horizon(samples int) int64 { return 4*int64(samples) + 4096 }

// Plan returns the plan in force.
func (p *Pump) Plan() *plan.Plan { return p.plan }

// Stats returns the counts so far.
func (p *Pump) Stats() Stats {
	s := p.stats
	s.StagingBytes, s.KeptBytes = p.staging, p.kept
	return s
}

// More reports whether the last Step left work undone that waits for no event.
func (p *Pump) More() bool { return p.more }

// Step takes what happened up to now and appends to moves what is to be done.
func (p *Pump) Step(now Instant, events []Event, moves []Move) []Move {
	p.moves, p.budget, p.more = moves, stepWork, false
	p.steps++
	p.tidy()
	for i := range events {
		p.take(now, &events[i])
	}
	p.lookAgain()
	p.reclaimSome()
	p.sweepSome()
	p.changeSome()
	p.previewSome()
	p.admitSome()
	for i := range p.cursors {
		if c := &p.cursors[i]; c.live {
			p.deliver(now, c)
			p.more = p.more || c.left()
		}
	}
	if p.budget <= 0 {
		p.more = true
	}
	moves, p.moves = p.moves, nil
	return moves
}

// take applies one event. An event that names nothing in flight is ignored: a client may release
// twice, and a fetch may end after its cursor is gone.
func (p *Pump) take(now Instant, e *Event) {
	if e.Kind == Attached {
		p.attach(e)
		return
	}
	if e.Kind == Replanned {
		p.replan(e.Plan)
		return
	}
	if e.Kind == Staged {
		p.stagedRun(e)
		return
	}
	if e.Kind == Logged || e.Kind == Unlogged {
		p.change(e)
		return
	}
	if e.Cursor < 0 || int(e.Cursor) >= len(p.cursors) || !p.cursors[e.Cursor].live {
		return
	}
	c := &p.cursors[e.Cursor]
	switch e.Kind {
	case Ordered:
		p.ordered(c, e.Window)
	case Credited:
		c.credits += max(e.N, 0)
	case Released:
		p.release(c, e.Seq)
	case Detached:
		p.detach(c)
	}
}

// replan puts a new plan in force: another budget for the same samples under the same policy and
// the same costs. What no longer fits is let go by and by; what now fits comes with its next use.
func (p *Pump) replan(next *plan.Plan) {
	if next == nil || next.Sizes.Len() != len(p.recs) || next.Rule.Name != p.plan.Rule.Name {
		return
	}
	p.plan = next
	p.sweep, p.late = 0, false
	for i := range p.cursors {
		c := &p.cursors[i]
		c.refused = false
		if !c.opened {
			c.scan, c.price = c.pos, 0 // what the next batch takes of staging is another thing now
		}
	}
}

// sweepSome lets go of members that a new plan has no room for. Those of a fixed set that are
// pinned stay members until their last release: charged to staging, they would hold up fetches. A
// queue cannot pass by its least, so there they are charged, and cursors go on with their shares.
func (p *Pump) sweepSome() {
	if !p.plan.Rule.Fixed {
		for p.kept > p.plan.Keep && p.budget > 0 && p.evictLeast() {
			p.budget--
		}
		return
	}
	for p.sweep < len(p.recs) && p.budget > 0 {
		id := sample.ID(p.sweep)
		switch r := &p.recs[id]; {
		case !r.member() || p.plan.InSet(id):
		case r.pinned():
			p.late = true
		default:
			p.evict(id)
		}
		p.sweep++
		p.budget--
	}
}

func (p *Pump) evictLeast() bool {
	id, _, ok := p.queue.least(p.clock())
	if ok {
		p.queue.take(id)
		p.evict(id)
	}
	return ok
}

// evict ends a sample's membership. If it is pinned its bytes become staging's, and its last
// release drops them; otherwise they go now.
func (p *Pump) evict(id sample.ID) {
	r := &p.recs[id]
	r.bits &^= memberBit
	size := p.size(r, id)
	p.kept -= p.plan.Slot(size)
	p.stats.Evicted++
	if r.pinned() {
		p.staging += p.plan.Staged(size)
		return
	}
	r.setState(absent)
	if n := len(p.moves); n > 0 && p.moves[n-1].Kind == Evict && p.moves[n-1].AddEvicted(id) {
		return
	}
	// Filled in place: a literal is copied in wide loads that cannot be forwarded from the narrow
	// stores that made it, and so waits for every store before it.
	p.moves = append(p.moves, Move{})
	m := &p.moves[len(p.moves)-1]
	m.Kind = Evict
	m.AddEvicted(id)
}

// size is the size of a sample, whose record is at hand.
func (p *Pump) size(rec *record, id sample.ID) uint32 {
	if size := rec.size(); size != sizeLarge {
		return size
	}
	return p.plan.Size(id)
}

// stagingCosts adds up what samples take of staging, in a loop of its own: again loads overlap.
func (p *Pump) stagingCosts(ids []sample.ID) int64 {
	var sum int64
	for _, id := range ids {
		sum += p.plan.Staged(p.size(&p.recs[id], id))
	}
	return sum
}

// IDs returns the samples of a run or of a leased batch, in order. It must be called before the
// Step that follows the one which named the run; the slice itself stays valid and must not be
// changed.
func (p *Pump) IDs(cursor int32, first int64, count int32) []sample.ID {
	w := p.cursors[cursor].windowAt(first)
	return w.IDs[first-w.base:][:count]
}

// Present reports whether a sample is in memory and no fetch is about to write it: unless it is
// lent, its bytes may be moved.
func (p *Pump) Present(id sample.ID) bool {
	r := &p.recs[id]
	// A sample counts as fetching until its run is reclaimed, though it may long have come.
	return r.state() == present || r.state() == fetching && !p.runs[r.handle()].asked
}

// Kept reports whether the tier keeps a sample, or is to keep it once it is there.
func (p *Pump) Kept(id sample.ID) bool { return p.recs[id].member() }

// Lent appends the samples of batches that consumers hold.
func (p *Pump) Lent(dst []sample.ID) []sample.ID {
	for i := range p.cursors {
		c := &p.cursors[i]
		for seq := c.tail; c.live && seq < c.lease; seq++ {
			if b := c.at(seq); !b.reclaimed {
				dst = append(dst, p.IDs(c.index, b.first, b.count)...)
			}
		}
	}
	return dst
}
