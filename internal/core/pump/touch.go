package pump

import (
	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// Nothing in this file decides. At 14 M samples every record is a line of memory that is not in
// cache, and a loop that decides waits for each in turn: 100 ns and more. So lines are loaded
// before they are needed, in loops so small that a dozen loads are under way at once: 10 ns each.

// touch loads the records of ids, so that what follows finds them in cache. Nothing in the loop
// depends on what it loads: the loads overlap, where a loop that decides waits for each in turn.
func (p *Pump) touch(ids []sample.ID) {
	recs, all := p.recs, uint64(0)
	for _, id := range ids {
		all |= recs[id].bits
	}
	p.touched = all
}

// touchAhead is how many samples at the frontier touchQueue looks at: what it loads for them is to
// stay in the nearest cache.
const touchAhead = 64

// touchQueue loads what valuing the samples at the frontier will need: the neighbours of members
// that leave their buckets, the first of the buckets they go to, and who may be evicted for them.
// Where the rule looks ahead, the values it needs for that are the values that count: samples are
// valued as of the frontier of their block, since doing it again for each costs more than it tells.
func (p *Pump) touchQueue(c *cursor, w *window, ids []sample.ID) {
	joining := 0
	for _, id := range ids {
		if !p.recs[id].member() {
			joining++
		}
	}
	if p.plan.Rule.Ahead {
		// The old neighbours are wanted soon too, so they are at hand; the new ones are strewn.
		for i, id := range ids {
			v := p.foresee(&p.recs[id], id, p.nextUse(c, w, c.pos+int64(i)))
			p.values[i] = v
			p.chosen[i] = sample.ID(p.queue.bucket(v))
		}
		p.touchFirsts(p.chosen[:len(ids)])
	} else {
		// Where time runs backwards it is the other way round.
		p.touchNeighbours(ids)
	}
	if joining > 0 && p.kept+int64(joining)*p.plan.TotalCost/int64(len(p.recs)) > p.plan.Keep {
		p.queue.touchLeast(p.clock(), joining)
	}
}

// touchFirsts loads the first members of buckets. Each loop is small, so that many of its loads are
// under way at once.
func (p *Pump) touchFirsts(buckets []sample.ID) {
	recs, heads, all := p.recs, p.queue.heads, uint64(0)
	for i, b := range buckets {
		buckets[i] = sample.ID(heads[b])
	}
	for _, id := range buckets {
		if int(id) < len(recs) {
			all |= recs[id].bits
		}
	}
	p.touched |= all
}

// touchNeighbours loads the members beside those of ids that are members.
func (p *Pump) touchNeighbours(ids []sample.ID) {
	recs, all := p.recs, uint64(0)
	for _, id := range ids {
		if r := &recs[id]; r.member() {
			if int(r.next) < len(recs) {
				all |= recs[r.next].bits
			}
			if int(r.prev) < len(recs) {
				all |= recs[r.prev].bits
			}
		}
	}
	p.touched |= all
}

// chains is how many buckets lineUp walks at once: as many as loads in flight. depth is how far it
// walks each.
const (
	chains = 16
	depth  = 256
)

// line is who will be evicted next, as far as was looked ahead: a hint that may be out of date.
type line struct {
	ids     [chains * depth]sample.ID
	count   int
	taken   int
	touched uint64 // gives the loads of touchLeast a purpose
	cut     bool   // a bucket was longer than depth: what follows is not known
}

// touchLeast loads the n members lowest in line.
func (q *queue) touchLeast(now policy.Tick, n int) {
	if left := q.line.count - q.taken; left <= 0 || left < n && !q.cut {
		q.lineUp(now)
	}
	next := q.ids[min(q.taken, q.line.count):q.line.count]
	recs, all := q.recs, uint64(0)
	for _, id := range next[:min(n, len(next))] {
		all |= recs[id].bits
	}
	q.touched = all
}

// lineUp looks who is lowest. A bucket is a list, whose members come one after the other; several
// lists overlap.
func (q *queue) lineUp(now policy.Tick) {
	q.line.count, q.taken, q.cut = 0, 0, false
	b := q.lowest(now)
	if b == nobody {
		return
	}
	start := b - b%(q.ticks+64)
	var at, length [chains]uint32
	for i := range at {
		at[i] = q.heads[b]
		if b = q.after(b + 1); b >= start+q.ticks {
			b = q.after(start)
		}
	}
	for k, more := uint32(0), true; more && k < depth; k++ {
		more = false
		for i, id := range at {
			if id != nobody {
				q.ids[i*depth+int(k)] = sample.ID(id)
				length[i], at[i] = k+1, q.recs[id].next
				more = true
			}
		}
	}
	for i := 0; i < chains && !q.cut; i++ {
		q.line.count += copy(q.ids[q.line.count:], q.ids[i*depth:][:length[i]])
		q.cut = at[i] != nobody
	}
}
