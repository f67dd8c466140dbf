package throttle

import (
	"math/bits"
	"time"
)

// idleCredit is how much unused time the pipe gives back: enough to forgive a late wake-up of the
// reader, too little to count as a burst.
const idleCredit = 5 * time.Millisecond

// pipe is a serial line of a fixed rate, as a timeline: each request takes the next free stretch
// of it. Deadlines are absolute and the remainder of each division is carried, so neither late
// timers nor rounding change the long-run rate. It decides; the caller waits.
type pipe struct {
	rate      uint64 // bytes per second; 0: unlimited
	next      int64  // ns since the origin was opened: when the line is next free
	remainder uint64 // of the last division, in byte·ns/s
}

// reserve takes the stretch for n bytes asked for at now and returns when its last byte is through.
func (p *pipe) reserve(now int64, n uint64) int64 {
	if p.rate == 0 {
		return now
	}
	if floor := now - int64(idleCredit); p.next < floor {
		p.next, p.remainder = floor, 0
	}
	hi, lo := bits.Mul64(n, uint64(time.Second))
	lo, carry := bits.Add64(lo, p.remainder, 0)
	// A request of more than rate × 2⁶⁴ ns cannot be: sizes are below 2³² and rates above zero.
	quotient, remainder := bits.Div64(hi+carry, lo, p.rate)
	p.next += int64(quotient)
	p.remainder = remainder
	return p.next
}

// slot is a place inside the origin and the history of its last read.
type slot struct {
	due      int64 // when the read should have ended
	released int64 // when it did
}

// credit is how much earlier than its latency a read begun at start ends, to make up for the
// slot's last read having ended late: timers are late by up to a millisecond, and without this
// requests × latency / concurrency would grow by it. There is none unless the slot was wanted all
// the while: then a read has its full latency.
func (s slot) credit(start int64, latency time.Duration, waited bool) int64 {
	const turnaround = int64(time.Millisecond)
	if s.due == 0 || (!waited && start-s.released > turnaround) {
		return 0
	}
	return max(0, min(start-s.due, int64(idleCredit), int64(latency)/2))
}
