// Package tiertest is the conformance suite of tier.Directories and tier.Log: what every tier that
// outlives the daemon must do. It is used from tests only and knows no driver.
package tiertest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

// Opener opens the directories of one test; after Close it finds again what was left.
type Opener func() tier.Directories

// Maker makes a fresh place of so many bytes, and returns how to open it and what lies below it.
type Maker func(t *testing.T, quota int64) (Opener, vfs.FS)

// Run checks everything that a tier promises.
func Run(t *testing.T, make Maker) {
	for name, check := range map[string]func(*testing.T, Maker){
		"sizes":      checkSizes,
		"absent":     checkAbsent,
		"reopen":     checkReopen,
		"full":       checkFull,
		"concurrent": checkConcurrent,
		"corrupt":    checkCorrupt,
		"apart":      checkApart,
		"closed":     checkClosed,
	} {
		t.Run(name, func(t *testing.T) { check(t, make) })
	}
}

// Sizes are those of a dataset whose bytes are computed.
type Sizes []uint32

// Len is how many samples there are.
func (s Sizes) Len() int { return len(s) }

// Size is that of one of them.
func (s Sizes) Size(id sample.ID) uint32 { return s[id] }

// Mixed are n sizes: mostly small, some large enough to be read directly, some of no bytes.
func Mixed(n int, seed uint64) Sizes {
	r := rand.New(rand.NewPCG(seed, 1))
	sizes := make(Sizes, n)
	for i := range sizes {
		switch r.IntN(10) {
		case 0:
			sizes[i] = uint32(r.IntN(3))
		case 1:
			sizes[i] = 64<<10 + uint32(r.IntN(3*4096)) - 4096
		default:
			sizes[i] = uint32(r.IntN(9000))
		}
	}
	return sizes
}

// Fill writes the bytes of a sample.
func Fill(id sample.ID, dst []byte) {
	x := uint64(id)*0x9E3779B97F4A7C15 + 1
	for i := 0; i < len(dst); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], x)
		copy(dst[i:], word[:])
	}
}

// Bytes are those of a sample.
func (s Sizes) Bytes(id sample.ID) []byte {
	b := make([]byte, s[id])
	Fill(id, b)
	return b
}

// Config is that of a log of s; which tells datasets apart.
func (s Sizes) Config(which byte) tier.Config {
	return tier.Config{Content: [32]byte{which, 7}, Name: "test", Sizes: s, Layout: tier.Static}
}

// Open opens a log, or fails the test.
func Open(t testing.TB, d tier.Directories, c tier.Config) tier.Log {
	t.Helper()
	l, err := d.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Put appends a sample, as often as the log is busy.
func (s Sizes) Put(l tier.Log, id sample.ID) error {
	b := s.Bytes(id)
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := l.Append(0, id, b)
		if !errors.Is(err, tier.ErrBusy) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// PutAll appends every sample, or fails the test.
func (s Sizes) PutAll(t testing.TB, l tier.Log) {
	t.Helper()
	for id := range sample.ID(len(s)) {
		if err := s.Put(l, id); err != nil {
			t.Fatalf("Append %d: %v", id, err)
		}
	}
}

// GetIn reads one sample in an epoch. Wrong bytes fail the test.
func (s Sizes) GetIn(t testing.TB, l tier.Log, epoch int32, id sample.ID) error {
	t.Helper()
	reads := []tier.Read{{ID: id, Dst: make([]byte, s[id])}}
	l.Read(epoch, reads)
	s.check(t, reads[0])
	return reads[0].Err
}

// Get reads samples in one call and returns the error of each. Wrong bytes fail the test.
func (s Sizes) Get(t testing.TB, l tier.Log, ids ...sample.ID) []error {
	t.Helper()
	reads := make([]tier.Read, len(ids))
	for i, id := range ids {
		reads[i] = tier.Read{ID: id, Dst: make([]byte, s[id])}
	}
	l.Read(0, reads)
	errs := make([]error, len(ids))
	for i, r := range reads {
		errs[i] = r.Err
		s.check(t, r)
	}
	return errs
}

func (s Sizes) check(t testing.TB, r tier.Read) {
	t.Helper()
	if r.Err == nil && !bytes.Equal(r.Dst, s.Bytes(r.ID)) {
		t.Fatalf("sample %d of %d bytes came with other bytes", r.ID, len(r.Dst))
	}
}

// GetAll reads every sample, some in a call, and fails the test where one does not come.
func (s Sizes) GetAll(t testing.TB, l tier.Log) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(len(s)), 2))
	order := r.Perm(len(s))
	for len(order) > 0 {
		n := min(1+r.IntN(16), len(order))
		ids := make([]sample.ID, n)
		for i := range ids {
			ids[i] = sample.ID(order[i])
		}
		order = order[n:]
		for i, err := range s.Get(t, l, ids...) {
			if err != nil {
				t.Fatalf("Read %d: %v", ids[i], err)
			}
		}
	}
}

