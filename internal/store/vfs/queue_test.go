package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ways are the directory as it is, and as it is where the kernel has no queue to give, or has one
// and takes nothing.
var ways = map[string]func(*testing.T, *OS){
	"queue":   func(*testing.T, *OS) {},
	"none":    func(_ *testing.T, o *OS) { o.tried, o.why = true, syscall.ENOSYS },
	"refuses": func(t *testing.T, o *OS) { refuse(t, o) },
}

func refuse(t *testing.T, o *OS) {
	q := o.join()
	if q == nil {
		t.Fatal(o.Plain())
	}
	q.leave()
	q.destroy()
}

// each runs a test with a directory, in all ways, and looks for what it leaves open.
func each(t *testing.T, test func(t *testing.T, o *OS)) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			o, err := Dir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			way(t, o)
			test(t, o)
			if name == "queue" && o.Plain() != nil {
				t.Errorf("there is no queue: %v", o.Plain())
			}
			if name == "none" && !errors.Is(o.Plain(), syscall.ENOSYS) {
				t.Errorf("it is not said that there is no queue: %v", o.Plain())
			}
			if err := o.Close(); err != nil {
				t.Error(err)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	found, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func direct(t *testing.T, o *OS, bytes int64) *directFile {
	f, err := o.Open("f", How{Create: true, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	d, ok := f.(*directFile)
	if !ok {
		t.Fatal("the temporary folder's file system has no direct I/O")
	}
	if err := f.Allocate(bytes); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMany: many goroutines read and write their own parts of a file, more than the queue is deep,
// and each finds what it wrote.
func TestMany(t *testing.T) {
	const workers, part = queueDepth + 44, 4 * Block
	each(t, func(t *testing.T, o *OS) {
		f := direct(t, o, workers*part)
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				b := Aligned(part)
				defer Free(b)
				at := int64(w) * part
				for round := range 6 {
					for i := range b {
						b[i] = byte(w + i*round)
					}
					want := bytes.Clone(b)
					if n, err := f.WriteAt(b, at); n != part || err != nil {
						t.Error(n, err)
					}
					clear(b)
					if n, err := f.ReadAt(b, at); n != part || err != nil {
						t.Error(n, err)
					}
					if !bytes.Equal(b, want) {
						t.Errorf("worker %d reads other bytes in round %d", w, round)
					}
				}
				if err := f.Sync(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAsPlain: a direct file does what a plain one does, byte by byte and error by error, at its
// end and behind it too.
func TestAsPlain(t *testing.T) {
	const most = 16
	each(t, func(t *testing.T, o *OS) {
		f := direct(t, o, 3*Block)
		plain, err := o.Open("plain", How{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := plain.Allocate(3 * Block); err != nil {
			t.Fatal(err)
		}
		a, b := Aligned(most*Block), make([]byte, most*Block)
		defer Free(a)
		rapid.Check(t, func(t *rapid.T) {
			at := rapid.Int64Range(0, most).Draw(t, "at") * Block
			n := rapid.IntRange(0, most).Draw(t, "blocks") * Block
			if rapid.Bool().Draw(t, "write") {
				for i := range n {
					a[i] = byte(rand.Uint32())
				}
				copy(b, a[:n])
				n1, err1 := f.WriteAt(a[:n], at)
				n2, err2 := plain.WriteAt(b[:n], at)
				if n1 != n2 || err1 != nil || err2 != nil {
					t.Fatalf("%d bytes at %d: wrote %d (%v), plain %d (%v)", n, at, n1, err1, n2, err2)
				}
				return
			}
			n1, err1 := f.ReadAt(a[:n], at)
			n2, err2 := plain.ReadAt(b[:n], at)
			if n1 != n2 || err1 != err2 || !bytes.Equal(a[:n1], b[:n2]) {
				t.Fatalf("%d bytes at %d: read %d (%v), plain %d (%v)", n, at, n1, err1, n2, err2)
			}
		})
		if err := errors.Join(f.Close(), plain.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestDirectFails: what cannot be done is the error that package os has for it.
func TestDirectFails(t *testing.T) {
	each(t, func(t *testing.T, o *OS) {
		f := direct(t, o, Block)
		b := Aligned(2 * Block)
		defer Free(b)
		if n, err := f.ReadAt(b, 0); n != Block || err != io.EOF {
			t.Errorf("over the end: %d, %v", n, err)
		}
		if n, err := f.ReadAt(b, 1<<40); n != 0 || err != io.EOF {
			t.Errorf("behind the end: %d, %v", n, err)
		}
		_, err := f.WriteAt(b, 1<<62)
		is(t, "far behind the end", err, "write", f.Name(), syscall.EFBIG)
		only, err := o.Open("f", How{Direct: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = only.WriteAt(b, 0)
		is(t, "opened for reading", err, "write", f.Name(), syscall.EBADF)
		if err := errors.Join(f.Close(), only.Close()); err != nil {
			t.Error(err)
		}
		_, err = f.ReadAt(b, 0)
		is(t, "closed", err, "read", f.Name(), fs.ErrClosed)
		_, err = f.WriteAt(b, 0)
		is(t, "closed", err, "write", f.Name(), fs.ErrClosed)
		if err := f.Sync(); err == nil {
			t.Error("a closed file was synced")
		}
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
	})
}

func is(t *testing.T, what string, err error, op, path string, want error) {
	t.Helper()
	var p *fs.PathError
	if !errors.As(err, &p) || p.Op != op || p.Path != path || !errors.Is(err, want) {
		t.Errorf("%s: %v", what, err)
	}
}

// TestCloseWaits: a file that is closed while it is read answers every read with its bytes or with
// fs.ErrClosed, never with those of a file that got its number, and the directory may go first.
func TestCloseWaits(t *testing.T) {
	const readers = 16
	each(t, func(t *testing.T, o *OS) {
		other, err := o.Open("other", How{Create: true, Direct: true})
		if err != nil {
			t.Fatal(err)
		}
		zero := Aligned(Block)
		defer Free(zero)
		if _, err := other.WriteAt(zero, 0); err != nil {
			t.Fatal(err)
		}
		f := direct(t, o, Block)
		ones := Aligned(Block)
		defer Free(ones)
		for i := range ones {
			ones[i] = 1
		}
		if _, err := f.WriteAt(ones, 0); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var good atomic.Int64
		for range readers {
			all.Go(func() {
				b := Aligned(Block)
				defer Free(b)
				for {
					n, err := f.ReadAt(b, 0)
					if errors.Is(err, fs.ErrClosed) {
						return
					}
					if n != Block || err != nil || !bytes.Equal(b, ones) {
						t.Errorf("read %d, %v, begins with %d", n, err, b[0])
						return
					}
					good.Add(1)
				}
			})
		}
		for good.Load() < 2*readers && !t.Failed() {
			if _, err := other.ReadAt(zero, 0); err != nil {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		again, err := o.Open("other", How{Direct: true})
		if err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if err := o.Close(); err != nil { // files outlive it
			t.Error(err)
		}
		if n, err := again.ReadAt(zero, 0); n != Block || err != nil {
			t.Error(n, err)
		}
		if err := errors.Join(again.Close(), other.Close()); err != nil {
			t.Error(err)
		}
	})
}
