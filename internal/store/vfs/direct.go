package vfs

import (
	"os"
	"sync"
	"syscall"
)

// directFile is a file past the page cache. Its reads, writes and syncs are the queue's where there
// is one.
type directFile struct {
	osFile
	queue *queue // nil: plain system calls

	using  sync.RWMutex // held by requests under way, and by Close against them
	closed bool
}

// ReadAt reads as io.ReaderAt does.
func (f *directFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.try(aioRead, "read", b, at)
	if n == len(b) || err != nil {
		return n, err
	}
	rest, err := f.File.ReadAt(b[n:], at+int64(n)) // it was refused, or is at the end
	return n + rest, err
}

// WriteAt writes as io.WriterAt does.
func (f *directFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.try(aioWrite, "write", b, at)
	if n == len(b) || err != nil {
		return n, err
	}
	rest, err := f.File.WriteAt(b[n:], at+int64(n))
	return n + rest, err
}

// try has the queue read or write. What it leaves without an error is to be done plainly.
func (f *directFile) try(op uint16, name string, b []byte, at int64) (int, error) {
	if f.queue == nil || len(b) == 0 || at < 0 || !IsAligned(b) {
		return 0, nil
	}
	f.using.RLock()
	defer f.using.RUnlock()
	if f.closed {
		return 0, wrap(name, f.Name(), os.ErrClosed)
	}
	n, err := f.queue.do(op, int(f.Fd()), b, at)
	return n, failure(name, f.Name(), err)
}

// Sync leaves out times, as osFile's does.
func (f *directFile) Sync() error {
	if f.queue == nil {
		return f.osFile.Sync()
	}
	f.using.RLock()
	defer f.using.RUnlock()
	if f.closed {
		return wrap("sync", f.Name(), os.ErrClosed)
	}
	_, err := f.queue.do(aioSync, int(f.Fd()), nil, 0)
	if again(err) {
		return f.osFile.Sync()
	}
	return failure("sync", f.Name(), err)
}

// again tells whether a request is to be made once more, plainly.
func again(err error) bool {
	return err == errRefused || err == syscall.EINTR || err == syscall.EAGAIN
}

func failure(op, name string, err error) error {
	if again(err) {
		return nil
	}
	return wrap(op, name, err)
}

// Close waits for what is under way.
func (f *directFile) Close() error {
	f.using.Lock()
	defer f.using.Unlock()
	err := f.File.Close()
	if !f.closed {
		f.closed = true
		f.queue.leave()
	}
	return err
}
