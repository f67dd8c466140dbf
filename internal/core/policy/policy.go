// Package policy says what a sample is worth to a tier: one pure function from facts to a value.
//
// A policy decides nothing. Admission, "do no harm", eviction and re-valuing are written once, in
// the pump, for every policy; a new policy is one function and one line in the table below.
package policy

import (
	"fmt"
	"math"
	"strings"

	"belady/internal/core/sample"
)

// Tick is time as the pump counts it: positions of its reference cursor.
type Tick int64

// Never is the next use of a sample that no known order reads again.
const Never Tick = math.MaxInt64

// Facts is all that a policy may know of a sample.
type Facts struct {
	ID      sample.ID
	NextUse Tick   // first use at or after the frontier, or Never
	LastUse Tick   // the use at the frontier
	Past    uint32 // uses so far
	Ahead   uint32 // uses in the known future, the whole horizon
}

// Value orders samples: higher is kept longer. Major counts first; Minor breaks ties and is a tick
// (negated for next use, so that nearer is higher).
type Value struct {
	Major uint8 // < Majors
	Minor int64
}

// Majors bounds Value.Major so that a bucket queue can hold every value.
const Majors = 16

// Less reports whether v is worth less than w.
func (v Value) Less(w Value) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// Policy is a named value function and what it asks of the pump.
type Policy struct {
	Name string
	// Of is the value function; nil if the policy is Fixed.
	Of func(Facts) Value
	// Fixed: the kept set is the plan's spread set and never changes; nothing is ever valued or
	// evicted, and a sample that is not in the set passes through staging only.
	Fixed bool
	// Ahead: Minor is a negated next use; otherwise it is a past tick. Tells the queue which way
	// time carries the values it holds.
	Ahead bool
	// Majors is how many values Major takes.
	Majors int
	// Counts: the policy reads Facts.Ahead, so known orders are counted as they arrive.
	Counts bool
}

func belady(f Facts) Value { return Value{Minor: -int64(f.NextUse)} }

// lcache is LCache's rule, for comparison: keep what the next epoch reads first. Where every sample
// is used once an epoch that is belady's choice too, under the name it is published by.
func lcache(f Facts) Value { return belady(f) }

func frequency(f Facts) Value {
	return Value{Major: clamp(f.Ahead), Minor: -int64(f.NextUse)}
}

func lru(f Facts) Value { return Value{Minor: int64(f.LastUse)} }

func lfu(f Facts) Value { return Value{Major: clamp(f.Past), Minor: int64(f.LastUse)} }

func pin(Facts) Value { return Value{} }

func clamp(n uint32) uint8 { return uint8(min(n, Majors-1)) }

// Table lists every policy by name.
var Table = []Policy{
	{Name: "spread", Fixed: true},
	{Name: "belady", Of: belady, Ahead: true, Majors: 1},
	{Name: "frequency", Of: frequency, Ahead: true, Majors: Majors, Counts: true},
	{Name: "lcache", Of: lcache, Ahead: true, Majors: 1},
	{Name: "pin", Of: pin, Majors: 1},
	{Name: "lru", Of: lru, Majors: 1},
	{Name: "lfu", Of: lfu, Majors: Majors},
}

// Names lists the known policies, in the table's order.
func Names() []string {
	names := make([]string, len(Table))
	for i, p := range Table {
		names[i] = p.Name
	}
	return names
}

// Find returns the policy of that name; the error lists the known ones.
func Find(name string) (Policy, error) {
	for _, p := range Table {
		if p.Name == name {
			return p, nil
		}
	}
	return Policy{}, fmt.Errorf("unknown policy %q: use one of %s",
		name, strings.Join(Names(), ", "))
}

// Default is the policy a job gets when it names none: the spread set where every sample is used
// once an epoch, belady where uses repeat.
func Default(repeats bool) string {
	if repeats {
		return "belady"
	}
	return "spread"
}
