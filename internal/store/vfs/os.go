package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OS is a directory of the operating system's file system.
type OS struct {
	root *os.Root

	mu    sync.Mutex
	queue *queue // nil before the first direct file, and where the kernel has none
	tried bool
	why   error // the kernel has none
}

// Dir opens a directory, which is made (0700) if it is not there.
func Dir(name string) (*OS, error) {
	if err := os.MkdirAll(name, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &OS{root: root}, nil
}

// Close gives the directory back. Files opened through it stay open.
func (o *OS) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue.leave()
	o.queue, o.tried = nil, true
	return o.root.Close()
}

// Plain is why direct files are read and written by plain system calls, each of which holds a
// thread: nil where they are not, or none was opened yet.
func (o *OS) Plain() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.why
}

// join returns the directory's queue for one more user; nil: there is none.
func (o *OS) join() *queue {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.tried {
		o.tried = true
		o.queue, o.why = newQueue()
	}
	if o.queue != nil {
		o.queue.users.Add(1)
	}
	return o.queue
}

// Open opens a file; see How.
func (o *OS) Open(name string, how How) (File, error) {
	flag := os.O_RDONLY
	if how.Write || how.Create {
		flag = os.O_RDWR
	}
	if how.Create {
		flag |= os.O_CREATE | os.O_EXCL
		if err := o.root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return nil, err
		}
	}
	f, err := o.root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	direct, err := prepare(f, how)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	switch {
	case direct:
		return &directFile{osFile: osFile{f}, queue: o.join()}, nil
	case how.Direct:
		return bufferedFile{osFile{f}}, nil
	}
	return osFile{f}, nil
}

// bufferedFile is one that was to be direct.
type bufferedFile struct{ osFile }

// Buffered is for IsBuffered.
func (bufferedFile) Buffered() bool { return true }

// prepare locks a file and makes it direct, and tells whether it is.
func prepare(f *os.File, how How) (direct bool, err error) {
	if how.Lock {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, fmt.Errorf("%s: %w", f.Name(), ErrLocked)
		}
		if err != nil {
			return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
	if !how.Direct {
		return false, nil
	}
	// Set once the file is open rather than when it is opened, because a file system that cannot
	// then leaves no file behind that Create made.
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return false, &fs.PathError{Op: "open direct", Path: f.Name(), Err: err}
	}
	return err == nil, nil
}

// Remove removes a file or an empty folder.
func (o *OS) Remove(name string) error { return o.root.Remove(name) }

// List returns what lies in a folder, by name.
func (o *OS) List(folder string) ([]Entry, error) {
	f, err := o.root.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(found))
	for _, d := range found {
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went while they were listed
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, Entry{Name: d.Name(), Bytes: info.Size(), Dir: info.IsDir()})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

// SyncDir makes the names in a folder durable.
func (o *OS) SyncDir(folder string) error {
	f, err := o.root.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Space asks the file system that the directory lies in. A directory that was removed is an error.
func (o *OS) Space() (Space, error) {
	f, err := o.root.Open(".")
	if err != nil {
		return Space{}, err
	}
	defer f.Close()
	var all unix.Statfs_t
	var this unix.Stat_t
	if err := unix.Fstatfs(int(f.Fd()), &all); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: o.root.Name(), Err: err}
	}
	if err := unix.Fstat(int(f.Fd()), &this); err != nil {
		return Space{}, &fs.PathError{Op: "stat", Path: o.root.Name(), Err: err}
	}
	if this.Nlink == 0 {
		return Space{}, &fs.PathError{Op: "stat", Path: o.root.Name(), Err: fs.ErrNotExist}
	}
	return Space{
		Total: int64(all.Blocks) * all.Bsize,
		Free:  int64(all.Bavail) * all.Bsize,
		ID:    this.Dev,
	}, nil
}

type osFile struct{ *os.File }

// Sync leaves out times, which nobody needs.
func (f osFile) Sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil || !errors.Is(err, unix.EINTR) {
			return wrap("sync", f.Name(), err)
		}
	}
}

// Allocate reserves and zeroes the file's blocks.
func (f osFile) Allocate(bytes int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, bytes)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EOPNOTSUPP) { // then room is not promised, but the size is
			return f.Truncate(bytes)
		}
		return wrap("allocate", f.Name(), err)
	}
}

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// hugeFrom is the size from which a buffer may have huge pages.
const hugeFrom = 4 << 20

// Aligned returns zeroed memory that direct I/O can use: its address is a multiple of Block. It is
// outside of Go's heap, and is given back by Free.
func Aligned(bytes int) []byte {
	b, err := unix.Mmap(-1, 0, max(bytes, 1), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(fmt.Sprintf("vfs: no memory for a buffer of %d bytes: %v", bytes, err))
	}
	if bytes >= hugeFrom {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // a hint: fewer faults and address look-ups
	}
	return b[:bytes]
}

// Free gives back what Aligned returned; the whole of it, not a part.
func Free(b []byte) {
	if err := unix.Munmap(b[:cap(b)]); err != nil {
		panic(fmt.Sprintf("vfs: freeing what Aligned did not return: %v", err))
	}
}

// IsAligned tells whether a direct read may go into b, given enough room behind its begin.
func IsAligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%Block == 0
}
