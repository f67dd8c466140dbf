package posix

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"belady/internal/store/origin"
)

// anywhere and here are how far a name's links may lead: wherever they point, or no further than
// the file system of the directory, where nothing hangs. What leads elsewhere is unix.EXDEV then.
const (
	anywhere = 0
	here     = unix.RESOLVE_NO_XDEV
)

// open opens a name below the directory and follows links as any program does. The directory is
// held open, not looked up by its path, so that one put in its place is not taken for it. The
// error is the kernel's, bare, but for a name that leads out by itself: names come from a listing,
// and a listing has none.
func (f *files) open(name string, resolve uint64) (*os.File, error) {
	if !filepath.IsLocal(name) || filepath.Clean(name) != name {
		return nil, fmt.Errorf("%w: %q is no name below %q", origin.ErrDenied, name, f.dir)
	}
	fd, err := -1, error(nil)
	controlErr := f.root.Control(func(root uintptr) {
		for {
			if resolve == anywhere {
				fd, err = unix.Openat(int(root), name, f.flags, 0)
			} else {
				how := unix.OpenHow{Flags: uint64(f.flags), Resolve: resolve}
				fd, err = unix.Openat2(int(root), name, &how)
			}
			if err != unix.EINTR {
				return
			}
		}
	})
	if controlErr != nil {
		return nil, controlErr // closed
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// tells is whether the kernel can tell what is here: Linux 5.6 can, unless a container forbids it.
func (f *files) tells() bool {
	dir, err := f.open(".", here)
	if err != nil {
		return false
	}
	_ = dir.Close() // Nothing was written.
	return true
}
