package perf_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/perf"
)

// thesis is the curve of the origin in NoPFS's scenarios: bytes a second by nodes that read.
var thesis = perf.Curve{{1, 66e6}, {2, 86e6}, {4, 146e6}, {8, 326e6}, {16, 324e6}}

func TestCurve(t *testing.T) {
	for at, want := range map[int64]int64{
		-1: 66e6, 0: 66e6, 1: 66e6, 2: 86e6, 3: 116e6, 4: 146e6, 6: 236e6, 8: 326e6, 12: 325e6,
		16: 324e6, 99: 324e6,
	} {
		if got := thesis.Rate(at); got != want {
			t.Errorf("%d readers: %d, want %d", at, got, want)
		}
	}
	if got := (perf.Curve{}).Rate(1); got != 0 {
		t.Errorf("an empty curve gives %d", got)
	}
	for most, want := range map[int64]int64{1: 66e6, 3: 116e6, 8: 326e6, 16: 326e6} {
		if got := thesis.Best(most); got != want {
			t.Errorf("at most %d readers: %d, want %d", most, got, want)
		}
	}
	if got := thesis.Widest(); got != 8 {
		t.Errorf("the best rate is that of %d readers, want 8", got)
	}
	// Neither sizes nor rates of any magnitude overflow.
	vast := perf.Curve{{1, 1}, {1 << 62, 1 << 62}}
	if got := vast.Rate(1 << 61); got < 1<<60 || got > 1<<62 {
		t.Errorf("between vast steps: %d", got)
	}
}

func TestCurveValidates(t *testing.T) {
	if err := thesis.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		curve perf.Curve
		says  string
	}{
		{nil, "no steps"},
		{perf.Curve{{0, 1}}, "step 1 is at 0; expected more than 0"},
		{perf.Curve{{1, 1}, {2, 0}}, "step 2 has a rate of 0"},
		{perf.Curve{{1, 1}, {2, -5}}, "step 2 has a rate of -5"},
		{perf.Curve{{1, 1}, {4, 2}, {4, 3}}, "step 3 is at 4, after one at 4; expected steps that rise"},
		{perf.Curve{{2, 1}, {1, 2}}, "step 2 is at 1, after one at 2"},
	} {
		if err := c.curve.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want it to say %q", c.curve, err, c.says)
		}
	}
}

// Law: between two steps the rate lies between theirs, and at them it is theirs.
func TestCurveLies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCurve(rt, 1<<40)
		i := rapid.IntRange(0, len(c)-1).Draw(rt, "step")
		if got := c.Rate(c[i].At); got != c[i].Rate {
			rt.Fatalf("at step %v: %d", c[i], got)
		}
		if i == 0 {
			return
		}
		low, high := c[i-1], c[i]
		got := c.Rate(rapid.Int64Range(low.At, high.At).Draw(rt, "at"))
		if got < min(low.Rate, high.Rate) || got > max(low.Rate, high.Rate) {
			rt.Fatalf("between %v and %v: %d", low, high, got)
		}
	})
}

func drawCurve(rt *rapid.T, most int64) (c perf.Curve) {
	at := int64(0)
	for range rapid.IntRange(1, 5).Draw(rt, "steps") {
		at += rapid.Int64Range(1, most/8).Draw(rt, "apart")
		c = append(c, perf.Step{At: at, Rate: rapid.Int64Range(1e3, 1e12).Draw(rt, "rate")})
	}
	return c
}

// node is that of NoPFS's scenarios.
func node() *perf.Profile {
	return &perf.Profile{
		Ram: perf.Tier{Name: "ram", Threads: 2, Read: perf.Curve{{1, 16550e6}, {2, 21164e6}}},
		Disks: []perf.Disk{{Tier: perf.Tier{Name: "/ssd", Threads: 2,
			Read: perf.Curve{{1, 66e6}, {2, 86e6}}}}},
		Origin: perf.Origin{Readers: thesis}, Peers: perf.Curve{{1, 10e9}}, Decode: 200e6,
	}
}

