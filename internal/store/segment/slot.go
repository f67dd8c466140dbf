package segment

import "belady/internal/core/sample"

const (
	// SlotHeader is what stands at a slot's begin, Trailer at its end.
	SlotHeader = 64
	Trailer    = 64

	slotMagic    = "BSLT"
	trailerMagic = "BFTR"
	checkAt      = 4 // of the check, in both
)

// recordsEnd is where the records of a slot with n entries end at the latest. No block holds both
// records and footer, so that closing a slot never writes again what was synced.
func recordsEnd(slotBytes uint32, n int) uint64 {
	return (uint64(slotBytes) - Trailer - entryBytes*uint64(n)) / Block * Block
}

// SampleMax is the largest sample that a slot of this size takes.
func SampleMax(slotBytes uint32) uint32 {
	room := uint32(recordsEnd(slotBytes, 1))
	if small := room - SlotHeader - RecordHeader; small < DirectSize {
		return small
	}
	return room - Block
}

// FooterBytes is what must be read of a slot's end to have a footer of n entries, in whole blocks.
func FooterBytes(n int) int { return ceil(Trailer+entryBytes*n, Block) }

func (b Binding) putSlot(dst []byte, t Tag) {
	clear(dst[:SlotHeader])
	copy(dst, slotMagic)
	order.PutUint64(dst[8:], t.Generation)
	order.PutUint64(dst[16:], t.Order)
	order.PutUint32(dst[24:], t.Epoch)
	order.PutUint32(dst[28:], t.Bucket)
	order.PutUint32(dst[checkAt:], checksum(b.crc, dst[:SlotHeader], checkAt))
}

// ParseSlot reads the header at a slot's begin: ErrBlank, ErrCorrupt.
func ParseSlot(b Binding, slot []byte) (Tag, error) {
	if len(slot) < SlotHeader {
		return Tag{}, ErrCorrupt
	}
	h := slot[:SlotHeader]
	if blank(h) {
		return Tag{}, ErrBlank
	}
	t := Tag{
		Generation: order.Uint64(h[8:]),
		Order:      order.Uint64(h[16:]),
		Epoch:      order.Uint32(h[24:]),
		Bucket:     order.Uint32(h[28:]),
	}
	if string(h[:4]) != slotMagic || t.Generation == 0 ||
		order.Uint32(h[checkAt:]) != checksum(b.crc, h, checkAt) {
		return Tag{}, ErrCorrupt
	}
	return t, nil
}

// ParseFooter reads a footer from the last bytes of a slot: ErrBlank if none was written,
// ErrCorrupt, or an ErrShort that says how many of the last bytes it takes.
func ParseFooter(b Binding, slotBytes uint32, tail []byte) (Footer, error) {
	if len(tail) < Trailer || slotBytes < MinSlot || slotBytes > MaxSlot {
		return Footer{}, ErrCorrupt
	}
	t := tail[len(tail)-Trailer:]
	if blank(t) {
		return Footer{}, ErrBlank
	}
	n := int(order.Uint32(t[24:]))
	if string(t[:4]) != trailerMagic || n > int(slotBytes-SlotHeader-Trailer)/entryBytes {
		return Footer{}, ErrCorrupt
	}
	whole := Trailer + entryBytes*n
	if whole > len(tail) {
		return Footer{}, ErrShort{Want: FooterBytes(n)}
	}
	tail = tail[len(tail)-whole:]
	if order.Uint32(t[checkAt:]) != checksum(b.crc, tail, entryBytes*n+checkAt) {
		return Footer{}, ErrCorrupt
	}
	f := Footer{
		Tag: Tag{
			Generation: order.Uint64(t[8:]),
			Order:      order.Uint64(t[32:]),
			Epoch:      order.Uint32(t[40:]),
			Bucket:     order.Uint32(t[44:]),
		},
		Durable: order.Uint64(t[16:]),
		Used:    order.Uint32(t[28:]),
		Entries: make([]Entry, n),
	}
	used := uint64(SlotHeader)
	for i := range f.Entries {
		e := parseEntry(tail[entryBytes*i:])
		if !e.placed(used, uint64(f.Used)) {
			return Footer{}, ErrCorrupt
		}
		f.Entries[i], used = e, e.End()
	}
	if f.Generation == 0 || uint64(f.Used) > recordsEnd(slotBytes, n) {
		return Footer{}, ErrCorrupt
	}
	return f, nil
}

func parseEntry(b []byte) Entry {
	return Entry{
		ID:     sample.ID(order.Uint32(b)),
		At:     order.Uint32(b[4:]),
		Length: order.Uint32(b[8:]),
		Sum:    order.Uint32(b[12:]),
	}
}

func (e Entry) put(dst []byte) {
	order.PutUint32(dst, uint32(e.ID))
	order.PutUint32(dst[4:], e.At)
	order.PutUint32(dst[8:], e.Length)
	order.PutUint32(dst[12:], e.Sum)
}

// Scan finds the records of a slot without its footer, and what the slot was begun for (generation
// 0: nothing). A record of another generation is of another life of the slot and is passed over;
// one whose header fits but whose bytes do not is found unsound.
func Scan(b Binding, slot []byte, found func(e Entry, sound bool)) Tag {
	t, _ := ParseSlot(b, slot)
	for at := uint64(SlotHeader); at+RecordHeader <= uint64(len(slot)); {
		e, generation, err := ParseRecord(b, slot[at:])
		ours := err == nil && uint64(e.At) == at && e.placed(at, uint64(len(slot)))
		if ours && t.Generation == 0 {
			t.Generation = generation // its header is damaged
		}
		if !ours || generation != t.Generation {
			at += recordAlign
			continue
		}
		bytes := slot[at+RecordHeader:][:e.Length]
		found(e, b.Sum(e, generation, bytes) == e.Sum)
		at = e.End()
	}
	return t
}
