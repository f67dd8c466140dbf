// Package posix reads a dataset from a directory of files: a local disk, NFS, Lustre.
//
// Symbolic links are followed wherever they lead, as PyTorch follows them: whoever adds a dataset
// runs the daemon, and may read what its links lead to. Names themselves stay below the directory:
// none is absolute, and none holds "..". A file's version is a hash of its size and modification
// time (for a link, of what it leads to), taken from the open descriptor before and after the
// bytes are read. It never writes, and never opens anything but regular files and directories. A
// read that hangs in the kernel (a dead NFS server) cannot be cancelled, but whoever waits for it
// is let go at its deadline; hang.go says how.
package posix

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

// ParseURL returns the directory that a plain path or a file:// URL names.
func ParseURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" {
		return s, nil // a plain path may hold '%' or anything else that is no URL
	}
	if u.Scheme != "file" || (u.Host != "" && u.Host != "localhost") || u.RawQuery != "" {
		return "", fmt.Errorf("origin %q: write file:///absolute/path or a plain path", s)
	}
	if !filepath.IsAbs(u.Path) {
		return "", fmt.Errorf("origin %q: the path after file:// must be absolute", s)
	}
	return u.Path, nil
}

type files struct {
	dir   string
	held  *os.File        // the directory
	root  syscall.RawConn // held's descriptor, for names below it
	flags int             // how files are opened
	local bool            // reads that stay in the directory's file system do not hang
	wait  *waits          // for those that may
}

// New opens the directory dir as an origin.
func New(dir string) (origin.Origin, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("origin %q: %w", dir, err)
	}
	held, err := os.OpenFile(abs, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, classify(err, abs, "check that the directory exists and may be read")
	}
	root, err := held.SyscallConn()
	if err != nil {
		return nil, errors.Join(classify(err, abs, "check the file system's health"), held.Close())
	}
	// O_NONBLOCK: a FIFO put in place of a sample must be an error, not a reader that waits for
	// a writer. Regular files ignore it.
	f := &files{dir: abs, held: held, root: root, wait: newWaits(maxWaitBytes),
		flags: os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_CLOEXEC}
	f.local = !mayHang(abs) && f.tells()
	return f, nil
}

func (f *files) URL() string { return (&url.URL{Scheme: "file", Path: f.dir}).String() }

func (f *files) Close() error { return f.held.Close() }

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

func (f *files) Read(ctx context.Context, part dataset.Part, dst []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.local {
		if err := f.read(part, dst, here); err != unix.EXDEV {
			return err
		}
	}
	return f.wait.read(ctx, f, part, dst)
}

// read is Read for as long as it takes, or unix.EXDEV for a file that is not here.
func (f *files) read(part dataset.Part, dst []byte, resolve uint64) error {
	file, err := f.open(part.Name, resolve)
	if err == unix.EXDEV {
		return err
	}
	if err != nil {
		return classify(err, f.path(part.Name), "make it readable for this user")
	}
	defer file.Close()
	before, err := f.version(file, part.Name)
	if err != nil {
		return err
	}
	if part.Version != 0 && before != part.Version {
		return changed(f.path(part.Name), "its size or modification time differs")
	}
	n, err := file.ReadAt(dst, part.Offset)
	if n < len(dst) {
		if errors.Is(err, io.EOF) {
			return changed(f.path(part.Name), fmt.Sprintf("it ends at byte %d and the "+
				"manifest has bytes up to %d", part.Offset+int64(n), part.Offset+int64(len(dst))))
		}
		return classify(err, f.path(part.Name), "check the file system's health")
	}
	after, err := f.version(file, part.Name)
	if err != nil {
		return err
	}
	if after != before {
		return changed(f.path(part.Name), "it was written while it was read")
	}
	return nil
}

func (f *files) version(file *os.File, name string) (dataset.Version, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, classify(err, f.path(name), "check the file system's health")
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%w: %q is a %v, not a regular file", origin.ErrAbsent,
			f.path(name), info.Mode().Type())
	}
	return versionOf(info.Size(), info.ModTime().UnixNano()), nil
}

// versionOf pins a file by size and modification time; never zero, which means "unknown".
func versionOf(size, mtimeNs int64) dataset.Version {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(size))
	binary.LittleEndian.PutUint64(b[8:], uint64(mtimeNs))
	return dataset.Version(max(xxh3.Hash(b[:]), 1))
}

func changed(path, how string) error {
	return fmt.Errorf("%w: %q: %s", origin.ErrChanged, path, how)
}

// classify gives err the sentinel its cause deserves, naming the path and what to do.
func classify(err error, path, advice string) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the cause: path and verb are named here, once
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %q: %w", origin.ErrAbsent, path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %q: %w; %s", origin.ErrDenied, path, err, advice)
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE),
		errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EMFILE),
		errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("%w: %q: %w; %s", origin.ErrUnavailable, path, err, advice)
	}
	return fmt.Errorf("read %q: %w; %s", path, err, advice)
}
