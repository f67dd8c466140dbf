package ssd

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"belady/internal/core/sample"
	"belady/internal/store/tier"
	"belady/internal/store/tier/tiertest"
	"belady/internal/store/vfs"
	"belady/internal/store/vfs/vfstest"
)

// refusals are what a file system that takes no more answers (F-17, F-18), and to what. They are
// injected here, so that they are tried wherever the tests run; the program's own tests meet them
// on file systems that are full, out of inodes, over a quota or read-only indeed.
var refusals = map[string][]vfstest.Rule{
	"no space for a segment": {{Op: vfstest.Allocate, Err: syscall.ENOSPC}},
	"no space for a write":   {{Op: vfstest.WriteAt, Name: "*.seg", Err: syscall.ENOSPC}},
	"no inodes":              {{Op: vfstest.Open, Name: "*.seg", Err: syscall.ENOSPC}},
	"quota of inodes":        {{Op: vfstest.Open, Name: "*.seg", Err: syscall.EDQUOT}},
	"quota":                  {{Op: vfstest.Allocate, Err: syscall.EDQUOT}},
	"quota for a write":      {{Op: vfstest.WriteAt, Name: "*.seg", Err: syscall.EDQUOT}},
	"quota met by a sync":    {{Op: vfstest.Sync, Name: "*.seg", Err: syscall.EDQUOT}},
	"read-only": {{Op: vfstest.WriteAt, Name: "*.seg", Err: syscall.EROFS},
		{Op: vfstest.Open, Name: "*.seg", Err: syscall.EROFS},
		{Op: vfstest.Sync, Name: "*.seg", Err: syscall.EROFS}},
}

// What a file system refuses is told once and costs what was not synced. All that was is read on,
// nothing waits, and the log fills up once the file system takes writes again.
func TestRefused(t *testing.T) {
	for name, rules := range refusals {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t, 400, 64<<20)
			first := p.put(0, 40)
			if op := rules[0].Op; op != vfstest.Allocate && op != vfstest.Open {
				p.settle() // which makes segments for all of it
			}
			p.faults.Add(rules...)
			for range 5 { // it is looked at again every now and then
				p.put(40, 400)
				p.settle()
				p.clock.advance(fullPause)
				p.work()
			}
			p.fired()
			came, corrupt, untried := p.get(0, 400)
			if came < first || came == 400 || corrupt+untried != 0 || came != int(p.Usage().Samples) {
				t.Errorf("%d came, %d corrupt, %d untried, %d lost", came, corrupt, untried, p.lost)
			}
			if p.told(tier.Full) != 1 || p.told(tier.Unstable) != 0 {
				t.Errorf("told %v", p.notices)
			}
			if u := p.disks.Usage()[0]; u.State != "ok" || u.Failures != 0 {
				t.Errorf("the directory is %q after %d failures", u.State, u.Failures)
			}
			p.faults.Heal()
			p.clock.advance(fullPause)
			p.work()
			p.put(0, 400)
			p.settle()
			if came, _, _ := p.get(0, 400); came != 400 {
				t.Errorf("%d samples came once it took writes again", came)
			}
		})
	}
}

