package sim

import (
	"belady/internal/core/job"
	"belady/internal/core/perf"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// Bound is the roofline of a scenario: what no policy can beat, from inputs alone. Staging is not
// counted as keeping; samples staged when one epoch ends and wanted when the next begins can take
// a run a little below it.
type Bound struct {
	perf.Bound        // the least time of an epoch after the first, and what binds it
	OriginBytes int64 // of such an epoch: the dataset less what is kept
	SsdBytes    int64 // of the rest, what ram does not keep
	Requests    int64 // for the origin's bytes
}

// Epoch is the least time of an epoch after the first.
func (b Bound) Epoch() pump.Instant { return pump.Instant(b.Ns) }

// Roofline computes the bound: the longest of the ranks' compute, the bytes the origin must send,
// the requests it must answer, and the bytes that must go through the ssd.
func Roofline(s *Scenario) (Bound, error) {
	var b Bound
	var l perf.Load
	for _, r := range s.Readings {
		_, _, batches, err := job.Begin(r, false)
		if err != nil {
			return Bound{}, err
		}
		l.Compute = max(l.Compute, int64(batches)*int64(s.Compute))
	}
	n := int64(s.Plan.Sizes.Len())
	var total int64
	for id := range n {
		total += int64(s.Plan.Size(sample.ID(id)))
	}
	b.SsdBytes = min(s.Plan.LogBytes, max(0, total-s.Plan.Keep))
	b.OriginBytes = max(0, total-s.Plan.Keep) - b.SsdBytes
	b.Requests = b.OriginBytes * n / max(total, 1)
	l.OriginBytes, l.OriginRequests = b.OriginBytes, b.Requests
	p := perf.Profile{Origin: perf.Origin{Readers: perf.Curve{{At: 1, Rate: s.Origin.Rate}},
		Latency: int64(s.Origin.Latency), Concurrency: int64(s.Origin.Concurrency)}}
	if b.SsdBytes > 0 {
		p.Disks = []perf.Disk{{Tier: perf.Tier{Read: perf.Curve{{At: 1, Rate: s.Ssd.ReadRate}},
			Write: perf.Curve{{At: 1, Rate: s.Ssd.WriteRate}}}}}
		l.DiskRead = []int64{b.SsdBytes}
		if s.Plan.Carry {
			l.DiskWrite = []int64{b.SsdBytes}
		}
	}
	b.Bound, _ = p.Roofline(l)
	return b, nil
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
