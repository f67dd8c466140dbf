package daemon

import "runtime/debug"

// heapSlack is how much garbage the daemon may let lie.
const heapSlack = 48 << 20

// sampleHeap is the heap a sample takes: the pump's record, its place, two epochs of order.
const sampleHeap = 32

// gcPercent is the collector's target for that many samples. Go's default lets the heap grow to
// twice what is alive; here nearly all of it is a few large arrays that live long, so that would
// be hundreds of megabytes of nothing. With few samples the default is kept: a small heap
// collected too eagerly costs more than it saves.
func gcPercent(samples int64) int {
	return int(max(10, min(100, 100*heapSlack/(samples*sampleHeap+heapSlack/2))))
}

// tuneHeap sets the collector for the datasets that are open. The caller holds mu.
func (d *Daemon) tuneHeap() {
	samples := int64(0)
	for _, p := range d.worlds {
		if p.world != nil {
			samples += int64(p.world.Set.Len())
		}
	}
	debug.SetGCPercent(gcPercent(samples))
}
