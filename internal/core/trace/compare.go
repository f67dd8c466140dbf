package trace

import "belady/internal/core/pump"

// Compared is one epoch of a job, as it was predicted and as it was measured.
type Compared struct {
	Job       int       `json:"job"` // in the order they began
	Ranks     int       `json:"ranks"`
	Epoch     int       `json:"epoch"`
	Predicted EpochView `json:"predicted"`
	Measured  EpochView `json:"measured"`
}

// EpochView is an epoch over all ranks of a job: from the first beginning to the last end, the mean
// stall of a rank, and the bytes of its samples by where they came from.
type EpochView struct {
	begun, ended pump.Instant

	Time    pump.Instant            `json:"time_ns"`
	Stall   pump.Instant            `json:"stall_ns"`
	ByCause map[string]pump.Instant `json:"stall_by_cause_ns"`
	Origin  int64                   `json:"origin_bytes"`
	Ssd     int64                   `json:"ssd_bytes"`
	Ram     int64                   `json:"ram_bytes"`
	Shared  int64                   `json:"shared_bytes"`
	// SharedSsd is what of Shared belongs to the log: without sharing it would be Ssd's, and the rest
	// of Shared would be Origin's.
	SharedSsd int64 `json:"shared_ssd_bytes"`
}

// FromOrigin and FromSsd are what came from each, or would have without sharing.
func (v *EpochView) FromOrigin() int64 { return v.Origin + v.Shared - v.SharedSsd }
func (v *EpochView) FromSsd() int64    { return v.Ssd + v.SharedSsd }

// add takes what one of so many ranks saw.
func (v *EpochView) add(s *Seen, ranks int) {
	if v.ByCause == nil {
		v.begun, v.ByCause = s.Begun, map[string]pump.Instant{}
	}
	v.begun, v.ended = min(v.begun, s.Begun), max(v.ended, s.Ended)
	v.Time = v.ended - v.begun
	for cause, d := range s.Stall {
		v.Stall += d / pump.Instant(ranks)
		v.ByCause[pump.Cause(cause).String()] += d / pump.Instant(ranks)
	}
	v.Origin, v.Ssd, v.Ram = v.Origin+s.Origin, v.Ssd+s.Ssd, v.Ram+s.Ram
	v.Shared, v.SharedSsd = v.Shared+s.Shared, v.SharedSsd+s.SharedSsd
}

// Compare lists the epochs that every rank of a job read to the end and that were predicted. Both
// have the same readers.
func Compare(told, seen *Measured) []Compared {
	var all []Compared
	for number, ranks := range jobsOf(seen.Readers) {
		for _, first := range seen.Readers[ranks[0]].Epochs {
			c := Compared{Job: number, Ranks: len(ranks), Epoch: first.Epoch}
			whole := 0
			for _, i := range ranks {
				t, s := told.Readers[i].of(first.Epoch), seen.Readers[i].of(first.Epoch)
				if t != nil && s != nil && s.Whole {
					whole++
					c.Predicted.add(t, len(ranks))
					c.Measured.add(s, len(ranks))
				}
			}
			if whole == len(ranks) {
				all = append(all, c)
			}
		}
	}
	return all
}

// jobsOf puts readers of one order together: a rank that comes again begins another job.
func jobsOf(readers []Reader) [][]int {
	var jobs [][]int
	for i := range readers {
		at := len(jobs)
		for k, ranks := range jobs {
			if joins(readers, ranks, i) {
				at = k
			}
		}
		if at == len(jobs) {
			jobs = append(jobs, nil)
		}
		jobs[at] = append(jobs[at], i)
	}
	return jobs
}

func joins(readers []Reader, ranks []int, i int) bool {
	for _, other := range ranks {
		if readers[other].Reading.Rank == readers[i].Reading.Rank {
			return false
		}
	}
	return readers[ranks[0]].Reading.Order.Digest() == readers[i].Reading.Order.Digest()
}

// of is what the reader saw of an epoch, or nil.
func (r *Reader) of(epoch int) *Seen {
	for i := range r.Epochs {
		if r.Epochs[i].Epoch == epoch {
			return &r.Epochs[i]
		}
	}
	return nil
}