func TestCost(t *testing.T) {
	p := node()
	for _, c := range []struct {
		from          perf.Source
		tier          int
		size, readers int64
		want          int64
	}{
		{perf.Own, 0, 10582e6, 4, 1e9},
		{perf.Own, 1, 43e6, 4, 1e9},
		{perf.Peer, 0, 10e9, 4, 1e9}, // the link is slower than half of two threads' ram
		{perf.Peer, 1, 43e6, 4, 1e9}, // the ssd is slower than the link
		{perf.FromOrigin, 0, 66e6, 1, 1e9},
		{perf.FromOrigin, 0, 36.5e6, 4, 1e9},
		{perf.FromOrigin, 0, 116e6, 3, 3e9},
	} {
		if got := p.Cost(c.from, c.tier, c.size, c.readers); got < c.want-2 || got > c.want+2 {
			t.Errorf("%v, tier %d: %d ns, want %d", c.from, c.tier, got, c.want)
		}
	}
	// Samples from a disk go at the rate of random reads of their size, by as many as read it.
	p.Disks[0].Random = perf.Curve{{4096, 64e6}, {1 << 20, 80e6}}
	p.Disks[0].Alone = perf.Curve{{4096, 2e6}, {1 << 20, 18e6}}
	for threads, want := range map[int64]int64{0: 2048_000, 32: 2048_000, 1: 2048_000, 2: 2048_000} {
		p.Disks[0].Threads = threads
		if got := p.Cost(perf.Own, 1, 4096, 1); got != want {
			t.Errorf("4 KiB, %d at once, 64 MB/s of 32 and 2 MB/s of one: %d ns", threads, got)
		}
	}
	p.Disks[0].Threads = 1
	if got := p.Cost(perf.Own, 1, 1<<20, 1); got < 58e6 || got > 59e6 {
		t.Errorf("1 MiB at a time at 18 MB/s: %d ns", got)
	}
	p.Disks[0].Threads, p.Disks[0].Alone = 1, nil
	if got := p.Cost(perf.Own, 1, 1<<20, 1); got < 419e6 || got > 420e6 {
		t.Errorf("1 MiB, a 32nd of 80 MB/s: %d ns", got)
	}
	// Latency is paid once a sample, and not twice where the measured rates include it.
	p.Origin.Latency = 20e6
	if got := p.Cost(perf.FromOrigin, 0, 66e4, 1); got != 30e6 {
		t.Errorf("10 ms of bytes and 20 ms of latency: %d ns", got)
	}
	p.Origin = perf.Origin{Readers: perf.Curve{{4, 20e6}}, Latency: 15e6, Size: 100_000}
	if got := p.Cost(perf.FromOrigin, 0, 100_000, 4); got != 20e6 {
		t.Errorf("one of four readers at 20 MB/s, 100 kB: %d ns, want 20 ms", got)
	}
	if got := p.Cost(perf.FromOrigin, 0, 300_000, 4); got != 30e6 {
		t.Errorf("three times the bytes: %d ns, want 15 ms of latency and 15 ms of bytes", got)
	}
}

// Law (N3): the source that is chosen is the fastest by the costs, and of equals the nearest.
func TestFastest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &perf.Profile{Ram: perf.Tier{Read: drawCurve(rt, 64)},
			Disks:  []perf.Disk{{Tier: perf.Tier{Read: drawCurve(rt, 64)}}, {Random: drawCurve(rt, 1<<20)}},
			Origin: perf.Origin{Readers: drawCurve(rt, 64)}}
		p.Disks[1].Read = drawCurve(rt, 64)
		if rapid.Bool().Draw(rt, "peers") {
			p.Peers = drawCurve(rt, 64)
		}
		size := rapid.Int64Range(1, 1<<32).Draw(rt, "size")
		readers := rapid.Int64Range(1, 64).Draw(rt, "readers")
		has := rapid.SliceOfN(rapid.Bool(), 3, 3)
		own, peers := has.Draw(rt, "own"), has.Draw(rt, "of peers")
		from, tier := p.Fastest(size, readers, own, peers)
		got := p.Cost(from, tier, size, readers)
		if from == perf.Own && !own[tier] || from == perf.Peer && !peers[tier] {
			rt.Fatalf("%v, tier %d does not have it", from, tier)
		}
		for i := range 3 {
			if own[i] && p.Cost(perf.Own, i, size, readers) < got ||
				peers[i] && p.Cost(perf.Peer, i, size, readers) < got {
				rt.Fatalf("%v, tier %d was chosen, but tier %d is faster", from, tier, i)
			}
			if from != perf.Own && own[i] && p.Cost(perf.Own, i, size, readers) == got {
				rt.Fatalf("%v was chosen over its equal, own tier %d", from, i)
			}
		}
		if p.Cost(perf.FromOrigin, 0, size, readers) < got {
			rt.Fatalf("%v, tier %d was chosen, but the origin is faster", from, tier)
		}
	})
}

