// Package origintest is the conformance suite of origin.Origin: what every driver and every
// wrapper must do alike. It is used from tests only and knows no driver.
package origintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

// Subject is one origin under test and what it must hold.
type Subject struct {
	Origin origin.Origin
	Files  map[string][]byte
	// Put and Delete change the origin behind its back; nil where nothing can (computed bytes).
	Put    func(name string, content []byte)
	Delete func(name string)
}

// Maker makes a fresh subject that holds files; one that computes its bytes may hold others, and
// says which in Subject.Files. The maker arranges clean-up; the suite closes the origin.
type Maker func(t *testing.T, files map[string][]byte) Subject

// Files is what the suite asks a maker to hold: classes, odd names, sizes around 0 and above a
// network buffer.
func Files() map[string][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	content := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	files := map[string][]byte{
		"empty":                          {},
		"one":                            content(1),
		"big.bin":                        content(700_001),
		"a/deep/er/path.jpg":             content(3000),
		"a b/c+d & e%20f=g?h#i.txt":      content(100),
		"únïcødé/日本語/🙂.jpg":              content(321),
		"quo'te\"<xml>&amp;;,@:$!~*().x": content(77),
		"dots/..x/...y/.hidden":          content(12),
	}
	for c := range 3 {
		for i := range 7 {
			files[fmt.Sprintf("train/n%03d/img_%d.jpg", c, i)] = content(2000 + 100*i + c)
		}
	}
	return files
}

// Run checks everything an origin promises.
func Run(t *testing.T, make Maker) {
	for name, check := range map[string]func(*testing.T, Subject){
		"list":        checkList,
		"whole":       checkWhole,
		"ranges":      checkRanges,
		"absent":      checkAbsent,
		"short":       checkShort,
		"changed":     checkChanged,
		"deleted":     checkDeleted,
		"concurrency": checkConcurrency,
		"cancel":      checkCancel,
		"closed":      checkClosed,
	} {
		t.Run(name, func(t *testing.T) {
			s := make(t, Files())
			defer s.Origin.Close()
			check(t, s)
		})
	}
}

// List collects what o lists, and fails on a name listed twice.
func List(t *testing.T, o origin.Origin) map[string]dataset.Object {
	t.Helper()
	got := map[string]dataset.Object{}
	err := o.List(t.Context(), func(batch []dataset.Object) error {
		for _, object := range batch {
			if _, twice := got[object.Name]; twice {
				t.Errorf("%q is listed twice", object.Name)
			}
			got[object.Name] = object
		}
		clear(batch) // the batch is ours during the call: nothing may depend on it afterwards
		return nil
	})
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return got
}

// Whole is the part that is all of an object.
func Whole(object dataset.Object) dataset.Part {
	return dataset.Part{Name: object.Name, Size: uint32(object.Size), Version: object.Version,
		Whole: true}
}

func checkList(t *testing.T, s Subject) {
	got := List(t, s.Origin)
	for name, content := range s.Files {
		object, ok := got[name]
		if !ok {
			t.Errorf("%q is not listed", name)
		} else if object.Size != int64(len(content)) || object.Version == 0 {
			t.Errorf("%q is listed as %+v, want size %d and a version", name, object, len(content))
		}
	}
	for name := range got {
		if _, ok := s.Files[name]; !ok {
			t.Errorf("%q is listed and does not exist", name)
		}
	}
	again := List(t, s.Origin)
	if !maps.Equal(got, again) {
		t.Error("listing twice gave two answers")
	}
	stop := errors.New("stop")
	err := s.Origin.List(t.Context(), func([]dataset.Object) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("List returned %v, want the callback's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = s.Origin.List(ctx, func([]dataset.Object) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("List with a cancelled context returned %v", err)
	}
	if s.Origin.URL() == "" {
		t.Error("URL is empty")
	}
}

func checkWhole(t *testing.T, s Subject) {
	for name, object := range List(t, s.Origin) {
		for _, version := range []dataset.Version{object.Version, 0} {
			part := Whole(object)
			part.Version = version
			dst := make([]byte, object.Size)
			if err := s.Origin.Read(t.Context(), part, dst); err != nil {
				t.Errorf("Read %q: %v", name, err)
			} else if !bytes.Equal(dst, s.Files[name]) {
				t.Errorf("Read %q gave other bytes", name)
			}
		}
	}
}

func checkRanges(t *testing.T, s Subject) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, object := range List(t, s.Origin) {
		for range 3 {
			from := random.Int64N(object.Size + 1)
			dst := make([]byte, random.Int64N(object.Size-from+1))
			part := dataset.Part{Name: name, Offset: from, Size: uint32(len(dst)),
				Version: object.Version}
			if err := s.Origin.Read(t.Context(), part, dst); err != nil {
				t.Errorf("Read %q [%d, +%d): %v", name, from, len(dst), err)
			} else if !bytes.Equal(dst, s.Files[name][from:from+int64(len(dst))]) {
				t.Errorf("Read %q [%d, +%d) gave other bytes", name, from, len(dst))
			}
		}
	}
}

