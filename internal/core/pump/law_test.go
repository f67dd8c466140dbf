package pump_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// chaos is a world that does anything in any order, and keeps its own books: which samples are in
// memory, which have arrived, and which are leased.
type chaos struct {
	*rapid.T
	sizes   sizes
	plan    *plan.Plan
	pump    *pump.Pump
	now     pump.Instant
	held    map[sample.ID]int64 // bytes of what was asked for and not let go
	arrived map[sample.ID]bool
	logged  map[sample.ID]bool // what the pump must think the log has
	unsure  map[sample.ID]bool // of those, the ones that this step says something new of
	leased  map[sample.ID]int
	fetches []pump.Move
	out     map[pump.Run]bool // fetches whose end the pump has not heard of
	ending  []pump.Run        // of those, the ones it hears of with the next step
	old     []pump.Run        // fetches that have ended
	leases  []lease
	needs   []pump.Move
	live    [3]bool // cursors that may be named
	gone    [3]bool // detached, not yet forgotten
	keep    int64   // the most that a plan ever kept
	most    int64   // and staged
	batch   int64   // the largest batch there has ever been
}

type lease struct {
	cursor int32
	seq    uint64
	ids    []sample.ID
}

func newChaos(t *rapid.T) *chaos {
	n := rapid.IntRange(1, 60).Draw(t, "samples")
	w := &chaos{T: t, sizes: make(sizes, n), held: map[sample.ID]int64{},
		arrived: map[sample.ID]bool{}, leased: map[sample.ID]int{},
		logged: map[sample.ID]bool{}, out: map[pump.Run]bool{}}
	total, records := int64(0), int64(0)
	for i := range w.sizes {
		w.sizes[i] = 64 * uint32(rapid.IntRange(0, 9).Draw(t, "size"))
		total += int64(w.sizes[i])
		records += plan.RecordCost(w.sizes[i])
		w.logged[sample.ID(i)] = false
	}
	w.make(plan.Input{Sizes: w.sizes, Policy: rapid.SampledFrom(policy.Names()).Draw(t, "policy"),
		Keep:    rapid.Int64Range(0, total).Draw(t, "keep"),
		Log:     rapid.Int64Range(0, records).Draw(t, "log"),
		Carry:   rapid.Bool().Draw(t, "carry"),
		Staging: rapid.Int64Range(6000, 20000).Draw(t, "staging")})
	w.keep, w.most = w.plan.Keep, w.plan.Staging
	w.pump = pump.New(w.plan)
	return w
}

func (w *chaos) make(in plan.Input) {
	p, err := plan.Make(in)
	if err != nil {
		w.Fatal(err)
	}
	w.plan = p
}

// window draws a stretch of an order, with repeats.
func (w *chaos) window() *job.Window {
	win := &job.Window{LastOfJob: rapid.IntRange(0, 3).Draw(w.T, "last of job") == 0,
		LastOfEpoch: true}
	for range rapid.IntRange(1, 6).Draw(w.T, "batches") {
		bytes := int64(0)
		for range rapid.IntRange(0, 9).Draw(w.T, "batch") {
			id := sample.ID(rapid.IntRange(0, len(w.sizes)-1).Draw(w.T, "id"))
			win.IDs = append(win.IDs, id)
			bytes += int64(w.sizes[id])
		}
		w.batch = max(w.batch, bytes)
		win.Ends = append(win.Ends, uint32(len(win.IDs)))
	}
	if !w.plan.Rule.Ahead {
		return win
	}
	win.Next = make([]uint32, len(win.IDs))
	first := map[sample.ID]uint32{}
	for i := len(win.IDs) - 1; i >= 0; i-- {
		win.Next[i] = job.NoNext
		if at, ok := first[win.IDs[i]]; ok {
			win.Next[i] = at
		}
		first[win.IDs[i]] = uint32(i)
	}
	return win
}

