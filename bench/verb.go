package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// verb is what a command of Belady printed and took, as a process of its own.
type verb struct {
	out       []byte
	took, cpu time.Duration
	memory    float64 // the most bytes that were resident
}

// verb runs a command to its end.
func (s *suite) verb(args ...string) (verb, error) {
	s.say("belady %s", strings.Join(args, " "))
	cmd := exec.CommandContext(s.ctx, s.belady(), args...)
	var log tail
	cmd.Env, cmd.Stderr = environ(), &log
	begun := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return verb{}, fmt.Errorf("belady %s: %w: %s", args[0], err, &log)
	}
	took := time.Since(begun)
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return verb{}, fmt.Errorf("the kernel does not tell what belady %s took", args[0])
	}
	return verb{out: out, took: took, memory: float64(usage.Maxrss) * 1024,
		cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}