func TestFastestOfTheThesis(t *testing.T) {
	p, no, yes := node(), []bool{false, false}, []bool{true, true}
	for _, c := range []struct {
		own, peers []bool
		readers    int64
		from       perf.Source
		tier       int
	}{
		{no, no, 4, perf.FromOrigin, 0},
		{yes, yes, 4, perf.Own, 0},
		{no, yes, 4, perf.Peer, 0},
		{[]bool{false, true}, yes, 4, perf.Peer, 0}, // a peer's ram before the own ssd
		{[]bool{false, true}, []bool{false, true}, 4, perf.Own, 1},
		{[]bool{false, true}, no, 1, perf.FromOrigin, 0}, // 66 MB/s alone, 43 from the ssd
		{[]bool{false, true}, no, 4, perf.Own, 1},        // 36.5 MB/s with four
	} {
		from, tier := p.Fastest(2e6, c.readers, c.own, c.peers)
		if from != c.from || tier != c.tier {
			t.Errorf("%v, %v, %d readers: %v, tier %d", c.own, c.peers, c.readers, from, tier)
		}
	}
}

func TestRoofline(t *testing.T) {
	p := node()
	p.Origin.Latency, p.Origin.Concurrency = 20e6, 8
	p.Disks[0].Write = perf.Curve{{1, 50e6}}
	base := perf.Load{Compute: 1e9, Decode: 200e6, OriginBytes: 326e6, OriginRequests: 400,
		PeerBytes: 10e9, DiskRead: []int64{43e6}, DiskWrite: []int64{25e6}}
	for _, c := range []struct {
		name   string
		change func(l *perf.Load)
	}{
		{"compute", func(l *perf.Load) { l.Compute *= 2 }},
		{"decode", func(l *perf.Load) { l.Decode *= 2 }},
		{"origin bytes", func(l *perf.Load) { l.OriginBytes *= 2 }},
		{"origin requests", func(l *perf.Load) { l.OriginRequests *= 2 }},
		{"ssd /ssd", func(l *perf.Load) { l.DiskRead, l.DiskWrite = []int64{86e6}, []int64{50e6} }},
		{"network", func(l *perf.Load) { l.PeerBytes *= 2 }},
	} {
		l := base
		c.change(&l)
		got, all := p.Roofline(l)
		if got.Binding != c.name || got.Ns < 2e9-2 || got.Ns > 2e9+2 || len(all) != 6 {
			t.Errorf("%s: %+v of %+v", c.name, got, all)
		}
	}
	// What is not known does not bind, and is not listed.
	bare := &perf.Profile{Origin: perf.Origin{Readers: thesis}}
	got, all := bare.Roofline(base)
	if got.Binding != "compute" || len(all) != 2 {
		t.Errorf("%+v of %+v", got, all)
	}
	if _, all := (&perf.Profile{}).Roofline(perf.Load{}); len(all) != 1 {
		t.Errorf("nothing known: %+v", all)
	}
}

// Law: whatever size an origin was measured with, its bytes and requests bound what it takes for
// samples of another: they are those of a pipe behind a latency.
func TestRooflineOfOtherSizes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		latency := rapid.Int64Range(0, 100e6).Draw(rt, "latency")
		pipe := rapid.Int64Range(1e6, 1e10).Draw(rt, "bytes a second")
		// took is ns from a request of one of so many readers to its next.
		took := func(size, readers int64) int64 {
			return max(latency+size*1e9/pipe, readers*size*1e9/pipe) + 1
		}
		measured := rapid.Int64Range(1000, 4e6).Draw(rt, "measured with")
		size := rapid.Int64Range(1000, 4e6).Draw(rt, "size")
		p := perf.Profile{Origin: perf.Origin{Latency: latency, Size: measured}}
		for _, readers := range []int64{1, 4, 16, 64, 256} {
			p.Origin.Readers = append(p.Origin.Readers, perf.Step{At: readers,
				Rate: measured * readers * 1e9 / took(measured, readers)})
		}
		const requests = 25600
		bound, all := p.Roofline(perf.Load{OriginBytes: requests * size, OriginRequests: requests,
			Size: size})
		costs := int64(1 << 62)
		for _, s := range p.Origin.Readers {
			if took := took(size, s.At) * requests / s.At; bound.Ns > took+took/1000 {
				rt.Fatalf("%d readers take %d ns, the bound is %+v", s.At, took, bound)
			}
			costs = min(costs, p.Cost(perf.FromOrigin, 0, size, s.At)*requests/s.At)
		}
		// Of larger samples the time of bytes is the one that cost has.
		if off := costs - all[1].Ns; size >= measured && (off > costs/1000 || -off > costs/1000) {
			rt.Fatalf("by cost %d ns, by the roofline %+v", costs, all[1])
		}
	})
}
