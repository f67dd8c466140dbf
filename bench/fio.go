package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
)

// apart is how far fio may differ from itself, before and after, until a row is doubtful.
const apart = 0.10

// pattern is one way to load a disk.
type pattern struct {
	rw    string // fio's word: read, randread, rw
	bytes int    // a request
	depth int
	ring  bool // io_uring; else threads of pread and pwrite
}

func (p pattern) String() string {
	words := map[string]string{"read": "sequential", "randread": "random", "rw": "read and write",
		"write": "written"}
	how := fmt.Sprintf("%d threads", p.depth)
	if p.ring {
		how = fmt.Sprintf("io_uring of %d", p.depth)
	}
	size := fmt.Sprintf("%d KiB", p.bytes>>10)
	if p.bytes >= 1<<20 {
		size = fmt.Sprintf("%d MiB", p.bytes>>20)
	}
	return fmt.Sprintf("%s %s, %s", size, words[p.rw], how)
}

// both are the pattern with threads and with a ring: a limit is the better of them.
func (p pattern) both() []pattern {
	threads, ring := p, p
	threads.ring, ring.ring = false, true
	return []pattern{threads, ring}
}

// fioRun is what fio made of a pattern: bytes and requests a second, and CPU seconds a GB moved.
type fioRun struct {
	pattern
	read, write, requests, cpu float64
}

// fio loads the file for some seconds, past the page cache.
func (s *suite) fio(file string, bytes int64, p pattern, seconds float64) (fioRun, error) {
	args := []string{"--name=limit", "--filename=" + file, "--size=" + strconv.FormatInt(bytes, 10),
		"--rw=" + p.rw, "--bs=" + strconv.Itoa(p.bytes), "--direct=1", "--thread", "--norandommap",
		"--group_reporting", "--output-format=json"}
	if p.ring {
		args = append(args, "--ioengine=io_uring", "--iodepth="+strconv.Itoa(p.depth))
	} else {
		args = append(args, "--ioengine=psync", "--numjobs="+strconv.Itoa(p.depth))
		if p.rw == "read" || p.rw == "rw" { // each thread its own stretch of the file
			each := bytes / int64(p.depth) >> 20 << 20
			args = append(args, fmt.Sprintf("--offset_increment=%d", each), fmt.Sprintf("--size=%d", each))
		}
	}
	if p.rw == "write" { // once over the file, to make it
		args = append(args, "--end_fsync=1")
	} else {
		args = append(args, "--time_based", fmt.Sprintf("--runtime=%dms", int(seconds*1e3)))
	}
	cmd := exec.CommandContext(s.ctx, "fio", args...)
	var log tail
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return fioRun{}, fmt.Errorf("fio, %s: %w: %s", p, err, &log)
	}
	type way struct {
		Bytes    float64 `json:"io_bytes"`
		Rate     float64 `json:"bw_bytes"`
		Requests float64 `json:"iops"`
	}
	var said struct {
		Jobs []struct{ Read, Write way } `json:"jobs"`
	}
	if err := json.Unmarshal(out, &said); err != nil || len(said.Jobs) != 1 {
		return fioRun{}, fmt.Errorf("fio, %s: %d jobs, %w", p, len(said.Jobs), err)
	}
	j := said.Jobs[0]
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return fioRun{pattern: p, read: j.Read.Rate, write: j.Write.Rate,
		requests: j.Read.Requests + j.Write.Requests,
		cpu:      used.Seconds() / ((j.Read.Bytes + j.Write.Bytes) / 1e9)}, nil
}

// limits are how fast the disk was, each time it was asked.
type limits struct {
	s        *suite
	file     string
	bytes    int64
	seconds  float64
	patterns []pattern
	runs     map[pattern][]fioRun
}

// newLimits writes a file as large as the log to load beside it.
func (s *suite) newLimits(file string, bytes int64, patterns ...pattern) (*limits, error) {
	l := &limits{s: s, file: file, bytes: bytes, seconds: 2, patterns: patterns,
		runs: map[pattern][]fioRun{}}
	if s.quick {
		l.seconds = 1
	}
	_, err := s.fio(file, bytes, pattern{rw: "write", bytes: 1 << 20, depth: 1}, 0)
	return l, err
}

// measure asks the disk again.
func (l *limits) measure() error {
	for _, p := range l.patterns {
		r, err := l.s.fio(l.file, l.bytes, p, l.seconds)
		if err != nil {
			return err
		}
		l.runs[p] = append(l.runs[p], r)
	}
	return nil
}

// best is the fastest of some patterns in the two measurements around turn i, and how far those
// are apart.
func (l *limits) best(turn int, of []pattern) (best fioRun, spread float64) {
	for _, p := range of {
		before, after := l.runs[p][turn], l.runs[p][turn+1]
		mean := before
		mean.read, mean.write = (before.read+after.read)/2, (before.write+after.write)/2
		mean.requests, mean.cpu = (before.requests+after.requests)/2, (before.cpu+after.cpu)/2
		if mean.read > best.read {
			best = mean
			spread = max(before.read, after.read)/min(before.read, after.read) - 1
		}
	}
	return best, spread
}
