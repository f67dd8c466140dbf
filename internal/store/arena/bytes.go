package arena

import (
	"fmt"
	"runtime"
)

// Bytes is the sample's memory. length is the sample's size, which the manifest knows even where
// the place does not (LongLength). The slice is valid until the place is freed. Any goroutine.
func (a *Arena) Bytes(p Place, length uint32) []byte {
	from := p.Offset()
	to := from + int64(length)
	return a.table[p.Slab()].Load().mem[from:to:to]
}

// Direct is Bytes of a place from AllocDirect: its capacity is the room behind the sample that a
// direct read may fill.
func (a *Arena) Direct(p Place, length uint32) []byte {
	from := p.Offset()
	to := from + int64(length)
	room := (to + DirectAlign - 1) / DirectAlign * DirectAlign
	return a.table[p.Slab()].Load().mem[from:to:room]
}

// length is a live place's real length.
func (a *Arena) length(p Place) uint32 {
	if n := p.Len(); n < LongLength {
		return n
	}
	_, _, sp := a.lookup(p)
	return sp.size
}

// Copy copies a sample to where kept ones are, out of a run, a draining slab or a sparse region;
// the source lives on until the caller frees it. False: the arena is full.
func (a *Arena) Copy(p Place) (Place, bool) {
	n := a.length(p)
	q, ok := a.AllocKept(n)
	if !ok {
		return 0, false
	}
	copy(a.Bytes(q, n), a.Bytes(p, n))
	a.copies.Add(1)
	a.copied.Add(int64(n))
	return q, true
}

// Relocate moves a sample that nobody is reading to a new place: Copy, then Free of the old place.
// False: the arena is full, and the sample is where it was.
func (a *Arena) Relocate(p Place) (Place, bool) {
	q, ok := a.Copy(p)
	if ok {
		a.Free(p)
	}
	return q, ok
}

// gathered is how many samples Gather looks at before it copies them. Samples of an epoch lie
// anywhere, so the first line of each waits for memory; asked for together, they wait together.
// 3 KB samples are copied a fifth faster so.
const gathered = 4

// Gather copies samples side by side for a packed lease: sample i to dst[i*stride:]. None may be
// longer than stride. Any goroutine, as long as the places are live.
func (a *Arena) Gather(dst []byte, stride int, places []Place) {
	var total int64
	var src [gathered][]byte
	var seen byte
	for lo := 0; lo < len(places); lo += gathered {
		group := places[lo:min(lo+gathered, len(places))]
		for i, p := range group {
			n := a.length(p)
			if int(n) > stride {
				panic(fmt.Sprintf("arena: gather %v into a stride of %d", p, stride))
			}
			if src[i] = a.Bytes(p, n); n > 0 {
				seen ^= src[i][0] ^ src[i][n-1]
			}
		}
		for i := range group {
			at := (lo + i) * stride
			total += int64(copy(dst[at:at+stride], src[i]))
		}
	}
	runtime.KeepAlive(seen) // or the compiler would not look
	a.copies.Add(int64(len(places)))
	a.copied.Add(total)
}

// Usage is where an arena's bytes are.
type Usage struct {
	Total       int64 `json:"total_bytes"` // of all slabs, draining ones included
	Slots       int64 `json:"slots_bytes"` // of samples in slots or packed, large ones included
	Runs        int64 `json:"runs_bytes"`  // of samples in runs
	Waste       int64 `json:"waste_bytes"` // in spans that are in use, but in no sample
	SpansFree   int   `json:"spans_free"`  // that can be taken
	Copies      int64 `json:"copies"`      // samples copied, ever
	CopiedBytes int64 `json:"copied_bytes"`

	spansUsed int
}

// Usage says where the bytes are now.
func (a *Arena) Usage() Usage {
	u := a.use
	u.Waste = int64(u.spansUsed)*SpanBytes - u.Slots - u.Runs
	u.Copies, u.CopiedBytes = a.copies.Load(), a.copied.Load()
	return u
}
