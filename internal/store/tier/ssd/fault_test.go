package ssd

import (
	"errors"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/memo"
	"belady/internal/store/tier"
	"belady/internal/store/tier/tiertest"
	"belady/internal/store/vfs"
	"belady/internal/store/vfs/vfstest"
)

// patient is a log on a file system that fails on demand; its writers do only what work lets them.
type patient struct {
	*log
	t       *testing.T
	faults  *vfstest.Faults
	clock   *clock
	sizes   tiertest.Sizes
	notices []tier.Notice
	lost    int // samples that it said it has lost
}

func newPatient(t *testing.T, samples int, quota int64) *patient {
	t.Helper()
	return newPatientOf(t, samples, quota, tier.Static)
}

func newPatientOf(t *testing.T, samples int, quota int64, layout tier.Layout) *patient {
	t.Helper()
	p := &patient{t: t, faults: vfstest.NewFaults(vfstest.NewCrash(1)),
		sizes: tiertest.Mixed(samples, 20)}
	d, c := stepped(t, quota, p.faults)
	p.clock = c
	config := p.sizes.Config(1)
	config.SlotBytes, config.Layout = 256<<10, layout
	config.Tell = func(n tier.Notice) { p.notices = append(p.notices, n) }
	config.Changed = func(held bool, set []uint64) {
		if held {
			t.Error("something was found")
		}
		for i := range 64 * len(set) {
			p.lost += int(set[i/64] >> (i % 64) & 1)
		}
	}
	p.log = tiertest.Open(t, d, config).(*log)
	t.Cleanup(func() {
		_ = p.log.Close() // some end badly
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// put appends samples from first to last and returns how many it took.
func (p *patient) put(first, last sample.ID) (taken int) {
	p.t.Helper()
	for id := first; id < last; id++ {
		err := p.Append(0, id, p.sizes.Bytes(id))
		if errors.Is(err, tier.ErrBusy) {
			p.work()
			err = p.Append(0, id, p.sizes.Bytes(id))
		}
		switch {
		case err == nil:
			taken++
		case !errors.Is(err, tier.ErrFull) && !errors.Is(err, tier.ErrDown):
			p.t.Fatalf("Append %d: %v", id, err)
		}
	}
	return taken
}

// settle lets all that is appended be written and synced.
func (p *patient) settle() {
	p.clock.advance(pieceAge)
	p.work()
	p.clock.advance(syncAge)
	p.work()
}

// get reads all samples singly and counts those that came, were damaged, and were not tried.
func (p *patient) get(first, last sample.ID) (came, corrupt, untried int) {
	p.t.Helper()
	for id := first; id < last; id++ {
		switch err := p.sizes.Get(p.t, p.log, id)[0]; {
		case err == nil:
			came++
		case errors.Is(err, tier.ErrCorrupt):
			corrupt++
		case errors.Is(err, tier.ErrDown):
			untried++
		case !errors.Is(err, tier.ErrAbsent):
			p.t.Fatalf("Read %d: %v", id, err)
		}
	}
	return came, corrupt, untried
}

func (p *patient) told(kind tier.NoticeKind) (n int) {
	for _, notice := range p.notices {
		if notice.Kind == kind {
			n++
			if notice.Text == "" {
				p.t.Errorf("%s was told without a word", kind)
			}
		}
	}
	return n
}

func (p *patient) fired() {
	p.t.Helper()
	if p.faults.Fired() == 0 {
		p.t.Fatal("nothing failed")
	}
}

func TestWriteFails(t *testing.T) {
	p := newPatient(t, 400, 64<<20)
	p.put(0, 100)
	p.settle()
	p.faults.Add(vfstest.Rule{Op: vfstest.WriteAt, Name: "*.seg", Err: syscall.EIO})
	for range 4 { // each time another segment
		p.put(100, 200)
		p.settle()
	}
	p.fired()
	if p.told(tier.Unstable) != 1 || p.put(100, 101) != 0 {
		t.Error("a directory that cannot be written is written on")
	}
	if u := p.disks.Usage()[0]; u.State != "unstable" || u.Failures < 3 {
		t.Errorf("state %q after %d failures", u.State, u.Failures)
	}
	if _, corrupt, _ := p.get(0, 100); corrupt != 0 {
		t.Errorf("%d records are damaged by failing writes", corrupt)
	}
	p.faults.Heal()
	for range 2 {
		p.get(0, 100) // 60 in a row make it good
	}
	if p.told(tier.Back) != 1 || p.disks.Usage()[0].State != "ok" {
		t.Fatalf("it is not used again: %v", p.notices)
	}
	p.clock.advance(fullPause)
	p.work()
	p.put(0, 400)
	p.settle()
	if came, _, _ := p.get(0, 400); came != 400 {
		t.Errorf("%d samples came in the end", came)
	}
}

// After a failed sync nothing more is written to that segment, and what it covered is lost, even if
// the device says otherwise later.
func TestSyncFails(t *testing.T) {
	p := newPatient(t, 400, 64<<20)
	p.put(0, 100)
	p.settle()
	first := p.writers[0].opens[target{}].file
	name := path.Base(first.name)
	p.faults.Add(vfstest.Rule{Op: vfstest.Sync, Name: name, Err: syscall.EIO})
	p.put(100, 110)
	p.settle()
	p.fired()
	if p.lost == 0 || p.lost > 10 || !first.shut {
		t.Errorf("%d samples lost by a failed sync of 10 at most", p.lost)
	}
	lost := p.lost
	p.faults.Heal()
	p.faults.Add(vfstest.Rule{Op: vfstest.WriteAt, Name: name, Err: errors.New("written on")})
	p.put(100, 400)
	p.settle()
	if came, corrupt, _ := p.get(0, 400); came != 400 || corrupt != 0 || p.lost != lost {
		t.Errorf("%d came, %d corrupt, %d lost", came, corrupt, p.lost)
	}
}

// A write fails while a sync of the same segment is under way: what is not synced is given up once.
func TestWriteFailsDuringSync(t *testing.T) {
	p := newPatient(t, 400, 64<<20)
	p.put(0, 40)
	w := p.writers[0]
	fill := w.opens[target{}]
	w.abandon(fill.file, syscall.EIO)
	w.commit(fill.file, []covered{{fill, len(fill.builder.Entries()), false}})
	if pending := p.Usage().Pending; pending != 0 || p.lost == 0 {
		t.Errorf("%d bytes are pending, %d samples lost", pending, p.lost)
	}
}

func TestReadFailsNowAndThen(t *testing.T) {
	p := newPatient(t, 400, 64<<20)
	p.put(0, 400)
	p.settle()
	p.faults.Add(vfstest.Rule{Op: vfstest.ReadAt, Name: "*.seg", Every: 10, Err: syscall.EIO})
	came, corrupt, untried := p.get(0, 400)
	p.fired()
	if corrupt < 3 || came+corrupt+untried != 400 || p.told(tier.Unstable) != 1 {
		t.Errorf("%d came, %d corrupt, %d untried", came, corrupt, untried)
	}
	if p.put(0, 400) != 400-int(p.Usage().Samples) && p.Usage().Corrupt != int64(corrupt) {
		t.Errorf("usage %+v", p.Usage())
	}
	p.faults.Heal()
	p.get(0, 400)
	p.put(0, 400)
	if came, _, _ = p.get(0, 400); came != 400 || p.told(tier.Back) != 1 {
		t.Errorf("%d samples came in the end, told %v", came, p.notices)
	}
}

func TestReadFlips(t *testing.T) {
	p := newPatient(t, 400, 64<<20)
	p.put(0, 400)
	p.settle()
	p.faults.Add(vfstest.Rule{Op: vfstest.ReadAt, Name: "*.seg", Every: 7, Flip: true})
	p.get(0, 400) // fails on a wrong byte
	p.fired()
}

// A few bad sectors among many reads cost their records and nothing else: the directory stays in
// use. Where they are more than one in a hundred it does not.
func TestFewRecordsAreDamaged(t *testing.T) {
	for _, c := range []struct {
		every    int
		unstable int
	}{{150, 0}, {20, 1}} {
		p := newPatient(t, 400, 64<<20)
		p.put(0, 400)
		p.settle()
		corrupt := 0
		for range 5 {
			p.get(0, 400) // so that there are many to compare with
		}
		p.faults.Add(vfstest.Rule{Op: vfstest.ReadAt, Name: "*.seg", Every: c.every, Flip: true})
		for range 5 {
			_, n, _ := p.get(0, 400)
			corrupt += n
			p.put(0, 400)
			p.settle()
		}
		p.fired()
		if corrupt < 4 || p.told(tier.Unstable) != c.unstable {
			t.Errorf("one in %d: %d records damaged, told %v", c.every, corrupt, p.notices)
		}
		if n := p.told(tier.Dropped); n == 0 || n > damagedTold {
			t.Errorf("one in %d: %d of %d damaged records told singly", c.every, n, corrupt)
		}
	}
}

// What was read minutes ago speaks for nobody.
func TestDamageIsComparedWithTheLastMinute(t *testing.T) {
	var h health
	now := time.Unix(1e9, 0)
	h.took(outcome{records: 1_000_000}, now)
	for range failuresMany {
		h.took(outcome{records: 1, damaged: 1}, now)
	}
	if h.state() != sound {
		t.Error("3 records of a million make a directory unstable")
	}
	now = now.Add(2 * failuresSpan)
	for range failuresMany {
		h.took(outcome{records: 50, damaged: 1}, now)
	}
	if h.state() != unstable {
		t.Error("3 records of 150 do not make a directory unstable")
	}
}

func TestReadNeverWorks(t *testing.T) {
	p := newPatient(t, 400, 64<<20)
	p.put(0, 400)
	p.settle()
	p.faults.Add(vfstest.Rule{Op: vfstest.ReadAt, Name: "*.seg", Err: syscall.EIO})
	for range 2 {
		p.get(0, 400)
	}
	if p.told(tier.Down) != 1 || p.disks.Usage()[0].State != "down" {
		t.Fatalf("told %v", p.notices)
	}
	fired := p.faults.Fired()
	p.get(0, 400)
	if n := p.faults.Fired() - fired; n > 1 {
		t.Errorf("a directory that is down was read %d times within a second", n)
	}
	p.faults.Heal()
	for range 2 * cleanReads {
		p.clock.advance(downPause)
		p.get(0, 400)
	}
	if p.told(tier.Back) != 1 {
		t.Errorf("it never came back: %v", p.notices)
	}
}

// A file system without direct reads is used all the same, and told once.
func TestBuffered(t *testing.T) {
	files := vfstest.NewFaults(vfstest.NewCrash(9))
	files.Add(vfstest.Rule{Op: vfstest.Open, Name: "*.seg", Buffered: true})
	sizes := tiertest.Mixed(400, 23)
	for restart := range 2 {
		d := open(t, 64<<20, files)
		told := make(chan tier.Notice, 1000)
		config := sizes.Config(1)
		config.Tell = func(n tier.Notice) { told <- n }
		l := tiertest.Open(t, d, config)
		sizes.PutAll(t, l)
		sizes.GetAll(t, l)
		if u := d.Usage()[0]; !u.Buffered || u.State != "ok" {
			t.Errorf("restart %d: %+v", restart, u)
		}
		if err := errors.Join(l.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
		close(told)
		n := 0
		for notice := range told {
			if notice.Kind == tier.Buffered && notice.Text != "" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("restart %d: told %d times", restart, n)
		}
	}
}

// A directory that is gone is left alone, and used again when it is there again.
func TestDirectoryVanishes(t *testing.T) {
	p := newPatient(t, 200, 64<<20)
	p.put(0, 100)
	p.settle()
	p.faults.Add(vfstest.Rule{Op: vfstest.Space, Err: syscall.ENODEV})
	p.clock.advance(spacePause)
	p.work()
	p.fired()
	came, corrupt, untried := p.get(0, 100)
	if untried < 50 || came+untried != 100 || // some are in memory
		p.put(100, 101) != 0 || p.told(tier.Down) != 1 {
		t.Errorf("%d came, %d corrupt, %d untried; told %v", came, corrupt, untried, p.notices)
	}
	p.faults.Heal()
	p.clock.advance(spacePause)
	p.work()
	p.get(0, 100)
	if p.put(100, 200) != 100 {
		t.Error("it is not used again")
	}
	if came, _, _ = p.get(0, 200); came != 200 {
		t.Errorf("%d samples came in the end", came)
	}
}

// A directory that vanishes while it lacks a segment is told to be gone, and not to be full.
func TestDirectoryVanishesWhenShort(t *testing.T) {
	p := newPatient(t, 400, 64<<20)
	p.writers[0].look(p.now()) // which is not done again soon
	p.faults.Add(vfstest.Rule{Op: vfstest.Space, Err: syscall.ENODEV})
	p.put(0, 400)
	p.fired()
	if p.told(tier.Full) != 0 || p.told(tier.Down) != 1 {
		t.Errorf("told %v", p.notices)
	}
}

// A daemon that is killed remembers the day's wear.
func TestKilledRemembersWear(t *testing.T) {
	p := newPatient(t, 400, 64<<20)
	p.clock.advance(time.Minute)
	p.put(0, 400)
	p.settle()
	written := p.disks.Usage()[0].WrittenToday
	if found := memo.Load(p.faults).Today(p.now()); written == 0 || found != written {
		t.Errorf("%d of %d bytes written are remembered", found, written)
	}
}

// Appends never wait: what the device does not take is refused, and memory is bounded.
func TestDeviceStands(t *testing.T) {
	sizes := make(tiertest.Sizes, 4000)
	for i := range sizes {
		sizes[i] = 50_000
	}
	d, _ := stepped(t, 1<<30, vfstest.NewCrash(3))
	l := tiertest.Open(t, d, sizes.Config(1)).(*log)
	busy := 0
	for id := range sample.ID(4000) {
		if errors.Is(l.Append(0, id, sizes.Bytes(id)), tier.ErrBusy) {
			busy++
		}
	}
	if u := l.Usage(); busy == 0 || u.Pending > bufferBytes || u.Refused != int64(busy) {
		t.Errorf("%d refused, usage %+v", busy, u)
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

func TestLocked(t *testing.T) {
	path := t.TempDir()
	d, err := Open(Options{Dirs: []Dir{{Path: path}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(Options{Dirs: []Dir{{Path: path}}})
	if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("a second one: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = Open(Options{Dirs: []Dir{{Path: path}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// The floor is left free, whatever the quota.
func TestFloor(t *testing.T) {
	files := vfstest.NewCrash(4)
	files.Resize(32 << 20)
	d, err := Open(Options{Dirs: []Dir{{Path: "x"}}, Free: 20 << 20,
		FS: func(string) (vfs.FS, error) { return files, nil }})
	if err != nil {
		t.Fatal(err)
	}
	sizes := tiertest.Mixed(4000, 9)
	l := tiertest.Open(t, d, sizes.Config(1))
	full := false
	for id := range sample.ID(4000) {
		full = full || errors.Is(sizes.Put(l, id), tier.ErrFull)
	}
	u := d.Usage()[0]
	if !full || u.Free < 20<<20 || u.Used == 0 {
		t.Errorf("full %v, usage %+v", full, u)
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// Room for a new log is made from those that are not open, the longest unused first.
func TestRoomForAnother(t *testing.T) {
	d, c := stepped(t, 8<<20, vfstest.NewCrash(5))
	sizes := tiertest.Mixed(280, 10) // three of them fit
	var removed []string
	for which := range byte(5) {
		c.advance(time.Hour)
		config := sizes.Config(which)
		config.SlotBytes = 128 << 10
		config.Tell = func(n tier.Notice) {
			if n.Kind == tier.Removed {
				removed = append(removed, n.Text[:2])
			}
		}
		l := tiertest.Open(t, d, config).(*log)
		for id := range sample.ID(len(sizes)) {
			err := l.Append(0, id, sizes.Bytes(id))
			if errors.Is(err, tier.ErrBusy) {
				l.work()
				err = l.Append(0, id, sizes.Bytes(id))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		sizes.GetAll(t, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(removed, " ") != "00 01" && strings.Join(removed, " ") != "00 01 02" {
		t.Errorf("removed %v", removed)
	}
	if u := d.Usage()[0]; u.Used > u.Quota {
		t.Errorf("usage %+v", u)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
