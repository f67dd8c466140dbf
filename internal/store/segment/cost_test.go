package segment

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// TestRecordCost holds what plans charge for a record to what it takes: its own bytes, the gap that
// its alignment leaves, and its entry. Records of one kind in a row cost exactly that; where small
// and large ones take turns a gap may be up to a block wider.
func TestRecordCost(t *testing.T) {
	if plan.Direct != DirectSize {
		t.Fatalf("samples are direct from %d bytes on in plans, from %d in segments",
			plan.Direct, DirectSize)
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.Uint32Range(0, DirectSize-1),
			rapid.Uint32Range(DirectSize, 300000)).Draw(t, "size")
		var s Builder
		s.Begin(bind(1), Tag{Generation: 1}, make([]byte, 2<<20))
		b := content(sample.ID(1), int(size))
		first, _ := s.Add(1, b)
		second, ok := s.Add(2, b)
		if took := int64(second.At-first.At) + entryBytes; !ok || took != plan.RecordCost(size) {
			t.Fatalf("a record of %d bytes takes %d, plans charge %d", size, took, plan.RecordCost(size))
		}
	})
}
