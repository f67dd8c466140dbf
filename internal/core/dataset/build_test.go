package dataset

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belady/internal/core/sample"
)

func TestFieldsOfASample(t *testing.T) {
	objects := []Object{
		{"images/cat/1.jpg", 100, 1}, {"masks/cat/1.png", 20, 2}, {"text/cat/1.txt", 3, 3},
		{"images/dog/2.jpg", 200, 4}, {"masks/dog/2.png", 0, 5}, {"README.md", 5, 6},
	}
	m := build(t, Options{Fields: []string{"image=images/*.jpg", "mask=masks/*.png",
		"text=text/*.txt?"}}, objects...)
	if diff := cmp.Diff([]string{"image", "mask", "text"}, m.Fields()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"cat", "dog"}, m.Classes()); diff != "" {
		t.Error(diff)
	}
	want := [][]Part{
		{{"images/cat/1.jpg", 0, 100, 1, true}, {"masks/cat/1.png", 0, 20, 2, true},
			{"text/cat/1.txt", 0, 3, 3, true}},
		{{"images/dog/2.jpg", 0, 200, 4, true}, {"masks/dog/2.png", 0, 0, 5, true}, {}},
	}
	for i, parts := range want {
		if diff := cmp.Diff(parts, m.Parts(sample.ID(i), nil)); diff != "" {
			t.Error(diff)
		}
	}
	if m.Size(0) != 123 || m.FieldSize(0, 0) != 100 || m.FieldSize(1, 2) != 0 {
		t.Errorf("sizes are %d, %d and %d", m.Size(0), m.FieldSize(0, 0), m.FieldSize(1, 2))
	}
	if id, ok := m.Find("dog/2"); !ok || id != 1 {
		t.Errorf("Find gives %d, %v", id, ok)
	}
}

func TestFieldsFoundByThemselves(t *testing.T) {
	m := build(t, Options{Fields: []string{AutoFields}},
		Object{"c/1.JPEG", 100, 1}, Object{"c/1.cls", 1, 1}, Object{"c/1.txt", 9, 1},
		Object{"c/1-b.JPEG", 100, 1}, Object{"c/1-b.cls", 1, 1}, Object{"c/1-b.cls", 1, 1})
	if diff := cmp.Diff([]string{"JPEG", "cls", "txt"}, m.Fields()); diff != "" {
		t.Error(diff)
	}
	// As torchvision sorts the images: "1-b.JPEG" before "1.JPEG".
	if m.Name(0) != "c/1-b" || m.Name(1) != "c/1" || m.FieldSize(1, 2) != 9 {
		t.Errorf("samples are %q and %q", m.Name(0), m.Name(1))
	}
	if !m.fields[2].Optional || m.fields[1].Optional {
		t.Errorf("fields are %+v", m.fields)
	}
}

// FuzzParseFields also builds with what was understood: no declaration may break a build.
func FuzzParseFields(f *testing.F) {
	for _, text := range []string{"jpg,json?", "image=images/*.jpg,mask=masks/*.png?", "=*", "a=*"} {
		f.Add(text, "images/a.jpg")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		declared := strings.Split(text, ",")
		fields, err := ParseFields(declared)
		if err != nil {
			return
		}
		data, err := Build([]Object{{name, 3, 1}}, Options{Fields: declared})
		if err != nil {
			return
		}
		m := mustOpen(t, data, nil)
		if m.Parts(0, nil)[0].Name != name || len(m.Fields()) != len(fields) {
			t.Fatalf("%q of %q has parts %v", name, text, m.Parts(0, nil))
		}
	})
}

