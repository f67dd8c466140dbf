// Package ssd keeps datasets' logs in directories of local disks: docs/format/log.md as files.
//
// Disks are the directories, a log the records of one dataset in all of them. A log is filled by
// Append, which only copies into memory; one goroutine a directory writes that out in large aligned
// pieces and syncs it. Reads go past the page cache, straight to where the caller wants them when
// that is aligned. What was synced is found again after a crash at any point; what was not may be
// lost, and is never served damaged.
//
// A log never drops a sound record by itself. A failing directory costs its records and no more:
// nothing here makes a daemon fail, or a caller wait for a device that does not answer an append.
package ssd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"belady/internal/core/perf"
	"belady/internal/store/memo"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// Dir is one directory that logs are kept in.
type Dir struct {
	Path  string
	Quota int64 // bytes of everything below it; 0: all but the free-space floor
}

// Options say where logs are kept and within what bounds.
type Options struct {
	Dirs []Dir
	// Free is how much of each file system stays free: 0 for a twentieth of it, 16 GiB at most.
	Free int64
	// WearBytesPerDay bounds what carrying writes to each directory in a day; 0: the quota.
	WearBytesPerDay int64
	// Rates is what is known of a directory's device without measuring it; nil: nothing.
	Rates func(path string) (perf.Rates, bool)
	// FS opens a directory; nil for vfs.Dir.
	FS func(path string) (vfs.FS, error)
}

const (
	lockName  = "belady.lock"
	folderTag = "log-" // and the content id: a log's folder
	// apart is what of a quota is not for segments: lock, memo, folders.
	apart = 64 << 10
)

// Disks are the directories of one daemon, locked.
type Disks struct {
	options   Options
	dirs      []*dir
	now       func() time.Time
	start     func(*writer) // its goroutine
	scanFirst int64         // bytes of slots that are scanned before a log is opened
	serial    bool          // one write at a time, so that tests can be repeated

	mu   sync.Mutex
	open map[[32]byte]*log // nil once closed
}

var _ tier.Directories = (*Disks)(nil)

// Open locks the directories. They stay locked until Close, or until the process ends.
func Open(o Options) (*Disks, error) {
	d := &Disks{options: o, now: time.Now, start: func(w *writer) { go w.run() }, scanFirst: scanFirst,
		open: map[[32]byte]*log{}}
	for _, which := range o.Dirs {
		opened, err := openDir(which, o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open ssd directory %s: %w", which.Path, err),
				d.Close())
		}
		d.dirs = append(d.dirs, opened)
	}
	if len(d.dirs) == 0 {
		return nil, errors.New("open ssd: no directory was given")
	}
	return d, nil
}

// Usage returns the state of each directory.
func (d *Disks) Usage() []tier.DirUsage {
	all := make([]tier.DirUsage, len(d.dirs))
	for i, one := range d.dirs {
		all[i] = one.usage(d.now())
	}
	return all
}

// Close unlocks the directories. Logs that are still open are closed.
func (d *Disks) Close() error {
	d.mu.Lock()
	logs := d.open
	d.open = nil
	d.mu.Unlock()
	var failed []error
	for _, l := range logs {
		if l != nil { // else it is being opened, and closed then
			failed = append(failed, l.Close())
		}
	}
	for _, one := range d.dirs {
		one.memo.Save(d.now())
		failed = append(failed, one.lock.Close())
		if root, ours := one.fs.(*vfs.OS); ours && d.options.FS == nil {
			failed = append(failed, root.Close())
		}
	}
	return errors.Join(failed...)
}

// dir is one directory: its lock, what may be written to it, and how it fares.
type dir struct {
	path  string
	fs    vfs.FS
	lock  vfs.File
	floor int64 // of the file system, to stay free
	wear  int64 // bytes a day that carrying may write
	// carried bytes that the memo does not know of yet.
	carried atomic.Int64
	health  health
	memo    *memo.Memo
	// buffered: its file system cannot bypass the page cache.
	buffered atomic.Bool

	mu       sync.Mutex
	quota    int64
	used     int64 // bytes of segments, of all logs
	promised int64 // more of them, to logs that are open
}

