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

	mu        sync.Mutex
	last      [failuresMany]time.Time // of the latest failures, a ring
	next      int
	good, bad int       // in a row, while not sound
	tried     time.Time // when a directory that is down was last read
}

func (h *health) state() state   { return state(h.now.Load()) }
func (h *health) writable() bool { return h.state() == sound }

// admit says whether a read may go to the device now; if so its outcome must be told to outcome.
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

// outcome takes how an admitted read went, and returns the state when that changed it.
func (h *health) outcome(ok bool, now time.Time) (state, bool) {
	if ok && h.state() == sound {
		return sound, false
	}
	defer h.trying.Store(false)
	if !ok {
		return h.failed(now)
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
	first := h.last[h.next]
	h.last[h.next] = now
	h.next = (h.next + 1) % failuresMany
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
