package sim

import (
	"slices"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/perf"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// Bound is the roofline of a scenario: what no policy can beat on average of the epochs after the
// first, from inputs alone. An epoch may find what ram keeps and what is staged when it begins; the
// log has its set. It holds for the time from the first rank's beginning to the last one's end: of
// ranks that are ahead of each other epochs overlap, and share more than what is staged then.
type Bound struct {
	perf.Bound        // the least time of an epoch after the first, and what binds it
	FirstBytes  int64 // that the origin sends in the first epoch, of an empty node
	OriginBytes int64 // and in each later one
	SsdBytes    int64 // that the log gives in each later one
	Requests    int64 // for OriginBytes
}

// Epoch is the least time of an epoch after the first.
func (b Bound) Epoch() pump.Instant { return pump.Instant(b.Ns) }

// Roofline computes the bound: the longest of the ranks' compute, the bytes the origin must send,
// the requests it must answer, and the bytes that must go through the ssd.
func Roofline(s *Scenario) (Bound, error) {
	var b Bound
	var l perf.Load
	last := 0
	for _, r := range s.Readings {
		_, _, batches, err := job.Begin(r, false)
		if err != nil {
			return Bound{}, err
		}
		l.Compute = max(l.Compute, int64(batches)*int64(s.Compute))
		last = max(last, r.Epochs-1)
	}
	d, err := distinctOf(s)
	if err != nil {
		return Bound{}, err
	}
	p := s.Plan
	rest := max(0, max(0, d.later.bytes-p.Keep)-p.Staging)
	b.FirstBytes = d.first.bytes
	b.OriginBytes = max(0, rest-p.LogBytes)
	if b.OriginBytes > 0 {
		b.Requests = d.later.samples - fewest(p.Sizes, p.Keep+p.Staging+p.LogBytes)
	}
	l.OriginBytes, l.OriginRequests = b.OriginBytes, max(0, b.Requests)
	// What the log has and ram does not, be it that a policy keeps of it whatever it can; less what
	// the epoch does not read, and what the first did not bring.
	logged := min(p.LogBytes, d.all.bytes-p.SetBytes)
	if !p.Rule.Fixed {
		logged = p.LogBytes - p.Keep
	}
	b.SsdBytes = max(0, max(0, logged-d.later.missing(d.all)-d.first.missing(d.all))-p.Staging)
	rates := perf.Profile{Origin: perf.Origin{Readers: perf.Curve{{At: 1, Rate: s.Origin.Rate}},
		Latency: int64(s.Origin.Latency), Concurrency: int64(s.Origin.Concurrency)}}
	if b.SsdBytes > 0 {
		rates.Disks = []perf.Disk{{Tier: perf.Tier{Read: perf.Curve{{At: 1, Rate: s.Ssd.ReadRate}},
			Write: perf.Curve{{At: 1, Rate: s.Ssd.WriteRate}}}}}
		l.DiskRead = []int64{b.SsdBytes}
		if p.Carry && last > 0 { // nothing is carried out of the last
			l.DiskWrite = []int64{b.SsdBytes / int64(last) * int64(last-1)}
		}
	}
	b.Bound, _ = rates.Roofline(l)
	return b, nil
}

// fewest is how many samples so many bytes hold at the most: the smallest ones.
func fewest(s dataset.Sizes, bytes int64) (samples int64) {
	sizes := make([]uint32, s.Len())
	for id := range sizes {
		sizes[id] = s.Size(sample.ID(id))
	}
	slices.Sort(sizes)
	for _, size := range sizes {
		if bytes -= int64(size); bytes < 0 {
			break
		}
		samples++
	}
	return samples
}

// ByEpoch merges the ranks of each epoch: from the first start to the last end, the mean stall of
// a rank, the batches of all.
func (r *Result) ByEpoch() []EpochResult {
	var all []EpochResult
	ranks := map[int]pump.Instant{}
	at := map[int]int{}
	for _, e := range r.Epochs {
		ranks[e.Epoch]++
		i, seen := at[e.Epoch]
		if !seen {
			at[e.Epoch] = len(all)
			all = append(all, e)
			continue
		}
		m := &all[i]
		m.Start, m.End = min(m.Start, e.Start), max(m.End, e.End)
		m.Batches += e.Batches
		for cause := range m.Stall {
			m.Stall[cause] += e.Stall[cause]
		}
		m.OriginBytes = max(m.OriginBytes, e.OriginBytes)
		m.SsdBytes = max(m.SsdBytes, e.SsdBytes)
		m.LogBytes = max(m.LogBytes, e.LogBytes)
	}
	for i := range all {
		for cause := range all[i].Stall {
			all[i].Stall[cause] /= ranks[all[i].Epoch]
		}
	}
	return all
}
