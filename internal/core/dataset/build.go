package dataset

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"belady/internal/core/sample"
)

// ErrEmpty: no listed object makes a sample.
var ErrEmpty = errors.New("no samples")

// Options says how objects become samples.
type Options struct {
	// Format is one of Formats; empty means folder.
	Format string
	// Fields are declared as ParseFields reads them, or are AutoFields alone. None: every object
	// is a sample.
	Fields []string
}

// LeftOut counts listed objects that are in no sample.
type LeftOut struct {
	// Hidden have a component that begins with a dot (.DS_Store; also "." and "..").
	Hidden int `json:"hidden"`
	// Folders are the empty markers, with a trailing slash, that S3 consoles create.
	Folders int `json:"folders"`
	// Unmatched belong to none of the declared fields.
	Unmatched int `json:"unmatched"`
	// Repeated were listed more than once, the same each time.
	Repeated int `json:"repeated"`
}

// Builder collects listed objects and writes their manifest. It holds about 24 bytes an object
// beside the names, however many are added. It is not safe for concurrent use.
type Builder struct {
	fields  []Field
	auto    bool
	pages   [][]byte
	records []record
	left    LeftOut
}

// record is one object: 24 bytes, because there may be tens of millions.
type record struct {
	page    uint32
	start   uint32
	version Version
	size    uint32
	length  uint16
	field   uint8
}

// namesPage is the unit in which names are stored: growing one slice would copy them all.
const namesPage = 1 << 20

// NewBuilder checks the options.
func NewBuilder(opts Options) (*Builder, error) {
	if opts.Format != "" && !slices.Contains(Formats(), opts.Format) {
		return nil, fmt.Errorf("format %q is not known: the formats are %s",
			opts.Format, strings.Join(Formats(), ", "))
	}
	if len(opts.Fields) == 0 {
		return &Builder{fields: []Field{wholeFile}}, nil
	}
	if len(opts.Fields) == 1 && opts.Fields[0] == AutoFields {
		return &Builder{fields: []Field{wholeFile}, auto: true}, nil
	}
	fields, err := ParseFields(opts.Fields)
	if err != nil {
		return nil, err
	}
	return &Builder{fields: fields}, nil
}

// Build is a Builder over objects that are all at hand.
func Build(objects []Object, opts Options) ([]byte, error) {
	b, err := NewBuilder(opts)
	if err != nil {
		return nil, err
	}
	if err := b.Add(objects); err != nil {
		return nil, err
	}
	return b.Finish()
}

