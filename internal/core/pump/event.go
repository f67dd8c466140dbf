package pump

import (
	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// Instant is nanoseconds since the pump began, real or virtual.
type Instant int64

// MaxRun and MaxRunBytes bound a run: one fetch, one failure bitmap, one reference count.
const (
	MaxRun      = 256
	MaxRunBytes = 4 << 20
)

// Run is consecutive positions of one cursor inside one batch: the unit of events and moves.
// Handle is the pump's own name for it while it is in flight.
type Run struct {
	Cursor int32
	Handle uint32
	First  int64 // position in the cursor's order, counted from its first window
	Count  int32 // ≤ MaxRun
}

// Mask has one bit for each position of a run.
type Mask [MaxRun / 64]uint64

// Set sets bit i.
func (m *Mask) Set(i int) { m[i>>6] |= 1 << (i & 63) }

// Has reports bit i.
func (m *Mask) Has(i int) bool { return m[i>>6]>>(i&63)&1 != 0 }

// Empty reports whether no bit is set.
func (m *Mask) Empty() bool { return m[0]|m[1]|m[2]|m[3] == 0 }

// EventKind says what happened.
type EventKind uint8

// The things that can happen to a pump. Append only: traces store the numbers.
const (
	Attached   EventKind = iota + 1 // a cursor joins: Cursor, N (batch size), Reserve, Follows
	Ordered                         // a window of a cursor's order is known: Cursor, Window
	Credited                        // the consumer can take N more batches: Cursor, N
	Staged                          // a fetch ended: Run, Failed, Unlogged
	Released                        // the consumer is done with batch Seq: Cursor, Seq
	Detached                        // the consumer is gone: Cursor
	Replanned                       // a new plan is in force: Plan
	Logged                          // the log also has the samples of Set
	Unlogged                        // the log has lost the samples of Set
	EventsOver                      // first unused number
)

var eventNames = [...]string{"none", "attached", "ordered", "credited", "staged", "released",
	"detached", "replanned", "logged", "unlogged"}

func (k EventKind) String() string { return name(eventNames[:], int(k)) }

// Event is one thing that happened. Which fields count is told beside each kind.
type Event struct {
	Kind    EventKind
	Cursor  int32
	N       int32
	Seq     uint64
	Reserve int64 // bytes of staging set aside for the cursor: two of its batches
	Run     Run
	Failed  Mask
	// Unlogged are those of the run that the log does not have after all: not appended, or lost.
	Unlogged Mask
	// Set has a bit for each sample. It is the pump's from the event on.
	Set    []uint64
	Window *job.Window
	Plan   *plan.Plan
	// Follows: the cursor's order is the one that the log is carried along.
	Follows bool
}

// MoveKind says what to do.
type MoveKind uint8

// The moves a pump asks of its world. Append only: traces store the numbers.
const (
	Fetch     MoveKind = iota + 1 // bring Mask of Run to staging; Slots of them where kept ones live
	Lease                         // hand batch Seq to the consumer
	Drop                          // free Mask of Run
	Evict                         // free the kept samples Evicted
	Need                          // compute the window of Epoch for Cursor
	Finish                        // Cursor has delivered its last batch
	Refuse                        // batch Seq is larger than all of staging
	Forget                        // Cursor has nothing in flight any more; its number is free
	MovesOver                     // first unused number
)

var moveNames = [...]string{"none", "fetch", "lease", "drop", "evict", "need", "finish",
	"refuse", "forget"}

func (k MoveKind) String() string { return name(moveNames[:], int(k)) }

func name(names []string, k int) string {
	if k < len(names) {
		return names[k]
	}
	return "unknown"
}

// Cause is what a late batch waited for.
type Cause uint8

// Causes of a stall. Append only: they cross the wire.
const (
	None   Cause = iota // it was ready before it was wanted
	Origin              // a fetch from the origin
	Arena               // room in staging
	Order               // the order itself
	Ssd                 // a fetch from the log
	Causes              // how many there are
)

var causeNames = [...]string{"none", "origin", "arena", "order", "ssd"}

func (c Cause) String() string { return name(causeNames[:], int(c)) }

// Move is one decision to carry out.
type Move struct {
	Kind   MoveKind
	Cause  Cause // Lease
	Last   bool  // Lease: last batch of its epoch
	Failed bool  // Lease: a sample of the batch could not be fetched
	Cursor int32
	Epoch  int32 // Fetch, Lease, Need, Refuse
	Batch  int32 // Lease, Refuse: index in the epoch
	Seq    uint64
	Run    Run   // Fetch, Drop; Lease: First and Count alone, Count not bound by MaxRun
	Mask   Mask  // Fetch, Drop
	Slots  Mask  // Fetch
	Ssd    Mask  // Fetch: of Mask, to be read from the log
	Log    Mask  // Fetch: of Mask, to be appended to the log once they are read
	Bytes  int64 // Refuse: what the batch needs

	evicted [maxEvicted]sample.ID // Evict: the first nevict
	nevict  int32
}

// maxEvicted is how many samples an Evict names at most. A policy may evict one for each that it
// admits, and a move for each would be most of what a Step writes.
const maxEvicted = 16

// Evicted are the samples that an Evict names.
func (m *Move) Evicted() []sample.ID { return m.evicted[:m.nevict] }

// AddEvicted names one more; false if there is no room.
func (m *Move) AddEvicted(id sample.ID) bool {
	if int(m.nevict) == len(m.evicted) {
		return false
	}
	m.evicted[m.nevict] = id
	m.nevict++
	return true
}
