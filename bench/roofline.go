package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// The roofline's bars.
const (
	barEpoch  = 1.10 // epochs 2 to E
	barFirst  = 1.15 // the first, beside one latency and one batch
	barOrigin = 1.00 // bytes, to what memory of the size allows

	epochsRead = 4
)

// outcome is one cell as measured and as bounded.
type outcome struct {
	cell
	epoch, roof         float64 // seconds an epoch, from the second on
	first, firstRoof    float64 // seconds
	origin, allowed     float64 // bytes an epoch, from the second on
	reads, most         int64   // requests in all, and at once
	busy, others        float64 // cores that the daemon and that strangers used
	stall, firstStall   map[string]time.Duration
	retried             int64 // requests beyond one a sample fetched
	compute, originTime float64
}

// roofline: every cell of the demands, and ten drawn from the seed.
func (s *suite) roofline() (*table, error) {
	t := &table{header: []string{"cell", "epoch", "roofline", "ratio", "first", "ratio",
		"origin bytes", "daemon", ""}}
	var cells []cell
	for _, c := range s.cells() {
		if strings.Contains(c.name, s.only) {
			cells = append(cells, c)
		}
	}
	begun := time.Now()
	for i, c := range cells {
		before, err := loadNow()
		if err != nil {
			return nil, err
		}
		o, err := s.measure(c)
		if err != nil {
			return nil, fmt.Errorf("cell %s: %w", c.name, err)
		}
		if o.others, err = before.others(); err != nil {
			return nil, err
		}
		s.report(t, o)
		s.say("%2d of %d, %4.0f s: %-44s %.3f, first %.3f, bytes %.3f, daemon %.2f cores", i+1,
			len(cells), time.Since(begun).Seconds(), c.name, o.epoch/o.roof, o.first/o.firstRoof,
			o.bytesRatio(), o.busy)
	}
	t.note("Bars: epochs 2 to %d ≤ %.2f of the roofline each, the first ≤ %.2f (roofline plus one "+
		"latency and one batch), origin bytes an epoch ≤ %.2f of dataset − allowed kept bytes. "+
		"Roofline: max(measured compute, bytes/rate, requests × latency / %d); rates and bytes "+
		"are the throttle's, never the daemon's.", epochsRead, barEpoch, barFirst, barOrigin, inside)
	t.note("Kept bytes allowed: %.2f of ram − staging from 64 KB a sample on, %.2f below. \"daemon\" "+
		"is the cores it used, the computing of the origin's bytes included. Random cells are "+
		"those of seed %d.", overheadLarge, overheadSmall, s.seed)
	return t, nil
}

// bytesRatio is 0 or 1 above where nothing is allowed.
func (o *outcome) bytesRatio() float64 {
	if o.allowed > 0 {
		return o.origin / o.allowed
	}
	if o.origin > 0 {
		return 1 + o.origin
	}
	return 0
}

// report adds a cell's row, and the reason where a bar is missed.
func (s *suite) report(t *table, o *outcome) {
	ok := o.epoch/o.roof <= barEpoch && o.first/o.firstRoof <= barFirst &&
		o.bytesRatio() <= barOrigin
	bytes := fmt.Sprintf("%.0f MB, %.3f", o.origin/1e6, o.bytesRatio())
	if o.allowed == 0 {
		bytes = fmt.Sprintf("%.0f of 0", o.origin)
	}
	t.rows = append(t.rows, []string{o.name, fmt.Sprintf("%.2f s", o.epoch),
		fmt.Sprintf("%.2f s", o.roof), fmt.Sprintf("%.3f", o.epoch/o.roof),
		fmt.Sprintf("%.2f s", o.first), fmt.Sprintf("%.3f", o.first/o.firstRoof), bytes,
		fmt.Sprintf("%.2f", o.busy), t.verdict(ok)})
	if ok {
		return
	}
	text := fmt.Sprintf("%s: waited in epochs 2 to %d for %s, in the first for %s; compute %.2f s, "+
		"origin %.2f s an epoch; %d requests, %d more than samples fetched, %d at once; others used "+
		"%.2f cores", o.name, epochsRead, causes(o.stall), causes(o.firstStall), o.compute,
		o.originTime, o.reads, o.retried, o.most, o.others)
	t.note("%s", text)
	s.say("%s", text)
}

// causes lists what was waited for, the shortest waits left out.
func causes(stall map[string]time.Duration) string {
	var all []string
	for cause, d := range stall {
		if d > 10*time.Millisecond {
			all = append(all, fmt.Sprintf("%s %.2f s", cause, d.Seconds()))
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	sort.Strings(all)
	return strings.Join(all, ", ")
}

// measure runs one cell.
func (s *suite) measure(c cell) (o *outcome, err error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "counts")
	info, err := s.add(dir, "data", c.url(file))
	if err != nil {
		return nil, err
	}
	n, err := s.start(dir, c.ram(info.Bytes), c.staging)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	ctx, cancel := context.WithTimeout(s.ctx, c.limit())
	defer cancel()
	var after []counts
	var cpu [2]time.Duration
	r := reading{socket: n.socket, dataset: "data", epochs: epochsRead, batch: c.batch,
		samples: info.Samples, seed: s.seed, compute: c.compute(info.Samples)}
	r.ended = func(e *epoch) error {
		now, err := readCounts(file)
		if err != nil {
			return err
		}
		after = append(after, now)
		if e.index == 0 || e.index == epochsRead-1 {
			cpu[min(e.index, 1)], err = cpuOf(n.pid())
		}
		return err
	}
	epochs, err := r.run(ctx)
	if err != nil {
		return nil, err
	}
	return c.judge(info.Samples, info.Bytes, epochs, after, cpu[1]-cpu[0]), nil
}

// judge compares what was seen with the roofline.
func (c cell) judge(samples int, bytes int64, epochs []epoch, after []counts,
	cpu time.Duration) *outcome {
	o := &outcome{cell: c, stall: map[string]time.Duration{}, firstStall: epochs[0].stall}
	last := len(epochs) - 1
	for i := range epochs[1:] {
		e := &epochs[i+1]
		o.compute += e.compute.Seconds() / float64(last)
		for cause, d := range e.stall {
			o.stall[cause] += d
		}
	}
	took := epochs[last].end.Sub(epochs[1].begun).Seconds()
	o.epoch = took / float64(last)
	o.busy = cpu.Seconds() / took
	o.allowed = max(0, float64(bytes)-c.keep(bytes))
	mean := float64(bytes) / float64(samples)
	o.originTime = c.originSeconds(o.allowed, o.allowed/mean)
	o.roof = max(o.compute, o.originTime)
	first := &epochs[0]
	o.first = first.seconds()
	step := first.compute.Seconds() / float64((samples+c.batch-1)/c.batch)
	o.firstRoof = max(first.compute.Seconds(), c.originSeconds(float64(bytes), float64(samples))) +
		c.latency.Seconds() + max(step, float64(first.firstBatch)/float64(c.rate))
	end := after[last]
	// The lookahead reads the next epoch's head during this one: only the sum has no such edge.
	o.origin = float64(end.bytes-bytes) / float64(last)
	o.reads, o.most = end.requests, end.most
	o.retried = end.requests - int64(float64(end.bytes)/mean+0.5)
	return o
}
