package ssd

import (
	"belady/internal/core/dataset"
	"belady/internal/store/tier"
)

// Holds is how many bytes of records, in plan.RecordCost's unit, a new static log of the dataset
// would hold in one directory of that quota whose file system has room for it, and the largest
// sample it would take.
func Holds(sizes dataset.Sizes, quota int64) (bytes int64, most uint32) {
	l := log{shape: shapeOf(tier.Config{Sizes: sizes, Layout: tier.Static}, quota-apart, 1),
		writers: make([]*writer, 1)}
	l.writers[0] = new(writer)
	slots, _ := l.shape.makes(quota-apart, l.missing())
	return l.shape.holds(slots), l.shape.sampleMax
}
