package perf

// Tier is a place of a node and what it gives.
type Tier struct {
	Name     string `json:"name"`
	Capacity int64  `json:"capacity_bytes"`
	// Threads is how many read it at once; 0: the fewest that read it the fastest.
	Threads int64 `json:"threads,omitempty"`
	Read    Curve `json:"read"`            // of all threads together, by threads
	Write   Curve `json:"write,omitempty"` // the same; may be empty where nobody measured
}

// threads is how many read the tier at once.
func (t *Tier) threads() int64 {
	if t.Threads > 0 {
		return t.Threads
	}
	return t.Read.Widest()
}

// thread is what each of its readers gets.
func (t *Tier) thread() int64 { return t.Read.Rate(t.threads()) / t.threads() }

// Deep is how many random reads a disk is asked at once where it is to give what it has.
const Deep = 32

// Disk is a tier on a device, of which more is known.
type Disk struct {
	Tier         // of large blocks
	Random Curve `json:"random"` // random reads, Deep at once, by their bytes; may be empty
	Alone  Curve `json:"alone"`  // and one at a time; may be empty
	Mixed  int64 `json:"mixed"`  // large reads and writes, half and half, together; 0: not known
}

// threads is how many read the disk at once: where nobody says, as many as random reads need.
func (d *Disk) threads() int64 {
	if d.Threads == 0 && len(d.Random) > 0 {
		return Deep
	}
	return d.Tier.threads()
}

// thread is what each of its readers gets of samples of that size. Between one reader and many,
// rates lie in proportion; where nobody measured one alone, it has its share of what many have.
func (d *Disk) thread(size int64) int64 {
	if len(d.Random) == 0 {
		return d.Tier.thread()
	}
	deep := d.Random.Rate(size)
	alone := deep / Deep
	if len(d.Alone) > 0 {
		alone = d.Alone.Rate(size)
	}
	return Curve{{1, alone}, {Deep, deep}}.Rate(d.threads()) / d.threads()
}

// Rates is what the layout of a log is chosen by.
func (d *Disk) Rates() Rates {
	r := Rates{Mixed: d.Mixed, Read: d.Read.Best(d.Read.Most())}
	for _, s := range d.Random {
		r.Random = append(r.Random, Point{Size: uint32(s.At), BytesPerS: s.Rate})
	}
	return r
}

// Origin is what an origin gives.
type Origin struct {
	// Readers is bytes a second of all readers together, by how many read at once.
	Readers Curve `json:"readers"`
	// Latency is ns from a request to the first byte of its answer.
	Latency int64 `json:"latency_ns"`
	// Concurrency is the most requests in flight; 0: as many as Readers goes to.
	Concurrency int64 `json:"concurrency"`
	// Size is the mean of the samples that Readers was measured with, whose rates then include the
	// latency of each. Zero: rates are of bytes alone, and each sample costs the latency besides.
	Size int64 `json:"size_bytes"`
}

// concurrency is the most requests in flight.
func (o *Origin) concurrency() int64 {
	if o.Concurrency > 0 {
		return o.Concurrency
	}
	return max(o.Readers.Most(), 1)
}

// cost is the ns of a sample for one of so many readers.
func (o *Origin) cost(size, readers int64) int64 {
	readers = max(readers, 1)
	rate := o.Readers.Rate(readers)
	if o.Size == 0 {
		return o.Latency + nanoseconds(size*readers, rate)
	}
	bytes := max(0, nanoseconds(o.Size*readers, rate)-o.Latency)
	return o.Latency + scale(bytes, size, o.Size)
}

// Gives is the most bytes a second that samples of that mean size come at, as cost has it: larger
// ones than were measured spread the latency over more bytes. Smaller ones have no more than was
// measured, and no less either where many wait at once; the latency of each bounds them by itself.
func (o *Origin) Gives(size int64) int64 {
	most := o.concurrency()
	best := o.Readers.Best(most)
	if !o.Stretched(size, 0) {
		return best
	}
	for _, s := range append(Curve{{At: most}}, o.Readers...) {
		if s.At <= most && len(o.Readers) > 0 {
			best = max(best, scale(size*s.At, 1e9, max(o.cost(size, s.At), 1)))
		}
	}
	return best
}

// Stretched says that samples of that mean size are larger than the measured ones, by more than so
// many percent: what the origin gives of them is then reckoned from latency and rate, and an origin
// whose requests cost more than both gives more than that.
func (o *Origin) Stretched(size, percent int64) bool {
	return o.Size > 0 && size > o.Size+scale(o.Size, percent, 100)
}

// Profile is what the sources of a node give, measured or written by hand.
type Profile struct {
	// Measured is when, in seconds since 1970; 0: it is written by hand.
	Measured int64  `json:"measured"`
	Ram      Tier   `json:"ram"`
	Disks    []Disk `json:"disks"`
	Origin   Origin `json:"origin"`
	// Peers is bytes a second of a link to a peer, by threads; empty: there are no peers.
	Peers Curve `json:"peers,omitempty"`
	// Decode is bytes a second of the node; 0: not known, and then it bounds nothing.
	Decode int64 `json:"decode,omitempty"`
}

// Source is where a sample is read from.
type Source uint8

// The sources, the nearest first.
const (
	Own Source = iota
	Peer
	FromOrigin
)

func (s Source) String() string {
	switch s {
	case Own:
		return "own tier"
	case Peer:
		return "peer"
	}
	return "origin"
}

// thread is what each reader of a tier gets of samples of that size: tier 0 is ram, the others are
// disks.
func (p *Profile) thread(tier int, size int64) int64 {
	if tier == 0 {
		return p.Ram.thread()
	}
	return p.Disks[tier-1].thread(size)
}

// unknown is the cost of a source of which nothing is known: the last that is taken.
const unknown = 1<<63 - 1

// Cost is the ns that a thread needs for a sample of so many bytes, from a tier (0 is ram, the
// others are disks in their order), from that tier of a peer, or from the origin while so many
// readers read it at once.
func (p *Profile) Cost(from Source, tier int, size, readers int64) int64 {
	if from == FromOrigin {
		if len(p.Origin.Readers) == 0 {
			return unknown
		}
		return p.Origin.cost(size, readers)
	}
	rate := p.thread(tier, size)
	if from == Peer {
		rate = min(rate, p.Peers.Rate(1))
	}
	if rate <= 0 {
		return unknown
	}
	return nanoseconds(size, rate)
}

// Fastest is the source that costs least of those that have the sample: own tells which of the
// node's tiers do, peers which tier of some peer does. The origin always does. Of equals the nearer
// is taken.
func (p *Profile) Fastest(size, readers int64, own, peers []bool) (from Source, tier int) {
	from, best := FromOrigin, p.Cost(FromOrigin, 0, size, readers)
	look := func(source Source, have []bool) {
		for i := len(have) - 1; i >= 0; i-- {
			if !have[i] {
				continue
			}
			if cost := p.Cost(source, i, size, readers); cost <= best && cost != unknown {
				from, tier, best = source, i, cost
			}
		}
	}
	look(Peer, peers)
	look(Own, own)
	return from, tier
}
