package ssd

import (
	"testing"

	"go.uber.org/goleak"

	"belady/internal/store/tier"
	"belady/internal/store/tier/tiertest"
	"belady/internal/store/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens directories over file systems that stay, so that a second open is a restart.
func open(t testing.TB, quota int64, files ...vfs.FS) *Disks {
	t.Helper()
	o := Options{Free: 1}
	under := map[string]vfs.FS{}
	for i, f := range files {
		path := string(rune('a' + i))
		under[path] = f
		o.Dirs = append(o.Dirs, Dir{Path: path, Quota: quota / int64(len(files))})
	}
	o.FS = func(path string) (vfs.FS, error) { return under[path], nil }
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// folderFS is a new directory of the operating system.
func folderFS(t testing.TB) vfs.FS {
	t.Helper()
	f, err := vfs.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestConformance(t *testing.T) {
	tiertest.Run(t, func(t *testing.T, quota int64) (tiertest.Opener, vfs.FS) {
		f := folderFS(t)
		return func() tier.Directories { return open(t, quota, f) }, f
	})
}
