package arena

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// maxRingPieces bounds the pieces of a ring that a client may hold at once.
const maxRingPieces = 1024

// Ring is one session's buffer for packed leases: contiguous pieces, taken in order and released in
// any order. Its memfd is sealed against resizing only, because the client maps it read-write and
// may change what it was lent. So the daemon writes here and never reads: what a client scribbles
// can hurt nobody else. A Ring has one owner goroutine.
type Ring struct {
	pool   *Pool
	fd     int
	mem    []byte
	pieces []piece // oldest first, from first on
	first  int
	head   int64 // where the next piece goes
}

type piece struct {
	offset   int64
	released bool
}

// NewRing takes bytes, rounded up to pages, from the pool and reserves the memory at once.
func NewRing(pool *Pool, bytes int64) (*Ring, error) {
	const page = 4096
	bytes = (bytes + page - 1) / page * page
	if bytes <= 0 || bytes > MaxSlabBytes {
		return nil, fmt.Errorf("make ring of %d bytes: must be 1 to %d", bytes, MaxSlabBytes)
	}
	if err := pool.take(bytes); err != nil {
		return nil, fmt.Errorf("make ring: %w", err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	fd, mem, err := mapSealed("belady-ring", bytes, seals)
	if err != nil {
		pool.give(bytes)
		return nil, fmt.Errorf("make ring: %w", err)
	}
	r := &Ring{pool: pool, fd: fd, mem: mem, pieces: make([]piece, 0, 2*maxRingPieces)}
	if err := fault(fd, mem, 0); err != nil {
		return nil, fmt.Errorf("make ring: %w", errors.Join(err, r.Close()))
	}
	return r, nil
}

// FD is the ring's memfd, to be passed to its one client; it stays the ring's.
func (r *Ring) FD() int { return r.fd }

// Size is the ring's length in bytes.
func (r *Ring) Size() int64 { return int64(len(r.mem)) }

// Alloc takes a contiguous piece of the given bytes, aligned to Align. False: too much of the ring
// is still held.
func (r *Ring) Alloc(bytes int64) (offset int64, ok bool) {
	bytes = max(Align, (bytes+Align-1)/Align*Align)
	if len(r.pieces)-r.first == maxRingPieces || bytes > int64(len(r.mem)) {
		return 0, false
	}
	if len(r.pieces) == r.first {
		r.head = 0
	}
	offset = r.head
	tail, held := r.tail()
	switch {
	case !held:
	case tail < offset: // free: behind the head to the end, and from the start to the tail
		if offset+bytes > int64(len(r.mem)) {
			if bytes > tail {
				return 0, false
			}
			offset = 0
		}
	case offset+bytes > tail: // free: from the head to the tail; head = tail means full
		return 0, false
	}
	if len(r.pieces) == cap(r.pieces) {
		r.pieces = r.pieces[:copy(r.pieces, r.pieces[r.first:])]
		r.first = 0
	}
	r.pieces = append(r.pieces, piece{offset: offset})
	r.head = offset + bytes
	return offset, true
}

// tail is the offset of the oldest piece held.
func (r *Ring) tail() (int64, bool) {
	if r.first == len(r.pieces) {
		return 0, false
	}
	return r.pieces[r.first].offset, true
}

// Release ends the piece at offset. False: no such piece is held; offsets come from clients, so
// that is for the caller to refuse, not a broken invariant.
func (r *Ring) Release(offset int64) bool {
	for i := r.first; i < len(r.pieces); i++ {
		p := &r.pieces[i]
		if p.offset != offset || p.released {
			continue
		}
		p.released = true
		for r.first < len(r.pieces) && r.pieces[r.first].released {
			r.first++
		}
		return true
	}
	return false
}

// Bytes is the memory of a piece, for writing only.
func (r *Ring) Bytes(offset, bytes int64) []byte {
	return r.mem[offset : offset+bytes : offset+bytes]
}

// Close unmaps the ring and gives its bytes back; the client's mapping lives on. Call it once.
func (r *Ring) Close() error {
	bytes := int64(len(r.mem))
	err := errors.Join(unix.Munmap(r.mem), unix.Close(r.fd))
	r.mem = nil
	r.pool.give(bytes)
	return err
}
