package ssd

import (
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// log is the records of one dataset, in all directories.
//
// Locks: gate, a writer's, a stripe of the index, in this sequence; none is held across I/O.
type log struct {
	disks  *Disks
	config tier.Config
	shape  shape
	layout tier.Layout
	held   []uint64 // when opened

	index      index
	files      atomic.Pointer[[]*file] // by their number in places; only grows
	generation atomic.Uint64           // the last one given out
	writers    []*writer               // one a directory
	turn       atomic.Uint32           // the writer that appends go to

	follow atomic.Pointer[following] // nil: no order
	chains chains

	counts  counts
	bounces vfs.Pool // for reads that cannot go straight to where they are wanted
	gate    gate
	adding  sync.Mutex // of files
	scans   sync.WaitGroup
	closing chan struct{}
	once    sync.Once
	closed  error
}

// counts are what Usage tells.
type counts struct {
	samples, used, dead                          atomic.Int64
	read, written, copied, bucketed              atomic.Int64
	dropped, refused, corrupt, pending, capacity atomic.Int64
}

// folder is where each directory keeps the log's segments.
func folder(content [32]byte) string { return folderTag + hex.EncodeToString(content[:]) }

// Held has a bit for each sample that was found when the log was opened.
func (l *log) Held() []uint64 { return l.held }

func (l *log) now() time.Time { return l.disks.now() }

// running tells whether the log is open: before that its slots are not given out yet.
func (l *log) running() bool { return l.held != nil }

func (l *log) fileOf(p place) *file { return (*l.files.Load())[p.file()] }

// hold makes a record the authoritative one of its sample, unless that has one already.
func (l *log) hold(f *file, slot uint32, e segment.Entry) bool {
	if !l.index.move(e.ID, 0, f.place(slot, e.At), e.Sum) {
		return false
	}
	f.slots[slot].live.Add(1)
	l.counts.samples.Add(1)
	l.counts.used.Add(plan.RecordCost(e.Length))
	return true
}

// unhold takes its authority from the record of a sample, if it is still the one at p.
func (l *log) unhold(id sample.ID, p place) bool {
	if p == 0 || !l.index.move(id, p, 0, 0) {
		return false
	}
	cost := plan.RecordCost(l.config.Sizes.Size(id))
	l.counts.samples.Add(-1)
	l.counts.used.Add(-cost)
	l.counts.dead.Add(cost)
	f := l.fileOf(p)
	slot, _ := f.locate(p)
	f.slots[slot].live.Add(-1)
	return true
}

// drop gives up the record of a sample, and its slot if that was the last one in it.
func (l *log) drop(id sample.ID, p place) bool {
	if !l.unhold(id, p) {
		return false
	}
	f := l.fileOf(p)
	slot, _ := f.locate(p)
	if f.slots[slot].live.Load() == 0 {
		f.writer.emptied(f, slot)
	}
	return true
}

// Append copies a sample into the buffer of a slot that is being filled.
func (l *log) Append(epoch int32, id sample.ID, b []byte) error {
	if !l.gate.enter() {
		return tier.ErrDown
	}
	defer l.gate.leave()
	if int(id) >= len(l.index.spots) || uint32(len(b)) != l.config.Sizes.Size(id) {
		return fmt.Errorf("append sample %d of %d bytes: the dataset has no such sample", id, len(b))
	}
	err := l.append(epoch, id, b, 2*reserve)
	if err != nil {
		l.counts.refused.Add(1)
	}
	return err
}

// append appends a sample for where it is wanted next, if that leaves so many slots free.
func (l *log) append(epoch int32, id sample.ID, b []byte, spare int) error {
	p, _ := l.index.get(id)
	t, c, ok := l.wanted(epoch, id, p != 0)
	if !ok {
		return nil
	}
	err := l.appendTo(t, id, b, spare)
	if err != nil && c != nil {
		c.giveBack(id)
	}
	for _, w := range l.writers {
		if w.dir.carried.Load() > min(wearGrain, w.dir.wear/16) {
			l.wears(w.dir)
		}
	}
	return err
}

// appendTo adds a record for a target in the first directory that takes it.
func (l *log) appendTo(t target, id sample.ID, b []byte, spare int) error {
	if uint32(len(b)) > l.shape.sampleMax {
		return tier.ErrFull
	}
	refusal := tier.ErrDown
	turn := l.turn.Load()
	for i := range uint32(len(l.writers)) {
		next := (turn + i) % uint32(len(l.writers))
		err := l.writers[next].append(t, id, b, spare)
		if err == nil {
			l.turn.CompareAndSwap(turn, next)
			return nil
		}
		refusal = milder(refusal, err)
	}
	return refusal
}

// milder is what two directories' refusals amount to: a busy one may take it later, a full one may
// be given room, one that is down neither.
func milder(a, b error) error {
	for _, e := range []error{tier.ErrBusy, tier.ErrFull} {
		if errors.Is(a, e) || errors.Is(b, e) {
			return e
		}
	}
	return tier.ErrDown
}

// Usage returns what the log holds and did.
func (l *log) Usage() tier.Usage {
	c := &l.counts
	u := tier.Usage{Layout: l.layout, SampleMax: l.shape.sampleMax,
		Samples: c.samples.Load(), Capacity: c.capacity.Load(), Used: c.used.Load(),
		Dead: c.dead.Load(), Pending: c.pending.Load(), ReadBytes: c.read.Load(),
		Written: c.written.Load(), Copied: c.copied.Load(), Dropped: c.dropped.Load(),
		Refused: c.refused.Load(), Corrupt: c.corrupt.Load()}
	for _, f := range *l.files.Load() {
		u.Disk += f.bytes
	}
	return u
}

// Close waits for readers, writes and syncs what was appended, and says so in each segment's
// header.
func (l *log) Close() error {
	l.once.Do(func() {
		l.gate.shut()
		l.Unfollow()
		close(l.closing)
		l.scans.Wait()
		l.chains.close() // these append, too
		var failed []error
		for _, w := range l.writers {
			failed = append(failed, w.finish())
		}
		for _, f := range *l.files.Load() {
			failed = append(failed, f.io.Close())
		}
		l.bounces.Free()
		l.disks.forget(l)
		l.closed = errors.Join(failed...)
	})
	return l.closed
}

func (d *Disks) forget(l *log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, l.config.Content)
}

