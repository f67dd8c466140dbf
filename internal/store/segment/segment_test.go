package segment

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belady/internal/core/sample"
)

var update = flag.Bool("update", false, "write the golden segment anew")

func header() Header {
	h := Header{ID: 0x1122334455667788, SlotBytes: 256 << 10, Slots: 2, Samples: 1000, Durable: 41}
	for i := range h.Content {
		h.Content[i] = byte(i)
	}
	return h
}

func bind(slot uint32) Binding {
	h := header()
	return h.Bind(slot)
}

// content is what sample id holds in these tests.
func content(id sample.ID, length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = byte(i*7) ^ byte(id) ^ byte(i>>8)
	}
	return b
}

type built struct {
	binding Binding
	buf     []byte
	footer  Footer
}

// build fills slot 1 of a segment with samples of these lengths; a length below zero is a Skip.
func build(h Header, tag Tag, lengths []int, durable uint64) built {
	out := built{binding: h.Bind(1), buf: bytes.Repeat([]byte{0xa5}, int(h.SlotBytes))}
	var s Builder
	s.Begin(out.binding, tag, out.buf)
	for i, length := range lengths {
		if length < 0 {
			s.Skip()
			continue
		}
		if _, ok := s.Add(sample.ID(i), content(sample.ID(i), length)); !ok {
			break
		}
	}
	s.Close(durable)
	out.footer = Footer{Tag: tag, Durable: durable, Used: s.Used(), Entries: s.Entries()}
	return out
}

// TestGolden pins every byte of the format: when it fails, the version changes too.
func TestGolden(t *testing.T) {
	h := header()
	closed := build(h, Tag{Generation: 7, Order: 0xfeed, Epoch: 3, Bucket: 2},
		[]int{3, 0, 100, -1, 5000, 70000, 16}, 6)
	open := make([]byte, h.SlotBytes)
	var s Builder
	s.Begin(h.Bind(0), Tag{Generation: 8}, open)
	for id := range sample.ID(3) {
		s.Add(id, content(id, 1000))
	}
	segment := slices.Concat(h.Append(nil), open, closed.buf, h.Append(nil))
	if int64(len(segment)) != h.FileBytes() {
		t.Fatalf("the segment has %d bytes, FileBytes says %d", len(segment), h.FileBytes())
	}
	const golden = "testdata/v1.seg.gz"
	if *update {
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		w.Write(segment)
		w.Close()
		if err := os.WriteFile(golden, packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	want, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != len(segment) {
		t.Fatalf("%d bytes, the golden segment has %d", len(segment), len(want))
	}
	for i := range want {
		if want[i] != segment[i] {
			t.Fatalf("byte %d is %#x, in the golden segment %#x", i, segment[i], want[i])
		}
	}
	if Version != 1 {
		t.Error("the version changed: so must the name of the golden segment")
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Header{
			ID:        rapid.Uint64Min(1).Draw(t, "id"),
			SlotBytes: 1 << rapid.Uint32Range(16, 26).Draw(t, "slot"),
			Slots:     rapid.Uint32Range(1, maxSlots).Draw(t, "slots"),
			Samples:   rapid.Uint64Range(0, sample.MaxCount).Draw(t, "samples"),
			Durable:   rapid.Uint64().Draw(t, "durable"),
		}
		copy(h.Content[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "content"))
		b := h.Append([]byte("before"))[len("before"):]
		got, err := ParseHeader(b)
		if err != nil || got != h {
			t.Fatalf("%+v became %+v, %v", h, got, err)
		}
		bit := rapid.IntRange(0, 8*HeaderBytes-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		if got, err := ParseHeader(b); err == nil {
			t.Fatalf("bit %d flipped, and still: %+v", bit, got)
		}
	})
}

func TestParseHeaderRefuses(t *testing.T) {
	change := func(f func(h *Header)) []byte {
		h := header()
		f(&h)
		return h.Append(nil)
	}
	version := change(func(*Header) {})
	version[headerVersion]++
	for _, c := range []struct {
		what string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrBlank},
		{"zeros", make([]byte, HeaderBytes), ErrBlank},
		{"few bytes", []byte(segmentMagic), ErrForeign},
		{"another file", bytes.Repeat([]byte("photo"), 1000), ErrForeign},
		{"another version", version, ErrVersion},
		{"no id", change(func(h *Header) { h.ID = 0 }), ErrCorrupt},
		{"no slots", change(func(h *Header) { h.Slots = 0 }), ErrCorrupt},
		{"too many slots", change(func(h *Header) { h.Slots = maxSlots + 1 }), ErrCorrupt},
		{"crooked slots", change(func(h *Header) { h.SlotBytes = 300000 }), ErrCorrupt},
		{"tiny slots", change(func(h *Header) { h.SlotBytes = 4096 }), ErrCorrupt},
		{"huge slots", change(func(h *Header) { h.SlotBytes = 1 << 27 }), ErrCorrupt},
		{"too many samples", change(func(h *Header) { h.Samples = 1 << 32 }), ErrCorrupt},
	} {
		if _, err := ParseHeader(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, not %v", c.what, err, c.want)
		}
	}
}

// lengths draws what goes into one slot: small samples, those around the direct size, and skips.
func lengths(t *rapid.T) []int {
	return rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(-1, 20000),
		rapid.IntRange(DirectSize-20, DirectSize+5000), rapid.Just(-1)), 0, 40).Draw(t, "lengths")
}

