package sim

import (
	"cmp"
	"errors"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/core/trace"
)

// OriginOf is the origin that a profile describes, of samples of that mean size: one pipe of the
// most that it gives of them, asked as the daemon asks.
func OriginOf(o *perf.Origin, size int64) (Origin, error) {
	most := cmp.Or(o.Concurrency, o.Readers.Most())
	if most <= 0 || len(o.Readers) == 0 {
		return Origin{}, errors.New("the profile has no rate of the origin: measure one with " +
			"'belady bench tiers DATASET'")
	}
	return Origin{Rate: o.Gives(size), Latency: pump.Instant(o.Latency),
		Concurrency: int(most), Paced: true}, nil
}

// What a profile does not tell of a device: both matter only where a rank waits for single reads.
const (
	deviceLatency = 100_000
	deviceDepth   = 32
)

// DeviceOf is the disks of a profile as one, since a log stripes over them, read in samples of that
// size. Where each epoch is carried on, reading and writing are large and share what mixed reaches.
func DeviceOf(disks []perf.Disk, size int64, carry bool) (Device, error) {
	d := Device{Latency: deviceLatency, Depth: deviceDepth * len(disks)}
	for _, disk := range disks {
		read, write := disk.Read.Best(disk.Read.Most()), disk.Write.Best(disk.Write.Most())
		if rate := disk.Random.Rate(size); rate > 0 {
			read = min(read, rate)
		}
		if disk.Mixed > 0 && (carry || write == 0) {
			read, write = disk.Mixed, disk.Mixed
		}
		d.ReadRate += read
		d.WriteRate += write
	}
	if d.ReadRate <= 0 || d.WriteRate <= 0 {
		return d, errors.New("the profile does not say how fast the disks of the log are read and " +
			"written: measure them with 'belady bench tiers --ssd DIR'")
	}
	return d, nil
}

// Measure runs a scenario and measures its trace, as one of a daemon is measured.
func Measure(s Scenario) (*trace.Measured, error) {
	e, err := trace.NewEncoder(trace.HeaderOf("", s.Plan))
	if err != nil {
		return nil, err
	}
	var failed error
	s.Attach = func(cursor int32, r job.Reading) { failed = cmp.Or(failed, e.Reading(cursor, r)) }
	s.Observe = e.Step
	if _, err := Run(s); err != nil || failed != nil {
		return nil, cmp.Or(err, failed)
	}
	e.Flush()
	return trace.Measure(e.Take(), s.Plan.Sizes)
}

// Predict simulates the run that was measured: the same plan and what happened to it, the same
// readers from the same times on, each computing on a batch for as long as it did on average of the
// epoch, over the sources that a profile describes. The readers are the measured ones; one that
// finished no epoch, or whose order was its client's own, is predicted nothing.
func Predict(p *plan.Plan, m *trace.Measured, profile *perf.Profile) (*trace.Measured, error) {
	s := Scenario{Plan: p, Script: m.Script}
	var err error
	if s.Origin, err = OriginOf(&profile.Origin, meanSize(p.Sizes)); err != nil {
		return nil, err
	}
	if p.Log > 0 {
		mean := p.LogBytes / int64(max(p.LogCount, 1))
		if s.Ssd, err = DeviceOf(profile.Disks, mean, p.Carry); err != nil {
			return nil, err
		}
	}
	var of []int // by reading
	for i := range m.Readers {
		r, rank := m.Readers[i].Reading, rankOf(&m.Readers[i])
		if r.Epochs = wholeEpochs(&m.Readers[i]); r.Epochs <= r.Start.Epoch || !m.Readers[i].Known {
			continue
		}
		s.Readings, s.Ranks, of = append(s.Readings, r), append(s.Ranks, rank), append(of, i)
	}
	if len(of) == 0 {
		return nil, errors.New("the trace has no epoch that was read to its end, in an order that " +
			"can be computed again: there is nothing to predict")
	}
	got, err := Measure(s)
	if err != nil {
		return nil, err
	}
	readers := make([]trace.Reader, len(m.Readers))
	for k, i := range of {
		readers[i] = got.Readers[k]
	}
	got.Readers = readers
	return got, nil
}

func meanSize(s dataset.Sizes) int64 {
	total := int64(0)
	for id := range s.Len() {
		total += int64(s.Size(sample.ID(id)))
	}
	return total / int64(max(s.Len(), 1))
}

// wholeEpochs is the epoch after the last one that was read to its end.
func wholeEpochs(r *trace.Reader) int {
	for i := len(r.Epochs) - 1; i >= 0; i-- {
		if r.Epochs[i].Whole {
			return r.Epochs[i].Epoch + 1
		}
	}
	return 0
}

// rankOf is when a reader attached, and how long it computed on a batch, on average of each epoch.
func rankOf(r *trace.Reader) Rank {
	rank := Rank{Begin: r.At}
	for i := range r.Epochs {
		e := &r.Epochs[i]
		for len(rank.ByEpoch) <= e.Epoch {
			rank.ByEpoch = append(rank.ByEpoch, 0)
		}
		rank.ByEpoch[e.Epoch] = (e.Ended - e.Begun - e.Waited()) / pump.Instant(max(e.Batches, 1))
	}
	return rank
}