// changed tells that samples are held, or are no longer, without anybody having asked.
func (l *log) changed(held bool, ids []sample.ID) {
	if len(ids) == 0 || l.config.Changed == nil {
		return
	}
	set := make([]uint64, (len(l.index.spots)+63)/64)
	for _, id := range ids {
		set[id/64] |= 1 << (id % 64)
	}
	l.config.Changed(held, set)
}

func (l *log) tell(n tier.Notice) {
	if l.config.Tell != nil {
		l.config.Tell(n)
	}
}

// findsDir looks whether a directory is the one that was locked, and tells whether it is writable.
func (l *log) findsDir(d *dir) bool {
	space, err := d.fs.Space()
	s, changed := d.health.looked(space.ID, err)
	l.fares(d, s, changed, err)
	return d.health.writable()
}

// fares tells of a directory's state when it changed.
func (l *log) fares(d *dir, s state, changed bool, err error) {
	if !changed {
		return
	}
	n := tier.Notice{Kind: tier.Back, Dir: d.path, Text: "it is used again"}
	switch s {
	case unstable:
		n.Kind, n.Err = tier.Unstable, err
		n.Text = "it failed three times within a minute: it is read singly and not written, " +
			"until 60 reads in a row succeed"
	case down:
		n.Kind, n.Err, n.Text = tier.Down, err, "it keeps failing: it is only tried now and then"
	case gone:
		n.Kind, n.Err = tier.Down, err
		n.Text = "it is gone, or another file system is mounted there: it is left alone"
	}
	l.tell(n)
}

// opened looks at how a segment was opened, and says once of a directory that it is not direct.
func (l *log) opened(f *file) {
	if vfs.IsBuffered(f.io) && f.dir.buffered.CompareAndSwap(false, true) {
		l.tell(tier.Notice{Kind: tier.Buffered, Dir: f.dir.path, Text: "its file system has no direct " +
			"reads: they go through the page cache, which takes memory and processor time"})
	}
}

// failed counts a failure of a directory's device.
func (l *log) failed(d *dir, err error) {
	s, changed := d.health.failed(l.now())
	l.fares(d, s, changed, err)
}

// gate lets calls in until it is shut, and shutting waits for them.
type gate struct {
	mu     sync.Mutex
	inside sync.WaitGroup
	closed bool
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside.Add(1)
	return true
}

func (g *gate) leave() { g.inside.Done() }

func (g *gate) shut() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}
