// Package audit reads logs as docs/format/log.md says, apart from the store that writes them: a
// second opinion, and one that needs no lock, no daemon and no manifest.
package audit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"belady/internal/store/segment"
	"belady/internal/store/vfs"
)

// Folder is the log of one dataset in one directory.
type Folder struct {
	Content [32]byte
	Foreign []string // what is not ours and is left alone

	disk     vfs.FS
	dir      string // the directory that it is in
	name     string
	segments []vfs.Entry
}

// Segment is what one segment says of itself.
type Segment struct {
	Path    string
	Bytes   int64
	Header  segment.Header
	Slots   uint32 // that are wholly there
	Durable uint64 // generations up to this one were synced
	Damage  []string
	// Unread is why nothing of it is read: not ours, or its making was cut short.
	Unread error
}

// Slot is one slot, and what it holds.
type Slot struct {
	Number  uint32
	Tag     segment.Tag // generation 0: never used
	Closed  bool
	Used    uint32
	Records []Record
	Damage  []string
	// Unsure is a slot that may have been written in part when writing ended, or is being written
	// now: its damage is what recovery is for, and no fault of the device.
	Unsure bool
}

// Record is one record of a slot.
type Record struct {
	segment.Entry
	Sound bool // its sum was verified, or was not to be
}

func (s *Slot) sound() bool {
	return len(s.Damage) == 0 &&
		!slices.ContainsFunc(s.Records, func(r Record) bool { return !r.Sound })
}

var (
	folderName  = regexp.MustCompile(`^log-[0-9a-f]{64}$`)
	segmentName = regexp.MustCompile(`^[0-9]{8}\.seg$`)
	ownFiles    = []string{"belady.lock", "belady.json"}

	errUnfinished = errors.New("its making was cut short")
	errOther      = errors.New("of another dataset than its folder")
	errHeaders    = errors.New("both headers are damaged")

	notOurs = []error{errUnfinished, errOther, segment.ErrVersion, segment.ErrForeign}
)

// Foreign tells whether a segment is one that a daemon leaves alone or removes, and that holds
// nothing of ours.
func (s *Segment) Foreign() bool { return slices.Contains(notOurs, s.Unread) }

// path is where a file of the folder lies, for messages.
func (f *Folder) path(name string) string { return filepath.Join(f.dir, f.name, name) }

// List finds the logs in a directory, and names what else lies there.
func List(disk vfs.FS, dir string) (logs []*Folder, foreign []string, err error) {
	entries, err := disk.List(".")
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !e.Dir || !folderName.MatchString(e.Name) {
			if e.Dir || !slices.Contains(ownFiles, e.Name) {
				foreign = append(foreign, filepath.Join(dir, e.Name))
			}
			continue
		}
		f := &Folder{disk: disk, dir: dir, name: e.Name}
		hex.Decode(f.Content[:], []byte(strings.TrimPrefix(e.Name, "log-")))
		below, err := disk.List(e.Name)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range below {
			if s.Dir || !segmentName.MatchString(s.Name) {
				f.Foreign = append(f.Foreign, f.path(s.Name))
			} else {
				f.segments = append(f.segments, s)
			}
		}
		logs = append(logs, f)
	}
	return logs, foreign, nil
}

// reader reads one segment.
type reader struct {
	file vfs.File
	*Segment
	buf, again []byte // a slot each
}

// openSegment reads a segment's headers and footers. Of one that is not to be read unread says why.
// What is returned is to be closed.
func openSegment(folder *Folder, e vfs.Entry) (*reader, error) {
	file, err := folder.disk.Open(path.Join(folder.name, e.Name), vfs.How{Direct: true})
	if err != nil {
		return nil, err
	}
	r := &reader{file: file,
		Segment: &Segment{Path: folder.path(e.Name), Bytes: e.Bytes}}
	r.readHeaders(folder.Content)
	if r.Unread != nil {
		return r, nil
	}
	r.buf, r.again = vfs.Aligned(int(r.Header.SlotBytes)), vfs.Aligned(int(r.Header.SlotBytes))
	for slot := range r.Slots {
		if f, err := r.footer(slot); err == nil {
			r.Durable = max(r.Durable, f.Durable)
		}
	}
	return r, nil
}

