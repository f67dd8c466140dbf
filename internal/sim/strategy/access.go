package strategy

import (
	"belady/internal/core/order"
	"belady/internal/core/sample"
)

// lists is what every node reads in one epoch.
type lists struct {
	epoch   int
	ids     [][]sample.ID // by node
	sizes   [][]uint32    // of ids: looked up together, which is far faster than one by one
	batch   int           // samples of a node's batch; its last may be short
	batches int           // of the node that has most
}

// access computes epochs as they are needed and forgets those that are over: a job of many epochs
// holds as few as its fastest node reads ahead.
type access struct {
	order order.Order
	job   *Job
	base  sample.ID // of the job's dataset among all
	all   []uint32  // sizes of all samples
	open  []*lists  // consecutive epochs
	spare []*lists
	// deal, if given, changes what the order says, for strategies that do not deliver it.
	deal func(l *lists)
}

func (s *setting) access(number int) (*access, error) {
	job := &s.Jobs[number]
	o, err := order.New(job.Order)
	return &access{order: o, job: job, base: s.bases[number], all: s.sizes}, err
}

// epoch returns the lists of an epoch, which is one of the open ones or the next.
func (a *access) epoch(e int) (*lists, error) {
	if len(a.open) > 0 && e <= a.open[len(a.open)-1].epoch {
		return a.open[e-a.open[0].epoch], nil
	}
	l := &lists{}
	if n := len(a.spare); n > 0 {
		l, a.spare = a.spare[n-1], a.spare[:n-1]
	}
	err := a.fill(l, e)
	a.open = append(a.open, l)
	return l, err
}

// close forgets the epochs up to e.
func (a *access) close(e int) {
	for len(a.open) > 0 && a.open[0].epoch <= e {
		a.spare = append(a.spare, a.open[0])
		a.open = a.open[1:]
	}
}

func (a *access) fill(l *lists, e int) error {
	nodes := a.job.Order.Ranks()
	if l.ids == nil {
		l.ids, l.sizes = make([][]sample.ID, nodes), make([][]uint32, nodes)
	}
	l.epoch, l.batches = e, 0
	for node := range nodes {
		epoch, err := a.order.Epoch(e, node, 0, l.ids[node])
		if err != nil {
			return err
		}
		l.ids[node], l.batch = epoch.IDs, epoch.Batch
		l.batches = max(l.batches, epoch.Batches())
	}
	for _, ids := range l.ids {
		for i := range ids {
			ids[i] += a.base
		}
	}
	if a.deal != nil {
		a.deal(l)
	}
	for node, ids := range l.ids {
		sizes := l.sizes[node]
		if cap(sizes) < len(ids) {
			sizes = make([]uint32, len(ids))
		}
		sizes = sizes[:len(ids)]
		for i, id := range ids {
			sizes[i] = a.all[id]
		}
		l.sizes[node] = sizes
	}
	return nil
}

// reads is how many samples all nodes read.
func (l *lists) reads() (all int64) {
	for _, ids := range l.ids {
		all += int64(len(ids))
	}
	return all
}

// reads is how many samples all nodes read in all epochs.
func (a *access) reads() (int64, error) {
	l, err := a.epoch(0)
	if err != nil {
		return 0, err
	}
	return l.reads() * int64(a.job.Epochs), nil
}

// longest is the samples of the node that reads most.
func (l *lists) longest() (most int) {
	for _, ids := range l.ids {
		most = max(most, len(ids))
	}
	return most
}
