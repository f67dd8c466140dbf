package ssd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

const (
	openers = 16 // segments whose footers are read at a time
	// scanFirst is how much is scanned before a log is opened: more than a crash leaves, so that no
	// origin is read for what was synced. Only damage leaves more, which is scanned beside the work.
	scanFirst = 512 << 20
)

// Open finds or begins the log of a dataset: docs/format/log.md, "Recovery".
func (d *Disks) Open(c tier.Config) (tier.Log, error) {
	d.mu.Lock()
	_, twice := d.open[c.Content]
	if d.open != nil && !twice {
		d.open[c.Content] = nil
	}
	isClosed := d.open == nil
	d.mu.Unlock()
	switch {
	case isClosed:
		return nil, fmt.Errorf("open the log of %s: its directories are closed", c.Name)
	case twice:
		return nil, fmt.Errorf("open the log of %s: it is open already", c.Name)
	}
	l := d.recover(c)
	d.mu.Lock()
	if d.open != nil {
		d.open[c.Content] = l
		d.mu.Unlock()
		return l, nil
	}
	d.mu.Unlock()
	return nil, errors.Join(fmt.Errorf("open the log of %s: its directories were closed", c.Name),
		l.Close())
}

// recover opens what is there and starts the writers.
func (d *Disks) recover(c tier.Config) *log {
	began := d.now()
	quota := d.dirs[0].bound()
	for _, one := range d.dirs {
		quota = min(quota, one.bound())
	}
	l := &log{disks: d, config: c, layout: c.Layout,
		shape: shapeOf(c, quota, len(d.dirs)),
		index: newIndex(c.Sizes.Len()), closing: make(chan struct{})}
	l.chains.freed.L, l.bounces.Bytes = &l.chains.mu, bounceBytes
	if l.layout != tier.Carry {
		l.layout = tier.Static
	}
	l.files.Store(&[]*file{})
	r := &recovery{log: l}
	for _, one := range d.dirs {
		w := newWriter(l, one)
		l.writers = append(l.writers, w)
		if err := r.find(w); err != nil {
			l.failed(one, err) // its records are lost for now; the others' are not
			l.tell(tier.Notice{Kind: tier.Dropped, Dir: one.path, Err: err,
				Text: "its segments cannot be listed"})
		}
	}
	r.footers()
	late := r.scan()
	l.begin(began)
	l.tell(tier.Notice{Kind: tier.Opened, Samples: l.counts.samples.Load(),
		Bytes: l.counts.used.Load(), Text: fmt.Sprintf("%d segments in %d ms",
			len(*l.files.Load()), d.now().Sub(began).Milliseconds())})
	r.tellDropped()
	l.held = l.index.held()
	if len(late) > 0 {
		l.scans.Go(func() { r.scanLate(late) })
	}
	for _, w := range l.writers {
		d.start(w)
	}
	return l
}

// begin makes the first slots ready and says how much the log may hold.
func (l *log) begin(now time.Time) {
	for _, f := range *l.files.Load() {
		for i := range f.slots {
			s := &f.slots[i]
			if s.state() == closed && s.live.Load() == 0 {
				s.become(blank)
			}
			if s.state() == blank && !f.shut && f.header.SlotBytes == l.shape.slotBytes {
				f.writer.free = append(f.writer.free, slotRef{f, uint32(i)})
			}
		}
	}
	l.disks.makeRoom(l)
	l.claim()
	for _, w := range l.writers {
		w.dir.memo.Opened(folder(l.config.Content), now)
		w.dir.memo.Save(now)
		if w.short() && len(w.free) == 0 && w.dir.health.writable() {
			w.stock(now)
		}
	}
}

// recovery is the opening of one log.
type recovery struct {
	log     *log
	dropped atomic.Int64 // records
	lost    atomic.Int64 // slots

	mu   sync.Mutex
	todo []scanned
}

