package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
)

// TestCrashes kills the real program at random points. `make crash` kills more often, and cuts the
// power besides.
func TestCrashes(t *testing.T) {
	tests := map[string]func(t *testing.T, bin string){
		"ram":    testKills,
		"static": testKillsStatic,
		"carry":  testKillsCarry,
	}
	if os.Getenv("BELADY_CRASH_KILLS") != "" {
		tests["power"] = testPowerCutsStatic
		tests["power carry"] = testPowerCutsCarry
	}
	runAll(t, tests)
}

// crashRate is the counted origin's, and crashSamples how many samples there are for each kill: so
// that filling takes about half of them.
const (
	crashRate    = 30_000_000
	crashSamples = 50
)

// crashKills is how often the long tests kill: 20, or $BELADY_CRASH_KILLS, which `make crash` sets.
func crashKills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("BELADY_CRASH_KILLS")
	if text == "" {
		return 20
	}
	kills, err := strconv.Atoi(text)
	if err != nil || kills < 1 {
		t.Fatalf("BELADY_CRASH_KILLS is %q, not a number", text)
	}
	return kills
}

// crash is one training that goes on while its daemon is killed again and again.
type crash struct {
	*host
	origin *counted
	serves []string // arguments of each daemon
	draw   *rand.Rand

	batches, epochs atomic.Int64 // read so far
	until           atomic.Int64 // this epoch is not read
	done            chan error
	lastEpoch       int // requests during the last epoch read; after done
}

// newCrash starts the training. $BELADY_TEST_SEED repeats one's moments.
func newCrash(h *host, o *counted, serves ...string) *crash {
	h.t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("BELADY_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			h.t.Fatalf("BELADY_TEST_SEED is %q, not a number", text)
		}
	}
	h.t.Logf("BELADY_TEST_SEED=%d repeats the moments of this run", seed)
	c := &crash{host: h, origin: o, serves: serves, draw: rand.New(rand.NewPCG(seed, 0)),
		done: make(chan error, 1)}
	c.until.Store(math.MaxInt64)
	return c
}

// train reads epoch after epoch and checks each byte and the order.
func (c *crash) train(ctx context.Context) error {
	reader, err := client.Dial(ctx, client.Config{Socket: c.socket, ReconnectFor: 5 * time.Minute})
	if err != nil {
		return err
	}
	attach := c.attach(math.MaxInt32)
	s, err := reader.Open(ctx, attach)
	if err != nil {
		return err
	}
	defer s.Close()
	o, err := order.New(attach.Order)
	if err != nil {
		return err
	}
	for epoch := 0; int64(epoch) < c.until.Load(); epoch++ {
		before := c.origin.total()
		due, err := o.Epoch(epoch, 0, 0, nil)
		if err != nil {
			return err
		}
		for i := range due.Batches() {
			b, err := s.Next(ctx)
			if err != nil {
				return fmt.Errorf("epoch %d, batch %d: %w", epoch, i, err)
			}
			lo, hi := due.Bounds(i)
			if err := c.compare(b, due.IDs[lo:hi]); err != nil {
				return fmt.Errorf("epoch %d, batch %d: %w", epoch, i, err)
			}
			b.Release()
			c.batches.Add(1)
		}
		c.epochs.Add(1)
		c.lastEpoch = c.origin.total() - before
	}
	return nil
}

// kills kills the daemon that often and starts it anew, telling between of each death. The last
// daemon is returned alive.
func (c *crash) kills(n int, between func()) *process {
	c.t.Helper()
	p := c.serve(c.serves...)
	limit := 5*time.Minute + time.Duration(n)*5*time.Second // of a machine that others use, too
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	ended := make(chan struct{})
	c.t.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		c.done <- c.train(ctx)
	}()
	c.soon(30*time.Second, "the training begins", func() bool { return c.batches.Load() > 0 })
	for range n {
		switch c.draw.IntN(3) { // 0: it may die while it opens
		case 1:
			c.answers(p)
		case 2:
			next := c.batches.Load() + 1 + c.draw.Int64N(100) // of 63 an epoch, in the short test
			c.soon(time.Minute, "the training goes on", func() bool { return c.batches.Load() >= next })
		}
		time.Sleep(time.Duration(5+c.draw.IntN(396)) * time.Millisecond)
		select {
		case err := <-c.done:
			c.t.Fatalf("the training ended: %v: %s", err, p.log)
		default:
		}
		p.kill()
		c.soon(20*time.Second, "the origin has counted all", c.origin.quiet)
		between()
		p = c.run(c.command(append([]string{"serve"}, c.serves...)...))
	}
	c.answers(p)
	return p
}

// finish reads three epochs more and returns how many requests the last one made.
func (c *crash) finish(p *process) int {
	c.t.Helper()
	c.until.Store(c.epochs.Load() + 3)
	if err := <-c.done; err != nil {
		c.t.Fatalf("the training: %v: %s", err, p.log)
	}
	return c.lastEpoch
}

