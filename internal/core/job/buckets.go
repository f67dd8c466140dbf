package job

import (
	"belady/internal/core/dataset"
	"belady/internal/core/order"
	"belady/internal/core/sample"
)

// maxBuckets bounds the buckets of an epoch; the last takes what is left.
const maxBuckets = 1<<16 - 1

// Buckets cuts an epoch into stretches of bucketBytes of the samples that in names, all ranks
// merged by position, and writes into dst, for each sample, the stretch that reads it first. It
// returns how many there are. A sample that the epoch does not read stands in the last: it must be
// somewhere.
func Buckets(o order.Order, spec *order.Spec, epoch int, s dataset.Sizes,
	in func(sample.ID) bool, bucketBytes int64, dst []uint16) (int, error) {
	const none = maxBuckets
	for i := range dst {
		dst[i] = none
	}
	lists := make([][]sample.ID, spec.Ranks())
	longest := 0
	for rank := range lists {
		e, err := o.Epoch(epoch, rank, 0, nil)
		if err != nil {
			return 0, err
		}
		lists[rank] = e.IDs
		longest = max(longest, len(e.IDs))
	}
	last, filled := 0, int64(0)
	for pos := range longest {
		for _, ids := range lists {
			if pos >= len(ids) || dst[ids[pos]] != none || !in(ids[pos]) {
				continue
			}
			size := int64(s.Size(ids[pos]))
			if filled > 0 && filled+size > bucketBytes && last < maxBuckets-1 {
				last, filled = last+1, 0
			}
			filled += size
			dst[ids[pos]] = uint16(last)
		}
	}
	for i := range dst {
		if dst[i] == none {
			dst[i] = uint16(last)
		}
	}
	return last + 1, nil
}
