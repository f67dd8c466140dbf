package dataset

import "belady/internal/core/sample"

// Version pins the content of one origin object: a hash of its etag, or of its size and
// modification time. Zero means the origin could not say.
type Version uint64

// Object is one file or object as an origin lists it. Name is relative to the dataset's URL,
// '/'-separated, and may hold any bytes but NUL.
type Object struct {
	Name    string
	Size    int64
	Version Version
}

// Part is one object that makes up a sample (or one field of it): the bytes [Offset,
// Offset+Size) of object Name. A missing optional field has Size 0 and an empty Name.
type Part struct {
	Name    string
	Offset  int64
	Size    uint32
	Version Version
	// Whole says that the part is all of its object, so that no range need be asked for.
	Whole bool
}

// Sizes is what planning needs of a dataset: how many samples, and how large each one is.
type Sizes interface {
	Len() int
	Size(id sample.ID) uint32
}
