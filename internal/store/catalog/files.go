package catalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"belady/internal/core/dataset"
)

// Dataset is an open dataset. Its Manifest reads mapped memory: using it after Close is a fault.
type Dataset struct {
	Info     Info
	Manifest *dataset.Manifest

	once   sync.Once
	mapped []byte
	closed error
}

// Open maps a dataset's manifest and verifies all of it. A later Add does not change what is open.
func (c *Catalog) Open(name string) (*Dataset, error) {
	info, err := c.Show(name)
	if err != nil {
		return nil, err
	}
	d, err := openManifest(c.manifestPath(name))
	if err != nil {
		return nil, fmt.Errorf("opening dataset %s: %w; to scan it again run: "+
			"belady dataset add %s %s", name, err, name, info.URL)
	}
	// A crash between the two files leaves an older Info beside the manifest, which is the truth.
	m := d.Manifest
	info.ID, info.Samples, info.Bytes = m.ID().String(), m.Len(), m.TotalBytes()
	info.MaxBytes, info.Classes = m.MaxSize(), len(m.Classes())
	d.Info = info
	return d, nil
}

// OpenSet joins datasets as a job does; closeAll unmaps them when their set is no longer used.
func (c *Catalog) OpenSet(names []string) (set *dataset.Set, closeAll func() error, err error) {
	var open []*Dataset
	var members []*dataset.Manifest
	closeAll = func() error {
		var errs []error
		for _, d := range open {
			errs = append(errs, d.Close())
		}
		return errors.Join(errs...)
	}
	for _, name := range names {
		d, err := c.Open(name)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		open, members = append(open, d), append(members, d.Manifest)
	}
	if set, err = dataset.NewSet(members, nil); err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	return set, closeAll, nil
}

// Close unmaps the manifest.
func (d *Dataset) Close() error {
	d.once.Do(func() { d.closed = unix.Munmap(d.mapped) })
	return d.closed
}

func openManifest(path string) (*Dataset, error) {
	mapped, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	m, err := dataset.Open(mapped)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(mapped))
	}
	// Verifying has touched every page. Reading needs few of them at a time: names above all would
	// stay resident for nothing. What is needed again comes back from the page cache.
	if err := unix.Madvise(mapped, unix.MADV_DONTNEED); err != nil {
		return nil, errors.Join(err, unix.Munmap(mapped))
	}
	return &Dataset{Manifest: m, mapped: mapped}, nil
}

// mapFile maps a file for reading. Manifests are replaced, never cut, so a mapping stays good.
func mapFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if stat.Size() == 0 || !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, dataset.ErrCorrupt)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(stat.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return mapped, nil
}

// writeFile replaces a file whole and durably: after a crash it is the old or the new one.
func writeFile(path string, data []byte) error {
	folder := filepath.Dir(path)
	err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(folder),
		renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// full says whether an error means that no more bytes fit.
func full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// lock takes the dataset's lock file or says who may have it. The kernel lets go of it when the
// process ends, however it ends. The file stays: removing it would let two holders in.
func (c *Catalog) lock(name string) (unlock func(), err error) {
	path := filepath.Join(c.dir, "."+name+".lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking dataset %s: %w", name, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close() // Nothing was written to it.
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s (lock file %s); wait for it to end", ErrBusy, name, path)
		}
		return nil, fmt.Errorf("locking dataset %s (%s): %w", name, path, err)
	}
	return func() { _ = file.Close() }, nil
}
