// Package segment is the bytes of a log: docs/format/log.md in code.
//
// It does no I/O and keeps no state but a Builder's. Parsing never trusts: what does not fit its
// checksum, or does not lie where it says, is an error or is left out, whatever the bytes are.
package segment

import (
	"errors"
	"fmt"

	"belady/internal/core/sample"
)

const (
	// Version of the format.
	Version = 1
	// Block is what everything is aligned to that is read or written directly.
	Block = 4096
	// MinSlot and MaxSlot bound a slot's bytes, which are a power of two.
	MinSlot, MaxSlot = 1 << 16, 1 << 26
	// DirectSize is the size from which a sample's bytes begin at a block of their own, so that they
	// can be read straight to where they are lent from.
	DirectSize = 64 << 10
)

var (
	// ErrBlank is zeros where a header should be: the making of the segment was cut short.
	ErrBlank = errors.New("no segment: all zero")
	// ErrForeign is something that never was a header of ours.
	ErrForeign = errors.New("not a segment of a Belady log")
	// ErrVersion is a segment of another version of the format.
	ErrVersion = fmt.Errorf("not version %d of the log's format", Version)
	// ErrCorrupt is bytes that do not fit their checksum, or contradict each other.
	ErrCorrupt = errors.New("damaged")
)

// ErrShort is a footer that reaches further back than the bytes that were handed in.
type ErrShort struct{ Want int }

func (e ErrShort) Error() string {
	return fmt.Sprintf("the footer takes the last %d bytes of the slot", e.Want)
}

// Header is what a segment says of itself, at its begin and once more at its end.
type Header struct {
	Content   [32]byte // of the dataset
	ID        uint64   // random; not zero
	SlotBytes uint32
	Slots     uint32
	Samples   uint64 // of the dataset
	Durable   uint64 // its slots of generations up to this one were synced
}

// Tag is what a slot was begun for.
type Tag struct {
	Generation uint64
	Order      uint64 // 0: in none
	Epoch      uint32
	Bucket     uint32
}

// Entry is one record of a slot.
type Entry struct {
	ID     sample.ID
	At     uint32 // of the record's header in the slot
	Length uint32 // of the sample's bytes
	Sum    uint32
}

// Footer is what a closed slot says of itself.
type Footer struct {
	Tag
	Durable uint64 // what was durable in its segment when it was closed
	Used    uint32 // where its records end
	Entries []Entry
}
