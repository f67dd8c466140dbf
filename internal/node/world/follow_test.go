package world

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"belady/internal/store/tier"
)

// takeFollowed returns what a log was told to follow, up to now.
func (m *memory) takeFollowed() (followed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	followed, m.followed = m.followed, nil
	return followed
}

// TestAJobThatBeginsAgain in the same order, before the log was told of the first one's end, is
// carried as that was. And while an epoch's buckets are computed, the world does not stand still.
func TestAJobThatBeginsAgain(t *testing.T) {
	m := newMemory(t)
	m.layout = tier.Carry
	b, _ := logged(t, m, nil)
	one, two := b.newRank(0), b.newRank(0)
	b.attach(one, b.reading(16, 3), 3)
	if err := one.wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := m.takeFollowed(), []string{"1", "2"}; !slices.Equal(got, want) {
		t.Errorf("followed %v, want %v", got, want)
	}
	b.following.mu.Lock() // as one who computes buckets
	late := time.AfterFunc(10*time.Second, b.following.mu.Unlock)
	b.leave(one)
	b.attach(two, b.reading(16, 3), 3)
	if !late.Stop() {
		t.Fatal("the world has stood still")
	}
	b.following.mu.Unlock()
	if err := two.wait(); err != nil {
		t.Fatal(err)
	}
	b.leave(two)
	var got []string
	waitFor(t, "end", func() bool {
		got = append(got, m.takeFollowed()...)
		return len(got) >= 4
	})
	if want := []string{"end", "1", "2", "end"}; !slices.Equal(got, want) {
		t.Errorf("followed %v, want %v", got, want)
	}
}

// TestAResumedJobFollows the epoch that it resumes in too: an earlier run has carried samples to
// it.
func TestAResumedJobFollows(t *testing.T) {
	for epoch, want := range [][]string{{"1", "2", "end"}, {"1", "2", "end"}, {"2", "end"}} {
		m := newMemory(t)
		m.layout = tier.Carry
		b, _ := logged(t, m, nil)
		r := b.newRank(0)
		reading := b.reading(16, 3)
		reading.Start.Epoch = epoch
		b.attach(r, reading, 3)
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		b.leave(r)
		var got []string
		waitFor(t, "end", func() bool {
			got = append(got, m.takeFollowed()...)
			return slices.Contains(got, "end")
		})
		if !slices.Equal(got, want) {
			t.Errorf("from epoch %d: followed %v, want %v", epoch, got, want)
		}
	}
}

// TestALogThatStays says why, while a job reads that would have it carried.
func TestALogThatStays(t *testing.T) {
	m := newMemory(t)
	m.layout, m.refuses = tier.Carry, errors.New("there is no room")
	b, _ := logged(t, m, nil)
	stays := func() string {
		s, err := b.Status()
		if err != nil {
			t.Fatal(err)
		}
		return s.Ssd.Stays
	}
	r := b.newRank(0)
	b.attach(r, b.reading(16, 3), 3)
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if why := stays(); !strings.Contains(why, "there is no room") {
		t.Errorf("it says %q", why)
	}
	b.leave(r)
	waitFor(t, "end", func() bool { return stays() == "" })
}
