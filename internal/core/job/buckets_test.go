package job_test

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/job"
	"belady/internal/core/order"
	"belady/internal/core/sample"
)

type bucketSizes []uint32

func (s bucketSizes) Len() int                 { return len(s) }
func (s bucketSizes) Size(id sample.ID) uint32 { return s[id] }

// Laws: along the merged order buckets only rise; none but the samples' own sizes makes one larger
// than asked, and all but the last are full; every sample has one.
func TestBuckets(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, ranks := rapid.IntRange(1, 400).Draw(rt, "samples"), rapid.IntRange(1, 4).Draw(rt, "world")
		s := make(bucketSizes, n)
		for i := range s {
			s[i] = uint32(rapid.IntRange(0, 900).Draw(rt, "size"))
		}
		spec := order.Spec{Kind: order.Distributed, Samples: n, World: ranks, Batch: 4, Seed: 3,
			DropLast: rapid.Bool().Draw(rt, "drop last")}
		o, err := order.New(spec)
		if err != nil {
			rt.Fatal(err)
		}
		each := rapid.Int64Range(1, 20_000).Draw(rt, "bytes")
		odd := rapid.Bool().Draw(rt, "half of them")
		in := func(id sample.ID) bool { return !odd || id%2 == 1 }
		got := make([]uint16, n)
		count, err := job.Buckets(o, &spec, 2, s, in, each, got)
		if err != nil {
			rt.Fatal(err)
		}
		var lists [][]sample.ID
		for rank := range ranks {
			e, err := o.Epoch(2, rank, 0, nil)
			if err != nil {
				rt.Fatal(err)
			}
			lists = append(lists, e.IDs)
		}
		bytes, before := make([]int64, count), uint16(0)
		largest := make([]int64, count)
		seen := map[sample.ID]bool{}
		for pos := range len(lists[0]) {
			for _, ids := range lists {
				if pos >= len(ids) || seen[ids[pos]] || !in(ids[pos]) {
					continue
				}
				id := ids[pos]
				seen[id] = true
				if got[id] < before {
					rt.Fatalf("sample %d is in bucket %d, after %d", id, got[id], before)
				}
				before = got[id]
				bytes[before] += int64(s[id])
				largest[before] = max(largest[before], int64(s[id]))
			}
		}
		for b := range bytes {
			if bytes[b] > max(each, largest[b]) {
				rt.Fatalf("bucket %d has %d bytes, asked were %d", b, bytes[b], each)
			}
			if b > 0 && bytes[b-1]+bytes[b] <= each-900 {
				rt.Fatalf("buckets %d and %d would fit in one", b-1, b)
			}
		}
		for id, b := range got {
			if int(b) >= count {
				rt.Fatalf("sample %d is in bucket %d of %d", id, b, count)
			}
		}
	})
}
