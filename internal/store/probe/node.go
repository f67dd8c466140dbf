package probe

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"belady/internal/core/perf"
	"belady/internal/store/origin"
	"belady/internal/store/vfs"
)

// Node is what to measure of a node, and within what time.
type Node struct {
	Time    time.Duration
	Dirs    []string // of disks
	Origin  origin.Origin
	Samples Samples  // of Origin; nil: no origin is measured
	Peers   []string // addresses on which other nodes Answer
	// Concurrency is the most that the daemon asks of an origin at once.
	Concurrency int
}

// The shares of the time: steps of memory, the origin whatever it answers, and what else there is.
const (
	ramSpan     = 250 * time.Millisecond
	diskSpan    = 250 * time.Millisecond
	leastSpan   = 50 * time.Millisecond
	originSpan  = 1600 * time.Millisecond
	originBytes = 512e6
	originTime  = 20 * time.Second // where every step takes twice its span
	originSteps = 5                // four times as many readers each, from one
)

// limits are those of the origin.
func (n *Node) limits() Limits {
	l := Limits{Span: originSpan, Bytes: originBytes}
	for readers := 1; len(l.Readers) < originSteps && readers <= n.Concurrency; readers *= 4 {
		l.Readers = append(l.Readers, readers)
	}
	return l
}

// Steps is how often Measure calls step at most.
func (n *Node) Steps() int {
	steps := RamSteps() + len(n.Dirs)*DeviceSteps() + len(n.Peers)*len(peerThreads)
	if n.Samples != nil {
		steps += n.limits().Steps()
	}
	return steps
}

// left is the time that is not memory's, the origin's or peers'.
func (n *Node) left() time.Duration {
	left := n.Time - time.Duration(RamSteps())*ramSpan -
		time.Duration(len(n.Peers)*len(peerThreads))*peerSpan
	if n.Samples != nil {
		left -= originTime
	}
	return left
}

// span is how long each step of one of the disks may take, so that all keep within the time.
func (n *Node) span() time.Duration {
	each := n.left()/time.Duration(len(n.Dirs)) - probeFill
	return min(diskSpan, each/time.Duration(DeviceSteps()))
}

// Enough tells whether the time is enough to measure everything by.
func (n *Node) Enough() bool {
	return n.left() > 0 && (len(n.Dirs) == 0 || n.span() >= leastSpan)
}

// Measure measures one source after the other, each alone. The note says why less was measured of
// an origin than might have been.
func (n *Node) Measure(
	ctx context.Context, step func(),
) (p *perf.Profile, note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, n.Time+5*time.Second)
	defer cancel()
	p = &perf.Profile{Measured: time.Now().Unix(), Ram: perf.Tier{Name: "ram"}}
	if p.Ram.Read, p.Ram.Write, err = Ram(ctx, ramSpan, step); err != nil {
		return nil, "", err
	}
	for _, dir := range n.Dirs {
		d, err := disk(ctx, dir, n.span(), step)
		if err != nil {
			return nil, "", fmt.Errorf("measure %s: %w", dir, err)
		}
		p.Disks = append(p.Disks, d)
	}
	if n.Samples != nil {
		if p.Origin, note, err = Origin(ctx, n.Origin, n.Samples, n.limits(), step); err != nil {
			return nil, "", err
		}
		p.Origin.Concurrency = int64(n.Concurrency)
	}
	for _, address := range n.Peers {
		link, err := Peer(ctx, address, step)
		if err != nil {
			return nil, "", err
		}
		p.Peers = slowest(p.Peers, link)
	}
	roundAll(p)
	return p, note, nil
}

// disk measures a folder's device. One that does not answer is not waited for.
func disk(
	ctx context.Context, dir string, span time.Duration, step func(),
) (perf.Disk, error) {
	name, err := filepath.Abs(dir)
	if err != nil {
		return perf.Disk{}, err
	}
	files, err := vfs.Dir(dir)
	if err != nil {
		return perf.Disk{}, err
	}
	type answer struct {
		disk perf.Disk
		err  error
	}
	given := make(chan answer, 1)
	steps := make(chan struct{}, DeviceSteps())
	go func() {
		d, err := Device(ctx, files, span, func() { steps <- struct{}{} })
		given <- answer{d, errors.Join(err, files.Close())}
	}()
	quit := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case <-steps:
			step()
		case a := <-given:
			a.disk.Name = name
			return a.disk, a.err
		case <-quit: // it removes its file, if the device lets it
			quit, late = nil, time.After(time.Second)
		case <-late:
			return perf.Disk{}, fmt.Errorf("the device does not answer: %w", ctx.Err())
		}
	}
}

// roundAll leaves four digits of what was measured: more would not be read, and are not true.
func roundAll(p *perf.Profile) {
	curves := []perf.Curve{p.Ram.Read, p.Ram.Write, p.Origin.Readers, p.Peers}
	for i := range p.Disks {
		d := &p.Disks[i]
		d.Mixed = rounded(d.Mixed)
		d.Capacity &^= 1<<20 - 1
		curves = append(curves, d.Read, d.Write, d.Random, d.Alone)
	}
	for _, c := range curves {
		for i := range c {
			c[i].Rate = rounded(c[i].Rate)
		}
	}
	p.Origin.Latency, p.Origin.Size = rounded(p.Origin.Latency), rounded(p.Origin.Size)
}

func rounded(n int64) int64 {
	unit := int64(1)
	for n/unit >= 10_000 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}
