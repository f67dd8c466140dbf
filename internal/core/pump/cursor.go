package pump

import (
	"belady/internal/core/job"
	"belady/internal/core/policy"
)

// cursor is one rank's place in its order.
//
//	tail ≤ lease ≤ admit: batches before tail are reclaimed, before lease handed out, before
//	admit on their way; position pos is the frontier.
type cursor struct {
	live, closing, finished bool
	over                    bool // no window follows those known
	refused                 bool // the next batch is larger than all of staging

	index   int32
	batch   int32 // usual batch size
	credits int32
	asked   int32 // windows asked for
	due     bool  // another is to be asked for
	follows bool  // its order is the one that the log is carried along
	reserve int64 // staging set aside: two batches
	used    int64 // staging its batches were admitted for

	windows            []window
	ring               []batch // a power of two of batches in flight, by seq
	tail, lease, admit uint64
	frontier
	pace
}

// frontier is where a cursor's order has not been fetched yet.
type frontier struct {
	pos     int64  // the frontier itself
	scan    int64  // admission has priced the next batch up to here
	price   int64  // its price so far
	asOf    uint64 // the Step that priced it
	opened  bool   // the newest batch is still being issued
	blocked Cause  // why the frontier stands still
}

// pace is how a consumer moves along.
type pace struct {
	delivered int64           // positions handed out
	waiting   Cause           // what a consumer with credit waits for
	since     Instant         // since when
	waited    [Causes]Instant // how long for each, since the last lease
	period    Instant         // time a position takes the consumer, smoothed
	leasedAt  Instant
}

// window is a job.Window with its place in the cursor's order.
type window struct {
	*job.Window
	base  int64  // position of IDs[0]
	first uint64 // seq of its first batch
}

// batch is a batch in flight.
type batch struct {
	first        int64
	count        int32
	epoch, index int32
	pending      int32  // runs not ready
	runs, last   uint32 // handles of its first and last run, linked by run.next
	price        int64  // staging it was admitted for
	promised     int64  // of that, what its runs have not been charged yet
	issued       bool   // all its runs exist
	released     bool
	failed       bool
	ends         bool // last of its epoch
	reclaimed    bool // nothing of it is left; the tail passes such batches, out of order too
}

// Limits of a cursor's ring: enough small batches in flight to hide latency, few enough that the
// ring stays small.
const (
	ringMin       = 256
	ringMax       = 1 << 15
	ringPositions = 1 << 17
)

// maxCursors bounds the numbers of cursors: a node has far fewer ranks.
const maxCursors = 1 << 16

func (p *Pump) attach(e *Event) {
	i := int(e.Cursor)
	if i < 0 || i >= maxCursors || e.N <= 0 {
		return
	}
	for len(p.cursors) <= i {
		p.cursors = append(p.cursors, cursor{})
	}
	if p.cursors[i].live {
		return
	}
	size := ringMin
	for size < ringMax && size*int(e.N) < ringPositions {
		size *= 2
	}
	p.cursors[i] = cursor{live: true, index: e.Cursor, batch: e.N, reserve: e.Reserve,
		follows: e.Follows, ring: make([]batch, size), windows: make([]window, 0, 4)}
	c := &p.cursors[i]
	if p.ref < 0 {
		p.ref = i
	}
	p.need(c)
}

// maxWindows bounds how many windows a cursor holds: a dataset that is all in memory costs no
// staging, and nothing else would stop its frontier from running thousands of epochs ahead.
const maxWindows = 4

// needDue asks for the next window once the frontier has entered the last, unless there are many.
func (p *Pump) needDue(c *cursor) {
	if c.due && !c.closing && len(c.windows) < maxWindows {
		c.due = false
		p.need(c)
	}
}

// need asks for the next window.
func (p *Pump) need(c *cursor) {
	p.moves = append(p.moves, Move{Kind: Need, Cursor: c.index, Epoch: c.asked})
	c.asked++
}

func (p *Pump) ordered(c *cursor, w *job.Window) {
	if w == nil || c.closing {
		return
	}
	c.over = c.over || w.LastOfJob
	if len(w.Ends) == 0 {
		return // a client may learn only after its last batch that it was the last
	}
	next := window{Window: w}
	if n := len(c.windows); n > 0 {
		last := &c.windows[n-1]
		next.base = last.base + int64(len(last.IDs))
		next.first = last.first + uint64(len(last.Ends))
	}
	c.windows = append(c.windows, next)
	if p.plan.Rule.Counts {
		p.previews = append(p.previews, preview{cursor: c.index, at: next.base,
			end: next.base + int64(len(w.IDs))})
	}
}

