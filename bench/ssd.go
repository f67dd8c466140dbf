package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The ssd tier's bars.
const (
	barStatic110  = 0.9  // of fio's random reads of that size
	barColdLarge  = 4.0  // of the best cold stock loader
	barCarry      = 0.8  // of fio's sequential reading and writing
	barColdSmall  = 15.0 // of the best cold stock loader
	barRandomTiny = 3.0  // of fio's random reads of 4 KiB
	barSequential = 0.9  // 2.8 MB, of fio's sequential reads
	barHalf       = 1.10 // of the roofline
	barHalfOrigin = 1.00 // origin bytes, to dataset − 0.98 kept
	barIndex      = 24.0 // bytes a sample
	barOpen       = 5.0  // seconds
	barStallMore  = 0.02 // of an epoch, by filling
	barPick       = 0.95 // of the faster layout

	ssdTurns = 3 // of fio, ours, fio
	abba     = 8 // pairs
)

// The limits of the disk, each with threads and with a ring.
var (
	random100 = pattern{rw: "randread", bytes: 100 << 10, depth: 32}.both()
	random4   = pattern{rw: "randread", bytes: 4 << 10, depth: 32}.both()
	inOrder   = append(pattern{rw: "read", bytes: 1 << 20, depth: 8}.both(),
		pattern{rw: "read", bytes: 4 << 20, depth: 8}.both()...)
	mixed = pattern{rw: "rw", bytes: 1 << 20, depth: 8}.both()
)

// ssd: data in a log, beside what fio makes of the same disk.
func (s *suite) ssd() (*table, error) {
	t := newTable()
	for _, part := range []struct {
		name string
		run  func(*table) error
	}{
		{"ring", s.ssdRing}, {"static", s.ssdStatic}, {"sequential", s.ssdSequential},
		{"carry", s.ssdCarry}, {"half", s.ssdHalf}, {"filling", s.ssdFilling},
		{"layouts", s.ssdLayouts}, {"index", s.ssdIndex},
	} {
		if !strings.Contains(part.name, s.only) {
			continue
		}
		if err := part.run(t); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	t.note("fio reads and writes a file of the log's size on the same file system with O_DIRECT, "+
		"before and after each of our readings; a limit is the better of threads and io_uring, the mean "+
		"of both times, and a ratio the median of %d turns. Ours goes through the daemon and the Go "+
		"client, every record's checksum verified; what came from memory or the origin is not counted.",
		ssdTurns)
	t.note("Stock: torch.utils.data.DataLoader over one file a sample, their bytes not in the page " +
		"cache, the best of 1, 2, 4 and 8 workers; both sides touch every byte.")
	return t, nil
}

// total is how large a log is measured.
func (s *suite) total() int64 {
	if s.quick {
		return 1 << 30
	}
	return 3 << 30
}

// turns alternates fio and ours. figure is what of each is compared; ours gives a lap.
func (s *suite) turns(lim *limits, of []pattern, figure func(fioRun) float64,
	ours func() (*lap, float64, error)) (best turn, err error) {
	n := ssdTurns
	if s.quick {
		n = 1
	}
	if err := lim.measure(); err != nil {
		return turn{}, err
	}
	var all []turn
	for i := range n {
		l, rate, err := ours()
		if err != nil {
			return turn{}, err
		}
		if err := lim.measure(); err != nil {
			return turn{}, err
		}
		limit, spread := lim.best(i, of)
		one := turn{lap: l, rate: rate, limit: limit, figure: figure(limit), spread: spread}
		s.say("ours %.4g, fio %.4g (%s; before and after %.0f %% apart): %.3f", rate, one.figure, limit,
			100*spread, one.ratio())
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b turn) int { return int((a.ratio() - b.ratio()) * 1e6) })
	return all[len(all)/2], nil
}

// turn is one reading of ours and the limit around it.
type turn struct {
	lap          *lap
	rate, figure float64
	limit        fioRun
	spread       float64
}

func (u turn) ratio() float64 { return u.rate / u.figure }

