package throttle

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Counters are what went through, as eight 64-bit words in the machine's byte order. With a counts
// file they lie in it, mapped and shared, so that another process can read them at any time:
//
//	byte  0  requests          reads asked for, those failed on purpose included
//	byte  8  bytes             delivered by reads that succeeded
//	byte 16  faults            errors, hangs and wrong bytes injected
//	byte 24  concurrency_max   most reads inside at once, in any one process
//	byte 32  first_ns          Unix time of the first request, nanoseconds; 0: none yet
//	byte 40  last_ns           Unix time at which the last read ended
//	byte 48  lists             listings asked for
//	byte 56  (zero)            room for one more
//
// A file is added to, never reset: several processes may share one. Remove it to start from zero.
type Counters struct {
	Requests, Bytes, Faults, ConcurrencyMax, FirstNs, LastNs, Lists, _ atomic.Uint64
}

const countersSize = int(unsafe.Sizeof(Counters{}))

// openCounters maps the counts file at path, creating it; without a path they are in memory.
func openCounters(path string) (*Counters, func() error, error) {
	if path == "" {
		return &Counters{}, func() error { return nil }, nil
	}
	fail := func(err error) (*Counters, func() error, error) {
		return nil, nil, fmt.Errorf("counts file %q: %w; name a file this user may write", path, err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fail(err)
	}
	switch info.Size() {
	case 0:
		if err := file.Truncate(int64(countersSize)); err != nil {
			return fail(err)
		}
	case int64(countersSize):
	default:
		return fail(fmt.Errorf("it has %d bytes, not %d: it is something else",
			info.Size(), countersSize))
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, countersSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return fail(err)
	}
	return (*Counters)(unsafe.Pointer(&mapped[0])), func() error { return unix.Munmap(mapped) }, nil
}

// raise sets word to at least v.
func raise(word *atomic.Uint64, v uint64) {
	for old := word.Load(); old < v && !word.CompareAndSwap(old, v); old = word.Load() {
	}
}
