package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"syscall"

	"belady/internal/store/vfs"
)

// ErrCut is every operation after the power went.
var ErrCut = errors.New("the power is cut")

// sector is what a device writes whole or not at all.
const sector = 512

// Crash is a file system in memory that remembers what is durable, as strictly as POSIX allows:
// bytes and size of a file by its Sync, a name by SyncDir of the folder it stands in, a folder's
// own name by SyncDir of the folder above. Cut is what a disk may hold after a power cut.
type Crash struct {
	mu     sync.Mutex
	random *rand.Rand
	names  map[string]*inode // as they are seen
	synced map[string]*inode // as they are durable
	locks  map[*inode]bool
	total  int64
	left   int // operations until the power goes; 0: it stays
	cut    bool
}

// inode is one file or folder.
type inode struct {
	dir    bool
	now    []byte
	synced []byte
	// versions are, of each sector written since the last sync, all that it was written to be.
	versions map[int64][][]byte
}

// NewCrash returns an empty file system of 1 TiB. Equal seeds and equal operations give equal cuts.
func NewCrash(seed uint64) *Crash {
	root := &inode{dir: true}
	return &Crash{
		random: rand.New(rand.NewPCG(seed, 0)),
		names:  map[string]*inode{".": root},
		synced: map[string]*inode{".": root},
		locks:  map[*inode]bool{},
		total:  1 << 40,
	}
}

// Resize sets how many bytes the file system holds.
func (c *Crash) Resize(total int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total = total
}

// CutAfter lets the power go after so many more operations that change something: the last of them,
// and all that follow, fail with ErrCut. What the last one did may be there or not.
func (c *Crash) CutAfter(operations int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = operations
}

// Cut cuts the power and returns the file system as it is found afterwards: each sector and size
// that was not synced, and each name, is as it was at its last sync or as it was any time since.
// Nothing can be done with the old one any more.
func (c *Crash) Cut() *Crash {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	found := NewCrash(c.random.Uint64())
	found.total = c.total
	all := maps.Clone(c.synced)
	maps.Copy(all, c.names)
	survivors := map[*inode]*inode{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		file := c.names[name]
		if old := c.synced[name]; old != file && c.random.IntN(2) == 0 {
			file = old
		}
		above := found.names[path.Dir(name)]
		if name == "." || file == nil || above == nil || !above.dir {
			continue
		}
		if survivors[file] == nil {
			survivors[file] = c.survivor(file)
		}
		found.names[name], found.synced[name] = survivors[file], survivors[file]
	}
	return found
}

// survivor is what a cut leaves of a file. How much of the unsynced is kept differs between files,
// so that all of it and none of it are met as well as every mixture.
func (c *Crash) survivor(file *inode) *inode {
	kept := c.random.IntN(5)
	size := len(file.synced)
	if c.random.IntN(4) < kept {
		size = len(file.now)
	}
	b := make([]byte, size)
	copy(b, file.synced)
	for _, at := range slices.Sorted(maps.Keys(file.versions)) {
		versions := file.versions[at]
		if c.random.IntN(4) < kept && at*sector < int64(size) {
			copy(b[at*sector:], versions[c.random.IntN(len(versions))])
		}
	}
	return &inode{dir: file.dir, now: b, synced: slices.Clone(b)}
}

// Change damages a file behind everybody's back: f gets its bytes and returns what they shall be.
// The change is durable.
func (c *Crash) Change(name string, f func(b []byte) []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := c.names[name]
	if file == nil || file.dir {
		return &fs.PathError{Op: "change", Path: name, Err: fs.ErrNotExist}
	}
	file.now = f(file.now)
	file.synced, file.versions = slices.Clone(file.now), nil
	return nil
}

// changes counts an operation that changes something. The one that the power goes in is carried
// out, and then fails.
func (c *Crash) changes() (after error) {
	if c.left > 0 {
		if c.left--; c.left == 0 {
			c.cut = true
			return ErrCut
		}
	}
	return nil
}

