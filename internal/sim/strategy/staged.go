package strategy

// staging reads everything from the origin, ahead of use: tf.data's and PyTorch's prefetching.
func staging(s *setting) (Result, error) {
	l, err := s.newLoop(rules{})
	if err != nil {
		return Result{}, err
	}
	return l.run()
}
