package pump

// stagedRun takes the end of a fetch.
func (p *Pump) stagedRun(e *Event) {
	h := e.Run.Handle
	if int(h) >= len(p.runs) {
		return
	}
	r := &p.runs[h]
	if !r.live || !r.asked || p.name(h) != e.Run {
		return
	}
	r.asked = false
	if !e.Unlogged.Empty() {
		p.unlog(r, &e.Unlogged)
	}
	failed := e.Failed
	for i := range failed {
		failed[i] &= r.fetch[i]
	}
	if !failed.Empty() {
		p.fail(r, &failed)
	}
	// Heirs wait for the fetch, not for all that its own run waits for: so no two runs can wait
	// for each other.
	heirs, n := r.heirs, r.nheirs
	r.nheirs = 0
	p.settle(h)
	for _, heir := range heirs[:n] {
		p.settle(heir)
	}
}

// fail takes back what a run could not fetch.
func (p *Pump) fail(r *run, failed *Mask) {
	p.cursors[r.cursor].at(r.seq).failed = true
	for i, id := range p.IDs(r.cursor, r.first, r.count) {
		if !failed.Has(i) {
			continue
		}
		p.stats.Failed++
		rec := &p.recs[id]
		size := p.size(rec, id)
		if rec.member() {
			if !p.plan.Rule.Fixed {
				p.queue.remove(id)
			}
			rec.bits &^= memberBit
			p.kept -= p.plan.Slot(size)
		} else {
			p.staging -= p.plan.Staged(size)
		}
		rec.setState(absent)
	}
	for i := range failed {
		r.fetch[i] &^= failed[i]
	}
	for _, h := range r.heirs[:r.nheirs] {
		p.runs[h].recheck = true
	}
}

// settle takes one thing a run waited for off its list; with the last it is ready.
func (p *Pump) settle(h uint32) {
	r := &p.runs[h]
	if r.waits--; r.waits > 0 {
		return
	}
	if r.recheck && p.retry(r, h) {
		return
	}
	r.ready = true
	c := &p.cursors[r.cursor]
	b := c.at(r.seq)
	b.pending--
	if c.closing && b.pending == 0 && !b.released {
		b.released = true
		p.reclaims = append(p.reclaims, reclaim{r.cursor, r.seq})
	}
}

// retry fetches what a run had counted on another run for, and that one failed. Here the samples
// are staged without joining the tier: their next reference will see to that.
func (p *Pump) retry(r *run, h uint32) bool {
	r.recheck = false
	b := p.cursors[r.cursor].at(r.seq)
	before := r.fetch
	p.sources = p.sourcesOf(p.cursors[r.cursor].windowAt(r.first))
	for i, id := range p.IDs(r.cursor, r.first, r.count) {
		rec := &p.recs[id]
		if b.failed {
			break
		}
		if rec.state() == absent {
			size, in := p.size(rec, id), p.plan.Rule.Fixed && p.plan.InSet(id)
			p.fetchOne(r, rec, i, h, size, in)
			if p.plan.Log > 0 {
				p.source(rec, id, i, size)
			}
			p.settleIn(rec, size, in)
		} else if from := rec.handle(); rec.state() == fetching && from != h {
			// Somebody else fetches it again by now, and may have as many heirs as it can take.
			r.recheck = !p.inherit(h, from) || r.recheck
		}
	}
	if r.recheck {
		r.waits++
		p.later = append(p.later, h)
	}
	again := r.fetch
	for i := range again {
		again[i] &^= before[i]
	}
	if again.Empty() {
		return r.waits > 0
	}
	r.waits++
	r.asked, r.origin = true, p.ssd != again
	slots := r.slots
	for i := range slots {
		slots[i] &= again[i]
	}
	p.moves = append(p.moves, Move{Kind: Fetch, Cursor: r.cursor, Epoch: b.epoch, Run: p.name(h),
		Mask: again, Slots: slots, Ssd: p.ssd, Log: p.log})
	return true
}

// lookAgain retries runs that were turned away by one with too many heirs: its fetch may be over.
func (p *Pump) lookAgain() {
	n := len(p.later)
	for _, h := range p.later[:n] {
		p.settle(h)
	}
	p.later = append(p.later[:0], p.later[n:]...)
}

// wait notes that the consumer waits, from now on, for cause.
func (c *cursor) wait(now Instant, cause Cause) {
	if c.waiting != None {
		c.waited[c.waiting] += now - c.since
	}
	c.waiting, c.since = cause, now
}

// waitedFor ends a wait, and says what most of it was for.
func (c *cursor) waitedFor(now Instant) Cause {
	c.wait(now, None)
	longest := None
	for cause := range Causes {
		if c.waited[cause] > c.waited[longest] {
			longest = cause
		}
	}
	clear(c.waited[:])
	return longest
}

