package arena

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// faultBytes is how much one background step faults in: about a millisecond of work, which is
// also the longest the owner waits for the faulter when a slab goes.
const faultBytes = 4 * SpanBytes

type spanKind uint8

const (
	spanFree   spanKind = iota
	spanSlots           // slots of one class; a region of one or more spans
	spanRun             // a piece of a run, filled from its start
	spanPack            // kept samples, filled from its start; a region of one or more spans
	spanLarge           // one sample on whole spans
	spanAbsent          // there is no memory for it
)

// span describes one span. For a region of several only the first, its head, is kept up to date;
// the others carry kind and head.
type span struct {
	kind  spanKind
	class uint8
	head  uint16 // the region's first span
	spans uint16 // head: how many spans the region has
	slots uint32 // head: how many slots
	live  uint32 // head: slots taken, samples of the run, or 1
	hint  uint32 // head: no bitmap word below this one has a free slot
	size  uint32 // head: bytes of live samples
	// head of spanLarge: the sample is not one that stays
	passing bool
	next    spanRef
	prev    spanRef
}

// spanRef names a span in the arena: slab index and span index; 0 is none.
type spanRef uint32

const spanIndexBits = 13 // MaxSlabBytes / SpanBytes spans in a slab

func makeRef(slab uint16, index int) spanRef {
	return spanRef(slab)<<spanIndexBits | spanRef(index)
}
func (r spanRef) slab() uint16 { return uint16(r >> spanIndexBits) }
func (r spanRef) index() int   { return int(r & (1<<spanIndexBits - 1)) }

// slab is one sealed memfd, mapped read-write here and nowhere else.
type slab struct {
	index    uint16
	fd       int
	mem      []byte
	spans    []span
	taken    []uint64 // bit per slot, words of them per span
	words    int
	free     int // spans free
	absent   int // spans without memory
	low      int // no span below this one is free
	high     int // nor any from this one on
	draining bool

	// faulted counts the spans from the slab's start that are backed by memory. The faulter
	// raises it; the owner reads it, and faults single spans above it for itself (touched).
	faulted atomic.Int64
	touched []bool

	// mu keeps the faulter and the unmapping apart. gone: mem must not be touched any more.
	mu   sync.Mutex
	gone bool
}

func newSlab(index uint16, bytes int64, words int) (*slab, error) {
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	fd, mem, err := mapSealed("belady-slab", bytes, seals)
	if err != nil {
		return nil, fmt.Errorf("make slab %d: %w", index, err)
	}
	n := int(bytes / SpanBytes)
	// Huge pages are a gift where the kernel allows them; without them all works, only slower.
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	return &slab{
		index: index, fd: fd, mem: mem, free: n, high: n, words: words,
		spans: make([]span, n), taken: make([]uint64, n*words), touched: make([]bool, n),
	}, nil
}

// mapSealed makes a memfd of the given size, maps it read-write, and only then seals it: a seal
// against future writes lets older mappings write on.
func mapSealed(name string, bytes int64, seals int) (int, []byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, bytes); err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("size memfd to %d bytes, give less memory: %w", bytes, err)
	}
	mem, err := unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("map %d bytes of memfd: %w", bytes, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Munmap(mem)
		unix.Close(fd)
		return -1, nil, fmt.Errorf("seal memfd (Linux 5.1 or newer is needed): %w", err)
	}
	return fd, mem, nil
}

// fault backs mem, which lies at off in fd, with memory. After it returns nil no access to mem can
// raise a signal.
func fault(fd int, mem []byte, off int64) error {
	if left := available(os.DirFS("/")); left < int64(len(mem))+headroomBytes {
		return fmt.Errorf("reserve %d bytes of memory, the machine or its control group has %d left, "+
			"give the node less of it: %w", len(mem), left, unix.ENOMEM)
	}
	for {
		err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
		if errors.Is(err, unix.EINVAL) { // before Linux 5.14
			err = unix.Fallocate(fd, 0, off, int64(len(mem)))
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		}
		return fmt.Errorf("reserve %d bytes of memory, give the node less of it: %w",
			len(mem), err)
	}
}

// ensure backs spans [first, first+n) with memory, unless they are already.
func (s *slab) ensure(first, n int) error {
	for i := first; i < first+n; i++ {
		if s.backed(i) {
			continue
		}
		off := int64(i) * SpanBytes
		if err := fault(s.fd, s.mem[off:off+SpanBytes], off); err != nil {
			return fmt.Errorf("slab %d: %w", s.index, err)
		}
		s.touched[i] = true
	}
	return nil
}

func (s *slab) backed(i int) bool { return int64(i) < s.faulted.Load() || s.touched[i] }

// withdraw takes the free spans without memory out of use, once memory has run out, and returns how
// many there were. What has memory serves on.
func (s *slab) withdraw() int {
	n := 0
	for i := range s.spans {
		if s.spans[i].kind == spanFree && !s.backed(i) {
			s.spans[i].kind = spanAbsent
			n++
		}
	}
	s.free -= n
	s.absent += n
	return n
}

// used is how many spans have samples in them.
func (s *slab) used() int { return len(s.spans) - s.free - s.absent }

// faultStep backs the next few spans and says whether any are left. It is the faulter's, and the
// only code that meets a slab outside the owner goroutine beside Bytes.
func (s *slab) faultStep() (more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false, nil
	}
	from := s.faulted.Load() * SpanBytes
	to := min(from+faultBytes, int64(len(s.mem)))
	if from == to {
		return false, nil
	}
	if err := fault(s.fd, s.mem[from:to], from); err != nil {
		return false, fmt.Errorf("slab %d: %w", s.index, err)
	}
	s.faulted.Store(to / SpanBytes)
	return to < int64(len(s.mem)), nil
}

// find looks for n contiguous free spans, from the start or from the end.
func (s *slab) find(n int, fromEnd bool) (int, bool) {
	if s.free < n {
		return 0, false
	}
	at, step := s.low, 1
	if fromEnd {
		at, step = s.high-1, -1
	}
	for count := 0; at >= s.low && at < s.high; at += step {
		if s.spans[at].kind != spanFree {
			count = 0
			continue
		}
		if count++; count == n {
			return min(at, at-step*(n-1)), true
		}
	}
	return 0, false
}

// take marks free spans [first, first+n) as one region of the kind.
func (s *slab) take(first, n int, kind spanKind) {
	for i := first; i < first+n; i++ {
		s.spans[i] = span{kind: kind, head: uint16(first)}
	}
	s.spans[first].spans = uint16(n)
	s.free -= n
	for s.low < s.high && s.spans[s.low].kind != spanFree {
		s.low++
	}
	for s.high > s.low && s.spans[s.high-1].kind != spanFree {
		s.high--
	}
}

// giveBack frees the spans [first, first+n).
func (s *slab) giveBack(first, n int) {
	clear(s.spans[first : first+n])
	s.free += n
	s.low, s.high = min(s.low, first), max(s.high, first+n)
}

// unmap gives the memory back to the system, as far as no client maps it.
func (s *slab) unmap() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	mem := s.mem
	s.mem = nil
	return errors.Join(unix.Munmap(mem), unix.Close(s.fd))
}
