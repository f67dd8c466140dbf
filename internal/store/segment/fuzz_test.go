package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// Fuzzing changes a few bytes of what is whole, and then makes checks fit again that would else end
// every parse: what lies behind a check must bear any bytes, too. A record's own sum is never made
// to fit: it is what keeps wrong bytes out, and what this shows.

// editBytes is what one change takes of a fuzzer's bytes: where (3), and to what (1).
const editBytes = 4

// edited is a copy of b with changes.
func edited(b, edits []byte) []byte {
	b = bytes.Clone(b)
	for ; len(edits) >= editBytes && len(b) > 0; edits = edits[editBytes:] {
		at := int(edits[0]) | int(edits[1])<<8 | int(edits[2])<<16
		b[at%len(b)] = edits[3]
	}
	return b
}

// edit is one change, for seeds.
func edit(at int, to ...byte) (edits []byte) {
	for i, x := range to {
		edits = append(edits, byte(at+i), byte((at+i)>>8), byte((at+i)>>16), x)
	}
	return edits
}

func word(x uint32) []byte { return binary.LittleEndian.AppendUint32(nil, x) }

func FuzzParseHeader(f *testing.F) {
	h := header()
	whole := h.Append(nil)
	for _, at := range []int{0, headerVersion, headerID, headerSlotBytes, headerSlots, headerSamples,
		headerDurable, 80, HeaderBytes - 1} {
		f.Add(edit(at, 0xff), uint16(HeaderBytes), true)
		f.Add(edit(at, 0), uint16(HeaderBytes), false)
	}
	f.Add(edit(headerSlots, word(maxSlots)...), uint16(HeaderBytes), true)
	f.Add([]byte(nil), uint16(7), true)
	f.Fuzz(func(t *testing.T, edits []byte, length uint16, seal bool) {
		b := edited(whole, edits)[:min(int(length), HeaderBytes)]
		if seal && len(b) == HeaderBytes {
			order.PutUint32(b[headerCheck:], checksum(0, b, headerCheck))
		}
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if again := h.Append(nil); !bytes.Equal(again[:80], b[:80]) && blank(b[80:]) {
			t.Errorf("read and written again, a header changed: %+v", h)
		}
		last := h.SlotAt(h.Slots)
		if last < HeaderBytes || last >= 1<<40 || h.FileBytes() != last+HeaderBytes {
			t.Errorf("slots end at %d, outside of what an index holds: %+v", last, h)
		}
		if SampleMax(h.SlotBytes) >= h.SlotBytes {
			t.Errorf("a slot of %d bytes takes a sample of %d", h.SlotBytes, SampleMax(h.SlotBytes))
		}
	})
}

func FuzzParseSlot(f *testing.F) {
	s := build(header(), Tag{Generation: 5, Order: 6, Epoch: 7, Bucket: 8}, []int{10}, 1)
	for _, at := range []int{0, checkAt, 8, 16, 24, 28, 32, SlotHeader - 1} {
		f.Add(edit(at, 0xff), uint8(SlotHeader), true)
		f.Add(edit(at, 0), uint8(SlotHeader), false)
	}
	f.Fuzz(func(t *testing.T, edits []byte, length uint8, seal bool) {
		b := edited(s.buf[:SlotHeader], edits)
		if seal {
			order.PutUint32(b[checkAt:], checksum(s.binding.crc, b, checkAt))
		}
		b = b[:min(int(length), SlotHeader)]
		tag, err := ParseSlot(s.binding, b)
		if err != nil {
			return
		}
		again := make([]byte, SlotHeader)
		s.binding.putSlot(again, tag)
		if blank(b[32:]) && !bytes.Equal(again, b) {
			t.Errorf("read and written again, a slot's header changed: %+v", tag)
		}
		if _, err := ParseSlot(bind(0), b); err == nil {
			t.Error("it is read as another slot's")
		}
	})
}

// sealFooter makes a changed footer's check right again.
func sealFooter(b Binding, tail []byte) {
	t := tail[len(tail)-Trailer:]
	if n := int(order.Uint32(t[24:])); n <= (len(tail)-Trailer)/entryBytes {
		tail := tail[len(tail)-Trailer-entryBytes*n:]
		order.PutUint32(t[checkAt:], checksum(b.crc, tail, entryBytes*n+checkAt))
	}
}

