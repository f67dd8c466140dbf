package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"belady/internal/store/segment"
	"belady/internal/store/vfs"
)

// This file reads logs as docs/format/log.md says, apart from the store that writes them: a second
// opinion, and one that needs no lock, no daemon and no manifest.

// logFolder is the log of one dataset in one directory.
type logFolder struct {
	disk     vfs.FS
	dir      string // the directory that it is in
	name     string
	content  [32]byte
	segments []vfs.Entry
	foreign  []string // what is not ours and is left alone
}

// logSegment is what one segment says of itself.
type logSegment struct {
	path    string
	bytes   int64
	header  segment.Header
	slots   uint32 // that are wholly there
	durable uint64 // generations up to this one were synced
	damage  []string
	// unread is why nothing of it is read: not ours, or its making was cut short.
	unread error
}

// logSlot is one slot, and what it holds.
type logSlot struct {
	number  uint32
	tag     segment.Tag // generation 0: never used
	closed  bool
	used    uint32
	records []logRecord
	damage  []string
	// unsure is a slot that may have been written in part when writing ended, or is being written
	// now: its damage is what recovery is for, and no fault of the device.
	unsure bool
}

type logRecord struct {
	segment.Entry
	sound bool // its sum was verified, or was not to be
}

func (s *logSlot) sound() bool {
	return len(s.damage) == 0 &&
		!slices.ContainsFunc(s.records, func(r logRecord) bool { return !r.sound })
}

var (
	folderName  = regexp.MustCompile(`^log-[0-9a-f]{64}$`)
	segmentName = regexp.MustCompile(`^[0-9]{8}\.seg$`)
	ownFiles    = []string{"belady.lock", "belady.json"}

	errUnfinished = errors.New("its making was cut short")
	errOther      = errors.New("of another dataset than its folder")
	errHeaders    = errors.New("both headers are damaged")

	// notOurs are segments that a daemon leaves alone or removes, and that hold nothing of ours.
	notOurs = []error{errUnfinished, errOther, segment.ErrVersion, segment.ErrForeign}
)

// path is where a file of the folder lies, for messages.
func (f *logFolder) path(name string) string { return filepath.Join(f.dir, f.name, name) }

// listLogs finds the logs in a directory, and names what else lies there.
func listLogs(disk vfs.FS, dir string) (logs []*logFolder, foreign []string, err error) {
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
		f := &logFolder{disk: disk, dir: dir, name: e.Name}
		hex.Decode(f.content[:], []byte(strings.TrimPrefix(e.Name, "log-")))
		below, err := disk.List(e.Name)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range below {
			if s.Dir || !segmentName.MatchString(s.Name) {
				f.foreign = append(f.foreign, f.path(s.Name))
			} else {
				f.segments = append(f.segments, s)
			}
		}
		logs = append(logs, f)
	}
	return logs, foreign, nil
}

// logReader reads one segment.
type logReader struct {
	file vfs.File
	*logSegment
	buf, again []byte // a slot each
}

// openSegment reads a segment's headers and footers. Of one that is not to be read unread says why.
// What is returned is to be closed.
func openSegment(folder *logFolder, e vfs.Entry) (*logReader, error) {
	file, err := folder.disk.Open(path.Join(folder.name, e.Name), vfs.How{Direct: true})
	if err != nil {
		return nil, err
	}
	r := &logReader{file: file,
		logSegment: &logSegment{path: folder.path(e.Name), bytes: e.Bytes}}
	r.readHeaders(folder.content)
	if r.unread != nil {
		return r, nil
	}
	r.buf, r.again = vfs.Aligned(int(r.header.SlotBytes)), vfs.Aligned(int(r.header.SlotBytes))
	for slot := range r.slots {
		if f, err := r.footer(slot); err == nil {
			r.durable = max(r.durable, f.Durable)
		}
	}
	return r, nil
}

func (r *logReader) Close() error {
	for _, b := range [][]byte{r.buf, r.again} {
		if b != nil {
			vfs.Free(b)
		}
	}
	return r.file.Close()
}

func (r *logReader) readHeaders(content [32]byte) {
	b := vfs.Aligned(segment.HeaderBytes)
	defer vfs.Free(b)
	first, firstErr := r.readHeader(b, 0)
	at := (r.bytes/vfs.Block - 1) * vfs.Block
	if firstErr == nil {
		at = first.FileBytes() - segment.HeaderBytes
	}
	second, secondErr := r.readHeader(b, at)
	r.header, r.durable = first, max(first.Durable, second.Durable)
	if firstErr != nil {
		r.header = second
		r.damage = append(r.damage, "first header: "+firstErr.Error())
	}
	either := func(err error) bool { return errors.Is(firstErr, err) || errors.Is(secondErr, err) }
	switch {
	case firstErr != nil && secondErr != nil && either(segment.ErrVersion):
		r.unread = segment.ErrVersion
	case firstErr != nil && secondErr != nil && either(segment.ErrCorrupt):
		r.unread = errHeaders
	case errors.Is(firstErr, segment.ErrBlank) && errors.Is(secondErr, segment.ErrBlank):
		r.unread = errUnfinished
	case firstErr != nil && secondErr != nil && either(segment.ErrForeign):
		r.unread = segment.ErrForeign
	case firstErr != nil && secondErr != nil:
		r.unread = errors.Join(firstErr, secondErr)
	case r.header.Content != content:
		r.unread = errOther
	}
	r.slots = r.header.Slots
	if whole := r.header.FileBytes(); r.unread == nil && r.bytes < whole {
		r.slots = uint32(max(r.bytes-segment.HeaderBytes, 0) / int64(r.header.SlotBytes))
		r.damage = append(r.damage, fmt.Sprintf("it is cut off after %d of %d bytes, %d of %d slots",
			r.bytes, whole, r.slots, r.header.Slots))
	} else if firstErr == nil && secondErr != nil {
		r.damage = append(r.damage, "second header: "+secondErr.Error())
	}
}

