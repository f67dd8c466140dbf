package dataset

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"belady/internal/core/sample"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

func mustOpen(t testing.TB, data []byte, err error) *Manifest {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	return m
}

func build(t testing.TB, opts Options, objects ...Object) *Manifest {
	t.Helper()
	data, err := Build(objects, opts)
	return mustOpen(t, data, err)
}

func TestFolderOrderIsTorchvisions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "order.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want []struct {
		Name  string
		Label int32
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	objects := []Object{{Name: "root.txt", Size: 1}}
	for i := range want {
		// Listed backwards, to show that the order of the listing does not matter.
		name, err := hex.DecodeString(want[len(want)-1-i].Name)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, Object{Name: string(name), Size: int64(i)})
	}
	for _, opts := range []Options{{}, {Fields: []string{"jpg"}}, {Fields: []string{"x=*jpg"}}} {
		m := build(t, opts, objects...)
		for i, w := range want {
			name := m.Parts(sample.ID(i), nil)[0].Name
			if got := hex.EncodeToString([]byte(name)); got != w.Name {
				t.Errorf("fields %q: sample %d is %q, torchvision has %s", opts.Fields, i, name, w.Name)
			}
			if got := m.Label(sample.ID(i)); got != w.Label {
				t.Errorf("fields %q: label of %q is %d, want %d", opts.Fields, name, got, w.Label)
			}
		}
	}
	m := build(t, Options{}, objects...)
	last := sample.ID(m.Len() - 1)
	if m.Name(last) != "root.txt" || m.Label(last) != -1 {
		t.Errorf("the last sample is %q of class %d, want the root's", m.Name(last), m.Label(last))
	}
}

// drawObjects gives distinct objects with names that collide in prefixes and odd bytes.
func drawObjects(t *rapid.T) []Object {
	part := rapid.StringMatching(`[ab\x{e9}\x{ffff}\n~-]{1,3}`)
	odd := rapid.SampledFrom([]string{"", "\xff", "\xc3", "\xed\xa0\x80"})
	names := map[string]bool{}
	var objects []Object
	for range rapid.IntRange(1, 40).Draw(t, "objects") {
		var parts []string
		for range rapid.IntRange(1, 4).Draw(t, "depth") {
			parts = append(parts, part.Draw(t, "part")+odd.Draw(t, "odd"))
		}
		name := strings.Join(parts, "/")
		if names[name] {
			continue
		}
		names[name] = true
		objects = append(objects, Object{Name: name,
			Size:    rapid.Int64Range(0, sample.MaxSize).Draw(t, "size"),
			Version: Version(rapid.Uint64().Draw(t, "version"))})
	}
	return objects
}

func TestBuildOpenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objects := drawObjects(t)
		data, err := Build(objects, Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open(data)
		if err != nil {
			t.Fatal(err)
		}
		if m.Len() != len(objects) {
			t.Fatalf("%d samples of %d objects", m.Len(), len(objects))
		}
		total, largest := int64(0), int64(0)
		for _, o := range objects {
			id, ok := m.Find(o.Name)
			if !ok {
				t.Fatalf("%q is not found", o.Name)
			}
			want := []Part{{Name: o.Name, Size: uint32(o.Size), Version: o.Version, Whole: true}}
			if got := m.Parts(id, nil); !slices.Equal(got, want) {
				t.Fatalf("parts %v, want %v", got, want)
			}
			class, _, inFolder := strings.Cut(o.Name, "/")
			if label := m.Label(id); inFolder != (label >= 0) ||
				inFolder && m.Classes()[label] != class {
				t.Fatalf("%q has label %d", o.Name, label)
			}
			if m.Name(id) != o.Name || m.Size(id) != uint32(o.Size) ||
				m.FieldSize(id, 0) != m.Size(id) {
				t.Fatalf("sample %d is %q of %d bytes", id, m.Name(id), m.Size(id))
			}
			total, largest = total+o.Size, max(largest, o.Size)
		}
		if m.TotalBytes() != total || int64(m.MaxSize()) != largest {
			t.Fatalf("%d bytes, largest %d", m.TotalBytes(), m.MaxSize())
		}
		if !slices.IsSortedFunc(m.Classes(), func(a, b string) int {
			return compareText([]byte(a), []byte(b))
		}) {
			t.Fatalf("classes %q are not sorted", m.Classes())
		}
		if _, ok := m.Find("absent/name"); ok {
			t.Fatal("found a name that was never listed")
		}
		if err := m.Verify(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestContentID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objects := drawObjects(t)
		id := func(objects []Object) ID {
			data, err := Build(objects, Options{})
			if err != nil {
				t.Fatal(err)
			}
			m, err := Open(data)
			if err != nil {
				t.Fatal(err)
			}
			return m.ID()
		}
		first := id(objects)
		if id(rapid.Permutation(objects).Draw(t, "listing")) != first {
			t.Fatal("the content id depends on the order of the listing")
		}
		i := rapid.IntRange(0, len(objects)-1).Draw(t, "changed")
		for _, change := range []func(*Object){
			func(o *Object) { o.Name += "x" },
			func(o *Object) { o.Size = (o.Size + 1) % sample.MaxSize },
			func(o *Object) { o.Version++ },
		} {
			other := slices.Clone(objects)
			change(&other[i])
			if id(other) == first {
				t.Fatal("two contents have one id")
			}
		}
	})
}