// Held counts the bits of a log's set, and fails the test where it has one too many.
func Held(t testing.TB, l tier.Log, samples int) int {
	t.Helper()
	n := 0
	for i := range 64 * len(l.Held()) {
		if l.Held()[i/64]>>(i%64)&1 == 1 {
			n++
			if i >= samples {
				t.Fatalf("sample %d of %d is held", i, samples)
			}
		}
	}
	return n
}

// Every size, read singly into memory that is aligned and memory that is not, before and after it
// has left the buffers.
func checkSizes(t *testing.T, make Maker) {
	opener, _ := make(t, 256<<20)
	var sizes Sizes
	for _, around := range []uint32{1, 512, 4096, 60000, 64 << 10, 100_000, 200 << 10, 1 << 20} {
		for _, off := range []uint32{0, 1, 31, 32, 33, 4064} {
			sizes = append(sizes, around+off-min(around, 1))
		}
	}
	sizes = append(sizes, 0, 0)
	d := opener()
	l := Open(t, d, sizes.Config(1))
	sizes.PutAll(t, l)
	if u := l.Usage(); u.Samples != int64(len(sizes)) || u.Capacity < u.Used {
		t.Errorf("usage %+v after %d samples", u, len(sizes))
	}
	for range 2 {
		buf := vfs.Aligned(2 << 20)
		for id := range sample.ID(len(sizes)) {
			for _, off := range []int{0, 64, 512} {
				r := []tier.Read{{ID: id, Dst: buf[off:][:sizes[id]]}}
				clear(r[0].Dst)
				if l.Read(0, r); r[0].Err != nil {
					t.Fatalf("Read of %d bytes at +%d: %v", sizes[id], off, r[0].Err)
				}
				sizes.check(t, r[0])
			}
		}
		vfs.Free(buf)
		sizes.GetAll(t, l)
		closeAll(t, l, d)
		d = opener()
		l = Open(t, d, sizes.Config(1))
	}
	closeAll(t, l, d)
}

func closeAll(t *testing.T, l tier.Log, d tier.Directories) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func checkAbsent(t *testing.T, make Maker) {
	opener, _ := make(t, 64<<20)
	sizes := Mixed(50, 3)
	d := opener()
	l := Open(t, d, sizes.Config(1))
	if Held(t, l, len(sizes)) != 0 {
		t.Error("a new log holds something")
	}
	for id := sample.ID(0); id < 50; id += 2 {
		if err := sizes.Put(l, id); err != nil {
			t.Fatal(err)
		}
		if err := sizes.Put(l, id); err != nil {
			t.Errorf("Append of what is held: %v", err)
		}
	}
	for i, err := range sizes.Get(t, l, 0, 1, 2, 3, 49, 48) {
		if absent := []bool{false, true, false, true, true, false}[i]; absent !=
			errors.Is(err, tier.ErrAbsent) || !absent && err != nil {
			t.Errorf("read %d: %v", i, err)
		}
	}
	if l.Append(0, 0, nil) == nil && sizes[0] != 0 || l.Append(0, 50, nil) == nil {
		t.Error("appended what is no sample of the dataset")
	}
	closeAll(t, l, d)
}

func checkReopen(t *testing.T, make Maker) {
	opener, _ := make(t, 256<<20)
	sizes := Mixed(900, 4)
	for part := range 3 {
		d := opener()
		l := Open(t, d, sizes.Config(1))
		if n := Held(t, l, len(sizes)); n != 300*part {
			t.Fatalf("%d samples held, want %d", n, 300*part)
		}
		for id := range sample.ID(300) {
			if err := sizes.Put(l, sample.ID(300*part)+id); err != nil {
				t.Fatal(err)
			}
		}
		sizes[:300*(part+1)].GetAll(t, l)
		closeAll(t, l, d)
	}
}

// A full log refuses, keeps what it has, and holds as much as it said it would.
func checkFull(t *testing.T, make Maker) {
	opener, _ := make(t, 8<<20)
	sizes := Mixed(3000, 5)
	d := opener()
	l := Open(t, d, sizes.Config(1))
	capacity := l.Usage().Capacity
	var held []sample.ID
	full := 0
	for id := range sample.ID(len(sizes)) {
		switch err := sizes.Put(l, id); {
		case err == nil:
			held = append(held, id)
		case errors.Is(err, tier.ErrFull):
			full++
		default:
			t.Fatal(err)
		}
		if full == 100 {
			break
		}
	}
	u := l.Usage()
	if full == 0 || u.Refused == 0 || u.Samples != int64(len(held)) || u.Disk > 8<<20 {
		t.Errorf("%d refused, %d held, usage %+v", full, len(held), u)
	}
	if u.Capacity != capacity || u.Used < capacity*95/100 {
		t.Errorf("holds %d of the %d bytes that it promised (now %d)", u.Used, capacity, u.Capacity)
	}
	for range 2 {
		for _, err := range sizes.Get(t, l, held...) {
			if err != nil {
				t.Fatal(err)
			}
		}
		closeAll(t, l, d)
		d = opener()
		l = Open(t, d, sizes.Config(1))
	}
	closeAll(t, l, d)
}