// deliver hands out the batches that are ready and wanted, in order.
func (p *Pump) deliver(now Instant, c *cursor) {
	for c.credits > 0 && c.lease < c.admit && !c.closing {
		b := c.at(c.lease)
		if !b.issued || b.pending > 0 {
			c.wait(now, p.awaited(b))
			return
		}
		p.moves = append(p.moves, Move{Kind: Lease, Cause: c.waitedFor(now), Last: b.ends,
			Failed: b.failed, Cursor: c.index, Epoch: b.epoch, Batch: b.index, Seq: c.lease,
			Run: Run{Cursor: c.index, First: b.first, Count: b.count}})
		c.credits--
		c.lease++
		c.delivered += int64(b.count)
		if c.leasedAt > 0 && b.count > 0 {
			took := (now - c.leasedAt) / Instant(b.count)
			c.period += (took - c.period) / 8
		}
		c.leasedAt = now
	}
	if c.credits > 0 && c.lease == c.admit && !c.closing {
		c.wait(now, c.blocked) // nothing is on the way: what keeps the frontier keeps the consumer
	}
	if c.ended() && c.lease == c.admit && !c.finished && !c.closing {
		c.finished = true
		p.moves = append(p.moves, Move{Kind: Finish, Cursor: c.index})
	}
}

// release takes a batch back from its consumer.
func (p *Pump) release(c *cursor, seq uint64) {
	if seq < c.tail || seq >= c.lease || c.at(seq).released {
		return
	}
	c.at(seq).released = true
	p.reclaims = append(p.reclaims, reclaim{c.index, seq})
}

// reclaimSome lets go of released batches, a run at a time.
func (p *Pump) reclaimSome() {
	done := 0
	for done < len(p.reclaims) && p.budget > 0 {
		if p.reclaimBatch(p.reclaims[done]) {
			done++
		}
	}
	p.reclaims = append(p.reclaims[:0], p.reclaims[done:]...)
}

// reclaimBatch reports whether the batch is wholly reclaimed.
func (p *Pump) reclaimBatch(rc reclaim) bool {
	c := &p.cursors[rc.cursor]
	b := c.at(rc.seq)
	for b.runs != nobody {
		if p.budget <= 0 {
			return false
		}
		h := b.runs
		b.runs = p.runs[h].next
		p.reclaimRun(c, h)
		p.freeRun(h)
	}
	c.used -= b.price
	b.reclaimed = true
	for c.tail < c.admit && c.at(c.tail).reclaimed {
		c.tail++
	}
	return true
}

// reclaimRun unpins a run's samples and drops those that nobody wants and the tier does not keep.
func (p *Pump) reclaimRun(c *cursor, h uint32) {
	r := &p.runs[h]
	w := c.windowAt(r.first)
	ids := w.IDs[r.first-w.base:][:r.count]
	p.touch(ids)
	var drop Mask
	dropped := 0
	for i, id := range ids {
		rec := &p.recs[id]
		rec.bits -= pinOne
		if rec.bits&stateMask == fetching && rec.handle() == h {
			rec.setState(present)
		}
		if p.late && !rec.pinned() && rec.member() && int(id) < p.sweep && !p.plan.InSet(id) {
			p.evict(id)
			continue
		}
		if rec.bits&(memberBit|stateMask|pinMask) == present {
			rec.setState(absent)
			drop.Set(i)
			p.chosen[dropped] = id
			dropped++
		}
	}
	p.staging -= p.stagingCosts(p.chosen[:dropped])
	p.stats.Dropped += int64(dropped)
	p.budget -= len(ids)
	if dropped > 0 {
		p.moves = append(p.moves, Move{Kind: Drop, Cursor: c.index, Run: p.name(h), Mask: drop})
	}
}

// preview is a window whose uses are being counted.
type preview struct {
	cursor  int32
	at, end int64
}

// previewSome counts the uses that new windows bring.
func (p *Pump) previewSome() {
	done := 0
	for ; done < len(p.previews) && p.budget > 0; done++ {
		v := &p.previews[done]
		for v.at < v.end && p.budget > 0 {
			n := min(v.end-v.at, int64(p.budget), MaxRun)
			ids := p.IDs(v.cursor, v.at, int32(n))
			p.touch(ids)
			for _, id := range ids {
				rec := &p.recs[id]
				rec.setUses(rec.more())
			}
			v.at += n
			p.budget -= int(n)
		}
		if v.at < v.end {
			break
		}
	}
	p.previews = append(p.previews[:0], p.previews[done:]...)
}