// doubt says where fio disagreed with itself.
func (u turn) doubt(t *table, what string) {
	if u.spread > apart {
		t.note("%s: fio before and after are %.0f %% apart: doubtful, run it again on a quiet disk.",
			what, 100*u.spread)
	}
}

func readRate(r fioRun) float64 { return r.read }

// gigabytes is a rate as text.
func gigabytes(rate float64) string { return fmt.Sprintf("%.2f GB/s", rate/1e9) }

// ssdRing: whether a ring earns its place over threads.
func (s *suite) ssdRing(t *table) error {
	dir, err := s.folder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lim, err := s.newLimits(filepath.Join(dir, "fio"), s.total(),
		slices.Concat(random4, random100, inOrder[:2], mixed)...)
	if err != nil {
		return err
	}
	for range 3 {
		if err := lim.measure(); err != nil {
			return err
		}
	}
	for _, p := range lim.patterns {
		runs := lim.runs[p]
		slices.SortFunc(runs, func(a, b fioRun) int { return int(a.read - b.read) })
		r := runs[len(runs)/2]
		text := fmt.Sprintf("%s, %.1f k/s, CPU %.2f s a GB", gigabytes(r.read), r.requests/1e3, r.cpu)
		s.say("fio, %s: %s", p, text)
		t.info("fio, "+p.String(), text)
	}
	return nil
}

// ssdStatic: 110 KB at random, in a log that was written once.
func (s *suite) ssdStatic(t *table) (err error) {
	const size = 110_000
	l, err := s.newLogged(size, s.total(), "static", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.remove()) }()
	rate, err := l.fill()
	if err != nil {
		return err
	}
	t.info("110 KB, filling", gigabytes(rate))
	lim, err := s.newLimits(filepath.Join(l.dir, "fio"), s.total(), random100...)
	if err != nil {
		return err
	}
	u, err := s.turns(lim, random100, readRate, func() (*lap, float64, error) {
		lap, err := l.read(5, 1, 4)
		if err != nil {
			return nil, 0, err
		}
		return lap, lap.rate(), nil
	})
	if err != nil {
		return err
	}
	t.bar("110 KB, static", gigabytes(u.rate), "fio "+u.limit.String()+": "+gigabytes(u.figure),
		u.ratio(), barStatic110, true)
	u.doubt(t, "110 KB, static")
	u.lap.asked(t, "110 KB, static")
	t.info("110 KB, CPU a GB", fmt.Sprintf("%.2f s, fio %.2f s", u.lap.cpuGB(), u.limit.cpu))
	l.touch = true
	touched, err := l.read(4, 1, 3)
	if err != nil {
		return err
	}
	return s.cold(t, "110 KB, static", 20_000, size, touched.each(), barColdLarge)
}

// cold compares with PyTorch's own loader over as many files.
func (s *suite) cold(t *table, what string, samples, size int, ours, bar float64) error {
	if s.quick {
		samples /= 4
	}
	files := filepath.Join(s.work, "files")
	var rates map[string]float64
	batch := min(256, max(8, 8<<20/size))
	if err := s.py(s.work, into(&rates), "cold.py", files, samples, size, batch, 3); err != nil {
		return err
	}
	c := copied{Stock: rates}
	name, rate := c.best()
	s.say("touched %s, cold stock %v", thousands(ours), rates)
	t.bar(what+", every byte touched", thousands(ours), "cold stock, "+name+": "+thousands(rate),
		ours/rate, bar, true)
	return os.RemoveAll(files)
}

// ssdSequential: samples so large that each is a stretch of the disk.
func (s *suite) ssdSequential(t *table) (err error) {
	l, err := s.newLogged(2_800_000, s.total(), "static", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.remove()) }()
	if _, err := l.fill(); err != nil {
		return err
	}
	lim, err := s.newLimits(filepath.Join(l.dir, "fio"), s.total(), inOrder...)
	if err != nil {
		return err
	}
	u, err := s.turns(lim, inOrder, readRate, func() (*lap, float64, error) {
		lap, err := l.read(5, 1, 4)
		if err != nil {
			return nil, 0, err
		}
		return lap, lap.rate(), nil
	})
	if err != nil {
		return err
	}
	t.bar("2.8 MB, static", gigabytes(u.rate), "fio "+u.limit.String()+": "+gigabytes(u.figure),
		u.ratio(), barSequential, true)
	u.doubt(t, "2.8 MB, static")
	u.lap.asked(t, "2.8 MB, static")
	t.info("2.8 MB, CPU a GB", fmt.Sprintf("%.2f s, fio %.2f s", u.lap.cpuGB(), u.limit.cpu))
	return nil
}

