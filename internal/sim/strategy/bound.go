package strategy

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
			a.close(e)
			one.Epochs = append(one.Epochs, float64(bytes)*s.compute)
			one.Seconds += one.Epochs[e]
			if err := s.progress(done, all); err != nil {
				return result, err
			}
		}
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
