package pump

import (
	"slices"

	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// run is a run in flight.
type run struct {
	cursor  int32
	first   int64
	count   int32
	seq     uint64 // its batch
	next    uint32 // next run of the batch
	fetch   Mask   // positions this run fetched (failed ones taken out)
	slots   Mask   // of those, the ones in slots
	waits   int32  // own fetch and runs of others it depends on, not yet over
	heirs   [4]uint32
	nheirs  int32
	live    bool
	asked   bool // its fetch is out
	ready   bool
	origin  bool // the fetch it waits for has to do with the origin
	recheck bool // a run it depended on failed
}

// admitSome lets frontiers advance, a batch at a time, earliest deadline first: the cursor with
// the least time of work ahead of it goes next.
func (p *Pump) admitSome() {
	for p.budget > 0 {
		var best *cursor
		var least Instant
		for i := range p.cursors {
			c := &p.cursors[i]
			if !c.live || c.closing || c.blocked&stuck != 0 {
				continue
			}
			ahead := Instant(c.pos-c.delivered) * max(c.period, 1)
			if best == nil || ahead < least {
				best, least = c, ahead
			}
		}
		if best == nil {
			break
		}
		if !p.advance(best) {
			best.blocked |= stuck
		}
	}
	for i := range p.cursors {
		p.cursors[i].blocked &^= stuck
	}
}

// stuck marks, within one Step, a cursor that cannot advance.
const stuck = 1 << 7

// advance does some of the work that takes the frontier to the end of the next batch. It reports
// whether it got anywhere.
func (p *Pump) advance(c *cursor) bool {
	if c.opened {
		return p.issue(c)
	}
	w, index, lo, hi, ok := c.upcoming()
	if !ok {
		c.blocked = Order
		if c.ended() {
			c.blocked = None
		}
		return false
	}
	if c.admit-c.tail == uint64(len(c.ring)) {
		c.blocked = Arena
		return false
	}
	if c.pos-c.delivered >= p.reach(c) {
		c.blocked = None
		return false
	}
	if c.asOf != p.steps && c.scan == hi && p.room(c) {
		c.scan, c.price = lo, 0 // what was in staging then may be gone: only a fresh price counts
	}
	if !p.priced(c, w, lo, hi) {
		return true // out of budget; goes on next Step
	}
	if !p.room(c) {
		if c.price > p.plan.Staging && c.lease == c.admit {
			p.refuse(c, w, index)
		}
		c.blocked = Arena
		return false // the price stands: pricing anew at every event would cost more than it tells
	}
	if index == 0 && !w.LastOfJob {
		c.due = true
		p.needDue(c)
	}
	*c.at(c.admit) = batch{first: lo, count: int32(hi - lo), epoch: int32(w.Epoch),
		index: int32(w.Batch + index), runs: nobody, last: nobody, price: c.price, promised: c.price,
		ends: w.LastOfEpoch && index == len(w.Ends)-1}
	c.admit++
	c.used += c.price
	p.promised += c.price
	c.scan, c.price = hi, 0
	c.opened = true
	c.blocked = None
	return p.issue(c)
}

// reach is how far a frontier may run ahead of its consumer: half an epoch. What is kept costs no
// staging, so nothing else would stop it; but all that lies between is pinned, and a plan that
// must let go could not.
func (p *Pump) reach(c *cursor) int64 {
	return max(int64(len(p.recs))/2, 16*int64(c.batch))
}

// priced adds up what the next batch will take of staging, as far as the budget goes.
func (p *Pump) priced(c *cursor, w *window, lo, hi int64) bool {
	stop := min(hi, c.scan+int64(p.budget)+1)
	ids := w.IDs[c.scan-w.base : stop-w.base]
	if len(ids) > 0 {
		c.asOf = p.steps
	}
	for rest := ids; len(rest) > 0; {
		some := rest[:min(len(rest), MaxRun)]
		rest = rest[len(some):]
		p.touch(some)
		c.price += p.stagingCosts(p.toStage(some))
	}
	// Pricing touches what issuing will touch again from cache: count it as a quarter.
	p.budget -= len(ids) / 4
	c.scan = stop
	if stop < hi {
		p.budget = 0
	}
	return stop == hi
}

// toStage picks the samples of a run, or of less, that would have to be brought to staging. Whether
// one is there is as good as random: adding the answer up, instead of branching on it, spares the
// processor its wrong guesses.
func (p *Pump) toStage(ids []sample.ID) []sample.ID {
	n := 0
	for _, id := range ids {
		p.chosen[n] = id
		n += p.recs[id].missing()
	}
	if !p.plan.Rule.Fixed {
		return p.chosen[:n]
	}
	return slices.DeleteFunc(p.chosen[:n], p.plan.InSet)
}

// room reports whether the priced batch fits: each cursor may fill its own reserve; beyond it, it
// must leave the others' unused reserves alone. A batch larger than the reserve goes alone. A
// cursor that has nothing ahead of it, and holds one batch at most or keeps to its share, goes on
// even where others have taken all, before it came or under a larger plan: they may be waiting for
// it, as ranks do for each other, and let go of nothing until it moves. The memory is found, or the
// plan gives way.
func (p *Pump) room(c *cursor) bool {
	free := p.plan.Staging - p.staging - p.promised
	live, reserved := int64(1), int64(0)
	for i := range p.cursors {
		if d := &p.cursors[i]; d.live && d != c && !d.ended() {
			live++
			reserved += max(d.reserve-d.used, 0)
		}
	}
	if c.lease == c.admit && c.price <= p.plan.Staging &&
		(c.admit-c.tail <= 1 || live > 1 && c.used+c.price <= p.plan.Staging/live) {
		return true
	}
	if c.price > free {
		return false
	}
	return c.price == 0 || c.used == 0 || c.used+c.price <= c.reserve || c.price <= free-reserved
}

// refuse gives up on a batch that all of staging cannot hold, until a plan has more: the world
// makes one, or the consumer is told, and detaches.
func (p *Pump) refuse(c *cursor, w *window, index int) {
	if c.finished || c.refused {
		return
	}
	c.refused = true
	p.moves = append(p.moves, Move{Kind: Refuse, Cursor: c.index, Epoch: int32(w.Epoch),
		Batch: int32(w.Batch + index), Seq: c.admit, Bytes: c.price})
}

// issue cuts the open batch into runs and asks for what is missing. It reports progress.
func (p *Pump) issue(c *cursor) bool {
	b := c.at(c.admit - 1)
	end := b.first + int64(b.count)
	from := c.pos
	for c.pos < end && p.budget > 0 {
		if !p.issueRun(c, b, end) {
			break
		}
	}
	if c.pos == end {
		p.issuedAll(c, b)
	}
	return c.pos > from || !c.opened
}

// issuedAll closes the open batch: its fetches are charged by now.
func (p *Pump) issuedAll(c *cursor, b *batch) {
	b.issued = true
	c.opened = false
	p.promised -= b.promised
	b.promised = 0
}

// issueRun makes one run from the frontier on. It fails only where the first position must wait:
// for a run that can take no more heirs, for a pin, or for a handle.
func (p *Pump) issueRun(c *cursor, b *batch, end int64) bool {
	w := c.windowAt(c.pos)
	count := int(min(end-c.pos, MaxRun))
	ids := w.IDs[c.pos-w.base:][:count]
	handle, ok := p.newRun(c)
	if !ok {
		return false
	}
	r := &p.runs[handle]
	p.touch(ids)
	p.sources = p.sourcesOf(w)
	var bytes, cost int64
	n := 0
	for ; n < count; n++ {
		if n%touchAhead == 0 && !p.plan.Rule.Fixed {
			p.touchQueue(c, w, ids[n:min(n+touchAhead, count)])
		}
		id := ids[n]
		rec := &p.recs[id]
		if rec.bits&pinMask == pinMask {
			break
		}
		state := rec.bits & stateMask
		if state == absent {
			size := p.size(rec, id)
			if bytes+int64(size) > MaxRunBytes && bytes > 0 {
				break
			}
			bytes += int64(size)
			in := p.plan.Rule.Fixed && p.plan.InSet(id)
			p.fetchOne(r, rec, n, handle, size, in)
			if p.plan.Log > 0 {
				p.source(rec, id, n, size)
			}
			cost = p.settleIn(rec, size, in)
			spent := min(cost, b.promised)
			b.promised -= spent
			p.promised -= spent
		} else {
			if state == fetching && !p.inherit(handle, rec.handle()) {
				break
			}
			if p.found(rec); !rec.member() {
				cost = p.plan.Staged(p.size(rec, id))
			}
		}
		rec.bits += pinOne
		if !p.plan.Rule.Fixed {
			p.reference(rec, id, p.values[n%touchAhead], cost)
		}
		c.pos++
	}
	p.budget -= max(n, 1)
	if n == 0 {
		p.freeRun(handle)
		return false
	}
	r.count = int32(n)
	p.launch(b, r, handle)
	return true
}

// found counts a sample that need not be fetched.
func (p *Pump) found(rec *record) {
	if rec.member() {
		p.stats.Hits++
	} else {
		p.stats.Shared++
	}
}

// fetchOne marks an absent sample for fetching.
func (p *Pump) fetchOne(r *run, rec *record, i int, handle, size uint32, member bool) {
	r.fetch.Set(i)
	rec.fetchedBy(handle)
	p.stats.Misses++
	p.stats.FetchedBytes += int64(size)
	if member || !p.plan.Rule.Fixed {
		r.slots.Set(i)
	}
}

// settleIn charges a sample that is being fetched: to the tier if it is a member of the fixed set,
// otherwise to staging. It returns what staging was charged.
func (p *Pump) settleIn(rec *record, size uint32, member bool) int64 {
	if member {
		p.join(rec, p.plan.Slot(size))
		return 0
	}
	cost := p.plan.Staged(size)
	p.staging += cost
	return cost
}

func (p *Pump) join(rec *record, cost int64) {
	rec.bits |= memberBit
	p.kept += cost
	p.stats.Kept++
}

// foresee is what a sample is worth, once the frontier has passed it, to a rule that looks ahead:
// it is wanted next at that tick.
func (p *Pump) foresee(rec *record, id sample.ID, next policy.Tick) policy.Value {
	f := policy.Facts{ID: id, NextUse: next, LastUse: p.clock()}
	if p.plan.Rule.Counts {
		f.Ahead = rec.fewer()
	}
	return p.plan.Rule.Of(f)
}

// reference values a sample as the frontier passes it: a member anew, another one joins if the
// tier has room or holds something worth less. Where the rule looks ahead, foreseen is its value.
// cost is what it takes of staging.
func (p *Pump) reference(rec *record, id sample.ID, foreseen policy.Value, cost int64) {
	v := foreseen
	if !p.plan.Rule.Ahead {
		rec.setUses(rec.more())
		v = p.plan.Rule.Of(policy.Facts{ID: id, NextUse: policy.Never, LastUse: p.clock(),
			Past: rec.uses()})
	} else if p.plan.Rule.Counts {
		rec.setUses(rec.fewer())
	}
	if rec.member() {
		p.queue.remove(id)
		p.queue.insert(id, v)
		return
	}
	if p.plan.Log > 0 && !p.plan.LogAll && p.plan.InLog(id) {
		return // kept once: ram is for what the log has no room for
	}
	if p.makeRoom(v, cost) {
		p.staging -= cost
		p.join(rec, cost)
		p.queue.insert(id, v)
	}
}

// makeRoom evicts what is worth less than v until cost fits, and does no harm: nothing worth as
// much or more is ever evicted.
func (p *Pump) makeRoom(v policy.Value, cost int64) bool {
	if cost > p.plan.Keep {
		return false
	}
	v = p.queue.round(v)
	for p.kept+cost > p.plan.Keep {
		id, w, ok := p.queue.least(p.clock())
		if !ok || !w.Less(v) || !p.mayLeave(id, cost) {
			return false
		}
		p.queue.take(id)
		p.evict(id)
	}
	return true
}

// mayLeave reports whether staging could take a member over, since one that is pinned stays in
// memory until its last release. Whoever joins in its place leaves staging, where it takes cost.
func (p *Pump) mayLeave(id sample.ID, cost int64) bool {
	rec := &p.recs[id]
	return !rec.pinned() ||
		p.staging+p.promised-cost+p.plan.Staged(p.size(rec, id)) <= p.plan.Staging
}

// inherit makes the run wait for the fetch of another one that brings a sample both want.
func (p *Pump) inherit(heir, from uint32) bool {
	o := &p.runs[from]
	if heir == from || !o.asked {
		return true
	}
	for _, h := range o.heirs[:o.nheirs] {
		if h == heir {
			return true
		}
	}
	if int(o.nheirs) == len(o.heirs) {
		return false
	}
	o.heirs[o.nheirs] = heir
	o.nheirs++
	p.runs[heir].waits++
	return true
}

// launch links a new run into its batch and asks for its fetch.
func (p *Pump) launch(b *batch, r *run, handle uint32) {
	if b.last == nobody {
		b.runs = handle
	} else {
		p.runs[b.last].next = handle
	}
	b.last = handle
	if !r.fetch.Empty() {
		r.waits++
		r.asked, r.origin = true, p.ssd != r.fetch
		p.moves = append(p.moves, Move{Kind: Fetch, Cursor: r.cursor, Epoch: b.epoch,
			Run: p.name(handle), Mask: r.fetch, Slots: r.slots, Ssd: p.ssd, Log: p.log})
	}
	if r.waits == 0 {
		r.ready = true
		return
	}
	b.pending++
}

func (p *Pump) name(handle uint32) Run {
	r := &p.runs[handle]
	return Run{Cursor: r.cursor, Handle: handle, First: r.first, Count: r.count}
}

// newRun takes a handle for a run at the cursor's frontier.
func (p *Pump) newRun(c *cursor) (uint32, bool) {
	var h uint32
	if n := len(p.idle); n > 0 {
		h = p.idle[n-1]
		p.idle = p.idle[:n-1]
	} else {
		if len(p.runs) == maxRuns {
			return 0, false
		}
		p.runs = append(p.runs, run{})
		h = uint32(len(p.runs) - 1)
	}
	p.runs[h] = run{cursor: c.index, first: c.pos, seq: c.admit - 1, next: nobody, live: true}
	return h, true
}

func (p *Pump) freeRun(handle uint32) {
	p.runs[handle].live = false
	p.idle = append(p.idle, handle)
}
