package segment

import (
	"hash/crc32"

	"belady/internal/core/sample"
)

const (
	// RecordHeader is what stands before a sample's bytes.
	RecordHeader = 32

	recordMagic = "BREC"
	recordAlign = 16
	entryBytes  = 16
)

// Sum is the checksum of a record: of where it was written, what it says it is, and its bytes.
// Entry.Sum is not looked at; a record whose bytes give another one is damaged.
func (b Binding) Sum(e Entry, generation uint64, bytes []byte) uint32 {
	var said [20]byte
	order.PutUint32(said[0:], uint32(e.ID))
	order.PutUint32(said[4:], e.Length)
	order.PutUint64(said[8:], generation)
	order.PutUint32(said[16:], e.At)
	// By hand, because crc32.Update would move these few bytes to the heap, for every sample.
	crc := ^b.crc
	for _, x := range said {
		crc = castagnoli[byte(crc)^x] ^ crc>>8
	}
	return extend(^crc, bytes)
}

// extend is crc32.Update for bytes that the device has just brought, so that no cache has them. Of
// each block all lines are asked for at once, while the block before is summed: else the processor
// waits for memory most of the time.
func extend(crc uint32, bytes []byte) uint32 {
	for len(bytes) > Block {
		touch(bytes[Block:min(len(bytes), 2*Block)])
		crc = crc32.Update(crc, castagnoli, bytes[:Block])
		bytes = bytes[Block:]
	}
	return crc32.Update(crc, castagnoli, bytes)
}

// touch brings bytes into the processor's cache.
//
//go:noinline
func touch(bytes []byte) (all byte) {
	const line = 64
	for i := 0; i < len(bytes); i += line {
		all ^= bytes[i]
	}
	return all
}

// putRecord writes a record's header.
func (b Binding) putRecord(dst []byte, e Entry, generation uint64) {
	copy(dst, recordMagic)
	order.PutUint32(dst[4:], uint32(e.ID))
	order.PutUint32(dst[8:], e.Length)
	order.PutUint32(dst[12:], e.Sum)
	order.PutUint64(dst[16:], generation)
	order.PutUint32(dst[24:], e.At)
	order.PutUint32(dst[28:], crc32.Update(b.crc, castagnoli, dst[:28]))
}

// ParseRecord reads the header of a record, and the generation that it belongs to. Whether its
// bytes fit is for Sum to say.
func ParseRecord(b Binding, header []byte) (Entry, uint64, error) {
	if len(header) < RecordHeader || string(header[:4]) != recordMagic ||
		order.Uint32(header[28:]) != crc32.Update(b.crc, castagnoli, header[:28]) {
		return Entry{}, 0, ErrCorrupt
	}
	return recordEntry(header), order.Uint64(header[16:]), nil
}

// recordEntry is what a record's header says, whether it fits its check or not.
func recordEntry(header []byte) Entry {
	return Entry{
		ID:     sample.ID(order.Uint32(header[4:])),
		Length: order.Uint32(header[8:]),
		Sum:    order.Uint32(header[12:]),
		At:     order.Uint32(header[24:]),
	}
}

// place returns where a record of so many bytes goes in a slot that is filled up to used, and where
// it ends.
func place(used, length uint32) (at, end uint64) {
	at = uint64(used)
	if length >= DirectSize {
		at = ceil(at+RecordHeader, Block) - RecordHeader
	}
	return at, ceil(at+RecordHeader+uint64(length), recordAlign)
}

// End is where the record ends in its slot.
func (e Entry) End() uint64 {
	return ceil(uint64(e.At)+RecordHeader+uint64(e.Length), recordAlign)
}

// placed tells whether a record may stand where the entry says, in a slot whose records reach from
// used to limit.
func (e Entry) placed(used, limit uint64) bool {
	aligned := e.At%recordAlign == 0
	if e.Length >= DirectSize {
		aligned = (e.At+RecordHeader)%Block == 0
	}
	return aligned && uint64(e.At) >= used && e.End() <= limit
}