// find opens the segments of one directory.
func (r *recovery) find(w *writer) error {
	l, d := r.log, w.dir
	folder := folder(l.config.Content)
	entries, err := d.fs.List(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		number, ok := segmentNumber(e.Name)
		if e.Dir || !ok {
			continue // foreign: never opened, changed or removed
		}
		w.number = max(w.number, number)
		f, err := openSegment(d, folder+"/"+e.Name, e.Bytes, l.config.Content)
		if errors.Is(err, segment.ErrBlank) {
			if d.fs.Remove(folder+"/"+e.Name) == nil {
				d.release(e.Bytes)
			}
			continue
		}
		if err != nil {
			l.tell(tier.Notice{Kind: tier.Dropped, Dir: d.path, Bytes: e.Bytes, Err: err,
				Text: folder + "/" + e.Name + " is left alone"})
			continue
		}
		f.writer = w
		l.opened(f)
		if err := l.add(f); err != nil {
			return errors.Join(err, f.io.Close())
		}
	}
	if len(entries) > 0 { // whoever made them may have been killed before it did so
		if err := d.syncNames(folder); err != nil && !refused(err) {
			l.failed(d, err)
		}
	}
	return nil
}

// segmentNumber parses a name as segmentName makes it.
func segmentNumber(name string) (int, bool) {
	digits, ok := strings.CutSuffix(name, ".seg")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && len(digits) >= 8
}

// openSegment opens a file that should be a segment of this content, and mends its headers.
func openSegment(d *dir, name string, bytes int64, content [32]byte) (*file, error) {
	if bytes == 0 {
		return nil, segment.ErrBlank
	}
	f := &file{dir: d, name: name, bytes: bytes}
	var err error
	f.io, err = d.fs.Open(name, vfs.How{Write: true, Direct: true})
	if errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES) {
		f.shut = true
		f.io, err = d.fs.Open(name, vfs.How{Direct: true})
	}
	if err != nil {
		return nil, err
	}
	if err := f.readHeaders(content); err != nil {
		return nil, errors.Join(err, f.io.Close())
	}
	whole := (bytes - segment.HeaderBytes) / int64(f.header.SlotBytes)
	f.slots = make([]slot, min(int64(f.header.Slots), max(0, whole)))
	return f, nil
}

// readHeaders reads both copies. One that is damaged is written again.
func (f *file) readHeaders(content [32]byte) error {
	buf := vfs.Aligned(segment.HeaderBytes)
	defer vfs.Free(buf)
	first, err1 := f.readHeader(buf, 0)
	at := f.bytes/segment.Block*segment.Block - segment.HeaderBytes
	if err1 == nil {
		at = first.SlotAt(first.Slots)
	}
	second, err2 := f.readHeader(buf, at)
	switch {
	case err1 == nil:
		f.header = first
		if err2 == nil && second.ID == first.ID {
			f.header.Durable = max(first.Durable, second.Durable)
		}
	case err2 == nil:
		f.header = second
	case errors.Is(err1, segment.ErrBlank) && errors.Is(err2, segment.ErrBlank):
		return segment.ErrBlank
	case errors.Is(err1, segment.ErrBlank):
		return err2
	default:
		return err1
	}
	if f.header.Content != content {
		return errors.New("it is of another dataset, or of another version of this one")
	}
	f.said = f.header.Durable
	if f.bytes < f.header.FileBytes() {
		f.shut = true
	}
	if f.shut || err1 == nil && err2 == nil {
		return nil
	}
	var err error
	f.header.Append(buf[:0])
	if err1 == nil {
		_, err = f.io.WriteAt(buf, at)
	} else {
		_, err = f.io.WriteAt(buf, 0)
	}
	if err == nil {
		err = f.io.Sync()
	}
	f.shut = err != nil
	return nil
}

func (f *file) readHeader(buf []byte, at int64) (segment.Header, error) {
	if at < 0 || at+segment.HeaderBytes > f.bytes {
		return segment.Header{}, segment.ErrForeign
	}
	if _, err := f.io.ReadAt(buf, at); err != nil {
		return segment.Header{}, err
	}
	return segment.ParseHeader(buf)
}

// footers reads what each segment's slots say they hold.
func (r *recovery) footers() {
	work := make(chan *file)
	var workers sync.WaitGroup
	for range min(openers, len(*r.log.files.Load())) {
		workers.Go(func() {
			for f := range work {
				r.segment(f)
			}
		})
	}
	for _, f := range *r.log.files.Load() {
		work <- f
	}
	close(work)
	workers.Wait()
}

