package ssd

import (
	"slices"
	"sync"

	"belady/internal/core/plan"
	"belady/internal/core/sample"
	"belady/internal/store/segment"
	"belady/internal/store/vfs"
)

// scanners is how many slots are scanned at a time.
const scanners = 4

// reason is why a slot's records have to be looked at one by one.
type reason int

const (
	nothing  reason = iota
	unclosed        // it has no footer that fits: its records are found by a scan
	unsynced        // it has, but may be torn: its entries are verified
)

// scanned is a slot whose records are looked at.
type scanned struct {
	slotRef
	why    reason
	footer segment.Footer
}

func (r *recovery) add(s scanned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.file.slots[s.slot].become(unknown)
	r.todo = append(r.todo, s)
}

// scan looks at what a crash can have left, and returns what is more than that.
func (r *recovery) scan() (late []scanned) {
	// The latest first: they are what was being written.
	slices.SortFunc(r.todo, func(a, b scanned) int {
		return int(int64(b.generation() - a.generation()))
	})
	first, bytes := 0, int64(0)
	for first < len(r.todo) && bytes < r.log.disks.scanFirst {
		bytes += int64(r.todo[first].file.header.SlotBytes)
		first++
	}
	r.scanAll(r.todo[:first])
	return r.todo[first:]
}

func (s scanned) generation() uint64 { return s.file.slots[s.slot].generation.Load() }

func (r *recovery) scanAll(slots []scanned) {
	work := make(chan scanned)
	var workers sync.WaitGroup
	for range min(scanners, len(slots)) {
		workers.Go(func() {
			for s := range work {
				r.scanOne(s)
			}
		})
	}
	for _, s := range slots {
		work <- s
	}
	close(work)
	workers.Wait()
}

// scanLate goes on beside the work, and tells what it finds. It stops when the log closes: what it
// has not seen is looked at when the log is opened again.
func (r *recovery) scanLate(slots []scanned) {
	l := r.log
	before := r.dropped.Load()
	for _, s := range slots {
		select {
		case <-l.closing:
			return
		default:
		}
		found := r.scanOne(s)
		list := make([]sample.ID, len(found))
		for i, e := range found {
			list[i] = e.ID
		}
		l.changed(true, list)
		s.file.writer.emptied(s.file, s.slot)
	}
	l.counts.dropped.Add(r.dropped.Load() - before)
}

// scanOne reads a whole slot and takes the records that are sound.
func (r *recovery) scanOne(s scanned) []segment.Entry {
	f := s.file
	buf := vfs.Aligned(int(f.header.SlotBytes))
	defer vfs.Free(buf)
	fit, tag := []segment.Entry(nil), s.footer.Tag
	_, err := f.io.ReadAt(buf, f.header.SlotAt(s.slot))
	switch {
	case err != nil:
		r.lost.Add(1)
		r.settle(s, unreadable, false)
		return nil
	case s.why == unclosed:
		tag = segment.Scan(f.header.Bind(s.slot), buf, func(e segment.Entry, ok bool) {
			if ok {
				fit = append(fit, e)
			} else {
				r.dropped.Add(1)
			}
		})
		r.saw(tag.Generation, f)
	default:
		bind := f.header.Bind(s.slot)
		for _, e := range s.footer.Entries {
			if bind.Sum(e, tag.Generation, buf[e.At+segment.RecordHeader:][:e.Length]) == e.Sum {
				fit = append(fit, e)
			} else {
				r.dropped.Add(1)
			}
		}
	}
	found := r.adopt(s.slotRef, tag, fit)
	r.settle(s, closed, len(fit) < len(s.footer.Entries))
	return found
}

// settle ends the doubt about a slot. One whose footer names torn records is marked before it can
// be given out.
func (r *recovery) settle(s scanned, to slotState, torn bool) {
	w := s.file.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if torn {
		s.file.slots[s.slot].status.Or(taint)
	}
	s.file.slots[s.slot].become(to)
}

// adopt makes found records the authoritative ones of their samples, unless there are later ones.
// It returns those whose samples were held nowhere, and how many are none of this dataset.
func (l *log) adopt(ref slotRef, entries []segment.Entry) (found []segment.Entry, dropped int) {
	f, s := ref.file, &ref.file.slots[ref.slot]
	generation := s.generation.Load()
	var live int32
	var fresh, cost, dead int64
	for _, e := range entries {
		if int(e.ID) >= len(l.index.spots) || e.Length != l.config.Sizes.Size(e.ID) {
			dropped++
			continue
		}
		was, ok := l.supersede(e, f.place(ref.slot, e.At), generation)
		switch {
		case !ok:
			dead += plan.RecordCost(e.Length)
			continue
		case was == 0:
			fresh++
			cost += plan.RecordCost(e.Length)
			if l.running() { // somebody wants to know
				found = append(found, e)
			}
		default:
			dead += plan.RecordCost(e.Length)
			old := l.fileOf(was)
			slot, _ := old.locate(was)
			if old.slots[slot].live.Add(-1) == 0 && l.running() {
				old.writer.emptied(old, slot)
			}
		}
		live++
	}
	s.live.Add(live)
	l.counts.samples.Add(fresh)
	l.counts.used.Add(cost)
	l.counts.dead.Add(dead)
	return found, dropped
}

// supersede puts a sample at a place of this generation, if it lies at no later one, and returns
// where it lay.
func (l *log) supersede(e segment.Entry, to place, generation uint64) (was place, ok bool) {
	defer l.index.lock(e.ID).Unlock()
	was = l.index.spots[e.ID].place()
	if was != 0 {
		f := l.fileOf(was)
		slot, _ := f.locate(was)
		if f.slots[slot].generation.Load() > generation {
			return was, false
		}
	}
	l.index.spots[e.ID] = makeSpot(to, e.Sum)
	return was, true
}
