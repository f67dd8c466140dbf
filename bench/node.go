package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"belady/internal/client"
	"belady/internal/node/daemon"
	"belady/internal/store/catalog"
)

// stopTime is how long a daemon may take to stop before it is killed.
const stopTime = 20 * time.Second

// node is a daemon in a process of its own.
type node struct {
	cmd    *exec.Cmd
	socket string
	log    tail
}

// environ is this process's environment without settings of Belady or AWS.
func environ(extra ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BELADY_") && !strings.HasPrefix(v, "AWS_") {
			env = append(env, v)
		}
	}
	return append(env, extra...)
}

// add scans a dataset into dir.
func (s *suite) add(dir, name, url string, env ...string) (catalog.Info, error) {
	cmd := exec.CommandContext(s.ctx, s.belady(), "dataset", "add", "--json", "--dir", dir,
		"--socket", filepath.Join(dir, "s"), name, url)
	cmd.Env = environ(env...)
	var log tail
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return catalog.Info{}, fmt.Errorf("scan %s: %w: %s", url, err, &log)
	}
	var result catalog.Result
	if err := json.Unmarshal(out, &result); err != nil {
		return catalog.Info{}, fmt.Errorf("read the scan's result: %w", err)
	}
	return result.Info, nil
}

// start runs a daemon on dir and waits until it listens.
func (s *suite) start(dir string, ram, staging int64, env ...string) (*node, error) {
	n := &node{socket: filepath.Join(dir, "s")}
	n.cmd = exec.Command(s.belady(), "serve", "--dir", dir, "--socket", n.socket,
		"--ram", fmt.Sprint(ram), "--staging", fmt.Sprint(staging))
	n.cmd.Env = environ(env...)
	n.cmd.Stdout, n.cmd.Stderr = &n.log, &n.log
	// The daemon must not outlive a benchmark that is killed.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	for range 500 {
		if _, err := client.Dial(s.ctx, client.Config{Socket: n.socket}); err == nil {
			return n, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("the daemon does not listen: %s", &n.log), n.stop())
}

// stop asks the daemon to end, and insists.
func (n *node) stop() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	kill := time.AfterFunc(stopTime, func() { _ = n.cmd.Process.Kill() })
	defer kill.Stop()
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("stop the daemon: %w: %s", err, &n.log)
	}
	return nil
}

func (n *node) pid() int { return n.cmd.Process.Pid }

// status is the daemon's own account: for what only it can know.
func (n *node) status(ctx context.Context) (*daemon.Status, error) {
	c, err := client.Dial(ctx, client.Config{Socket: n.socket})
	if err != nil {
		return nil, err
	}
	raw, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	s := new(daemon.Status)
	return s, json.Unmarshal(raw, s)
}

// tail keeps the end of what a process wrote.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// counts are what a throttled origin says went through it.
type counts struct{ requests, bytes, most int64 }

// readCounts reads a counts file; the throttle maps it, so it is always current.
func readCounts(file string) (counts, error) {
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return counts{}, nil // nobody has asked yet
	}
	if err != nil {
		return counts{}, err
	}
	if len(raw) != 64 {
		return counts{}, fmt.Errorf("counts file %s has %d bytes, not 64", file, len(raw))
	}
	word := func(i int) int64 { return int64(binary.NativeEndian.Uint64(raw[8*i:])) }
	return counts{requests: word(0), bytes: word(1), most: word(3)}, nil
}
