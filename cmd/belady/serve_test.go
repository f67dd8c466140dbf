package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/node/daemon"
	"belady/internal/node/wire"
	"belady/internal/store/origin/synth"
)

// TestProcesses runs the real program: what a signal, a limit or a death of a process does cannot
// be tried inside this one.
func TestProcesses(t *testing.T) {
	runAll(t, map[string]func(*testing.T, string){
		"killed client":       testKilledClient,
		"killed daemon":       testKilledDaemon,
		"termination":         testTermination,
		"second daemon":       testSecondDaemon,
		"socket paths":        testSocketPaths,
		"no descriptors left": testNoDescriptorsLeft,
		"stuck log":           testStuckLog,
		"other user":          testOtherUser,
		"memory":              testMemory,
		"read reconnects":     testReadReconnects,
		"full disk":           testFullDisk,
	})
}

// runAll builds the real program and gives it to each test.
func runAll(t *testing.T, tests map[string]func(t *testing.T, bin string)) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "belady")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, bin) })
	}
}

// host is a folder with a daemon's data and the processes that use it.
type host struct {
	t           *testing.T
	bin         string
	dir, socket string
	samples     *synth.Origin
	url         string
}

// newHost adds a dataset "d" of 20 KB samples.
func newHost(t *testing.T, bin string, samples int) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "belady") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{t: t, bin: bin, dir: dir, socket: filepath.Join(dir, "s"),
		url: fmt.Sprintf("synth://x?samples=%d&size=20KB", samples)}
	u, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := synth.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	if h.samples, err = synth.New(cfg); err != nil {
		t.Fatal(err)
	}
	h.must("dataset", "add", "d", h.url)
	return h
}

func (h *host) command(args ...string) *exec.Cmd {
	cmd := exec.Command(h.bin, append([]string{"--dir", h.dir, "--socket", h.socket}, args...)...)
	cmd.Env = append(os.Environ(), "GOTRACEBACK=all")
	return cmd
}

// must runs a verb to its end.
func (h *host) must(args ...string) string {
	h.t.Helper()
	out, err := h.command(args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("belady %v: %v: %s", args, err, out)
	}
	return string(out)
}

// process is a running belady.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *processLog
	done chan struct{}
	err  error // after done
}

type processLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *processLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *processLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run starts a command; it is killed when the test ends.
func (h *host) run(cmd *exec.Cmd) *process {
	h.t.Helper()
	p := &process{t: h.t, cmd: cmd, log: &processLog{}, done: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = p.log
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
	})
	return p
}

// serve starts a daemon and waits until it answers.
func (h *host) serve(args ...string) *process {
	h.t.Helper()
	p := h.run(h.command(append([]string{"serve", "--ram", "64MiB"}, args...)...))
	h.answers(p)
	return p
}