func drawTag(t *rapid.T) Tag {
	return Tag{rapid.Uint64Min(1).Draw(t, "generation"), rapid.Uint64().Draw(t, "order"),
		rapid.Uint32().Draw(t, "epoch"), rapid.Uint32().Draw(t, "bucket")}
}

func scan(b Binding, slot []byte) (sound, unsound []Entry, tag Tag) {
	tag = Scan(b, slot, func(e Entry, ok bool) {
		if ok {
			sound = append(sound, e)
		} else {
			unsound = append(unsound, e)
		}
	})
	return sound, unsound, tag
}

// TestSlotRoundTrip: what was added is what the footer says and what a scan finds, byte for byte.
func TestSlotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := build(header(), drawTag(t), lengths(t), 9)
		n := len(s.footer.Entries)
		got, err := ParseFooter(s.binding, header().SlotBytes, s.buf[len(s.buf)-FooterBytes(n):])
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s.footer.Entries, got.Entries); n > 0 && d != "" {
			t.Fatal(d)
		}
		if got.Tag != s.footer.Tag || got.Used != s.footer.Used || got.Durable != 9 {
			t.Fatalf("%+v became %+v", s.footer, got)
		}
		if tag, err := ParseSlot(s.binding, s.buf); err != nil || tag != s.footer.Tag {
			t.Fatalf("slot header %+v, %v", tag, err)
		}
		sound, unsound, tag := scan(s.binding, s.buf)
		if tag != s.footer.Tag || len(unsound) > 0 || !slices.Equal(sound, s.footer.Entries) {
			t.Fatalf("scan found %v and %v in %+v", sound, unsound, tag)
		}
		for _, e := range got.Entries {
			b := s.buf[e.At+RecordHeader:][:e.Length]
			if !bytes.Equal(b, content(e.ID, int(e.Length))) {
				t.Fatalf("sample %d has other bytes", e.ID)
			}
			if s.binding.Sum(e, s.footer.Generation, b) != e.Sum {
				t.Fatalf("sample %d does not fit its sum", e.ID)
			}
		}
	})
}

// TestGapsAreZero: whatever the buffer held before, a slot's bytes depend on its records alone.
func TestGapsAreZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag, list := drawTag(t), lengths(t)
		a, b := build(header(), tag, list, 1), make([]byte, header().SlotBytes)
		var s Builder
		s.Begin(bind(1), tag, b)
		for i, length := range list {
			if length < 0 {
				s.Skip()
			} else if _, ok := s.Add(sample.ID(i), content(sample.ID(i), length)); !ok {
				break
			}
		}
		s.Close(1)
		if !bytes.Equal(a.buf, b) {
			t.Fatal("what the buffer held before shows")
		}
	})
}

// TestBlocksAreFinal: after a Skip no block that was written before is changed, footer included.
func TestBlocksAreFinal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		buf := make([]byte, header().SlotBytes)
		var s Builder
		s.Begin(bind(1), drawTag(t), buf)
		var synced []byte
		for i, length := range lengths(t) {
			if length < 0 {
				synced = slices.Clone(buf[:ceil(s.Used(), Block)])
				s.Skip()
			} else if _, ok := s.Add(sample.ID(i), content(sample.ID(i), length)); !ok {
				break
			}
		}
		s.Close(1)
		if !bytes.Equal(buf[:len(synced)], synced) {
			t.Fatal("a synced block was changed")
		}
	})
}

