package client

import (
	"encoding/binary"

	"belady/internal/core/sample"
	"belady/internal/node/wire"
)

// Batch is one lease: the samples of one step of one rank. Its methods may be called from any
// goroutine until Release.
type Batch struct {
	// Epoch and Index say which batch of this rank it is, Last that its epoch ends with it.
	Epoch, Index uint32
	Last         bool
	// Private means that the daemon copied the bytes, because too many batches are held.
	Private bool
	// Cause is what delayed it.
	Cause wire.Cause
	// Receipt is the digest of its ids, already compared with them.
	Receipt uint64

	session *Session
	// lease is nil after Release. The Batch itself is never used again, so that releasing one
	// twice can not release another.
	lease *lease
}

// lease is the part of a batch that is worth recycling.
type lease struct {
	buf   []byte
	view  wire.LeaseView
	link  *link
	table *table
}

// Len is the number of samples.
func (b *Batch) Len() int { return b.lease.view.Len() }

// Size is the number of bytes of all samples.
func (b *Batch) Size() int64 { return int64(b.lease.view.Bytes) }

// ID is the i-th sample's id.
func (b *Batch) ID(i int) sample.ID { return b.lease.view.ID(i) }

// Bytes is the i-th sample. Writing to it faults, unless the lease is packed.
func (b *Batch) Bytes(i int) []byte {
	v := &b.lease.view
	return b.lease.table.find(v.Place(i), v.Length(i))
}

// Fields is the number of fields a sample has; at least 1.
func (b *Batch) Fields() int { return max(1, int(b.lease.view.Fields)) }

// Field is field f of the i-th sample.
func (b *Batch) Field(i, f int) []byte {
	data := b.Bytes(i)
	if b.Fields() == 1 && f == 0 {
		return data
	}
	from := uint32(0)
	for g := range f {
		from += b.lease.view.FieldLength(i, g)
	}
	to := from + b.lease.view.FieldLength(i, f)
	return data[from:to:to]
}

// Release gives the bytes back; no slice of them may be used afterwards. The daemon hears of it
// with the next write. Releasing again does nothing.
func (b *Batch) Release() { b.session.release(b) }

// Touch reads every byte, a word at a time, and returns a sum that keeps the reading from being
// optimised away: the least a training loop does with a sample.
func Touch(bytes []byte) (sum uint64) {
	for len(bytes) >= 32 {
		sum += binary.LittleEndian.Uint64(bytes) ^ binary.LittleEndian.Uint64(bytes[8:]) ^
			binary.LittleEndian.Uint64(bytes[16:]) ^ binary.LittleEndian.Uint64(bytes[24:])
		bytes = bytes[32:]
	}
	for _, c := range bytes {
		sum += uint64(c)
	}
	return sum
}
