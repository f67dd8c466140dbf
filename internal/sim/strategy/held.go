package strategy

import (
	"math"
	"math/bits"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// held says which nodes have a sample, and in which tier: a bit for each node in a word for each
// tier. A sample's words lie side by side, so that looking all of them up costs one miss.
type held struct {
	tiers  int
	stride int // of words: a sample's tiers, and where fetches are joined one word more
	words  []uint64
	sum    uint64 // of words that were touched: nobody wants it, but it must be computed
}

// The bits above the nodes', in the word of a sample's first tier.
const (
	homed  = 1 << (63 - iota) // it has a home: asking core/plan for every sample costs a miss
	twice                     // it has a second one
	lost                      // a node that failed had it, and nobody keeps it since
	others = homed | twice | lost
)

// newHeld has no samples yet. With joining it also knows to which homes each is on its way.
func newHeld(samples, tiers int, joining bool) *held {
	stride := tiers
	if joining {
		stride++
	}
	return &held{tiers: tiers, stride: stride, words: make([]uint64, samples*stride)}
}

func (h *held) of(id sample.ID) []uint64 { return h.words[int(id)*h.stride:][:h.tiers] }

// coming is the homes that the sample is on its way to from the origin, a bit for each node.
func (h *held) coming(id sample.ID) *uint64 { return &h.words[int(id)*h.stride+h.tiers] }

// touched is how many samples touch brings near at a time.
const touched = 64

// touch brings what is known of samples near, all together: looked up one by one, in a table that
// no cache holds, each would be waited for.
func (h *held) touch(ids []sample.ID) {
	if h.tiers == 0 {
		return
	}
	for _, id := range ids {
		h.sum += h.words[int(id)*h.stride]
	}
}

// put gives a node the sample. It is on its way there no longer.
func (h *held) put(node, tier int, id sample.ID) {
	h.of(id)[tier] |= 1 << node
	if h.stride > h.tiers {
		*h.coming(id) &^= 1 << node
	}
}

// nodes are those that have the sample, in any tier.
func (h *held) nodes(id sample.ID) (all uint64) {
	for _, word := range h.of(id) {
		all |= word
	}
	return all &^ others
}

// choose takes the fastest source that has the sample, if it is not slower than the origin.
func (l *loop) choose(node int, id sample.ID) (option, bool) {
	if !l.placed {
		return option{}, false
	}
	words := l.has.of(id)
	for _, o := range l.options {
		word := words[o.tier] &^ others
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

// fillTier adds a flow of a tier's fillers.
func (l *loop) fillTier(node, tier int, list []sample.ID) {
	l.add(node, float64(l.fillers(tier)))
	l.fills = append(l.fills, fill{tier: tier, list: list})
}

// refill begins the next sample of fillers that do nothing.
func (l *loop) refill(f int) {
	w, fill := &l.flows[f], &l.fills[f]
	if l.homes != nil {
		for fill.at < len(fill.list) && l.cared(w.node, fill.list[fill.at]) {
			fill.at++
		}
	}
	if fill.at == len(fill.list) || !l.idle(f) || l.dead&(1<<w.node) != 0 {
		return
	}
	w.id, w.after = fill.list[fill.at], storing
	w.size, w.begun = l.sizes[w.id], l.now
	if l.homes != nil {
		*l.has.coming(w.id) |= 1 << w.node
	}
	l.fetch(f)
}

// cared says that a filler need not bring a sample: its home has it or is about to. A node that is
// apart looks after itself.
func (l *loop) cared(node int, id sample.ID) bool {
	all := l.has.nodes(id) | *l.has.coming(id)
	if l.apart {
		all &= 1 << node
	}
	return all != 0
}

// home is where a sample belongs that a node reads.
func (l *loop) home(node int, id sample.ID) (home, tier int, ok bool) {
	words := l.has.of(id)
	if len(words) == 0 || words[0]&homed == 0 {
		return 0, -1, false
	}
	home, t, _ := l.homes.Of(id)
	if l.apart {
		home = node
	}
	return home, l.tierOf(t), l.dead&(1<<home) == 0
}

// filled ends a filler's sample.
func (l *loop) filled(f int) {
	w, fill := &l.flows[f], &l.fills[f]
	if l.dead&(1<<w.node) == 0 {
		l.has.put(w.node, fill.tier, w.id)
	}
	fill.at++
	l.refill(f)
}

// keep leaves a sample that a thread has read in its home. What an asker reads has gone through the
// home, whoever asked.
func (l *loop) keep(w *flow) {
	if l.homes == nil {
		if w.place == Origin && l.dead&(1<<w.node) == 0 && l.has.of(w.id)[0]&lost == 0 {
			l.has.put(w.node, l.ram(), w.id)
		}
		return
	}
	home, tier, ok := l.home(w.node, w.id)
	if !ok {
		return
	}
	if w.place == Origin {
		l.has.put(home, tier, w.id)
	}
	if l.has.of(w.id)[0]&twice != 0 {
		if node, _ := l.homes.Second(w.id); node == w.node &&
			l.dead&(1<<node) == 0 {
			l.has.put(node, l.ram(), w.id)
		}
	}
}

// join asks a sample's home that does not have it yet. If it is on its way, the thread waits for
// that; if not, the thread reads the origin through the home, and others may wait for it.
func (l *loop) join(f int) bool {
	w := &l.flows[f]
	home, tier, ok := l.home(w.node, w.id)
	if !ok {
		return false
	}
	w.sent = home != w.node
	if way := l.has.coming(w.id); *way&(1<<home) == 0 {
		*way |= 1 << home
		return false
	}
	w.place = l.places[tier]
	if w.sent {
		w.place = Peer
	}
	for g := range l.flows {
		if o := &l.flows[g]; g != f && o.id == w.id && l.volumes[g] != never &&
			(!l.apart || o.node == w.node) {
			// Just after it: what has arrived is counted before anyone is given it.
			l.volumes[f] = math.Nextafter(l.volumes[g], never)
			w.joined, w.after = true, ready
			return true
		}
	}
	l.work(f, l.passes(w)) // it has arrived and is only being stored
	return true
}

// passes is the seconds that a thread needs at least for its sample, wherever the sample comes
// from: to decode it, and where its home is another node, to get it over the link from there.
func (l *loop) passes(w *flow) float64 {
	seconds := float64(w.size) * l.store
	if w.sent {
		seconds = max(seconds, float64(w.size)/l.Peers)
	}
	return seconds
}

// ram is the tier that is ram; −1: there is none.
func (s *setting) ram() int { return s.find(Ram) }

func (s *setting) tierOf(t plan.Tier) int {
	if t == plan.Ram {
		return s.find(Ram)
	}
	return s.find(Ssd)
}

func (s *setting) find(p Place) int {
	for tier, place := range s.places {
		if place == p {
			return tier
		}
	}
	return -1
}

// holder is the first node that has the sample, in any tier; −1: none.
func (h *held) holder(id sample.ID) int {
	all := h.nodes(id)
	if all == 0 {
		return -1
	}
	return bits.TrailingZeros64(all)
}