func FuzzParseFooter(f *testing.F) {
	s := build(header(), Tag{Generation: 5}, []int{10, 70000, 30}, 1)
	const whole = 4096
	entries := whole - Trailer - 3*entryBytes
	for _, at := range []int{0, 4, 8, 12, 20, 40, whole - Trailer - entries, // of the entries
		3*entryBytes + 0, 3*entryBytes + 8, 3*entryBytes + 16, 3*entryBytes + 24, 3*entryBytes + 28} {
		for _, to := range []byte{0, 1, 0x80, 0xff} {
			f.Add(edit(entries+at, to), uint16(whole), true)
		}
	}
	f.Add(edit(whole-Trailer+24, word(MaxSlot)...), uint16(whole), true)
	f.Add(edit(entries+4, word(1<<32-16)...), uint16(whole), true)
	f.Add(edit(entries+8, word(1<<32-1)...), uint16(whole), true)
	f.Add([]byte(nil), uint16(Trailer), true)
	f.Fuzz(func(t *testing.T, edits []byte, length uint16, seal bool) {
		tail := edited(s.buf[len(s.buf)-whole:], edits)
		if seal {
			sealFooter(s.binding, tail)
		}
		tail = tail[whole-min(int(length), whole):]
		footer, err := ParseFooter(s.binding, header().SlotBytes, tail)
		var short ErrShort
		if errors.As(err, &short) && (short.Want <= len(tail) || short.Want > len(s.buf)) {
			t.Errorf("of %d bytes it wants %d", len(tail), short.Want)
		}
		if err != nil {
			return
		}
		used := uint64(SlotHeader)
		for _, e := range footer.Entries {
			if uint64(e.At) < used || e.End() > uint64(footer.Used) {
				t.Fatalf("%+v overlaps what is before it, or the end", e)
			}
			used = e.End()
		}
		if used > recordsEnd(header().SlotBytes, len(footer.Entries)) || footer.Generation == 0 {
			t.Fatalf("records up to %d in a slot of %d bytes: %+v", used, header().SlotBytes, footer)
		}
	})
}

// sealRecords makes the check of everything right that may be meant for a record's header.
func sealRecords(b Binding, slot []byte) {
	for at := SlotHeader; at+RecordHeader <= len(slot); at += recordAlign {
		if h := slot[at:][:RecordHeader]; string(h[:4]) == recordMagic {
			e := recordEntry(h)
			b.putRecord(h, e, order.Uint64(h[16:]))
		}
	}
}

func FuzzScan(f *testing.F) {
	h := header()
	h.SlotBytes = 128 << 10
	s := build(h, Tag{Generation: 5}, []int{10, 300, 0, 70000, 30, 2000}, 1)
	for _, e := range s.footer.Entries {
		at := int(e.At)
		f.Add(edit(at+4, 0xff), true, false)                 // another sample
		f.Add(edit(at+8, word(1<<32-1)...), true, false)     // longer than all
		f.Add(edit(at+8, word(e.Length+16)...), true, false) // over the next one
		f.Add(edit(at+16, 6), true, true)                    // another life
		f.Add(edit(at+24, 0xf0), true, false)                // elsewhere
		f.Add(edit(at+RecordHeader, 0xff), false, false)     // its bytes
	}
	f.Add(edit(8, 6), false, true)
	f.Add(edit(0, 0), false, false)
	f.Fuzz(func(t *testing.T, edits []byte, sealedRecords, sealedSlot bool) {
		slot := edited(s.buf[:80<<10], edits) // all records are below
		if sealedRecords {
			sealRecords(s.binding, slot)
		}
		if sealedSlot {
			order.PutUint32(slot[checkAt:], checksum(s.binding.crc, slot[:SlotHeader], checkAt))
		}
		var sound []Entry
		used := uint64(SlotHeader)
		Scan(s.binding, slot, func(e Entry, ok bool) {
			if uint64(e.At) < used || e.End() > uint64(len(slot)) {
				t.Fatalf("%+v overlaps what is before it, or the end", e)
			}
			used = e.End()
			if ok {
				sound = append(sound, e)
			}
		})
		for _, e := range sound {
			if !slices.Contains(s.footer.Entries, e) || !same(slot, s.buf, e) {
				t.Errorf("%+v is said to be sound, and was never written so", e)
			}
		}
		if sealedRecords || !bytes.Equal(slot[:SlotHeader], s.buf[:SlotHeader]) {
			return // what is forged may hide what is whole
		}
		for _, e := range s.footer.Entries {
			head := slot[e.At:][:RecordHeader]
			if bytes.Equal(head, s.buf[e.At:][:RecordHeader]) && same(slot, s.buf, e) &&
				!slices.Contains(sound, e) {
				t.Errorf("%+v is whole, and was not found", e)
			}
		}
	})
}

// same tells whether two slots have the same bytes of a sample.
func same(a, b []byte, e Entry) bool {
	from := e.At + RecordHeader
	return bytes.Equal(a[from:][:e.Length], b[from:][:e.Length])
}
