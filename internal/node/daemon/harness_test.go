package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"belady/internal/client"
	"belady/internal/core/dataset"
	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/node/daemon"
	"belady/internal/node/event"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/catalog"
	"belady/internal/store/origin"
	"belady/internal/store/origin/posix"
	"belady/internal/store/origin/synth"
	"belady/internal/store/origin/throttle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a daemon in this process, on a folder and a socket of its own.
type node struct {
	t           *testing.T
	dir, socket string
	client      *client.Client
	stop        func() error // ends the daemon and waits for it; safe to call twice
	restart     func()

	mu        sync.Mutex
	events    []event.Event
	throttled []*throttle.Origin // every throttled origin opened, in order
}

// fastRetry gives up on an origin within a second, so that tests need not wait half a minute.
func fastRetry() origin.RetryConfig {
	c := origin.RetryDefaults()
	c.AttemptTimeout, c.TotalTimeout = 300*time.Millisecond, time.Second
	c.BackoffMin, c.BackoffMax = time.Millisecond, 20*time.Millisecond
	c.BudgetShare, c.BudgetPerSecond = 1, 1000
	c.HedgeAfterMin = 0
	return c
}

const mib = 1 << 20

// start runs a daemon with that much memory; change, if given, may alter its configuration.
func start(t *testing.T, ram int64, change func(*daemon.Config)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "belady") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	cfg := daemon.Config{Dir: dir, Socket: n.socket, Version: "test", RAM: ram, Concurrency: 32,
		Retry: fastRetry(), Patience: 500 * time.Millisecond, OpenOrigin: n.openOrigin, Listen: n.listen}
	if change != nil {
		change(&cfg)
	}
	n.restart = func() { n.run(cfg) }
	n.restart()
	return n
}

