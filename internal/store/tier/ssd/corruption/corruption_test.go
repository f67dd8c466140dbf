// Package corruption is the corruption matrix of package ssd: every region of a log × every kind of
// damage, before it is opened and while it is open. Whatever lies on the device, a read gives the
// right bytes or an error, and no sample is lost whose own record is whole.
package corruption

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/tier/ssd"
	"belady/internal/store/vfs"
	"belady/internal/store/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// image is a log as bytes: its files by name.
type image map[string][]byte

func (m image) clone() image {
	c := image{}
	for name, b := range m {
		c[name] = bytes.Clone(b)
	}
	return c
}

func (m image) names() []string { return slices.Sorted(maps.Keys(m)) }

// onto writes the image to a fresh file system.
func (m image) onto(t testing.TB) *vfstest.Crash {
	t.Helper()
	disk := vfstest.NewCrash(1)
	for _, name := range m.names() {
		f, err := disk.Open(name, vfs.How{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		put := func([]byte) []byte { return bytes.Clone(m[name]) }
		if err := errors.Join(f.Close(), disk.Change(name, put)); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// part is a stretch of one file, in some region of it.
type part struct {
	file     string
	from, to int
}

// record is where a sample's authoritative record lies.
type record struct {
	part
	slotEnd int
	tag     segment.Tag
}

// damaged is one log to be damaged.
type damaged struct {
	layout  tier.Layout
	slot    int64 // bytes
	sizes   matrixSizes
	bytes   [][]byte // of the samples
	whole   image
	regions map[string][]part
	records map[sample.ID]record
}

type matrixSizes []uint32

func (s matrixSizes) Len() int                 { return len(s) }
func (s matrixSizes) Size(id sample.ID) uint32 { return s[id] }

func matrixBytes(id sample.ID, length uint32) []byte {
	b := make([]byte, length)
	rand.NewChaCha8([32]byte{byte(id), 7}).Read(b)
	return b
}

func (d *damaged) open(t testing.TB, disk vfs.FS) (tier.Log, func()) {
	t.Helper()
	disks, err := ssd.Open(ssd.Options{Dirs: []ssd.Dir{{Path: "disk", Quota: 64 << 20}}, Free: 1,
		FS: func(string) (vfs.FS, error) { return disk, nil }})
	if err != nil {
		t.Fatal(err)
	}
	log, err := disks.Open(tier.Config{Content: [32]byte{5}, Name: "matrix", Sizes: d.sizes,
		Layout: d.layout, SlotBytes: d.slot})
	if err != nil {
		t.Fatal(err)
	}
	return log, func() {
		if err := errors.Join(log.Close(), disks.Close()); err != nil {
			t.Error(err)
		}
	}
}

func (d *damaged) appendAll(t testing.TB, log tier.Log, epoch int) {
	t.Helper()
	for id := range sample.ID(len(d.sizes)) {
		err := error(tier.ErrBusy)
		for end := time.Now().Add(20 * time.Second); errors.Is(err, tier.ErrBusy); {
			if err = log.Append(int32(epoch), id, d.bytes[id]); time.Now().After(end) {
				t.Fatal("the log stays busy")
			}
			if err != nil {
				time.Sleep(time.Millisecond)
			}
		}
		if err != nil {
			t.Fatalf("sample %d: %v", id, err)
		}
	}
}

// epochs is how often a carried log was read before it is damaged.
const epochs = 3

// follow lets the log be carried to an epoch, if it is one to be carried.
func (d *damaged) follow(t testing.TB, log tier.Log, epoch int) {
	t.Helper()
	if d.layout != tier.Carry {
		return
	}
	buckets := make([]uint16, len(d.sizes))
	for at, id := range rand.New(rand.NewPCG(uint64(epoch), 9)).Perm(len(buckets)) {
		buckets[id] = uint16(at / 40)
	}
	if err := log.(tier.Follower).Follow(77, epoch, buckets); err != nil {
		t.Fatal(err)
	}
}

// newDamaged fills a log, carries it for some epochs if it is one to be carried, and finds its
// regions.
func newDamaged(t *testing.T, layout tier.Layout) *damaged {
	t.Helper()
	d := &damaged{layout: layout, slot: 256 << 10}
	for id := range 160 {
		d.sizes = append(d.sizes, []uint32{40, 700, 3000, 20000, 70000}[id%5])
	}
	d.fill(t)
	if len(d.whole) < 3 {
		t.Fatalf("only %d segments", len(d.whole))
	}
	return d
}

func (d *damaged) fill(t testing.TB) {
	t.Helper()
	d.whole, d.regions, d.records = image{}, map[string][]part{}, map[sample.ID]record{}
	for id, size := range d.sizes {
		d.bytes = append(d.bytes, matrixBytes(sample.ID(id), size))
	}
	disk := vfstest.NewCrash(1)
	log, done := d.open(t, disk)
	for epoch := range epochs {
		d.follow(t, log, epoch+1)
		d.appendAll(t, log, epoch)
	}
	done()
	folders, err := disk.List(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !folder.Dir {
			continue
		}
		files, err := disk.List(folder.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name := path.Join(folder.Name, f.Name)
			disk.Change(name, func(b []byte) []byte { d.whole[name] = bytes.Clone(b); return b })
			d.survey(t, name, d.whole[name])
		}
	}
	if len(d.records) != len(d.sizes) {
		t.Fatalf("%d of %d samples", len(d.records), len(d.sizes))
	}
	for id, r := range d.records {
		if carried := r.tag.Order == 77 && r.tag.Epoch == epochs; carried != (d.layout == tier.Carry) {
			t.Fatalf("sample %d lies in a slot of %+v", id, r.tag)
		}
	}
}

// survey finds the regions of a segment.
func (d *damaged) survey(t testing.TB, name string, b []byte) {
	t.Helper()
	h, err := segment.ParseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	add := func(region string, from, to int) {
		if to > from {
			d.regions[region] = append(d.regions[region], part{name, from, to})
		}
	}
	add("first header", 0, segment.HeaderBytes)
	add("second header", len(b)-segment.HeaderBytes, len(b))
	for slot := range h.Slots {
		at, end := int(h.SlotAt(slot)), int(h.SlotAt(slot+1))
		f, err := segment.ParseFooter(h.Bind(slot), h.SlotBytes, b[at:end])
		if errors.Is(err, segment.ErrBlank) {
			add("unused slot", at, end)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		footer := end - segment.Trailer - 16*len(f.Entries)
		add("slot header", at, at+segment.SlotHeader)
		add("gap", at+int(f.Used), footer)
		add("footer entries", footer, end-segment.Trailer)
		add("trailer", end-segment.Trailer, end)
		for _, e := range f.Entries {
			from := at + int(e.At)
			to := from + segment.RecordHeader + int(e.Length)
			add("record header", from, from+segment.RecordHeader)
			if e.Length < segment.DirectSize {
				add("small sample", from+segment.RecordHeader, to)
			} else {
				add("large sample", from+segment.RecordHeader, to)
			}
			if f.Generation > d.records[e.ID].tag.Generation { // the authoritative one
				d.records[e.ID] = record{part{name, from, to}, end, f.Tag}
			}
		}
	}
}

// mayLose tells whether the damage touched a sample's record, or all of its segment.
func (d *damaged) mayLose(id sample.ID, now image) bool {
	r := d.records[id]
	b, was := now[r.file], d.whole[r.file]
	if len(b) < r.slotEnd || !bytes.Equal(b[r.from:r.to], was[r.from:r.to]) {
		return true
	}
	second := len(was) - segment.HeaderBytes
	return !bytes.Equal(b[:segment.HeaderBytes], was[:segment.HeaderBytes]) &&
		(len(b) < len(was) || !bytes.Equal(b[second:len(was)], was[second:]))
}

// block is the block around a random byte of p.
func block(r *rand.Rand, p part) (from, to int) {
	from = (p.from + r.IntN(p.to-p.from)) / segment.Block * segment.Block
	return from, from + segment.Block
}

// kinds of damage to one part. Each changes the image in place.
var kinds = map[string]func(r *rand.Rand, m image, p part){
	"bit": func(r *rand.Rand, m image, p part) {
		m[p.file][p.from+r.IntN(p.to-p.from)] ^= 1 << r.IntN(8)
	},
	"zeros": func(r *rand.Rand, m image, p part) {
		from, to := block(r, p)
		clear(m[p.file][from:to])
	},
	"noise": func(r *rand.Rand, m image, p part) {
		from, to := block(r, p)
		for i := from; i < to; i++ {
			m[p.file][i] = byte(r.Uint32())
		}
	},
	"misplaced block": func(r *rand.Rand, m image, p part) { // lands on another one, of any file
		from, to := block(r, p)
		other := m[m.names()[r.IntN(len(m))]]
		at := r.IntN(len(other)/segment.Block) * segment.Block
		copy(other[at:], bytes.Clone(m[p.file][from:to]))
	},
	"swapped blocks": func(r *rand.Rand, m image, p part) {
		from, to := block(r, p)
		other := m[m.names()[r.IntN(len(m))]]
		at := r.IntN(len(other)/segment.Block) * segment.Block
		was := bytes.Clone(other[at : at+segment.Block])
		copy(other[at:], bytes.Clone(m[p.file][from:to]))
		copy(m[p.file][from:], was)
	},
	"cut off": func(r *rand.Rand, m image, p part) {
		m[p.file] = m[p.file][:p.from+r.IntN(p.to-p.from)]
	},
	"lost sector": func(r *rand.Rand, m image, p part) {
		at := (p.from + r.IntN(p.to-p.from)) / 512 * 512
		clear(m[p.file][at : at+512])
	},
}

// wholes are kinds of damage to whole slots and files.
var wholes = map[string]func(r *rand.Rand, m image){
	"nothing": func(*rand.Rand, image) {},
	"swapped slots": func(r *rand.Rand, m image) {
		b := m[m.names()[0]]
		h, _ := segment.ParseHeader(b)
		one := b[h.SlotAt(0):h.SlotAt(1)]
		two := b[h.SlotAt(1):h.SlotAt(2)]
		was := bytes.Clone(one)
		copy(one, two)
		copy(two, was)
	},
	"a slot twice": func(r *rand.Rand, m image) {
		b := m[m.names()[0]]
		h, _ := segment.ParseHeader(b)
		copy(b[h.SlotAt(1):h.SlotAt(2)], b[h.SlotAt(0):h.SlotAt(1)])
	},
	"a slot in another segment": func(r *rand.Rand, m image) {
		from, to := m[m.names()[0]], m[m.names()[1]]
		h, _ := segment.ParseHeader(from)
		copy(to[h.SlotAt(0):h.SlotAt(1)], from[h.SlotAt(0):h.SlotAt(1)])
	},
	"no footers": func(r *rand.Rand, m image) {
		for _, b := range m {
			h, _ := segment.ParseHeader(b)
			for slot := range h.Slots {
				clear(b[h.SlotAt(slot+1)-segment.Trailer : h.SlotAt(slot+1)])
			}
		}
	},
	"no slot headers": func(r *rand.Rand, m image) {
		for _, b := range m {
			h, _ := segment.ParseHeader(b)
			for slot := range h.Slots {
				clear(b[h.SlotAt(slot):][:segment.SlotHeader])
			}
		}
	},
	"both headers": func(r *rand.Rand, m image) {
		b := m[m.names()[0]]
		b[20] ^= 1
		b[len(b)-100] ^= 1
	},
	"segments swapped": func(r *rand.Rand, m image) {
		a, b := m.names()[0], m.names()[1]
		m[a], m[b] = m[b], m[a]
	},
	"a segment twice": func(r *rand.Rand, m image) {
		name := m.names()[0]
		m[path.Join(path.Dir(name), "00000099.seg")] = bytes.Clone(m[name])
	},
	"a segment gone":  func(r *rand.Rand, m image) { delete(m, m.names()[0]) },
	"a segment empty": func(r *rand.Rand, m image) { m[m.names()[0]] = nil },
	"a segment blank": func(r *rand.Rand, m image) { clear(m[m.names()[0]]) },
	"a segment longer": func(r *rand.Rand, m image) {
		m[m.names()[0]] = append(m[m.names()[0]], make([]byte, 10000)...)
	},
	"foreign files": func(r *rand.Rand, m image) {
		folder := path.Dir(m.names()[0])
		m[folder+"/00000050.seg"] = []byte("somebody's thesis")
		m[folder+"/00000051.seg"] = bytes.Repeat([]byte("x"), 100000)
		m[folder+"/thesis.doc"] = []byte("somebody's thesis")
		m["photos/1.jpg"] = []byte("a photo")
	},
	"another version": func(r *rand.Rand, m image) {
		b := m[m.names()[0]]
		b[8], b[len(b)-segment.HeaderBytes+8] = 2, 2
	},
}

// read reads every sample in random sequence and checks that it has the right bytes, or an error.
// It returns what was not read.
func (d *damaged) read(t testing.TB, r *rand.Rand, log tier.Log) (lost []sample.ID, down int) {
	t.Helper()
	for _, id := range r.Perm(len(d.sizes)) {
		want := d.bytes[id]
		room := vfs.Aligned((len(want) + vfs.Block - 1) / vfs.Block * vfs.Block)
		reads := []tier.Read{{ID: sample.ID(id), Dst: room[:len(want)]}}
		if r.IntN(2) == 0 {
			reads[0].Dst = make([]byte, len(want))
		}
		log.Read(epochs, reads)
		switch err := reads[0].Err; {
		case err == nil && !bytes.Equal(reads[0].Dst, want):
			t.Errorf("sample %d has WRONG BYTES", id)
		case err == nil:
		case errors.Is(err, tier.ErrAbsent) || errors.Is(err, tier.ErrCorrupt):
			lost = append(lost, sample.ID(id))
		case errors.Is(err, tier.ErrDown):
			down++
		default:
			t.Errorf("sample %d: %v", id, err)
		}
		vfs.Free(room)
	}
	return lost, down
}

// check opens a damaged log, or damages an open one, and reads all of it, twice: what is lost stays
// lost, what is there stays there. It returns how many are lost.
func (d *damaged) check(t *testing.T, now image, seed uint64, alive bool) int {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	disk := now.onto(t)
	if alive {
		disk = d.whole.onto(t)
	}
	log, done := d.open(t, disk)
	defer done()
	d.follow(t, log, epochs+1)
	if alive {
		for name, b := range now {
			disk.Change(name, func([]byte) []byte { return bytes.Clone(b) }) // new names stay away
		}
	}
	lost, down := d.read(t, r, log)
	// What is scanned beside the work comes a little later.
	unexplained := func(id sample.ID) bool { return !d.mayLose(id, now) }
	for end := time.Now().Add(10 * time.Second); slices.ContainsFunc(lost, unexplained) &&
		time.Now().Before(end); time.Sleep(time.Millisecond) {
		lost, down = d.read(t, r, log)
	}
	for _, id := range lost {
		if unexplained(id) {
			t.Errorf("sample %d is lost, though its record is whole: %+v", id, d.records[id])
		}
	}
	if down > 0 && !alive {
		t.Errorf("%d reads were refused", down)
	}
	if again, _ := d.read(t, r, log); len(again) != len(lost) && down == 0 {
		t.Errorf("%d samples are lost, and then %d", len(lost), len(again))
	}
	return len(lost)
}

func TestCorruptionMatrix(t *testing.T) {
	for _, layout := range []tier.Layout{tier.Static, tier.Carry} {
		t.Run(string(layout), func(t *testing.T) { newDamaged(t, layout).matrix(t) })
	}
}

func (d *damaged) matrix(t *testing.T) {
	seed := uint64(0)
	for _, region := range slices.Sorted(maps.Keys(d.regions)) {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			seed++
			t.Run(strings.ReplaceAll(region+"/"+kind, " ", "_"), func(t *testing.T) {
				for i := range uint64(4) {
					r := rand.New(rand.NewPCG(seed, i))
					parts := d.regions[region]
					now := d.whole.clone()
					kinds[kind](r, now, parts[r.IntN(len(parts))])
					lost := d.check(t, now, seed, i%2 == 1)
					// Some records of a carried log are dead, and cost nothing.
					ofSample := strings.HasSuffix(region, "sample")
					if kind == "bit" && (lost > 1 || lost == 1 && !ofSample ||
						lost == 0 && ofSample && d.layout == tier.Static) {
						t.Errorf("one bit of a %s cost %d samples", region, lost)
					}
				}
			})
		}
	}
}

// harmless are those of wholes that a log is opened from without any loss.
var harmless = []string{"nothing", "no footers", "no slot headers", "segments swapped",
	"a segment twice", "a segment longer", "foreign files"}

func TestCorruptWholes(t *testing.T) {
	for _, layout := range []tier.Layout{tier.Static, tier.Carry} {
		t.Run(string(layout), func(t *testing.T) { newDamaged(t, layout).wholes(t) })
	}
}

func (d *damaged) wholes(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(wholes)) {
		t.Run(strings.ReplaceAll(kind, " ", "_"), func(t *testing.T) {
			for seed := range uint64(2) {
				now := d.whole.clone()
				wholes[kind](rand.New(rand.NewPCG(seed, 3)), now)
				lost := d.check(t, now, seed, seed == 1)
				if seed == 0 && lost > 0 && slices.Contains(harmless, kind) {
					t.Errorf("%d samples are lost", lost)
				}
			}
		})
	}
}

// TestDamageIsRepaired: what was lost can be appended again, is read, and is found after the next
// opening; foreign files are as they were.
func TestDamageIsRepaired(t *testing.T) {
	d := newDamaged(t, tier.Static)
	now := d.whole.clone()
	wholes["foreign files"](nil, now)
	foreign := map[string][]byte{}
	for name, b := range now {
		if d.whole[name] == nil {
			foreign[name] = bytes.Clone(b)
		}
	}
	wholes["a slot twice"](nil, now)
	kinds["bit"](rand.New(rand.NewPCG(1, 1)), now, d.regions["small sample"][2])
	disk := now.onto(t)
	log, done := d.open(t, disk)
	lost, _ := d.read(t, rand.New(rand.NewPCG(1, 1)), log)
	if len(lost) < 2 {
		t.Fatalf("only %d samples are lost", len(lost))
	}
	d.appendAll(t, log, epochs)
	if still, _ := d.read(t, rand.New(rand.NewPCG(1, 2)), log); len(still) > 0 {
		t.Errorf("still lost: %v", still)
	}
	done()
	log, done = d.open(t, disk)
	if still, _ := d.read(t, rand.New(rand.NewPCG(1, 3)), log); len(still) > 0 {
		t.Errorf("lost after the next opening: %v", still)
	}
	done()
	for name, want := range foreign {
		err := disk.Change(name, func(b []byte) []byte {
			if !bytes.Equal(b, want) {
				t.Errorf("%s was changed", name)
			}
			return b
		})
		if err != nil {
			t.Error(err)
		}
	}
}
