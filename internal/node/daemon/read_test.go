package daemon_test

import (
	"slices"
	"testing"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
	"belady/internal/node/daemon"
	"belady/internal/node/wire"
)

func TestOneRankReadsEverySampleInOrder(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=1000&size=20KB&spread=0.5")
	a := n.mustRead(reading{Attach: d.attach(order.Random, 16, 3), data: d})
	if a.samples != 3*d.len || a.bytes != 3*d.bytes {
		t.Errorf("read %d samples and %d bytes of %d and %d", a.samples, a.bytes, 3*d.len, 3*d.bytes)
	}
	n.quiet("d")
}

// TestRanksShareOneEpoch: each sample comes from the origin once, then only what is not kept.
func TestRanksShareOneEpoch(t *testing.T) {
	for name, ram := range map[string]int64{"none": 16 * mib, "half": 22 * mib, "all": 48 * mib} {
		t.Run(name, func(t *testing.T) {
			n := start(t, ram, func(c *daemon.Config) { c.Staging = 5 * mib })
			d := n.addSynth("d", "throttle+", "samples=1500&size=10KB&throttle.latency=1ms")
			var readings []reading
			const world, epochs = 4, 3
			for rank := range world {
				at := d.attach(order.Distributed, 8, epochs)
				at.Rank, at.Order.World = rank, world
				readings = append(readings, reading{Attach: at, data: d})
			}
			var all []sample.ID
			for _, a := range n.together(readings...) {
				all = append(all, a.ids[:len(a.ids)/epochs]...)
			}
			slices.Sort(all)
			for i, id := range all {
				if int(id) != i {
					t.Fatalf("the first epoch has %d at %d: it is no partition", id, i)
				}
			}
			s := n.quiet("d")
			most := d.bytes + (epochs-1)*(d.bytes-s.Pump.KeptBytes*98/100)
			if got := int64(n.counters().Bytes.Load()); got > most || got < d.bytes {
				t.Errorf("the origin gave %d bytes, wanted %d to %d (kept %d of %d)",
					got, d.bytes, most, s.Pump.KeptBytes, d.bytes)
			}
			t.Logf("kept %d of %d", s.Pump.KeptBytes, d.bytes)
		})
	}
}

func TestEveryPolicy(t *testing.T) {
	for _, rule := range policy.Names() {
		for _, ram := range []int64{16 * mib, 20 * mib} {
			n := start(t, ram, func(c *daemon.Config) { c.Staging = 3 * mib })
			d := n.addSynth("d", "", "samples=400&size=16KB&spread=0.8")
			at := d.attach(order.Random, 12, 3)
			at.Policy = rule
			n.mustRead(reading{Attach: at, data: d})
			n.quiet("d")
			if err := n.stop(); err != nil {
				t.Fatal(rule, err)
			}
		}
	}
}

func TestEveryOrderOfASeed(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=301&size=3KB")
	for _, kind := range order.Names() {
		if kind == order.Explicit || kind == order.Weighted {
			continue
		}
		for _, dropLast := range []bool{false, true} {
			var readings []reading
			for rank := range 2 {
				at := d.attach(kind, 7, 2)
				at.Order.World, at.Rank, at.Order.DropLast = 2, rank, dropLast
				if err := at.Order.Validate(); err != nil {
					at.Order.World, at.Rank, at.Order.DropLast = 1, 0, false
				}
				readings = append(readings, reading{Attach: at, data: d})
			}
			n.together(readings...)
		}
	}
	n.quiet("d")
}

func TestResumeAnywhere(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=301&size=3KB")
	for _, at := range []wire.Start{{Epoch: 1}, {Epoch: 1, Batch: 3}, {Position: 100},
		{Epoch: 1, Position: 100, Batch: 2}, {Batch: 43}, {Epoch: 1, Position: 300}} {
		a := d.attach(order.Distributed, 7, 3)
		a.Start = at
		n.mustRead(reading{Attach: a, data: d})
	}
	n.quiet("d")
}

// TestResumeAtTheEnd: a job that has read everything is told so at once.
func TestResumeAtTheEnd(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=301&size=3KB")
	for _, at := range []wire.Start{{Epoch: 3}, {Epoch: 2, Batch: 43},
		{Epoch: 2, Position: 300, Batch: 1}} {
		for _, kind := range []string{order.Distributed, order.Random} {
			a := d.attach(kind, 7, 3)
			a.Start = at
			if got := n.mustRead(reading{Attach: a, data: d}); got.batches != 0 {
				t.Errorf("%v: %d batches came", at, got.batches)
			}
		}
	}
	a := explicit(d, 2)
	a.Start.Epoch = 2
	o, _ := drawn(t, d, 2)
	n.mustRead(reading{Attach: a, data: d, expect: o})
	n.quiet("d")
}

// TestPackedBatchesAreTheClientsOwn: a client that writes into its batches changes nobody's
// samples, its own later ones included.
func TestPackedBatchesAreTheClientsOwn(t *testing.T) {
	n := start(t, 64*mib, nil)
	d := n.addSynth("d", "", "samples=500&size=20KB&spread=0.5")
	packed := d.attach(order.Random, 16, 3)
	packed.Packed = true
	scribble := func(b *client.Batch) bool {
		for i := range b.Len() {
			clear(b.Bytes(i))
		}
		return true
	}
	n.together(reading{Attach: packed, data: d, each: scribble},
		reading{Attach: d.attach(order.Random, 16, 3), data: d})
	s := n.quiet("d")
	if s.Arena.CopiedBytes < 3*d.bytes {
		t.Errorf("%d bytes were gathered: the batches were not packed", s.Arena.CopiedBytes)
	}
}
