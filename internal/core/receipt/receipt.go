// Package receipt digests what was delivered, and proves it against the order it should have been.
//
// A batch's receipt is a digest of its ids. A Chain folds the receipts of one rank's epoch in the
// order of delivery; an Account says of which epoch of which order; Prove computes that order
// afresh and compares. Whoever keeps accounts keeps them apart from what made the delivery: the
// proof asks the ids that left, not the plan that sent them.
package receipt

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/zeebo/xxh3"

	"belady/internal/core/sample"
)

// Of is a batch's receipt: XXH3 (64 bits, seed 0) over its ids as little-endian uint32. scratch is
// grown as needed and returned for the next call.
func Of(ids []sample.ID, scratch []byte) (receipt uint64, grown []byte) {
	scratch = scratch[:0]
	for _, id := range ids {
		scratch = binary.LittleEndian.AppendUint32(scratch, uint32(id))
	}
	return xxh3.Hash(scratch), scratch
}

// MaxMarks bounds a chain: so many batches are told apart one by one, more of them in groups. A
// record of eight ranks and a hundred epochs then has some megabytes.
const MaxMarks = 1024

// Value is a chain's value. Records have it in hexadecimal: JSON's numbers end at 2^53.
type Value uint64

// Marks are the low halves of a chain's values on the way; the last value is kept whole.
type Marks []uint32

// IsZero says that a chain holds no batch.
func (c Chain) IsZero() bool { return c.Batches == 0 }

// Chain is a digest over batches in order. Its value after each batch depends on all before, so
// that a mark which agrees proves everything up to it.
type Chain struct {
	Batches int   `json:"batches"`
	Samples int64 `json:"samples"`
	Value   Value `json:"value"`
	// Stride is how many batches lie between two marks; Marks are the values after them.
	Stride int   `json:"stride"`
	Marks  Marks `json:"marks"`
}

// Add folds the next batch in.
func (c *Chain) Add(receipt uint64, samples int) {
	c.fold(receipt, samples)
	c.Stride = max(c.Stride, 1)
	if c.Batches%c.Stride != 0 {
		return
	}
	c.Marks = append(c.Marks, uint32(c.Value))
	if len(c.Marks) > MaxMarks {
		c.thin()
	}
}

func (c *Chain) fold(receipt uint64, samples int) {
	var link [16]byte
	binary.LittleEndian.PutUint64(link[:], uint64(c.Value))
	binary.LittleEndian.PutUint64(link[8:], receipt)
	c.Value = Value(xxh3.Hash(link[:]))
	c.Batches++
	c.Samples += int64(samples)
}

// thin drops every other mark.
func (c *Chain) thin() {
	c.Stride *= 2
	kept := c.Marks[:0]
	for i := 1; i < len(c.Marks); i += 2 {
		kept = append(kept, c.Marks[i])
	}
	c.Marks = kept
}

// MarshalText writes a value in hexadecimal.
func (v Value) MarshalText() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(v), 16), nil
}

// UnmarshalText reads it.
func (v *Value) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*v = Value(n)
	return err
}

// MarshalText writes marks as little-endian bytes in base64.
func (m Marks) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, 4*len(m))
	for _, mark := range m {
		raw = binary.LittleEndian.AppendUint32(raw, mark)
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText reads them.
func (m *Marks) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return err
	}
	if len(raw)%4 != 0 {
		return fmt.Errorf("marks of %d bytes, not a multiple of 4", len(raw))
	}
	*m = nil
	for ; len(raw) > 0; raw = raw[4:] {
		*m = append(*m, binary.LittleEndian.Uint32(raw))
	}
	return nil
}