// event draws something that can happen; false if that cannot happen now.
func (w *chaos) event() (pump.Event, bool) {
	cursor := int32(rapid.IntRange(0, len(w.live)-1).Draw(w.T, "cursor"))
	none := pump.Event{}
	switch rapid.IntRange(0, 10).Draw(w.T, "event") {
	case 0:
		if w.live[cursor] {
			return none, false
		}
		w.live[cursor] = true
		return pump.Event{Kind: pump.Attached, Cursor: cursor, N: 8,
			Follows: rapid.Bool().Draw(w.T, "follows"),
			Reserve: rapid.Int64Range(0, 2000).Draw(w.T, "reserve")}, true
	case 1, 2:
		return pump.Event{Kind: pump.Credited, Cursor: cursor, N: 2}, true
	case 3, 4:
		return w.staged(rapid.Bool().Draw(w.T, "fails"))
	case 5, 6:
		return w.release()
	case 7:
		return w.ordered()
	case 8:
		if rapid.IntRange(0, 4).Draw(w.T, "really") > 0 {
			return none, false
		}
		w.gone[cursor] = w.live[cursor]
		return pump.Event{Kind: pump.Detached, Cursor: cursor}, true
	case 9:
		return pump.Event{Kind: pump.EventKind(rapid.IntRange(int(pump.Logged),
				int(pump.Unlogged)).Draw(w.T, "change")), Set: []uint64{rapid.Uint64().Draw(w.T, "set")}},
			true
	}
	return w.garbage(cursor), true
}

func (w *chaos) staged(fails bool) (pump.Event, bool) {
	if len(w.fetches) == 0 {
		return pump.Event{}, false
	}
	i := rapid.IntRange(0, len(w.fetches)-1).Draw(w.T, "fetch")
	m := w.fetches[i]
	w.fetches = append(w.fetches[:i], w.fetches[i+1:]...)
	w.ending = append(w.ending, m.Run)
	e := pump.Event{Kind: pump.Staged, Run: m.Run}
	for at, id := range w.pump.IDs(m.Cursor, m.Run.First, m.Run.Count) {
		if !m.Mask.Has(at) {
			continue
		}
		if (m.Log.Has(at) || m.Ssd.Has(at)) && rapid.IntRange(0, 3).Draw(w.T, "lost") == 0 {
			e.Unlogged.Set(at)
		}
		if fails && rapid.IntRange(0, 3).Draw(w.T, "this one") == 0 {
			e.Failed.Set(at)
			delete(w.held, id)
		} else {
			w.arrived[id] = true
		}
	}
	return e, true
}

func (w *chaos) release() (pump.Event, bool) {
	if len(w.leases) == 0 {
		return pump.Event{}, false
	}
	i := rapid.IntRange(0, len(w.leases)-1).Draw(w.T, "lease")
	l := w.leases[i]
	w.leases = append(w.leases[:i], w.leases[i+1:]...)
	w.back(l)
	return pump.Event{Kind: pump.Released, Cursor: l.cursor, Seq: l.seq}, true
}

func (w *chaos) back(l lease) {
	for _, id := range l.ids {
		w.leased[id]--
	}
}

func (w *chaos) ordered() (pump.Event, bool) {
	if len(w.needs) == 0 {
		return pump.Event{}, false
	}
	m := w.needs[0]
	w.needs = w.needs[1:]
	return pump.Event{Kind: pump.Ordered, Cursor: m.Cursor, Window: w.window()}, true
}

// garbage is what no well-behaved world says; a pump must not mind.
func (w *chaos) garbage(cursor int32) pump.Event {
	kind := pump.EventKind(rapid.IntRange(0, int(pump.EventsOver)).Draw(w.T, "kind"))
	e := pump.Event{Kind: kind, Cursor: rapid.Int32Range(-3, 9).Draw(w.T, "nobody"), N: -1,
		Seq: rapid.Uint64Range(0, 20).Draw(w.T, "seq"),
		Run: pump.Run{Handle: rapid.Uint32().Draw(w.T, "handle")}}
	switch {
	case kind == pump.Released:
		e.Cursor = cursor
		for _, l := range w.leases {
			if l.cursor == cursor && l.seq == e.Seq {
				e.Seq = 1 << 50
			}
		}
	case kind == pump.Staged && len(w.old) > 0:
		e.Run = w.old[rapid.IntRange(0, len(w.old)-1).Draw(w.T, "old")]
		if w.out[e.Run] {
			e.Run.Cursor = 77 // fetched again, and about to end: no garbage
		}
	case kind == pump.Replanned && rapid.Bool().Draw(w.T, "a real plan"):
		in := w.plan.Input
		in.Keep = rapid.Int64Range(0, 30000).Draw(w.T, "keep")
		in.Staging = rapid.Int64Range(6000, 20000).Draw(w.T, "staging")
		if !w.plan.Rule.Fixed {
			// What a smaller tier lets go and somebody still reads is staging's from then on.
			w.most += max(0, w.plan.Keep-in.Keep)
		}
		w.make(in)
		w.keep, w.most = max(w.keep, w.plan.Keep), max(w.most, w.plan.Staging)
		e.Plan = w.plan
	case kind == pump.Detached:
		e.Cursor = -1 // a real one is drawn elsewhere
	}
	return e
}

