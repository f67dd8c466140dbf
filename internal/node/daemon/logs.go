package daemon

import (
	"fmt"
	"sync"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/core/sample"
	"belady/internal/node/event"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/arena"
	"belady/internal/store/tier"
)

// openLog opens the log of a new place. Without one it is read all the same, only more slowly.
// Where quotas are short, logs of datasets that nobody reads make room: the directories remove
// those that are not open, so idle datasets are closed first, the longest idle first.
func (d *Daemon) openLog(key string, p *place, set *dataset.Set, layout tier.Layout) {
	if d.Disks == nil {
		return
	}
	begun := time.Now()
	p.loan = &loan{pool: d.pool}
	for {
		log, err := world.OpenLog(d.Disks, tier.Config{Content: set.ID(), Name: key, Sizes: set,
			Layout: layout, Lend: p.loan.lend, Return: p.loan.giveBack,
			Tell: func(n tier.Notice) { d.noticed(key, n) }})
		if err != nil {
			d.tell(event.LogClosed{Dataset: key, Err: err})
			return
		}
		u := log.Usage()
		if u.Capacity < recordsOf(set, u.SampleMax) && d.closeIdle(p, true) {
			if err := log.Close(); err != nil {
				d.tell(event.Trouble{What: "close the log of " + key, Err: err})
			}
			continue
		}
		p.log = log
		d.tell(event.LogOpened{Dataset: key, Samples: u.Samples, Bytes: u.Used,
			Seconds: time.Since(begun).Seconds()})
		return
	}
}

// loan is a log's part of the node's memory. It is the log's from when its world is made: by the
// time that it carries samples, other ranks' joining would have had the world grow over it.
type loan struct {
	pool *arena.Pool

	mu    sync.Mutex
	taken int64 // from the pool; guarded by mu, as all below
	used  int64 // of it, by the log
}

// setAside takes, of the pool, what the log of a new place will ask for, and returns it. One that
// wants more than half of all memory does without, and is not carried.
func (d *Daemon) setAside(p *place) int64 {
	if p.log == nil || p.log.Memory() > d.RAM/2 {
		return 0
	}
	bytes := p.log.Memory()
	for d.pool.Left() < bytes && d.closeIdle(p, false) {
	}
	if p.loan.lend(bytes) { // else it asks again
		p.loan.giveBack(bytes)
	}
	return bytes
}

func (l *loan) lend(bytes int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lack := l.used + bytes - l.taken; lack > 0 {
		if !l.pool.Lend(lack) {
			return false
		}
		l.taken += lack
	}
	l.used += bytes
	return true
}

func (l *loan) giveBack(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= bytes
}

// end gives all of it back to the pool. The log is closed.
func (l *loan) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pool.Return(l.taken)
	l.taken = 0
}

// measured are directories that know their devices' rates.
type measured interface{ Rates() (perf.Rates, error) }

// layoutFor is the layout of a dataset's log: what was asked for, as far as the job can have it, or
// what the devices' rates speak for.
func (d *Daemon) layoutFor(
	key string, a *wire.Attach, set *dataset.Set, rule string,
) tier.Layout {
	known := a.Order.Digest() != 0 && !a.Order.Repeats() && rule == policy.Default(false)
	layout, why := tier.Static, "its order is not known ahead, or its policy keeps others with time"
	switch {
	case d.Disks == nil || d.Layout == tier.Static || d.Layout == "":
		return tier.Static
	case d.Layout == tier.Auto:
		layout, why = d.choose(set, known && a.Epochs-a.Start.Epoch > 2)
	case known:
		return tier.Carry
	}
	d.tell(event.LogLayout{Dataset: key, Why: fmt.Sprintf("layout %s: %s", layout, why)})
	return layout
}

// choose picks the layout for a dataset, and says why.
func (d *Daemon) choose(set *dataset.Set, known bool) (tier.Layout, string) {
	mean := set.TotalBytes() / int64(max(set.Len(), 1))
	disks, ok := d.Disks.(measured)
	if !ok || mean >= plan.Direct {
		return tier.Static, "samples are large enough for a device to give its rate wherever they lie"
	}
	rates, err := disks.Rates()
	if err != nil {
		return tier.Static, "the devices could not be measured: " + err.Error()
	}
	choice := perf.Choice{MeanSize: uint32(mean), Kept: set.TotalBytes(), Memory: d.RAM / 2,
		Known: known}
	for _, u := range d.Disks.Usage() {
		choice.Wear += max(0, u.WearBudget-u.CarriedToday)
	}
	layout, why := perf.Choose(rates, choice)
	return tier.Layout(layout), why
}

// recordsOf is what the samples of a dataset take in a log that holds those of up to most bytes.
func recordsOf(set *dataset.Set, most uint32) (bytes int64) {
	for id := range set.Len() {
		if size := set.Size(sample.ID(id)); size <= most {
			bytes += plan.RecordCost(size)
		}
	}
	return bytes
}

// noticed tells what a log noticed.
func (d *Daemon) noticed(key string, n tier.Notice) {
	switch n.Kind {
	case tier.Opened:
		// Told by openLog, which also knows how long it took.
	case tier.Dropped:
		d.tell(event.LogDropped{Dataset: key, Dir: n.Dir, Samples: n.Samples, What: n.Text, Err: n.Err})
	case tier.Full:
		d.tell(event.LogFull{Dataset: key, Dir: n.Dir, What: n.Text, Err: n.Err})
	case tier.Removed:
		d.tell(event.LogRemoved{Dataset: key, Dir: n.Dir, Bytes: n.Bytes, What: n.Text})
	case tier.Chosen:
		d.tell(event.LogLayout{Dataset: key, Why: n.Text})
	case tier.Worn:
		d.tell(event.LogWear{Dataset: key, Dir: n.Dir, Bytes: n.Bytes, What: n.Text})
	default: // the state of a directory
		d.tell(event.LogDirectory{Dir: n.Dir, State: string(n.Kind), What: n.Text, Err: n.Err})
	}
}
