package arena

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// Huge makes a slice on the heap for which the kernel is asked to use huge pages: what is read at
// random over hundreds of megabytes waits less for address translation. It is advice. Where it is
// not taken, or the slice is small, the slice is as good as any.
func Huge[T any](n int) []T {
	s := make([]T, n)
	if n == 0 {
		return s
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), n*int(unsafe.Sizeof(s[0])))
	from := -int(uintptr(unsafe.Pointer(&b[0]))) & (hugePage - 1)
	if to := len(b) - (from+len(b))%hugePage; from < to {
		_ = unix.Madvise(b[from:to], unix.MADV_HUGEPAGE)
	}
	return s
}
