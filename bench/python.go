package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"time"
)

// The bars of the Python client.
const (
	barCopy110  = 0.8 // of memcpy
	barStock110 = 3.0 // of the best stock loader
	barHandout  = 3.0 // µs of Python a sample
	barGather3  = 0.5 // of a bare gather
	barStock3   = 8.0
	barState    = 1 << 10 // bytes
	barImported = 6 << 10
	barStateMS  = 1.0
	barResume   = 1.0 // seconds

	copyRounds   = 40 // of four epochs each, which take some 50 ms
	pythonEpochs = 3  // of a cell; the first one fills
	stockWorkers = 16 // of the stock loader beside a cell, most of which sleep
)

// python: belady.DataLoader against memory and against PyTorch's own loader.
func (s *suite) python() (*table, error) {
	t := newTable()
	for _, part := range []func(*table) error{s.pythonCopies, s.pythonPositions, s.pythonGrid} {
		if err := part(t); err != nil {
			return nil, err
		}
	}
	t.note("Every loader copies every sample into one reused buffer; of each epoch one sample in a "+
		"hundred, drawn at random, is put aside and compared with its file while the clock stands "+
		"still. Stock: torch.utils.data.DataLoader over files in the page cache, the best of 0, 1, 2 "+
		"and 4 workers with default_collate and with lists, its best epoch. Ours and bare memory "+
		"alternate in %d rounds of four epochs: the rates are those of the median epoch, the ratio is "+
		"that of the median round.", copyRounds)
	t.note("Cells: epochs 2 and %d against the roofline, as in the section above, with the "+
		"configured compute; stock: %d workers on an origin of the same latency, whose rate they "+
		"need not share.", pythonEpochs, stockWorkers)
	return t, nil
}

// py runs one of bench/python's scripts and gives each line it prints to take.
func (s *suite) py(dir string, take func(line []byte) error, script string, args ...any) error {
	words := []string{filepath.Join(s.root, "bench", "python", script)}
	for _, a := range args {
		words = append(words, fmt.Sprint(a))
	}
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	cmd := exec.CommandContext(s.ctx, python, words...)
	cmd.Env = environ("BELADY_DIR="+dir, "BELADY_SOCKET="+filepath.Join(dir, "s"),
		"BELADY_BIN="+s.belady(), "PYTHONPATH="+filepath.Join(s.root, "python"),
		"PYTHONWARNINGS=ignore", "OMP_NUM_THREADS=1")
	var log tail
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && err == nil {
		err = take(bytes.Clone(lines.Bytes()))
	}
	_, drained := io.Copy(io.Discard, out)
	if ended := cmd.Wait(); ended != nil {
		ended = fmt.Errorf("%s: %w: %s", script, ended, &log)
		return errors.Join(err, ended)
	}
	return errors.Join(err, lines.Err(), drained)
}

// into decodes a script's only line.
func into(v any) func([]byte) error {
	return func(line []byte) error { return json.Unmarshal(line, v) }
}

// copied is what copying.py prints, in samples a second.
type copied struct {
	Belady     float64            `json:"belady"`
	Bare       float64            `json:"bare"`
	Ratio      float64            `json:"ratio"`
	Handout    float64            `json:"handout"`
	HandoutCPU float64            `json:"handout_cpu_us"`
	Stock      map[string]float64 `json:"stock"`
	Checked    int                `json:"checked"`
}