// The first segment of a log cannot be made at first. What is synced once it can is found after a
// power cut, its folder's name as well.
func TestRefusedAtFirst(t *testing.T) {
	for name, rules := range refusals {
		t.Run(name, func(t *testing.T) {
			disk := vfstest.NewCrash(6)
			faults := vfstest.NewFaults(disk)
			sizes := tiertest.Mixed(100, 21)
			faults.Add(rules...)
			d, c := stepped(t, 64<<20, faults)
			p := &patient{t: t, faults: faults, clock: c, sizes: sizes}
			p.log = tiertest.Open(t, d, sizes.Config(1)).(*log)
			for range 3 {
				p.put(0, 100)
				p.settle()
				c.advance(fullPause)
				p.work()
			}
			p.fired()
			faults.Heal()
			c.advance(fullPause)
			p.work()
			p.put(0, 100)
			p.settle()
			synced := len(p.durable())
			after := disk.Cut()
			_, _ = p.Close(), d.Close() // of a machine without power
			d, _ = stepped(t, 64<<20, after)
			l := tiertest.Open(t, d, sizes.Config(1))
			if n := tiertest.Held(t, l, 100); synced < 90 || n < synced {
				t.Errorf("%d samples were synced, %d are found", synced, n)
			}
			if err := errors.Join(l.Close(), d.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Who opened a log on a full disk was told that it may hold nothing: when the disk has room again,
// no segment is made that nobody would fill, and the log is said to be full once.
func TestFullWhenOpened(t *testing.T) {
	disk := vfstest.NewCrash(8)
	disk.Resize(200 << 10)
	d, c := stepped(t, 64<<20, disk)
	p := &patient{t: t, clock: c, sizes: tiertest.Mixed(400, 24)}
	config := p.sizes.Config(1)
	config.Tell = func(n tier.Notice) { p.notices = append(p.notices, n) }
	p.log = tiertest.Open(t, d, config).(*log)
	disk.Resize(32 << 20)
	for range 5 {
		c.advance(fullPause)
		p.work()
	}
	if u := p.Usage(); u.Capacity != 0 || u.Disk != 0 || d.Usage()[0].Used != 0 {
		t.Errorf("usage %+v, %+v", u, d.Usage()[0])
	}
	if p.put(0, 400) != 0 || p.told(tier.Full) != 1 {
		t.Errorf("told %v", p.notices)
	}
	if err := errors.Join(p.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	d, c = stepped(t, 64<<20, disk)
	p.log = tiertest.Open(t, d, config).(*log)
	if p.clock = c; p.put(0, 400) != 400 {
		t.Errorf("opened anew it does not hold all: %+v", p.Usage())
	}
	if err := errors.Join(p.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// readOnly is a file system that was mounted so: nothing can be opened for writing.
type readOnly struct{ vfs.FS }

func (r readOnly) Open(name string, how vfs.How) (vfs.File, error) {
	refusal := &fs.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	if how.Create {
		return nil, refusal
	}
	f, err := r.FS.Open(name, vfs.How{Direct: how.Direct, Lock: how.Lock})
	if err == nil && how.Write {
		return nil, errors.Join(refusal, f.Close())
	}
	return f, err
}

// A daemon that starts on a file system that is read-only reads what is there, and says once that
// it writes nothing. Where nobody ever kept a log there is nothing to start for.
func TestStartReadOnly(t *testing.T) {
	disk := vfstest.NewCrash(7)
	sizes := tiertest.Mixed(300, 22)
	if _, err := Open(Options{Dirs: []Dir{{Path: "x"}}, Free: 1,
		FS: func(string) (vfs.FS, error) { return readOnly{disk}, nil }}); !errors.Is(err,
		syscall.EROFS) {
		t.Errorf("an empty directory is opened: %v", err)
	}
	config := sizes.Config(1)
	config.SlotBytes = 256 << 10
	d := open(t, 64<<20, disk)
	l := tiertest.Open(t, d, config)
	for id := range sample.ID(200) {
		if err := sizes.Put(l, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	d, c := stepped(t, 64<<20, readOnly{disk})
	var told []tier.NoticeKind
	config.Tell = func(n tier.Notice) { told = append(told, n.Kind) }
	l = tiertest.Open(t, d, config)
	for range 5 {
		for id := range sample.ID(300) {
			if err := sizes.Get(t, l, id)[0]; (err == nil) != (id < 200) {
				t.Fatalf("Read %d: %v", id, err)
			}
			if err := l.Append(0, id, sizes.Bytes(id)); err != nil && !errors.Is(err, tier.ErrFull) &&
				!errors.Is(err, tier.ErrBusy) {
				t.Fatalf("Append %d: %v", id, err)
			}
		}
		c.advance(fullPause)
		l.(*log).work()
	}
	if !slices.Equal(told, []tier.NoticeKind{tier.Full, tier.Opened}) {
		t.Errorf("told %v", told)
	}
	if u := d.Usage()[0]; u.State != "ok" {
		t.Errorf("the directory is %q", u.State)
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
