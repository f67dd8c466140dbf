package plan

import (
	"cmp"
	"slices"

	"belady/internal/core/sample"
)

// dealer gives the members of one set to nodes.
type dealer struct {
	HomesInput
	*filler
	room []int64 // of each node, what is left
	placement
	missed []sample.ID // members that no node had room for
}

// rounds of a deal: each takes the samples of one remainder of the hash, so that nodes fill up
// evenly along any order, and memory is still walked in sequence.
const rounds = 8

func (d *dealer) newPlacement() placement {
	p := placement{node: make([]uint16, d.Sizes.Len()), count: make([]int, len(d.Nodes)),
		bytes: make([]int64, len(d.Nodes))}
	for id := range p.node {
		p.node[id] = nowhere
	}
	return p
}

// deal gives each member to the node with most uses among those with room.
func (d *dealer) deal() {
	d.placement = d.newPlacement()
	for id := range d.members() {
		one := d.one(id)
		if node := d.best(id, d.room, one.cost, -1); node >= 0 {
			d.put(id, node, one)
			d.room[node] -= one.cost
		} else {
			d.missed = append(d.missed, id)
		}
	}
}

// again gives members that live somewhere to another node, too, which reads them.
func (d *dealer) again() placement {
	p := d.newPlacement()
	for id := range d.members() {
		home, ok := d.of(id)
		if !ok {
			continue
		}
		one := d.one(id)
		if node := d.best(id, d.room, one.cost, home); node >= 0 {
			p.put(id, node, one)
			d.room[node] -= one.cost
		}
	}
	return p
}

// members are the samples of the filler's set, in the order in which they are dealt.
func (d *dealer) members() func(yield func(sample.ID) bool) {
	return func(yield func(sample.ID) bool) {
		for round := range uint64(rounds) {
			for i := range d.Sizes.Len() {
				id := sample.ID(i)
				if d.hash(id)%rounds == round && d.member(id) && !yield(id) {
					return
				}
			}
		}
	}
}

// member reports whether the filler's set has the sample.
func (d *dealer) member(id sample.ID) bool {
	return d.all || d.key(id) < d.cutoff &&
		(d.outsize == 0 || d.filler.cost(d.Sizes.Size(id)) <= d.outsize)
}

// best is the node for a sample; -1: none has room. Equal ones are told apart by a hash. A node
// that has it already is out of the question, and so are then those that never read it.
func (d *dealer) best(id sample.ID, rooms []int64, cost int64, has int) int {
	found, most, rank := -1, -1, uint64(0)
	for node, room := range rooms {
		if room < cost || node == has {
			continue
		}
		uses := 0
		if d.Uses != nil {
			uses = int(d.Uses[node][id])
		}
		if has >= 0 && d.Uses != nil && uses == 0 || uses < most {
			continue
		}
		if mine := mix(d.hash(id) + uint64(node)); uses > most || mine < rank {
			found, most, rank = node, uses, mine
		}
	}
	return found
}

func (p *placement) put(id sample.ID, node int, one bin) {
	p.node[id] = uint16(node)
	p.count[node]++
	p.bytes[node] += one.bytes
}

func (p *placement) remove(id sample.ID, one bin) {
	node := p.node[id]
	p.node[id] = nowhere
	p.count[node]--
	p.bytes[node] -= one.bytes
}

// dealing is the dealers of all tiers that there are.
type dealing []*dealer

// settle finds homes for members that were missed: a pool has room for all its members, but in
// pieces. They go wherever there is room, in either tier, or else take the place of samples that
// both tiers have. It reports whether all members have homes now.
func (d dealing) settle() bool {
	var missed []sample.ID
	for _, dealer := range d {
		missed = append(missed, dealer.missed...)
	}
	if len(missed) == 0 {
		return true
	}
	c, settled := d.copies(), true
	for _, id := range missed {
		settled = (d.lives(id) || c.give(id, false) || c.give(id, true)) && settled
	}
	return settled
}