func checkAbsent(t *testing.T, s Subject) {
	for _, name := range []string{"nothing", "train/none.jpg", "one/below-a-file"} {
		for _, n := range []int{0, 10} {
			err := s.Origin.Read(t.Context(), dataset.Part{Name: name}, make([]byte, n))
			if !errors.Is(err, origin.ErrAbsent) {
				t.Errorf("Read of %d bytes of absent %q returned %v", n, name, err)
			}
		}
	}
}

func checkShort(t *testing.T, s Subject) {
	for name, object := range List(t, s.Origin) {
		for _, part := range []dataset.Part{
			{Name: name, Version: object.Version},
			{Name: name, Offset: object.Size / 2},
			{Name: name, Offset: object.Size + 5},
		} {
			dst := make([]byte, object.Size-object.Size/2+1)
			if part.Offset == 0 {
				dst = make([]byte, object.Size+1)
			}
			if err := s.Origin.Read(t.Context(), part, dst); !errors.Is(err, origin.ErrChanged) {
				t.Errorf("Read %q from %d past its end (%d) returned %v",
					name, part.Offset, object.Size, err)
			}
		}
	}
}

func checkChanged(t *testing.T, s Subject) {
	objects := List(t, s.Origin)
	name := slices.Sorted(maps.Keys(objects))[0]
	part := Whole(objects[name])
	part.Version ^= 1
	err := s.Origin.Read(t.Context(), part, make([]byte, part.Size))
	if !errors.Is(err, origin.ErrChanged) {
		t.Errorf("Read of another version returned %v", err)
	}
	if s.Put == nil {
		return
	}
	name = "big.bin"
	part = Whole(objects[name])
	content := bytes.Clone(s.Files[name])
	content[17] ^= 1
	s.Put(name, content)
	err = s.Origin.Read(t.Context(), part, make([]byte, part.Size))
	if !errors.Is(err, origin.ErrChanged) {
		t.Errorf("Read of an overwritten object returned %v", err)
	}
	fresh := Whole(List(t, s.Origin)[name])
	dst := make([]byte, fresh.Size)
	if err := s.Origin.Read(t.Context(), fresh, dst); err != nil || !bytes.Equal(dst, content) {
		t.Errorf("Read of the new version after a new listing: %v", err)
	}
}

func checkDeleted(t *testing.T, s Subject) {
	if s.Delete == nil {
		return
	}
	part := Whole(List(t, s.Origin)["one"])
	s.Delete("one")
	if err := s.Origin.Read(t.Context(), part, make([]byte, 1)); !errors.Is(err, origin.ErrAbsent) {
		t.Errorf("Read of a deleted object returned %v", err)
	}
	if _, listed := List(t, s.Origin)["one"]; listed {
		t.Error("a deleted object is listed")
	}
}

func checkConcurrency(t *testing.T, s Subject) {
	objects := List(t, s.Origin)
	names := slices.Sorted(maps.Keys(objects))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range names {
				name := names[(i*7+g*13)%len(names)]
				part := Whole(objects[name])
				dst := make([]byte, part.Size)
				if err := s.Origin.Read(t.Context(), part, dst); err != nil {
					t.Errorf("Read %q: %v", name, err)
				} else if !bytes.Equal(dst, s.Files[name]) {
					t.Errorf("Read %q gave other bytes", name)
				}
			}
		})
	}
	wg.Wait()
}

func checkCancel(t *testing.T, s Subject) {
	part := Whole(anyObject(t, s))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dst := make([]byte, part.Size)
	if err := s.Origin.Read(ctx, part, dst); !errors.Is(err, context.Canceled) {
		t.Errorf("Read with a cancelled context returned %v", err)
	}
	if err := s.Origin.Read(t.Context(), part, dst); err != nil {
		t.Errorf("Read after a cancelled one: %v", err)
	}
}

func checkClosed(t *testing.T, s Subject) {
	part := Whole(anyObject(t, s))
	if err := s.Origin.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := s.Origin.Read(t.Context(), part, make([]byte, part.Size)); err == nil {
		t.Error("Read after Close succeeded")
	}
	if err := s.Origin.List(t.Context(), func([]dataset.Object) error { return nil }); err == nil {
		t.Error("List after Close succeeded")
	}
}

func anyObject(t *testing.T, s Subject) dataset.Object {
	objects := List(t, s.Origin)
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if objects[name].Size > 0 {
			return objects[name]
		}
	}
	t.Fatal("the origin lists nothing with bytes in it")
	return dataset.Object{}
}
