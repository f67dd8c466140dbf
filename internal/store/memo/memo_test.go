package memo

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"belady/internal/core/perf"
	"belady/internal/store/vfs"
	"belady/internal/store/vfs/vfstest"
)

var noon = time.Unix(100*86400+43200, 0)

func folder(t *testing.T) (string, vfs.FS) {
	t.Helper()
	dir := t.TempDir()
	files, err := vfs.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	return dir, files
}

// A process that is killed forgets less than keepBytes and what came within keepAge.
func TestKeep(t *testing.T) {
	_, files := folder(t)
	m := Load(files)
	m.Save(noon)
	for _, c := range []struct {
		bytes int64
		after time.Duration
		found int64
	}{
		{keepBytes - 1, time.Second, 0},
		{1, time.Second, keepBytes},
		{5, time.Second, keepBytes},
		{5, time.Second + keepAge, keepBytes + 10},
		{keepBytes, 0, 2*keepBytes + 10},
		{7, 24 * time.Hour, 7},
	} {
		noon := noon.Add(c.after)
		m.Wrote(c.bytes, noon)
		m.Keep(noon)
		if found := Load(files).Today(noon); found != c.found {
			t.Errorf("%d bytes after %v: %d are found, not %d", c.bytes, c.after, found, c.found)
		}
	}
}

// All is found again, by one whose text is shorter than what stands there, too.
func TestFound(t *testing.T) {
	dir, files := folder(t)
	m := Load(files)
	for range 200 {
		m.Opened("log-"+strings.Repeat("x", len(m.says.Opened)), noon)
	}
	m.Measured(perf.Rates{Random: []perf.Point{{}}}, noon)
	m.Wrote(3, noon)
	m.Save(noon)
	m = Load(files)
	if _, ok := m.Rates(noon); !ok || m.Today(noon) != 3 || m.LastOpened("log-xx") != noon.Unix() {
		t.Errorf("found %+v", m.says)
	}
	for i := range 200 {
		m.Forget("log-" + strings.Repeat("x", i))
	}
	m.Save(noon)
	if m = Load(files); m.LastOpened("log-xx") != 0 || m.Today(noon) != 3 {
		t.Errorf("found %+v", m.says)
	}
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	m.Save(noon)
	if Load(files).Today(noon) != 3 {
		t.Error("it is not made again")
	}
	for _, text := range []string{"", "{", `{"opened":null}`, "null"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m := Load(files)
		m.Opened("log-x", noon)
		m.Wrote(5, noon)
		m.Save(noon)
		if Load(files).Today(noon) != 5 {
			t.Errorf("%q stops it", text)
		}
	}
}

// A directory that takes nothing is not tried again and again.
func TestRefused(t *testing.T) {
	_, below := folder(t)
	files := vfstest.NewFaults(below)
	m := Load(files)
	files.Add(vfstest.Rule{Op: vfstest.Open, Name: name, Err: syscall.EIO})
	m.Wrote(keepBytes, noon)
	for range 10 {
		m.Keep(noon)
	}
	if files.Fired() != 1 || m.Today(noon) != keepBytes {
		t.Errorf("tried %d times", files.Fired())
	}
}