// segment takes the footers of one segment. Those of generations that were synced are trusted; the
// others may be torn, and their records are verified first.
func (r *recovery) segment(f *file) {
	buf := vfs.Aligned(r.tailBytes(f))
	defer func() { vfs.Free(buf) }()
	footers := make([]segment.Footer, len(f.slots))
	f.durable = f.header.Durable
	for i := range f.slots {
		var todo scanned
		todo.slotRef = slotRef{f, uint32(i)}
		footers[i], buf = r.ends(&todo, buf)
		f.durable = max(f.durable, footers[i].Durable)
		if todo.why != nothing {
			r.add(todo)
			footers[i].Entries = nil
		}
	}
	for i, footer := range footers {
		if len(footer.Entries) == 0 {
			continue
		}
		ref := slotRef{f, uint32(i)}
		if footer.Generation > f.durable {
			r.add(scanned{slotRef: ref, why: unsynced, footer: footer})
			continue
		}
		r.adopt(ref, footer.Tag, footer.Entries)
	}
}

// tailBytes is how much of a slot's end probably has all of its footer.
func (r *recovery) tailBytes(f *file) int {
	s := r.log.shape
	mean := s.cost / int64(max(1, r.log.config.Sizes.Len()))
	return min(segment.FooterBytes(int(int64(f.header.SlotBytes)/max(mean, 48)+16)),
		int(f.header.SlotBytes))
}

// ends reads a slot's two ends. What they do not tell for certain, a scan has to.
func (r *recovery) ends(todo *scanned, buf []byte) (segment.Footer, []byte) {
	f, slot := todo.file, todo.slot
	s := &f.slots[slot]
	bind := f.header.Bind(slot)
	_, err := f.io.ReadAt(buf[:segment.Block], f.header.SlotAt(slot))
	head, headErr := segment.ParseSlot(bind, buf[:segment.Block])
	var footer segment.Footer
	footErr := error(segment.ErrCorrupt)
	if err == nil {
		footer, buf, footErr = readFooter(f, slot, buf)
	}
	r.saw(max(head.Generation, footer.Generation), f)
	s.become(closed)
	switch {
	case err != nil:
		r.lost.Add(1)
		s.become(unreadable)
	case errors.Is(headErr, segment.ErrBlank) && errors.Is(footErr, segment.ErrBlank):
		s.become(blank)
	case footErr == nil && (headErr != nil || head.Generation == footer.Generation):
		s.generation.Store(footer.Generation)
	default:
		s.generation.Store(head.Generation)
		todo.why = unclosed
	}
	return footer, buf
}

// readFooter reads a slot's footer with a buffer that grows to its size.
func readFooter(f *file, slot uint32, buf []byte) (segment.Footer, []byte, error) {
	for {
		if _, err := f.io.ReadAt(buf, f.header.SlotAt(slot+1)-int64(len(buf))); err != nil {
			return segment.Footer{}, buf, err
		}
		footer, err := segment.ParseFooter(f.header.Bind(slot), f.header.SlotBytes, buf)
		var short segment.ErrShort
		if !errors.As(err, &short) || short.Want > int(f.header.SlotBytes) {
			return footer, buf, err
		}
		vfs.Free(buf)
		buf = vfs.Aligned(short.Want)
	}
}

// saw notes a generation: later ones are above it.
func (r *recovery) saw(generation uint64, f *file) {
	w := f.writer
	w.mu.Lock()
	f.top = max(f.top, generation)
	w.mu.Unlock()
	given := &r.log.generation
	for old := given.Load(); generation > old; old = given.Load() {
		if given.CompareAndSwap(old, generation) {
			return
		}
	}
}

// adopt takes sound records into the index and returns those whose samples are new to it.
func (r *recovery) adopt(ref slotRef, t segment.Tag, entries []segment.Entry) []segment.Entry {
	s := &ref.file.slots[ref.slot]
	s.begin(t)
	found, dropped := r.log.adopt(ref, entries)
	r.dropped.Add(int64(dropped))
	return found
}

func (r *recovery) tellDropped() {
	l := r.log
	l.counts.dropped.Add(r.dropped.Load())
	if r.dropped.Load()+r.lost.Load() == 0 {
		return
	}
	l.tell(tier.Notice{Kind: tier.Dropped, Samples: r.dropped.Load(), Text: fmt.Sprintf(
		"%d damaged or torn records and %d unreadable slots were given up when the log was opened",
		r.dropped.Load(), r.lost.Load())})
}
