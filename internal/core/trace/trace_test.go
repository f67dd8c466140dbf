package trace_test

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/core/trace"
)

type sizes []uint32

func (s sizes) Len() int                 { return len(s) }
func (s sizes) Size(id sample.ID) uint32 { return s[id] }

var same = cmp.Options{cmp.Exporter(func(reflect.Type) bool { return true }),
	cmpopts.EquateEmpty()}

func header() trace.Header {
	return trace.Header{Dataset: "d", Samples: 3, Policy: "spread", Keep: 10, Staging: 20}
}

func encoder(t testing.TB, h trace.Header) *trace.Encoder {
	e, err := trace.NewEncoder(h)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// all decodes a trace to its end; steps are copied.
func all(data []byte) (steps []trace.Step, tail int, err error) {
	d, err := trace.NewDecoder(data)
	if err != nil {
		return nil, 0, err
	}
	for {
		s, err := d.Next()
		if err != nil || s == nil {
			return steps, d.Tail(), err
		}
		steps = append(steps, trace.Step{Now: s.Now,
			Readings: append([]trace.Reading(nil), s.Readings...),
			Events:   append([]pump.Event(nil), s.Events...),
			Moves:    append([]pump.Move(nil), s.Moves...)})
	}
}

func drawMask(t *rapid.T) (m pump.Mask) {
	for i := range m {
		m[i] = rapid.SampledFrom([]uint64{0, 1, 1 << 63, ^uint64(0)}).Draw(t, "word")
	}
	return m
}

func drawRun(t *rapid.T) pump.Run {
	return pump.Run{Cursor: rapid.Int32().Draw(t, "cursor"), Handle: rapid.Uint32().Draw(t, "h"),
		First: rapid.Int64().Draw(t, "first"), Count: rapid.Int32().Draw(t, "count")}
}

func drawEvent(t *rapid.T) pump.Event {
	e := pump.Event{Kind: pump.EventKind(rapid.IntRange(1, int(pump.EventsOver)-1).Draw(t, "kind"))}
	if e.Kind <= pump.Detached && e.Kind != pump.Staged {
		e.Cursor = rapid.Int32().Draw(t, "cursor")
	}
	switch e.Kind {
	case pump.Attached:
		e.N, e.Reserve = rapid.Int32().Draw(t, "n"), rapid.Int64().Draw(t, "reserve")
		e.Follows = rapid.Bool().Draw(t, "follows")
	case pump.Ordered:
		n := rapid.IntRange(0, 5).Draw(t, "ids")
		w := &job.Window{Epoch: rapid.IntRange(0, 9).Draw(t, "epoch"), IDs: []sample.ID{},
			Ends: []uint32{}, LastOfJob: rapid.Bool().Draw(t, "last")}
		for i := range n {
			w.IDs = append(w.IDs, sample.ID(rapid.Uint32().Draw(t, "id")))
			w.Ends = append(w.Ends, uint32(i+1))
			w.Next = append(w.Next, rapid.Uint32().Draw(t, "next"))
		}
		e.Window = w
	case pump.Credited:
		e.N = rapid.Int32().Draw(t, "n")
	case pump.Staged:
		e.Run, e.Failed, e.Unlogged = drawRun(t), drawMask(t), drawMask(t)
	case pump.Released:
		e.Seq = rapid.Uint64().Draw(t, "seq")
	case pump.Replanned:
		e.Plan = &plan.Plan{Input: plan.Input{Keep: rapid.Int64().Draw(t, "keep"), Staging: 7,
			Log: rapid.Int64().Draw(t, "log"), Carry: rapid.Bool().Draw(t, "carry")}}
	case pump.Logged, pump.Unlogged:
		e.Set = rapid.SliceOfN(rapid.Uint64(), 0, 5).Draw(t, "set")
	}
	return e
}

func drawMove(t *rapid.T) pump.Move {
	m := pump.Move{Kind: pump.MoveKind(rapid.IntRange(1, int(pump.MovesOver)-1).Draw(t, "kind"))}
	switch m.Kind {
	case pump.Fetch:
		m.Run, m.Mask, m.Slots = drawRun(t), drawMask(t), drawMask(t)
		m.Cursor, m.Epoch = m.Run.Cursor, rapid.Int32().Draw(t, "epoch")
		m.Ssd, m.Log = drawMask(t), drawMask(t)
	case pump.Drop:
		m.Run, m.Mask = drawRun(t), drawMask(t)
		m.Cursor = m.Run.Cursor
	case pump.Evict:
		for range rapid.IntRange(1, 16).Draw(t, "evicted") {
			m.AddEvicted(sample.ID(rapid.Uint32().Draw(t, "sample")))
		}
	case pump.Lease:
		m.Cause, m.Last = pump.Origin, rapid.Bool().Draw(t, "last")
		m.Run = drawRun(t)
		m.Run.Handle = 0
		m.Cursor, m.Epoch, m.Batch = m.Run.Cursor, rapid.Int32().Draw(t, "epoch"), 3
		m.Seq = rapid.Uint64().Draw(t, "seq")
	case pump.Refuse:
		m.Bytes = rapid.Int64().Draw(t, "bytes")
		m.Cursor, m.Epoch, m.Batch, m.Seq = 1, 2, 3, 4
	case pump.Need:
		m.Cursor, m.Epoch = rapid.Int32().Draw(t, "cursor"), rapid.Int32().Draw(t, "epoch")
	default:
		m.Cursor = rapid.Int32().Draw(t, "cursor")
	}
	return m
}

// Law: what was recorded is what is read, and a cut loses whole blocks of the end alone.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := encoder(t, header())
		data := append([]byte(nil), e.Take()...)
		begin := len(data)
		var want []trace.Step
		now := pump.Instant(0)
		for range rapid.IntRange(0, 6).Draw(rt, "steps") {
			now += pump.Instant(rapid.Int64Range(0, 1e12).Draw(rt, "after"))
			s := trace.Step{Now: now}
			for range rapid.IntRange(0, 4).Draw(rt, "events") {
				s.Events = append(s.Events, drawEvent(rt))
			}
			for range rapid.IntRange(0, 4).Draw(rt, "moves") {
				s.Moves = append(s.Moves, drawMove(rt))
			}
			e.Step(s.Now, s.Events, s.Moves)
			want = append(want, s)
			if rapid.Bool().Draw(rt, "flush") {
				e.Flush()
			}
		}
		e.Flush()
		data = append(data, e.Take()...)
		got, tail, err := all(data)
		if diff := cmp.Diff(want, got, same); diff != "" ||
			tail != 0 || err != nil {
			rt.Fatalf("tail %d, err %v, (-want +got):\n%s", tail, err, diff)
		}
		at := rapid.IntRange(begin, len(data)).Draw(rt, "cut")
		got, tail, err = all(data[:at])
		if err != nil || len(got) > len(want) || at < len(data) && len(got) == len(want) && tail == 0 {
			rt.Fatalf("cut at %d of %d: %d of %d steps, tail %d, %v", at, len(data), len(got),
				len(want), tail, err)
		}
		if diff := cmp.Diff(want[:len(got)], got, same); diff != "" {
			rt.Fatalf("cut at %d (-want +got):\n%s", at, diff)
		}
	})
}