// testKills (F-04, F-44): a daemon with memory alone is killed at random points. Every rank gets
// its bytes in its order, and each daemon reads each sample once.
func testKills(t *testing.T, bin string) {
	const kills = 20
	h, o := newCountedHost(t, bin, kills*crashSamples, crashRate)
	c := newCrash(h, o, "--ram", "128MiB", "--staging", "16MiB")
	last := 0
	p := c.kills(kills, func() {
		now := o.total()
		// The origin hedges and repeats what is slow, within a tenth and a few a second.
		if most := h.samples.Len()*11/10 + 50; now-last > most {
			t.Errorf("a daemon made %d requests, %d are right", now-last, most)
		}
		last = now
	})
	if n := c.finish(p); n != 0 {
		t.Errorf("with all in memory an epoch made %d requests", n)
	}
	t.Logf("%d kills: %d batches, %d epochs, %d requests for %d samples", kills,
		c.batches.Load(), c.epochs.Load(), o.total(), h.samples.Len())
}

// testKillsStatic (F-22, F-23): a daemon with a log is killed at random points.
func testKillsStatic(t *testing.T, bin string) { testKillsLog(t, bin, "static") }

// testKillsCarry: the same while every sample read is written again for the next epoch.
func testKillsCarry(t *testing.T, bin string) { testKillsLog(t, bin, "carry") }

// testKillsLog: whatever a death left in the log is sound, nothing that was in it is lost, and
// nobody reads the origin for it any more. A kill takes nothing from the kernel that was written:
// so the log's own checks are the measure here, and power cuts are tried where the store is.
func testKillsLog(t *testing.T, bin, layout string) {
	kills := crashKills(t)
	h, o := newCountedHost(t, bin, kills*crashSamples, crashRate)
	ssd := filepath.Join(h.dir, "ssd")
	c := newCrash(h, o, "--ram", "64MiB", "--staging", "16MiB", "--ssd", ssd+":4GiB",
		"--ssd-free", "64MiB", "--ssd-layout", layout, "--ssd-wear", "1TB")
	held, grown := make([]bool, h.samples.Len()), 0
	look := func() {
		t.Helper()
		now := h.held(ssd)
		lost, more := 0, false
		for id := range held {
			switch {
			case held[id] && !now[id]:
				lost++
			case !held[id] && now[id]:
				more = true
			}
		}
		if lost > 0 {
			t.Errorf("%d samples that were in the log are not in it any more", lost)
		}
		if more {
			grown++
		}
		held = now
		o.bar(held)
	}
	p := c.kills(kills, look)
	if n := c.finish(p); n != 0 {
		t.Errorf("with all in the log an epoch made %d requests", n)
	}
	h.ends(p)
	look()
	if wrong := o.asked(); len(wrong) > 0 {
		t.Errorf("the origin was asked %d times for what the log had, first for sample %d",
			len(wrong), wrong[0])
	}
	least := len(held)
	if layout == "carry" { // what memory keeps is not carried besides
		least /= 3
	}
	if n := count(held); n < least {
		t.Errorf("in the end the log has %d of %d samples", n, len(held))
	}
	t.Logf("%d kills, the log larger after %d of them: %d batches, %d epochs, %d requests for %d "+
		"samples", kills, grown, c.batches.Load(), c.epochs.Load(), o.total(), len(held))
}

// ends asks a daemon to stop and waits until it has.
func (h *host) ends(p *process) {
	h.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		h.t.Fatal(err)
	}
	if code := p.ends(20 * time.Second); code != exitOK {
		h.t.Errorf("the daemon ended with %d: %s", code, p.log)
	}
}

// held are the samples of which the log below dir has a sound record. Everything in it must verify.
func (h *host) held(dir string) []bool {
	h.t.Helper()
	if hasLog(dir) {
		h.must("log", "verify", dir)
	}
	return h.sound(dir)
}

// sound are the samples of which the log below dir has a sound record, whatever else lies there.
func (h *host) sound(dir string) []bool {
	h.t.Helper()
	held := make([]bool, h.samples.Len())
	if !hasLog(dir) {
		return held
	}
	lines := json.NewDecoder(strings.NewReader(h.must("log", "dump", dir, "--json")))
	for lines.More() {
		var line struct {
			Kind   string `json:"kind"`
			Sample int    `json:"sample"`
			Sound  bool   `json:"sound"`
		}
		if err := lines.Decode(&line); err != nil {
			h.t.Fatalf("belady log dump: %v", err)
		}
		if line.Kind == "record" && line.Sound {
			held[line.Sample] = true
		}
	}
	return held
}

// hasLog tells whether there is a log below dir; a daemon may have died before it made one.
func hasLog(dir string) bool {
	found, _ := filepath.Glob(filepath.Join(dir, "log-*"))
	return len(found) > 0
}

func count(set []bool) (n int) {
	for _, in := range set {
		if in {
			n++
		}
	}
	return n
}
