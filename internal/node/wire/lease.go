package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"belady/internal/core/sample"
)

// Place is where a sample lies: a slab's index in the upper 16 bits, the offset in it below.
type Place uint64

const (
	offsetBits = 48
	maxOffset  = 1<<offsetBits - 1
)

// At is the place at this offset of this slab.
func At(slab uint16, offset uint64) Place {
	if offset > maxOffset {
		panic("wire: offset does not fit into a place")
	}
	return Place(slab)<<offsetBits | Place(offset)
}

// Slab is the slab's index.
func (p Place) Slab() uint16 { return uint16(p >> offsetBits) }

// Offset is the offset in the slab.
func (p Place) Offset() uint64 { return uint64(p) & maxOffset }

// Cause says what delayed a batch. ONLY APPEND.
type Cause uint8

const (
	// CauseNone: it was ready before it was wanted.
	CauseNone Cause = 0
	// CauseOrigin, CauseSSD, CausePeer: the last sample came from there.
	CauseOrigin Cause = 1
	CauseSSD    Cause = 2
	CausePeer   Cause = 3
	// CauseArena: staging was full; a consumer held its leases.
	CauseArena Cause = 4
	// CauseOrder: the order was not known yet (being computed, or a Window was missing).
	CauseOrder Cause = 5
	// CauseDecode: the daemon was decoding.
	CauseDecode Cause = 6
	// Causes is the number of causes this build can name.
	Causes = 7
)

var causeNames = [Causes]string{"none", "origin", "ssd", "peer", "arena", "order", "decode"}

// String names the cause as the document does.
func (c Cause) String() string {
	if c < Causes {
		return causeNames[c]
	}
	return fmt.Sprintf("cause-%d", uint8(c))
}

// Form says how a lease's samples lie.
type Form uint8

const (
	// FormScattered: each sample has its own place.
	FormScattered Form = 0
	// FormPacked: sample i lies at Base + i·Stride.
	FormPacked Form = 1
)

// Flags of a lease.
const (
	// LeaseLastOfEpoch: the rank's next batch is batch 0 of the next epoch.
	LeaseLastOfEpoch uint32 = 1 << 0
	// LeasePrivate: the bytes are a copy made for this lease, because too many leases are held.
	LeasePrivate uint32 = 1 << 1
)

// Lease is a lease's head: everything but the samples. Count, Bytes and Receipt are worked out by
// AppendLease.
type Lease struct {
	// Seq names the lease in Release. It is unique in the connection.
	Seq uint64
	// Epoch and Batch are the batch's number among this rank's, from the attach's position.
	Epoch, Batch uint32
	Cause        Cause
	Form         Form
	// Fields is k if each sample is k > 1 fields one after another, else 0 or 1.
	Fields uint16
	Flags  uint32
	Count  uint32
	// Stride and Base belong to FormPacked; 0 otherwise.
	Stride uint32
	// Bytes is the sum of the lengths.
	Bytes uint64
	// Receipt is receipt.Of(ids): what was delivered, to hold against what was due.
	Receipt uint64
	Base    Place
}

const leaseHead = 56

// MaxBatch is the largest batch a lease frame can carry with so many fields, in either form.
func MaxBatch(fields int) int {
	per := 16
	if fields > 1 {
		per += 4 * fields
	}
	return (MaxFromDaemon - leaseHead) / per
}

// AppendLease appends a lease of these samples: one id and length each, one place each if
// scattered (none if packed), l.Fields field lengths each if there is more than one. It reads
// neither Count, Bytes nor Receipt of l. Slices of unequal lengths are a defect and panic.
//
// Arrays are column by column, not sample by sample, so that a client views each as one typed
// array and the receipt is over bytes as they lie:
//
//	u64 seq | u32 epoch | u32 batch | u8 cause | u8 form | u16 fields | u32 flags | u32 count |
//	u32 stride | u64 bytes | u64 receipt | u64 base | count × u32 id | count × u32 length |
//	scattered: count × u64 place | fields > 1: count × fields × u32 field length
func AppendLease(
	dst []byte, l *Lease, ids []sample.ID, lengths []uint32, places []Place, fields []uint32,
) []byte {
	n := len(ids)
	wantPlaces, wantFields := 0, 0
	if l.Form == FormScattered {
		wantPlaces = n
	}
	if l.Fields > 1 {
		wantFields = n * int(l.Fields)
	}
	if len(lengths) != n || len(places) != wantPlaces || len(fields) != wantFields {
		panic(fmt.Sprintf("wire: lease of %d ids, %d lengths, %d places, %d field lengths",
			n, len(lengths), len(places), len(fields)))
	}
	le := binary.LittleEndian
	dst, at := begin(dst, TypeLease)
	dst = le.AppendUint64(dst, l.Seq)
	dst = le.AppendUint32(dst, l.Epoch)
	dst = le.AppendUint32(dst, l.Batch)
	dst = append(dst, byte(l.Cause), byte(l.Form))
	dst = le.AppendUint16(dst, l.Fields)
	dst = le.AppendUint32(dst, l.Flags)
	dst = le.AppendUint32(dst, uint32(n))
	dst = le.AppendUint32(dst, l.Stride)
	sums := len(dst)
	dst = le.AppendUint64(dst, 0)
	dst = le.AppendUint64(dst, 0)
	dst = le.AppendUint64(dst, uint64(l.Base))
	first := len(dst)
	for _, id := range ids {
		dst = le.AppendUint32(dst, uint32(id))
	}
	le.PutUint64(dst[sums+8:], xxh3.Hash(dst[first:]))
	total := uint64(0)
	for _, x := range lengths {
		dst = le.AppendUint32(dst, x)
		total += uint64(x)
	}
	le.PutUint64(dst[sums:], total)
	for _, p := range places {
		dst = le.AppendUint64(dst, uint64(p))
	}
	for _, x := range fields {
		dst = le.AppendUint32(dst, x)
	}
	return finish(dst, at)
}

