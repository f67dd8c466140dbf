package posix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

const (
	listers   = 16   // directories read at once: metadata servers answer slowly but in parallel
	listBatch = 1024 // objects per call of List's fn, and directory entries per system call round
)

// folder is one directory to list. The chain of parents is how a symbolic link that leads back up
// is told from one that leads to a sibling.
type folder struct {
	name     string // relative to the root, "." for the root itself
	dev, ino uint64
	modified time.Time // before it was read
	parent   *folder
}

func (f *files) List(ctx context.Context, fn func([]dataset.Object) error) error {
	return origin.Walk(ctx, listers, &folder{name: "."}, f.readFolder, fn)
}

func (f *files) ListFolders(ctx context.Context, fn func([]dataset.Object) error,
	seen func(origin.Folder),
) error {
	var mu sync.Mutex
	var all []origin.Folder
	read := func(ctx context.Context, w *origin.Walker[*folder], d *folder) error {
		err := f.readFolder(ctx, w, d)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, origin.Folder{Name: d.name, Modified: d.modified})
		return err
	}
	if err := origin.Walk(ctx, listers, &folder{name: "."}, read, fn); err != nil {
		return err
	}
	for _, one := range all {
		seen(one)
	}
	return nil
}

// readFolder lists one directory: files go out in batches, sub-directories into the queue.
func (f *files) readFolder(ctx context.Context, w *origin.Walker[*folder], d *folder) error {
	path := f.path(d.name)
	dir, err := f.open(d.name, anywhere)
	if err != nil {
		return classify(err, path, "make the directory readable or leave it out of the dataset")
	}
	defer dir.Close()
	conn, err := dir.SyscallConn()
	if err != nil {
		return classify(err, path, "check the file system's health")
	}
	if err := d.identify(dir); err != nil {
		return classify(err, path, "check the file system's health")
	}
	for up := d.parent; up != nil; up = up.parent {
		if up.dev == d.dev && up.ino == d.ino {
			if hidden(d.name) {
				return nil
			}
			return fmt.Errorf("%w: %q is a link to a directory above it; remove the link",
				origin.ErrDenied, path)
		}
	}
	for {
		names, readErr := dir.Readdirnames(listBatch)
		var batch []dataset.Object
		var err error
		ctlErr := conn.Control(func(fd uintptr) { batch, err = f.stat(int(fd), w, d, names) })
		if err = errors.Join(err, ctlErr); err != nil {
			return err
		}
		if err := w.Emit(ctx, batch); err != nil {
			return err
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return classify(readErr, path, "check the file system's health")
		}
	}
}

func (d *folder) identify(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	d.modified = info.ModTime()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		d.dev, d.ino = uint64(st.Dev), st.Ino
	}
	return nil
}

// stat asks the kernel about names relative to their open directory: one path component each,
// where a path from the root would be resolved again for every file. A link is what it leads to.
func (f *files) stat(fd int, w *origin.Walker[*folder], d *folder, names []string) (
	[]dataset.Object, error) {
	batch := make([]dataset.Object, 0, len(names))
	for _, base := range names {
		name := base
		if d.name != "." {
			name = d.name + "/" + base
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, 0); err != nil {
			if err = f.unreadable(fd, name, base, err); err != nil {
				return batch, err
			}
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			w.Push(&folder{name: name, parent: d})
		case unix.S_IFREG:
			batch = append(batch, dataset.Object{Name: name, Size: st.Size,
				Version: versionOf(st.Size, st.Mtim.Nano())})
		}
	}
	return batch, nil
}

// unreadable is the error of a name the kernel says nothing about; nil for one that is no sample:
// removed since the directory was read, or a hidden link, as editors leave them.
func (f *files) unreadable(fd int, name, base string, cause error) error {
	var link unix.Stat_t
	err := unix.Fstatat(fd, base, &link, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil || link.Mode&unix.S_IFMT != unix.S_IFLNK {
		return classify(cause, f.path(name), "make the directory searchable (x)")
	}
	if hidden(name) {
		return nil
	}
	if cause == unix.ENOENT || cause == unix.ENOTDIR || cause == unix.ELOOP {
		return fmt.Errorf("%w: %q is a link that leads to no file; mend or remove the link",
			origin.ErrAbsent, f.path(name))
	}
	return classify(cause, f.path(name), "make what the link leads to readable, or remove the link")
}

// hidden names are never samples.
func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}
