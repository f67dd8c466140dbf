package main

import (
	"errors"
	"fmt"

	"belady/internal/node/world"
)

// memory: what the daemon takes beside its arena, and what of the arena holds samples.
func (s *suite) memory() (*table, error) {
	t := newTable()
	if err := s.resident(t); err != nil {
		return nil, err
	}
	ram := int64(1 << 30)
	if s.quick {
		ram = 512 << 20
	}
	for _, c := range []struct {
		what        string
		size, bytes int64
		spread, bar float64
	}{
		{"110 KB, equal", 110_000, 2 * ram, 0, 0.98},
		{"110 KB ± 20 %", 110_000, 2 * ram, 0.2, 0.98},
		{"3 KB, equal", 3000, 2 * ram, 0, 0.94},
		{"3 KB ± 20 %", 3000, 2 * ram, 0.2, 0.94},
	} {
		staging := int64(64 << 20)
		w, err := s.fill(c.size, c.bytes, c.spread, ram, staging)
		if err != nil {
			return nil, err
		}
		room := ram - staging
		t.bar("kept bytes, "+c.what, fmt.Sprintf("%.1f MB", float64(w.Pump.KeptBytes)/1e6),
			fmt.Sprintf("ram − staging %.1f MB", float64(room)/1e6),
			float64(w.Pump.KeptBytes)/float64(room), c.bar, true)
	}
	return t, nil
}

// fill reads a dataset twice as large as ram once, and says what is kept then.
func (s *suite) fill(size, bytes int64, spread float64, ram, staging int64) (
	w *world.Status, err error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	info, err := s.add(dir, "data",
		fmt.Sprintf("synth://data?samples=%d&size=%d&spread=%g", bytes/size, size, spread))
	if err != nil {
		return nil, err
	}
	n, err := s.start(dir, ram, staging)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	r := reading{socket: n.socket, dataset: "data", epochs: 2, batch: int(max(16, 1<<20/size)),
		samples: info.Samples, noTouch: true}
	if _, err := r.run(s.ctx); err != nil {
		return nil, err
	}
	status, err := n.status(s.ctx)
	if err != nil {
		return nil, err
	}
	if len(status.Datasets) != 1 {
		return nil, fmt.Errorf("the daemon's status names %d datasets", len(status.Datasets))
	}
	return &status.Datasets[0], nil
}

// resident: a large dataset with a small arena, while it is being read.
func (s *suite) resident(t *table) (err error) {
	dir, err := s.big()
	if err != nil {
		return err
	}
	ram := int64(256 << 20)
	n, err := s.start(dir, ram, 64<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	r := reading{socket: n.socket, dataset: "big", epochs: 3, batch: 256, noTouch: true}
	r.ended = func(e *epoch) error {
		s.say("read %d samples in %.1f s", e.samples, e.seconds())
		return errEnough
	}
	if _, err := r.run(s.ctx); err != nil {
		return err
	}
	file := fmt.Sprintf("/proc/%d/status", n.pid())
	var anon, mapped, shared, peak int64
	for name, value := range map[string]*int64{"RssAnon": &anon, "RssFile": &mapped,
		"RssShmem": &shared, "VmHWM": &peak} {
		if *value, err = procField(file, name); err != nil {
			return err
		}
	}
	beyond := float64(anon + mapped + max(0, shared-ram))
	limit := 200e6 + 64*float64(large)
	t.bar("resident beyond the arena, 14.2 M samples", fmt.Sprintf("%.0f MB", beyond/1e6),
		fmt.Sprintf("200 MB + 64 B a sample: %.0f MB", limit/1e6), beyond/limit, 1, false)
	t.note("Resident after one epoch: %.0f MB anonymous, %.0f MB mapped from files (the manifest "+
		"with its names, which the kernel can take back), %.0f MB arena of %.0f; peak %.0f MB "+
		"with the arena.", float64(anon)/1e6, float64(mapped)/1e6, float64(shared)/1e6,
		float64(ram)/1e6, float64(peak)/1e6)
	return nil
}
