package vfs

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// queueDepth is how many requests the kernel has at a time; more wait.
	queueDepth = 256
	// reapEvery is how often requests that have ended are looked for. The scheduler looks at files
	// only when it has nothing else to run, or once in 10 ms; at timers whenever it runs something.
	reapEvery = 500 * time.Microsecond
)

// Linux's native asynchronous I/O (io_submit(2)), as its header linux/aio_abi.h has it.
const (
	aioRead     = 0 // IOCB_CMD_PREAD
	aioWrite    = 1 // IOCB_CMD_PWRITE
	aioSync     = 3 // IOCB_CMD_FDSYNC
	aioTellFile = 1 // IOCB_FLAG_RESFD
)

type iocb struct {
	data   uint64
	_      uint32 // the kernel's
	_      uint32 // flags of the read or write
	opcode uint16
	_      int16 // priority
	fd     uint32
	buf    uintptr
	bytes  uint64
	offset int64
	_      uint64
	flags  uint32
	tell   uint32 // the eventfd
}

type ioEvent struct {
	data, obj uint64
	result    int64
	_         int64
}

// errRefused is a request that the kernel would not take: a plain system call then does it, or says
// why not.
var errRefused = errors.New("asynchronous I/O refused")

// request is one read, write or sync under way.
type request struct {
	block  iocb
	blocks [1]*iocb // what io_submit takes
	mem    []byte   // kept alive, and where it is, until the kernel is done
	done   chan int64
}

// queue is requests that the kernel works on while the goroutines that made them are parked.
//
// A goroutine in pread or pwrite holds its share of GOMAXPROCS until the scheduler's monitor takes
// it away, tens of microseconds to milliseconds later. With as many reads under way as a device
// wants, and as few cores as a node leaves to its cache, that starves those who verify and deliver
// what was read. The kernel has two ways to wait for many. io_uring(7) reads large samples no
// faster and no cheaper than io_submit(2), and container runtimes forbid it by default; so it is
// io_submit, which does not block for direct files. Every goroutine submits its own request: to
// hand over many with one call saved nothing, and one that blocks in a file system would hold up
// all.
type queue struct {
	context  uintptr
	event    *os.File // an eventfd that the kernel adds to at each end of a request
	requests [queueDepth]request
	free     chan *request
	reaper   sync.WaitGroup
	users    atomic.Int32
	timer    *time.Timer
	armed    atomic.Bool // the timer will look

	mu     sync.Mutex
	ended  [queueDepth]ioEvent // guarded by mu, as closed
	closed bool
}

// newQueue returns a queue with one user.
func newQueue() (*queue, error) {
	q := &queue{free: make(chan *request, queueDepth)}
	q.users.Store(1)
	_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, queueDepth,
		uintptr(unsafe.Pointer(&q.context)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("io_setup", errno)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		q.destroy()
		return nil, os.NewSyscallError("eventfd", err)
	}
	q.event = os.NewFile(uintptr(fd), "eventfd")
	for i := range q.requests {
		r := &q.requests[i]
		r.done = make(chan int64, 1)
		r.block = iocb{data: uint64(i), flags: aioTellFile, tell: uint32(fd)}
		r.blocks[0] = &r.block
		q.free <- r
	}
	conn, err := q.event.SyscallConn()
	if err == nil {
		err = q.event.SetDeadline(time.Time{}) // which it has if it can be waited for
	}
	if err != nil {
		q.destroy()
		return nil, errors.Join(err, q.event.Close())
	}
	q.timer = time.AfterFunc(time.Hour, q.look)
	q.reaper.Go(func() { q.wait(conn) })
	return q, nil
}

func (q *queue) destroy() {
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, q.context, 0, 0)
}

// leave gives the queue up; the last user ends it. No request of the user is under way.
func (q *queue) leave() {
	if q == nil || q.users.Add(-1) > 0 {
		return
	}
	q.timer.Stop()
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	_ = q.event.Close()
	q.reaper.Wait() // first: another queue may get the number of a context that is no more
	q.destroy()
}

// do makes a request, and returns when it has ended.
func (q *queue) do(op uint16, fd int, b []byte, at int64) (int, error) {
	r := <-q.free
	r.mem = b
	r.block.opcode, r.block.fd, r.block.offset = op, uint32(fd), at
	r.block.buf, r.block.bytes = uintptr(unsafe.Pointer(unsafe.SliceData(b))), uint64(len(b))
	_, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, q.context, 1,
		uintptr(unsafe.Pointer(&r.blocks[0])))
	n := int64(0)
	if errno == 0 {
		q.arm()
		n = <-r.done
	}
	r.mem = nil
	q.free <- r
	switch {
	case errno != 0:
		return 0, errRefused
	case n < 0:
		return 0, syscall.Errno(-n)
	}
	return int(n), nil
}

// wait ends requests as the kernel does, until the event file is closed. It only looks at what is
// there: it is told of everything that comes after.
func (q *queue) wait(conn syscall.RawConn) {
	_ = conn.Read(func(uintptr) bool {
		q.reap()
		return false
	})
}

// arm has the timer look while something is under way.
func (q *queue) arm() {
	if q.armed.CompareAndSwap(false, true) {
		q.timer.Reset(reapEvery)
	}
}

func (q *queue) look() {
	q.reap()
	q.armed.Store(false)
	if len(q.free) < queueDepth {
		q.arm()
	}
}

func (q *queue) reap() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	var now unix.Timespec
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_IO_GETEVENTS, q.context, 0, queueDepth,
			uintptr(unsafe.Pointer(&q.ended[0])), uintptr(unsafe.Pointer(&now)), 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			return
		}
		for _, e := range q.ended[:n] {
			q.requests[e.data].done <- e.result
		}
	}
}
