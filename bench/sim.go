package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// simulated is of what `belady sim SCENARIO --json` says.
type simulated struct {
	Rows []struct {
		Name        string
		Unsupported string
		Seconds     float64
		Ratio       float64 `json:"times_lower_bound"`
	}
}

// sim: NoPFS's largest scenario, 14.2 million samples on four nodes, by every strategy.
func (s *suite) sim() (*table, error) {
	args := []string{"sim", filepath.Join(s.root, "scenarios", "nopfs-paper-s4.yaml"), "--json"}
	if s.quick {
		args = append(args, "--policy", "perfect,staging")
	}
	v, err := s.verb(args...)
	if err != nil {
		return nil, err
	}
	var r simulated
	if err := json.Unmarshal(v.out, &r); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	t := newTable()
	what := fmt.Sprintf("14.2 M samples × 4 nodes × 5 epochs, %d strategies", len(r.Rows))
	t.most(what, v.took.Seconds(), 300, "s")
	t.most(what+", memory", v.memory/1e9, 4, "GB")
	t.info("CPU time", fmt.Sprintf("%.1f s", v.cpu.Seconds()))
	for _, row := range r.Rows {
		if row.Unsupported == "" {
			t.info(row.Name, fmt.Sprintf("%.0f s, %.3f of the bound", row.Seconds, row.Ratio))
		}
	}
	t.note("`belady sim scenarios/nopfs-paper-s4.yaml` as a process of its own, as many strategies " +
		"at a time as there are processors. The seconds of a strategy are simulated.")
	return t, nil
}
