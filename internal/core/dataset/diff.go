package dataset

import (
	"bytes"
	"slices"

	"belady/internal/core/sample"
)

// Changes counts how two scans of a dataset differ, in samples.
type Changes struct {
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	Same    int `json:"same"`
}

// Diff compares an old manifest with a new one by name, size and version. With other fields the
// samples are other samples: all are removed and added.
func Diff(before, after *Manifest) Changes {
	if !slices.Equal(before.fields, after.fields) {
		return Changes{Added: after.Len(), Removed: before.Len()}
	}
	if before.id == after.id {
		return Changes{Same: after.Len()}
	}
	var c Changes
	i, j := 0, 0
	for i < before.Len() && j < after.Len() {
		switch order := compareNames(before.name(i), after.name(j), after.suffix); {
		case order < 0:
			c.Removed++
			i++
		case order > 0:
			c.Added++
			j++
		default:
			if sameContent(before, after, sample.ID(i), sample.ID(j)) {
				c.Same++
			} else {
				c.Changed++
			}
			i++
			j++
		}
	}
	c.Removed += before.Len() - i
	c.Added += after.Len() - j
	return c
}

// sameContent compares the sizes and versions of all fields; the names are equal already.
func sameContent(before, after *Manifest, i, j sample.ID) bool {
	if before.Size(i) != after.Size(j) || !bytes.Equal(
		before.versions[8*int(i):8*int(i)+8], after.versions[8*int(j):8*int(j)+8]) {
		return false
	}
	for section := sectionFurther; section < len(after.sections); section++ {
		width := 4 + 4*((section-sectionFurther)%2)
		if !bytes.Equal(before.sections[section][width*int(i):width*(int(i)+1)],
			after.sections[section][width*int(j):width*(int(j)+1)]) {
			return false
		}
	}
	return true
}
