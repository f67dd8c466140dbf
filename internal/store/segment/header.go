package segment

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"belady/internal/core/sample"
)

var (
	order      = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// HeaderBytes is what each of a segment's two headers takes.
const HeaderBytes = Block

const segmentMagic = "BELADYLG"

// Offsets of the fields of a header.
const (
	headerVersion   = 8
	headerCheck     = 12
	headerContent   = 16
	headerID        = 48
	headerSlotBytes = 56
	headerSlots     = 60
	headerSamples   = 64
	headerDurable   = 72
)

// Append appends the header as it stands in the file, HeaderBytes long.
func (h *Header) Append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, make([]byte, HeaderBytes)...)
	b := dst[from:]
	copy(b, segmentMagic)
	order.PutUint32(b[headerVersion:], Version)
	copy(b[headerContent:], h.Content[:])
	order.PutUint64(b[headerID:], h.ID)
	order.PutUint32(b[headerSlotBytes:], h.SlotBytes)
	order.PutUint32(b[headerSlots:], h.Slots)
	order.PutUint64(b[headerSamples:], h.Samples)
	order.PutUint64(b[headerDurable:], h.Durable)
	order.PutUint32(b[headerCheck:], checksum(0, b, headerCheck))
	return dst
}

// ParseHeader reads one of a segment's headers: ErrBlank, ErrForeign, ErrVersion, ErrCorrupt.
func ParseHeader(b []byte) (Header, error) {
	if blank(b) {
		return Header{}, ErrBlank
	}
	if len(b) < HeaderBytes || string(b[:len(segmentMagic)]) != segmentMagic {
		return Header{}, ErrForeign
	}
	if order.Uint32(b[headerVersion:]) != Version {
		return Header{}, ErrVersion // before the check: another version may have it elsewhere
	}
	b = b[:HeaderBytes]
	h := Header{
		Content:   [32]byte(b[headerContent:]),
		ID:        order.Uint64(b[headerID:]),
		SlotBytes: order.Uint32(b[headerSlotBytes:]),
		Slots:     order.Uint32(b[headerSlots:]),
		Samples:   order.Uint64(b[headerSamples:]),
		Durable:   order.Uint64(b[headerDurable:]),
	}
	if order.Uint32(b[headerCheck:]) != checksum(0, b, headerCheck) || !h.valid() {
		return Header{}, ErrCorrupt
	}
	return h, nil
}

// maxSlots keeps a segment's offsets below 2^40, which is what an index has for them.
const maxSlots = 1<<40/MaxSlot - 1

func (h *Header) valid() bool {
	return h.ID != 0 && h.SlotBytes >= MinSlot && h.SlotBytes <= MaxSlot &&
		bits.OnesCount32(h.SlotBytes) == 1 && h.Slots > 0 && h.Slots <= maxSlots &&
		h.Samples <= sample.MaxCount
}

// FileBytes is the size of the whole segment.
func (h *Header) FileBytes() int64 { return h.SlotAt(h.Slots) + HeaderBytes }

// SlotAt is where a slot begins in the file. That of Slots is where the second header begins.
func (h *Header) SlotAt(slot uint32) int64 {
	return HeaderBytes + int64(slot)*int64(h.SlotBytes)
}

// A Binding ties what is written in a slot to that slot, so that a block found elsewhere fits no
// checksum. It is the state of a CRC over what is not stored, since a reader knows it.
type Binding struct{ crc uint32 }

// Bind returns the binding of one slot.
func (h *Header) Bind(slot uint32) Binding {
	var b [44]byte
	copy(b[:], h.Content[:])
	order.PutUint64(b[32:], h.ID)
	order.PutUint32(b[40:], slot)
	return Binding{crc32.Checksum(b[:], castagnoli)}
}

// checksum continues crc over b, its four bytes at the given offset taken as zero.
func checksum(crc uint32, b []byte, zero int) uint32 {
	crc = crc32.Update(crc, castagnoli, b[:zero])
	crc = crc32.Update(crc, castagnoli, []byte{0, 0, 0, 0})
	return crc32.Update(crc, castagnoli, b[zero+4:])
}

func blank(b []byte) bool {
	for len(b) >= 8 {
		if order.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

func ceil[N int | uint32 | uint64](n, to N) N { return (n + to - 1) / to * to }
