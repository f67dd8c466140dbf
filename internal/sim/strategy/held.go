package strategy

import "belady/internal/core/sample"

// held says which nodes have a sample, and in which tier: a bit for each node in a word for each
// tier. A sample's words lie side by side, so that looking all of them up costs one miss.
type held struct {
	tiers int
	words []uint64
}

func newHeld(samples, tiers int) *held {
	return &held{tiers, make([]uint64, samples*tiers)}
}

func (h *held) word(id sample.ID, tier int) *uint64 { return &h.words[int(id)*h.tiers+tier] }

func (h *held) put(node, tier int, id sample.ID) { *h.word(id, tier) |= 1 << node }

// choose takes the fastest source that has the sample, if one is faster than the origin.
func (l *loop) choose(node int, id sample.ID) (option, bool) {
	if !l.placed {
		return option{}, false
	}
	for _, o := range l.options {
		word := *l.has.word(id, o.tier)
		if o.own {
			word &= 1 << node
		}
		if word != 0 {
			return o, o.rate >= l.floor
		}
	}
	return option{}, false
}

// fill is what a tier's fillers bring from the origin, in this order.
type fill struct {
	tier int
	list []sample.ID
	at   int
}

// refill begins the next sample of a filler that does nothing.
func (l *loop) refill(f int) {
	fill := &l.fills[f]
	if fill.at == len(fill.list) || !l.idle(f) {
		return
	}
	w := &l.flows[f]
	w.id, w.after = fill.list[fill.at], storing
	w.size, w.begun = l.job.Sizes[w.id], l.now
	l.fetch(f)
}

// filled ends a filler's sample.
func (l *loop) filled(f int) {
	w, fill := &l.flows[f], &l.fills[f]
	l.has.put(w.node, fill.tier, w.id)
	l.result.Filled += int64(w.size)
	fill.at++
	l.refill(f)
}
