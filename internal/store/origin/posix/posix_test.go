package posix_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
	"belady/internal/store/origin/origintest"
	"belady/internal/store/origin/posix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dir string) origin.Origin {
	t.Helper()
	o, err := posix.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func TestConformance(t *testing.T) {
	origintest.Run(t, func(t *testing.T, files map[string][]byte) origintest.Subject {
		files["bytes\xff\x01\n.x"] = []byte("names are bytes, not text")
		return origintest.Folder(t, files, func(dir string) origin.Origin { return open(t, dir) })
	})
}

func TestNothingOutsideTheRoot(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	origintest.WriteFile(t, outside, "secret", []byte("secret"))
	origintest.WriteFile(t, dir, "in/file", []byte("inside"))
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	o := open(t, dir)
	rel, err := filepath.Rel(dir, filepath.Join(outside, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{rel, "in/../" + rel, "out", filepath.Join(outside, "secret"), ""} {
		if err := o.Read(t.Context(), dataset.Part{Name: name}, make([]byte, 6)); err == nil {
			t.Errorf("Read of %q succeeded", name)
		}
	}
	err = o.List(t.Context(), func([]dataset.Object) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "out") {
		t.Errorf("List with a link that leads out returned %v, want it named", err)
	}
}

func TestLinksInside(t *testing.T) {
	dir := t.TempDir()
	origintest.WriteFile(t, dir, "data/file", []byte("inside"))
	for link, target := range map[string]string{"file": "data/file", "alias": "data"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	o := open(t, dir)
	objects := origintest.List(t, o)
	for _, name := range []string{"data/file", "alias/file", "file"} {
		dst := make([]byte, 6)
		err := o.Read(t.Context(), origintest.Whole(objects[name]), dst)
		if err != nil || string(dst) != "inside" {
			t.Errorf("Read of %q: %q, %v", name, dst, err)
		}
	}
	if len(objects) != 3 {
		t.Errorf("listed %v, want 3 names", objects)
	}
	if err := os.Symlink("..", filepath.Join(dir, "data/up")); err != nil {
		t.Fatal(err)
	}
	err := o.List(t.Context(), func([]dataset.Object) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "up") {
		t.Errorf("List with a link to its own parent returned %v, want it named", err)
	}
}

func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	origintest.WriteFile(t, dir, "folder/file", []byte("x"))
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := open(t, dir)
	if got := origintest.List(t, o); len(got) != 1 {
		t.Errorf("listed %v, want the regular file only", got)
	}
	for _, name := range []string{"pipe", "folder"} {
		err := o.Read(t.Context(), dataset.Part{Name: name}, make([]byte, 1))
		if !errors.Is(err, origin.ErrAbsent) {
			t.Errorf("Read of %q returned %v", name, err)
		}
	}
}

func TestListStopsWhenCancelled(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/1", "b/1", "c/1", "d/e/f/1"} {
		origintest.WriteFile(t, dir, name, []byte("x"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := open(t, dir).List(ctx, func([]dataset.Object) error {
		cancel()
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("List returned %v", err)
	}
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"/data/x":                 "/data/x",
		"data/100%":               "data/100%",
		"file:///data/a%20b":      "/data/a b",
		"file://localhost/data/x": "/data/x",
	} {
		if got, err := posix.ParseURL(in); err != nil || got != want {
			t.Errorf("ParseURL(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"file://host/x", "file:x", "s3://b/x", "file:///x?y=1"} {
		if got, err := posix.ParseURL(in); err == nil {
			t.Errorf("ParseURL(%q) = %q, want an error", in, got)
		}
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	_, err := posix.New("/does/not/exist")
	if !errors.Is(err, origin.ErrAbsent) || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("New returned %v", err)
	}
}

func BenchmarkRead3KB(b *testing.B) {
	dir := b.TempDir()
	origintest.WriteFile(b, dir, "class/file", make([]byte, 3000))
	o := open(b, dir)
	dst := make([]byte, 3000)
	b.SetBytes(3000)
	b.ReportAllocs()
	for b.Loop() {
		if err := o.Read(b.Context(), dataset.Part{Name: "class/file"}, dst); err != nil {
			b.Fatal(err)
		}
	}
}