// LeaseView is a lease and its samples.
type LeaseView struct {
	Lease
	ids, lengths, places, fields []byte
}

// DecodeLease checks that arrays are as long as the head says, that lengths add up (in the batch
// and over the fields), and that no place can run over its slab's 48 bits. Whether a slab exists
// and is long enough only its holder knows. It does not compare the receipt: see CheckReceipt.
func DecodeLease(p []byte) (LeaseView, error) {
	if len(p) < leaseHead {
		return LeaseView{}, exactly(TypeLease, p, leaseHead)
	}
	le := binary.LittleEndian
	v := LeaseView{Lease: Lease{
		Seq:     le.Uint64(p),
		Epoch:   le.Uint32(p[8:]),
		Batch:   le.Uint32(p[12:]),
		Cause:   Cause(p[16]),
		Form:    Form(p[17]),
		Fields:  le.Uint16(p[18:]),
		Flags:   le.Uint32(p[20:]),
		Count:   le.Uint32(p[24:]),
		Stride:  le.Uint32(p[28:]),
		Bytes:   le.Uint64(p[32:]),
		Receipt: le.Uint64(p[40:]),
		Base:    Place(le.Uint64(p[48:])),
	}}
	if err := v.split(p); err != nil {
		return LeaseView{}, err
	}
	if err := v.sums(); err != nil {
		return LeaseView{}, err
	}
	return v, nil
}

// split cuts the arrays out of the payload. In uint64 nothing overflows: 2³²·(16+4·2¹⁶) fits.
func (v *LeaseView) split(p []byte) error {
	n := uint64(v.Count)
	places, fields := uint64(0), uint64(0)
	switch v.Form {
	case FormScattered:
		places = 8 * n
		if v.Stride != 0 || v.Base != 0 {
			return fmt.Errorf("%w: scattered Lease with a stride or a base", ErrMalformed)
		}
	case FormPacked:
		if v.Base.Offset()+n*uint64(v.Stride) > maxOffset {
			return fmt.Errorf("%w: packed Lease of %d × %d bytes at offset %d",
				ErrMalformed, n, v.Stride, v.Base.Offset())
		}
	default:
		return fmt.Errorf("%w: Lease of form %d", ErrMalformed, v.Form)
	}
	if v.Fields > 1 {
		fields = 4 * n * uint64(v.Fields)
	}
	if uint64(len(p)) != leaseHead+8*n+places+fields {
		return fmt.Errorf("%w: Lease of %d samples and %d fields has %d bytes",
			ErrMalformed, n, v.Fields, len(p))
	}
	p = p[leaseHead:]
	v.ids, p = p[:4*n:4*n], p[4*n:]
	v.lengths, p = p[:4*n:4*n], p[4*n:]
	v.places, v.fields = p[:places:places], p[places:]
	return nil
}

// sums checks lengths against the total, the stride, the fields and a slab's end.
func (v *LeaseView) sums() error {
	total := uint64(0)
	for i := range v.Len() {
		n := uint64(v.Length(i))
		total += n
		if v.Form == FormPacked && n > uint64(v.Stride) {
			return fmt.Errorf("%w: Lease's sample %d has %d bytes, the stride is %d",
				ErrMalformed, i, n, v.Stride)
		}
		if v.Form == FormScattered && v.Place(i).Offset()+n > maxOffset {
			return fmt.Errorf("%w: Lease's sample %d ends outside its slab", ErrMalformed, i)
		}
	}
	if total != v.Bytes {
		return fmt.Errorf("%w: Lease of %d bytes has samples of %d", ErrMalformed, v.Bytes, total)
	}
	if v.Fields <= 1 {
		return nil
	}
	for i := range v.Len() {
		n := uint64(0)
		for f := range int(v.Fields) {
			n += uint64(v.FieldLength(i, f))
		}
		if n != uint64(v.Length(i)) {
			return fmt.Errorf("%w: Lease's sample %d has %d bytes, its fields %d",
				ErrMalformed, i, v.Length(i), n)
		}
	}
	return nil
}

// Len is the number of samples.
func (v *LeaseView) Len() int { return int(v.Count) }

// ID is the i-th sample's id.
func (v *LeaseView) ID(i int) sample.ID {
	return sample.ID(binary.LittleEndian.Uint32(v.ids[4*i:]))
}

// Length is the i-th sample's length in bytes.
func (v *LeaseView) Length(i int) uint32 { return binary.LittleEndian.Uint32(v.lengths[4*i:]) }

// Place is where the i-th sample begins, in either form.
func (v *LeaseView) Place(i int) Place {
	if v.Form == FormPacked {
		return v.Base + Place(i)*Place(v.Stride)
	}
	return Place(binary.LittleEndian.Uint64(v.places[8*i:]))
}

// FieldLength is the length of the i-th sample's field f; only where Fields > 1.
func (v *LeaseView) FieldLength(i, f int) uint32 {
	return binary.LittleEndian.Uint32(v.fields[4*(i*int(v.Fields)+f):])
}

// CheckReceipt says whether the receipt is that of the ids.
func (v *LeaseView) CheckReceipt() bool { return xxh3.Hash(v.ids) == v.Receipt }
