package strategy

import (
	"fmt"

	"belady/internal/core/plan"
)

// rules is what tells one strategy's reading from another's.
type rules struct {
	// blocking: one thread a node reads a sample when training wants it and computes it before
	// the next.
	blocking bool
	// placed: samples are read from tiers that have them; otherwise all come from the origin.
	placed bool
	// storing: what a thread fetched from the origin takes its time to be stored afterwards,
	// and is not decoded while it arrives.
	storing bool
	// keeping: what a thread read stays in the sample's home, where it has one.
	keeping bool
	// joining: who wants what is on its way to its home waits for that.
	joining bool
}

// loop runs jobs: the flows that feed them, and what tiers hold.
type loop struct {
	*setting
	rules
	clock
	losses
	jobs   []*training
	has    *held
	homes  *plan.Homes // Belady's; nil: a thread's node is the home of what it keeps
	apart  bool        // homes are every node's own: nodes serve each other nothing
	floor  float64     // bytes a second below which a source is left for the origin
	fills  []fill      // by flow; empty for a thread that reads ahead
	done   int64       // samples read
	all    int64
	result Result
}

// newLoop makes the loop and its threads; tiers and their fillers are the strategy's to add.
func (s *setting) newLoop(r rules) (*loop, error) {
	l := &loop{setting: s, rules: r, clock: newClock(s), floor: s.least(),
		has: newHeld(len(s.sizes), len(s.Tiers), r.joining)}
	threads := s.threads
	if r.blocking {
		threads = 1
	}
	for number := range s.Jobs {
		t, err := s.train(number)
		if err != nil {
			return nil, err
		}
		for node := range t.readers {
			for range threads {
				f := l.add(node, 1)
				l.flows[f].reader = &t.readers[node]
				t.readers[node].threads = append(t.readers[node].threads, f)
			}
		}
		l.jobs = append(l.jobs, t)
	}
	l.fills = make([]fill, len(l.flows))
	return l, nil
}

// run trains to the end and reports.
func (l *loop) run() (Result, error) {
	if err := l.begin(); err != nil {
		return l.result, err
	}
	for left := len(l.jobs); left > 0; {
		var first *training
		until := never
		for _, t := range l.jobs {
			t.settle(l.now, l.compute, l.blocking)
			if t.ends < until {
				first, until = t, t.ends
			}
		}
		var err error
		switch f := l.next(until); {
		case f >= 0:
			err = l.ended(f)
		case first == nil:
			err = fmt.Errorf("the model stands still after %d samples", l.done)
		default:
			if err = l.release(first); first.over() {
				left--
			}
		}
		if err != nil {
			return l.result, err
		}
	}
	return l.report(), nil
}

// begin gives all flows their first work.
func (l *loop) begin() error {
	for _, t := range l.jobs {
		reads, err := t.reads()
		if err == nil {
			err = t.turn()
		}
		if err != nil {
			return err
		}
		l.all += reads
	}
	l.foresee(l.jobs[0].last)
	l.fail()
	for _, t := range l.jobs {
		for node := range t.readers {
			if err := l.feed(&t.readers[node]); err != nil {
				return err
			}
		}
	}
	for f := range l.fills {
		l.refill(f)
	}
	return nil
}

// report adds up the jobs: the last to end is the result's.
func (l *loop) report() Result {
	for _, t := range l.jobs {
		l.result.Jobs = append(l.result.Jobs, t.result)
	}
	l.result.end()
	return l.result
}

// release ends a job's batch, and lets its readers go on.
func (l *loop) release(t *training) error {
	if err := t.release(l.compute); err != nil {
		return err
	}
	l.fail()
	for node := range t.readers {
		if err := l.feed(&t.readers[node]); err != nil {
			return err
		}
	}
	return nil
}

// feed gives a node's idle threads the next samples, as far as there is room for them. The batch
// that training waits for is let in always: it is computed sample by sample as it arrives, and a
// staging too small for a batch would stand still.
func (l *loop) feed(r *reader) error {
	for _, f := range r.threads {
		if !l.idle(f) {
			continue
		}
		if r.done() {
			return nil
		}
		if some, err := r.more(l.now); err != nil || !some {
			return err
		}
		next, first := r.opened, r.at%r.lists.batch == 0
		if !first {
			next--
		}
		wanted := next == r.job.batch
		size := r.sizes[r.at]
		room := r.staged+int64(size) <= l.Staging.Capacity
		if !wanted && (l.blocking || !room) || l.blocking && r.job.ends != never {
			return nil
		}
		if l.placed && r.at%touched == 0 {
			l.has.touch(r.ids[r.at:min(r.at+touched, len(r.ids))])
		}
		if first {
			r.open(min(r.lists.batch, len(r.ids)-r.at), l.now)
		}
		w := &l.flows[f]
		w.id, w.size, w.batch, w.begun = r.ids[r.at], size, next, l.now
		r.of(w.batch).bytes += int64(size)
		r.staged += int64(size)
		r.at++
		l.read(f)
	}
	return nil
}

// read begins to bring a thread's sample to staging.
func (l *loop) read(f int) {
	w := &l.flows[f]
	w.sent = false
	source, found := l.choose(w.node, w.id)
	if !found && l.homes != nil && l.join(f) {
		return
	}
	if !found {
		w.place, w.after = Origin, ready
		if l.blocking || l.storing {
			w.after = storing
		}
		l.fetch(f)
		return
	}
	w.place, w.after = source.place, ready
	size := float64(w.size)
	if l.blocking {
		l.work(f, size*l.compute) // read ahead of use: only computing is in turn
		return
	}
	l.work(f, max(size/source.rate, size*l.store))
}

// ended takes a flow on from what is over.
func (l *loop) ended(f int) error {
	w := &l.flows[f]
	if l.volumes[f] != never && w.joined {
		l.volumes[f], w.joined = never, false
		if l.pass(f) {
			return nil
		}
	} else if l.volumes[f] != never {
		l.fetched(f)
		if w.after == storing {
			w.after = ready
			seconds := float64(w.size) / w.speed * l.store
			if w.reader != nil {
				l.busy(w, seconds)
			} else {
				l.result.Filled += int64(w.size)
			}
			if l.blocking {
				seconds += float64(w.size) * l.compute
			}
			l.work(f, seconds)
			return nil
		}
		if l.pass(f) {
			return nil
		}
	}
	if w.reader == nil {
		l.filled(f)
		return nil
	}
	return l.stage(f)
}

// pass waits for what goes on beside a sample's arrival and may be slower.
func (l *loop) pass(f int) bool {
	w := &l.flows[f]
	late := w.begun + l.passes(w)
	if late > l.now {
		l.work(f, late-l.now)
	}
	return late > l.now
}

// busy counts the time that a thread spent on a sample up to now, and so many seconds more.
func (l *loop) busy(w *flow, more float64) {
	l.result.Busy[w.place] += l.now - w.begun + more
	w.begun = l.now + more
}

// stage ends the reading of a sample.
func (l *loop) stage(f int) error {
	w := &l.flows[f]
	r := w.reader
	l.result.Bytes[w.place] += int64(w.size)
	if !l.blocking {
		l.busy(w, 0)
	}
	if l.keeping {
		l.keep(w)
	}
	if l.free != nil && w.place == Origin {
		l.recover(w)
	}
	b := r.of(w.batch)
	if b.left--; b.left == 0 {
		b.ready, b.last, r.job.staged = l.now, w.size, true
	}
	if l.done++; l.done&0xffff == 0 {
		if err := l.progress(l.done, l.all); err != nil {
			return err
		}
	}
	return l.feed(r)
}