// TestFlippedBit: a slot with one bit flipped gives what was added, or less; never anything else.
func TestFlippedBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := build(header(), drawTag(t), lengths(t), 1)
		bit := rapid.IntRange(0, 8*len(s.buf)-1).Draw(t, "bit")
		if rapid.Bool().Draw(t, "among records") {
			bit = rapid.IntRange(0, 8*int(s.footer.Used)-1).Draw(t, "used bit")
		}
		s.buf[bit/8] ^= 1 << (bit % 8)
		n := len(s.footer.Entries)
		got, err := ParseFooter(s.binding, header().SlotBytes, s.buf)
		inFooter := bit/8 >= len(s.buf)-Trailer-entryBytes*n
		if (err != nil) != inFooter {
			t.Fatalf("bit %d of a slot with %d records: %v", bit, n, err)
		}
		if err == nil && !slices.Equal(got.Entries, s.footer.Entries) {
			t.Fatal("the footer says something else")
		}
		sound, _, _ := scan(s.binding, s.buf)
		for _, e := range sound {
			if !slices.Contains(s.footer.Entries, e) {
				t.Fatalf("scan found %+v, which was never added", e)
			}
		}
		if lost := n - len(sound); lost > 1 {
			t.Fatalf("one bit cost %d records", lost)
		}
	})
}

// TestElsewhere: a slot that lies where it was not written holds nothing.
func TestElsewhere(t *testing.T) {
	s := build(header(), Tag{Generation: 5}, []int{10, 20, 70000}, 1)
	other, content := header(), header()
	other.ID++
	content.Content[31]++
	for what, b := range map[string]Binding{"another slot": bind(0),
		"another segment": other.Bind(1), "another dataset": content.Bind(1)} {
		if _, err := ParseFooter(b, header().SlotBytes, s.buf); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: footer %v", what, err)
		}
		if sound, unsound, tag := scan(b, s.buf); len(sound)+len(unsound) > 0 || tag != (Tag{}) {
			t.Errorf("%s: scan found %v, %v in %+v", what, sound, unsound, tag)
		}
	}
}

// TestFormerLife: what a torn rewrite left of a slot's former generation is not taken for its own.
func TestFormerLife(t *testing.T) {
	old := build(header(), Tag{Generation: 5}, []int{3000, 3000, 3000, 3000, 3000, 3000}, 1)
	torn := build(header(), Tag{Generation: 6}, []int{3000, 3000, 3000, 3000, 3000, 3000}, 1)
	copy(torn.buf[2*Block:], old.buf[2*Block:])
	// The third record's header is new and the rest of its bytes old: they are the sample's all the
	// same. The fourth header is of the former life.
	sound, unsound, tag := scan(torn.binding, torn.buf)
	if tag.Generation != 6 || len(sound) != 3 || len(unsound) != 0 {
		t.Errorf("found %d sound, %d unsound in generation %d",
			len(sound), len(unsound), tag.Generation)
	}
	f, err := ParseFooter(torn.binding, header().SlotBytes, torn.buf)
	if err != nil || f.Generation != 5 {
		t.Errorf("the footer is of generation %d, %v", f.Generation, err)
	}
	clear(torn.buf[:SlotHeader]) // and now the slot's header is gone, too
	if sound, _, tag := scan(torn.binding, torn.buf); tag != (Tag{Generation: 6}) || len(sound) != 3 {
		t.Errorf("without header: %d sound in %+v", len(sound), tag)
	}
}

func TestBlankAndShort(t *testing.T) {
	h := header()
	empty := make([]byte, h.SlotBytes)
	if _, err := ParseFooter(h.Bind(1), h.SlotBytes, empty); err != ErrBlank {
		t.Errorf("an unused slot's footer: %v", err)
	}
	if _, err := ParseSlot(h.Bind(1), empty); err != ErrBlank {
		t.Errorf("an unused slot's header: %v", err)
	}
	s := build(h, Tag{Generation: 5}, make([]int, 1000), 1)
	var short ErrShort
	_, err := ParseFooter(s.binding, h.SlotBytes, s.buf[len(s.buf)-Block:])
	if !errors.As(err, &short) || short.Want != FooterBytes(1000) {
		t.Fatalf("%v, not ErrShort of %d", err, FooterBytes(1000))
	}
	f, err := ParseFooter(s.binding, h.SlotBytes, s.buf[len(s.buf)-short.Want:])
	if err != nil || len(f.Entries) != 1000 {
		t.Errorf("%d entries, %v", len(f.Entries), err)
	}
}

// TestSampleMax: that much fits an empty slot, and not a byte more.
func TestSampleMax(t *testing.T) {
	for w := uint32(MinSlot); w <= 4<<20; w *= 2 {
		h := header()
		h.SlotBytes = w
		most := int(SampleMax(w))
		if s := build(h, Tag{Generation: 1}, []int{most}, 0); len(s.footer.Entries) != 1 {
			t.Errorf("w = %d: a sample of %d does not fit", w, most)
		} else if _, err := ParseFooter(s.binding, w, s.buf); err != nil {
			t.Errorf("w = %d: %v", w, err)
		}
		if s := build(h, Tag{Generation: 1}, []int{most + 1}, 0); len(s.footer.Entries) != 0 {
			t.Errorf("w = %d: a sample of %d fits", w, most+1)
		}
	}
}