func openDir(which Dir, o Options) (*dir, error) {
	under := o.FS
	if under == nil {
		under = func(path string) (vfs.FS, error) { return vfs.Dir(path) }
	}
	files, err := under(which.Path)
	if err != nil {
		return nil, err
	}
	space, err := files.Space()
	if err != nil {
		return nil, err
	}
	d := &dir{path: which.Path, fs: files, floor: o.Free, quota: which.Quota - apart,
		wear: o.WearBytesPerDay}
	d.health.id = space.ID
	if d.floor == 0 {
		d.floor = min(space.Total/20, 16<<30)
	}
	if d.lock, err = lock(files); err != nil {
		return nil, err
	}
	logs, err := d.logs()
	if err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	for _, bytes := range logs {
		d.used += bytes
	}
	if which.Quota == 0 {
		d.quota = max(0, d.used+space.Free-d.floor-apart)
	}
	if d.wear == 0 {
		d.wear = d.quota
	}
	d.memo = memo.Load(files)
	return d, nil
}

// lock takes the directory's lock and writes our process id into it. In one that is read-only now
// the lock of an earlier daemon is enough: what its logs hold can be read.
func lock(files vfs.FS) (vfs.File, error) {
	f, err := files.Open(lockName, vfs.How{Write: true, Lock: true})
	if errors.Is(err, fs.ErrNotExist) {
		f, err = files.Open(lockName, vfs.How{Create: true, Write: true, Lock: true})
	} else if errors.Is(err, syscall.EROFS) {
		f, err = files.Open(lockName, vfs.How{Lock: true})
		if err == nil {
			return f, nil
		}
	}
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w%s: stop the daemon that uses it, or give this one a directory"+
			" of its own", err, holder(files))
	}
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%-19d\n", os.Getpid()), 0)
	if err != nil && !refused(err) { // the id is for messages only
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// holder names the process that has the lock, as far as it can be read.
func holder(files vfs.FS) string {
	f, err := files.Open(lockName, vfs.How{})
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0)
	if _, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err != nil {
		return ""
	}
	return " (process " + strings.TrimSpace(string(text[:n])) + ")"
}

// logs returns the bytes of each log's folder.
func (d *dir) logs() (map[string]int64, error) {
	found, err := d.fs.List(".")
	if err != nil {
		return nil, err
	}
	bytes := map[string]int64{}
	for _, e := range found {
		if !e.Dir || !strings.HasPrefix(e.Name, folderTag) {
			continue
		}
		inside, err := d.fs.List(e.Name)
		if err != nil {
			return nil, err
		}
		bytes[e.Name] = 0
		for _, f := range inside {
			bytes[e.Name] += f.Bytes
		}
	}
	return bytes, nil
}

// syncNames makes what lies in a log's folder durable, and each time the folder's own name, too:
// whoever made it may have died, or failed, before it was.
func (d *dir) syncNames(folder string) error {
	if err := d.fs.SyncDir(folder); err != nil {
		return err
	}
	return d.fs.SyncDir(".")
}

// bound is the directory's quota, as far as the file system can ever give it.
func (d *dir) bound() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.quota
}

func (d *dir) usage(now time.Time) tier.DirUsage {
	space, _ := d.fs.Space() // a directory that is gone has no room
	plain := ""
	if root, ours := d.fs.(*vfs.OS); ours && root.Plain() != nil {
		plain = root.Plain().Error()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return tier.DirUsage{Path: d.path, State: d.health.state().String(), Quota: d.quota + apart,
		Used: d.used, Total: space.Total, Free: space.Free, Floor: d.floor,
		WrittenToday: d.memo.Today(now), CarriedToday: d.memo.CarriedToday(now),
		WearBudget: d.wear,
		Failures:   d.health.failures.Load(), Buffered: d.buffered.Load(), Plain: plain}
}
