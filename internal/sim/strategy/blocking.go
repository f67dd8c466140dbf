package strategy

// naive reads each sample from the origin when it is wanted: nothing overlaps.
func naive(s *setting) (Result, error) {
	l, err := s.newLoop(rules{blocking: true})
	if err != nil {
		return Result{}, err
	}
	return l.run()
}
