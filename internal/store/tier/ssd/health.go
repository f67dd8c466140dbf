package ssd

import (
	"sync"
	"sync/atomic"
	"time"
)

// state is how far a directory is trusted.
type state int32

const (
	sound    state = iota // read and written
	unstable              // one read at a time, nothing written
	down                  // one read a second, nothing written
	gone                  // another file system, or none: not touched
)

func (s state) String() string {
	return [...]string{"ok", "unstable", "down", "down"}[s]
}

const (
	failuresMany = 3               // so many of them …
	failuresSpan = time.Minute     // … within this make a directory unstable
	damagedShare = 100             // one record in so many may be damaged, and is no failure
	damagedTold  = 10              // damaged records that are told singly, in a minute
	cleanReads   = 60              // so many in a row make it sound again
	badReads     = 60              // so many in a row, while unstable, make it down
	downPause    = time.Second     // between reads that try a directory that is down
	spacePause   = 5 * time.Second // between looks at which file system is there
)

// health counts a directory's failures and says when it may be used.
type health struct {
	id       uint64 // of the file system that was locked
	now      atomic.Int32
	trying   atomic.Bool // a read of an unstable directory is under way
	failures atomic.Int64
	lately   lately

	mu        sync.Mutex
	last      [failuresMany]time.Time // of the latest failures, a ring
	next      int
	good, bad int       // in a row, while not sound
	tried     time.Time // when a directory that is down was last read
}

func (h *health) state() state   { return state(h.now.Load()) }
func (h *health) writable() bool { return h.state() == sound }

// admit says whether a read may go to the device now; if so took must be told its outcome.
func (h *health) admit(now time.Time) bool {
	switch h.state() {
	case sound:
		return true
	case gone:
		return false
	}
	if !h.trying.CompareAndSwap(false, true) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state() == down && now.Sub(h.tried) < downPause {
		h.trying.Store(false)
		return false
	}
	h.tried = now
	return true
}

// outcome is how an admitted read went: how many records it brought, how many of them did not fit
// their sums, and whether the device gave an error.
type outcome struct {
	records, damaged int
	failed           bool
}

// took takes the outcome of an admitted read, and returns the state when that changed it. A few
// damaged records among many are sectors gone bad, which the log drops and writes elsewhere; only
// where they are more than that is the directory at fault.
func (h *health) took(o outcome, now time.Time) (state, bool) {
	reads, damaged := h.lately.count(o, now)
	failed := o.failed || o.damaged > 0 && damaged*damagedShare > reads
	if !failed && h.state() == sound {
		return sound, false
	}
	defer h.trying.Store(false)
	if failed {
		return h.failed(now)
	}
	if o.damaged > 0 {
		return sound, false // neither way
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.good, h.bad = h.good+1, 0
	if h.good < cleanReads || h.state() == gone {
		return sound, false
	}
	h.last = [failuresMany]time.Time{}
	return h.become(sound)
}

// failed counts a failure of any kind, and returns the state when that changed it.
func (h *health) failed(now time.Time) (state, bool) {
	h.failures.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.good, h.bad = 0, h.bad+1
	h.last[h.next] = now
	h.next = (h.next + 1) % failuresMany
	first := h.last[h.next]
	switch h.state() {
	case sound:
		if !first.IsZero() && now.Sub(first) <= failuresSpan {
			return h.become(unstable)
		}
	case unstable:
		if h.bad >= badReads {
			return h.become(down)
		}
	}
	return sound, false
}

// looked takes which file system is there, and returns the state when that changed it.
func (h *health) looked(id uint64, err error) (state, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := err == nil && id == h.id
	switch was := h.state(); {
	case !there && was != gone:
		return h.become(gone)
	case there && was == gone:
		return h.become(unstable) // it has to show that it reads
	}
	return sound, false
}

func (h *health) become(s state) (state, bool) {
	h.good, h.bad = 0, 0
	h.now.Store(int32(s))
	return s, true
}

// undecided takes back an admission whose read will be tried in other ways.
func (h *health) undecided() { h.trying.Store(false) }

// lately counts what was read in this half of a minute and the one before.
type lately struct {
	half  atomic.Int64 // since 1970
	reads [2]struct{ records, damaged atomic.Int64 }
}

// count adds an outcome and returns what was read lately. It takes no lock, since all reads of all
// goroutines come here: a few that meet the begin of a half minute may be counted in neither.
func (l *lately) count(o outcome, now time.Time) (records, damaged int64) {
	half := now.Unix() / int64(failuresSpan/time.Second/2)
	if was := l.half.Load(); was != half && l.half.CompareAndSwap(was, half) {
		l.reads[half%2].records.Store(0)
		l.reads[half%2].damaged.Store(0)
		if was != half-1 {
			l.reads[1-half%2].records.Store(0)
			l.reads[1-half%2].damaged.Store(0)
		}
	}
	l.reads[half%2].records.Add(int64(o.records))
	if o.damaged == 0 {
		return 0, 0 // nobody asks
	}
	l.reads[half%2].damaged.Add(int64(o.damaged))
	for i := range l.reads {
		records += l.reads[i].records.Load()
		damaged += l.reads[i].damaged.Load()
	}
	return records, damaged
}

// few tells whether so little was damaged lately that each record is worth a word.
func (l *lately) few() bool {
	return l.reads[0].damaged.Load()+l.reads[1].damaged.Load() < damagedTold
}
