package ring_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/ring"
)

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("node%d", i))
	}
	return all
}

// Law: whatever dies, only its own keys move, and none to a dead node.
func TestOnlyLostKeysMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "nodes")
		r, err := ring.New(names(n), rapid.IntRange(1, 120).Draw(t, "points"))
		if err != nil {
			t.Fatal(err)
		}
		gone := make([]bool, n)
		for range rapid.IntRange(0, n).Draw(t, "deaths") {
			gone[rapid.IntRange(0, n-1).Draw(t, "dead")] = true
		}
		alive := 0
		for _, g := range gone {
			if !g {
				alive++
			}
		}
		dead := func(node int) bool { return gone[node] }
		for i := range 300 {
			hash := ring.Hash(fmt.Sprintf("sample %d", i))
			before, after := r.Owner(hash), r.OwnerWithout(hash, dead)
			switch {
			case alive == 0 && after != -1:
				t.Fatalf("%d owns where all are dead", after)
			case alive == 0:
			case gone[after]:
				t.Fatalf("dead node %d owns", after)
			case !gone[before] && after != before:
				t.Fatalf("key of living node %d moves to %d", before, after)
			}
		}
	})
}

// A node that is removed and a node that is dead are the same to every key.
func TestDeadIsRemoved(t *testing.T) {
	all, err := ring.New(names(12), 50)
	if err != nil {
		t.Fatal(err)
	}
	fewer, err := ring.New(names(11), 50)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		hash := ring.Hash(fmt.Sprint(i))
		got := all.OwnerWithout(hash, func(node int) bool { return node == 11 })
		if want := fewer.Owner(hash); got != want {
			t.Fatalf("key %d: %d with node 11 dead, %d without it", i, got, want)
		}
	}
}

func TestBadRings(t *testing.T) {
	for name, bad := range map[string]struct {
		names  []string
		points int
	}{
		"no nodes": {nil, 10}, "no points": {names(2), 0}, "negative": {names(2), -1},
		"twice": {[]string{"a", "b", "a"}, 10}, "too many": {names(2), ring.MaxPoints},
	} {
		if _, err := ring.New(bad.names, bad.points); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