// The bytes themselves: they change only with the version.
func TestGolden(t *testing.T) {
	e := encoder(t, trace.Header{Dataset: "d", Samples: 3, Policy: "spread", Keep: 10, Staging: 20})
	head := len(e.Take())
	evict := pump.Move{Kind: pump.Evict}
	evict.AddEvicted(7)
	evict.AddEvicted(6)
	run := pump.Run{Cursor: 1, Handle: 9, First: 300, Count: 2}
	e.Step(5, []pump.Event{{Kind: pump.Credited, Cursor: 1, N: 2},
		{Kind: pump.Staged, Run: run, Failed: pump.Mask{2}, Unlogged: pump.Mask{3}},
		{Kind: pump.Unlogged, Set: []uint64{5}}},
		[]pump.Move{evict, {Kind: pump.Fetch, Run: run, Epoch: 4, Mask: pump.Mask{3},
			Ssd: pump.Mask{1}, Log: pump.Mask{2}}, {Kind: pump.Finish, Cursor: 1}})
	e.Flush()
	const want = "52000000" + "0947d4c6" + "020a06" + "030204" + "040209d80404" +
		"010200000000000000" + "010300000000000000" + "0902" + "0500000000000000" + "06" +
		"04040e01" + "010209d80404" + "010300000000000000" + "00" + "08" + "010100000000000000" +
		"010200000000000000" + "0602"
	if got := hex.EncodeToString(e.Take()); got != want {
		t.Errorf("after a header of %d bytes: %s, want %s", head, got, want)
	}
}

func TestDamage(t *testing.T) {
	e := encoder(t, header())
	data := append([]byte(nil), e.Take()...)
	begin := len(data)
	for i := range 3 {
		e.Step(pump.Instant(i), nil, nil)
		e.Flush()
	}
	data = append(data, e.Take()...)
	changed := append([]byte(nil), data...)
	changed[begin+8] ^= 1
	if _, _, err := all(changed); !errors.Is(err, trace.ErrCorrupt) {
		t.Errorf("a block changed in the middle: %v", err)
	}
	changed = append([]byte(nil), data...)
	changed[len(data)-1] ^= 1
	steps, tail, err := all(changed)
	if len(steps) != 2 || tail == 0 || err != nil {
		t.Errorf("the last block changed: %d steps, tail %d, %v", len(steps), tail, err)
	}
	changed = append([]byte(nil), data...)
	changed[8]++
	if _, _, err := all(changed); err == nil || errors.Is(err, trace.ErrCorrupt) {
		t.Errorf("another version: %v", err)
	}
	for _, short := range []int{0, 7, 12, begin - 1} {
		if _, _, err := all(data[:short]); !errors.Is(err, trace.ErrCorrupt) {
			t.Errorf("%d bytes: %v", short, err)
		}
	}
}

