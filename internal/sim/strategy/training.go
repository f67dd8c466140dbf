package strategy

import (
	"fmt"

	"belady/internal/core/sample"
)

// training is one job under way: all nodes compute a batch, then all the next.
type training struct {
	*access
	readers []reader // by node
	batch   int64    // that is waited for or computed
	ends    float64  // when it is computed; never: not known yet
	began   float64  // when the one before it was
	now     int      // epoch of batch
	last    int64    // the first batch of the next epoch
	since   float64  // when the epoch began
	staged  bool     // some reader's batch was staged since it was last looked whether all are
	result  JobResult
}

// reader is one node's place in a job.
type reader struct {
	*lists
	job     *training
	node    int
	ids     []sample.ID
	sizes   []uint32
	at      int     // next of ids
	opened  int64   // batches begun, since the job's start
	ahead   []batch // a ring: batch b is at b modulo its length, which is a power of two
	staged  int64   // bytes
	threads []int   // its flows
}

// batch is one that a node reads ahead, or has staged.
type batch struct {
	left  int     // samples that are not staged yet
	bytes int64   // of those that were begun
	ready float64 // when the last was staged
	last  uint32  // its size
}

// train makes a job ready, before any sample is read.
func (s *setting) train(number int) (*training, error) {
	a, err := s.access(number)
	if err != nil {
		return nil, err
	}
	t := &training{access: a, readers: make([]reader, s.Nodes), ends: never, now: -1}
	for node := range t.readers {
		t.readers[node] = reader{job: t, node: node, ahead: make([]batch, 16)}
	}
	return t, nil
}

// over says that all batches are computed.
func (t *training) over() bool { return t.now == t.job.Epochs }

// turn goes on to the next epoch.
func (t *training) turn() error {
	if t.now++; t.over() {
		return nil
	}
	lists, err := t.epoch(t.now)
	if err == nil && lists.batches == 0 {
		err = fmt.Errorf("an epoch of %d samples has no whole batch of %d on %d nodes",
			t.job.Order.Samples, t.job.Order.Batch, len(t.readers))
	}
	if err == nil {
		t.last += int64(lists.batches)
	}
	return err
}

// settle sets when the current batch is computed, once every node has staged it.
func (t *training) settle(now, compute float64, blocking bool) {
	if !t.staged || t.ends != never {
		return
	}
	t.staged = false
	ends := now
	for i := range t.readers {
		r := &t.readers[i]
		if t.batch >= r.opened {
			return
		}
		b := r.of(t.batch)
		if b.left > 0 {
			return
		}
		at := b.ready
		if !blocking {
			at = max(t.began+float64(b.bytes)*compute, b.ready+float64(b.last)*compute)
		}
		ends = max(ends, at)
	}
	t.ends = ends
}

// release ends the current batch, and its epoch with the last.
func (t *training) release(compute float64) error {
	var most int64
	for i := range t.readers {
		r := &t.readers[i]
		bytes := r.of(t.batch).bytes
		r.staged -= bytes
		most = max(most, bytes)
	}
	t.result.Stall += t.ends - t.began - float64(most)*compute
	t.began, t.ends, t.staged = t.ends, never, true
	if t.batch++; t.batch < t.last {
		return nil
	}
	t.result.Epochs = append(t.result.Epochs, t.began-t.since)
	t.result.Seconds, t.since = t.began, t.began
	t.close(t.now)
	return t.turn()
}

// of is the entry of a batch that the reader has opened.
func (r *reader) of(b int64) *batch { return &r.ahead[b&int64(len(r.ahead)-1)] }

// open makes the entry of the next batch.
func (r *reader) open(samples int, now float64) {
	if oldest := r.job.batch; r.opened-oldest == int64(len(r.ahead)) {
		wider := make([]batch, 2*len(r.ahead))
		for b := oldest; b < r.opened; b++ {
			wider[b&int64(len(wider)-1)] = *r.of(b)
		}
		r.ahead = wider
	}
	*r.of(r.opened) = batch{left: samples, ready: now}
	r.opened++
}

// more makes sure that there is a next sample, going on to the next epoch where it must.
func (r *reader) more(now float64) (bool, error) {
	for r.at == len(r.ids) {
		next := 0
		if r.lists != nil {
			next = r.epoch + 1
			// A node that has fewer batches than others trains on nothing in their last.
			for range r.batches - (len(r.ids)+r.lists.batch-1)/r.lists.batch {
				r.open(0, now)
				r.job.staged = true
			}
		}
		r.ids, r.at = nil, 0
		if next >= r.job.job.Epochs {
			r.lists = nil
			return false, nil
		}
		lists, err := r.job.epoch(next)
		if err != nil {
			return false, err
		}
		r.lists, r.ids, r.sizes = lists, lists.ids[r.node], lists.sizes[r.node]
	}
	return true, nil
}

// done says that the last sample of the last epoch was begun.
func (r *reader) done() bool { return r.lists == nil && r.opened > 0 }
