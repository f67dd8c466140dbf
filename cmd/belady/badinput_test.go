package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"belady/internal/node/wire"
)

// node is a daemon of this test's own, with a folder of images.
type node struct {
	t      *testing.T
	dir    string
	images string
	stop   func()
}

// startNode serves dir until the test ends.
func startNode(t *testing.T, ram string, more ...string) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), images: filepath.Join(t.TempDir(), "images")}
	ctx, cancel := context.WithCancel(context.Background())
	var log lockedBuffer
	ended := make(chan int, 1)
	go func() {
		env := &environment{OpenOrigin: openOrigin, Out: &log, Err: &log}
		args := []string{"serve", "--dir", n.dir, "--socket", n.socket(), "--ram", ram}
		ended <- run(ctx, env, append(args, more...))
	}()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("serve ended with %d: %s", code, log.String())
		}
	})
	t.Cleanup(n.stop)
	for range 200 {
		if c, err := net.Dial("unix", n.socket()); err == nil {
			_ = c.Close()
			return n
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the daemon did not come up: %s", log.String())
	return nil
}

// lockedBuffer is written by the daemon's log and read by the test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (n *node) socket() string { return filepath.Join(n.dir, "s") }

func (n *node) write(name string, size int) {
	n.t.Helper()
	path := filepath.Join(n.images, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte(name), size), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// belady runs one command line against the node.
func (n *node) belady(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	env := &environment{OpenOrigin: openOrigin, Out: &stdout, Err: &stderr}
	code = run(n.t.Context(), env, append(args, "--dir", n.dir, "--socket", n.socket()))
	return code, stdout.String(), stderr.String()
}

func (n *node) does(args ...string) {
	n.t.Helper()
	if code, _, errs := n.belady(args...); code != exitOK {
		n.t.Fatalf("belady %v: code %d: %s", args, code, errs)
	}
}

// refuses expects one sentence that matches, and that code.
func (n *node) refuses(code int, pattern string, args ...string) {
	n.t.Helper()
	got, _, errs := n.belady(args...)
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	last := lines[len(lines)-1]
	if got != code || !strings.HasPrefix(last, "belady: ") ||
		!regexp.MustCompile(pattern).MatchString(last) {
		n.t.Errorf("belady %v: code %d, said %q; want code %d and %q", args, got, last, code, pattern)
	}
}

// TestBadInput: every wrong input gets one clear sentence and a code, and the daemon serves on.
func TestBadInput(t *testing.T) {
	n := startNode(t, "64MiB")
	if err := os.MkdirAll(filepath.Join(n.images, "..", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/1.jpg", "a/2.jpg", "b/1.jpg", "b/we\nird\xff.jpg"} {
		n.write(name, 100)
	}
	n.does("dataset", "add", "img", n.images)
	n.does("read", "img", "--epochs", "2", "--batch", "2")

	n.refuses(1, `"nope".*known are img.*add it with`, "read", "nope")
	n.refuses(1, `"nope" \(known are img\); nothing was removed$`, "dataset", "rm", "nope")
	n.refuses(2, `format "tar" is not known.*folder`, "dataset", "add", "x", n.images,
		"--format", "tar")
	n.refuses(1, `no samples.*check the URL`, "dataset", "add", "x",
		filepath.Join(n.images, "..", "empty"))
	n.refuses(2, `rank 2 is not in a world of 2: ranks are 0 to 1`, "read", "img",
		"--world", "2", "--rank", "2")
	n.refuses(2, `rank 2 is not in a world of 2`, "order", "--kind", "torch-distributed",
		"--samples", "9", "--world", "2", "--rank", "2")
	for _, verb := range [][]string{{"read", "img"}, {"order", "--samples", "9"}, {"sim"}} {
		n.refuses(2, `world is 0: it must be 1 to \d+ ranks`, append(verb, "--world", "0")...)
		n.refuses(2, `world is -1: it must be 1 to \d+ ranks`, append(verb, "--world", "-1")...)
	}
	n.refuses(2, `rate 0 and concurrency 64: an origin sends at least`, "sim", "--rate", "0")
	n.refuses(2, `rate 1GB and concurrency 0: .* at least one request`, "sim", "--concurrency", "0")
	n.refuses(2, `order kind "foo" is unknown: use one of`, "read", "img", "--kind", "foo")
	n.refuses(2, `unknown policy "foo": use one of`, "read", "img", "--policy", "foo")
	n.refuses(2, `batch is 0: it must be at least 1`, "read", "img", "--batch", "0")
	n.refuses(1, `another daemon \(pid \d+\) uses .*: stop it, or give this one another --dir`,
		"serve")
	n.refuses(2, `ram is .* but this machine has .*: give less`, "serve", "--ram", "9999TiB")
	n.refuses(2, `ram is 1 B, but must be at least 16MiB`, "serve", "--ram", "1")
	n.refuses(2, `there is no verb "frobnicate"`, "frobnicate")
	n.refuses(2, `there is no verb "frobnicate"`, "frobnicate", "--help")
	n.refuses(2, `there is no verb "lss"`, "dataset", "lss", "--help")
	n.refuses(2, `name ".x" is not possible`, "dataset", "add", ".x", n.images)
	n.refuses(2, `name "a/b" is not possible`, "dataset", "show", "a/b")
	n.refuses(2, `field`, "dataset", "add", "x", n.images, "--fields", "=")
	n.refuses(2, `no driver for gopher://`, "dataset", "add", "x", "gopher://h")
	n.refuses(2, `does not parse`, "dataset", "add", "x", "s3://%zz")
	n.refuses(2, `smaples`, "dataset", "add", "x", "synth://s?smaples=3&size=10B")
	n.refuses(2, `sise`, "dataset", "add", "x", "throttle+synth://s?samples=3&sise=10B")
	n.refuses(2, `samples`, "dataset", "add", "x", "synth://s?samples=many&size=10B")
	n.refuses(2, `credentials`, "dataset", "add", "x", "s3://me:secret@bucket/x")
	n.refuses(1, `absent|no such`, "dataset", "add", "x", filepath.Join(n.images, "nowhere"))
	n.refuses(2, `weight "nan" of img is not a positive number`, "read", "img=nan")
	n.refuses(2, `only --kind torch-weighted draws by weights`, "read", "img=2")
	n.refuses(2, `img is named twice`, "read", "img", "img")
	n.refuses(2, `an explicit order is sent by a program`, "read", "img", "--kind", "explicit")

	// The daemon is as well as before.
	n.does("read", "img", "--epochs", "2", "--batch", "2")
}

// TestChangedOrigin: what is no longer as scanned is named, never delivered.
func TestChangedOrigin(t *testing.T) {
	n := startNode(t, "64MiB")
	for _, name := range []string{"a/1.jpg", "a/2.jpg", "b/1.jpg"} {
		n.write(name, 100)
	}
	n.does("dataset", "add", "img", n.images)
	if err := os.Remove(filepath.Join(n.images, "a/1.jpg")); err != nil {
		t.Fatal(err)
	}
	n.refuses(1, `sample \d+ \("a/1.jpg"\) of img: object is absent.*dataset add img \(absent\)`,
		"read", "img", "--batch", "3")
	n.write("a/1.jpg", 50)
	n.refuses(1, `"a/1.jpg".*changed since.*again run: belady dataset add img \(changed\)`, "read",
		"img", "--batch", "3")
	n.does("dataset", "add", "img")
	// A link that leads to itself: there, but not readable by anyone.
	path := filepath.Join(n.images, "b/1.jpg")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("1.jpg", path); err != nil {
		t.Fatal(err)
	}
	n.refuses(1, `sample 2 \("b/1.jpg"\) of img: `, "read", "img", "--batch", "3")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	n.write("b/1.jpg", 100)
	n.does("dataset", "add", "img", n.images)
	n.does("read", "img", "--batch", "3")
}

// TestTooLarge: what the arena cannot hold is refused with the way out.
func TestTooLarge(t *testing.T) {
	n := startNode(t, "64MiB")
	n.does("dataset", "add", "s", "synth://s?samples=1000&size=1MB")
	n.refuses(1, `two batches for each rank take about 954 MiB.*larger --staging.*arena-too-small`,
		"read", "s", "--batch", "500")
	n.does("dataset", "add", "huge", "synth://h?samples=3&size=100MB")
	n.refuses(1, `the largest sample of huge has 96 MiB.*larger --ram.*arena-too-small`,
		"read", "huge", "--batch", "1")
	n.does("read", "s", "--batch", "4", "--epochs", "1")
}

// TestBatchOverEpoch: a batch larger than what a rank reads is what it reads, and takes no more
// memory than that.
func TestBatchOverEpoch(t *testing.T) {
	n := startNode(t, "64MiB")
	n.does("dataset", "add", "d", "synth://d?samples=69&size=100KB")
	for _, batch := range []string{"100000", "2000000"} {
		n.does("read", "d", "--job", "j"+batch, "--batch", batch, "--epochs", "2", "--packed")
		n.does("read", "d", "--job", "j"+batch, "--batch", batch, "--epochs", "1", "--world", "2")
		n.does("read", "d", "--job", "j"+batch, "--batch", batch, "--epochs", "1", "--world", "2",
			"--rank", "1")
		n.does("read", "d", "--job", "a"+batch, "--batch", batch, "--epochs", "1", "--kind",
			"accelerate")
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, out, _ := n.belady("job", "verify", "j2000000")
		if strings.Contains(out, "epoch 1: ok: 1 of 1 ranks, 1 batches") &&
			strings.Contains(out, "epoch 0: ok: 2 of 2 ranks, 2 batches") {
			return
		}
		if time.Now().After(end) {
			t.Fatal(out)
		}
	}
}

func TestSocketPath(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	for _, verb := range [][]string{{"serve"}, {"status"}, {"read", "img"}} {
		var stdout, stderr bytes.Buffer
		env := &environment{OpenOrigin: openOrigin, Out: &stdout, Err: &stderr}
		code := run(t.Context(), env, append(verb, "--dir", t.TempDir(), "--socket", long))
		if code != exitFailure || !strings.Contains(stderr.String(), "107") {
			t.Errorf("%v: code %d, said %q", verb, code, stderr.String())
		}
	}
}

// TestOldProtocol: a client of another version is told which side to upgrade.
func TestOldProtocol(t *testing.T) {
	n := startNode(t, "64MiB")
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: n.socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := wire.AppendHello([]byte(wire.Preamble), wire.Hello{Min: 900, Max: 901})
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	r, err := wire.NewReader(conn, wire.ClientSide)
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.Next()
	if err != nil || f.Type != wire.TypeError {
		t.Fatalf("answered %v, %v", f.Type, err)
	}
	e, err := wire.DecodeError(f.Payload)
	if err != nil || e.Code != wire.CodeVersion || !strings.Contains(e.Text, "upgrade") {
		t.Errorf("said %v, %v", e, err)
	}
}