func (c *cursor) windowAt(pos int64) *window {
	for i := len(c.windows) - 1; i > 0; i-- {
		if pos >= c.windows[i].base {
			return &c.windows[i]
		}
	}
	return &c.windows[0]
}

func (c *cursor) at(seq uint64) *batch { return &c.ring[seq&uint64(len(c.ring)-1)] }

// upcoming returns the window and the bounds of the batch at the frontier.
func (c *cursor) upcoming() (w *window, index int, lo, hi int64, ok bool) {
	if len(c.windows) == 0 {
		return nil, 0, 0, 0, false
	}
	// By batch, not by position: an empty batch at a window's end has the next one's position.
	at := len(c.windows) - 1
	for at > 0 && c.admit < c.windows[at].first {
		at--
	}
	w = &c.windows[at]
	index = int(c.admit - w.first)
	if index >= len(w.Ends) {
		return nil, 0, 0, 0, false
	}
	return w, index, c.pos, w.base + int64(w.Ends[index]), true
}

// ended reports whether the frontier has passed the job's last batch.
func (c *cursor) ended() bool {
	if len(c.windows) == 0 {
		return c.over
	}
	w := &c.windows[len(c.windows)-1]
	return c.over && c.admit == w.first+uint64(len(w.Ends)) && !c.opened
}

// detach stops a cursor. What it has in flight is reclaimed as the fetches end.
func (p *Pump) detach(c *cursor) {
	if c.closing {
		return
	}
	c.closing = true
	if c.opened {
		b := c.at(c.admit - 1)
		b.count = int32(c.pos - b.first)
		p.issuedAll(c, b)
	}
	for seq := c.tail; seq < c.admit; seq++ {
		if b := c.at(seq); !b.released && b.pending == 0 {
			b.released = true
			p.reclaims = append(p.reclaims, reclaim{c.index, seq})
		}
	}
}

// tidy lets go of what the last Step's moves could still name: windows that are read to their end,
// and cursors that have left.
func (p *Pump) tidy() {
	for i := range p.cursors {
		c := &p.cursors[i]
		if !c.live {
			continue
		}
		for len(c.windows) > 1 && c.windows[1].first <= c.tail {
			c.windows = append(c.windows[:0], c.windows[1:]...)
		}
		if c.left() {
			p.forget(c)
		} else {
			p.needDue(c)
		}
	}
}

// left reports whether a cursor is closing and has nothing in flight.
func (c *cursor) left() bool { return c.closing && c.tail == c.admit }

// forget frees a cursor that has left.
func (p *Pump) forget(c *cursor) {
	index := c.index
	if p.ref == int(index) {
		p.clockBase += c.pos
		p.ref = -1
		for i := range p.cursors {
			if d := &p.cursors[i]; d.live && i != int(index) {
				p.clockBase -= d.pos
				p.ref = i
				break
			}
		}
	}
	for i := range p.previews {
		if p.previews[i].cursor == index {
			p.previews[i].at = p.previews[i].end
		}
	}
	p.cursors[index] = cursor{}
	p.moves = append(p.moves, Move{Kind: Forget, Cursor: index})
}

// clock is the present tick: the reference cursor's frontier, carried on when it leaves.
func (p *Pump) clock() policy.Tick {
	if p.ref < 0 {
		return policy.Tick(p.clockBase)
	}
	return policy.Tick(p.clockBase + p.cursors[p.ref].pos)
}

// tick is when a cursor's frontier will reach a position: positions ahead times that cursor's
// period, in the reference cursor's positions.
func (p *Pump) tick(c *cursor, pos int64) policy.Tick {
	ahead := max(pos-c.pos, 0)
	if ref := p.ref; ref >= 0 && ref != int(c.index) {
		if r := &p.cursors[ref]; r.period > 0 && c.period > 0 {
			ahead = ahead * int64(c.period) / int64(r.period)
		}
	}
	// A slow cursor's uses may lie beyond what the queue's ring spans: there far is far.
	return p.clock() + policy.Tick(min(ahead, horizon(len(p.recs))/4*3))
}

// nextUse is when the sample at pos is wanted again, as far as its window knows.
func (p *Pump) nextUse(c *cursor, w *window, pos int64) policy.Tick {
	if w.Next == nil || w.Next[pos-w.base] == job.NoNext {
		return policy.Never
	}
	return p.tick(c, w.base+int64(w.Next[pos-w.base]))
}
