package policy_test

import (
	"strings"
	"testing"

	"belady/internal/core/policy"
)

// Each policy by what it would rather keep: the first of each pair is worth more.
func TestPreferences(t *testing.T) {
	type facts = policy.Facts
	for _, c := range []struct {
		name       string
		more, less facts
	}{
		{"belady", facts{NextUse: 5}, facts{NextUse: 6}},
		{"belady", facts{NextUse: 5}, facts{NextUse: policy.Never}},
		{"lcache", facts{NextUse: 5}, facts{NextUse: 6}},
		{"frequency", facts{Ahead: 2, NextUse: 9}, facts{Ahead: 1, NextUse: 5}},
		{"frequency", facts{Ahead: 1, NextUse: 5}, facts{Ahead: 1, NextUse: 9}},
		{"frequency", facts{Ahead: 99, NextUse: 5}, facts{Ahead: 15, NextUse: 9}},
		{"lru", facts{LastUse: 6}, facts{LastUse: 5}},
		{"lfu", facts{Past: 2, LastUse: 5}, facts{Past: 1, LastUse: 9}},
		{"lfu", facts{Past: 2, LastUse: 9}, facts{Past: 2, LastUse: 5}},
	} {
		p, err := policy.Find(c.name)
		if err != nil {
			t.Fatal(err)
		}
		more, less := p.Of(c.more), p.Of(c.less)
		if !less.Less(more) || more.Less(less) {
			t.Errorf("%s: %+v is worth %+v, %+v is worth %+v", c.name, c.more, more, c.less, less)
		}
	}
}

// Pin values everything the same: the first come stay.
func TestPinIsIndifferent(t *testing.T) {
	p, err := policy.Find("pin")
	if err != nil {
		t.Fatal(err)
	}
	if p.Of(policy.Facts{NextUse: 1, Past: 3}) != p.Of(policy.Facts{NextUse: 2, LastUse: 7}) {
		t.Error("pin has preferences")
	}
}

// What the pump relies on of every entry of the table.
func TestTable(t *testing.T) {
	for _, p := range policy.Table {
		found, err := policy.Find(p.Name)
		if err != nil || found.Name != p.Name {
			t.Errorf("%s is not found: %v", p.Name, err)
		}
		if p.Fixed != (p.Of == nil) {
			t.Errorf("%s: fixed %t, but has a value function: %t", p.Name, p.Fixed, p.Of != nil)
		}
		if p.Fixed {
			continue
		}
		v := p.Of(policy.Facts{NextUse: 7, LastUse: 3, Past: 1 << 20, Ahead: 1 << 20})
		if int(v.Major) >= p.Majors || p.Majors > policy.Majors {
			t.Errorf("%s: major %d of %d", p.Name, v.Major, p.Majors)
		}
	}
	_, err := policy.Find("best")
	if err == nil || !strings.Contains(err.Error(), "spread, belady") {
		t.Errorf("an unknown policy: %v", err)
	}
	if policy.Default(false) != "spread" || policy.Default(true) != "belady" {
		t.Error("the defaults changed")
	}
}
