package sim

import (
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// link models the origin: a request takes the first free of Concurrency lanes, waits Latency, then
// its bytes take their turn in one pipe of Rate bytes a second.
type link struct {
	Origin
	lanes    []pump.Instant // min-heap of the times at which lanes fall free
	pipe     pump.Instant   // when the pipe falls free
	requests int64
}

func newLink(o Origin) link { return link{Origin: o, lanes: make([]pump.Instant, o.Concurrency)} }

// request returns when the last byte arrives.
func (l *link) request(now pump.Instant, id sample.ID, size int64) pump.Instant {
	l.requests++
	latency := l.Latency
	if l.Jitter != nil {
		latency += l.Jitter(id)
	}
	ready := max(now, l.lanes[0]) + latency
	end := max(ready, l.pipe) + pump.Instant(size*1e9/l.Rate)
	l.pipe = end
	l.lanes[0] = end
	l.sink()
	return end
}

// write puts bytes into the pipe, where they take their turn at another rate.
func (l *link) write(now pump.Instant, bytes, rate int64) {
	l.pipe = max(now, l.pipe) + pump.Instant(bytes*1e9/rate)
}

// sink restores the heap after its root has grown.
func (l *link) sink() {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(l.lanes) {
			return
		}
		if child+1 < len(l.lanes) && l.lanes[child+1] < l.lanes[child] {
			child++
		}
		if l.lanes[i] <= l.lanes[child] {
			return
		}
		l.lanes[i], l.lanes[child] = l.lanes[child], l.lanes[i]
		i = child
	}
}
