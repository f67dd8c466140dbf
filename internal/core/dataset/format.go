package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/zeebo/xxh3"

	"belady/internal/core/sample"
)

// The bytes of a manifest, all integers little-endian; docs/format/manifest.md gives the reasons.
//
//	 0  magic "BELADYMF"
//	 8  u32 format version         12  u32 CRC-32C of header and section table, this field zero
//	16  [32] content id
//	48  u64 samples                56  u64 bytes of all samples
//	64  u32 largest sample         68  u32 kind: 1 folder, 2 index
//	72  u32 fields                 76  u32 classes
//	80  u64 length of the file
//	88  section table: 7+2·(fields−1) × { u64 offset, u64 length, u64 xxh3 }
//	    sections, each at a multiple of 8, zero-padded, in this order:
//	      fields  classes  sizes u32[n]  labels i32[n]  versions u64[n]
//	      name offsets u64[n+1]  names  and for each further field: sizes u32[n]  versions u64[n]
//
// They are part of the format: a change of any of them is a new formatVersion.
const (
	magic         = "BELADYMF"
	formatVersion = 1

	headerSize  = 88
	sectionSize = 24

	sectionFields   = 0
	sectionClasses  = 1
	sectionSizes    = 2
	sectionLabels   = 3
	sectionVersions = 4
	sectionOffsets  = 5
	sectionNames    = 6
	sectionFurther  = 7

	// sizeAbsent marks an optional field a sample does not have; an empty object has size 0.
	sizeAbsent = sample.MaxSize + 1
)

// MaxName is the longest object name in bytes: Linux's PATH_MAX, four times S3's limit.
const MaxName = 4096

// MaxFields is the largest number of fields of a sample.
const MaxFields = 64

// Sentinel errors of Open and Verify.
var (
	// ErrCorrupt: the bytes are not what was written. Scanning the dataset again repairs it.
	ErrCorrupt = errors.New("manifest is damaged, scan the dataset again")
	// ErrVersion: written by another version of the format. Scanning again rewrites it.
	ErrVersion = errors.New("manifest has another format version, scan the dataset again")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// contentDomain separates content ids from every other hash; it changes if their meaning does.
const contentDomain = "belady dataset content 1"

// kinds are the formats of datasets by their number in the header. Only append.
var kinds = []string{1: "folder", 2: "index"}

// Formats names the formats a dataset can be scanned as.
func Formats() []string { return []string{"folder"} }

// shape is what decides where every section of a manifest lies.
type shape struct {
	samples, fields                uint64
	fieldsSize, classesSize, names uint64
}

func (s shape) sections() int { return sectionFurther + 2*(int(s.fields)-1) }

// span is one section's place.
type span struct{ offset, size uint64 }

// spans lays the sections out, and returns the length of the file.
func (s shape) spans() ([]span, uint64) {
	spans := make([]span, 0, s.sections())
	at := uint64(headerSize + sectionSize*s.sections())
	add := func(size uint64) {
		spans = append(spans, span{at, size})
		at += (size + 7) &^ 7
	}
	for _, size := range []uint64{s.fieldsSize, s.classesSize, 4 * s.samples, 4 * s.samples,
		8 * s.samples, 8 * (s.samples + 1), s.names} {
		add(size)
	}
	for range s.fields - 1 {
		add(4 * s.samples)
		add(8 * s.samples)
	}
	return spans, at
}

// draft is a manifest being written: the file's bytes with every section in place.
type draft struct {
	data     []byte
	sections [][]byte
	shape    shape
}

func newDraft(s shape) *draft {
	spans, size := s.spans()
	d := &draft{data: make([]byte, size), shape: s}
	for _, at := range spans {
		d.sections = append(d.sections, d.data[at.offset:at.offset+at.size:at.offset+at.size])
	}
	return d
}

func (d *draft) putSize(i int, size uint32) {
	binary.LittleEndian.PutUint32(d.sections[sectionSizes][4*i:], size)
}

func (d *draft) putLabel(i int, label int32) {
	binary.LittleEndian.PutUint32(d.sections[sectionLabels][4*i:], uint32(label))
}

func (d *draft) putVersion(i int, v Version) {
	binary.LittleEndian.PutUint64(d.sections[sectionVersions][8*i:], uint64(v))
}

// putField fills what a further field (1 and up) has of a sample.
func (d *draft) putField(i, field int, size uint32, v Version) {
	section := sectionFurther + 2*(field-1)
	binary.LittleEndian.PutUint32(d.sections[section][4*i:], size)
	binary.LittleEndian.PutUint64(d.sections[section+1][8*i:], uint64(v))
}

// putNameEnd says where sample i's name ends in the names section.
func (d *draft) putNameEnd(i int, end uint64) {
	binary.LittleEndian.PutUint64(d.sections[sectionOffsets][8*(i+1):], end)
}

// seal writes the header over the filled sections and returns the file.
func (d *draft) seal(kind, classes uint32) []byte {
	total, largest := uint64(0), uint32(0)
	for i := 0; i < len(d.sections[sectionSizes]); i += 4 {
		size := binary.LittleEndian.Uint32(d.sections[sectionSizes][i:])
		total += uint64(size)
		largest = max(largest, size)
	}
	id := contentID(d.shape, d.sections)
	le := binary.LittleEndian
	copy(d.data, magic)
	le.PutUint32(d.data[8:], formatVersion)
	copy(d.data[16:], id[:])
	le.PutUint64(d.data[48:], d.shape.samples)
	le.PutUint64(d.data[56:], total)
	le.PutUint32(d.data[64:], largest)
	le.PutUint32(d.data[68:], kind)
	le.PutUint32(d.data[72:], uint32(d.shape.fields))
	le.PutUint32(d.data[76:], classes)
	le.PutUint64(d.data[80:], uint64(len(d.data)))
	spans, _ := d.shape.spans()
	for i, at := range spans {
		entry := d.data[headerSize+sectionSize*i:]
		le.PutUint64(entry, at.offset)
		le.PutUint64(entry[8:], at.size)
		le.PutUint64(entry[16:], xxh3.Hash(d.sections[i]))
	}
	le.PutUint32(d.data[12:], headerSum(d.data[:headerSize+sectionSize*len(spans)]))
	return d.data
}

// headerSum is the header's checksum with its own field taken as zero.
func headerSum(header []byte) uint32 {
	sum := crc32.Update(0, castagnoli, header[:12])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4))
	return crc32.Update(sum, castagnoli, header[16:])
}

