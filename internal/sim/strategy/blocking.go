package strategy

// naive reads each sample from the origin when it is wanted: nothing overlaps.
func naive(s *setting) (Result, error) {
	l, err := s.newLoop(rules{blocking: true})
	if err != nil {
		return Result{}, err
	}
	return l.run()
}

// deepioOrdered keeps the order: samples that some node's ram has are there in time, the others are
// read when they are wanted.
func deepioOrdered(s *setting) (Result, error) {
	l, err := s.newLoop(rules{blocking: true, placed: true})
	if err != nil {
		return Result{}, err
	}
	l.prestage(byTurn, s.ramOnly())
	return l.run()
}