// ssdCarry: 3 KB, written again in each epoch where the next one reads them in sequence.
func (s *suite) ssdCarry(t *table) (err error) {
	const size = 3000
	l, err := s.newLogged(size, s.total()/2, "carry", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.remove()) }()
	lim, err := s.newLimits(filepath.Join(l.dir, "fio"), s.total(), slices.Concat(mixed, random4)...)
	if err != nil {
		return err
	}
	carried := func() (*lap, float64, error) {
		if err := l.clear(); err != nil { // an order is followed from the first fill on
			return nil, 0, err
		}
		lap, err := l.read(6, 1, 5) // the last one carries nothing
		if err != nil {
			return nil, 0, err
		}
		return lap, lap.rate(), nil
	}
	u, err := s.turns(lim, mixed, readRate, carried)
	if err != nil {
		return err
	}
	t.bar("3 KB, carry", gigabytes(u.rate), "fio "+u.limit.String()+": "+gigabytes(u.figure),
		u.ratio(), barCarry, true)
	u.doubt(t, "3 KB, carry")
	u.lap.asked(t, "3 KB, carry")
	t.info("3 KB, carry, CPU a GB", fmt.Sprintf("%.2f s, fio %.2f s", u.lap.cpuGB(), u.limit.cpu))
	t.info("3 KB, carry, disk to dataset", fmt.Sprintf("%.3f",
		float64(u.lap.usage.Disk)/float64(l.info.Bytes)))
	tiny, _ := lim.best(0, random4)
	t.bar("3 KB, carry", thousands(u.lap.each()), "fio "+tiny.String()+": "+
		fmt.Sprintf("%.1f k/s", tiny.requests/1e3), u.lap.each()/tiny.requests, barRandomTiny, true)
	l.touch = true
	touched, _, err := carried()
	if err != nil {
		return err
	}
	return s.cold(t, "3 KB, carry", 200_000, size, touched.each(), barColdSmall)
}

// ssdHalf: half of a dataset in the log, nothing in memory, the rest from a slow origin.
func (s *suite) ssdHalf(t *table) (err error) {
	const size, rate = 110_000, 200e6
	total := int64(2 << 30)
	if s.quick {
		total = 1 << 30
	}
	l, err := s.newLogged(size, total, "static",
		"&throttle.rate=200MB&throttle.latency=20ms&throttle.concurrency=256")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.remove()) }()
	l.quota, l.touch = total/2, true
	// Half of the time that the origin needs for half of the dataset.
	l.compute = time.Duration(0.25 * size / rate * float64(l.batch) * 1e9)
	const epochs = 4
	lap, err := l.read(epochs+1, 1, epochs)
	if err != nil {
		return err
	}
	bytes := float64(l.info.Bytes)
	kept := float64(lap.usage.Samples)*size + lap.memory
	roof := max(lap.compute.Seconds()/(epochs-1), (bytes-kept)/rate)
	took := lap.seconds / (epochs - 1)
	t.bar("half in the log, an epoch", fmt.Sprintf("%.2f s", took),
		fmt.Sprintf("roofline %.2f s", roof), took/roof, barHalf, false)
	origin := lap.origin / (epochs - 1)
	t.bar("half in the log, origin bytes an epoch", fmt.Sprintf("%.0f MB", origin/1e6),
		fmt.Sprintf("dataset − 0.98 kept: %.0f MB", (bytes-0.98*kept)/1e6), origin/(bytes-0.98*kept),
		barHalfOrigin, false)
	t.info("half in the log, samples' bytes to quota",
		fmt.Sprintf("%.3f", (kept-lap.memory)/float64(l.quota)))
	s.say("half kept: %.2f s of %.2f s, origin %.0f MB, kept %.0f MB", took, roof, origin/1e6, kept/1e6)
	return nil
}

