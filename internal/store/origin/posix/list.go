package posix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

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
	parent   *folder
}

// walk is one listing in progress. mu guards todo and open; the listers wait on more.
type walk struct {
	files *files
	out   chan []dataset.Object
	mu    sync.Mutex
	more  *sync.Cond
	todo  []*folder
	open  int // folders queued or being read; zero means done
	err   error
}

func (f *files) List(ctx context.Context, fn func([]dataset.Object) error) error {
	ctx, cancel := context.WithCancel(ctx)
	w := &walk{files: f, out: make(chan []dataset.Object, listers)}
	w.more = sync.NewCond(&w.mu)
	w.push(&folder{name: "."})
	stop := context.AfterFunc(ctx, func() { w.fail(ctx.Err()) })
	var running sync.WaitGroup
	for range listers {
		running.Go(func() { w.run(ctx) })
	}
	go func() {
		running.Wait()
		close(w.out)
	}()
	var fnErr error
	for batch := range w.out {
		if fnErr == nil {
			if fnErr = fn(batch); fnErr != nil {
				cancel()
			}
		}
	}
	stop()
	cancel()
	if fnErr != nil {
		return fnErr
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *walk) push(d *folder) {
	w.mu.Lock()
	w.todo = append(w.todo, d)
	w.open++
	w.mu.Unlock()
	w.more.Signal()
}

// pop returns the folder queued last, so that the queue stays short, or nil when all is done.
func (w *walk) pop() *folder {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.todo) == 0 && w.open > 0 && w.err == nil {
		w.more.Wait()
	}
	if w.err != nil || w.open == 0 {
		return nil
	}
	d := w.todo[len(w.todo)-1]
	w.todo = w.todo[:len(w.todo)-1]
	return d
}

func (w *walk) done() {
	w.mu.Lock()
	w.open--
	last := w.open == 0
	w.mu.Unlock()
	if last {
		w.more.Broadcast()
	}
}

func (w *walk) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.more.Broadcast()
}

func (w *walk) run(ctx context.Context) {
	for d := w.pop(); d != nil; d = w.pop() {
		if err := w.read(ctx, d); err != nil {
			w.fail(err)
		}
		w.done()
	}
}

// read lists one directory: files go out in batches, sub-directories into the queue.
func (w *walk) read(ctx context.Context, d *folder) error {
	path := w.files.path(d.name)
	dir, err := w.files.root.Open(d.name)
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
			return fmt.Errorf("%w: %q is a link to a directory above it; remove the link",
				origin.ErrDenied, path)
		}
	}
	for {
		names, readErr := dir.Readdirnames(listBatch)
		batch := make([]dataset.Object, 0, len(names))
		var err error
		ctlErr := conn.Control(func(fd uintptr) { batch, err = w.stat(int(fd), d, names, batch) })
		if err = errors.Join(err, ctlErr); err != nil {
			return err
		}
		if len(batch) > 0 {
			select {
			case w.out <- batch:
			case <-ctx.Done():
				return ctx.Err()
			}
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
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		d.dev, d.ino = uint64(st.Dev), st.Ino
	}
	return nil
}

// stat asks the kernel about names relative to their open directory: one path component each,
// where a path from the root would be resolved again for every file.
func (w *walk) stat(fd int, d *folder, names []string, batch []dataset.Object) (
	[]dataset.Object, error) {
	for _, base := range names {
		name := base
		if d.name != "." {
			name = d.name + "/" + base
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if err == unix.ENOENT {
				continue // removed since the directory was read
			}
			return batch, classify(err, w.files.path(name), "make the directory searchable (x)")
		}
		size, mtime, mode := st.Size, st.Mtim.Nano(), st.Mode&unix.S_IFMT
		if mode == unix.S_IFLNK {
			info, err := w.files.root.Stat(name)
			if err != nil {
				return batch, classify(err, w.files.path(name),
					"the link must lead to something inside the dataset's directory")
			}
			size, mtime, mode = info.Size(), info.ModTime().UnixNano(), 0
			if info.IsDir() {
				mode = unix.S_IFDIR
			} else if info.Mode().IsRegular() {
				mode = unix.S_IFREG
			}
		}
		switch mode {
		case unix.S_IFDIR:
			w.push(&folder{name: name, parent: d})
		case unix.S_IFREG:
			batch = append(batch,
				dataset.Object{Name: name, Size: size, Version: versionOf(size, mtime)})
		}
	}
	return batch, nil
}
