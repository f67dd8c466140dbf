package dataset

import (
	"bytes"
	"fmt"
	"slices"
)

// detect turns whole file names into fields by extension. An extension every sample has is a
// required field, others are optional; the required one with the most bytes comes first, because
// the payload is what torchvision would sort.
func (b *Builder) detect() error {
	if err := b.assignExtensions(); err != nil {
		return err
	}
	b.sort()
	if err := b.dropRepeated(); err != nil {
		return err
	}
	samples, _, _ := b.measure()
	objects, sizes := make([]uint64, len(b.fields)), make([]uint64, len(b.fields))
	for i := range b.records {
		objects[b.records[i].field]++
		sizes[b.records[i].field] += uint64(b.records[i].size)
	}
	first := -1
	for i := range b.fields {
		b.fields[i].Optional = objects[i] < samples
		if !b.fields[i].Optional && (first < 0 || sizes[i] > sizes[first]) {
			first = i
		}
	}
	if first < 0 {
		return fmt.Errorf("none of the %d extensions is there for every sample: "+
			"declare the fields by name, optional ones with ? (jpg,json?)", len(b.fields))
	}
	b.moveFirst(first)
	return nil
}

// assignExtensions makes a field of every extension, in sorted order, and cuts it off the names.
func (b *Builder) assignExtensions() error {
	index := map[string]int{}
	for i := range b.records {
		name := b.name(&b.records[i])
		dot := lastDot(name)
		if dot < 0 {
			return fmt.Errorf("object %q has no extension to group by: "+
				"declare the fields by name", name)
		}
		if _, known := index[string(name[dot+1:])]; !known {
			index[string(name[dot+1:])] = 0
		}
		if len(index) > MaxFields {
			return fmt.Errorf("more than %d extensions found: declare the fields by name", MaxFields)
		}
	}
	b.fields = nil
	for extension := range index {
		b.fields = append(b.fields, Field{Name: extension, Suffix: "." + extension})
	}
	slices.SortFunc(b.fields, func(x, y Field) int {
		return compareText([]byte(x.Name), []byte(y.Name))
	})
	for i, f := range b.fields {
		index[f.Name] = i
	}
	for i := range b.records {
		r := &b.records[i]
		name := b.name(r)
		dot := lastDot(name)
		r.field, r.length = uint8(index[string(name[dot+1:])]), uint16(dot)
	}
	return nil
}

// lastDot finds the dot before a file name's extension, as Python's os.path.splitext does.
func lastDot(name []byte) int {
	dot := bytes.LastIndexByte(name, '.')
	if dot <= 0 || dot == len(name)-1 || bytes.IndexByte(name[dot:], '/') >= 0 {
		return -1
	}
	return dot
}

// moveFirst makes one field the first and leaves the others in their order.
func (b *Builder) moveFirst(first int) {
	f := b.fields[first]
	b.fields = slices.Insert(slices.Delete(b.fields, first, first+1), 0, f)
	for i := range b.records {
		switch field := int(b.records[i].field); {
		case field == first:
			b.records[i].field = 0
		case field < first:
			b.records[i].field++
		}
	}
}
