package ssd

import (
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/tier"
	"belady/internal/store/tier/tiertest"
	"belady/internal/store/vfs"
	"belady/internal/store/vfs/vfstest"
)

// job reads a dataset epoch by epoch, each in another sequence.
type job struct {
	sizes tiertest.Sizes
	order uint64
}

func (j job) epoch(e int) []int {
	return rand.New(rand.NewPCG(uint64(e), j.order)).Perm(len(j.sizes))
}

// buckets deals an epoch into stretches of so many bytes.
func (j job) buckets(e int, bytes int64) []uint16 {
	of := make([]uint16, len(j.sizes))
	sum := int64(0)
	for _, id := range j.epoch(e) {
		of[id] = uint16(sum / bytes)
		sum += int64(j.sizes[id])
	}
	return of
}

func (j job) follow(t testing.TB, l *log, e int) {
	t.Helper()
	if err := l.Follow(j.order, e, j.buckets(e, l.BucketBytes())); err != nil {
		t.Fatal(err)
	}
}

// read does what a rank's fetch does: read from the log, or the origin, and carry.
func (j job) read(t testing.TB, l *log, e int, id sample.ID) (hit bool) {
	t.Helper()
	err := j.sizes.GetIn(t, l, int32(e), id)
	if err != nil && !errors.Is(err, tier.ErrAbsent) {
		t.Errorf("Read %d: %v", id, err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if !errors.Is(l.Append(int32(e), id, j.sizes.Bytes(id)), tier.ErrBusy) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return err == nil
}

// Several epochs are carried within little more than the dataset: all samples come from the log,
// most of them with their buckets.
func TestCarry(t *testing.T) { testCarry(t, 4, 0, 0) }

// Samples that an epoch leaves out, each time others, do not keep the slots they lie in.
func TestCarryWithLeftovers(t *testing.T) { testCarry(t, 5, 0.1, 0) }

// Orders are known epochs ahead, and the next epoch is begun before the last samples of one are
// read: none of them is lost to its bucket.
func TestCarryAhead(t *testing.T) { testCarry(t, 5, 0.1, 2) }

// testCarry reads epochs one behind the other without a pause, and leaves a share of each out. The
// buckets of so many epochs more than needed are known ahead.
func testCarry(t *testing.T, epochs int, out float64, ahead int) {
	j := job{make(tiertest.Sizes, 12_000), 77}
	total := int64(0)
	for i := range j.sizes {
		j.sizes[i] = uint32(2000 + i*7919%2000)
		total += int64(j.sizes[i])
	}
	d := open(t, total*140/100, folderFS(t))
	config := j.sizes.Config(1)
	config.Layout, config.SlotBytes = tier.Carry, 64<<10
	d.dirs[0].wear = 1 << 40
	l := tiertest.Open(t, d, config).(*log)
	for e := range ahead + 1 {
		j.follow(t, l, e+1)
	}
	next := make(chan [2]int) // epoch and sample
	var misses atomic.Int64
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for one := range next {
				if hit := j.read(t, l, one[0], sample.ID(one[1])); !hit && one[0] > 0 {
					misses.Add(1)
				}
			}
		})
	}
	for e := range epochs {
		if e > 0 {
			j.follow(t, l, e+1+ahead)
		}
		read := 0
		for _, id := range j.epoch(e) {
			if e == 0 || rand.Float64() >= out {
				next <- [2]int{e, id}
				read++
			}
		}
		t.Logf("epoch %d: %d misses, %d with their buckets, usage %+v", e, misses.Load(),
			l.counts.bucketed.Load(), l.Usage())
		if n := l.counts.bucketed.Swap(0); e > 1 && n < int64(read)*9/10 {
			t.Errorf("epoch %d: only %d of %d samples came with their buckets", e, n, read)
		}
	}
	close(next)
	readers.Wait()
	if n := misses.Load(); n > 0 {
		t.Errorf("%d samples were read from the origin again", n)
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// A log that was carried to the end of a job is followed by the same job from its beginning, and by
// one in another order, and none of them waits for slots that do not fall free.
func TestCarryAgain(t *testing.T) {
	first := newCarrier(t, 77, 3.0)
	defer first.close()
	for _, order := range []uint64{77, 77, 78} {
		first.order = order
		bucketed := int64(0)
		for e := range 2 { // known ahead, as the world has it
			first.job.follow(t, first.log, e+1)
		}
		for e := range 4 {
			first.job.follow(t, first.log, e+3)
			first.readAll(e)
			bucketed = first.counts.bucketed.Swap(0)
		}
		if n := int64(len(first.sizes)); bucketed < n*9/10 {
			t.Errorf("order %d: only %d of %d samples came with their buckets", order, bucketed, n)
		}
		first.Unfollow()
		for wait := 0; first.Usage().Pending > 0 && wait < 1000; wait++ {
			time.Sleep(10 * time.Millisecond) // the next job comes later
		}
	}
}

// carrier is a job with a log of its own.
type carrier struct {
	job
	*log
	t     *testing.T
	disks *Disks
}

// newCarrier opens a log of that share of the dataset's bytes.
func newCarrier(t *testing.T, order uint64, share float64) *carrier {
	c := &carrier{t: t, job: job{make(tiertest.Sizes, 6000), order}}
	total := int64(0)
	for i := range c.sizes {
		c.sizes[i] = uint32(2000 + i*7919%2000)
		total += int64(c.sizes[i])
	}
	c.disks = open(t, int64(float64(total)*share), folderFS(t))
	config := c.sizes.Config(1)
	config.Layout, config.SlotBytes = tier.Carry, 64<<10
	c.disks.dirs[0].wear = 1 << 40
	c.log = tiertest.Open(t, c.disks, config).(*log)
	return c
}

func (c *carrier) readAll(e int) {
	ids := make(chan int)
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for id := range ids {
				c.read(c.t, c.log, e, sample.ID(id))
			}
		})
	}
	for _, id := range c.epoch(e) {
		ids <- id
	}
	close(ids)
	readers.Wait()
}