func checkConcurrent(t *testing.T, make Maker) {
	opener, _ := make(t, 256<<20)
	sizes := Mixed(1200, 6)
	d := opener()
	l := Open(t, d, sizes.Config(1))
	var all sync.WaitGroup
	for g := range sample.ID(4) {
		all.Go(func() {
			for id := g; id < 1200; id += 3 { // some are put twice
				if err := sizes.Put(l, id); err != nil {
					t.Errorf("Append %d: %v", id, err)
				}
				if err := sizes.Get(t, l, id)[0]; err != nil {
					t.Errorf("Read %d: %v", id, err)
				}
			}
		})
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 8))
			for range 300 {
				for _, err := range sizes.Get(t, l, sample.ID(r.IntN(1200)), sample.ID(r.IntN(1200))) {
					if err != nil && !errors.Is(err, tier.ErrAbsent) {
						t.Error(err)
					}
				}
				l.Usage()
				d.Usage()
			}
		})
	}
	all.Wait()
	sizes.GetAll(t, l)
	closeAll(t, l, d)
}

// Damaged bytes never come: the sample is absent or corrupt, and can be appended again.
func checkCorrupt(t *testing.T, make Maker) {
	opener, files := make(t, 64<<20)
	sizes := Mixed(400, 7)
	d := opener()
	l := Open(t, d, sizes.Config(1))
	sizes.PutAll(t, l)
	closeAll(t, l, d)
	Damage(t, files, 40)
	d = opener()
	l = Open(t, d, sizes.Config(1))
	lost := 0
	for id := range sample.ID(len(sizes)) {
		err := sizes.Get(t, l, id)[0]
		if err == nil {
			continue
		}
		lost++
		if errors.Is(err, tier.ErrDown) { // so much damage makes it careful
			continue
		}
		if !errors.Is(err, tier.ErrCorrupt) && !errors.Is(err, tier.ErrAbsent) {
			t.Fatalf("Read %d: %v", id, err)
		}
		if err := sizes.Get(t, l, id)[0]; !errors.Is(err, tier.ErrAbsent) {
			t.Errorf("a damaged record is still held: %v", err)
		}
	}
	if lost == 0 {
		t.Error("nothing was damaged")
	}
	closeAll(t, l, d)
}

// Damage flips bits all over the files below f.
func Damage(t testing.TB, f vfs.FS, flips int) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(flips), 9))
	folders, err := f.List(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !folder.Dir {
			continue
		}
		entries, err := f.List(folder.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			flip(t, f, folder.Name+"/"+e.Name, e.Bytes, flips, r)
		}
	}
}

// flip flips bits of a file where it is not zero, leaving its first and last block alone.
func flip(t testing.TB, f vfs.FS, name string, size int64, flips int, r *rand.Rand) {
	t.Helper()
	file, err := f.Open(name, vfs.How{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b := make([]byte, 1)
	for n := 0; n < flips; {
		at := vfs.Block + r.Int64N(size-2*vfs.Block)
		if _, err := file.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		if b[0] == 0 {
			n += r.IntN(2) // it may be zeros all over
			continue
		}
		b[0] ^= 1 << r.IntN(8)
		if _, err := file.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// Logs of two datasets in one place have nothing to do with each other, and no log is open twice.
func checkApart(t *testing.T, make Maker) {
	opener, _ := make(t, 64<<20)
	one, two := Mixed(60, 10), Mixed(80, 11)
	d := opener()
	a, b := Open(t, d, one.Config(1)), Open(t, d, two.Config(2))
	if _, err := d.Open(one.Config(1)); err == nil {
		t.Error("a log was opened twice")
	}
	one.PutAll(t, a)
	two.PutAll(t, b)
	one.GetAll(t, a)
	two.GetAll(t, b)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = Open(t, d, one.Config(1))
	one.GetAll(t, a)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	closeAll(t, a, d)
}

func checkClosed(t *testing.T, make Maker) {
	opener, _ := make(t, 64<<20)
	sizes := Mixed(10, 12)
	d := opener()
	l := Open(t, d, sizes.Config(1))
	sizes.PutAll(t, l)
	closeAll(t, l, d)
	if err := l.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if l.Append(0, 1, sizes.Bytes(1)) == nil || sizes.Get(t, l, 1)[0] == nil {
		t.Error("a closed log is read or written")
	}
	if _, err := d.Open(sizes.Config(1)); err == nil {
		t.Error("closed directories opened a log")
	}
}
