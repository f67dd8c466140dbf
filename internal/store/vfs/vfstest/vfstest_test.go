package vfstest

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/store/vfs"
)

func TestCrashConforms(t *testing.T) {
	Conformance(t, func(*testing.T) vfs.FS { return NewCrash(1) })
}

func TestFaultsConforms(t *testing.T) {
	Conformance(t, func(*testing.T) vfs.FS { return NewFaults(NewCrash(1)) })
}

func read(t interface{ Fatal(...any) }, c *Crash, name string) []byte {
	var found []byte
	if err := c.Change(name, func(b []byte) []byte { found = bytes.Clone(b); return b }); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestCutKeepsWhatWasSynced: after a cut each sector is what its last sync made it, or what it was
// written to be since; and a second cut changes nothing.
func TestCutKeepsWhatWasSynced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const sectors = 8
		c := NewCrash(rapid.Uint64().Draw(t, "seed"))
		f, err := c.Open("d/x", vfs.How{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Allocate(sectors*sector), f.Sync(), c.SyncDir("d"),
			c.SyncDir(".")); err != nil {
			t.Fatal(err)
		}
		allowed := [sectors][]byte{}
		for s := range allowed {
			allowed[s] = []byte{0}
		}
		for step := byte(1); step < 30; step++ {
			s := rapid.IntRange(0, sectors).Draw(t, "sector")
			if s == sectors {
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				for i, a := range allowed {
					allowed[i] = a[len(a)-1:]
				}
				continue
			}
			if _, err := f.WriteAt(bytes.Repeat([]byte{step}, sector), int64(s)*sector); err != nil {
				t.Fatal(err)
			}
			allowed[s] = append(allowed[s], step)
		}
		after := c.Cut()
		b := read(t, after, "d/x")
		for s, a := range allowed {
			got := b[s*sector:][:sector]
			if !bytes.Contains(a, got[:1]) || len(bytes.Trim(got, string(got[:1]))) > 0 {
				t.Fatalf("sector %d is %v, not one of %v", s, got[0], a)
			}
		}
		if !bytes.Equal(read(t, after.Cut(), "d/x"), b) {
			t.Fatal("a second cut changed what the first had left")
		}
		if _, err := f.WriteAt(b, 0); !errors.Is(err, ErrCut) {
			t.Fatalf("a write after the cut: %v", err)
		}
	})
}

// TestCutMeetsEverything: over many seeds an unsynced sector, name, size and removal is met both
// ways, and a synced one only one way.
func TestCutMeetsEverything(t *testing.T) {
	met := map[string]int{}
	for seed := range uint64(200) {
		c := NewCrash(seed)
		for _, name := range []string{"synced", "removed", "folder/lost"} {
			f, _ := c.Open(name, vfs.How{Create: true})
			if err := errors.Join(f.Allocate(sector), f.Sync()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(c.SyncDir("."), c.Remove("removed")); err != nil {
			t.Fatal(err)
		}
		f, _ := c.Open("synced", vfs.How{Write: true})
		f.WriteAt(bytes.Repeat([]byte{1}, 2*sector), 0)
		after := c.Cut()
		b := read(t, after, "synced")
		if len(b) > sector {
			met["size"]++
		}
		if b[0] == 1 {
			met["bytes"]++
		}
		for _, name := range []string{"removed", "folder", "folder/lost"} {
			if after.names[name] != nil {
				met[name]++
			}
		}
	}
	for _, what := range []string{"size", "bytes", "removed", "folder/lost"} {
		if met[what] < 20 || met[what] > 180 {
			t.Errorf("%s: %d of 200 cuts", what, met[what])
		}
	}
	if met["folder"] != 200 {
		t.Errorf("a synced folder is there after %d of 200 cuts", met["folder"])
	}
}

func TestCutAfter(t *testing.T) {
	c := NewCrash(1)
	f, err := c.Open("x", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	c.CutAfter(2)
	if _, err := f.WriteAt([]byte{1}, 0); err != nil {
		t.Errorf("the first operation: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, ErrCut) {
		t.Errorf("the second: %v", err)
	}
	if _, err := c.List("."); !errors.Is(err, ErrCut) {
		t.Errorf("and behind it: %v", err)
	}
}

// TestCrashWantsAlignment: what a device refuses is refused.
func TestCrashWantsAlignment(t *testing.T) {
	c := NewCrash(1)
	f, err := c.Open("x", vfs.How{Create: true, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	b := vfs.Aligned(3 * vfs.Block)
	defer vfs.Free(b)
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	for what, op := range map[string]func() (int, error){
		"memory": func() (int, error) { return f.ReadAt(b[64:][:vfs.Block], 0) },
		"offset": func() (int, error) { return f.ReadAt(b[:vfs.Block], 512) },
		"length": func() (int, error) { return f.WriteAt(b[:100], 0) },
	} {
		if _, err := op(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s not aligned: %v", what, err)
		}
	}
}

func TestCrashIsFull(t *testing.T) {
	c := NewCrash(1)
	c.Resize(10000)
	f, err := c.Open("x", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Allocate(10001); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("too much: %v", err)
	}
	if err := f.Allocate(10000); err != nil {
		t.Error(err)
	}
	if s, err := c.Space(); err != nil || s.Free != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestFaults(t *testing.T) {
	c := NewCrash(1)
	faults := NewFaults(c)
	f, err := faults.Open("d/00000001.seg", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4*vfs.Block)
	write := func() (int, error) { return f.WriteAt(b, 0) }
	if _, err := write(); err != nil {
		t.Fatal(err)
	}
	faults.Add(Rule{Op: WriteAt, Name: "*.seg", From: 1, Every: 2, Err: syscall.EIO},
		Rule{Op: ReadAt, Name: "d/*", Flip: true},
		Rule{Op: Sync, Name: "other", Err: syscall.EIO},
		Rule{Op: Open, Err: fs.ErrPermission})
	for i, fails := range []bool{false, true, false, true} {
		n, err := write()
		if fails != errors.Is(err, syscall.EIO) || fails && n != 2*vfs.Block {
			t.Errorf("write %d: %d, %v", i, n, err)
		}
	}
	if _, err := f.ReadAt(b, 0); err != nil || bytes.Count(b, []byte{0}) != len(b)-1 {
		t.Errorf("no byte was flipped, %v", err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("a rule for another file was taken: %v", err)
	}
	if _, err := faults.Open("x", vfs.How{Create: true}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Open: %v", err)
	}
	if faults.Fired() != 4 {
		t.Errorf("%d fired, not 4", faults.Fired())
	}
	faults.Heal()
	faults.Add(Rule{Op: WriteAt, Flip: true})
	clear(b)
	if _, err := write(); err != nil || !bytes.Equal(b, make([]byte, len(b))) {
		t.Errorf("a flipped write changed its argument, %v", err)
	}
	if got := read(t, c, "d/00000001.seg"); bytes.Count(got, []byte{0}) != len(got)-1 {
		t.Error("no bit was flipped in what was written")
	}
}
