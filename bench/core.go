package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/store/catalog"
)

// large is ImageNet-21K's number of samples.
const large = 14_200_000

// order: one epoch of a large dataset on one core.
func (s *suite) order() (*table, error) {
	t := newTable()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, world := range []int{1, 8} {
		o, err := order.New(order.Spec{Kind: order.Distributed, Samples: large, World: world,
			Batch: 256})
		if err != nil {
			return nil, err
		}
		var ids []sample.ID
		best := time.Hour
		for epoch := range 4 {
			begun := time.Now()
			e, err := o.Epoch(epoch, world-1, 0, ids)
			if err != nil {
				return nil, err
			}
			ids = e.IDs
			if epoch > 0 { // the first one's memory is fresh
				best = min(best, time.Since(begun))
			}
		}
		t.most(fmt.Sprintf("one epoch, 14.2 M samples, world %d", world), best.Seconds(), 0.7, "s")
	}
	t.note("GOMAXPROCS=1; the best of three epochs after a first one.")
	return t, nil
}

// pump: the package's own benchmark, whose world is the smallest there is.
func (s *suite) pump() (*table, error) {
	args := []string{"test", "-run", "^$", "-bench", "Step14M", "-benchtime", "1x", "-count", "3",
		"./internal/core/pump"}
	s.say("go %s", strings.Join(args, " "))
	cmd := exec.CommandContext(s.ctx, "go", args...)
	cmd.Dir, cmd.Stderr = s.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go test: %w: %s", err, out)
	}
	names, best := parseBench(string(out))
	if len(names) == 0 {
		return nil, fmt.Errorf("go test ran no Step14M: %s", out)
	}
	t := newTable()
	for _, name := range names {
		m := best[name]
		t.most(name+", a sample", m["ns/sample"], 100, "ns")
		t.most(name+", longest call", m["max-ns/call"]/1e6, 1, "ms")
		t.rows = append(t.rows, []string{name + ", allocations", fmt.Sprint(m["allocs/op"]),
			"0", "", "0", t.verdict(m["allocs/op"] == 0)})
	}
	t.note("14.2 M samples, half kept, whole epochs, in CPU time; the best of three runs of each, " +
		"because what else runs on the machine only adds. What a sample costs is the lines of " +
		"memory it takes that are in no cache, about 10 ns each where a dozen loads overlap: its " +
		"record when it is fetched and again when it is released, under policies that evict also " +
		"the neighbours of its old and new place in line and the record of whom it displaces.")
	return t, nil
}

// parseBench reads lines of go test -bench, the least of each unit.
func parseBench(text string) (names []string, best map[string]map[string]float64) {
	best = map[string]map[string]float64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		_, name, _ := strings.Cut(fields[0], "/")
		if at := strings.LastIndexByte(name, '-'); at > 0 {
			name = name[:at] // the number of cores
		}
		if best[name] == nil {
			best[name] = map[string]float64{}
			names = append(names, name)
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if old, ok := best[name][fields[i+1]]; err == nil && (!ok || value < old) {
				best[name][fields[i+1]] = value
			}
		}
	}
	return names, best
}

// big makes the large dataset once: named samples, as a scan would find them.
func (s *suite) big() (string, error) {
	if s.bigDir != "" {
		return s.bigDir, nil
	}
	dir, err := s.folder()
	if err != nil {
		return "", err
	}
	s.say("scanning 14.2 M computed samples")
	info, err := s.add(dir, "big", fmt.Sprintf("synth://big?samples=%d&size=3KB&spread=0.2", large))
	if err != nil {
		return "", err
	}
	s.say("scanned %d samples in %d ms", info.Samples, info.ScanMillis)
	s.bigDir = dir
	return dir, nil
}

// manifest: opening a large manifest and verifying all of it, as the daemon does.
func (s *suite) manifest() (*table, error) {
	dir, err := s.big()
	if err != nil {
		return nil, err
	}
	c := catalog.New(dir, nil)
	best := time.Hour
	var names, heap int64
	for range 3 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		begun := time.Now()
		d, err := c.Open("big")
		if err != nil {
			return nil, err
		}
		best = min(best, time.Since(begun))
		runtime.GC()
		runtime.ReadMemStats(&after)
		heap = int64(after.HeapAlloc) - int64(before.HeapAlloc)
		names = 0
		for id := range d.Manifest.Len() {
			names += int64(len(d.Manifest.Name(sample.ID(id))))
		}
		if err := d.Close(); err != nil {
			return nil, err
		}
	}
	file, err := os.Stat(filepath.Join(dir, "datasets", "big", "manifest"))
	if err != nil {
		return nil, err
	}
	t := newTable()
	t.most("open and verify, 14.2 M samples", best.Seconds(), 2, "s")
	t.most("bytes a sample beside names", float64(file.Size()+heap-names)/large, 64, "B")
	t.info("names", fmt.Sprintf("%.3g B a sample", float64(names)/large))
	t.note("The best of three, the file in the page cache. Bytes are the file's, which is mapped, " +
		"and the heap's.")
	return t, nil
}