func TestNamesOrderIsTotal(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) []byte {
		return []byte(drawObjects(t)[0].Name)
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		suffix := []byte(rapid.SampledFrom([]string{"", ".jpg", "\xa9x"}).Draw(t, "suffix"))
		ab, ba := compareNames(a, b, suffix), compareNames(b, a, suffix)
		if ab != -ba || (ab == 0) != bytes.Equal(a, b) {
			t.Fatalf("%q against %q: %d and %d", a, b, ab, ba)
		}
		if ab < 0 && compareNames(b, c, suffix) < 0 && compareNames(a, c, suffix) >= 0 {
			t.Fatalf("%q < %q < %q is not transitive", a, b, c)
		}
	})
}

// TestGolden fails when the bytes change: then formatVersion must be raised, and the content id's
// domain if ids change. Run with -rewrite after raising it.
func TestGolden(t *testing.T) {
	objects := []Object{
		{"cat/1.jpg", 100, 1}, {"cat/1.json", 10, 2}, {"dog/2.jpg", 200, 3}, {"3.jpg", 300, 4},
		{"3.json", 0, 5},
	}
	data, err := Build(objects, Options{Fields: []string{"jpg", "json?"}})
	m := mustOpen(t, data, err)
	got := fmt.Sprintf("version %d\nid %v\n%s", formatVersion, m.ID(), hex.Dump(data))
	path := filepath.Join("testdata", "manifest.golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the bytes of a manifest changed without a new format version:\n%s", diff)
	}
}

func TestOpenRefusesDamage(t *testing.T) {
	data, err := Build([]Object{{"cat/1.jpg", 100, 1}, {"cat/2.jpg", 100, 1}, {"x.jpg", 3, 9},
		{"x.json", 1, 1}}, Options{Fields: []string{"jpg", "json?"}})
	mustOpen(t, data, err)
	for i := range data {
		broken := slices.Clone(data)
		broken[i] ^= 0x40
		m, err := Open(broken)
		if err == nil {
			err = m.Verify()
		}
		if err == nil {
			t.Errorf("byte %d changed from %#x and nothing noticed", i, data[i])
		}
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Errorf("byte %d: error %v is no sentinel", i, err)
		}
	}
	for size := range data {
		if _, err := Open(data[:size]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", size, err)
		}
	}
	next := slices.Clone(data)
	binary.LittleEndian.PutUint32(next[8:], formatVersion+1)
	if _, err := Open(next); !errors.Is(err, ErrVersion) {
		t.Errorf("a later version gives %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	for _, fields := range [][]string{nil, {"jpg", "json?"}, {AutoFields}} {
		data, err := Build([]Object{{"cat/1.jpg", 100, 1}, {"cat/2.jpg", 100, 1},
			{"cat/2.json", 7, 1}, {"x.jpg", 3, 9}}, Options{Fields: fields})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, true)
	}
	f.Add([]byte(magic), false)
	f.Fuzz(func(t *testing.T, data []byte, reseal bool) {
		if reseal {
			// Pass the header's checksum, so that the checks behind it are reached.
			data = reseals(data)
		}
		m, err := Open(data)
		if err != nil {
			return
		}
		_ = m.Verify()
		var parts []Part
		for i := range m.Len() {
			id := sample.ID(i)
			parts = m.Parts(id, parts[:0])
			sum := uint64(0)
			for field := range m.Fields() {
				sum += uint64(m.FieldSize(id, field))
			}
			if sum != uint64(m.Size(id)) {
				t.Fatalf("fields of sample %d add up to %d, not %d", i, sum, m.Size(id))
			}
			if label := m.Label(id); label >= 0 {
				_ = m.Classes()[label]
			}
			m.Find(m.Name(id))
		}
		Diff(m, m)
	})
}

// reseals gives data the right length and the right checksums, where it has room for them.
func reseals(data []byte) []byte {
	data = slices.Clone(data)
	if len(data) < headerSize {
		return data
	}
	le := binary.LittleEndian
	le.PutUint64(data[80:], uint64(len(data)))
	s := shape{fields: uint64(le.Uint32(data[72:]))}
	if s.fields == 0 || s.fields > MaxFields || len(data) < headerSize+sectionSize*s.sections() {
		return data
	}
	for entry := headerSize; entry < headerSize+sectionSize*s.sections(); entry += sectionSize {
		offset, size := le.Uint64(data[entry:]), le.Uint64(data[entry+8:])
		if offset <= uint64(len(data)) && size <= uint64(len(data))-offset {
			le.PutUint64(data[entry+16:], xxh3.Hash(data[offset:offset+size]))
		}
	}
	le.PutUint32(data[12:], headerSum(data[:headerSize+sectionSize*s.sections()]))
	return data
}
