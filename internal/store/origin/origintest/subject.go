package origintest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/sample"
	"belady/internal/store/origin"
)

// Folder writes files into a new directory and returns the subject that open makes of it.
func Folder(t *testing.T, files map[string][]byte, open func(dir string) origin.Origin) Subject {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		WriteFile(t, dir, name, content)
	}
	return Subject{
		Origin: open(dir),
		Files:  files,
		Put: func(name string, content []byte) {
			WriteFile(t, dir, name, content)
			// A file system's clock may be too coarse to tell this write from the last.
			later := time.Now().Add(time.Second)
			if err := os.Chtimes(filepath.Join(dir, name), later, later); err != nil {
				t.Fatal(err)
			}
		},
		Delete: func(name string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// WriteFile writes one file below dir, and the folders it needs.
func WriteFile(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Computed is an origin that can say what each sample's bytes are.
type Computed interface {
	Len() int
	Object(id sample.ID) dataset.Object
	Fill(id sample.ID, offset int64, dst []byte)
}

// ComputedFiles returns everything c holds.
func ComputedFiles(c Computed) map[string][]byte {
	files := map[string][]byte{}
	for id := range sample.ID(c.Len()) {
		object := c.Object(id)
		content := make([]byte, object.Size)
		c.Fill(id, 0, content)
		files[object.Name] = content
	}
	return files
}
