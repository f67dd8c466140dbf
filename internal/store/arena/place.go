package arena

import "fmt"

// A Place is where one sample's bytes lie: which slab, where in it, and how many.
//
//	 63      54 53                        26 25                       0
//	┌──────────┬────────────────────────────┬──────────────────────────┐
//	│ slab  10 │ offset / 64             28 │ length                26 │
//	└──────────┴────────────────────────────┴──────────────────────────┘
//
// Slabs count from 1, so the zero Place is nowhere. It travels to clients as it is: see
// docs/format/arena.md before changing a bit.
type Place uint64

const (
	lengthBits = 26
	offsetBits = 28
	slabBits   = 10

	// Align is the alignment of every place: a cache line, and what offset's unit is.
	Align = 64
	// DirectAlign is the alignment of memory and of file offsets that direct I/O wants.
	DirectAlign = 4096
	// LongLength in a place's length field says that the sample is that long or longer; its real
	// length is in the manifest, which every holder of a place has.
	LongLength = 1<<lengthBits - 1
	// MaxSlabs is how many slabs one arena can number.
	MaxSlabs = 1<<slabBits - 1
	// MaxSlabBytes is the largest slab that an offset can reach into.
	MaxSlabBytes = Align << offsetBits
)

func makePlace(slab uint16, offset int64, length uint32) Place {
	return Place(slab)<<(offsetBits+lengthBits) |
		Place(offset/Align)<<lengthBits |
		Place(min(length, LongLength))
}

// Slab is the index of the slab, 1 to MaxSlabs; 0 for nowhere.
func (p Place) Slab() uint16 { return uint16(p >> (offsetBits + lengthBits)) }

// Offset is the place's first byte in its slab.
func (p Place) Offset() int64 {
	return int64(p>>lengthBits&(1<<offsetBits-1)) * Align
}

// Len is the sample's length; LongLength means "that or longer, ask the manifest".
func (p Place) Len() uint32 { return uint32(p & LongLength) }

// String shows the three parts as slab+offset:length.
func (p Place) String() string {
	if p == 0 {
		return "nowhere"
	}
	return fmt.Sprintf("%d+%d:%d", p.Slab(), p.Offset(), p.Len())
}
