package corruption

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/tier"
)

// forger makes checks fit that changed bytes do not, as docs/format/log.md says and apart from
// package segment: opening must bear what lies behind a check, whatever it says. It never makes a
// record's sum fit, which is what keeps wrong bytes out.
type forger struct {
	b      []byte
	header segment.Header
}

// What a forger makes fit.
const (
	forgeHeaders = 1 << iota
	forgeSlots
	forgeFooters
	forgeRecords
)

var (
	little     = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// binding is the CRC that everything of a slot goes on from.
func (f *forger) binding(slot uint32) uint32 {
	bound := append([]byte(nil), f.header.Content[:]...)
	bound = little.AppendUint64(bound, f.header.ID)
	return crc32.Checksum(little.AppendUint32(bound, slot), castagnoli)
}

// check writes the CRC of b, goes on from crc, into the four bytes at the given offset.
func check(crc uint32, b []byte, at int) {
	clear(b[at : at+4])
	little.PutUint32(b[at:], crc32.Update(crc, castagnoli, b))
}

func (f *forger) forge(what uint8) {
	if what&forgeHeaders != 0 {
		check(0, f.b[:segment.HeaderBytes], 12)
		check(0, f.b[len(f.b)-segment.HeaderBytes:], 12)
	}
	for number := range f.header.Slots {
		crc := f.binding(number)
		slot := f.b[f.header.SlotAt(number):f.header.SlotAt(number+1)]
		if what&forgeSlots != 0 {
			check(crc, slot[:segment.SlotHeader], 4)
		}
		trailer := len(slot) - segment.Trailer
		if n := int(little.Uint32(slot[trailer+24:])); what&forgeFooters != 0 && n <= trailer/16 {
			check(crc, slot[trailer-16*n:], 16*n+4)
		}
		for at := segment.SlotHeader; what&forgeRecords != 0 && at < trailer; at += 16 {
			if string(slot[at:at+4]) == "BREC" {
				check(crc, slot[at:at+segment.RecordHeader], 28)
			}
		}
	}
}

// FuzzOpen opens a log of which some bytes were changed, reads it, writes what is missing again,
// and opens it once more: right bytes or none, no panic, and an end.
func FuzzOpen(f *testing.F) {
	logs := []*damaged{{layout: tier.Static, slot: 1 << 16}, {layout: tier.Carry, slot: 1 << 16}}
	for which, d := range logs {
		for id := range 24 {
			d.sizes = append(d.sizes, []uint32{40, 700, 3000, 20000}[id%4])
		}
		d.fill(f)
		for _, parts := range d.regions {
			p := parts[0]
			for i := range 16 { // each field of it
				at := p.from + i*(p.to-p.from)/16
				f.Add(uint8(which), edit(at, 0xff), uint8(forgeHeaders|forgeSlots|forgeFooters|forgeRecords))
				f.Add(uint8(which), edit(at, 1), uint8(0))
			}
		}
	}
	f.Add(uint8(0), []byte(nil), uint8(forgeHeaders|forgeSlots|forgeFooters|forgeRecords))
	f.Add(uint8(1), []byte(nil), uint8(forgeHeaders|forgeSlots|forgeFooters|forgeRecords))
	f.Fuzz(func(t *testing.T, which uint8, edits []byte, what uint8) {
		untouched := len(edits) < 4
		d := logs[int(which)%len(logs)]
		now := d.whole.clone()
		b := now[now.names()[0]]
		h, err := segment.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(edits) >= 4; edits = edits[4:] {
			b[(int(edits[0])|int(edits[1])<<8|int(edits[2])<<16)%len(b)] = edits[3]
		}
		(&forger{b, h}).forge(what)
		disk := now.onto(t)
		r := rand.New(rand.NewPCG(1, 1))
		for range 2 {
			log, done := d.open(t, disk)
			d.follow(t, log, epochs+1)
			if lost, _ := d.read(t, r, log); len(lost) > 0 && untouched {
				t.Errorf("%d samples are lost, and nothing was changed", len(lost))
			}
			for id, bytes := range d.bytes { // a log that believes what is forged may be full
				_ = log.Append(epochs, sample.ID(id), bytes)
			}
			d.read(t, r, log)
			done()
		}
	})
}

// edit sets one byte.
func edit(at int, to byte) []byte {
	return []byte{byte(at), byte(at >> 8), byte(at >> 16), to}
}
