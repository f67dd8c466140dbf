package ssd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"belady/internal/store/segment"
	"belady/internal/store/tier"
)

// promise is the room in a directory that a log counts on and has not made segments of yet: what
// several logs were told they may hold can then be held. Guarded by its directory's lock.
type promise struct{ bytes int64 }

// refused tells whether an error says that the file system takes nothing for now (no space, no
// inodes, a quota, mounted read-only) and nothing of the device: what it holds is read as before.
func refused(err error) bool {
	for _, e := range []error{tier.ErrFull, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// reserve takes bytes for a new segment, first of those promised. It fails with tier.ErrFull.
func (d *dir) reserve(bytes int64, p *promise) error {
	space, err := d.fs.Space()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used+bytes > d.quota-(d.promised-p.bytes) {
		return fmt.Errorf("%w: %s has its quota of %d bytes", tier.ErrFull, d.path, d.quota+apart)
	}
	if space.Free-bytes < d.floor {
		return fmt.Errorf("%w: less than %d bytes would stay free on the file system of %s",
			tier.ErrFull, d.floor, d.path)
	}
	d.used += bytes
	kept := min(bytes, p.bytes)
	p.bytes -= kept
	d.promised -= kept
	return nil
}

// release takes back what a segment had.
func (d *dir) release(bytes int64) {
	d.mu.Lock()
	d.used -= bytes
	d.mu.Unlock()
}

// room is how many bytes of segments may still be made by whom p was promised to: none where the
// directory cannot be looked at.
func (d *dir) room(p *promise) int64 {
	space, err := d.fs.Space()
	if err != nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, min(d.quota-d.used, space.Free-d.floor)-(d.promised-p.bytes))
}

func (d *dir) promisedTo(p *promise) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.bytes
}

// promise adds to what p may count on; a negative number takes it back.
func (d *dir) promise(p *promise, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	bytes = max(bytes, -p.bytes)
	p.bytes += bytes
	d.promised += bytes
}

// makes is how many slots can be made of so many bytes, at most as many as wanted, and what their
// segments take.
func (s shape) makes(room, wanted int64) (slots, bytes int64) {
	for slots < wanted {
		n := min(int64(s.fits(room-bytes)), wanted-slots)
		if n == 0 {
			break
		}
		slots += n
		bytes += n*int64(s.slotBytes) + 2*segment.HeaderBytes
	}
	return slots, bytes
}

// missing is how many slots it takes to hold all samples that are not held yet. Each directory ends
// with a slot of its own that is not full.
func (l *log) missing() int64 {
	left := l.shape.cost - l.counts.used.Load()
	free := int64(0)
	for _, w := range l.writers {
		free += int64(len(w.free))
	}
	if left <= 0 {
		return max(0, l.shape.extra-free)
	}
	slots := int64(float64(left) / (l.shape.each() * 0.995))
	return max(0, slots+2*int64(len(l.writers))+l.shape.extra-free)
}

// claim has the directories promise what the log still needs, in equal parts where each has that
// much, and settles how much the log may hold.
func (l *log) claim() {
	missing, slots := l.missing(), int64(0)
	for pass := range 2 { // the second asks those that have more for what others lack
		for i, w := range l.writers {
			part := missing - slots
			if pass == 0 {
				part = (part + int64(len(l.writers)-i) - 1) / int64(len(l.writers)-i)
			}
			n, bytes := l.shape.makes(w.dir.room(&w.promise)-w.promise.bytes, part)
			w.dir.promise(&w.promise, bytes)
			slots += n
		}
	}
	if l.layout == tier.Carry { // every slot falls free again
		for _, f := range *l.files.Load() {
			if !f.shut {
				slots += int64(len(f.slots))
			}
		}
		l.counts.capacity.Store(max(l.counts.used.Load(), l.shape.holds(slots-l.shape.extra)))
		return
	}
	for _, w := range l.writers {
		slots += int64(len(w.free))
	}
	l.counts.capacity.Store(l.counts.used.Load() + l.shape.holds(slots))
}

// makeRoom removes whole logs that are not open, the longest unused first, while the quota leaves
// less than this dataset takes.
func (d *Disks) makeRoom(l *log) {
	for _, idle := range d.idle() {
		room := int64(0)
		for _, w := range l.writers {
			n, _ := l.shape.makes(w.dir.room(&w.promise), l.missing())
			room += n
		}
		if room >= l.missing() {
			return
		}
		for _, one := range d.dirs {
			if bytes := one.remove(idle); bytes > 0 {
				l.tell(tier.Notice{Kind: tier.Removed, Dir: one.path, Bytes: bytes,
					Text: strings.TrimPrefix(idle, folderTag) + ", the log that was unused longest, " +
						"made room for that of " + l.config.Name})
			}
		}
	}
}

// idle lists the folders of logs that are not open, the longest unused first.
func (d *Disks) idle() []string {
	used := map[string]int64{}
	for _, one := range d.dirs {
		logs, _ := one.logs() // of a directory that fails nothing is removed
		for name := range logs {
			used[name] = max(used[name], one.memo.LastOpened(name))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for content := range d.open {
		delete(used, folder(content))
	}
	names := make([]string, 0, len(used))
	for name := range used {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(used[a], used[b]), cmp.Compare(a, b))
	})
	return names
}

// remove removes a log's segments, and its folder if nothing else is in it. It returns the bytes.
func (d *dir) remove(folder string) (bytes int64) {
	entries, err := d.fs.List(folder)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if _, ours := segmentNumber(e.Name); !ours || e.Dir {
			continue
		}
		if d.fs.Remove(folder+"/"+e.Name) == nil {
			d.release(e.Bytes)
			bytes += e.Bytes
		}
	}
	_ = d.fs.Remove(folder) // stays where foreign files are in it
	d.memo.Forget(folder)
	return bytes
}
