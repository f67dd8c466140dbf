package pump

import (
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/policy"
	"belady/internal/core/sample"
)

// TestQueue: the queue's least is a member of the lowest value there is, good to a bucket.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var rules []policy.Policy
		for _, rule := range policy.Table {
			if !rule.Fixed {
				rules = append(rules, rule)
			}
		}
		rule := rapid.SampledFrom(rules).Draw(rt, "rule")
		n := rapid.SampledFrom([]int{1, 10, 5000, 300_000}).Draw(rt, "samples")
		span := horizon(n)
		recs := make([]record, n)
		q := newQueue(recs, rule, span)
		model := map[sample.ID]policy.Value{}
		now := rapid.Int64Range(0, 1<<40).Draw(rt, "now")
		for range rapid.IntRange(1, 200).Draw(rt, "operations") {
			id := sample.ID(rapid.IntRange(0, min(n, 50)-1).Draw(rt, "id") * max(n/50, 1))
			if _, ok := model[id]; ok {
				q.remove(id)
				delete(model, id)
			} else {
				v := policy.Value{Major: uint8(rapid.IntRange(0, rule.Majors-1).Draw(rt, "major"))}
				v.Minor = now
				if rule.Ahead {
					v.Minor = -now - rapid.Int64Range(0, span/2).Draw(rt, "ahead")
					if rapid.IntRange(0, 9).Draw(rt, "never") == 0 {
						v.Minor = -int64(policy.Never)
					}
				}
				q.insert(id, v)
				model[id] = q.round(v)
			}
			now += rapid.Int64Range(0, span/2000).Draw(rt, "passes")
			check(rt, &q, model, policy.Tick(now))
		}
	})
}

func check(t *rapid.T, q *queue, model map[sample.ID]policy.Value, now policy.Tick) {
	q.touchLeast(now, 10) // a hint that must change nothing
	id, v, ok := q.least(now)
	if ok != (len(model) > 0) {
		t.Fatalf("least says %t, there are %d", ok, len(model))
	}
	if !ok {
		return
	}
	if v != model[id] {
		t.Fatalf("least says %d is worth %+v, it is worth %+v", id, v, model[id])
	}
	for other, w := range model {
		if w.Less(v) {
			t.Fatalf("least is %d, worth %+v, but %d is worth %+v", id, v, other, w)
		}
	}
}

func TestRecordFields(t *testing.T) {
	var r record
	r.setSize(3000)
	r.fetchedBy(maxRuns - 1)
	for range 20 {
		r.setUses(r.more())
	}
	r.setUses(r.fewer())
	r.bits += 3 * pinOne
	if r.handle() != maxRuns-1 || r.state() != fetching || r.uses() != 14 || r.size() != 3000 ||
		!r.pinned() || r.member() {
		t.Errorf("fields overlap: %+v", r)
	}
	for range 20 {
		r.setUses(r.fewer())
	}
	r.bits -= 3 * pinOne
	if r.uses() != 0 || r.pinned() || r.handle() != maxRuns-1 || r.size() != 3000 {
		t.Errorf("fields overlap: %+v", r)
	}
	var large record
	if large.setSize(sizeLarge + 1); large.size() != sizeLarge {
		t.Errorf("a size beyond the field reads %d", large.size())
	}
}
