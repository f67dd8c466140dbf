package daemon

import (
	"fmt"
	"sync/atomic"

	"belady/internal/node/event"
	"belady/internal/store/jobs"
)

// jobLog writes the record of jobs. Sessions hand it lines from the data path, so it never makes
// them wait: what the disk cannot take in time is left out and said.
type jobLog struct {
	store *jobs.Store
	tell  event.Listener
	queue chan *jobs.Record
	done  chan struct{}
	lost  atomic.Int64
}

// jobLines is how many lines may wait for the disk: some epochs of many ranks.
const jobLines = 1024

func newJobLog(dir string, tell event.Listener) *jobLog {
	l := &jobLog{store: jobs.New(dir), tell: tell, queue: make(chan *jobs.Record, jobLines),
		done: make(chan struct{})}
	go l.run()
	return l
}

// put leaves a line to be written.
func (l *jobLog) put(r jobs.Record) {
	select {
	case l.queue <- &r:
	default:
		l.lost.Add(1)
	}
}

func (l *jobLog) run() {
	defer close(l.done)
	failing := false
	for r := range l.queue {
		err := l.store.Append(*r)
		if err != nil && !failing { // once, not for every batch of a job on a full disk
			l.tell(event.Trouble{What: "keep the record of jobs", Err: err})
		}
		failing = err != nil
		if n := l.lost.Swap(0); n > 0 {
			l.tell(event.Trouble{What: "keep the record of jobs",
				Err: fmt.Errorf("the disk is too slow: %d lines were left out", n)})
		}
	}
}

// close writes out what waits. Nobody may put any more.
func (l *jobLog) close() {
	close(l.queue)
	<-l.done
}
