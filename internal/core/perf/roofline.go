package perf

import "math"

// Load is what one epoch asks of a node.
type Load struct {
	Compute             int64 // ns of the rank that computes longest
	Decode              int64 // bytes
	OriginBytes         int64
	OriginRequests      int64
	PeerBytes           int64
	DiskRead, DiskWrite []int64 // bytes, by disk
}

// Bound is the least time of one resource.
type Bound struct {
	Ns      int64
	Binding string // "compute", "decode", "origin bytes", "origin requests", "ssd NAME", "network"
}

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
	rate := p.Origin.Readers.Best(most)
	add(nanoseconds(l.OriginBytes, rate), rate, "origin bytes")
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
		add(ns, read, "ssd "+d.Name)
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

// Above is how many of so many samples one of the nodes is expected to use more than uses times,
// when every epoch deals each sample to one of them at random: the upper tail of a binomial
// distribution. For samples that no order has dealt yet; plan counts those of an order.
func Above(samples, nodes, epochs, uses int) float64 {
	switch {
	case uses < 0:
		return float64(samples)
	case uses >= epochs:
		return 0
	case nodes <= 1:
		return float64(samples)
	}
	chance := 1 / float64(nodes)
	odds := chance / (1 - chance)
	if float64(uses) < chance*float64(epochs) { // the lower tail is the smaller, and the exacter
		below, term := 0.0, binomial(epochs, uses, chance)
		for k := uses; k >= 0 && term > 0; k-- {
			below += term
			term *= float64(k) / (float64(epochs-k+1) * odds)
		}
		return float64(samples) * (1 - below)
	}
	above, term := 0.0, binomial(epochs, uses+1, chance)
	for k := uses + 1; k <= epochs && term > 0; k++ {
		above += term
		term *= float64(epochs-k) / float64(k+1) * odds
	}
	return float64(samples) * above
}

// binomial is the chance of exactly k of n.
func binomial(n, k int, chance float64) float64 {
	factorial := func(n int) float64 { f, _ := math.Lgamma(float64(n) + 1); return f }
	return math.Exp(factorial(n) - factorial(k) - factorial(n-k) +
		float64(k)*math.Log(chance) + float64(n-k)*math.Log1p(-chance))
}
