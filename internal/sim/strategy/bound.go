package strategy

import "belady/internal/core/sample"

// perfect never waits: batch by batch the node with most bytes to compute.
func perfect(s *setting) (Result, error) {
	var result Result
	var done, all int64
	for number := range s.Jobs {
		a, err := s.access(number)
		if err != nil {
			return result, err
		}
		reads, err := a.reads()
		if err != nil {
			return result, err
		}
		all += reads
	}
	for number, job := range s.Jobs {
		a, err := s.access(number)
		if err != nil {
			return result, err
		}
		var one JobResult
		ever := newSet(len(s.sizes))
		for e := range job.Epochs {
			l, err := a.epoch(e)
			if err != nil {
				return result, err
			}
			var bytes int64
			for b := range l.batches {
				bytes += l.largest(b)
			}
			done += l.reads()
			distinct := newSet(len(s.sizes))
			for node, ids := range l.ids {
				for i, id := range ids {
					distinct.add(id, l.sizes[node][i])
					ever.add(id, l.sizes[node][i])
				}
			}
			one.distinct = append(one.distinct, distinct.bytes)
			a.close(e)
			one.Epochs = append(one.Epochs, float64(bytes)*s.compute)
			one.Seconds += one.Epochs[e]
			if err := s.progress(done, all); err != nil {
				return result, err
			}
		}
		one.ever = ever.bytes
		result.Jobs = append(result.Jobs, one)
	}
	result.end()
	return result, nil
}

// largest is the bytes of a batch on the node that has most of them.
func (l *lists) largest(batch int) int64 {
	var most int64
	for _, sizes := range l.sizes {
		var bytes int64
		for _, size := range sizes[min(batch*l.batch, len(sizes)):min((batch+1)*l.batch, len(sizes))] {
			bytes += int64(size)
		}
		most = max(most, bytes)
	}
	return most
}

// Least is the fewest bytes that the origin can send to nodes that hold so many bytes together, in
// staging and tiers: every sample once, and in each epoch but the first what cannot have been held
// when it began. A sample that padding repeats in an epoch counts once. Jobs of one dataset may all
// be given what one of them reads, so the one that needs most counts. r is the result of perfect.
func (r *Result) Least(held int64) int64 {
	var most int64
	for _, job := range r.Jobs {
		bytes := job.distinct[0]
		for _, epoch := range job.distinct[1:] {
			bytes += max(0, epoch-held)
		}
		most = max(most, bytes, job.ever)
	}
	return most
}

// set is samples and what they take.
type set struct {
	bits  []uint64
	bytes int64
}

func newSet(samples int) *set { return &set{bits: make([]uint64, (samples+63)/64)} }

func (s *set) add(id sample.ID, size uint32) {
	if word, bit := &s.bits[id/64], uint64(1)<<(id%64); *word&bit == 0 {
		*word |= bit
		s.bytes += int64(size)
	}
}