// Open opens a file; see vfs.How.
func (c *Crash) Open(name string, how vfs.How) (vfs.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fail := func(err error) (vfs.File, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	name = path.Clean(name)
	file := c.names[name]
	switch {
	case c.cut:
		return fail(ErrCut)
	case how.Create && file != nil:
		return fail(fs.ErrExist)
	case !how.Create && file == nil:
		return fail(fs.ErrNotExist)
	case how.Create:
		file = &inode{}
		c.names[name] = file
		for dir := path.Dir(name); c.names[dir] == nil; dir = path.Dir(dir) {
			c.names[dir] = &inode{dir: true}
		}
		if err := c.changes(); err != nil {
			return fail(err)
		}
	}
	if how.Lock {
		if c.locks[file] {
			return fail(vfs.ErrLocked)
		}
		c.locks[file] = true
	}
	return &crashFile{fs: c, file: file, name: name, how: how}, nil
}

// Remove removes a file or an empty folder.
func (c *Crash) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = path.Clean(name)
	file := c.names[name]
	switch {
	case c.cut:
		return &fs.PathError{Op: "remove", Path: name, Err: ErrCut}
	case file == nil:
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	case file.dir && len(c.below(name)) > 0:
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	delete(c.names, name)
	return c.changes()
}

// below returns the names in a folder, in order.
func (c *Crash) below(folder string) (names []string) {
	for name := range c.names {
		if path.Dir(name) == folder && name != "." {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// List returns what lies in a folder.
func (c *Crash) List(folder string) ([]vfs.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, &fs.PathError{Op: "list", Path: folder, Err: ErrCut}
	}
	var entries []vfs.Entry
	for _, name := range c.below(path.Clean(folder)) {
		file := c.names[name]
		entries = append(entries,
			vfs.Entry{Name: path.Base(name), Bytes: int64(len(file.now)), Dir: file.dir})
	}
	return entries, nil
}

// SyncDir makes the names in a folder durable.
func (c *Crash) SyncDir(folder string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	folder = path.Clean(folder)
	if c.cut {
		return &fs.PathError{Op: "sync", Path: folder, Err: ErrCut}
	}
	if dir := c.names[folder]; dir == nil || !dir.dir {
		return &fs.PathError{Op: "sync", Path: folder, Err: fs.ErrNotExist}
	}
	if err := c.changes(); err != nil {
		return err // nothing is promised
	}
	maps.DeleteFunc(c.synced, func(name string, _ *inode) bool {
		return path.Dir(name) == folder && c.names[name] == nil
	})
	for _, name := range c.below(folder) {
		c.synced[name] = c.names[name]
	}
	return nil
}

// Space is what Resize set, less what the files take.
func (c *Crash) Space() (vfs.Space, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return vfs.Space{}, ErrCut
	}
	return vfs.Space{Total: c.total, Free: max(c.free(), 0), ID: 1}, nil
}

func (c *Crash) free() int64 {
	free := c.total
	for _, file := range c.names {
		free -= int64(len(file.now))
	}
	return free
}

type crashFile struct {
	fs     *Crash
	file   *inode
	name   string
	how    vfs.How
	closed bool
}

// begin checks an operation on bytes, and refuses what a device would.
func (f *crashFile) begin(op string, b []byte, at int64) error {
	var err error
	switch {
	case f.fs.cut:
		err = ErrCut
	case f.closed:
		err = fs.ErrClosed
	case op != "read" && !f.how.Write && !f.how.Create:
		err = syscall.EBADF
	case f.how.Direct && len(b) > 0 &&
		(len(b)%vfs.Block != 0 || at%vfs.Block != 0 || !vfs.IsAligned(b)):
		err = syscall.EINVAL
	default:
		return nil
	}
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// ReadAt reads.
func (f *crashFile) ReadAt(b []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("read", b, at); err != nil {
		return 0, err
	}
	n := copy(b, f.file.now[min(at, int64(len(f.file.now))):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes.
func (f *crashFile) WriteAt(b []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("write", b, at); err != nil {
		return 0, err
	}
	if err := f.grow(at + int64(len(b))); err != nil {
		return 0, err
	}
	copy(f.file.now[at:], b)
	if f.file.versions == nil {
		f.file.versions = map[int64][][]byte{}
	}
	for s := at / sector; s*sector < at+int64(len(b)); s++ {
		end := min((s+1)*sector, int64(len(f.file.now)))
		f.file.versions[s] = append(f.file.versions[s], slices.Clone(f.file.now[s*sector:end]))
	}
	return len(b), f.fs.changes()
}

func (f *crashFile) grow(size int64) error {
	more := size - int64(len(f.file.now))
	if more <= 0 {
		return nil
	}
	if more > f.fs.free() {
		return &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	f.file.now = append(f.file.now, make([]byte, more)...)
	return nil
}

// Sync makes bytes and size durable.
func (f *crashFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("sync", nil, 0); err != nil {
		return err
	}
	if err := f.fs.changes(); err != nil {
		return err // nothing is promised
	}
	file := f.file
	if more := len(file.now) - len(file.synced); more > 0 {
		file.synced = append(file.synced, make([]byte, more)...)
	}
	for s := range file.versions {
		from, end := s*sector, min((s+1)*sector, int64(len(file.now)))
		copy(file.synced[from:end], file.now[from:end])
	}
	file.versions = nil
	return nil
}

// Allocate makes the file that long, or is syscall.ENOSPC.
func (f *crashFile) Allocate(bytes int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("allocate", nil, 0); err != nil {
		return err
	}
	if err := f.grow(bytes); err != nil {
		return err
	}
	return f.fs.changes()
}

// Close closes the file, and unlocks it.
func (f *crashFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	if f.how.Lock {
		delete(f.fs.locks, f.file)
	}
	return nil
}