func (c *carrier) close() {
	if err := errors.Join(c.log.Close(), c.disks.Close()); err != nil {
		c.t.Error(err)
	}
}

// A slot of another size, which another layout has left, is never written to: it would reach into
// its neighbour.
func TestForeignSlotsStay(t *testing.T) {
	d := open(t, 64<<20, folderFS(t))
	sizes := tiertest.Mixed(200, 20)
	config := sizes.Config(1)
	config.SlotBytes = 256 << 10
	l := tiertest.Open(t, d, config).(*log)
	for id := range sample.ID(len(sizes)) {
		for errors.Is(l.Append(0, id, sizes.Bytes(id)), tier.ErrBusy) {
			time.Sleep(time.Millisecond)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	config.SlotBytes = 512 << 10
	l = tiertest.Open(t, d, config).(*log)
	for id := range sample.ID(len(sizes)) {
		p, _ := l.index.get(id)
		l.drop(id, p)
	}
	for _, w := range l.writers {
		w.mu.Lock()
		for _, ref := range w.free {
			if ref.file.header.SlotBytes != l.shape.slotBytes {
				t.Errorf("slot %d of %s, %d bytes, is free for %d", ref.slot, ref.file.name,
					ref.file.header.SlotBytes, l.shape.slotBytes)
			}
		}
		w.mu.Unlock()
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// As TestPowerCuts, with a job that carries the log along its order.
func TestCarryPowerCuts(t *testing.T) {
	seeds := crashSeeds(t) / 3 // each is longer
	var far atomic.Uint64
	t.Cleanup(func() {
		if n := far.Load(); n < seeds/2 {
			t.Errorf("only %d of %d histories were carried over two epochs and more", n, seeds)
		}
	})
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		h := newHistory(t, seed)
		h.config.Layout = tier.Carry
		h.config.SlotBytes = 128 << 10
		c := carried{history: h, job: job{h.sizes, 1 + seed}}
		for range 4 {
			c.live()
		}
		if c.e >= 2 {
			far.Add(1)
		}
	})
}

// carried is a history of a log that is carried.
type carried struct {
	*history
	job
	e, at int // where the job is
}

func (c *carried) live() {
	var under []vfs.FS
	for _, f := range c.files {
		under = append(under, f)
	}
	d, time := stepped(c.t, 6<<20, under...)
	opened, err := d.Open(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	l := opened.(*log)
	c.check(l)
	c.follow(c.t, l, c.e+1)
	if c.r.IntN(5) > 0 {
		c.cutSoon(120)
	}
	for n := 100 + c.r.IntN(800); n > 0 && !c.cut(); n-- {
		c.step(l, time)
	}
	if !c.cut() && c.r.IntN(3) == 0 {
		c.heal()
		if err := l.Close(); err != nil {
			c.t.Error(err)
		}
		c.note(l)
	}
	c.at = c.r.IntN(c.at + 1) // an older checkpoint is resumed
	for i, f := range c.files {
		c.files[i] = f.Cut()
	}
	_, _ = l.Close(), d.Close() // of a machine without power
}

// step reads the next sample of the job, and lets the writers work now and then.
func (c *carried) step(l *log, at *clock) {
	if c.at == len(c.history.sizes) {
		c.e, c.at = c.e+1, 0
		c.follow(c.t, l, c.e+1)
	}
	id := sample.ID(c.epoch(c.e)[c.at])
	c.at++
	held := l.holds(id)
	err := c.history.sizes.GetIn(c.t, l, int32(c.e), id)
	if err != nil && held && !c.cut() {
		c.t.Errorf("Read %d: %v", id, err)
	}
	err = l.Append(int32(c.e), id, c.history.sizes.Bytes(id))
	if errors.Is(err, tier.ErrBusy) {
		l.work()
		_ = l.Append(int32(c.e), id, c.history.sizes.Bytes(id))
	}
	if c.r.IntN(10) == 0 {
		at.advance(5 * syncAge / 20)
		l.work()
		c.note(l)
	}
}

func (l *log) holds(id sample.ID) bool {
	p, _ := l.index.get(id)
	return p != 0
}

// A device that fails while samples are carried, or a file system that refuses, costs only what had
// no other copy.
func TestCarryFails(t *testing.T) {
	now := func(op vfstest.Op) []vfstest.Rule {
		return []vfstest.Rule{{Op: op, Name: "*.seg", From: 3, Every: 4, Err: syscall.EIO}}
	}
	faults := map[string][]vfstest.Rule{"sync": now(vfstest.Sync), "write": now(vfstest.WriteAt)}
	maps.Copy(faults, refusals)
	for name, rules := range faults {
		t.Run(name, func(t *testing.T) {
			p := newPatientOf(t, 400, 64<<20, tier.Carry)
			j := job{p.sizes, 9}
			j.follow(t, p.log, 1)
			for _, id := range j.epoch(0) {
				p.put(sample.ID(id), sample.ID(id)+1)
			}
			j.follow(t, p.log, 2)
			p.Unfollow() // all is closed
			p.settle()
			if n := len(p.durable()); n != 400 {
				t.Fatalf("%d samples are durable", n)
			}
			p.faults.Add(rules...)
			p.carry(j, 1)
			if op := rules[0].Op; op == vfstest.WriteAt || op == vfstest.Sync { // segments are there
				p.fired()
			}
			if refused(rules[0].Err) && (p.told(tier.Full) > 1 || p.told(tier.Unstable) > 0) {
				t.Errorf("told %v", p.notices)
			}
			p.faults.Heal()
			p.carry(j, 2)
			if came, _, _ := p.get(0, 400); came != 400 || p.lost != 0 {
				t.Errorf("%d of 400 samples came, %d were lost", came, p.lost)
			}
		})
	}
}

// carry reads an epoch, and carries what the log takes of it: else the old record stands.
func (p *patient) carry(j job, epoch int) {
	p.t.Helper()
	j.follow(p.t, p.log, epoch+1)
	for i, id := range j.epoch(epoch) {
		if err := p.sizes.GetIn(p.t, p.log, int32(epoch), sample.ID(id)); err != nil {
			p.t.Fatalf("Read %d in epoch %d: %v", id, epoch, err)
		}
		_ = p.Append(int32(epoch), sample.ID(id), p.sizes.Bytes(sample.ID(id)))
		if i%20 == 0 {
			p.settle()
		}
	}
}

// Nothing is carried once the day's bytes are written, and it goes on the day after.
func TestWear(t *testing.T) {
	p := newPatientOf(t, 400, 64<<20, tier.Carry)
	j := job{p.sizes, 9}
	j.follow(t, p.log, 1)
	p.put(0, 400)
	p.disks.dirs[0].wear = 1 << 20
	for e := 1; e < 4; e++ {
		j.follow(t, p.log, e+1)
		for _, id := range j.epoch(e) {
			if err := p.sizes.GetIn(t, p.log, int32(e), sample.ID(id)); err != nil {
				t.Fatalf("Read %d: %v", id, err)
			}
			if errors.Is(p.Append(int32(e), sample.ID(id), p.sizes.Bytes(sample.ID(id))), tier.ErrBusy) {
				p.settle()
			}
		}
		p.settle()
		if carried := p.disks.Usage()[0].CarriedToday; carried > 1<<20+1<<18 || e < 3 && carried < 1<<20 {
			t.Errorf("epoch %d: %d bytes were carried on a day of %d", e, carried, 1<<20)
		}
		if e == 2 {
			p.clock.advance(24 * time.Hour)
		}
	}
	if p.told(tier.Worn) != 2 {
		t.Errorf("told %d times", p.told(tier.Worn))
	}
}

// From 1 GB up a carried log takes at most 1.15 of its dataset.
func TestCarryTakesLittleMore(t *testing.T) {
	for _, samples := range []int{334_000, 700_000, 5_000_000} {
		e := equal{samples, 3000}
		config := e.config()
		config.Layout = tier.Carry
		l := &log{shape: shapeOf(config, 1<<50, 1), writers: []*writer{{}}}
		_, bytes := l.shape.makes(1<<50, l.missing())
		ratio := float64(bytes) / float64(samples) / 3000
		t.Logf("%d samples: %.3f", samples, ratio)
		if ratio > 1.15 {
			t.Errorf("%d samples of 3000 bytes take %d bytes: %.3f", samples, bytes, ratio)
		}
	}
}