func (r *reader) Close() error {
	for _, b := range [][]byte{r.buf, r.again} {
		if b != nil {
			vfs.Free(b)
		}
	}
	return r.file.Close()
}

func (r *reader) readHeaders(content [32]byte) {
	b := vfs.Aligned(segment.HeaderBytes)
	defer vfs.Free(b)
	first, firstErr := r.readHeader(b, 0)
	at := (r.Bytes/vfs.Block - 1) * vfs.Block
	if firstErr == nil {
		at = first.FileBytes() - segment.HeaderBytes
	}
	second, secondErr := r.readHeader(b, at)
	r.Header, r.Durable = first, max(first.Durable, second.Durable)
	if firstErr != nil {
		r.Header = second
		r.Damage = append(r.Damage, "first header: "+firstErr.Error())
	}
	either := func(err error) bool { return errors.Is(firstErr, err) || errors.Is(secondErr, err) }
	switch {
	case firstErr != nil && secondErr != nil && either(segment.ErrVersion):
		r.Unread = segment.ErrVersion
	case firstErr != nil && secondErr != nil && either(segment.ErrCorrupt):
		r.Unread = errHeaders
	case errors.Is(firstErr, segment.ErrBlank) && errors.Is(secondErr, segment.ErrBlank):
		r.Unread = errUnfinished
	case firstErr != nil && secondErr != nil && either(segment.ErrForeign):
		r.Unread = segment.ErrForeign
	case firstErr != nil && secondErr != nil:
		r.Unread = errors.Join(firstErr, secondErr)
	case r.Header.Content != content:
		r.Unread = errOther
	}
	r.Slots = r.Header.Slots
	if whole := r.Header.FileBytes(); r.Unread == nil && r.Bytes < whole {
		r.Slots = uint32(max(r.Bytes-segment.HeaderBytes, 0) / int64(r.Header.SlotBytes))
		r.Damage = append(r.Damage, fmt.Sprintf("it is cut off after %d of %d bytes, %d of %d slots",
			r.Bytes, whole, r.Slots, r.Header.Slots))
	} else if firstErr == nil && secondErr != nil {
		r.Damage = append(r.Damage, "second header: "+secondErr.Error())
	}
}

// readHeader reads a header; bytes that are not there are zero.
func (r *reader) readHeader(b []byte, at int64) (segment.Header, error) {
	clear(b)
	if at >= 0 && at < r.Bytes {
		if err := r.read(b, at); err != nil {
			return segment.Header{}, err
		}
	}
	return segment.ParseHeader(b)
}

func (r *reader) read(b []byte, at int64) error {
	n, err := r.file.ReadAt(b, at)
	if n == len(b) || err == io.EOF {
		clear(b[n:])
		return nil
	}
	return err
}

// footer reads the footer of a slot into the end of buf.
func (r *reader) footer(slot uint32) (segment.Footer, error) {
	want := segment.Block
	for {
		tail := r.buf[len(r.buf)-want:]
		if err := r.read(tail, r.Header.SlotAt(slot+1)-int64(want)); err != nil {
			return segment.Footer{}, err
		}
		f, err := segment.ParseFooter(r.Header.Bind(slot), r.Header.SlotBytes, tail)
		var short segment.ErrShort
		if !errors.As(err, &short) {
			return f, err
		}
		want = short.Want
	}
}

// indexed reads what a slot's header and footer say of it, and the whole slot if they disagree.
func (r *reader) indexed(slot uint32) (*Slot, error) {
	f, footErr := r.footer(slot)
	head := r.buf[:segment.Block]
	if err := r.read(head, r.Header.SlotAt(slot)); err != nil {
		return nil, err
	}
	tag, headErr := segment.ParseSlot(r.Header.Bind(slot), head)
	if footErr != nil || headErr != nil || tag.Generation != f.Generation {
		return r.verified(slot)
	}
	s := &Slot{Number: slot, Tag: tag, Closed: true, Used: f.Used}
	for _, e := range f.Entries {
		s.Records = append(s.Records, Record{e, true})
	}
	return s, nil
}

