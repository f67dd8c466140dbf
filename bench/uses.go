package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// planned is of what `belady plan --json` says.
type planned struct {
	Samples, Nodes int
	Uses           struct {
		Epochs, Least, Most, Above, Counted int
		Mean, Expected                      float64
	}
}

// uses: a whole plan for a large dataset on eight nodes, from its manifest to its homes.
func (s *suite) uses() (*table, error) {
	epochs := 90
	if s.quick {
		epochs = 4
	}
	dir, err := s.big()
	if err != nil {
		return nil, err
	}
	args := []string{"plan", "big", "--json", "--dir", dir, "--socket", filepath.Join(dir, "s"),
		"--epochs", fmt.Sprint(epochs), "--world", "8", "--nodes", "8", "--ram", "4GB"}
	v, err := s.verb(args...)
	if err != nil {
		return nil, err
	}
	var r planned
	if err := json.Unmarshal(v.out, &r); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	if r.Samples != large || r.Uses.Epochs != epochs || r.Nodes != 8 {
		return nil, fmt.Errorf("the plan is of %d samples, %d epochs, %d nodes", r.Samples,
			r.Uses.Epochs, r.Nodes)
	}
	t := newTable()
	what := fmt.Sprintf("14.2 M samples × %d epochs × 8 ranks", epochs)
	t.most(what, v.took.Seconds(), 60, "s")
	t.most(what+", memory", v.memory/1e9, 1, "GB")
	t.info("CPU time", fmt.Sprintf("%.1f s", v.cpu.Seconds()))
	t.info("uses", fmt.Sprintf("%d to %d of a sample by a rank, mean %.2f", r.Uses.Least,
		r.Uses.Most, r.Uses.Mean))
	t.info(fmt.Sprintf("read more than %d times by rank 0", r.Uses.Above),
		fmt.Sprintf("%d samples; %.0f expected by chance", r.Uses.Counted, r.Uses.Expected))
	t.note("`belady plan` as a process of its own: opening and verifying the manifest, counting, " +
		"homes and sums. Memory is the most that was resident, the mapped manifest included.")
	return t, nil
}