// readHeader reads a header; bytes that are not there are zero.
func (r *logReader) readHeader(b []byte, at int64) (segment.Header, error) {
	clear(b)
	if at >= 0 && at < r.bytes {
		if err := r.read(b, at); err != nil {
			return segment.Header{}, err
		}
	}
	return segment.ParseHeader(b)
}

func (r *logReader) read(b []byte, at int64) error {
	n, err := r.file.ReadAt(b, at)
	if n == len(b) || err == io.EOF {
		clear(b[n:])
		return nil
	}
	return err
}

// footer reads the footer of a slot into the end of buf.
func (r *logReader) footer(slot uint32) (segment.Footer, error) {
	want := segment.Block
	for {
		tail := r.buf[len(r.buf)-want:]
		if err := r.read(tail, r.header.SlotAt(slot+1)-int64(want)); err != nil {
			return segment.Footer{}, err
		}
		f, err := segment.ParseFooter(r.header.Bind(slot), r.header.SlotBytes, tail)
		var short segment.ErrShort
		if !errors.As(err, &short) {
			return f, err
		}
		want = short.Want
	}
}

// indexed reads what a slot's header and footer say of it, and the whole slot if they disagree.
func (r *logReader) indexed(slot uint32) (*logSlot, error) {
	f, footErr := r.footer(slot)
	head := r.buf[:segment.Block]
	if err := r.read(head, r.header.SlotAt(slot)); err != nil {
		return nil, err
	}
	tag, headErr := segment.ParseSlot(r.header.Bind(slot), head)
	if footErr != nil || headErr != nil || tag.Generation != f.Generation {
		return r.verified(slot)
	}
	s := &logSlot{number: slot, tag: tag, closed: true, used: f.Used}
	for _, e := range f.Entries {
		s.records = append(s.records, logRecord{e, true})
	}
	return s, nil
}

// verified reads a whole slot and verifies every sum. What does not fit is read once more: if it
// changed meanwhile, a daemon is at work there.
func (r *logReader) verified(slot uint32) (*logSlot, error) {
	if err := r.read(r.buf, r.header.SlotAt(slot)); err != nil {
		return nil, err
	}
	s := r.examine(slot)
	if !s.sound() && !s.unsure {
		if err := r.read(r.again, r.header.SlotAt(slot)); err != nil {
			return nil, err
		}
		s.unsure = !bytes.Equal(r.buf, r.again)
	}
	return s, nil
}

// examine says what the slot in buf holds.
func (r *logReader) examine(slot uint32) *logSlot {
	b := r.header.Bind(slot)
	s := &logSlot{number: slot}
	tag, headErr := segment.ParseSlot(b, r.buf)
	f, footErr := segment.ParseFooter(b, r.header.SlotBytes, r.buf)
	s.closed = footErr == nil && (headErr != nil || tag.Generation == f.Generation)
	if s.closed {
		s.tag, s.used = f.Tag, f.Used
		for _, e := range f.Entries {
			record := r.buf[e.At:]
			sum := b.Sum(e, f.Generation, record[segment.RecordHeader:][:e.Length])
			s.records = append(s.records, logRecord{e, sum == e.Sum})
			if said, generation, err := segment.ParseRecord(b, record); err != nil || said != e ||
				generation != f.Generation {
				s.damage = append(s.damage, fmt.Sprintf("record header of sample %d", e.ID))
			}
		}
	} else {
		s.tag = segment.Scan(b, r.buf, func(e segment.Entry, sound bool) {
			s.records = append(s.records, logRecord{e, sound})
			s.used = uint32(e.End())
		})
	}
	if headErr != nil && s.tag.Generation != 0 || errors.Is(headErr, segment.ErrCorrupt) {
		s.damage = append(s.damage, "slot header")
	}
	if errors.Is(footErr, segment.ErrCorrupt) {
		s.damage = append(s.damage, "footer")
	}
	for _, e := range s.records {
		if uint64(e.ID) >= r.header.Samples {
			s.damage = append(s.damage, fmt.Sprintf("sample %d of %d", e.ID, r.header.Samples))
		}
	}
	// A slot that was never closed may have been cut anywhere, in this life of the log or another.
	neverClosed := !s.closed && s.tag.Generation != 0 && !errors.Is(footErr, segment.ErrCorrupt)
	s.unsure = s.tag.Generation > r.durable || neverClosed
	return s
}