func (h *host) answers(p *process) {
	h.t.Helper()
	for {
		if _, err := client.Dial(context.Background(), client.Config{Socket: h.socket}); err == nil {
			return
		}
		select {
		case <-p.done:
			h.t.Fatalf("the daemon ended: %v: %s", p.err, p.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ends waits for a process to end by itself and returns its exit code.
func (p *process) ends(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // so that it says where it stands
		select {
		case <-p.done:
		case <-time.After(5 * time.Second): // in the kernel, where no signal reaches it
		}
		p.t.Fatalf("it has not ended within %v: %s", within, p.log)
		return -1
	}
}

func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.done
}

func (h *host) status() (s daemon.Status) {
	h.t.Helper()
	h.statusInto(&s)
	return s
}

// statusInto reads what the daemon says of itself into whatever fits.
func (h *host) statusInto(s any) {
	h.t.Helper()
	c, err := client.Dial(context.Background(), client.Config{Socket: h.socket})
	if err != nil {
		h.t.Fatal(err)
	}
	raw, err := c.Status(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	if err := json.Unmarshal(raw, s); err != nil {
		h.t.Fatal(err)
	}
}

// soon waits for what must come true by itself.
func (h *host) soon(limit time.Duration, what string, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// attach is the one job of these tests.
func (h *host) attach(epochs int) wire.Attach {
	return wire.Attach{Job: "test", Datasets: []wire.Dataset{{Name: "d"}}, Epochs: epochs,
		Order: order.Spec{Kind: order.Random, Samples: h.samples.Len(), Seed: 3, Batch: 16}}
}

// read reads a job to its end and checks each byte and the order. each is called with every batch.
func (h *host) read(reconnectFor time.Duration, epochs int, each func(*client.Batch)) (
	client.Stats, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Socket: h.socket, ReconnectFor: reconnectFor})
	if err != nil {
		return client.Stats{}, err
	}
	s, err := c.Open(ctx, h.attach(epochs))
	if err != nil {
		return client.Stats{}, err
	}
	defer s.Close()
	o, err := order.New(h.attach(epochs).Order)
	if err != nil {
		return client.Stats{}, err
	}
	for epoch := range epochs {
		due, err := o.Epoch(epoch, 0, 0, nil)
		if err != nil {
			return s.Stats(), err
		}
		for i := range due.Batches() {
			b, err := s.Next(ctx)
			if err != nil {
				return s.Stats(), err
			}
			if each != nil {
				each(b)
			}
			lo, hi := due.Bounds(i)
			if err := h.compare(b, due.IDs[lo:hi]); err != nil {
				return s.Stats(), fmt.Errorf("epoch %d, batch %d: %w", epoch, i, err)
			}
			b.Release()
		}
	}
	if _, err := s.Next(ctx); !errors.Is(err, io.EOF) {
		return s.Stats(), fmt.Errorf("after the last batch: %w", err)
	}
	return s.Stats(), nil
}

func (h *host) compare(b *client.Batch, ids []sample.ID) error {
	if b.Len() != len(ids) {
		return fmt.Errorf("%d samples came, due are %d", b.Len(), len(ids))
	}
	for i, id := range ids {
		if b.ID(i) != id {
			return fmt.Errorf("sample %d came, due is %d", b.ID(i), id)
		}
		if err := h.samples.Check(id, 0, b.Bytes(i)); err != nil {
			return err
		}
	}
	return nil
}

// idle says that the dataset has no rank and nothing on its way.
func (h *host) idle() bool {
	for _, d := range h.status().Datasets {
		if d.Ranks != 0 || d.Pump.StagingBytes != 0 {
			return false
		}
	}
	return true
}

// testKilledClient (F-40): what a killed process held is free within a second.
func testKilledClient(t *testing.T, bin string) {
	h := newHost(t, bin, 1000)
	h.serve("--staging", "16MiB")
	for _, packed := range []string{"--packed=false", "--packed=true"} {
		reader := h.run(h.command("read", "d", "--epochs", "1000", "--compute", "20",
			"--batch", "16", packed))
		h.soon(10*time.Second, "the reader reads", func() bool {
			s := h.status()
			return len(s.Datasets) > 0 && s.Datasets[0].Ranks == 1 &&
				s.Datasets[0].Pump.StagingBytes+s.Datasets[0].Pump.KeptBytes > 0
		})
		reader.kill()
		h.soon(time.Second, "its leases are free", h.idle)
	}
	if _, err := h.read(0, 1, nil); err != nil {
		t.Error(err)
	}
}

// testKilledDaemon (F-44, F-04): a rank whose daemon is killed and started anew receives the very
// sequence it would have.
func testKilledDaemon(t *testing.T, bin string) {
	h := newHost(t, bin, 800)
	p := h.serve()
	n, kills := 0, 0
	stats, err := h.read(20*time.Second, 3, func(*client.Batch) {
		if n++; n == 20 || n == 75 {
			p.kill()
			kills++
			p = h.serve() // the old socket is still there: it is taken over
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if kills != 2 || stats.Reconnects != kills {
		t.Errorf("%d kills, %d reconnects", kills, stats.Reconnects)
	}
	// Gone for good: an error that says so, within the bound.
	n = 0
	begun := time.Time{}
	_, err = h.read(500*time.Millisecond, 3, func(*client.Batch) {
		if n++; n == 20 {
			p.kill()
			begun = time.Now()
		}
	})
	took := time.Since(begun)
	if err == nil || !strings.Contains(err.Error(), "belady serve") || took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// testTermination (F-47): a daemon told to stop under load ends with 0, and nothing of it is left.
func testTermination(t *testing.T, bin string) {
	h := newHost(t, bin, 1000)
	p := h.serve()
	reader := h.run(h.command("read", "d", "--epochs", "1000", "--batch", "16", "--compute", "1"))
	h.soon(10*time.Second, "the reader reads", func() bool {
		s := h.status()
		return len(s.Datasets) > 0 && s.Datasets[0].Pump.Hits > 100
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.ends(10 * time.Second); code != 0 {
		t.Errorf("it ended with %d: %s", code, p.log)
	}
	if !strings.Contains(p.log.String(), "daemon-stopping") {
		t.Errorf("the log does not tell: %s", p.log)
	}
	var left []string
	err := filepath.WalkDir(h.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			left = append(left, strings.TrimPrefix(path, h.dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		switch filepath.Base(name) {
		case "daemon.lock", "manifest", "dataset.json", ".d.lock", "read.log": // of job "read"
		default:
			t.Errorf("%s is left", name)
		}
	}
	reader.kill()
}

// testSecondDaemon (F-25): the folder and the socket each have one daemon.
func testSecondDaemon(t *testing.T, bin string) {
	h := newHost(t, bin, 10)
	p := h.serve()
	second := h.run(h.command("serve"))
	if code := second.ends(10 * time.Second); code != 1 ||
		!strings.Contains(second.log.String(), strconv.Itoa(p.cmd.Process.Pid)) {
		t.Errorf("the second ended with %d: %s", code, second.log)
	}
	other := h.command("serve")
	other.Args[2] = filepath.Join(h.dir, "other")
	third := h.run(other)
	if code := third.ends(10 * time.Second); code != 1 ||
		!strings.Contains(third.log.String(), "--socket") {
		t.Errorf("the third ended with %d: %s", code, third.log)
	}
	if _, err := h.read(0, 1, nil); err != nil {
		t.Errorf("the first is disturbed: %v", err)
	}
}

func testSocketPaths(t *testing.T, bin string) {
	h := newHost(t, bin, 10)
	file := filepath.Join(h.dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{
		filepath.Join(h.dir, strings.Repeat("x", 120)): "shorter",
		file:                     "no socket",
		filepath.Join(file, "s"): "folder",
	} {
		cmd := h.command("serve")
		cmd.Args[4] = path
		p := h.run(cmd)
		if code := p.ends(10 * time.Second); code != 1 || !strings.Contains(p.log.String(), words) ||
			strings.Count(strings.TrimSpace(p.log.String()), "\n") > 0 {
			t.Errorf("%s: it ended with %d: %s", path, code, p.log)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// testNoDescriptorsLeft (F-38): new clients wait, those that are there read on, and all is well
// when descriptors are free again.
func testNoDescriptorsLeft(t *testing.T, bin string) {
	h := newHost(t, bin, 400)
	cmd := h.command("serve", "--ram", "64MiB")
	p := h.run(cmd)
	h.answers(p)
	limit := unix.Rlimit{Cur: 40, Max: 40}
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	n := 0
	var flood []net.Conn
	_, err := h.read(0, 3, func(*client.Batch) {
		if n++; n == 5 {
			for range 60 {
				if c, err := net.Dial("unix", h.socket); err == nil {
					flood = append(flood, c)
				}
			}
		}
	})
	if err != nil {
		t.Errorf("the rank that was there: %v", err)
	}
	h.soon(5*time.Second, "the daemon ran out of descriptors", func() bool {
		return strings.Contains(p.log.String(), "too many open files")
	})
	for _, c := range flood {
		_ = c.Close()
	}
	if _, err := h.read(0, 1, nil); err != nil {
		t.Errorf("after the flood: %v", err)
	}
	if lines := strings.Count(p.log.String(), "too many open files"); lines > 50 {
		t.Errorf("it span: %d lines of log", lines)
	}
}

// testStuckLog (F-48): nobody reads the log, and everything works.
func testStuckLog(t *testing.T, bin string) {
	h := newHost(t, bin, 200)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil { // until it is full
		_, err = unix.Write(fd, make([]byte, 4096))
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	cmd := h.command("serve", "--ram", "64MiB")
	cmd.Stderr = w
	p := h.run(cmd)
	_ = w.Close()
	h.answers(p)
	for range 5 {
		if _, err := h.read(0, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.ends(10 * time.Second); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// testOtherUser: only the daemon's own user gets an answer, whatever the socket's mode says. The
// second lock can be tried by root alone, who can be somebody else.
func testOtherUser(t *testing.T, bin string) {
	h := newHost(t, bin, 10)
	p := h.serve()
	info, err := os.Stat(h.socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the socket has mode %v, %v", info.Mode(), err)
	}
	if os.Geteuid() != 0 {
		return
	}
	text, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	h.bin = filepath.Join(h.dir, "belady") // where others may run it
	if err := errors.Join(os.WriteFile(h.bin, text, 0o755), os.Chmod(h.dir, 0o755),
		os.Chmod(h.socket, 0o666)); err != nil {
		t.Fatal(err)
	}
	cmd := h.command("status")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	other := h.run(cmd)
	if code := other.ends(10 * time.Second); code != 1 ||
		!strings.Contains(other.log.String(), "another user") {
		t.Errorf("another user ended with %d: %s", code, other.log)
	}
	if _, err := h.read(0, 1, nil); err != nil {
		t.Errorf("%v: %s", err, p.log)
	}
}

// testMemory (I6): beyond its arena a daemon takes little.
func testMemory(t *testing.T, bin string) {
	h := newHost(t, bin, 3000)
	p := h.serve("--staging", "16MiB")
	if _, err := h.read(0, 2, nil); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kib := map[string]int64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var name string
		var n int64
		if _, err := fmt.Sscanf(lines.Text(), "%s %d kB", &name, &n); err == nil {
			kib[name] = n
		}
	}
	t.Logf("RssAnon %d KiB, RssShmem %d KiB, RssFile %d KiB", kib["RssAnon:"], kib["RssShmem:"],
		kib["RssFile:"])
	if most := int64(200<<10 + 64*3000/1024); kib["RssAnon:"] == 0 || kib["RssAnon:"] > most {
		t.Errorf("it has %d KiB of its own, at most %d are right", kib["RssAnon:"], most)
	}
	if most := int64(66 << 10); kib["RssShmem:"] > most {
		t.Errorf("it has %d KiB shared, at most %d are right", kib["RssShmem:"], most)
	}
}
