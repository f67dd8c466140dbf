package segment

import (
	"bytes"
	"testing"
)

func FuzzParseHeader(f *testing.F) {
	h := header()
	f.Add(h.Append(nil))
	f.Add(make([]byte, HeaderBytes))
	f.Add([]byte(segmentMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err == nil && !bytes.Equal(h.Append(nil), b[:HeaderBytes]) {
			t.Errorf("read and written again, a header changed: %+v", h)
		}
	})
}

// sealed makes a damaged footer's check right again, so that what lies behind the check is reached.
func sealed(b Binding, tail []byte) []byte {
	tail = bytes.Clone(tail)
	if len(tail) < Trailer {
		return tail
	}
	t := tail[len(tail)-Trailer:]
	copy(t, trailerMagic)
	if n := int(order.Uint32(t[24:])); n <= (len(tail)-Trailer)/entryBytes {
		tail := tail[len(tail)-Trailer-entryBytes*n:]
		order.PutUint32(t[checkAt:], checksum(b.crc, tail, entryBytes*n+checkAt))
	}
	return tail
}

func FuzzParseFooter(f *testing.F) {
	s := build(header(), Tag{Generation: 5}, []int{10, 70000, 30}, 1)
	f.Add(s.buf[len(s.buf)-Trailer-3*entryBytes:], false)
	f.Add(s.buf[len(s.buf)-Trailer-3*entryBytes:], true)
	f.Add(make([]byte, Trailer), true)
	f.Fuzz(func(t *testing.T, tail []byte, seal bool) {
		if seal {
			tail = sealed(s.binding, tail)
		}
		footer, err := ParseFooter(s.binding, header().SlotBytes, tail)
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
		if used > uint64(header().SlotBytes) {
			t.Fatalf("records up to %d in a slot of %d bytes", used, header().SlotBytes)
		}
	})
}

func FuzzScan(f *testing.F) {
	s := build(header(), Tag{Generation: 5}, []int{10, 300, 30}, 1)
	f.Add(s.buf[:1024], uint16(64), uint32(0))
	f.Add(s.buf[:1024], uint16(72), uint32(1<<31))
	f.Fuzz(func(t *testing.T, slot []byte, at uint16, word uint32) {
		if int(at)+RecordHeader <= len(slot) { // a header that fits its check, saying anything
			e, generation, _ := ParseRecord(s.binding, slot[at:])
			e.Length ^= word
			s.binding.putRecord(slot[at:], e, generation)
		}
		Scan(s.binding, slot, func(e Entry, sound bool) {
			bytes := slot[e.At+RecordHeader:][:e.Length]
			tag, err := ParseSlot(s.binding, slot)
			if sound && err == nil && s.binding.Sum(e, tag.Generation, bytes) != e.Sum {
				t.Errorf("%+v is not sound", e)
			}
		})
	})
}
