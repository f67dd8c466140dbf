package strategy

import (
	"fmt"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
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
}

// batch is one that a node reads ahead, or has staged.
type batch struct {
	left  int     // samples that are not staged yet
	bytes int64   // of those that were begun
	ready float64 // when the last was staged
	last  uint32  // its size
}

// reader is one node's place in the job.
type reader struct {
	*lists
	node    int
	ids     []sample.ID
	sizes   []uint32
	at      int     // next of ids
	opened  int64   // batches begun, since the job's start
	ahead   []batch // a ring: batch b is at b modulo its length, which is a power of two
	staged  int64   // bytes
	threads []int   // its flows
}

// loop runs a job: bulk-synchronous training, and the flows that feed it.
type loop struct {
	*setting
	rules
	clock
	losses
	access  *access
	readers []reader
	has     *held
	homes   *plan.Homes // Belady's; nil: a thread's node is the home of what it keeps
	floor   float64     // bytes a second below which a source is left for the origin
	fills   []fill      // by flow; empty for a thread that reads ahead

	batch    int64   // that training waits for or computes
	ends     float64 // when it is computed; never: not known yet
	began    float64 // when the one before it was
	epoch    int     // of batch
	epochEnd int64   // the first batch of the next epoch
	epochAt  float64 // when the epoch began
	staged   bool    // some reader's batch was staged since it was last looked whether all are
	done     int64   // samples read
	all      int64
	result   Result
}

// newLoop makes the loop and its threads; tiers and their fillers are the strategy's to add.
func (s *setting) newLoop(r rules) (*loop, error) {
	a, err := s.access()
	if err != nil {
		return nil, err
	}
	l := &loop{setting: s, rules: r, clock: newClock(s), access: a, floor: s.least(),
		has: newHeld(len(s.job.Sizes), len(s.Tiers)), readers: make([]reader, s.Nodes),
		ends: never, epoch: -1}
	threads := s.threads
	if r.blocking {
		threads = 1
	}
	for node := range l.readers {
		l.readers[node] = reader{node: node, ahead: make([]batch, 16)}
		for range threads {
			f := l.add(node, 1)
			l.readers[node].threads = append(l.readers[node].threads, f)
		}
	}
	l.fills = make([]fill, len(l.flows))
	return l, nil
}

// run trains to the end and reports.
func (l *loop) run() (Result, error) {
	var err error
	if l.all, err = l.access.reads(l.job.Epochs); err != nil {
		return l.result, err
	}
	if l.all == 0 {
		return l.result, fmt.Errorf("an epoch of %d samples has no whole batch of %d on %d nodes",
			l.job.Order.Samples, l.job.Order.Batch, l.Nodes)
	}
	if err := l.turn(); err != nil {
		return l.result, err
	}
	l.foresee(l.epochEnd)
	l.fail()
	for node := range l.readers {
		if err := l.feed(&l.readers[node]); err != nil {
			return l.result, err
		}
	}
	for f := range l.fills {
		l.refill(f)
	}
	for l.epoch < l.job.Epochs {
		l.settleBatch()
		f := l.next(l.ends)
		switch {
		case f >= 0:
			err = l.ended(f)
		case l.ends == never:
			return l.result, fmt.Errorf("the model stands still at batch %d", l.batch)
		default:
			err = l.release()
		}
		if err != nil {
			return l.result, err
		}
	}
	l.result.Seconds += l.began
	return l.result, nil
}

// settleBatch sets when the current batch is computed, once every node has staged it.
func (l *loop) settleBatch() {
	if !l.staged || l.ends != never {
		return
	}
	l.staged = false
	var ends float64
	for i := range l.readers {
		r := &l.readers[i]
		if l.batch >= r.opened {
			return
		}
		b := r.of(l.batch)
		if b.left > 0 {
			return
		}
		at := b.ready
		if !l.blocking {
			at = max(l.began+float64(b.bytes)*l.compute, b.ready+float64(b.last)*l.compute)
		}
		ends = max(ends, at)
	}
	l.ends = max(ends, l.now)
}

