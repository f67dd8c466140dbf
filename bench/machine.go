package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// machine says what the figures were taken on.
func machine() string {
	var u unix.Utsname
	kernel := "unknown kernel"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	memory := ""
	if kb, err := procField("/proc/meminfo", "MemTotal"); err == nil {
		memory = fmt.Sprintf(", %.0f GB", float64(kb)/1e9)
	}
	return fmt.Sprintf("%s, %d cores%s, %s, %s", model, runtime.NumCPU(), memory, kernel,
		runtime.Version())
}

// version is the daemon's.
func (s *suite) version() string {
	out, err := exec.Command(s.belady(), "version").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "belady ")
}

func (s *suite) belady() string { return filepath.Join(s.root, "bin", "belady") }

// procField reads a "Name:   123 kB" line as bytes.
func procField(file, name string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if fields := strings.Fields(value); key == name && len(fields) > 0 {
			kb, err := strconv.ParseInt(fields[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// ticksPerSecond is the unit of /proc/PID/stat on Linux.
const ticksPerSecond = 100

// cpuOf is what a process has used so far, to 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in brackets may hold spaces: what follows the last bracket has fixed columns.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// ownCPU is what this process has used so far.
func ownCPU() (time.Duration, error) { return usage(syscall.RUSAGE_SELF) }

func usage(who int) (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// noisy is how many cores others may use before figures are doubtful.
const noisy = 0.1

// load is what the machine and what we have used so far.
type load struct {
	at         time.Time
	busy, ours time.Duration
}

func loadNow() (l load, err error) {
	l.at = time.Now()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		used, err := usage(who)
		if err != nil {
			return l, err
		}
		l.ours += used
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return l, err
	}
	// cpu user nice system idle iowait irq softirq steal
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return l, fmt.Errorf("/proc/stat: %w", err)
		}
		l.busy += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	return l, nil
}

// others is the cores that were used by what we did not start. All we started must have ended.
func (l load) others() (float64, error) {
	now, err := loadNow()
	used := (now.busy - l.busy) - (now.ours - l.ours)
	return max(0, used.Seconds()/now.at.Sub(l.at).Seconds()), err
}