// verified reads a whole slot and verifies every sum. What does not fit is read once more: if it
// changed meanwhile, a daemon is at work there.
func (r *reader) verified(slot uint32) (*Slot, error) {
	if err := r.read(r.buf, r.Header.SlotAt(slot)); err != nil {
		return nil, err
	}
	s := r.examine(slot)
	if !s.sound() && !s.Unsure {
		if err := r.read(r.again, r.Header.SlotAt(slot)); err != nil {
			return nil, err
		}
		s.Unsure = !bytes.Equal(r.buf, r.again)
	}
	return s, nil
}

// examine says what the slot in buf holds.
func (r *reader) examine(slot uint32) *Slot {
	b := r.Header.Bind(slot)
	s := &Slot{Number: slot}
	tag, headErr := segment.ParseSlot(b, r.buf)
	f, footErr := segment.ParseFooter(b, r.Header.SlotBytes, r.buf)
	s.Closed = footErr == nil && (headErr != nil || tag.Generation == f.Generation)
	if s.Closed {
		s.Tag, s.Used = f.Tag, f.Used
		for _, e := range f.Entries {
			record := r.buf[e.At:]
			sum := b.Sum(e, f.Generation, record[segment.RecordHeader:][:e.Length])
			s.Records = append(s.Records, Record{e, sum == e.Sum})
			if said, generation, err := segment.ParseRecord(b, record); err != nil || said != e ||
				generation != f.Generation {
				s.Damage = append(s.Damage, fmt.Sprintf("record header of sample %d", e.ID))
			}
		}
	} else {
		s.Tag = segment.Scan(b, r.buf, func(e segment.Entry, sound bool) {
			s.Records = append(s.Records, Record{e, sound})
			s.Used = uint32(e.End())
		})
	}
	if headErr != nil && s.Tag.Generation != 0 || errors.Is(headErr, segment.ErrCorrupt) {
		s.Damage = append(s.Damage, "slot header")
	}
	if errors.Is(footErr, segment.ErrCorrupt) {
		s.Damage = append(s.Damage, "footer")
	}
	for _, e := range s.Records {
		if uint64(e.ID) >= r.Header.Samples {
			s.Damage = append(s.Damage, fmt.Sprintf("sample %d of %d", e.ID, r.Header.Samples))
		}
	}
	// A slot that was never closed may have been cut anywhere, in this life of the log or another.
	neverClosed := !s.Closed && s.Tag.Generation != 0 && !errors.Is(footErr, segment.ErrCorrupt)
	s.Unsure = s.Tag.Generation > r.Durable || neverClosed
	return s
}

// Visit reads all segments of a folder. whole: every byte of them; else what footers say, and only
// slots without one.
func (f *Folder) Visit(whole bool,
	segment func(*Segment) error, slot func(*Segment, *Slot) error) error {
	for _, e := range f.segments {
		if err := f.visit(e, whole, segment, slot); err != nil {
			return fmt.Errorf("reading %s: %w", f.path(e.Name), err)
		}
	}
	return nil
}

func (f *Folder) visit(e vfs.Entry, whole bool,
	segment func(*Segment) error, slot func(*Segment, *Slot) error) error {
	r, err := openSegment(f, e)
	if r != nil {
		defer r.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went while they were listed
	}
	if err != nil {
		return err
	}
	if err := segment(r.Segment); err != nil || r.Unread != nil {
		return err
	}
	read := r.indexed
	if whole {
		read = r.verified
	}
	for number := range r.Slots {
		s, err := read(number)
		if err != nil {
			s = &Slot{Number: number, Damage: []string{"cannot be read: " + err.Error()}}
		}
		if err := slot(r.Segment, s); err != nil {
			return err
		}
	}
	return nil
}