// release ends the current batch and begins the next.
func (l *loop) release() error {
	var most int64
	for i := range l.readers {
		r := &l.readers[i]
		bytes := r.of(l.batch).bytes
		r.staged -= bytes
		most = max(most, bytes)
	}
	l.result.Stall += l.ends - l.began - float64(most)*l.compute
	l.began, l.ends, l.staged = l.ends, never, true
	if l.batch++; l.batch == l.epochEnd {
		l.result.Epochs = append(l.result.Epochs, l.now-l.epochAt)
		l.epochAt = l.now
		l.access.close(l.epoch)
		if err := l.turn(); err != nil {
			return err
		}
	}
	l.fail()
	for i := range l.readers {
		if err := l.feed(&l.readers[i]); err != nil {
			return err
		}
	}
	return nil
}

// turn goes on to the next epoch of training.
func (l *loop) turn() error {
	if l.epoch++; l.epoch == l.job.Epochs {
		return nil
	}
	lists, err := l.access.epoch(l.epoch)
	if err == nil {
		l.epochEnd += int64(lists.batches)
	}
	return err
}

// of is the entry of a batch that the reader has opened.
func (r *reader) of(b int64) *batch { return &r.ahead[b&int64(len(r.ahead)-1)] }

// open makes the entry of the next batch. oldest is the first that is still needed.
func (r *reader) open(oldest int64, samples int, now float64) {
	if r.opened-oldest == int64(len(r.ahead)) {
		wider := make([]batch, 2*len(r.ahead))
		for b := oldest; b < r.opened; b++ {
			wider[b&int64(len(wider)-1)] = *r.of(b)
		}
		r.ahead = wider
	}
	*r.of(r.opened) = batch{left: samples, ready: now}
	r.opened++
}

// more makes sure that the reader has a next sample, going on to the next epoch where it must.
func (l *loop) more(r *reader) (bool, error) {
	for r.at == len(r.ids) {
		next := 0
		if r.lists != nil {
			next = r.epoch + 1
			// A node that has fewer batches than others trains on nothing in their last.
			for range r.batches - (len(r.ids)+r.lists.batch-1)/r.lists.batch {
				r.open(l.batch, 0, l.now)
				l.staged = true
			}
		}
		r.ids, r.at = nil, 0
		if next >= l.job.Epochs {
			r.lists = nil
			return false, nil
		}
		lists, err := l.access.epoch(next)
		if err != nil {
			return false, err
		}
		r.lists, r.ids, r.sizes = lists, lists.ids[r.node], lists.sizes[r.node]
	}
	return true, nil
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
		if some, err := l.more(r); err != nil || !some {
			return err
		}
		next, first := r.opened, r.at%r.lists.batch == 0
		if !first {
			next--
		}
		wanted := next == l.batch
		size := r.sizes[r.at]
		room := r.staged+int64(size) <= l.Staging.Capacity
		if !wanted && (l.blocking || !room) || l.blocking && l.ends != never {
			return nil
		}
		if l.placed && r.at%touched == 0 {
			l.has.touch(r.ids[r.at:min(r.at+touched, len(r.ids))])
		}
		if first {
			r.open(l.batch, min(r.lists.batch, len(r.ids)-r.at), l.now)
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

// done says that the reader has begun the last sample of the last epoch.
func (r *reader) done() bool { return r.lists == nil && r.opened > 0 }

// read begins to bring a thread's sample to staging.
func (l *loop) read(f int) {
	w := &l.flows[f]
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
	} else if l.volumes[f] != never {
		l.fetched(f)
		if w.after == storing {
			w.after = ready
			seconds := float64(w.size) / w.speed * l.store
			if l.fills[f].list == nil {
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
		// Decoding goes on beside the fetch, and may be the slower of the two.
		if late := w.begun + float64(w.size)*l.store; late > l.now {
			l.work(f, late-l.now)
			return nil
		}
	}
	if l.fills[f].list != nil {
		l.filled(f)
		return nil
	}
	return l.stage(f)
}

// busy counts the time that a thread spent on a sample up to now, and so many seconds more.
func (l *loop) busy(w *flow, more float64) {
	l.result.Busy[w.place] += l.now - w.begun + more
	w.begun = l.now + more
}

// stage ends the reading of a sample.
func (l *loop) stage(f int) error {
	w := &l.flows[f]
	r := &l.readers[w.node]
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
		b.ready, b.last, l.staged = l.now, w.size, true
	}
	if l.done++; l.done&0xffff == 0 {
		if err := l.progress(l.done, l.all); err != nil {
			return err
		}
	}
	return l.feed(r)
}