func (n *node) run(cfg daemon.Config) {
	n.t.Helper()
	d, err := daemon.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	n.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	n.t.Cleanup(func() {
		if err := n.stop(); err != nil {
			n.t.Errorf("the daemon ended with: %v", err)
		}
	})
	for {
		n.client, err = client.Dial(context.Background(), client.Config{Socket: n.socket})
		if err == nil {
			return
		}
		select {
		case err := <-done:
			done <- err
			n.t.Fatalf("the daemon did not start: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (n *node) listen(e event.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

// told returns the events with that code.
func (n *node) told(code string) (found []event.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.events {
		if e.Code() == code {
			found = append(found, e)
		}
	}
	return found
}

func (n *node) openOrigin(ctx context.Context, name string) (origin.Origin, error) {
	if !strings.Contains(name, "://") {
		return posix.New(name)
	}
	u, err := url.Parse(name)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(u.Scheme, "throttle+") {
		cfg, err := synth.ParseURL(u)
		if err != nil {
			return nil, err
		}
		return synth.New(cfg)
	}
	innerURL, cfg, err := throttle.ParseURL(u)
	if err != nil {
		return nil, err
	}
	name = innerURL.String()
	if innerURL.Scheme == "file" {
		name = innerURL.Path
	}
	inner, err := n.openOrigin(ctx, name)
	if err != nil {
		return nil, err
	}
	o, err := throttle.New(inner, cfg)
	if err == nil {
		n.mu.Lock()
		n.throttled = append(n.throttled, o)
		n.mu.Unlock()
	}
	return o, err
}

// counters are those of the last throttled origin that was opened.
func (n *node) counters() *throttle.Counters {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.throttled) == 0 {
		n.t.Fatal("no throttled origin is open")
	}
	return n.throttled[len(n.throttled)-1].Counters()
}

// data is a dataset whose bytes a test can check.
type data struct {
	name  string
	len   int
	bytes int64
	check func(id sample.ID, got []byte) error
}

// add scans a dataset; fields are as `belady dataset add --field` takes them.
func (n *node) add(name, url string, fields ...string) catalog.Info {
	n.t.Helper()
	got, err := catalog.New(n.dir, n.openOrigin).Add(context.Background(), name, url,
		catalog.Options{Options: dataset.Options{Fields: fields}}, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return got.Info
}

// addSynth adds computed samples; query is of the URL, and wraps what comes before "synth://".
func (n *node) addSynth(name, wrap, query string) data {
	n.t.Helper()
	info := n.add(name, wrap+"synth://x?"+query)
	plain, _, _ := strings.Cut(query, "&throttle.")
	u, err := url.Parse("synth://x?" + plain)
	if err != nil {
		n.t.Fatal(err)
	}
	cfg, err := synth.ParseURL(u)
	if err != nil {
		n.t.Fatal(err)
	}
	o, err := synth.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return data{name: name, len: info.Samples, bytes: info.Bytes,
		check: func(id sample.ID, got []byte) error {
			if len(got) != int(o.Size(id)) {
				return fmt.Errorf("sample %d has %d bytes, should have %d", id, len(got), o.Size(id))
			}
			return o.Check(id, 0, got)
		}}
}

// attach is an Attach of one rank, in an order that needs no more than a seed.
func (d data) attach(kind string, batch, epochs int) wire.Attach {
	return wire.Attach{Job: "test", Datasets: []wire.Dataset{{Name: d.name}},
		Order:  order.Spec{Kind: kind, Samples: d.len, Seed: 7, Batch: batch},
		Epochs: epochs}
}

// reading is one rank's work: read everything, check every byte and the order.
type reading struct {
	wire.Attach
	data  data
	depth int // batches ahead
	held  int // batches kept before the oldest is released
	// expect replaces the order that the spec names.
	expect order.Order
	// each, if given, is called with every batch before it is released; false ends the reading.
	each func(*client.Batch) bool
	// opened, if given, is called once the session is there.
	opened func(*client.Session)
	client *client.Client
}

// account is what a reading saw.
type account struct {
	batches, samples int
	bytes            int64
	ids              []sample.ID
	stats            client.Stats
}

// read carries a reading out.
func (n *node) read(ctx context.Context, r reading) (account, error) {
	c := r.client
	if c == nil {
		var err error
		c, err = client.Dial(ctx, client.Config{Socket: n.socket, Depth: r.depth,
			ReconnectFor: 5 * time.Second})
		if err != nil {
			return account{}, err
		}
	}
	s, err := c.Open(ctx, r.Attach)
	if err != nil {
		return account{}, err
	}
	defer s.Close()
	if r.opened != nil {
		r.opened(s)
	}
	return r.loop(ctx, s)
}

func (r *reading) loop(ctx context.Context, s *client.Session) (a account, err error) {
	o := r.expect
	if o == nil {
		if o, err = order.New(r.Order); err != nil {
			return a, err
		}
	}
	var holding []*client.Batch
	defer func() {
		for _, b := range holding {
			b.Release()
		}
		a.stats = s.Stats()
	}()
	at := s.Info().Start
	var due order.Epoch
	known := -1
	for {
		b, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			if at.Epoch != r.Epochs {
				return a, fmt.Errorf("the job ended at epoch %d, batch %d", at.Epoch, at.Batch)
			}
			return a, nil
		}
		if err != nil {
			return a, err
		}
		if known != at.Epoch {
			if due, err = o.Epoch(at.Epoch, r.Rank, at.Position, nil); err != nil {
				return a, err
			}
			known = at.Epoch
		}
		if err := r.compare(b, due, at.Epoch, at.Batch); err != nil {
			b.Release()
			return a, fmt.Errorf("epoch %d, batch %d: %w", at.Epoch, at.Batch, err)
		}
		a.batches++
		a.samples += b.Len()
		a.bytes += b.Size()
		for i := range b.Len() {
			a.ids = append(a.ids, b.ID(i))
		}
		if at.Batch++; b.Last {
			at = wire.Start{Epoch: at.Epoch + 1}
		}
		goOn := r.each == nil || r.each(b)
		if holding = append(holding, b); len(holding) > r.held {
			holding[0].Release()
			holding = holding[1:]
		}
		if !goOn {
			return a, nil
		}
	}
}

// compare holds a batch against the order and its bytes against the origin.
func (r *reading) compare(b *client.Batch, due order.Epoch, epoch, index int) error {
	if index >= due.Batches() {
		return fmt.Errorf("the epoch has only %d batches", due.Batches())
	}
	lo, hi := due.Bounds(index)
	if int(b.Epoch) != epoch {
		return fmt.Errorf("it came as one of epoch %d", b.Epoch)
	}
	if int(b.Index) != index || b.Len() != hi-lo || b.Last != (index == due.Batches()-1) {
		return fmt.Errorf("it came as batch %d with %d samples, last %t; due are %d of %d batches",
			b.Index, b.Len(), b.Last, hi-lo, due.Batches())
	}
	for i, id := range due.IDs[lo:hi] {
		if b.ID(i) != id {
			return fmt.Errorf("sample %d is %d, should be %d", i, b.ID(i), id)
		}
		if err := r.data.check(id, b.Bytes(i)); err != nil {
			return fmt.Errorf("sample %d: %w", i, err)
		}
	}
	return nil
}

// mustRead reads and fails the test on any error.
func (n *node) mustRead(r reading) account {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 180*time.Second)
	defer cancel()
	a, err := n.read(ctx, r)
	if err != nil {
		n.t.Fatal(err)
	}
	return a
}

// together carries readings out at the same time.
func (n *node) together(readings ...reading) []account {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 180*time.Second)
	defer cancel()
	accounts := make([]account, len(readings))
	errs := make([]error, len(readings))
	var wg sync.WaitGroup
	for i := range readings {
		wg.Go(func() { accounts[i], errs[i] = n.read(ctx, readings[i]) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		n.t.Fatal(err)
	}
	return accounts
}

func (n *node) status() daemon.Status {
	n.t.Helper()
	raw, err := n.client.Status(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	var s daemon.Status
	if err := json.Unmarshal(raw, &s); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// of is the status of one dataset.
func (n *node) of(name string) world.Status {
	n.t.Helper()
	for _, d := range n.status().Datasets {
		if d.Dataset == name {
			return d
		}
	}
	n.t.Fatalf("%s is not open", name)
	return world.Status{}
}

// eventually waits for a condition that must come true by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, 5*time.Second, what, ok)
}

func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// quiet waits until a dataset has no rank and nothing in staging, and checks that the arena holds
// what the tier keeps and no more.
func (n *node) quiet(name string) world.Status {
	n.t.Helper()
	var s world.Status
	eventually(n.t, name+" has nothing in staging", func() bool {
		s = n.of(name)
		return s.Ranks == 0 && s.Pump.StagingBytes == 0 && s.InFlight == 0
	})
	if used := s.Arena.Slots + s.Arena.Runs; used > s.Pump.KeptBytes {
		n.t.Errorf("%s: the arena holds %d bytes, kept are %d", name, used, s.Pump.KeptBytes)
	}
	return s
}

// code is what the daemon's error says it is.
func code(err error) wire.Code {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}
