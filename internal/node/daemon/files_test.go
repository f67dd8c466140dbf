package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/xxh3"

	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/store/catalog"
)

// content is what a file of that name and size holds in a version.
func content(name string, version uint64, size int) []byte {
	b := make([]byte, size)
	key := xxh3.HashStringSeed(name, version)
	for i := range b {
		b[i] = byte(key >> (8 * (i & 7)))
		if i&7 == 7 {
			key = key*6364136223846793005 + 1442695040888963407
		}
	}
	return b
}

// files is a folder of samples on disk; the test may change it.
type files struct {
	dir     string
	sizes   map[string]int
	version uint64
}

func makeFiles(t *testing.T, sizes map[string]int) *files {
	t.Helper()
	f := &files{dir: t.TempDir(), sizes: sizes, version: 1}
	for name := range sizes {
		f.write(t, name)
	}
	return f
}

func (f *files) write(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content(name, f.version, f.sizes[name]), 0o600); err != nil {
		t.Fatal(err)
	}
}

// addFiles adds a folder; wrap is "" or "throttle+…" with its parameters in query.
func (n *node) addFiles(name string, f *files, fields ...string) data {
	n.t.Helper()
	info := n.add(name, f.dir, fields...)
	c, err := catalog.New(n.dir, n.openOrigin).Open(name)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	// Made once: it costs more than reading.
	contents := map[string][]byte{}
	for part, size := range f.sizes {
		contents[part] = content(part, f.version, size)
	}
	version := f.version
	return data{name: name, len: info.Samples, bytes: info.Bytes,
		check: func(id sample.ID, got []byte) error {
			rest := got
			for _, p := range c.Manifest.Parts(id, nil) {
				want := contents[p.Name]
				if len(rest) < len(want) || !bytes.Equal(rest[:len(want)], want) {
					return fmt.Errorf("part %s of sample %d is not that of version %d",
						p.Name, id, version)
				}
				rest = rest[len(want):]
			}
			if len(rest) > 0 {
				return fmt.Errorf("sample %d is %d bytes too long", id, len(rest))
			}
			return nil
		}}
}

// someFiles are many files of one size.
func someFiles(count, size int) map[string]int {
	sizes := map[string]int{}
	for i := range count {
		sizes[fmt.Sprintf("c%d/%05d.bin", i%3, i)] = size
	}
	return sizes
}

// TestOddSizes: empty samples, samples longer than a span, longer than a slab would be, and all
// between, under a fixed and a valued policy, scattered and packed.
func TestOddSizes(t *testing.T) {
	sizes := map[string]int{}
	for i := range 60 {
		sizes[fmt.Sprintf("a/%03d.bin", i)] = []int{0, 1, 63, 64, 65, 5000, 100_000, 700_001}[i%8]
	}
	sizes["a/big0.bin"] = 5 * mib
	sizes["a/big1.bin"] = 5*mib + 1
	sizes["a/huge.bin"] = 18 * mib
	f := makeFiles(t, sizes)
	n := start(t, 80*mib, func(c *config) { c.Staging = 30 * mib })
	d := n.addFiles("odd", f)
	for _, packed := range []bool{false, true} {
		for _, rule := range []string{"spread", "lru"} {
			at := d.attach(order.Random, 5, 2)
			at.Policy, at.Packed = rule, packed
			n.mustRead(reading{Attach: at, data: d, depth: 2})
			n.quiet("odd")
		}
	}
}

func TestFields(t *testing.T) {
	sizes := map[string]int{}
	for i := range 200 {
		sizes[fmt.Sprintf("%04d.jpg", i)] = 3000 + i
		sizes[fmt.Sprintf("%04d.mask", i)] = i % 7 * 100
	}
	n := start(t, 32*mib, nil)
	d := n.addFiles("pairs", makeFiles(t, sizes), "jpg=*.jpg", "mask=*.mask")
	for _, packed := range []bool{false, true} {
		at := d.attach(order.Random, 9, 2)
		at.Packed = packed
		n.mustRead(reading{Attach: at, data: d, each: func(b *batch) bool {
			if b.Fields() != 2 {
				t.Fatalf("a sample has %d fields", b.Fields())
			}
			for i := range b.Len() {
				image, mask := fmt.Sprintf("%04d.jpg", b.ID(i)), fmt.Sprintf("%04d.mask", b.ID(i))
				if !bytes.Equal(b.Field(i, 0), content(image, 1, sizes[image])) ||
					!bytes.Equal(b.Field(i, 1), content(mask, 1, sizes[mask])) {
					t.Fatalf("the fields of sample %d are not its files", b.ID(i))
				}
			}
			return true
		}})
	}
	n.quiet("pairs")
}

// TestScannedAnew: a dataset that is added again with other content is read as it is now, once
// nobody reads what it was.
func TestScannedAnew(t *testing.T) {
	f := makeFiles(t, someFiles(60, 4000))
	n := start(t, 32*mib, nil)
	old := n.addFiles("d", f)
	n.mustRead(reading{Attach: old.attach(order.Random, 8, 2), data: old})

	f.version = 2
	for name := range f.sizes {
		f.sizes[name] = 5000
		f.write(t, name)
	}
	now := n.addFiles("d", f)
	var readings []reading
	for rank := range 8 { // together: none may be refused for another that wants the same
		at := now.attach(order.Distributed, 4, 2)
		at.Rank, at.Order.World = rank, 8
		readings = append(readings, reading{Attach: at, data: now})
	}
	n.together(readings...)

	s, err := n.client.Open(context.Background(), now.attach(order.Random, 8, 2))
	if err != nil {
		t.Fatal(err)
	}
	f.version = 3
	for name := range f.sizes {
		f.sizes[name] = 6000
		f.write(t, name)
	}
	third := n.addFiles("d", f)
	_, err = n.client.Open(context.Background(), third.attach(order.Random, 8, 2))
	wantError(t, err, codeBadRequest, "scanned anew")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	n.mustRead(reading{Attach: third.attach(order.Random, 8, 2), data: third})
}
