package perf

import "strings"

// Load is what one epoch asks of a node.
type Load struct {
	Compute             int64 // ns of the rank that computes longest
	Decode              int64 // bytes
	OriginBytes         int64
	OriginRequests      int64
	Size                int64 // mean of the samples; 0: as the origin was measured with
	PeerBytes           int64
	DiskRead, DiskWrite []int64 // bytes, by disk
}

// Bound is the least time of one resource.
type Bound struct {
	Ns      int64
	Binding string // "compute", "decode", "origin bytes", "origin requests", "ssd NAME", "network"
}

// OriginBytes is the resource that binds where the origin cannot send faster.
const OriginBytes = "origin bytes"

// Roofline is the least time that an epoch takes, with the resource that binds it, and the least
// time of every resource. One of which nothing is known bounds nothing and is left out.
func (p *Profile) Roofline(l Load) (Bound, []Bound) {
	all := []Bound{{l.Compute, "compute"}}
	add := func(ns int64, rate int64, name string) {
		if rate > 0 {
			all = append(all, Bound{ns, name})
		}
	}
	add(nanoseconds(l.Decode, p.Decode), p.Decode, "decode")
	most := p.Origin.concurrency()
	rate := p.Origin.Gives(l.Size)
	add(nanoseconds(l.OriginBytes, rate), rate, OriginBytes)
	// Requests wait for the latency, so many at a time.
	waits := scale(l.OriginRequests, p.Origin.Latency, most)
	add(waits, p.Origin.Latency, "origin requests")
	for i := range p.Disks {
		d := &p.Disks[i]
		read, write := d.Read.Best(d.threads()), d.Write.Best(d.Write.Most())
		if write == 0 {
			write = d.Mixed / 2
		}
		ns := nanoseconds(at(l.DiskRead, i), read) + nanoseconds(at(l.DiskWrite, i), write)
		add(ns, read, strings.TrimSpace("ssd "+d.Name))
	}
	link := p.Peers.Best(p.Peers.Most())
	add(nanoseconds(l.PeerBytes, link), link, "network")
	binding := all[0]
	for _, b := range all[1:] {
		if b.Ns > binding.Ns {
			binding = b
		}
	}
	return binding, all
}

// at is the i-th of bytes, or none.
func at(bytes []int64, i int) int64 {
	if i < len(bytes) {
		return bytes[i]
	}
	return 0
}