func TestLeftOut(t *testing.T) {
	b, err := NewBuilder(Options{Format: "folder", Fields: []string{"jpg"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".DS_Store", "a/.hidden/1.jpg", "a/../1.jpg", "a/", "a/1.txt",
		"a/1.jpg", "a/1.jpg", "a/2.jpg"} {
		if err := b.Add([]Object{{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := b.Finish()
	m := mustOpen(t, data, err)
	want := LeftOut{Hidden: 3, Folders: 1, Unmatched: 1, Repeated: 1}
	if b.LeftOut() != want || m.Len() != 2 {
		t.Errorf("%d samples, left out %+v", m.Len(), b.LeftOut())
	}
}

func TestBuildRefuses(t *testing.T) {
	pair := []string{"jpg", "json"}
	for _, c := range []struct {
		want    string
		fields  []string
		objects []Object
	}{
		{`"big" has 4294967295 bytes`, nil, []Object{{"big", sample.MaxSize + 1, 0}}},
		{`"less" has -1 bytes`, nil, []Object{{"less", -1, 0}}},
		{`"a\x00\n" has a NUL`, nil, []Object{{"a\x00\n", 1, 0}}},
		{"without a name", nil, []Object{{"", 1, 0}}},
		{"a name of 4097 bytes", nil, []Object{{strings.Repeat("x", 4097), 1, 0}}},
		{`"a" was listed twice`, nil, []Object{{"a", 1, 0}, {"a", 2, 0}}},
		{`sample "c/1" has no json (object "c/1.json"); 1 samples`, pair,
			[]Object{{"c/1.jpg", 1, 0}, {"c/2.jpg", 1, 0}, {"c/2.json", 1, 0}}},
		{`sample "c/2" has no jpg`, pair,
			[]Object{{"c/1.jpg", 1, 0}, {"c/1.json", 1, 0}, {"c/2.json", 1, 0}}},
		{"bytes and more in its fields", pair,
			[]Object{{"1.jpg", sample.MaxSize, 0}, {"1.json", 1, 0}}},
		{`"x" has no extension`, []string{AutoFields}, []Object{{"a.jpg", 1, 0}, {"x", 1, 0}}},
		{"none of the 2 extensions", []string{AutoFields},
			[]Object{{"a.jpg", 1, 0}, {"b.png", 1, 0}}},
		{"must not be optional", []string{"jpg?"}, nil},
		{"declared twice", []string{"jpg", "jpg?"}, nil},
		{"cannot be understood", []string{"a=b"}, nil},
		{"cannot be understood", []string{""}, nil},
	} {
		_, err := Build(c.objects, Options{Fields: c.fields})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, want one with %q", err, c.want)
		}
	}
	if _, err := Build(nil, Options{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("nothing listed gives %v", err)
	}
	if _, err := NewBuilder(Options{Format: "zip"}); err == nil ||
		!strings.Contains(err.Error(), "folder") {
		t.Errorf("an unknown format gives %v", err)
	}
}

func TestIndexIsWhatTheFolderWouldBe(t *testing.T) {
	size := func(id sample.ID) uint32 { return 7 * uint32(id) }
	data, err := BuildIndex(1234, size, 5)
	index := mustOpen(t, data, err)
	var objects []Object
	for i := range index.Len() {
		objects = append(objects, Object{index.Name(sample.ID(i)), int64(size(sample.ID(i))), 5})
	}
	if folder := build(t, Options{}, objects...); folder.ID() != index.ID() {
		t.Error("the same samples have two content ids")
	}
	if index.Format() != "index" || index.Name(1233) != "0000001233" {
		t.Errorf("format %q, last name %q", index.Format(), index.Name(1233))
	}
	if _, err := BuildIndex(0, size, 0); err == nil {
		t.Error("an index of nothing was built")
	}
}

func TestDiffCountsEverySample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawObjects(t)
		var want Changes
		var after []Object
		for _, o := range before {
			switch rapid.IntRange(0, 2).Draw(t, "fate") {
			case 0:
				want.Same++
				after = append(after, o)
			case 1:
				want.Changed++
				o.Version++
				after = append(after, o)
			default:
				want.Removed++
			}
		}
		after = append(after, Object{Name: "new/one"})
		want.Added++
		open := func(objects []Object) *Manifest {
			data, err := Build(objects, Options{})
			if err != nil {
				t.Fatal(err)
			}
			m, err := Open(data)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		if got := Diff(open(before), open(after)); got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
	plain := build(t, Options{}, Object{"a.jpg", 1, 1})
	grouped := build(t, Options{Fields: []string{"jpg"}}, Object{"a.jpg", 1, 1})
	if got := Diff(plain, grouped); got != (Changes{Added: 1, Removed: 1}) {
		t.Errorf("other fields give %+v", got)
	}
}

func TestSet(t *testing.T) {
	a := build(t, Options{}, Object{"x/1", 1, 1}, Object{"x/2", 2, 1}, Object{"x/3", 3, 1})
	b := build(t, Options{}, Object{"y/1", 40, 1})
	s, err := NewSet([]*Manifest{a, b, a}, []float64{3, 1, 6})
	if err != nil {
		t.Fatal(err)
	}
	var sizes []uint32
	for i := range s.Len() {
		id := sample.ID(i)
		sizes = append(sizes, s.Size(id))
		member, local := s.Locate(id)
		m := s.Members()[member]
		if s.Name(id) != m.Name(local) || s.Label(id) != m.Label(local) ||
			!slices.Equal(s.Parts(id, nil), m.Parts(local, nil)) {
			t.Errorf("sample %d is not its member's %d", id, local)
		}
	}
	if diff := cmp.Diff([]uint32{1, 2, 3, 40, 1, 2, 3}, sizes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]float64{1, 1, 1, 1, 2, 2, 2}, s.SampleWeights()); diff != "" {
		t.Error(diff)
	}
	if s.TotalBytes() != 52 || s.MaxSize() != 40 {
		t.Errorf("%d bytes, largest %d", s.TotalBytes(), s.MaxSize())
	}
	one, err := NewSet([]*Manifest{a}, nil)
	if err != nil {
		t.Fatal(err)
	}
	swapped, err := NewSet([]*Manifest{b, a, a}, []float64{3, 1, 6})
	if err != nil {
		t.Fatal(err)
	}
	if one.ID() != a.ID() || s.ID() == a.ID() || s.ID() == swapped.ID() {
		t.Error("the ids of sets are wrong")
	}
	if one.SampleWeights() != nil || one.Size(2) != 3 {
		t.Error("a set of one is not its member")
	}
	for _, weights := range [][]float64{{1}, {1, 0}, {1, -1}, {1, math.NaN()}, {math.Inf(1), 1}} {
		if _, err := NewSet([]*Manifest{a, b}, weights); err == nil {
			t.Errorf("weights %v were taken", weights)
		}
	}
	if _, err := NewSet(nil, nil); err == nil {
		t.Error("a set of nothing was made")
	}
}

// One open of 14.2 M samples an iteration: the size of the largest image dataset we promise.
func BenchmarkOpen14M(b *testing.B) {
	const samples = 14_200_000
	data, err := BuildIndex(samples, func(sample.ID) uint32 { return 110_000 }, 1)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		verify bool
	}{{"open", false}, {"open+verify", true}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				m, err := Open(data)
				if err != nil {
					b.Fatal(err)
				}
				if c.verify {
					if err := m.Verify(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(len(data))/samples-indexNameSize, "B/sample-beside-names")
		})
	}
}

func BenchmarkBuild1M(b *testing.B) {
	objects := make([]Object, 1_000_000)
	for i := range objects {
		id := uint32(i) * 2654435761
		objects[i] = Object{Name: "n" + string('a'+rune(id%16)) + "/" + strconv.Itoa(int(id)), Size: 1}
	}
	for b.Loop() {
		if _, err := Build(objects, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	data, err := BuildIndex(1_000_000, func(sample.ID) uint32 { return 1 }, 1)
	m := mustOpen(b, data, err)
	name := m.Name(654_321)
	for b.Loop() {
		m.Find(name)
	}
}