// Add takes listed objects, in any order; it keeps nothing of the slice.
func (b *Builder) Add(objects []Object) error {
	for i := range objects {
		if err := b.add(&objects[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) add(o *Object) error {
	if err := checkName(o.Name); err != nil {
		return err
	}
	switch {
	case strings.HasSuffix(o.Name, "/"):
		b.left.Folders++
		return nil
	case o.Name[0] == '.' || strings.Contains(o.Name, "/."):
		b.left.Hidden++
		return nil
	}
	if o.Size < 0 || o.Size > sample.MaxSize {
		return fmt.Errorf("object %q has %d bytes, a sample may have at most %d",
			o.Name, o.Size, int64(sample.MaxSize))
	}
	field, ok := match(b.fields, o.Name)
	if !ok {
		b.left.Unmatched++
		return nil
	}
	if len(b.records) == sample.MaxCount {
		return fmt.Errorf("more than %d objects: split the dataset", uint32(sample.MaxCount))
	}
	f := b.fields[field]
	name := o.Name[len(f.Prefix) : len(o.Name)-len(f.Suffix)]
	page, start := b.store(name)
	b.records = append(b.records, record{page: page, start: start, version: o.Version,
		size: uint32(o.Size), length: uint16(len(name)), field: uint8(field)})
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("an object without a name was listed")
	case len(name) > MaxName:
		return fmt.Errorf("object %q… has a name of %d bytes, at most %d are possible: rename it",
			name[:64], len(name), MaxName)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("object %q has a NUL byte in its name: rename it", name)
	}
	return nil
}

func (b *Builder) store(name string) (page, start uint32) {
	last := len(b.pages) - 1
	if last < 0 || cap(b.pages[last])-len(b.pages[last]) < len(name) {
		b.pages = append(b.pages, make([]byte, 0, namesPage))
		last++
	}
	start = uint32(len(b.pages[last]))
	b.pages[last] = append(b.pages[last], name...)
	return uint32(last), start
}

// LeftOut says what of the added objects is in no sample; repeated ones are known after Finish.
func (b *Builder) LeftOut() LeftOut { return b.left }

func (b *Builder) name(r *record) []byte {
	return b.pages[r.page][r.start : r.start+uint32(r.length)]
}

// Finish writes the manifest. The Builder cannot be used afterwards.
func (b *Builder) Finish() ([]byte, error) {
	if len(b.records) == 0 {
		return nil, fmt.Errorf("%w: %d hidden, %d folder markers and %d of no declared field "+
			"were left out", ErrEmpty, b.left.Hidden, b.left.Folders, b.left.Unmatched)
	}
	if b.auto {
		if err := b.detect(); err != nil {
			return nil, err
		}
	}
	b.sort()
	if err := b.dropRepeated(); err != nil {
		return nil, err
	}
	samples, names, classes := b.measure()
	if err := b.checkComplete(); err != nil {
		return nil, err
	}
	fields, table := encodeFields(b.fields), encodeClasses(classes)
	d := newDraft(shape{samples: samples, fields: uint64(len(b.fields)),
		fieldsSize: uint64(len(fields)), classesSize: uint64(len(table)), names: names})
	copy(d.sections[sectionFields], fields)
	copy(d.sections[sectionClasses], table)
	if err := b.fill(d); err != nil {
		return nil, err
	}
	b.pages, b.records = nil, nil
	return d.seal(uint32(slices.Index(kinds, "folder")), uint32(len(classes))), nil
}

// sort puts the records of one sample together, in the order of the fields.
func (b *Builder) sort() {
	suffix := []byte(b.fields[0].Suffix)
	order := func(x, y record) int {
		if c := compareNames(b.name(&x), b.name(&y), suffix); c != 0 {
			return c
		}
		return cmp.Compare(x.field, y.field)
	}
	if !slices.IsSortedFunc(b.records, order) {
		slices.SortFunc(b.records, order)
	}
}

// dropRepeated removes objects listed twice. Two listings that differ mean the origin changed while
// it was listed: which one is true is not ours to guess.
func (b *Builder) dropRepeated() error {
	kept := b.records[:1]
	for i := 1; i < len(b.records); i++ {
		r, last := &b.records[i], &kept[len(kept)-1]
		if r.field != last.field || !bytes.Equal(b.name(r), b.name(last)) {
			kept = append(kept, *r)
			continue
		}
		if r.size != last.size || r.version != last.version {
			return fmt.Errorf("object %q was listed twice with different contents: "+
				"the origin is changing, scan again", b.object(r))
		}
		b.left.Repeated++
	}
	b.records = kept
	return nil
}

func (b *Builder) object(r *record) string {
	f := b.fields[r.field]
	return f.Prefix + string(b.name(r)) + f.Suffix
}

// group returns the end of the sample whose first record is at i.
func (b *Builder) group(i int) int {
	end := i + 1
	for end < len(b.records) && len(b.fields) > 1 &&
		bytes.Equal(b.name(&b.records[end]), b.name(&b.records[i])) {
		end++
	}
	return end
}

// measure counts the samples and the bytes of their names, and collects the classes.
func (b *Builder) measure() (samples, names uint64, classes []string) {
	var class []byte
	for i := 0; i < len(b.records); i = b.group(i) {
		samples++
		name := b.name(&b.records[i])
		names += uint64(len(name))
		if c := classOf(name); c != nil && (class == nil || !bytes.Equal(c, class)) {
			class = c
			classes = append(classes, string(c))
		}
	}
	return samples, names, classes
}

// checkComplete names the first sample that lacks a field it must have.
func (b *Builder) checkComplete() error {
	if len(b.fields) == 1 {
		return nil
	}
	first, incomplete := "", 0
	for i := 0; i < len(b.records); {
		end := b.group(i)
		if field, lacks := b.lacking(b.records[i:end]); lacks {
			if incomplete++; incomplete == 1 {
				f, name := b.fields[field], string(b.name(&b.records[i]))
				first = fmt.Sprintf("sample %q has no %s (object %q)",
					name, f.Name, f.Prefix+name+f.Suffix)
			}
		}
		i = end
	}
	if incomplete == 0 {
		return nil
	}
	return fmt.Errorf("%s; %d samples are incomplete: add what is missing, "+
		"or declare the field optional (json?)", first, incomplete)
}

func (b *Builder) lacking(group []record) (field int, lacks bool) {
	at := 0
	for field, f := range b.fields {
		if at < len(group) && int(group[at].field) == field {
			at++
		} else if !f.Optional {
			return field, true
		}
	}
	return 0, false
}

// fill writes the columns and the names.
func (b *Builder) fill(d *draft) error {
	label, end := int32(-1), uint64(0)
	var class []byte
	for i, first := 0, 0; first < len(b.records); i++ {
		group := b.records[first:b.group(first)]
		first += len(group)
		name := b.name(&group[0])
		c := classOf(name)
		switch {
		case c == nil:
			d.putLabel(i, -1)
		default:
			if class == nil || !bytes.Equal(c, class) {
				class, label = c, label+1
			}
			d.putLabel(i, label)
		}
		end += uint64(copy(d.sections[sectionNames][end:], name))
		d.putNameEnd(i, end)
		size, err := b.fillFields(d, i, group)
		if err != nil {
			return err
		}
		d.putSize(i, size)
	}
	return nil
}

func (b *Builder) fillFields(d *draft, i int, group []record) (uint32, error) {
	sum := uint64(0)
	for field := range b.fields {
		switch {
		case len(group) > 0 && int(group[0].field) == field:
			sum += uint64(group[0].size)
			if sum > sample.MaxSize {
				return 0, fmt.Errorf("sample %q has %d bytes and more in its fields, "+
					"a sample may have at most %d", b.name(&group[0]), sum, int64(sample.MaxSize))
			}
			if field == 0 {
				d.putVersion(i, group[0].version)
			} else {
				d.putField(i, field, group[0].size, group[0].version)
			}
			group = group[1:]
		case field > 0:
			d.putField(i, field, sizeAbsent, 0)
		}
	}
	return uint32(sum), nil
}

// indexNameSize is the length of a generated name: enough digits for any sample.ID.
const indexNameSize = 10

// BuildIndex writes the manifest of n generated samples: named by their number in ten digits, in
// the root, each of the size that size says.
func BuildIndex(n int, size func(sample.ID) uint32, version Version) ([]byte, error) {
	if n <= 0 || n > sample.MaxCount {
		return nil, fmt.Errorf("%d samples are asked for: between 1 and %d are possible",
			n, uint32(sample.MaxCount))
	}
	fields := encodeFields([]Field{wholeFile})
	d := newDraft(shape{samples: uint64(n), fields: 1, fieldsSize: uint64(len(fields)),
		names: uint64(n) * indexNameSize})
	copy(d.sections[sectionFields], fields)
	for i := range n {
		bytes := size(sample.ID(i))
		if bytes > sample.MaxSize {
			return nil, fmt.Errorf("sample %d has %d bytes, it may have at most %d",
				i, bytes, int64(sample.MaxSize))
		}
		d.putSize(i, bytes)
		d.putLabel(i, -1)
		d.putVersion(i, version)
		d.putNameEnd(i, uint64(i+1)*indexNameSize)
		digits := d.sections[sectionNames][i*indexNameSize : (i+1)*indexNameSize]
		for at, rest := indexNameSize-1, i; at >= 0; at, rest = at-1, rest/10 {
			digits[at] = byte('0' + rest%10)
		}
	}
	return d.seal(uint32(slices.Index(kinds, "index")), 0), nil
}
