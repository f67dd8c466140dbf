package origin_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/origin"
	"belady/internal/store/origin/origintest"
	"belady/internal/store/origin/posix"
	"belady/internal/store/origin/synth"
	"belady/internal/store/origin/throttle"
)

func resilient(t *testing.T, o origin.Origin) origin.Origin {
	t.Helper()
	r, err := origin.Resilient(o, origin.RetryDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResilientOverSynth(t *testing.T) {
	origintest.Run(t, func(t *testing.T, _ map[string][]byte) origintest.Subject {
		inner, err := synth.New(synth.Config{Samples: 50, SizeBytes: 500, Spread: 0.5, Classes: 3})
		if err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		for id := range sample.ID(50) {
			b := make([]byte, inner.Size(id))
			inner.Fill(id, 0, b)
			files[inner.Object(id).Name] = b
		}
		return origintest.Subject{Origin: resilient(t, inner), Files: files}
	})
}

// Over an origin that fails one read in five, everything the suite asks for still holds.
func TestResilientOverFaultyPosix(t *testing.T) {
	origintest.Run(t, func(t *testing.T, files map[string][]byte) origintest.Subject {
		dir := t.TempDir()
		put := func(name string, content []byte) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for name, content := range files {
			put(name, content)
		}
		inner, err := posix.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		script, err := throttle.ParseScript("seed:3,error:0.1,short:0.1")
		if err != nil {
			t.Fatal(err)
		}
		faulty, err := throttle.New(inner, throttle.Config{Faults: script})
		if err != nil {
			t.Fatal(err)
		}
		return origintest.Subject{
			Origin: resilient(t, faulty),
			Files:  files,
			Put: func(name string, content []byte) {
				put(name, content)
				later := time.Now().Add(time.Second)
				if err := os.Chtimes(filepath.Join(dir, name), later, later); err != nil {
					t.Fatal(err)
				}
			},
			Delete: func(name string) { os.Remove(filepath.Join(dir, name)) },
		}
	})
}
