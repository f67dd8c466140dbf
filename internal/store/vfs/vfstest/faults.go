package vfstest

import (
	"path"
	"slices"
	"sync"
	"time"

	"belady/internal/store/vfs"
)

// An Op is a kind of operation that can be made to fail.
type Op string

const (
	Open     Op = "open"
	Remove   Op = "remove"
	List     Op = "list"
	SyncDir  Op = "syncdir"
	Space    Op = "space"
	ReadAt   Op = "read"
	WriteAt  Op = "write"
	Sync     Op = "sync"
	Allocate Op = "allocate"
)

// A Rule says which operations fail, and how. A write that fails has written the first half.
type Rule struct {
	Op   Op
	Name string // a pattern of path.Match for the file's name or whole path; "": any
	// From is how many that match are let through first, Every which of the rest fail: each of them
	// (0 or 1), every second …
	From, Every int

	Err   error         // what it fails with; nil: it does not
	Flip  bool          // one bit is flipped in what is read or written
	Delay time.Duration // before it begins
	// Buffered lets a file that is opened go through the page cache, as far as anybody can tell.
	Buffered bool
}

// Faults is a file system that fails by rules, on another one that does not.
type Faults struct {
	below vfs.FS

	mu    sync.Mutex
	rules []*counted
	fired int
}

type counted struct {
	Rule
	met int
}

// NewFaults returns a file system on fs that does not fail yet.
func NewFaults(fs vfs.FS) *Faults { return &Faults{below: fs} }

// Add lets operations fail from now on.
func (f *Faults) Add(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rules {
		f.rules = append(f.rules, &counted{Rule: r})
	}
}

// Heal takes all rules away.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Fired is how many operations failed, or were changed or delayed.
func (f *Faults) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// fault returns the rule that an operation falls under; one that does nothing if under none.
func (f *Faults) fault(op Op, name string) Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.rules, func(r *counted) bool {
		if r.Op != op || !matches(r.Name, name) {
			return false
		}
		r.met++
		return r.met > r.From && (r.met-r.From-1)%max(r.Every, 1) == 0
	})
	if i < 0 {
		return Rule{}
	}
	f.fired++
	return f.rules[i].Rule
}

func matches(pattern, name string) bool {
	whole, _ := path.Match(pattern, name)
	base, _ := path.Match(pattern, path.Base(name))
	return pattern == "" || whole || base
}

// hit waits as the rule for an operation says, and returns what it fails with.
func (f *Faults) hit(op Op, name string) error {
	r := f.fault(op, name)
	time.Sleep(r.Delay)
	return r.Err
}

// Open opens a file whose operations fail by the rules.
func (f *Faults) Open(name string, how vfs.How) (vfs.File, error) {
	r := f.fault(Open, name)
	time.Sleep(r.Delay)
	if r.Err != nil {
		return nil, r.Err
	}
	file, err := f.below.Open(name, how)
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f, name, r.Buffered || vfs.IsBuffered(file)}, nil
}

// Remove removes a file.
func (f *Faults) Remove(name string) error {
	if err := f.hit(Remove, name); err != nil {
		return err
	}
	return f.below.Remove(name)
}

// List lists a folder.
func (f *Faults) List(folder string) ([]vfs.Entry, error) {
	if err := f.hit(List, folder); err != nil {
		return nil, err
	}
	return f.below.List(folder)
}

// SyncDir makes names durable.
func (f *Faults) SyncDir(folder string) error {
	if err := f.hit(SyncDir, folder); err != nil {
		return err
	}
	return f.below.SyncDir(folder)
}

// Space is that of the file system below.
func (f *Faults) Space() (vfs.Space, error) {
	if err := f.hit(Space, "."); err != nil {
		return vfs.Space{}, err
	}
	return f.below.Space()
}

type faultFile struct {
	vfs.File
	fs       *Faults
	name     string
	buffered bool
}

// Buffered is for vfs.IsBuffered.
func (f *faultFile) Buffered() bool { return f.buffered }

func (f *faultFile) ReadAt(b []byte, at int64) (int, error) {
	r := f.fs.fault(ReadAt, f.name)
	time.Sleep(r.Delay)
	if r.Err != nil {
		return 0, r.Err
	}
	n, err := f.File.ReadAt(b, at)
	if r.Flip && n > 0 {
		b[n/2] ^= 1
	}
	return n, err
}

func (f *faultFile) WriteAt(b []byte, at int64) (int, error) {
	r := f.fs.fault(WriteAt, f.name)
	time.Sleep(r.Delay)
	if r.Err != nil {
		n, err := f.File.WriteAt(b[:len(b)/2/vfs.Block*vfs.Block], at)
		if err != nil {
			return n, err
		}
		return n, r.Err
	}
	if r.Flip && len(b) > 0 {
		flipped := vfs.Aligned(len(b))
		defer vfs.Free(flipped)
		copy(flipped, b)
		flipped[len(b)/2] ^= 1
		b = flipped
	}
	return f.File.WriteAt(b, at)
}

func (f *faultFile) Sync() error {
	if err := f.fs.hit(Sync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) Allocate(bytes int64) error {
	if err := f.fs.hit(Allocate, f.name); err != nil {
		return err
	}
	return f.File.Allocate(bytes)
}
