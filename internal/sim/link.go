package sim

import (
	"belady/internal/core/perf"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// link models the origin: requests begin in turn, no more at once than there may be, wait Latency,
// and then their bytes take their turn in one pipe of Rate bytes a second. So they end in turn too.
type link struct {
	Origin
	pace     perf.Pacer // counts where the origin is paced
	flight   []span     // requests in flight, the oldest first
	start    pump.Instant
	pipe     pump.Instant // when the pipe falls free
	requests int64
}

// span is when a request began and ended.
type span struct{ start, end pump.Instant }

func newLink(o Origin) link { return link{Origin: o, pace: perf.NewPacer(o.Concurrency)} }

// request returns when the last byte arrives.
func (l *link) request(now pump.Instant, id sample.ID, size int64) pump.Instant {
	l.requests++
	latency := l.Latency
	if l.Jitter != nil {
		latency += l.Jitter(id)
	}
	l.start = max(now, l.start)
	for len(l.flight) > 0 && (l.flight[0].end <= l.start || len(l.flight) >= l.limit()) {
		l.start = max(l.start, l.flight[0].end)
		l.pace.Ended(int64(l.flight[0].end), int64(l.flight[0].end-l.flight[0].start), 1,
			len(l.flight))
		l.flight = l.flight[1:]
	}
	end := max(l.start+latency, l.pipe) + pump.Instant(size*1e9/l.Rate)
	l.pipe = end
	l.flight = append(l.flight, span{l.start, end})
	return end
}

// limit is how many requests may be in flight.
func (l *link) limit() int {
	if l.Paced {
		return l.pace.Limit()
	}
	return l.Concurrency
}

// write puts bytes into the pipe, where they take their turn at another rate.
func (l *link) write(now pump.Instant, bytes, rate int64) {
	l.pipe = max(now, l.pipe) + pump.Instant(bytes*1e9/rate)
}
