package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belady/internal/core/order"
	"belady/internal/core/receipt"
)

func line(job string, epoch int) Record {
	a := receipt.Account{Reading: receipt.Reading{
		Members: []receipt.Member{{Name: "d", Samples: 10, Weight: 1}}, Content: "c0",
		Order: order.Spec{Kind: order.Distributed, Samples: 10, Seed: 7, Batch: 2}}, Epoch: epoch}
	for i := range 5 {
		a.Chain.Add(uint64(i), 2)
	}
	return Record{Kind: Delivered, Job: job, Session: "1", Account: a,
		Time: time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)}
}

func put(t *testing.T, s *Store, lines ...Record) {
	t.Helper()
	for _, r := range lines {
		if err := s.Append(r); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, s *Store, id string) *Log {
	t.Helper()
	log, err := s.Read(id)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestWhatIsAppendedIsRead(t *testing.T) {
	s := New(t.TempDir())
	if ids, err := s.IDs(); err != nil || len(ids) != 0 {
		t.Fatalf("an empty store lists %v, %v", ids, err)
	}
	names := []string{"plain-1.py", "", ".", "..", "a/b", "ü x", strings.Repeat("long", 300)}
	for _, name := range names {
		put(t, s, line(name, 0), line(name, 1))
		log := read(t, s, ID(name))
		if d := cmp.Diff([]Record{line(name, 0), line(name, 1)}, log.Records); d != "" {
			t.Errorf("%q: %s", name, d)
		}
	}
	if ids, err := s.IDs(); err != nil || len(ids) != len(names) {
		t.Errorf("listed are %v, %v", ids, err)
	}
	if ID("plain-1.py") != "plain-1.py" || ID("a/b") != "a%2Fb" {
		t.Errorf("plain names change: %s, %s", ID("plain-1.py"), ID("a/b"))
	}
	for _, id := range []string{"absent", "", "../plain-1.py", "a\x00"} {
		if _, err := s.Read(id); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q gives %v", id, err)
		}
	}
}

// A line cut by a crash is left out and then cut off; any other damage is named.
func TestTornAndDamaged(t *testing.T) {
	s := New(t.TempDir())
	put(t, s, line("j", 0), line("j", 1))
	path := filepath.Join(s.dir, "j.log")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(data) / 2 {
		if err := os.WriteFile(path, data[:len(data)-1-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		log := read(t, s, "j")
		if len(log.Records) != 1 || len(log.Damaged) != 0 {
			t.Fatalf("%d bytes cut off: %d records, damaged %v", cut+1, len(log.Records), log.Damaged)
		}
	}
	put(t, s, line("j", 2))
	if log := read(t, s, "j"); len(log.Records) != 2 || log.Records[1].Epoch != 2 ||
		len(log.Damaged) != 0 {
		t.Errorf("after an append there are %d records, damaged %v", len(log.Records), log.Damaged)
	}
	for at := 0; at < len(data)/2-1; at += 7 {
		changed := append([]byte(nil), data...)
		changed[at] ^= 1
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		log := read(t, s, "j")
		if changed[at] != '\n' && (len(log.Records) != 1 || len(log.Damaged) != 1 ||
			log.Damaged[0] != "j.log:1") {
			t.Fatalf("byte %d changed: %d records, damaged %v", at, len(log.Records), log.Damaged)
		}
	}
}

// Files and their number are bounded; the newest lines are kept.
func TestBounds(t *testing.T) {
	s := New(t.TempDir())
	s.MaxBytes, s.MaxJobs = 4096, 3
	for epoch := range 100 {
		put(t, s, line("j", epoch))
	}
	total := int64(0)
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	log := read(t, s, "j")
	if n := len(log.Records); total > 2*s.MaxBytes || n < 5 || log.Records[n-1].Epoch != 99 ||
		log.Records[0].Epoch != 100-n {
		t.Errorf("%d bytes, %d records, the last of epoch %d", total, n, log.Records[n-1].Epoch)
	}
	for i := range 5 {
		name := fmt.Sprintf("other%d", i)
		put(t, s, line(name, 0))
		at := time.Unix(int64(2_000_000_000+i), 0)
		if err := os.Chtimes(filepath.Join(s.dir, name+".log"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	ids, err := s.IDs()
	if d := cmp.Diff([]string{"other2", "other3", "other4"}, ids); d != "" || err != nil {
		t.Errorf("%v: %s", err, d)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "j.log.old")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an older file stays: %v", err)
	}
}

// Nothing that stands in a file makes reading or proving panic.
func FuzzLine(f *testing.F) {
	s := New(f.TempDir())
	if err := s.Append(line("j", 0)); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(s.dir, "j.log"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[9:])
	f.Fuzz(func(t *testing.T, text []byte) {
		log := &Log{}
		log.decode("x", sealed(text))
		for i := range log.Records {
			r := &log.Records[i]
			if r.Order.Samples > 1<<16 || r.Order.Draws > 1<<16 || r.Epoch > 100 ||
				len(r.Members) > 8 || slices.ContainsFunc(r.Members, large) {
				continue // true of no file of ours, and slow
			}
			o, err := r.New()
			if err == nil {
				_, _ = r.Prove(o)
			}
		}
	})
}

func large(m receipt.Member) bool { return m.Samples < 0 || m.Samples > 1<<16 }
