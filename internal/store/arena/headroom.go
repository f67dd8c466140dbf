package arena

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// headroomBytes is left to everybody else. The kernel promises memory that it does not have and
// then kills somebody, often us; so we ask first and stop short of it.
const headroomBytes = 64 << 20

const cgroupRoot = "sys/fs/cgroup"

// available is how many bytes the machine and our control groups (version 2) can still give.
// What cannot be read does not limit. root is the root directory.
func available(root fs.FS) int64 {
	free := int64(math.MaxInt64)
	if kib, ok := field(root, "proc/meminfo", "MemAvailable:"); ok {
		free = kib * 1024
	}
	groups, _ := text(root, "proc/self/cgroup")
	_, group, ok := strings.Cut(groups, "0::/")
	if !ok {
		return free
	}
	group, _, _ = strings.Cut(group, "\n")
	for dir := path.Join(cgroupRoot, group); ; dir = path.Dir(dir) {
		if left, ok := groupLeft(root, dir); ok {
			free = min(free, left)
		}
		if len(dir) <= len(cgroupRoot) {
			return free
		}
	}
}

// groupLeft is what one control group may still take. Its idle file pages count as free: they are
// given up before anybody is killed.
func groupLeft(root fs.FS, dir string) (int64, bool) {
	limit, ok := number(root, path.Join(dir, "memory.max"))
	if !ok {
		return 0, false
	}
	current, ok := number(root, path.Join(dir, "memory.current"))
	if !ok {
		return 0, false
	}
	idle, _ := field(root, path.Join(dir, "memory.stat"), "inactive_file")
	return limit - current + idle, true
}

func text(root fs.FS, name string) (string, bool) {
	b, err := fs.ReadFile(root, name)
	return string(b), err == nil
}

// number reads a file that holds one number; the word max, for no limit, is none.
func number(root fs.FS, name string) (int64, bool) {
	s, _ := text(root, name)
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n, err == nil
}

// field reads the number behind a key at the start of a line.
func field(root fs.FS, name, key string) (int64, bool) {
	s, _ := text(root, name)
	for line := range strings.Lines(s) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != key {
			continue
		}
		n, err := strconv.ParseInt(words[1], 10, 64)
		return n, err == nil
	}
	return 0, false
}
