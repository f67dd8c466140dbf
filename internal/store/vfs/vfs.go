// Package vfs is the seam between stores and the file system.
//
// It is as narrow as the ssd tier needs, so that tests can put a file system below it that loses
// power (vfstest.Crash) or fails (vfstest.Faults). Names are relative to the directory of the FS,
// '/'-separated. Every method may be called from any goroutine.
package vfs

import "errors"

// ErrLocked is a file that another process, or another open file of this one, has locked.
var ErrLocked = errors.New("locked by another process")

// Block is what direct reads and writes are aligned to: offset, length and memory.
const Block = 4096

// FS is one directory of a file system, held open: what is opened through it lies in that very
// directory, even if the path it was opened by means another one by now.
//
// Errors are those of package os: errors.Is with fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC and
// the like works.
type FS interface {
	Open(name string, how How) (File, error)
	// Remove removes a file, or an empty folder.
	Remove(name string) error
	// List returns what lies in a folder ("." is the directory itself), by name; of a folder that
	// is not there, nothing.
	List(folder string) ([]Entry, error)
	// SyncDir makes the names in a folder durable: files made in it and removed from it.
	SyncDir(folder string) error
	Space() (Space, error)
}

// How says how a file is opened.
type How struct {
	// Create makes the file (0600) and the folders above it (0700); it must not exist yet.
	Create bool
	Write  bool
	// Direct bypasses the page cache. Where a file system cannot, the file is opened as usual, and
	// IsBuffered.
	Direct bool
	// Lock holds the file against every other Open with Lock until it is closed, or is ErrLocked.
	Lock bool
}

// File is an open file. ReadAt and WriteAt are those of io: fewer bytes come with an error, at the
// end io.EOF. With How.Direct offset, length and memory are multiples of Block.
type File interface {
	ReadAt(b []byte, at int64) (int, error)
	WriteAt(b []byte, at int64) (int, error)
	// Sync makes all that was written before, and the file's size, durable.
	Sync() error
	// Allocate makes the file this many bytes long, zero where nothing was, with room for all of
	// them: writing below never lacks space.
	Allocate(bytes int64) error
	Close() error
}

// IsBuffered tells whether a file that was opened with How.Direct goes through the page cache all
// the same. Such a file has a method Buffered.
func IsBuffered(f File) bool {
	b, ok := f.(interface{ Buffered() bool })
	return ok && b.Buffered()
}

// Entry is one thing in a folder.
type Entry struct {
	Name  string
	Bytes int64
	Dir   bool
}

// Space is how much room a file system has, and which one it is.
type Space struct {
	Total, Free int64
	// ID names the file system; another one means that a different one is mounted there now.
	ID uint64
}