// step makes one call and checks its moves against the books.
func (w *chaos) step(events []pump.Event) {
	w.now += pump.Instant(rapid.IntRange(0, 1000).Draw(w.T, "passes"))
	for _, e := range events { // leases of those who leave are over
		if e.Kind == pump.Detached && e.Cursor >= 0 {
			kept := w.leases[:0]
			for _, l := range w.leases {
				if l.cursor == e.Cursor {
					w.back(l)
					continue
				}
				kept = append(kept, l)
			}
			w.leases = kept
		}
	}
	for _, run := range w.ending {
		delete(w.out, run)
	}
	w.old, w.ending = append(w.old, w.ending...), w.ending[:0]
	w.relog(events)
	for _, m := range w.pump.Step(w.now, events, nil) {
		w.take(m)
	}
	for id := range w.sizes {
		if id := sample.ID(id); w.plan.InLog(id) && !w.plan.LogAll && !w.plan.Rule.Fixed &&
			w.pump.Kept(id) {
			w.Fatalf("sample %d is the log's and kept in ram", id)
		}
	}
	s := w.pump.Stats()
	held := int64(0)
	for _, bytes := range w.held {
		held += bytes
	}
	if held != s.StagingBytes+s.KeptBytes {
		w.Fatalf("%d bytes are held, staging has %d and the tier %d", held, s.StagingBytes,
			s.KeptBytes)
	}
	// A smaller plan is met as what is in use comes back: see the end of TestChaos.
	if s.StagingBytes < 0 || s.KeptBytes < 0 || s.KeptBytes > w.keep {
		w.Fatalf("staging %d, kept %d of %d", s.StagingBytes, s.KeptBytes, w.keep)
	}
}

// relog notes what the log has, by the events of a step: first what fetches say, then the log.
func (w *chaos) relog(events []pump.Event) {
	w.unsure = map[sample.ID]bool{}
	if w.plan.Log == 0 {
		return
	}
	for _, e := range events {
		if e.Kind == pump.Staged && !e.Unlogged.Empty() {
			for i, id := range w.pump.IDs(e.Run.Cursor, e.Run.First, e.Run.Count) {
				if e.Unlogged.Has(i) {
					w.logged[id], w.unsure[id] = false, true
				}
			}
		}
	}
	for _, e := range events {
		for i := range w.sizes {
			if id := sample.ID(i); len(e.Set) > 0 && e.Set[0]>>i&1 != 0 {
				w.logged[id], w.unsure[id] = e.Kind == pump.Logged, true
			}
		}
	}
}

// source checks where a sample is to come from and whether it is to be appended.
func (w *chaos) source(m *pump.Move, i int, id sample.ID) {
	ssd, log := m.Ssd.Has(i), m.Log.Has(i)
	logged, known := w.logged[id]
	if w.unsure[id] { // a run that tries again does so between one event and the next
		known = false
	}
	if known && ssd != logged {
		w.Fatalf("sample %d is read from the log: %t; it is there: %t", id, ssd, logged)
	}
	if want := w.plan.InLog(id); !ssd && log != want || ssd && log && !w.plan.Carry {
		w.Fatalf("sample %d is to be appended: %t; it belongs there: %t, is there: %t", id, log,
			want, ssd)
	}
	w.logged[id] = ssd || log
	if w.unsure[id] {
		delete(w.logged, id)
	}
}

