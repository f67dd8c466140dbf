package posix

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

// local are the file systems whose reads end: they answer, or the disk's driver gives up. On any
// other, such as NFS, Lustre, CephFS, SMB or FUSE, a read lasts as long as its server is away.
var local = map[int64]bool{
	unix.EXT4_SUPER_MAGIC:      true,
	unix.XFS_SUPER_MAGIC:       true,
	unix.BTRFS_SUPER_MAGIC:     true,
	unix.F2FS_SUPER_MAGIC:      true,
	unix.TMPFS_MAGIC:           true,
	unix.RAMFS_MAGIC:           true,
	unix.OVERLAYFS_SUPER_MAGIC: true,
	unix.SQUASHFS_MAGIC:        true,
	unix.ISOFS_SUPER_MAGIC:     true,
	0x2fc12fc1:                 true, // ZFS, which is not in the kernel's list
}

func mayHang(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) != nil || !local[int64(st.Type)]
}

// maxWaits bounds the reads that are under way at once, and maxWaitBytes what they read, and so the
// threads and buffers that hang when the file system does: further reads fail at their deadline
// without being begun.
const (
	maxWaits     = 512
	maxWaitBytes = 256 << 20
	waitBytes    = maxWaitBytes / maxWaits // what a read weighs at least
)

// waits lets go of reads at their deadline. A system call cannot be called back: the read goes on
// in its own goroutine until the kernel answers, into a buffer of its own, since the caller's
// memory is another sample's by then. The price is one copy of what is read.
type waits struct {
	most    int64
	slots   *semaphore.Weighted // of most bytes
	buffers sync.Pool           // of *[]byte
}

func newWaits(most int64) *waits { return &waits{most: most, slots: semaphore.NewWeighted(most)} }

func (w *waits) read(ctx context.Context, f *files, part dataset.Part, dst []byte) error {
	weight := min(max(int64(len(dst)), waitBytes), w.most)
	if err := w.slots.Acquire(ctx, weight); err != nil {
		return fmt.Errorf("%w: %q was not read: too many reads already wait for the file system; "+
			"see whether its server is up: %w", origin.ErrUnavailable, f.path(part.Name), err)
	}
	buffer, _ := w.buffers.Get().(*[]byte)
	if buffer == nil || cap(*buffer) < len(dst) {
		buffer = new([]byte)
		*buffer = make([]byte, len(dst))
	}
	own := (*buffer)[:len(dst)]
	done := make(chan error, 1)
	go func() {
		done <- f.read(part, own, anywhere)
		w.slots.Release(weight)
	}()
	select {
	case err := <-done:
		copy(dst, own)
		w.buffers.Put(buffer)
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %q: the file system does not answer; see whether its server is up: "+
			"%w", origin.ErrUnavailable, f.path(part.Name), ctx.Err())
	}
}
