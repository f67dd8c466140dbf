package ssd

import (
	"errors"
	"sync"
	"testing"

	"belady/internal/core/sample"
	"belady/internal/store/tier"
	"belady/internal/store/tier/tiertest"
	"belady/internal/store/vfs/vfstest"
)

// Where many footers are damaged, the log opens with what it knows, and says what it finds later.
func TestScansGoOnBesideTheWork(t *testing.T) {
	files := vfstest.NewCrash(8)
	sizes := tiertest.Mixed(600, 40)
	config := sizes.Config(1)
	config.SlotBytes = 256 << 10
	d := open(t, 64<<20, files)
	l := tiertest.Open(t, d, config)
	sizes.PutAll(t, l)
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	breakFooters(t, files, config)

	d = open(t, 64<<20, files)
	d.scanFirst = 1 // a slot
	var mu sync.Mutex
	found := map[sample.ID]bool{}
	config.Changed = func(held bool, set []uint64) {
		mu.Lock()
		defer mu.Unlock()
		for id := range sample.ID(len(sizes)) {
			if held && set[id/64]>>(id%64)&1 == 1 {
				found[id] = true
			}
		}
	}
	l = tiertest.Open(t, d, config)
	first := tiertest.Held(t, l, len(sizes))
	l.(*log).scans.Wait()
	sizes.GetAll(t, l)
	if first == 0 || first == len(sizes) || first+len(found) != len(sizes) {
		t.Errorf("%d samples were held at first, %d found later, of %d", first, len(found), len(sizes))
	}
	if u := l.Usage(); u.Dropped != 0 || u.Samples != int64(len(sizes)) {
		t.Errorf("usage %+v", u)
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// breakFooters flips a bit in the trailer of every slot of a closed log.
func breakFooters(t *testing.T, files *vfstest.Crash, config tier.Config) {
	t.Helper()
	entries, err := files.List(folder(config.Content))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		err := files.Change(folder(config.Content)+"/"+e.Name, func(b []byte) []byte {
			for end := 4096 + int(config.SlotBytes); end < len(b); end += int(config.SlotBytes) {
				b[end-1] ^= 1
			}
			return b
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