// contentID hashes the sections, each after its length, so that no two contents share their bytes.
func contentID(s shape, sections [][]byte) ID {
	h := sha256.New()
	h.Write([]byte(contentDomain))
	number := binary.LittleEndian.AppendUint64(nil, s.samples)
	h.Write(binary.LittleEndian.AppendUint64(number, s.fields))
	for _, section := range sections {
		h.Write(binary.LittleEndian.AppendUint64(number[:0], uint64(len(section))))
		h.Write(section)
	}
	return ID(h.Sum(nil))
}

// appendText and cutText are the length-prefixed strings of the fields and classes sections.
func appendText(dst []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(text))), text...)
}

func cutText(src []byte) (text string, rest []byte, err error) {
	if len(src) < 2 {
		return "", nil, fmt.Errorf("%w: a table ends inside a length", ErrCorrupt)
	}
	size := int(binary.LittleEndian.Uint16(src))
	if len(src)-2 < size {
		return "", nil, fmt.Errorf("%w: a table ends inside a text", ErrCorrupt)
	}
	return string(src[2 : 2+size]), src[2+size:], nil
}

const flagOptional = 1

func encodeFields(fields []Field) []byte {
	var table []byte
	for _, f := range fields {
		flags := byte(0)
		if f.Optional {
			flags = flagOptional
		}
		table = append(table, flags)
		table = appendText(appendText(appendText(table, f.Name), f.Prefix), f.Suffix)
	}
	return table
}

func decodeFields(table []byte, count int) ([]Field, error) {
	fields := make([]Field, count)
	for i := range fields {
		if len(table) == 0 || table[0] > flagOptional {
			return nil, fmt.Errorf("%w: field %d has no valid flags", ErrCorrupt, i)
		}
		f := &fields[i]
		f.Optional, table = table[0] == flagOptional, table[1:]
		for _, text := range []*string{&f.Name, &f.Prefix, &f.Suffix} {
			var err error
			if *text, table, err = cutText(table); err != nil {
				return nil, err
			}
		}
	}
	if len(table) > 0 || fields[0].Optional {
		return nil, fmt.Errorf("%w: the table of fields is wrong", ErrCorrupt)
	}
	return fields, nil
}

func encodeClasses(classes []string) []byte {
	var table []byte
	for _, class := range classes {
		table = appendText(table, class)
	}
	return table
}

func decodeClasses(table []byte, count int) ([]string, error) {
	if count > len(table)/2 {
		return nil, fmt.Errorf("%w: %d classes do not fit their table", ErrCorrupt, count)
	}
	classes := make([]string, count)
	for i := range classes {
		var err error
		if classes[i], table, err = cutText(table); err != nil {
			return nil, err
		}
	}
	if len(table) > 0 {
		return nil, fmt.Errorf("%w: the table of classes is too long", ErrCorrupt)
	}
	return classes, nil
}
