package segment

import "belady/internal/core/sample"

// A Builder fills a buffer with one slot, from its begin. Whole blocks below Used are as they will
// stand in the file and may be written at any time. Nothing may be added to a block that was
// synced, for which there is Skip.
type Builder struct {
	binding Binding
	tag     Tag
	buf     []byte
	entries []Entry
	used    uint32 // records end here; what is behind may be anything
}

// Begin starts a slot in buf, which is the slot's size and may hold anything. The builder keeps it.
func (s *Builder) Begin(b Binding, t Tag, buf []byte) {
	*s = Builder{binding: b, tag: t, buf: buf, entries: s.entries[:0]}
	s.used = SlotHeader
	b.putSlot(buf, t)
}

// Add appends a record with a copy of bytes, or returns false when the slot has no room for it.
func (s *Builder) Add(id sample.ID, bytes []byte) (Entry, bool) {
	at, end := place(s.used, uint32(len(bytes)))
	if end > recordsEnd(uint32(len(s.buf)), len(s.entries)+1) {
		return Entry{}, false
	}
	e := Entry{ID: id, At: uint32(at), Length: uint32(len(bytes))}
	e.Sum = s.binding.Sum(e, s.tag.Generation, bytes)
	clear(s.buf[s.used:at])
	clear(s.buf[at+RecordHeader+uint64(e.Length) : end])
	s.binding.putRecord(s.buf[at:], e, s.tag.Generation)
	copy(s.buf[at+RecordHeader:], bytes)
	s.used = uint32(end)
	s.entries = append(s.entries, e)
	return e, true
}

// Skip lets the next record begin in a new block, because what was added up to now was synced.
func (s *Builder) Skip() {
	to := ceil(s.used, Block)
	clear(s.buf[s.used:to])
	s.used = to
}

// Used is where the records end.
func (s *Builder) Used() uint32 { return s.used }

// Tag is what the slot was begun with.
func (s *Builder) Tag() Tag { return s.tag }

// Entries are the records that were added, valid until the next Begin.
func (s *Builder) Entries() []Entry { return s.entries }

// Close writes the footer. The whole buffer is then as it stands in the file.
func (s *Builder) Close(durable uint64) {
	at := len(s.buf) - Trailer - entryBytes*len(s.entries)
	clear(s.buf[s.used:at])
	footer := s.buf[at:]
	for i, e := range s.entries {
		e.put(footer[entryBytes*i:])
	}
	t := footer[entryBytes*len(s.entries):]
	clear(t)
	copy(t, trailerMagic)
	order.PutUint64(t[8:], s.tag.Generation)
	order.PutUint64(t[16:], durable)
	order.PutUint32(t[24:], uint32(len(s.entries)))
	order.PutUint32(t[28:], s.used)
	order.PutUint64(t[32:], s.tag.Order)
	order.PutUint32(t[40:], s.tag.Epoch)
	order.PutUint32(t[44:], s.tag.Bucket)
	order.PutUint32(t[checkAt:],
		checksum(s.binding.crc, footer, entryBytes*len(s.entries)+checkAt))
}
