package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/node/wire"
	"belady/internal/store/catalog"
	"belady/internal/store/tier"
)

// logged is a dataset on its way into a log, or wholly in one.
type logged struct {
	s            *suite
	dir, ssd     string
	layout       string
	info         catalog.Info
	quota        int64 // 0: as much as is free
	ram, staging int64 // ram equal to staging keeps nothing
	batch        int
	compute      time.Duration // of a batch
	touch        bool
}

// newLogged scans computed samples of one size. Memory is for staging and carrying alone. slow is
// what of the origin's URL makes it so; it is counted in any case.
func (s *suite) newLogged(size, total int64, layout, slow string) (*logged, error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	l := &logged{s: s, dir: dir, ssd: filepath.Join(dir, "ssd"), layout: layout, staging: 192 << 20,
		batch: int(min(256, max(4, 8<<20/size)))}
	l.ram = l.staging
	if layout != "static" { // carrying takes buffers of four times the root of dataset × slot
		l.ram += 4 * int64(math.Sqrt(float64(total)*(1<<20)))
	}
	l.info, err = s.add(dir, "data", fmt.Sprintf("throttle+synth://data?samples=%d&size=%d"+
		"&throttle.counts=%s%s", total/size, size, l.counts(), slow))
	return l, err
}

func (l *logged) counts() string { return filepath.Join(l.dir, "counts") }

// lap is one reading: what it saw of the epochs that are measured, together.
type lap struct {
	seconds        float64
	bytes, samples float64 // delivered
	log            float64 // bytes of them out of the log
	compute, stall time.Duration
	cpu            time.Duration // of the daemon
	requests       int64         // that the origin saw, and
	origin         float64       // bytes it gave
	fill           float64       // bytes a second of the first epoch
	usage          tier.Usage    // at the end
	memory         float64       // bytes of samples kept in ram, at the end
}

// rate is the log's in bytes, each in samples a second: what memory added is not counted.
func (l *lap) rate() float64  { return l.log / l.seconds }
func (l *lap) each() float64  { return l.rate() * l.samples / l.bytes }
func (l *lap) cpuGB() float64 { return l.cpu.Seconds() / (l.bytes / 1e9) }

// asked says how much of a reading the origin gave though all is in the log. None of it is in the
// rate, and beyond a hundredth it is a miss.
func (l *lap) asked(t *table, what string) {
	if l.requests == 0 {
		return
	}
	verdict := t.verdict(float64(l.requests) <= l.samples/100)
	t.note("%s: the origin was asked for %d of %.0f samples that the log has: %s.", what, l.requests,
		l.samples, verdict)
}

// serve starts a daemon with the log, or without one if the layout is empty.
func (l *logged) serve() (*node, error) {
	if l.layout == "" {
		return l.s.start(l.dir, l.ram, l.staging)
	}
	dir := l.ssd
	if l.quota > 0 {
		dir += fmt.Sprintf(":%d", l.quota)
	}
	return l.s.start(l.dir, l.ram, l.staging, "BELADY_SSD="+dir, "BELADY_SSD_LAYOUT="+l.layout,
		"BELADY_SSD_FREE=1GiB", "BELADY_SSD_WEAR=100TB")
}

// read starts a daemon, reads some epochs and stops it. Those from `from` on and before `to` are
// measured; each begins where the one before ended. Where another one follows, as much has been
// read ahead at the end as at the beginning.
func (l *logged) read(epochs, from, to int) (out *lap, err error) {
	n, err := l.serve()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	out = new(lap)
	begin, err := readCounts(l.counts())
	if err != nil {
		return nil, err
	}
	r := reading{socket: n.socket, dataset: "data", epochs: epochs, batch: l.batch, seed: l.s.seed,
		samples: l.info.Samples, compute: l.compute, noTouch: !l.touch}
	r.ended = func(e *epoch) error {
		if e.index >= from && e.index < to {
			out.add(e)
		}
		if e.index != from-1 && e.index != to-1 {
			return nil
		}
		cpu, err := cpuOf(n.pid())
		if err != nil {
			return err
		}
		now, err := readCounts(l.counts())
		if err != nil {
			return err
		}
		if out.usage, err = n.usage(l.s.ctx); err != nil {
			return err
		}
		if e.index == from-1 {
			begin = now
		}
		out.cpu, out.log = cpu-out.cpu, float64(out.usage.ReadBytes)-out.log
		out.requests, out.origin = now.requests-begin.requests, float64(now.bytes-begin.bytes)
		return nil
	}
	all, err := r.run(l.s.ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &n.log)
	}
	out.fill = float64(all[0].bytes) / all[0].seconds()
	out.seconds = all[to-1].end.Sub(all[from].begun).Seconds()
	status, err := n.status(l.s.ctx)
	if err != nil {
		return nil, err
	}
	out.memory = float64(status.Datasets[0].Pump.KeptBytes)
	return out, nil
}

// open starts a daemon and reads one batch. It returns the time from attaching to the batch, and the
// daemon's own memory then.
func (l *logged) open() (took time.Duration, resident int64, err error) {
	n, err := l.serve()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	begun := time.Now()
	c, err := client.Dial(l.s.ctx, client.Config{Socket: n.socket, Name: "bench"})
	if err != nil {
		return 0, 0, err
	}
	s, err := c.Open(l.s.ctx, wire.Attach{Job: "bench", Epochs: 2,
		Datasets: []wire.Dataset{{Name: "data"}},
		Order:    order.Spec{Kind: order.Distributed, Seed: l.s.seed, Batch: l.batch}})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b, err := s.Next(l.s.ctx)
	if err != nil {
		return 0, 0, err
	}
	took = time.Since(begun)
	b.Release()
	resident, err = procField(fmt.Sprintf("/proc/%d/status", n.pid()), "RssAnon")
	return took, resident, err
}

func (l *lap) add(e *epoch) {
	l.bytes += float64(e.bytes)
	l.samples += float64(e.samples)
	l.compute += e.compute
	for _, d := range e.stall {
		l.stall += d
	}
}

// usage is what the daemon says of its dataset's log; zero without one.
func (n *node) usage(ctx context.Context) (tier.Usage, error) {
	c, err := client.Dial(ctx, client.Config{Socket: n.socket})
	if err != nil {
		return tier.Usage{}, err
	}
	raw, err := c.Status(ctx)
	if err != nil {
		return tier.Usage{}, err
	}
	var status struct {
		Datasets []struct {
			Ssd tier.Usage `json:"ssd"`
		} `json:"datasets"`
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		return tier.Usage{}, err
	}
	if len(status.Datasets) != 1 {
		return tier.Usage{}, fmt.Errorf("the daemon's status names %d datasets", len(status.Datasets))
	}
	return status.Datasets[0].Ssd, nil
}

// fill reads until an epoch needs nothing of the origin, and returns the first one's rate.
func (l *logged) fill() (float64, error) {
	const most = 4
	var rate float64
	for i := range most {
		lap, err := l.read(2, 1, 2)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			rate = lap.fill
		}
		if lap.requests == 0 {
			return rate, nil
		}
		l.s.say("filling: %d samples more in epoch %d", lap.requests, 2*i+1)
	}
	return 0, fmt.Errorf("after %d epochs the log still has not all of the dataset", 2*most)
}

// clear removes the log: the next reading fills it anew.
func (l *logged) clear() error { return os.RemoveAll(l.ssd) }

// remove takes all of it from the disk.
func (l *logged) remove() error { return os.RemoveAll(l.dir) }
