package pump

// record is all the pump remembers of a sample: 16 bytes in one array, so that a run touches one
// cache line a sample and 14 M samples cost 227 MB.
//
//	prev, next  links in the bucket queue while the sample is valued
//	place       bucket 21 | pins 11
//	bits        state 2 | member 1 | queued 1 | past uses 4 | uses ahead 4 | handle 20
//
// A pin is a position between the frontier and its release that wants the sample. A member is a
// sample the tier keeps: membership is decided when the frontier passes, the bytes follow.
type record struct {
	prev, next uint32
	place      uint32
	bits       uint32
}

// States of a sample. While its run is in flight a sample stays fetching even after it has
// arrived: the run knows, which saves a pass over the run's records.
const (
	absent   = 0
	fetching = 1 // handle names the run
	present  = 2
)

const (
	stateMask   = 3
	memberBit   = 1 << 2
	queuedBit   = 1 << 3
	pastShift   = 4
	aheadShift  = 8
	countMax    = 15
	handleShift = 12
	maxRuns     = 1 << 20 // handles fit 20 bits

	bucketMask = 1<<21 - 1
	pinOne     = 1 << 21
	pinMask    = 0xffffffff &^ bucketMask
)

func (r *record) state() uint32     { return r.bits & stateMask }
func (r *record) setState(s uint32) { r.bits = r.bits&^stateMask | s }
func (r *record) member() bool      { return r.bits&memberBit != 0 }
func (r *record) pinned() bool      { return r.place >= pinOne }
func (r *record) handle() uint32    { return r.bits >> handleShift }
func (r *record) bucket() uint32    { return r.place & bucketMask }
func (r *record) past() uint32      { return r.bits >> pastShift & countMax }
func (r *record) ahead() uint32     { return r.bits >> aheadShift & countMax }

// fetchedBy makes the sample fetching, by that run.
func (r *record) fetchedBy(handle uint32) {
	r.bits = r.bits&(1<<handleShift-1)&^stateMask | fetching | handle<<handleShift
}

// bump adds one to the count at shift, stopping at its largest value.
func (r *record) bump(shift uint) {
	if r.bits>>shift&countMax < countMax {
		r.bits += 1 << shift
	}
}

// spend takes one from the count at shift, stopping at zero.
func (r *record) spend(shift uint) {
	if r.bits>>shift&countMax > 0 {
		r.bits -= 1 << shift
	}
}
