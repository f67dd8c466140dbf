package pump

// record is all the pump remembers of a sample: 16 bytes in one array, so that a run touches one
// cache line a sample and 14 M samples cost 227 MB.
//
//	prev, next  neighbours in the bucket queue while the sample is valued; prev of a bucket's first
//	            is the bucket
//	bits        pins 11 | logged 1 | size 24 | handle 20 | uses 4 | first 1 | member 1 | state 2
//
// A pin is a position between the frontier and its release that wants the sample. A member is a
// sample the tier keeps: membership is decided when the frontier passes, the bytes follow. A logged
// sample is in the log, or will be when its fetch ends: that is said as the frontier passes, while
// the record is at hand, and taken back where it proves wrong. The size stands here because the
// dataset's own table of sizes would be a second line to wait for.
type record struct {
	prev, next uint32
	bits       uint64
}

// Record is a record to whoever makes room for one.
type Record = record

// States of a sample. While its run is in flight a sample stays fetching even after it has
// arrived: the run knows, which saves a pass over the run's records.
const (
	absent   = 0
	fetching = 1 // handle names the run
	present  = 2
)

const (
	stateMask   = 3
	memberBit   = 1 << 2 // a member that is valued is in the queue
	firstBit    = 1 << 3 // first in its bucket
	useOne      = 1 << 4
	useMask     = 15 * useOne
	handleShift = 8
	maxRuns     = 1 << 20 // handles fit 20 bits
	handleMask  = (maxRuns - 1) << handleShift
	sizeShift   = 28
	sizeLarge   = 1<<24 - 1 // stands for any size that is too large to stand here
	loggedBit   = 1 << 52
	pinOne      = 1 << 53
	pinMask     = 0x7ff * pinOne
)

func (r *record) state() uint64 { return r.bits & stateMask }

// missing is 1 if the sample is absent, else 0.
func (r *record) missing() int { return int((r.bits&stateMask - 1) >> 63) }

func (r *record) setState(s uint64) { r.bits = r.bits&^stateMask | s }
func (r *record) member() bool      { return r.bits&memberBit != 0 }
func (r *record) pinned() bool      { return r.bits >= pinOne }
func (r *record) logged() bool      { return r.bits&loggedBit != 0 }
func (r *record) handle() uint32    { return uint32(r.bits & handleMask >> handleShift) }
func (r *record) uses() uint32      { return uint32(r.bits & useMask / useOne) }
func (r *record) size() uint32      { return uint32(r.bits >> sizeShift & sizeLarge) }

// setSize is for a record that has no size yet.
func (r *record) setSize(size uint32) { r.bits |= uint64(min(size, sizeLarge)) << sizeShift }

// fetchedBy makes the sample fetching, by that run.
func (r *record) fetchedBy(handle uint32) {
	r.bits = r.bits&^(handleMask|stateMask) | uint64(handle)<<handleShift | fetching
}

// more is a use more than there were, fewer one less; neither leaves the field.
func (r *record) more() uint32  { return min(r.uses()+1, useMask/useOne) }
func (r *record) fewer() uint32 { return max(r.uses(), 1) - 1 }

func (r *record) setUses(n uint32) { r.bits = r.bits&^useMask | uint64(n)*useOne }
