package pump

import (
	"math/bits"

	"belady/internal/core/sample"
)

// The log keeps what the plan's InLog says and never evicts; so all the pump knows of it is one bit
// a sample. A bit that is wrong costs a fall back: for what the log turns out not to have the world
// reads the origin, and what it turns out to have is not written twice.

// sources is where the samples of the run being issued come from, and where they go besides.
type sources struct {
	ssd   Mask // read from the log
	log   Mask // appended to it
	carry bool // what is read from it is appended too, for the next epoch
}

// sourcesOf begins a run of that window.
func (p *Pump) sourcesOf(w *window) sources {
	if !p.plan.Carry || w.LastOfJob {
		return sources{}
	}
	for i := range p.cursors {
		if c := &p.cursors[i]; c.live && !c.follows {
			return sources{}
		}
	}
	return sources{carry: true}
}

// source says where an absent sample is fetched from. One that the log lacks and is to have, it has
// from now on, since the fetch will see to it.
func (p *Pump) source(rec *record, id sample.ID, i int, size uint32) {
	logged := rec.logged()
	if logged {
		p.ssd.Set(i)
		p.stats.SsdHits++
		p.stats.SsdBytes += int64(size)
		p.stats.Misses--
		p.stats.FetchedBytes -= int64(size)
	}
	if logged && p.carry || !logged && p.plan.InLog(id) {
		rec.bits |= loggedBit
		p.log.Set(i)
		p.stats.Logged++
		p.stats.LoggedBytes += int64(size)
	}
}

// unlog takes back that the log has samples which a run fetched.
func (p *Pump) unlog(r *run, lost *Mask) {
	for i, id := range p.IDs(r.cursor, r.first, r.count) {
		if rec := &p.recs[id]; lost.Has(i) && r.fetch.Has(i) && rec.logged() {
			rec.bits &^= loggedBit
			p.stats.Unlogged++
		}
	}
}

// change is samples that the log has found or lost, as far as their records have not been told.
type change struct {
	set  []uint64
	at   int // next word to look at
	lost bool
}

// change takes what the log has found or lost. Before the first cursor, which must not fetch from
// the origin what the log has, that is done at once; later by and by.
func (p *Pump) change(e *Event) {
	if p.plan.Log == 0 {
		return
	}
	c := change{set: e.Set, lost: e.Kind == Unlogged}
	later := len(p.changes) > 0
	for i := range p.cursors {
		later = later || p.cursors[i].live
	}
	if later {
		p.changes = append(p.changes, c)
		return
	}
	for work := 1; work > 0; {
		work = p.changeWord(&c)
	}
}

// changeSome tells records what the log has found or lost.
func (p *Pump) changeSome() {
	done := 0
	for done < len(p.changes) && p.budget > 0 {
		n := p.changeWord(&p.changes[done])
		p.budget -= n
		if n == 0 {
			done++
		}
	}
	p.changes = append(p.changes[:0], p.changes[done:]...)
}

// changeWord does the next word of a change. It returns how much work that was: none at the end.
func (p *Pump) changeWord(c *change) int {
	if c.at >= len(c.set) || c.at*64 >= len(p.recs) {
		return 0
	}
	word, first := c.set[c.at], c.at*64
	if left := len(p.recs) - first; left < 64 {
		word &= 1<<left - 1
	}
	c.at++
	work := 1 + bits.OnesCount64(word)
	for ; word != 0; word &= word - 1 {
		rec := &p.recs[first+bits.TrailingZeros64(word)]
		switch {
		case !c.lost:
			rec.bits |= loggedBit
		case rec.logged():
			rec.bits &^= loggedBit
			p.stats.Unlogged++
		}
	}
	return work
}

// awaited is what a batch that is not ready waits for: its first run that is not ready says.
func (p *Pump) awaited(b *batch) Cause {
	for h := b.runs; h != nobody && p.plan.Log > 0; h = p.runs[h].next {
		if r := &p.runs[h]; !r.ready {
			if r.asked && !r.origin {
				return Ssd
			}
			break
		}
	}
	return Origin
}
