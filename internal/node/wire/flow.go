package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"belady/internal/core/sample"
)

// AppendCredit appends a Credit: the daemon may send n more leases. Credits add up; each lease,
// and each Error that stands for one, spends one. Releasing a lease gives none back.
//
//	u32 n
func AppendCredit(dst []byte, n uint32) []byte {
	dst, at := begin(dst, TypeCredit)
	return finish(binary.LittleEndian.AppendUint32(dst, n), at)
}

// DecodeCredit refuses 0, which says nothing, and more than may ever be unspent.
func DecodeCredit(p []byte) (uint32, error) {
	if err := exactly(TypeCredit, p, 4); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(p)
	if n == 0 || n > MaxCredit {
		return 0, fmt.Errorf("%w: Credit of %d, not 1 to %d", ErrMalformed, n, MaxCredit)
	}
	return n, nil
}

// AppendRelease appends a Release of these leases, by their seq.
//
//	n × u64 seq
func AppendRelease(dst []byte, seqs []uint64) []byte {
	dst, at := begin(dst, TypeRelease)
	for _, s := range seqs {
		dst = binary.LittleEndian.AppendUint64(dst, s)
	}
	return finish(dst, at)
}

// ReleaseView is a Release's list of seqs.
type ReleaseView struct{ p []byte }

// DecodeRelease refuses an empty list and a broken one. Whether a seq is outstanding is for the
// session to say.
func DecodeRelease(p []byte) (ReleaseView, error) {
	if len(p) == 0 || len(p)%8 != 0 {
		return ReleaseView{}, fmt.Errorf("%w: Release has %d bytes, not a multiple of 8",
			ErrMalformed, len(p))
	}
	return ReleaseView{p}, nil
}

// Len is the number of leases released.
func (v ReleaseView) Len() int { return len(v.p) / 8 }

// At is the seq of the i-th one.
func (v ReleaseView) At(i int) uint64 { return binary.LittleEndian.Uint64(v.p[8*i:]) }

// Flags of a Window.
const (
	// WindowLastOfEpoch: the epoch's list ends with this window.
	WindowLastOfEpoch uint32 = 1 << 0
	// WindowLastOfJob: no epoch follows. Only with WindowLastOfEpoch.
	WindowLastOfJob uint32 = 1 << 1
)

const windowHead = 16

// MaxWindowIDs is how many ids, each in a batch of its own, fit into one Window.
const MaxWindowIDs = (MaxFromClient - windowHead) / 8

// AppendWindow appends a piece of an explicit order: the ids this rank reads next, and for each
// batch where it ends in ids. Batches do not cross windows. It panics if ends is not what
// DecodeWindow accepts.
//
//	u32 epoch | u32 flags | u32 ids | u32 batches | ids × u32 id | batches × u32 end
func AppendWindow(dst []byte, epoch, flags uint32, ids []sample.ID, ends []uint32) []byte {
	dst, at := begin(dst, TypeWindow)
	dst = binary.LittleEndian.AppendUint32(dst, epoch)
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(ids)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(ends)))
	for _, id := range ids {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	}
	for _, e := range ends {
		dst = binary.LittleEndian.AppendUint32(dst, e)
	}
	dst = finish(dst, at)
	if _, err := DecodeWindow(dst[at+HeaderSize:]); err != nil {
		panic("wire: " + err.Error())
	}
	return dst
}

// WindowView is a Window.
type WindowView struct {
	Epoch, Flags uint32
	ids, ends    []byte
}

// DecodeWindow checks that batches are not empty, ascend, and end where the ids do.
func DecodeWindow(p []byte) (WindowView, error) {
	if len(p) < windowHead {
		return WindowView{}, exactly(TypeWindow, p, windowHead)
	}
	n := uint64(binary.LittleEndian.Uint32(p[8:]))
	k := uint64(binary.LittleEndian.Uint32(p[12:]))
	if uint64(len(p)) != windowHead+4*(n+k) {
		return WindowView{}, fmt.Errorf("%w: Window of %d ids and %d batches has %d bytes",
			ErrMalformed, n, k, len(p))
	}
	v := WindowView{
		Epoch: binary.LittleEndian.Uint32(p),
		Flags: binary.LittleEndian.Uint32(p[4:]),
		ids:   p[windowHead : windowHead+4*n],
		ends:  p[windowHead+4*n:],
	}
	if v.Flags&^(WindowLastOfEpoch|WindowLastOfJob) != 0 || v.Flags == WindowLastOfJob {
		return WindowView{}, fmt.Errorf("%w: Window has flags %#x", ErrMalformed, v.Flags)
	}
	last := uint32(0)
	for i := range v.Batches() {
		if e := v.End(i); e <= last {
			return WindowView{}, fmt.Errorf("%w: Window's batch %d ends at %d, after %d",
				ErrMalformed, i, e, last)
		}
		last = v.End(i)
	}
	if uint64(last) != n {
		return WindowView{}, fmt.Errorf("%w: Window's batches end at %d of %d ids",
			ErrMalformed, last, n)
	}
	return v, nil
}

