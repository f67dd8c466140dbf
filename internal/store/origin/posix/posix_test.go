package posix_test

import (
	"context"
	"errors"
	"io/fs"
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

// What every driver promises holds of files that are links to files elsewhere, and of those in
// folders that are links.
func TestConformanceOfLinks(t *testing.T) {
	for _, subtrees := range []bool{false, true} {
		origintest.Run(t, func(t *testing.T, files map[string][]byte) origintest.Subject {
			var dir string
			subject := origintest.Folder(t, files, func(elsewhere string) origin.Origin {
				dir = linked(t, elsewhere, subtrees)
				return open(t, dir)
			})
			subject.Delete = func(name string) {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			return subject
		})
	}
}

// linked is a folder of links to what is in another: to every file, or to what is at the top.
func linked(t *testing.T, elsewhere string, subtrees bool) string {
	dir := t.TempDir()
	err := filepath.WalkDir(elsewhere, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, elsewhere+"/")
		if err != nil || path == elsewhere || (entry.IsDir() && !subtrees) {
			return err
		}
		at := filepath.Join(dir, name)
		err = errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(path, at))
		if entry.IsDir() && err == nil {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func symlink(t *testing.T, target, dir, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// Names lead nowhere but below the directory, whatever links do.
func TestNamesStayBelow(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	origintest.WriteFile(t, outside, "secret", []byte("secret"))
	origintest.WriteFile(t, outside, "folder/file", []byte("linked"))
	origintest.WriteFile(t, dir, "in/file", []byte("inside"))
	symlink(t, filepath.Join(outside, "folder"), dir, "out")
	o := open(t, dir)
	rel, err := filepath.Rel(dir, filepath.Join(outside, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{rel, "in/../" + rel, "out/../secret", "in/../in/file", "in//file",
		filepath.Join(outside, "secret"), ""} {
		err := o.Read(t.Context(), dataset.Part{Name: name}, make([]byte, 6))
		if !errors.Is(err, origin.ErrDenied) {
			t.Errorf("Read of %q: %v", name, err)
		}
	}
	for name := range origintest.List(t, o) {
		if name != "in/file" && name != "out/file" {
			t.Errorf("listed %q", name)
		}
	}
}

// A link is what it leads to: its version changes with that, and also when it is led elsewhere.
func TestLinkThatChanges(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	origintest.WriteFile(t, outside, "one", []byte("first."))
	origintest.WriteFile(t, outside, "two", []byte("other"))
	symlink(t, filepath.Join(outside, "one"), dir, "link")
	o := open(t, dir)
	part := origintest.Whole(origintest.List(t, o)["link"])
	dst := make([]byte, 6)
	if err := o.Read(t.Context(), part, dst); err != nil || string(dst) != "first." {
		t.Fatalf("read %q, %v", dst, err)
	}
	if err := os.Remove(filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	symlink(t, filepath.Join(outside, "two"), dir, "link")
	if err := o.Read(t.Context(), part, dst); !errors.Is(err, origin.ErrChanged) {
		t.Errorf("read through a link led elsewhere: %v", err)
	}
	if err := os.Remove(filepath.Join(outside, "two")); err != nil {
		t.Fatal(err)
	}
	if err := o.Read(t.Context(), part, dst); !errors.Is(err, origin.ErrAbsent) {
		t.Errorf("read through a link to nothing: %v", err)
	}
}

// Links that lead to no file or round in a circle fail a listing with their name, unless no sample
// could come from them.
func TestBadLinks(t *testing.T) {
	for target, says := range map[string]string{
		"nowhere":         "leads to no file",
		"bad":             "leads to no file", // itself
		"../../data/file": "leads to no file",
		"..":              "a directory above it",
		".":               "a directory above it",
		"up":              "a directory above it", // by way of another link
	} {
		outside, dir := t.TempDir(), t.TempDir()
		origintest.WriteFile(t, dir, "data/.hidden/file", []byte("inside"))
		symlink(t, outside, dir, "data/out")
		symlink(t, dir, outside, "up")
		bad := "data/bad"
		if target == "up" {
			bad = "data/out/up"
		} else if err := os.Remove(filepath.Join(outside, "up")); err != nil {
			t.Fatal(err)
		} else {
			symlink(t, target, dir, "data/bad")
		}
		err := open(t, dir).List(t.Context(), func([]dataset.Object) error { return nil })
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), bad) {
			t.Errorf("a link to %q: %v", target, err)
		}
		if err := os.Remove(filepath.Join(dir, bad)); err != nil {
			t.Fatal(err)
		}
		symlink(t, target, dir, "data/.hidden/bad")
		symlink(t, target, dir, "data/.bad")
		if got := origintest.List(t, open(t, dir)); len(got) != 1 {
			t.Errorf("hidden links to %q: listed %v", target, got)
		}
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