// ssdFilling: what writing a log costs those who wait for batches, while the disk has room for it:
// the same first epoch without a log and with one, in pairs.
func (s *suite) ssdFilling(t *table) (err error) {
	const size, rate = 110_000, 300e6
	total := int64(1 << 30)
	pairs := abba
	if s.quick {
		pairs = 2
	}
	l, err := s.newLogged(size, total, "static",
		"&throttle.rate=300MB&throttle.latency=5ms&throttle.concurrency=256")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.remove()) }()
	l.compute = time.Duration(1.1 * size * float64(l.batch) / rate * 1e9)
	share := func(layout string) (float64, error) {
		l.layout = layout
		lap, err := l.read(1, 0, 1)
		if err != nil {
			return 0, err
		}
		return lap.stall.Seconds() / lap.seconds, l.clear()
	}
	var more []float64
	for i := range pairs {
		layouts := []string{"", "static"}
		if i%2 == 1 {
			slices.Reverse(layouts)
		}
		got := map[string]float64{}
		for _, layout := range layouts {
			if got[layout], err = share(layout); err != nil {
				return err
			}
		}
		more = append(more, got["static"]-got[""])
		s.say("stall without a log %.4f, filling one %.4f of the epoch", got[""], got["static"])
	}
	slices.Sort(more)
	middle := (more[(len(more)-1)/2] + more[len(more)/2]) / 2
	t.bar("stall more by filling, share of the epoch", fmt.Sprintf("%.4f", middle),
		fmt.Sprint(barStallMore), middle/barStallMore, 1, false)
	return nil
}

// ssdLayouts: what auto picks, and what it should have.
func (s *suite) ssdLayouts(t *table) error {
	total := s.total() / 4
	for _, size := range []int64{3000, 20_000, 110_000, 2_800_000} {
		rates := map[string]float64{}
		pick := ""
		for _, layout := range []string{"static", "carry", "auto"} {
			l, err := s.newLogged(size, total, layout, "")
			if err != nil {
				return err
			}
			lap, err := l.read(4, 1, 3)
			if err := errors.Join(err, l.remove()); err != nil {
				return fmt.Errorf("%d bytes, %s: %w", size, layout, err)
			}
			rates[layout] = lap.rate()
			if layout == "auto" {
				pick = string(lap.usage.Layout)
			}
		}
		fastest := max(rates["static"], rates["carry"])
		what := fmt.Sprintf("auto at %.0f KB", float64(size)/1e3)
		both := fmt.Sprintf("static %s, carry %s", gigabytes(rates["static"]), gigabytes(rates["carry"]))
		t.bar(what, fmt.Sprintf("%s, %s", pick, gigabytes(rates[pick])), both, rates[pick]/fastest,
			barPick, true)
		s.say("%s: %s, auto takes %s", what, both, pick)
	}
	return nil
}

// ssdIndex: what 14.2 M samples in a log take to open, and of memory.
func (s *suite) ssdIndex(t *table) (err error) {
	const size = 64
	samples := int64(large)
	if s.quick {
		samples /= 10
	}
	l, err := s.newLogged(size, samples*size, "static", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.remove()) }()
	l.batch = 1024
	filled, err := l.read(1, 0, 1)
	if err != nil {
		return err
	}
	if filled.usage.Samples != samples {
		return fmt.Errorf("of %d samples the log has %d", samples, filled.usage.Samples)
	}
	first, with, err := l.open()
	if err != nil {
		return err
	}
	l.layout = ""
	bare, without, err := l.open()
	if err != nil {
		return err
	}
	more := float64(with-without) / float64(samples)
	t.most(fmt.Sprintf("%.1f M samples: to the first batch after a start", float64(samples)/1e6),
		first.Seconds(), barOpen, "s")
	t.info("the same without a log", fmt.Sprintf("%.2f s", bare.Seconds()))
	t.most("memory of the daemon, more by the log, a sample", more, barIndex, "B")
	s.say("first batch after %v, without a log %v; %.1f B a sample", first, bare, more)
	return nil
}