// A header gives back the plan it was made from, costs and all.
func TestHeaderPlan(t *testing.T) {
	s := sizes{10, 200, 3000, 3000, 64, 65, 1}
	for _, cost := range []func(uint32) int64{nil, func(n uint32) int64 { return int64(n+63) &^ 63 }} {
		p, err := plan.Make(plan.Input{Sizes: s, Seed: 3, Policy: "belady", Keep: 3300,
			Staging: 100, Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		h := trace.HeaderOf("d", p)
		again, err := h.Plan(s)
		if err != nil {
			t.Fatal(err)
		}
		if again.Digest() != p.Digest() || again.TotalCost != p.TotalCost ||
			again.SetCost != p.SetCost {
			t.Errorf("plan %+v came back as %+v", p, again)
		}
		for _, size := range s {
			if again.Slot(size) != p.Slot(size) {
				t.Errorf("size %d takes %d, took %d", size, again.Slot(size), p.Slot(size))
			}
		}
	}
	h := trace.HeaderOf("d", must(t, s))
	if _, err := h.Plan(sizes{1, 2, 3, 4, 5, 6, 7}); err == nil {
		t.Error("other sizes were taken for the same")
	}
}

func must(t testing.TB, s sizes) *plan.Plan {
	p, err := plan.Make(plan.Input{Sizes: s, Policy: "spread", Keep: 5, Staging: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// record plays a short job and returns its trace.
func record(t testing.TB, s sizes, damage func(moves []pump.Move) []pump.Move) []byte {
	p := must(t, s)
	e := encoder(t, trace.HeaderOf("d", p))
	r := job.Reading{Epochs: 2, Order: order.Spec{Kind: "sequential", Samples: len(s), Batch: 2}}
	if err := e.Reading(0, r); err != nil {
		t.Fatal(err)
	}
	feed, err := job.NewFeed(r, p.Rule.Ahead)
	if err != nil {
		t.Fatal(err)
	}
	pm := pump.New(p)
	events := []pump.Event{{Kind: pump.Attached, N: 2}, {Kind: pump.Credited, N: 1}}
	for now := pump.Instant(0); len(events) > 0 || pm.More(); now += 10 {
		moves := pm.Step(now, events, nil)
		e.Step(now, events, damage(append([]pump.Move(nil), moves...)))
		events = nil
		for _, m := range moves {
			switch m.Kind {
			case pump.Need:
				w, err := feed.Window(int(m.Epoch))
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, pump.Event{Kind: pump.Ordered, Window: w})
			case pump.Fetch:
				events = append(events, pump.Event{Kind: pump.Staged, Run: m.Run})
			case pump.Lease:
				events = append(events, pump.Event{Kind: pump.Released, Seq: m.Seq},
					pump.Event{Kind: pump.Credited, N: 1})
			case pump.Finish:
				events = append(events, pump.Event{Kind: pump.Detached})
			}
		}
	}
	e.Flush()
	return append([]byte(nil), e.Take()...)
}

func TestReplay(t *testing.T) {
	s := sizes{100, 200, 300, 400, 500}
	data := record(t, s, func(m []pump.Move) []pump.Move { return m })
	done, err := trace.Replay(data, s)
	if err != nil || done.Steps < 5 || done.Moves < 10 {
		t.Fatalf("replayed %+v, %v", done, err)
	}
	leases := 0
	data = record(t, s, func(moves []pump.Move) []pump.Move {
		for i := range moves {
			if moves[i].Kind == pump.Lease {
				if leases++; leases == 3 {
					moves[i].Seq = 77
				}
			}
		}
		return moves
	})
	_, err = trace.Replay(data, s)
	var diff *trace.Difference
	if !errors.As(err, &diff) || diff.Recorded.Seq != 77 || diff.Replayed.Seq != 2 {
		t.Errorf("a changed lease: %v", err)
	}
}

// FuzzDecode: whatever the bytes, decoding and replaying end, with an error or without.
func FuzzDecode(f *testing.F) {
	s := sizes{100, 200, 300, 400, 500}
	data := record(f, s, func(m []pump.Move) []pump.Move { return m })
	f.Add(data)
	f.Add(data[:len(data)-3])
	e := encoder(f, header())
	f.Add(append([]byte(nil), e.Take()...))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, _ = all(data)
		_, _ = trace.Measure(data, s)
	})
}
