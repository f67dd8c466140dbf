package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"belady/internal/core/dataset"
	"belady/internal/core/sample"
	"belady/internal/store/origin"
	"belady/internal/store/origin/posix"
	"belady/internal/store/origin/synth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an origin that lists what it is told to, in batches of two, and reads nothing.
type memory struct {
	objects []dataset.Object
	err     error
	closed  int
	inside  func()
}

func (m *memory) URL() string { return "memory://x" }

func (m *memory) List(ctx context.Context, fn func([]dataset.Object) error) error {
	if m.inside != nil {
		m.inside()
	}
	for rest := m.objects; len(rest) > 0; rest = rest[min(2, len(rest)):] {
		batch := append([]dataset.Object(nil), rest[:min(2, len(rest))]...)
		if err := fn(batch); err != nil {
			return err
		}
		clear(batch) // The batch is the callee's only during the call.
	}
	return m.err
}

func (m *memory) Read(context.Context, dataset.Part, []byte) error {
	return errors.New("a scan must not read")
}

func (m *memory) Close() error { m.closed++; return nil }

func newCatalog(t *testing.T, from origin.Origin) *Catalog {
	return New(t.TempDir(), func(context.Context, string) (origin.Origin, error) {
		return from, nil
	})
}

func add(t *testing.T, c *Catalog, name, url string, fields ...string) Result {
	t.Helper()
	r, err := c.Add(context.Background(), name, url,
		Options{Options: dataset.Options{Fields: fields}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("error is %v, want one with %q", err, text)
		}
	}
}

