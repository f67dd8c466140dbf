package strategy

// perfect never waits: batch by batch the node with most bytes to compute.
func perfect(s *setting) (Result, error) {
	var result Result
	a, err := s.access()
	if err != nil {
		return result, err
	}
	all, err := a.reads(s.job.Epochs)
	if err != nil {
		return result, err
	}
	for e := range s.job.Epochs {
		l, err := a.epoch(e)
		if err != nil {
			return result, err
		}
		var bytes int64
		for b := range l.batches {
			bytes += l.largest(b)
		}
		a.close(e)
		result.Epochs = append(result.Epochs, float64(bytes)*s.compute)
		result.Seconds += result.Epochs[e]
		if err := s.progress(all/int64(s.job.Epochs)*int64(e+1), all); err != nil {
			return result, err
		}
	}
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
