package sim_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/sim"
)

// onlooker follows the moves of one cursor by what they say alone: what is in memory, what staging
// it takes, and how far fetching has come.
type onlooker struct {
	t       *rapid.T
	plan    *plan.Plan
	ids     []sample.ID // of all epochs
	each    int         // positions of an epoch
	batch   int
	has     map[sample.ID]bool // and whether it is still on its way
	staging int64
	next    int // position after the last that was fetched or leased
	leased  int // positions
	known   int // positions whose order the pump has been told
}

func (o *onlooker) see(_ pump.Instant, events []pump.Event, moves []pump.Move) {
	before := o.leased // fetching is decided before leasing
	for i := range events {
		switch e := &events[i]; e.Kind {
		case pump.Ordered:
			o.known += len(e.Window.IDs)
		case pump.Staged:
			for _, id := range o.ids[e.Run.First:][:e.Run.Count] {
				if _, there := o.has[id]; there {
					o.has[id] = false
				}
			}
		}
	}
	for i := range moves {
		m := &moves[i]
		for k := range int(m.Run.Count) {
			at := int(m.Run.First) + k
			switch {
			case m.Kind == pump.Fetch && m.Mask.Has(k):
				o.fetched(at)
			case m.Kind == pump.Drop && m.Mask.Has(k):
				o.gone(o.ids[at])
			}
		}
		switch m.Kind {
		case pump.Evict:
			for _, id := range m.Evicted() {
				o.gone(id)
			}
		case pump.Lease:
			o.leased = int(m.Run.First) + int(m.Run.Count)
			o.next = max(o.next, o.leased) // what was there all along was never fetched
		}
	}
	if o.plan.Rule.Fixed {
		o.firstOpportunity(before)
	}
}

// cost is what a sample takes of staging.
func (o *onlooker) cost(id sample.ID) int64 {
	if o.plan.InSet(id) {
		return 0
	}
	return o.plan.Staged(o.plan.Size(id))
}

func (o *onlooker) gone(id sample.ID) {
	if _, there := o.has[id]; !there {
		o.t.Fatalf("%d is let go but is not there", id)
	}
	delete(o.has, id)
	o.staging -= o.cost(id)
}

// fetched is Cao's first rule, optimal fetching: what is fetched is always the next sample of the
// order that is not there.
func (o *onlooker) fetched(at int) {
	for ; o.next < at; o.next++ {
		if _, there := o.has[o.ids[o.next]]; !there {
			o.t.Fatalf("position %d is fetched before %d, which is not there", at, o.next)
		}
	}
	if _, there := o.has[o.ids[at]]; there || at != o.next {
		o.t.Fatalf("position %d is fetched, and %d samples were asked for or there", at, o.next)
	}
	o.next++
	o.has[o.ids[at]] = true
	o.staging += o.cost(o.ids[at])
}

// firstOpportunity is the fourth rule: a fetch that can begin has begun. One that has not is of a
// batch that staging has no room for, too far ahead, in an order not known yet, or behind a sample
// that is still on its way: a fetch tells only so many who wait for it.
func (o *onlooker) firstOpportunity(leased int) {
	at := o.next
	for ; at < o.known; at++ {
		if flying, there := o.has[o.ids[at]]; flying {
			return
		} else if !there {
			break
		}
	}
	if at >= o.known {
		return
	}
	epoch := at / o.each * o.each
	first := epoch + (at-epoch)/o.batch*o.batch
	price := int64(0)
	for i := at; i < min(first+o.batch, epoch+o.each); i++ {
		if _, there := o.has[o.ids[i]]; !there {
			price += o.cost(o.ids[i])
		}
	}
	if first-leased < o.each/2-o.batch && o.staging+price <= o.plan.Staging {
		o.t.Fatalf("position %d is not fetched, though its batch takes %d and staging has %d of %d",
			at, price, o.staging, o.plan.Staging)
	}
}

// Laws: Cao's rules of fetching and keeping, for one job. The first and the fourth are the
// onlooker's. By the second, what is evicted is what is wanted last; by the third, nothing is
// evicted for what is wanted later. Whoever keeps to both hits as often as MIN that may pass by.
func TestCaosRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(40, 200).Draw(rt, "samples")
		batch := rapid.IntRange(2, 10).Draw(rt, "batch")
		room := rapid.IntRange(0, n).Draw(rt, "kept samples")
		rule := rapid.SampledFrom([]string{"spread", "belady"}).Draw(rt, "policy")
		const epochs, size = 4, 1024
		staging := int64(rapid.IntRange(3, 6).Draw(rt, "staged batches")*batch) * size
		readings := distributed(n, batch, 1, epochs, int64(rapid.IntRange(0, 99).Draw(rt, "seed")))
		ids := expected(rt, readings)[0]
		p := makePlan(rt, equal(n, size), rule, int64(room)*size, staging)
		o := &onlooker{t: rt, plan: p, ids: ids, each: n, batch: batch, has: map[sample.ID]bool{}}
		_, got := delivered(rt, sim.Scenario{Plan: p, Readings: readings, Observe: o.see,
			Compute: pump.Instant(rapid.IntRange(0, 1e6).Draw(rt, "compute")),
			Origin: sim.Origin{Rate: int64(rapid.IntRange(1e6, 1e9).Draw(rt, "rate")),
				Latency:     pump.Instant(rapid.IntRange(0, 2e6).Draw(rt, "latency")),
				Concurrency: rapid.IntRange(1, 64).Draw(rt, "concurrency")}})
		if rule == "belady" {
			_, _, best := recount(ids, epochs, room)
			want := int64(best*float64(len(ids)-n) + 0.5)
			if got.Stats.Hits != want {
				rt.Fatalf("%d hits, MIN has %d", got.Stats.Hits, want)
			}
		}
	})
}