func TestAddOpenShowListRemove(t *testing.T) {
	from := &memory{objects: []dataset.Object{
		{Name: "cat/2.jpg", Size: 20, Version: 2}, {Name: "cat/1.jpg", Size: 10, Version: 1},
		{Name: "dog/\n\xff.jpg", Size: 30, Version: 3}, {Name: ".DS_Store", Size: 4},
	}}
	c := newCatalog(t, from)
	var phases []Phase
	r, err := c.Add(context.Background(), "pets", "memory://x", Options{}, func(p Progress) {
		phases = append(phases, p.Phase)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Phase{Listing, Listing, Sorting, Writing}, phases); diff != "" {
		t.Error(diff)
	}
	if r.Rescan || r.Changes != (dataset.Changes{Added: 3}) || r.Info.LeftOut.Hidden != 1 ||
		r.Info.Samples != 3 || r.Info.Bytes != 60 || r.Info.Classes != 2 {
		t.Errorf("%+v", r)
	}
	d, err := c.Open("pets")
	if err != nil {
		t.Fatal(err)
	}
	if d.Manifest.Name(2) != "dog/\n\xff.jpg" || d.Info.ID != r.Info.ID || d.Info.URL != "memory://x" {
		t.Errorf("%+v", d.Info)
	}
	info, err := c.Show("pets")
	if diff := cmp.Diff(r.Info, info); diff != "" || err != nil {
		t.Error(diff, err)
	}
	all, err := c.List()
	if diff := cmp.Diff([]Info{r.Info}, all); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if err := c.Remove("pets"); err != nil {
		t.Fatal(err)
	}
	if d.Manifest.Size(2) != 30 {
		t.Error("an open manifest went away with the dataset")
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if from.closed != 1 {
		t.Errorf("the origin was closed %d times", from.closed)
	}
	if all, err := c.List(); len(all) != 0 || err != nil {
		t.Errorf("after the removal: %v, %v", all, err)
	}
	if err := c.Remove("pets"); !errors.Is(err, ErrUnknown) {
		t.Errorf("removing twice: %v", err)
	}
}

func TestListNamesWhatIsDamaged(t *testing.T) {
	c := newCatalog(t, &memory{objects: []dataset.Object{{Name: "a"}}})
	add(t, c, "bad", "memory://x")
	add(t, c, "good", "memory://x")
	if err := os.WriteFile(c.infoPath("bad"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := c.List()
	wantError(t, err, "dataset bad", "damaged")
	if len(all) != 1 || all[0].Name != "good" {
		t.Errorf("the others are %v", all)
	}
	if err := c.Remove("bad"); err != nil {
		t.Errorf("what is damaged cannot be removed: %v", err)
	}
}

func TestPathsAreKeptAbsolute(t *testing.T) {
	c := newCatalog(t, &memory{objects: []dataset.Object{{Name: "a"}}})
	if r := add(t, c, "x", "some/folder"); !filepath.IsAbs(r.Info.URL) {
		t.Errorf("the URL is %s", r.Info.URL)
	}
}

func TestPrivateFiles(t *testing.T) {
	c := newCatalog(t, &memory{objects: []dataset.Object{{Name: "a"}}})
	add(t, c, "x", "memory://x")
	err := filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		stat, err := e.Info()
		if err != nil {
			return err
		}
		if stat.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, stat.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRescan(t *testing.T) {
	from := &memory{objects: []dataset.Object{
		{Name: "a.jpg", Version: 1}, {Name: "b.jpg", Version: 1}, {Name: "c.jpg", Version: 1},
	}}
	c := newCatalog(t, from)
	first := add(t, c, "x", "memory://x", "jpg")
	same := add(t, c, "x", "memory://x")
	if !same.Rescan || same.Info.ID != first.Info.ID || same.Changes != (dataset.Changes{Same: 3}) {
		t.Errorf("a scan of the same: %+v", same)
	}
	if diff := cmp.Diff([]string{"jpg"}, same.Info.Fields); diff != "" {
		t.Error("the declared fields were forgotten:", diff)
	}
	open, err := c.Open("x")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	from.objects = []dataset.Object{{Name: "b.jpg", Version: 2}, {Name: "c.jpg", Version: 1},
		{Name: "d.jpg"}, {Name: "e.jpg"}}
	r := add(t, c, "x", "memory://x")
	want := dataset.Changes{Added: 2, Changed: 1, Removed: 1, Same: 1}
	if r.Changes != want || r.Info.ID == first.Info.ID {
		t.Errorf("%+v, want %+v", r.Changes, want)
	}
	if open.Manifest.Len() != 3 || open.Manifest.Verify() != nil {
		t.Error("a scan changed what was open")
	}
	_, err = c.Add(context.Background(), "x", "memory://y", Options{}, nil)
	wantError(t, err, "already memory://x", "rm x")
}

func TestFailedAddLeavesWhatWasThere(t *testing.T) {
	from := &memory{objects: []dataset.Object{{Name: "a"}}}
	c := newCatalog(t, from)
	before := add(t, c, "x", "memory://x")
	good := c.write
	from.objects = append(from.objects, dataset.Object{Name: "b"})
	for _, name := range []string{"manifest", "dataset.json"} {
		c.write = func(path string, data []byte) error {
			if filepath.Base(path) == name {
				return fmt.Errorf("write %s: %w", path, syscall.ENOSPC)
			}
			return good(path, data)
		}
		_, err := c.Add(context.Background(), "new", "memory://x", Options{}, nil)
		wantError(t, err, "disk", "is full", "free some space")
		if _, err := c.Show("new"); !errors.Is(err, ErrUnknown) {
			t.Errorf("half a dataset exists: %v", err)
		}
		if _, err := os.Stat(c.path("new")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("its folder was left: %v", err)
		}
	}
	c.write = func(string, []byte) error { return syscall.ENOSPC }
	// The earlier dataset's manifest is neither replaced nor removed.
	_, err := c.Add(context.Background(), "x", "memory://x", Options{}, nil)
	wantError(t, err, "intact")
	from.err = origin.ErrUnavailable
	_, err = c.Add(context.Background(), "x", "memory://x", Options{}, nil)
	if !errors.Is(err, origin.ErrUnavailable) {
		t.Errorf("a failed listing gives %v", err)
	}
	d, err := c.Open("x")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Info.ID != before.Info.ID || d.Manifest.Len() != 1 {
		t.Errorf("the earlier manifest is gone: %+v", d.Info)
	}
}

func TestDamageIsFoundAndRepaired(t *testing.T) {
	from := &memory{objects: []dataset.Object{{Name: "some/name"}}}
	c := newCatalog(t, from)
	add(t, c, "x", "memory://x")
	data, err := os.ReadFile(c.manifestPath("x"))
	if err != nil {
		t.Fatal(err)
	}
	data[strings.Index(string(data), "some/name")] ^= 1
	for _, bad := range [][]byte{data, data[:100], nil} {
		if err := os.WriteFile(c.manifestPath("x"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := c.Open("x")
		wantError(t, err, "damaged", "belady dataset add x memory://x")
	}
	stale := filepath.Join(c.path("x"), ".manifest123")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	add(t, c, "x", "memory://x")
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a crash left is still there: %v", err)
	}
	d, err := c.Open("x")
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
}

func TestManifestIsTheTruthAfterACrashBetweenTheFiles(t *testing.T) {
	from := &memory{objects: []dataset.Object{{Name: "a"}}}
	c := newCatalog(t, from)
	add(t, c, "x", "memory://x")
	from.objects = append(from.objects, dataset.Object{Name: "b"})
	c.write = func(path string, data []byte) error {
		if path == c.infoPath("x") {
			return syscall.ENOSPC
		}
		return writeFile(path, data)
	}
	_, err := c.Add(context.Background(), "x", "memory://x", Options{}, nil)
	wantError(t, err, "is full", "the manifest is the new one")
	d, err := c.Open("x")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Info.Samples != 2 || d.Info.ID != d.Manifest.ID().String() {
		t.Errorf("%+v", d.Info)
	}
}

func TestRefusals(t *testing.T) {
	from := &memory{}
	c := newCatalog(t, from)
	ctx := context.Background()
	for _, name := range []string{"", ".", "..", ".x", "-x", "a/b", "a b", "é", "a\n",
		strings.Repeat("x", 129)} {
		_, err := c.Add(ctx, name, "memory://x", Options{}, nil)
		wantError(t, err, "is not possible")
		_, err = c.Open(name)
		wantError(t, err, "is not possible")
		wantError(t, c.Remove(name), "is not possible")
	}
	_, err := c.Add(ctx, "x", "memory://x", Options{}, nil)
	wantError(t, err, "no samples", "check the URL")
	_, err = c.Add(ctx, "x", "memory://x", Options{Options: dataset.Options{Format: "zip"}}, nil)
	wantError(t, err, `"zip"`, "folder")
	_, err = c.Add(ctx, "x", "s3://key:secret@bucket/x", Options{}, nil)
	wantError(t, err, "credentials")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows the secret: %v", err)
	}
	_, err = c.Open("x")
	wantError(t, err, "there are none yet", "belady dataset add x URL")
	from.objects = []dataset.Object{{Name: "a"}}
	add(t, c, "one", "memory://x")
	_, err = c.Open("x")
	wantError(t, err, "known are one")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Add(cancelled, "x", "memory://x", Options{}, nil); !errors.Is(err,
		context.Canceled) {
		t.Errorf("a cancelled add gives %v", err)
	}
}

func TestOneAddAtATime(t *testing.T) {
	from := &memory{objects: []dataset.Object{{Name: "a"}}}
	c := newCatalog(t, from)
	tried := false
	from.inside = func() {
		if tried {
			return
		}
		tried = true
		_, err := c.Add(context.Background(), "x", "memory://x", Options{}, nil)
		if !errors.Is(err, ErrBusy) {
			t.Errorf("a second add gives %v", err)
		}
		if _, err := c.Add(context.Background(), "y", "memory://x", Options{},
			nil); err != nil {
			t.Errorf("an add of another dataset gives %v", err)
		}
	}
	add(t, c, "x", "memory://x")
	add(t, c, "x", "memory://x")
	if !tried {
		t.Error("the origin was never listed")
	}
}

func TestRealFolder(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"cat/1.jpg", "cat/sub/2.jpg", "dog/3.jpg", ".hidden", "top.txt"} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	c := New(t.TempDir(), func(_ context.Context, url string) (origin.Origin, error) {
		return posix.New(url)
	})
	first := add(t, c, "pets", root)
	d, err := c.Open("pets")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var names []string
	for i := range d.Manifest.Len() {
		names = append(names, d.Manifest.Name(sample.ID(i)))
	}
	want := []string{"cat/1.jpg", "cat/sub/2.jpg", "dog/3.jpg", "top.txt"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if again := add(t, c, "pets", root); again.Info.ID != first.Info.ID {
		t.Error("the same folder has two content ids")
	}
	if err := os.WriteFile(filepath.Join(root, "dog/3.jpg"), []byte("longer than before"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if r := add(t, c, "pets", root); r.Changes != (dataset.Changes{Changed: 1, Same: 3}) {
		t.Errorf("%+v", r.Changes)
	}
}

func TestImagesAsTorchvisionTakesThem(t *testing.T) {
	objects := func(names ...string) (all []dataset.Object) {
		for _, name := range names {
			all = append(all, dataset.Object{Name: name, Size: 1, Version: 1})
		}
		return all
	}
	images := Options{Images: true}
	from := &memory{objects: objects("dog/b.TIFF", "cat/a.jpg", "cat/notes.txt", "top.jpg",
		"cat/deep/c.JPeG", "cat/jpg", "dog/.DS_Store", "dog/d.jpg.part")}
	c := newCatalog(t, from)
	r, err := c.Add(t.Context(), "x", "memory://x", images, nil)
	if err != nil || r.Info.Samples != 3 || r.Info.Classes != 2 || !r.Info.Images {
		t.Fatalf("%+v, %v", r.Info, err)
	}
	plain := newCatalog(t, &memory{objects: objects("cat/a.jpg", "cat/deep/c.JPeG", "dog/b.TIFF")})
	if same := add(t, plain, "x", "memory://x"); same.Info.ID != r.Info.ID {
		t.Error("the same samples have two content ids")
	}
	if _, err := plain.Add(t.Context(), "x", "memory://x", images, nil); err == nil ||
		!strings.Contains(err.Error(), "choose another name") {
		t.Errorf("images of a dataset of all files: %v", err)
	}
	if again := add(t, c, "x", "memory://x"); again.Info.Samples != 3 || !again.Info.Images {
		t.Errorf("that only images were wanted is forgotten: %+v", again.Info)
	}
	from.objects = append(from.objects, objects(".cache/a.jpg", "cat/._a.jpg")...)
	_, err = c.Add(t.Context(), "x", "memory://x", images, nil)
	wantError(t, err, "2 images", "begins with a dot")
}

func TestFoldersAreRemembered(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "cat", "empty"), 0o700),
		os.WriteFile(filepath.Join(root, "cat", "1.jpg"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	for _, name := range []string{"cat/empty", "cat"} {
		if err := os.Chtimes(filepath.Join(root, name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	c := New(t.TempDir(), func(_ context.Context, url string) (origin.Origin, error) {
		return posix.New(url)
	})
	add(t, c, "pets", root)
	data, err := os.ReadFile(c.foldersPath("pets"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(string(data), "\x00")
	slices.Sort(got)
	// The root was modified just now, so that its time says nothing yet.
	want := []string{"", "0 .", fmt.Sprintf("%d cat", long.UnixNano()),
		fmt.Sprintf("%d cat/empty", long.UnixNano())}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSynthKeepsItsIDs(t *testing.T) {
	config := synth.Defaults()
	config.Samples, config.Classes, config.Spread = 5000, 7, 0.5
	from, err := synth.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c := newCatalog(t, from)
	add(t, c, "s", from.URL())
	d, err := c.Open("s")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Manifest.Len() != from.Len() || len(d.Manifest.Classes()) != 7 {
		t.Fatalf("%+v", d.Info)
	}
	for i := range from.Len() {
		id := sample.ID(i)
		if o := from.Object(id); d.Manifest.Name(id) != o.Name || d.Manifest.Size(id) != uint32(o.Size) {
			t.Fatalf("sample %d is %q, the origin's is %q", id, d.Manifest.Name(id), o.Name)
		}
	}
}

// A scan of the largest dataset we promise, from a listing to an open manifest.
func BenchmarkAdd14M(b *testing.B) {
	config := synth.Defaults()
	config.Samples, config.Classes = 14_200_000, 1000
	for b.Loop() {
		from, err := synth.New(config)
		if err != nil {
			b.Fatal(err)
		}
		c := New(b.TempDir(), func(context.Context, string) (origin.Origin, error) {
			return from, nil
		})
		if _, err := c.Add(context.Background(), "s", from.URL(), Options{},
			nil); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		d, err := c.Open("s")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/open")
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestOpenSet(t *testing.T) {
	c := newCatalog(t, &memory{objects: []dataset.Object{{Name: "a", Size: 3}, {Name: "b", Size: 4}}})
	add(t, c, "one", "memory://x")
	add(t, c, "two", "memory://x")
	set, closeAll, err := c.OpenSet([]string{"one", "two"})
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != 4 || set.Size(3) != 4 || set.TotalBytes() != 14 {
		t.Errorf("%d samples, %d bytes", set.Len(), set.TotalBytes())
	}
	if err := closeAll(); err != nil {
		t.Error(err)
	}
	if _, _, err := c.OpenSet([]string{"one", "three"}); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, _, err := c.OpenSet(nil); err == nil {
		t.Error("nothing is a set")
	}
}