func (d dealing) lives(id sample.ID) bool {
	for _, dealer := range d {
		if _, ok := dealer.of(id); ok {
			return true
		}
	}
	return false
}

// copies are what both tiers have: either may go for a sample that has no home.
type copies struct {
	dealing
	room [tiers][]int64 // by node: what is free, or held by a copy
	next [tiers][]int   // by node: where to look for the next copy
}

func (d dealing) copies() *copies {
	c := &copies{dealing: d}
	for tier, dealer := range d {
		c.room[tier] = slices.Clone(dealer.room)
		c.next[tier] = make([]int, len(dealer.room))
	}
	for i := range d[Ram].Sizes.Len() {
		if id := sample.ID(i); c.twice(id) {
			for tier, dealer := range d {
				c.room[tier][dealer.node[id]] += dealer.one(id).cost
			}
		}
	}
	return c
}

func (d dealing) twice(id sample.ID) bool {
	return len(d) == int(tiers) && d[Ram].node[id] != nowhere && d[Ssd].node[id] != nowhere
}

// give gives a sample to a node with room, or to one that has it once copies are gone.
func (c *copies) give(id sample.ID, instead bool) bool {
	for tier, dealer := range c.dealing {
		one, rooms := dealer.one(id), dealer.room
		if dealer.most > 0 && one.cost > dealer.most {
			continue
		}
		if instead {
			rooms = c.room[tier]
		}
		if node := dealer.best(id, rooms, one.cost, -1); node >= 0 {
			c.free(Tier(tier), node, one.cost)
			dealer.put(id, node, one)
			dealer.room[node] -= one.cost
			c.room[tier][node] -= one.cost
			return true
		}
	}
	return false
}

// free drops copies of a node until there is that much room. What it drops has one home from then
// on, which cannot go.
func (c *copies) free(tier Tier, node int, cost int64) {
	d := c.dealing[tier]
	for next := &c.next[tier][node]; d.room[node] < cost; *next++ {
		id := sample.ID(*next)
		if int(d.node[id]) != node || !c.twice(id) {
			continue
		}
		one, other := d.one(id), c.dealing[1-tier]
		d.remove(id, one)
		d.room[node] += one.cost
		c.room[1-tier][other.node[id]] -= other.one(id).cost
	}
}

// exchange has each node keep in ram what it reads most (NoPFS): of samples that take the same of
// its ram, and the same of its log, those in ram are read no less than those in the log. So all
// that the pool holds stays at its node, and equal uses leave it in its tier.
func (d dealing) exchange() {
	if len(d) < int(tiers) || d[Ram].Uses == nil {
		return
	}
	type entry struct {
		cost, record int64
		id           sample.ID
		uses         uint8
		tier         Tier
	}
	var all []entry
	for node := range d[Ram].Nodes {
		all = all[:0]
		for i, uses := range d[Ram].Uses[node] {
			id := sample.ID(i)
			for tier, dealer := range d {
				if int(dealer.node[id]) == node && !d.twice(id) {
					all = append(all, entry{d[Ram].one(id).cost, d[Ssd].one(id).cost, id, uses, Tier(tier)})
				}
			}
		}
		slices.SortFunc(all, func(a, b entry) int {
			return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.record, b.record),
				cmp.Compare(b.uses, a.uses), cmp.Compare(a.tier, b.tier), cmp.Compare(a.id, b.id))
		})
		for begin, end := 0, 0; begin < len(all); begin = end {
			inRam := 0
			for ; end < len(all) && all[end].cost == all[begin].cost &&
				all[end].record == all[begin].record; end++ {
				if all[end].tier == Ram {
					inRam++
				}
			}
			for i, e := range all[begin:end] {
				if to := tierOf(i < inRam); to != e.tier {
					d[e.tier].remove(e.id, d[e.tier].one(e.id))
					d[to].put(e.id, node, d[to].one(e.id))
				}
			}
		}
	}
}

func tierOf(ram bool) Tier {
	if ram {
		return Ram
	}
	return Ssd
}