func (w *chaos) take(m pump.Move) {
	var ids []sample.ID
	if m.Kind == pump.Fetch || m.Kind == pump.Drop || m.Kind == pump.Lease {
		ids = w.pump.IDs(m.Cursor, m.Run.First, m.Run.Count)
	}
	switch m.Kind {
	case pump.Fetch:
		for i, id := range ids {
			if !m.Mask.Has(i) {
				continue
			}
			if _, ok := w.held[id]; ok {
				w.Fatalf("sample %d is fetched while it is held", id)
			}
			w.source(&m, i, id)
			w.held[id], w.arrived[id] = int64(w.sizes[id]), false
		}
		w.fetches = append(w.fetches, m)
		w.out[m.Run] = true
	case pump.Drop:
		for i, id := range ids {
			if m.Mask.Has(i) {
				w.letGo(id)
			}
		}
	case pump.Evict:
		for _, id := range m.Evicted() {
			w.letGo(id)
		}
	case pump.Lease:
		w.lease(m, ids)
	case pump.Need:
		w.needs = append(w.needs, m)
	case pump.Forget:
		w.live[m.Cursor], w.gone[m.Cursor] = false, false
		kept := w.needs[:0]
		for _, n := range w.needs {
			if n.Cursor != m.Cursor {
				kept = append(kept, n)
			}
		}
		w.needs = kept
	}
}

func (w *chaos) lease(m pump.Move, ids []sample.ID) {
	if w.gone[m.Cursor] {
		w.Fatalf("cursor %d has left and is leased a batch", m.Cursor)
	}
	for _, id := range ids {
		if _, ok := w.held[id]; !m.Failed && (!ok || !w.arrived[id]) {
			w.Fatalf("sample %d is leased and not there", id)
		}
		w.leased[id]++
	}
	w.leases = append(w.leases, lease{m.Cursor, m.Seq, ids})
}

func (w *chaos) letGo(id sample.ID) {
	if _, ok := w.held[id]; !ok || w.leased[id] > 0 || !w.arrived[id] {
		w.Fatalf("sample %d is let go: held %t, leased %d, arrived %t", id, ok, w.leased[id],
			w.arrived[id])
	}
	delete(w.held, id)
}

// Laws, whatever happens in whatever order: no panic; a sample is held once; what is leased is
// there and stays until it is released; the log is read for what it has and given what it is to
// have, and ram leaves that alone; the books agree to the byte; the tier stays within the
// largest budget it had, staging within its own but for what cursors with nothing ahead may take;
// in the end staging is empty and the tier within its budget.
func TestChaos(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newChaos(rt)
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			var events []pump.Event
			for range rapid.IntRange(0, 5).Draw(rt, "events") {
				e, ok := w.event()
				switch {
				case ok && e.Kind == pump.Staged && !w.out[e.Run]:
					// First, so that an old end cannot meet a fetch that this step repeats.
					events = append([]pump.Event{e}, events...)
				case ok:
					events = append(events, e)
				}
			}
			w.step(events)
			s := w.pump.Stats()
			// Beyond it go only the three cursors with nothing ahead of them: each with one batch
			// beside one that it holds, or within its share.
			if s.StagingBytes > w.most+max(w.most, 6*w.batch) {
				rt.Fatalf("staging has %d of %d bytes", s.StagingBytes, w.most)
			}
		}
		for c := range w.live {
			w.gone[c] = w.live[c]
			w.step([]pump.Event{{Kind: pump.Detached, Cursor: int32(c)}})
		}
		for len(w.fetches) > 0 || w.pump.More() {
			var events []pump.Event
			if e, ok := w.staged(false); ok {
				events = append(events, e)
			}
			w.step(events)
		}
		s := w.pump.Stats()
		if s.StagingBytes != 0 || s.KeptBytes > w.plan.Keep || w.live != [3]bool{} {
			rt.Fatalf("left behind: %+v of %d, cursors %v", s, w.plan.Keep, w.live)
		}
	})
}
