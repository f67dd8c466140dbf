package pump

import (
	"math/bits"

	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// queue orders the members of the tier by value: a bucket for each (major, tick), the buckets
// of one major in a ring of ticks, with a bitmap of those that hold something. Every operation is
// O(1) but finding the least, which scans two levels of bitmap. A heap would cost ten times as
// much at seven million entries.
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
	count int
}

const nobody = 1<<32 - 1

// maxBuckets bounds the queue's memory to 4 MiB of heads, whatever the policy.
const maxBuckets = 1 << 20

const never = -int64(policy.Never)

func newQueue(recs []record, rule policy.Policy, horizon int64) queue {
	q := queue{recs: recs, rule: rule}
	limit := uint32(maxBuckets / rule.Majors)
	q.ticks = 64
	for q.ticks < limit/2 && int64(q.ticks) < horizon {
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
	q.full = make([]uint64, n/64)
	q.sums = make([]uint64, (n/64+63)/64)
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
	r.prev, r.next = nobody, head
	r.place = r.place&pinMask | b
	r.bits |= queuedBit
	if head == nobody {
		q.full[b>>6] |= 1 << (b & 63)
		q.sums[b>>12] |= 1 << (b >> 6 & 63)
	} else {
		q.recs[head].prev = uint32(id)
	}
	q.heads[b] = uint32(id)
	q.count++
}

func (q *queue) remove(id sample.ID) {
	r := &q.recs[id]
	if r.next != nobody {
		q.recs[r.next].prev = r.prev
	}
	if r.prev != nobody {
		q.recs[r.prev].next = r.next
	} else {
		b := r.bucket()
		q.heads[b] = r.next
		if r.next == nobody {
			if q.full[b>>6] &^= 1 << (b & 63); q.full[b>>6] == 0 {
				q.sums[b>>12] &^= 1 << (b >> 6 & 63)
			}
		}
	}
	r.bits &^= queuedBit
	q.count--
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
	if q.count == 0 {
		return sample.None, policy.Value{}, false
	}
	low := q.low(now)
	for major := range q.rule.Majors {
		start := uint32(major) * (q.ticks + 64)
		if head := q.heads[start+q.ticks]; head != nobody {
			return sample.ID(head), q.value(start+q.ticks, now), true
		}
		from := uint32(low) & (q.ticks - 1)
		b, ok := q.scan(start+from, start+q.ticks)
		if !ok {
			b, ok = q.scan(start, start+from)
		}
		if ok {
			return sample.ID(q.heads[b]), q.value(b, now), true
		}
	}
	return sample.None, policy.Value{}, false
}

// scan returns the first non-empty bucket in [from, to).
func (q *queue) scan(from, to uint32) (uint32, bool) {
	for from < to {
		w := from >> 6
		if word := q.full[w] >> (from & 63); word != 0 {
			b := from + uint32(bits.TrailingZeros64(word))
			return b, b < to
		}
		// Skip the empty words by the summary.
		w++
		from = w << 6
		for from < to {
			sum := q.sums[w>>6] >> (w & 63)
			if sum != 0 {
				w += uint32(bits.TrailingZeros64(sum))
				from = w << 6
				break
			}
			w = (w>>6 + 1) << 6
			from = w << 6
		}
	}
	return 0, false
}
