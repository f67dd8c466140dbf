package pump

import (
	"math/bits"

	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// queue orders the members of the tier by value: a bucket for each (major, tick), the buckets
// of one major in a ring of ticks, with a bitmap of those that hold something. Every operation is
// O(1): the bitmap has summaries, so that finding the least takes a handful of loads. A heap would
// cost ten times as much at seven million entries.
//
// The ring works because the minors alive at one time span less than it: next uses lie within the
// horizon ahead of the clock, last uses within a few epochs behind it. An eighth of the ring is
// left on the near side, for cursors that lag behind the reference.
type queue struct {
	recs  []record
	rule  policy.Policy
	ticks uint32 // buckets in a ring, a power of two
	shift uint   // ticks per bucket, as a power of two
	heads []uint32
	full  []uint64 // a bit for each bucket that holds something
	sums  []uint64 // a bit for each word of full that is not zero
	tops  []uint64 // a bit for each word of sums that is not zero
	some  uint32   // a bit for each major that may have members
	known least
	line
}

// least is the bucket of the least value and that value, as long as they are known.
type least struct {
	bucket uint32 // nobody: not known
	value  policy.Value
	low    int64 // where the rings began then: as time moves on, what is overdue comes round
}

const nobody = 1<<32 - 1

// maxBuckets bounds the queue's memory to 4 MiB of heads, or to 4 bytes a sample where those are
// more. maxTicks bounds one ring, whose heads are to stay in cache.
const (
	maxBuckets = 1 << 20
	maxTicks   = maxBuckets / 2
)

const never = -int64(policy.Never)

func newQueue(recs []record, rule policy.Policy, horizon int64) queue {
	q := queue{recs: recs, rule: rule, known: least{bucket: nobody}}
	limit := min(max(maxBuckets, len(recs))/rule.Majors/2, maxTicks)
	q.ticks = 64
	for int(q.ticks) < limit && int64(q.ticks) < horizon {
		q.ticks <<= 1
	}
	for int64(q.ticks)<<q.shift < horizon {
		q.shift++
	}
	n := int(q.ticks+64) * rule.Majors // 64 more: the lowest bucket, on a word of its own
	q.heads = make([]uint32, n)
	for i := range q.heads {
		q.heads[i] = nobody
	}
	// A word more at each level: a scan may look one past the end.
	q.full = make([]uint64, n/64+1)
	q.sums = make([]uint64, len(q.full)/64+1)
	q.tops = make([]uint64, len(q.sums)/64+1)
	return q
}

// bucket maps a value to its place: ring first, then the word whose first bit is the lowest value.
func (q *queue) bucket(v policy.Value) uint32 {
	start := uint32(v.Major) * (q.ticks + 64)
	if v.Minor == never {
		return start + q.ticks
	}
	return start + uint32(v.Minor>>q.shift)&(q.ticks-1)
}

func (q *queue) insert(id sample.ID, v policy.Value) {
	r := &q.recs[id]
	b := q.bucket(v)
	head := q.heads[b]
	r.prev, r.next = b, head
	r.bits |= firstBit
	if head == nobody {
		q.full[b>>6] |= 1 << (b & 63)
		q.sums[b>>12] |= 1 << (b >> 6 & 63)
		q.tops[b>>18] |= 1 << (b >> 12 & 63)
	} else {
		old := &q.recs[head]
		old.prev = uint32(id)
		old.bits &^= firstBit
	}
	q.heads[b] = uint32(id)
	q.some |= 1 << v.Major
	if v.Less(q.known.value) {
		q.known.bucket = nobody
	}
}

func (q *queue) remove(id sample.ID) {
	r := &q.recs[id]
	first := r.bits & firstBit
	if r.next != nobody {
		next := &q.recs[r.next]
		next.prev = r.prev
		next.bits |= first
	}
	if first == 0 {
		q.recs[r.prev].next = r.next
	} else {
		q.heads[r.prev] = r.next
		if r.next == nobody {
			q.emptied(r.prev)
		}
	}
	r.bits &^= firstBit
}

// take removes the least.
func (q *queue) take(id sample.ID) {
	q.remove(id)
	q.taken++
}

// emptied clears a bucket's bit, and those that summed it up alone.
func (q *queue) emptied(b uint32) {
	if b == q.known.bucket {
		q.known.bucket = nobody
	}
	if q.full[b>>6] &^= 1 << (b & 63); q.full[b>>6] != 0 {
		return
	}
	if q.sums[b>>12] &^= 1 << (b >> 6 & 63); q.sums[b>>12] == 0 {
		q.tops[b>>18] &^= 1 << (b >> 12 & 63)
	}
}

// round gives the least value of v's bucket: what least would say of it.
func (q *queue) round(v policy.Value) policy.Value {
	if v.Minor != never {
		v.Minor = v.Minor >> q.shift << q.shift
	}
	return v
}

// low is the lowest minor the rings can hold now, in buckets.
func (q *queue) low(now policy.Tick) int64 {
	high := int64(now)
	if q.rule.Ahead {
		high = -high
	}
	return high>>q.shift + 1 - int64(q.ticks-q.ticks/8)
}

// value is the value a bucket stands for.
func (q *queue) value(bucket uint32, now policy.Tick) policy.Value {
	major := bucket / (q.ticks + 64)
	b := bucket % (q.ticks + 64)
	if b == q.ticks {
		return policy.Value{Major: uint8(major), Minor: never}
	}
	low := q.low(now)
	minor := low + int64((b-uint32(low))&(q.ticks-1))
	return policy.Value{Major: uint8(major), Minor: minor << q.shift}
}

// least finds the member worth least and its value, good to a bucket.
func (q *queue) least(now policy.Tick) (sample.ID, policy.Value, bool) {
	if low := q.low(now); q.known.bucket == nobody || q.known.low != low {
		b := q.lowest(now)
		if b == nobody {
			return sample.None, policy.Value{}, false
		}
		q.known = least{bucket: b, value: q.value(b, now), low: low}
	}
	return sample.ID(q.heads[q.known.bucket]), q.known.value, true
}

// lowest finds the bucket of the least value, or nobody.
func (q *queue) lowest(now policy.Tick) uint32 {
	from := uint32(q.low(now)) & (q.ticks - 1)
	for q.some != 0 {
		start := uint32(bits.TrailingZeros32(q.some)) * (q.ticks + 64)
		if q.heads[start+q.ticks] != nobody {
			return start + q.ticks
		}
		if b := q.after(start + from); b < start+q.ticks {
			return b
		}
		if b := q.after(start); b < start+from {
			return b
		}
		q.some &= q.some - 1
	}
	return nobody
}

// after returns the first non-empty bucket from b on, or nobody.
func (q *queue) after(b uint32) uint32 {
	w := b >> 6
	if word := q.full[w] >> (b & 63); word != 0 {
		return b + uint32(bits.TrailingZeros64(word))
	}
	w++
	s := w >> 6
	if sum := q.sums[s] >> (w & 63); sum != 0 {
		w += uint32(bits.TrailingZeros64(sum))
		return w<<6 + uint32(bits.TrailingZeros64(q.full[w]))
	}
	s++
	for t := s >> 6; t < uint32(len(q.tops)); t++ {
		top := q.tops[t]
		if t == s>>6 {
			top = top >> (s & 63) << (s & 63)
		}
		if top != 0 {
			s = t<<6 + uint32(bits.TrailingZeros64(top))
			w = s<<6 + uint32(bits.TrailingZeros64(q.sums[s]))
			return w<<6 + uint32(bits.TrailingZeros64(q.full[w]))
		}
	}
	return nobody
}
