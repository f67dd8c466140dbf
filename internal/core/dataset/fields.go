package dataset

import (
	"fmt"
	"strings"
)

// Field is one of the objects that make up a sample: the object named Prefix + the sample's name +
// Suffix. A sample may lack an optional field, never the first.
type Field struct {
	Name     string
	Prefix   string
	Suffix   string
	Optional bool
}

// wholeFile is the only field of a dataset of plain files: a sample is named as its object.
var wholeFile = Field{Name: "data"}

// AutoFields in place of declared fields groups objects by what precedes their last dot.
const AutoFields = "auto"

// ParseFields reads declarations of fields, the first of which decides the order of the samples:
//
//	jpg                 the objects *.jpg
//	json?               the objects *.json, which a sample may lack
//	mask=masks/*.png    the objects masks/*.png, where * is the sample's name and may hold slashes
func ParseFields(declared []string) ([]Field, error) {
	if len(declared) > MaxFields {
		return nil, fmt.Errorf("%d fields declared, at most %d are possible", len(declared), MaxFields)
	}
	var fields []Field
	for _, text := range declared {
		f, err := parseField(text)
		if err != nil {
			return nil, err
		}
		for _, other := range fields {
			if other.Name == f.Name || other.Prefix == f.Prefix && other.Suffix == f.Suffix {
				return nil, fmt.Errorf("field %q is declared twice: name each field once", text)
			}
		}
		fields = append(fields, f)
	}
	if len(fields) > 0 && fields[0].Optional {
		return nil, fmt.Errorf("the first field %q must not be optional: "+
			"put a field that every sample has first", fields[0].Name)
	}
	return fields, nil
}

func parseField(text string) (Field, error) {
	rest, optional := strings.CutSuffix(text, "?")
	name, pattern, named := strings.Cut(rest, "=")
	if !named {
		pattern = "*." + name
	}
	prefix, suffix, starred := strings.Cut(pattern, "*")
	f := Field{Name: name, Prefix: prefix, Suffix: suffix, Optional: optional}
	if name == "" || name == AutoFields || !starred || strings.Contains(suffix, "*") ||
		strings.ContainsAny(name, "*/\x00") || len(text) > MaxName ||
		strings.ContainsRune(pattern, 0) {
		return Field{}, fmt.Errorf("field %q cannot be understood: write an extension (jpg), "+
			"or NAME=PREFIX*SUFFIX with one *, and ? after an optional field", text)
	}
	return f, nil
}

// match finds the field an object belongs to: of those that fit, the one that fits most closely.
func match(fields []Field, object string) (field int, ok bool) {
	best := -1
	for i, f := range fields {
		fixed := len(f.Prefix) + len(f.Suffix)
		if fixed > best && len(object) > fixed &&
			strings.HasPrefix(object, f.Prefix) && strings.HasSuffix(object, f.Suffix) {
			field, best = i, fixed
		}
	}
	return field, best >= 0
}
