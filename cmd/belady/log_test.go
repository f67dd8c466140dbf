package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/tier/ssd"
	"belady/internal/store/tier/tiertest"
)

// logged is a log made by hand: two segments, of which the first holds a closed slot and the second
// an open one that is not durable.
type logged struct {
	t      *testing.T
	dir    string
	folder string
	header segment.Header
}

func makeLog(t *testing.T, content [32]byte) *logged {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	l := &logged{t: t, dir: t.TempDir()}
	l.folder = filepath.Join(l.dir, "log-"+hex.EncodeToString(content[:]))
	l.header = segment.Header{Content: content, ID: 77, SlotBytes: 128 << 10, Slots: 2,
		Samples: 100, Durable: 5}
	if err := os.Mkdir(l.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	l.write("00000001.seg", 5, 0, 10, true)
	l.header.ID = 78
	l.write("00000002.seg", 6, 10, 15, false)
	for _, name := range []string{"belady.lock", "belady.json"} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte("1"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// write makes a segment whose slot 1 holds the samples from first up to last, of 1000 bytes each.
func (l *logged) write(name string, generation uint64, first, last sample.ID, closed bool) {
	l.t.Helper()
	var s segment.Builder
	slot := make([]byte, l.header.SlotBytes)
	s.Begin(l.header.Bind(1), segment.Tag{Generation: generation}, slot)
	for id := first; id < last; id++ {
		s.Add(id, bytes.Repeat([]byte{byte(id)}, 1000))
	}
	if closed {
		s.Close(4)
	}
	file := l.header.Append(nil)
	file = append(file, make([]byte, l.header.SlotBytes)...)
	file = l.header.Append(append(file, slot...))
	if err := os.WriteFile(filepath.Join(l.folder, name), file, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// change damages a segment.
func (l *logged) change(name string, f func(b []byte) []byte) {
	l.t.Helper()
	path := filepath.Join(l.folder, name)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, f(b), 0o600)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *logged) report(code int, args ...string) logsReport {
	l.t.Helper()
	got, out, errs := belady(l.t, append(append([]string{"log", "--json"}, args...), l.dir)...)
	var r logsReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || got != code {
		l.t.Fatalf("%v: code %d, %v: %s%s", args, got, err, out, errs)
	}
	return r
}

func TestLog(t *testing.T) {
	l := makeLog(t, [32]byte{1, 2, 3})
	for _, verb := range []string{"ls", "verify"} {
		r := l.report(exitOK, verb)
		if len(r.Logs) != 1 || !r.OK || len(r.Foreign) != 0 {
			t.Fatalf("%s: %+v", verb, r)
		}
		if log := r.Logs[0]; log.Samples != 15 || log.Of != 100 || log.Live != 15000 ||
			log.Segments != 2 || log.Open != 1 || log.Torn != 0 || log.Layout != "static" ||
			log.Bytes != 2*l.header.FileBytes() || !strings.HasPrefix(log.Content, "010203") {
			t.Errorf("%s: %+v", verb, log)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"ls", "SEGMENTS"}, {"ls", "010203000000"}, {"verify", "ok: 15 samples in 15 records"},
		{"dump", "slot 1: closed, generation 5, 10 records"},
		{"dump", "slot 1: open, generation 6, 5 records"}, {"dump", "not said to be durable"},
		{"dump --sample 3", "sample 3: at 3184, 1000 bytes"}, {"dump --slot 0", "slot 0: unused"},
	} {
		args := append([]string{"log"}, strings.Fields(c.args)...)
		code, out, errs := belady(t, append(args, l.dir)...)
		if code != exitOK || !strings.Contains(out, c.want) {
			t.Errorf("%s: code %d: %s%s", c.args, code, out, errs)
		}
	}
	_, out, _ := belady(t, "log", "dump", l.dir, "--json")
	if strings.Count(out, `"sound":true`) != 15 || strings.Count(out, "\n") != 2+4+15 {
		t.Error(out)
	}
}

// TestLogVerifyFindsDamage: every kind of damage is named, with its place; what a crash leaves is
// not damage.
func TestLogVerifyFindsDamage(t *testing.T) {
	const slot1 = 4096 + 128<<10
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 4; return b }
	}
	fileBytes := 8192 + 2*128<<10
	for _, c := range []struct {
		what, file string
		change     func([]byte) []byte
		says       string // "": no damage
		samples    int64
	}{
		{"sample", "00000001.seg", flip(slot1 + 64 + 32 + 5), "slot 1: sample 0 does not fit", 14},
		{"record header", "00000001.seg", flip(slot1 + 64 + 20), "record header of sample 0", 15},
		{"slot header", "00000001.seg", flip(slot1 + 20), "slot 1: slot header", 15},
		{"footer", "00000001.seg", flip(fileBytes - 4096 - 30), "slot 1: footer", 15},
		{"first header", "00000001.seg", flip(100), "first header: damaged", 15},
		{"second header", "00000001.seg", flip(fileBytes - 10), "second header: damaged", 15},
		{"both", "00000001.seg", func(b []byte) []byte { return flip(50)(flip(fileBytes - 10)(b)) },
			"both headers are damaged", 5},
		{"cut off", "00000001.seg", func(b []byte) []byte { return b[:slot1+5000] },
			"cut off after 140168 of 270336 bytes, 1 of 2 slots", 5},
		{"gap", "00000001.seg", flip(slot1 + 90000), "", 15},
		{"torn record", "00000002.seg", flip(slot1 + 64 + 32 + 5), "", 14},
		{"torn record of an earlier life", "00000002.seg", func(b []byte) []byte {
			h, _ := segment.ParseHeader(b)
			h.Durable = 6
			copy(b, h.Append(nil))
			return flip(slot1 + 64 + 32 + 5)(b)
		}, "", 14},
		{"torn slot", "00000002.seg", func(b []byte) []byte { clear(b[slot1+4096:]); return b },
			"second header: no segment", 13},
		{"unfinished", "00000002.seg", func(b []byte) []byte { clear(b); return b }, "", 10},
		{"empty", "00000002.seg", func([]byte) []byte { return nil }, "", 10},
		{"foreign", "00000002.seg", func([]byte) []byte { return []byte("holiday") }, "", 10},
		{"version", "00000002.seg", func(b []byte) []byte { return flip(8)(flip(fileBytes - 4088)(b)) },
			"", 10},
	} {
		l := makeLog(t, [32]byte{9})
		l.change(c.file, c.change)
		code := exitOK
		if c.says != "" {
			code = exitFailure
		}
		r := l.report(code, "verify")
		said := ""
		for _, part := range r.Logs[0].Damaged {
			said += part.String() + "\n"
		}
		if !strings.Contains(said, c.says) || (said == "") != (c.says == "") || r.OK != (said == "") {
			t.Errorf("%s: said %q, not %q", c.what, said, c.says)
		}
		if r.Logs[0].Samples != c.samples {
			t.Errorf("%s: %d samples, not %d", c.what, r.Logs[0].Samples, c.samples)
		}
	}
}

// TestLogComparesSizes: where the dataset is known its name is shown, and a sample of another
// length is damage, though it fits its sum.
func TestLogComparesSizes(t *testing.T) {
	home := t.TempDir()
	t.Setenv("BELADY_DIR", home)
	const url = "synth://x?samples=100&size=1000"
	if code, _, errs := belady(t, "dataset", "add", "d", url); code != exitOK {
		t.Fatal(errs)
	}
	_, out, _ := belady(t, "dataset", "show", "d", "--json")
	var info struct{ ID string }
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		t.Fatal(err)
	}
	id, err := hex.DecodeString(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	l := makeLog(t, [32]byte(id))
	if r := l.report(exitOK, "verify"); r.Logs[0].Dataset != "d" || r.Logs[0].Samples != 15 {
		t.Errorf("%+v", r.Logs[0])
	}
	var s segment.Builder
	slot := make([]byte, l.header.SlotBytes)
	s.Begin(l.header.Bind(0), segment.Tag{Generation: 2}, slot)
	s.Add(40, []byte("too short"))
	s.Close(1)
	l.change("00000002.seg", func(b []byte) []byte { copy(b[4096:], slot); return b })
	if r := l.report(exitFailure, "verify"); len(r.Logs[0].Damaged) != 1 ||
		!strings.Contains(r.Logs[0].Damaged[0].String(), "sample 40 has 9 bytes") {
		t.Errorf("%+v", r.Logs[0].Damaged)
	}
}

// TestLogOfStore: what the store writes is what these verbs read, while it writes and afterwards,
// over two directories.
func TestLogOfStore(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	dirs := []string{t.TempDir(), t.TempDir()}
	disks, err := ssd.Open(ssd.Options{Free: 1,
		Dirs: []ssd.Dir{{Path: dirs[0], Quota: 64 << 20}, {Path: dirs[1], Quota: 64 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	sizes := tiertest.Mixed(600, 1)
	log, err := disks.Open(sizes.Config(1))
	if err != nil {
		t.Fatal(err)
	}
	sizes.PutAll(t, log)
	// A directory stands alone, and both together are one log.
	verify := func() (apart, whole int64) {
		for _, dir := range dirs {
			l := &logged{t: t, dir: dir}
			for _, r := range l.report(exitOK, "verify").Logs {
				apart += r.Samples
			}
		}
		all := (&logged{t: t, dir: dirs[1]}).report(exitOK, "verify", dirs[0])
		if len(all.Logs) != 1 {
			t.Fatalf("%d logs in two directories", len(all.Logs))
		}
		return apart, all.Logs[0].Samples
	}
	verify()
	if err := errors.Join(log.Close(), disks.Close()); err != nil {
		t.Fatal(err)
	}
	if apart, whole := verify(); apart != int64(len(sizes)) || whole != apart {
		t.Errorf("%d samples of %d, %d in the whole log", apart, len(sizes), whole)
	}
	for _, dir := range dirs {
		l := &logged{t: t, dir: dir}
		if r := l.report(exitOK, "ls"); len(r.Logs) != 1 || r.Logs[0].Of != 600 || r.Logs[0].Open != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestLogOverDirectories: what is striped over directories is one log, to be verified as one. A
// damaged record whose sample was written again in another directory is no damage.
func TestLogOverDirectories(t *testing.T) {
	one, two, other := makeLog(t, [32]byte{4}), makeLog(t, [32]byte{4}), makeLog(t, [32]byte{5})
	one.change("00000001.seg", func(b []byte) []byte { b[4096+128<<10+200] ^= 1; return b })
	if r := one.report(exitFailure, "verify"); !strings.HasPrefix(r.Logs[0].Damaged[0].File, one.dir) {
		t.Errorf("damaged: %+v", r.Logs[0].Damaged)
	}
	r := one.report(exitOK, "verify", two.dir, other.dir)
	if len(r.Logs) != 2 || r.Logs[0].Samples != 15 || r.Logs[0].Records != 29 ||
		r.Logs[0].Dead != 1+14 || r.Logs[0].Segments != 4 || r.Logs[1].Segments != 2 {
		t.Errorf("%+v", r)
	}
	_, out, _ := belady(t, "log", "dump", one.dir, two.dir)
	if strings.Count(out, "segment ") != 4 || !strings.Contains(out, "segment "+two.dir) {
		t.Error(out)
	}
	if code, _, errs := belady(t, "log", "ls", one.dir, two.dir, one.dir+"/."); code != exitUsage ||
		!strings.Contains(errs, "named twice") {
		t.Errorf("code %d, %q", code, errs)
	}
	if code, _, _ := belady(t, "log", "ls"); code != exitUsage {
		t.Errorf("without a directory: code %d", code)
	}
}

// TestLogShowsCarry: the order and epoch that a log was carried to.
func TestLogShowsCarry(t *testing.T) {
	l := makeLog(t, [32]byte{1})
	var s segment.Builder
	slot := make([]byte, l.header.SlotBytes)
	s.Begin(l.header.Bind(0), segment.Tag{Generation: 9, Order: 0xabc, Epoch: 4, Bucket: 2}, slot)
	s.Add(50, bytes.Repeat([]byte{50}, 1000))
	s.Close(8)
	l.change("00000002.seg", func(b []byte) []byte { copy(b[4096:], slot); return b })
	if _, out, _ := belady(t, "log", "ls", l.dir); !strings.Contains(out,
		"carry (order 0000000000000abc, epoch 4)") {
		t.Error(out)
	}
	if _, out, _ := belady(t, "log", "dump", l.dir); !strings.Contains(out, "epoch 4, bucket 2") {
		t.Error(out)
	}
}

// TestLogRepaired: a damaged record is no damage of the log once its sample was written again. It
// is dead then, as is a sound one of which there is another.
func TestLogRepaired(t *testing.T) {
	l := makeLog(t, [32]byte{3})
	l.change("00000001.seg", func(b []byte) []byte { b[4096+128<<10+200] ^= 1; return b })
	l.report(exitFailure, "verify")
	l.header.ID = 79
	l.write("00000003.seg", 7, 0, 1, true)
	if r := l.report(exitOK, "verify"); r.Logs[0].Dead != 1 || r.Logs[0].Samples != 15 {
		t.Errorf("%+v", r.Logs[0])
	}
	l.header.ID = 80
	l.write("00000004.seg", 8, 0, 10, true)
	if r := l.report(exitOK, "verify"); r.Logs[0].Dead != 1+10 || r.Logs[0].Samples != 15 {
		t.Errorf("%+v", r.Logs[0])
	}
}

func TestLogNamesWhatIsForeign(t *testing.T) {
	l := makeLog(t, [32]byte{7})
	for _, name := range []string{"photo.jpg", "log-x", filepath.Base(l.folder) + "/notes.txt"} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := l.report(exitOK, "verify")
	if strings.Join(r.Foreign, " ") != l.dir+"/log-x "+l.dir+"/photo.jpg" ||
		len(r.Logs[0].Foreign) != 1 {
		t.Errorf("%+v, %+v", r.Foreign, r.Logs[0].Foreign)
	}
	if _, out, _ := belady(t, "log", "ls", l.dir); !strings.Contains(out,
		"left alone: "+l.dir+"/photo.jpg\n") {
		t.Error(out)
	}
	if code, out, errs := belady(t, "log", "ls", t.TempDir()); code != exitOK || out != "" {
		t.Errorf("an empty directory: code %d, %q, %q", code, out, errs)
	}
	if err := os.RemoveAll(l.folder); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"verify", "dump"} {
		code, out, errs := belady(t, "log", verb, l.dir, t.TempDir())
		if code != exitUsage || out != "" || !strings.Contains(errs, "no log in "+l.dir) {
			t.Errorf("%s: code %d, %q, %q", verb, code, out, errs)
		}
	}
	for _, c := range []struct {
		dir  string
		code int
		says string
	}{
		{filepath.Join(l.dir, "absent"), exitFailure, "no such file"},
		{filepath.Join(l.dir, "photo.jpg"), exitUsage, "is no directory"},
	} {
		if code, _, errs := belady(t, "log", "ls", c.dir); code != c.code ||
			!strings.Contains(errs, c.says) {
			t.Errorf("%s: code %d, %q", c.dir, code, errs)
		}
	}
}