// Len is the number of ids, Batches that of batches.
func (v WindowView) Len() int     { return len(v.ids) / 4 }
func (v WindowView) Batches() int { return len(v.ends) / 4 }

// ID is the i-th id. It may be any number: only the dataset knows how many samples there are.
func (v WindowView) ID(i int) sample.ID {
	return sample.ID(binary.LittleEndian.Uint32(v.ids[4*i:]))
}

// End is the index in the ids after batch i's last.
func (v WindowView) End(i int) uint32 { return binary.LittleEndian.Uint32(v.ends[4*i:]) }

// AppendDetach appends a Detach: no further lease is wanted. Leases stay lent until they are
// released or the client closes the connection.
func AppendDetach(dst []byte) []byte { return appendEmpty(dst, TypeDetach) }

// AppendEnd appends an End: the job's last batch has been sent.
func AppendEnd(dst []byte) []byte { return appendEmpty(dst, TypeEnd) }

func appendEmpty(dst []byte, t Type) []byte {
	dst, at := begin(dst, t)
	return finish(dst, at)
}

// DecodeDetach and DecodeEnd refuse any payload.
func DecodeDetach(p []byte) error { return exactly(TypeDetach, p, 0) }
func DecodeEnd(p []byte) error    { return exactly(TypeEnd, p, 0) }

// Drift is a client's report that a batch was not what the order gives by its own computing.
//
//	u32 epoch | u32 batch
type Drift struct{ Epoch, Batch uint32 }

// AppendDrift appends the frame; only where FeatureDrift was agreed on.
func AppendDrift(dst []byte, d Drift) []byte {
	dst, at := begin(dst, TypeDrift)
	dst = binary.LittleEndian.AppendUint32(dst, d.Epoch)
	return finish(binary.LittleEndian.AppendUint32(dst, d.Batch), at)
}

// DecodeDrift takes any numbers: they are for people.
func DecodeDrift(p []byte) (Drift, error) {
	if err := exactly(TypeDrift, p, 8); err != nil {
		return Drift{}, err
	}
	return Drift{binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:])}, nil
}

// SlabKind says how a client maps a slab.
type SlabKind uint8

const (
	// SlabArena is shared by all sessions of a dataset: sealed, mapped read-only.
	SlabArena SlabKind = 0
	// SlabPacked is one session's ring: mapped read-write; the daemon writes it, never reads it.
	SlabPacked SlabKind = 1
)

// Slab announces a slab; its descriptor travels with the frame. Index may have been used before,
// if a SlabGone came in between.
//
//	u16 index | u8 kind | u8 reserved | u32 reserved | u64 bytes
type Slab struct {
	Index uint16
	Kind  SlabKind
	Bytes uint64
}

// AppendSlab appends the frame; Writer.SendSlab is what sends one.
func AppendSlab(dst []byte, s Slab) []byte {
	dst, at := begin(dst, TypeSlab)
	dst = binary.LittleEndian.AppendUint16(dst, s.Index)
	dst = append(dst, byte(s.Kind), 0, 0, 0, 0, 0)
	return finish(binary.LittleEndian.AppendUint64(dst, s.Bytes), at)
}

// DecodeSlab refuses sizes that a place cannot address or a process cannot map.
func DecodeSlab(p []byte) (Slab, error) {
	if err := exactly(TypeSlab, p, 16); err != nil {
		return Slab{}, err
	}
	s := Slab{
		Index: binary.LittleEndian.Uint16(p),
		Kind:  SlabKind(p[2]),
		Bytes: binary.LittleEndian.Uint64(p[8:]),
	}
	if s.Kind > SlabPacked || s.Bytes == 0 || s.Bytes > maxOffset || s.Bytes > math.MaxInt {
		return Slab{}, fmt.Errorf("%w: Slab of kind %d and %d bytes", ErrMalformed, s.Kind, s.Bytes)
	}
	return s, nil
}

// AppendSlabGone appends a SlabGone: no further lease names this slab until it is announced anew.
//
//	u16 index
func AppendSlabGone(dst []byte, index uint16) []byte {
	dst, at := begin(dst, TypeSlabGone)
	return finish(binary.LittleEndian.AppendUint16(dst, index), at)
}

// DecodeSlabGone returns the slab's index.
func DecodeSlabGone(p []byte) (uint16, error) {
	if err := exactly(TypeSlabGone, p, 2); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint16(p), nil
}