// best is the stock loader's fastest configuration.
func (c *copied) best() (name string, rate float64) {
	names := make([]string, 0, len(c.Stock))
	for name := range c.Stock {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, n := range names {
		if c.Stock[n] > rate {
			name, rate = n, c.Stock[n]
		}
	}
	return name, rate
}

func thousands(rate float64) string { return fmt.Sprintf("%.1f k samples/s", rate/1e3) }

// pythonCopies: the ram tier, views of 110 KB and stacked batches of 3 KB.
func (s *suite) pythonCopies(t *table) error {
	large, err := s.copying(8000, 110_000, 128, copyRounds, "list")
	if err != nil {
		return err
	}
	t.bar("110 KB, every sample copied", thousands(large.Belady), "memcpy "+thousands(large.Bare),
		large.Ratio, barCopy110, true)
	name, rate := large.best()
	t.bar("110 KB, against stock", thousands(large.Belady), name+": "+thousands(rate),
		large.Belady/rate, barStock110, true)
	t.bar("110 KB, handout only", fmt.Sprintf("%.2f µs of Python a sample, %s", large.HandoutCPU,
		thousands(large.Handout)), fmt.Sprintf("%.0f µs", barHandout),
		large.HandoutCPU/barHandout, 1, false)
	small, err := s.copying(60_000, 3000, 512, copyRounds, "stack")
	if err != nil {
		return err
	}
	t.bar("3 KB, contiguous batches copied", thousands(small.Belady),
		"gather "+thousands(small.Bare), small.Ratio, barGather3, true)
	name, rate = small.best()
	t.bar("3 KB, against stock", thousands(small.Belady), name+": "+thousands(rate),
		small.Belady/rate, barStock3, true)
	t.info("3 KB, handout only", fmt.Sprintf("%.2f µs of Python a sample, %s", small.HandoutCPU,
		thousands(small.Handout)))
	t.note("Samples compared with their files: %d of 110 KB, %d of 3 KB.", large.Checked,
		small.Checked)
	return nil
}

// copying runs copying.py over files of its own and a daemon with room for all of them.
func (s *suite) copying(samples, size, batch, rounds int, form string) (c *copied, err error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	if s.quick {
		samples, rounds = samples/4, rounds/2
	}
	bytes, staging := int64(samples)*int64(size), int64(64<<20)
	n, err := s.start(dir, max(2<<30, bytes+bytes/8+4*staging), staging)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	c = new(copied)
	files := filepath.Join(dir, "files")
	if err := s.py(dir, into(c), "copying.py", files, samples, size, batch, rounds, form); err != nil {
		return nil, err
	}
	s.say("%d samples of %d bytes: Belady %s, bare %s, ratio %.3f", samples, size,
		thousands(c.Belady), thousands(c.Bare), c.Ratio)
	return c, os.RemoveAll(files)
}

// pythonPositions: state_dict, and resuming in the middle of a large epoch.
func (s *suite) pythonPositions(t *table) (err error) {
	dir, err := s.big()
	if err != nil {
		return err
	}
	n, err := s.start(dir, 256<<20, 64<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	var p struct {
		Bytes            float64 `json:"bytes"`
		Seconds          float64 `json:"seconds"`
		ResumeCold       float64 `json:"resume_cold"`
		ResumeWarm       float64 `json:"resume_warm"`
		GeneratorBytes   float64 `json:"generator_bytes"`
		GeneratorSeconds float64 `json:"generator_seconds"`
	}
	if err := s.py(dir, into(&p), "position.py", "big"); err != nil {
		return err
	}
	t.most("state_dict, seeded", p.Bytes, barState, "bytes")
	t.most("state_dict, seeded, to take it", p.Seconds*1e3, barStateMS, "ms")
	t.most("state_dict, the user's generator", p.GeneratorBytes, barImported, "bytes")
	t.most("state_dict, the user's generator, to take it", p.GeneratorSeconds*1e3, barStateMS, "ms")
	t.most("resume at the middle of 14.2 M samples", p.ResumeCold, barResume, "s")
	t.info("resume again, the daemon having the dataset open", fmt.Sprintf("%.3f s", p.ResumeWarm))
	s.say("resume at the middle of 14.2 M samples: %.3f s, again %.3f s", p.ResumeCold, p.ResumeWarm)
	return nil
}

// pythonCells are those of the demands that touch every share kept and every ratio of compute.
func (s *suite) pythonCells() []cell {
	chosen := []struct{ kept, ratio float64 }{{0.25, 0.5}, {0.25, 1.1}, {0.5, 0.9}, {0.5, 1.1},
		{0.75, 0.5}, {0.75, 2}}
	if s.quick {
		chosen = chosen[2:4]
	}
	var cells []cell
	for _, p := range chosen {
		c := cell{size: 110_000, rate: 200e6, latency: 20 * time.Millisecond, kept: p.kept,
			ratio: p.ratio, batch: 64, staging: 64 << 20, seconds: 8, spread: 0.2}
		if s.quick {
			c.seconds = 2
		}
		cells = append(cells, c.named("PyTorch: "))
	}
	return cells
}

// pythonGrid: the throttled origin through belady.DataLoader, the stock loader beside it.
func (s *suite) pythonGrid(t *table) error {
	for _, c := range s.pythonCells() {
		o, samples, err := s.train(c)
		if err != nil {
			return fmt.Errorf("cell %s: %w", c.name, err)
		}
		var stock struct {
			Rate float64 `json:"samples_per_second"`
		}
		compute := c.compute(samples).Seconds()
		if err := s.py(s.work, into(&stock), "training.py", "stock", samples, c.size, c.rate,
			c.latency.Seconds(), c.batch, compute, stockWorkers); err != nil {
			return err
		}
		t.bar(c.name, fmt.Sprintf("%.2f s an epoch, origin %.0f MB", o.epoch, o.origin/1e6),
			fmt.Sprintf("roofline %.2f s", o.roof), o.epoch/o.roof, barEpoch, false)
		theirs := float64(samples) / stock.Rate
		t.info(c.name+", stock", fmt.Sprintf("%.1f s an epoch, %.1f × ours", theirs, theirs/o.epoch))
		s.say("%s: %.3f of the roofline, stock %.1f ×; waited for %s", c.name, o.epoch/o.roof,
			theirs/o.epoch, causes(o.stall))
	}
	return nil
}

// train runs one cell through PyTorch and judges it as the roofline's own cells are.
func (s *suite) train(c cell) (o *outcome, samples int, err error) {
	dir, err := s.folder()
	if err != nil {
		return nil, 0, err
	}
	file := filepath.Join(dir, "counts")
	info, err := s.add(dir, "data", c.url(file))
	if err != nil {
		return nil, 0, err
	}
	n, err := s.start(dir, c.ram(info.Bytes), c.staging)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	compute := c.compute(info.Samples)
	var epochs []epoch
	var after []counts
	begun := time.Now()
	take := func(line []byte) error {
		e, err := trained(line, begun, compute)
		if err != nil {
			return err
		}
		now, err := readCounts(file)
		epochs, after, begun = append(epochs, e), append(after, now), e.end
		return err
	}
	if err := s.py(dir, take, "training.py", "belady", "data", c.batch, pythonEpochs,
		compute.Seconds(), s.seed); err != nil {
		return nil, 0, err
	}
	if len(epochs) != pythonEpochs {
		return nil, 0, fmt.Errorf("training.py told of %d epochs, not %d", len(epochs), pythonEpochs)
	}
	return c.judge(info.Samples, info.Bytes, epochs, after, 0), info.Samples, nil
}

// trained is an epoch as training.py tells it; the compute is the configured one.
func trained(line []byte, begun time.Time, compute time.Duration) (epoch, error) {
	var said struct {
		Seconds    float64            `json:"seconds"`
		Batches    int64              `json:"batches"`
		Bytes      int64              `json:"bytes"`
		FirstBytes int64              `json:"first_bytes"`
		Stall      map[string]float64 `json:"stall"`
	}
	if err := json.Unmarshal(line, &said); err != nil {
		return epoch{}, err
	}
	e := epoch{begun: begun, end: begun.Add(time.Duration(said.Seconds * 1e9)),
		compute: time.Duration(said.Batches) * compute, bytes: said.Bytes,
		firstBatch: said.FirstBytes, stall: map[string]time.Duration{}}
	for cause, seconds := range said.Stall {
		e.stall[cause] = time.Duration(seconds * 1e9)
	}
	return e, nil
}
