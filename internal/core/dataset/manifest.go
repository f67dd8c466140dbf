// Package dataset is the manifest: the immutable list of a dataset's samples.
//
// A Builder (or Build, BuildIndex) turns listed objects into a manifest's bytes; Open reads those
// bytes in place, so the caller usually maps a file and keeps it mapped as long as the Manifest is
// used. A Manifest and a Set are safe for concurrent use and never change. Open trusts nothing:
// whatever the bytes are, it returns an error or a Manifest of which no method panics on a valid
// sample. An id out of range is the caller's bug and panics.
//
// The package reads no files and knows no origin: internal/store/catalog does both.
package dataset

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sort"

	"github.com/zeebo/xxh3"

	"belady/internal/core/sample"
)

// ID is a content id: equal ids mean equal names, sizes, versions, labels and fields, whatever the
// order in which the origin listed them.
type ID [32]byte

// String is the id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Manifest is an opened manifest. See Open.
type Manifest struct {
	id       ID
	kind     uint32
	samples  int
	total    int64
	largest  uint32
	fields   []Field
	classes  []string
	suffix   []byte
	sections [][]byte
	sums     []uint64
	// The columns read most, sliced out of sections once.
	sizes, labels, versions, offsets, names []byte
}

// Open reads a manifest in place: data must stay unchanged and readable while it is used. It checks
// the header's checksum and everything that a later call relies on, but not the checksums of the
// versions and the names: that is Verify.
func Open(data []byte) (*Manifest, error) {
	m, err := openHeader(data)
	if err != nil {
		return nil, err
	}
	for _, section := range []int{sectionFields, sectionClasses} {
		if err := m.verifySection(section); err != nil {
			return nil, err
		}
	}
	if m.fields, err = decodeFields(m.sections[sectionFields], len(m.fields)); err != nil {
		return nil, err
	}
	if m.classes, err = decodeClasses(m.sections[sectionClasses], len(m.classes)); err != nil {
		return nil, err
	}
	m.suffix = []byte(m.fields[0].Suffix)
	for _, check := range []func() error{m.checkOffsets, m.checkSizes, m.checkLabels} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// openHeader reads the header and slices the sections. The fields and classes of the result have
// their lengths only.
func openHeader(data []byte) (*Manifest, error) {
	le := binary.LittleEndian
	if len(data) < headerSize || string(data[:8]) != magic {
		return nil, fmt.Errorf("%w: it does not begin as a manifest", ErrCorrupt)
	}
	if v := le.Uint32(data[8:]); v != formatVersion {
		return nil, fmt.Errorf("%w (it is %d, this program reads %d)", ErrVersion, v, formatVersion)
	}
	if size := le.Uint64(data[80:]); size != uint64(len(data)) {
		return nil, fmt.Errorf("%w: it has %d bytes, its header says %d", ErrCorrupt, len(data), size)
	}
	s := shape{samples: le.Uint64(data[48:]), fields: uint64(le.Uint32(data[72:]))}
	if s.samples == 0 || s.samples > sample.MaxCount || s.fields == 0 || s.fields > MaxFields {
		return nil, fmt.Errorf("%w: %d samples of %d fields", ErrCorrupt, s.samples, s.fields)
	}
	end := headerSize + sectionSize*s.sections()
	if len(data) < end || le.Uint32(data[12:]) != headerSum(data[:end]) {
		return nil, fmt.Errorf("%w: the header's checksum is wrong", ErrCorrupt)
	}
	kind, classes := le.Uint32(data[68:]), le.Uint32(data[76:])
	if kind == 0 || int(kind) >= len(kinds) || uint64(classes) > s.samples {
		return nil, fmt.Errorf("%w: kind %d with %d classes", ErrCorrupt, kind, classes)
	}
	m := &Manifest{id: ID(data[16:48]), kind: kind, samples: int(s.samples),
		total: int64(le.Uint64(data[56:])), largest: le.Uint32(data[64:]),
		fields: make([]Field, s.fields)}
	if err := m.slice(data, s); err != nil {
		return nil, err
	}
	if int(classes) > len(m.sections[sectionClasses])/2 {
		return nil, fmt.Errorf("%w: %d classes do not fit their table", ErrCorrupt, classes)
	}
	m.classes = make([]string, classes)
	return m, nil
}

// slice finds the sections. There is one right layout for given lengths, so nothing can overlap.
func (m *Manifest) slice(data []byte, s shape) error {
	table := func(section, field int) uint64 {
		return binary.LittleEndian.Uint64(data[headerSize+sectionSize*section+8*field:])
	}
	s.fieldsSize, s.classesSize = table(sectionFields, 1), table(sectionClasses, 1)
	s.names = table(sectionNames, 1)
	if max(s.fieldsSize, s.classesSize, s.names) > uint64(len(data)) {
		return fmt.Errorf("%w: a section is longer than the file", ErrCorrupt)
	}
	spans, size := s.spans()
	if size != uint64(len(data)) {
		return fmt.Errorf("%w: its sections need %d bytes, it has %d", ErrCorrupt, size, len(data))
	}
	for i, at := range spans {
		padded := (at.offset + at.size + 7) &^ 7
		if !allZero(data[at.offset+at.size : padded]) {
			return fmt.Errorf("%w: the padding after section %d is not zero", ErrCorrupt, i)
		}
		if table(i, 0) != at.offset || table(i, 1) != at.size {
			return fmt.Errorf("%w: section %d is out of place", ErrCorrupt, i)
		}
		m.sections = append(m.sections, data[at.offset:at.offset+at.size:at.offset+at.size])
		m.sums = append(m.sums, table(i, 2))
	}
	m.sizes, m.labels = m.sections[sectionSizes], m.sections[sectionLabels]
	m.versions = m.sections[sectionVersions]
	m.offsets, m.names = m.sections[sectionOffsets], m.sections[sectionNames]
	return nil
}

// allZero keeps padding meaningless: one content has one file.
func allZero(padding []byte) bool {
	for _, b := range padding {
		if b != 0 {
			return false
		}
	}
	return true
}

// checkOffsets makes every Name safe: offsets rise from 0 to the end of the names.
func (m *Manifest) checkOffsets() error {
	previous := binary.LittleEndian.Uint64(m.offsets)
	if previous != 0 {
		return fmt.Errorf("%w: the first name begins at %d", ErrCorrupt, previous)
	}
	for rest := m.offsets[8:]; len(rest) >= 8; rest = rest[8:] {
		next := binary.LittleEndian.Uint64(rest)
		if next-previous-1 >= MaxName {
			return fmt.Errorf("%w: a name runs from %d to %d", ErrCorrupt, previous, next)
		}
		previous = next
	}
	if previous != uint64(len(m.names)) {
		return fmt.Errorf("%w: the names end at %d of %d", ErrCorrupt, previous, len(m.names))
	}
	return nil
}

// checkSizes makes every size, and the first field's as what the others leave, safe to allocate.
func (m *Manifest) checkSizes() error {
	total, largest := uint64(0), uint32(0)
	for i := range m.samples {
		size := binary.LittleEndian.Uint32(m.sizes[4*i:])
		total += uint64(size)
		largest = max(largest, size)
		if len(m.fields) > 1 && m.furtherSize(i) > uint64(size) {
			return fmt.Errorf("%w: sample %d is smaller than its fields", ErrCorrupt, i)
		}
	}
	if total != uint64(m.total) || largest != m.largest || largest > sample.MaxSize {
		return fmt.Errorf("%w: the sizes do not add up to the header's", ErrCorrupt)
	}
	return nil
}

func (m *Manifest) checkLabels() error {
	classes := uint32(len(m.classes))
	for rest := m.labels; len(rest) >= 4; rest = rest[4:] {
		// -1, no class, wraps to 0.
		if label := binary.LittleEndian.Uint32(rest); label+1 > classes {
			return fmt.Errorf("%w: label %d of %d classes", ErrCorrupt, int32(label), classes)
		}
	}
	return nil
}

// Verify reads every byte and compares the checksums of all sections.
func (m *Manifest) Verify() error {
	for section := range m.sections {
		if err := m.verifySection(section); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manifest) verifySection(section int) error {
	if xxh3.Hash(m.sections[section]) != m.sums[section] {
		return fmt.Errorf("%w: the checksum of section %d is wrong", ErrCorrupt, section)
	}
	return nil
}

// ID is the content id.
func (m *Manifest) ID() ID { return m.id }

// Format is the format the dataset was scanned as: folder or index.
func (m *Manifest) Format() string { return kinds[m.kind] }

// Len is the number of samples.
func (m *Manifest) Len() int { return m.samples }

// TotalBytes is the sum of all sizes.
func (m *Manifest) TotalBytes() int64 { return m.total }

// MaxSize is the largest sample's size in bytes.
func (m *Manifest) MaxSize() uint32 { return m.largest }

// Classes are the names of the labels 0, 1, …; the caller must not change them.
func (m *Manifest) Classes() []string { return m.classes }

// Fields are the names of a sample's fields, in the order of Parts. There is at least one.
func (m *Manifest) Fields() []string {
	names := make([]string, len(m.fields))
	for i, f := range m.fields {
		names[i] = f.Name
	}
	return names
}

// Size is the size of the whole sample in bytes: all its fields.
func (m *Manifest) Size(id sample.ID) uint32 {
	return binary.LittleEndian.Uint32(m.sizes[4*int(id):])
}

// Label is the index of the sample's class, -1 for a sample in the root.
func (m *Manifest) Label(id sample.ID) int32 {
	return int32(binary.LittleEndian.Uint32(m.labels[4*int(id):]))
}

// Name is the sample's name: the object's, or what its fields' objects have in common.
func (m *Manifest) Name(id sample.ID) string { return string(m.name(int(id))) }

func (m *Manifest) name(i int) []byte {
	at := m.offsets[8*i : 8*i+16]
	return m.names[binary.LittleEndian.Uint64(at):binary.LittleEndian.Uint64(at[8:])]
}

// furtherSize is what the fields after the first take of sample i.
func (m *Manifest) furtherSize(i int) uint64 {
	sum := uint64(0)
	for field := 1; field < len(m.fields); field++ {
		if size := m.column(field, i); size != sizeAbsent {
			sum += uint64(size)
		}
	}
	return sum
}

func (m *Manifest) column(field, i int) uint32 {
	return binary.LittleEndian.Uint32(m.sections[sectionFurther+2*(field-1)][4*i:])
}

// FieldSize is the size of one field in bytes, 0 where a sample lacks an optional one.
func (m *Manifest) FieldSize(id sample.ID, field int) uint32 {
	if field == 0 {
		return m.Size(id) - uint32(m.furtherSize(int(id)))
	}
	if size := m.column(field, int(id)); size != sizeAbsent {
		return size
	}
	return 0
}

// Parts appends the sample's parts to dst, one for each field, in the order in which they make up
// the sample's bytes.
func (m *Manifest) Parts(id sample.ID, dst []Part) []Part {
	i := int(id)
	name := m.name(i)
	for field, f := range m.fields {
		version := m.versions
		if field > 0 {
			if m.column(field, i) == sizeAbsent {
				dst = append(dst, Part{})
				continue
			}
			version = m.sections[sectionFurther+2*(field-1)+1]
		}
		dst = append(dst, Part{Name: f.Prefix + string(name) + f.Suffix, Whole: true,
			Size:    m.FieldSize(id, field),
			Version: Version(binary.LittleEndian.Uint64(version[8*i:]))})
	}
	return dst
}

// Find is the sample with this name, by binary search.
func (m *Manifest) Find(name string) (sample.ID, bool) {
	want := []byte(name)
	i, found := sort.Find(m.samples, func(i int) int {
		return compareNames(want, m.name(i), m.suffix)
	})
	if !found {
		return sample.None, false
	}
	return sample.ID(i), true
}
