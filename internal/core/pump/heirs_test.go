package pump_test

import (
	"testing"

	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// TestRetryWithManyHeirs: a run that counted on a fetch which failed is not failed because whoever
// fetches again has as many heirs as it can take; it waits for its turn.
func TestRetryWithManyHeirs(t *testing.T) {
	const shared, own = 0, 1
	p, err := plan.Make(plan.Input{Sizes: sizes{10, 10}, Policy: "spread", Staging: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	pm := pump.New(p)
	runs := map[int32]pump.Run{} // by cursor, the fetch it asked for last
	leased := map[int32]bool{}   // whether it failed
	step := func(events ...pump.Event) {
		t.Helper()
		for _, m := range pm.Step(1, events, nil) {
			switch m.Kind {
			case pump.Fetch:
				runs[m.Cursor] = m.Run
			case pump.Lease:
				leased[m.Cursor] = m.Failed
			}
		}
	}
	attach := func(cursor int32, ids ...sample.ID) {
		t.Helper()
		step(pump.Event{Kind: pump.Attached, Cursor: cursor, N: int32(len(ids))},
			pump.Event{Kind: pump.Credited, Cursor: cursor, N: 1},
			pump.Event{Kind: pump.Ordered, Cursor: cursor, Window: &job.Window{IDs: ids,
				Ends: []uint32{uint32(len(ids))}, LastOfEpoch: true, LastOfJob: true}})
	}
	attach(0, shared) // fetches it, and will fail
	attach(1, shared)
	attach(2, shared)
	attach(3, shared, own)
	step(pump.Event{Kind: pump.Staged, Run: runs[0], Failed: pump.Mask{1}})
	if _, ok := runs[1]; !ok {
		t.Fatal("nobody fetches again")
	}
	for cursor := range int32(3) {
		attach(4+cursor, shared) // with cursor 2, as many heirs as a run can take
	}
	step(pump.Event{Kind: pump.Staged, Run: runs[3]})
	step()
	step(pump.Event{Kind: pump.Staged, Run: runs[1]})
	step()
	for cursor := range int32(7) {
		if failed, ok := leased[cursor]; !ok || failed != (cursor == 0) {
			t.Errorf("cursor %d: leased %t, failed %t", cursor, ok, failed)
		}
	}
}
