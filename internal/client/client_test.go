package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/core/sample"
	"belady/internal/node/wire"
)

var bg = context.Background()

func open(t testing.TB, c *Client, a wire.Attach) *Session {
	t.Helper()
	s, err := c.Open(bg, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// verify checks that b is the batch that is due and holds what it should.
func verify(t testing.TB, b *Batch, epoch, batch int) {
	t.Helper()
	if int(b.Epoch) != epoch || int(b.Index) != batch || b.Len() != batchSize ||
		b.Last != (batch == batches-1) {
		t.Fatalf("got batch %d of epoch %d (%d samples, last %v), want %d of %d",
			b.Index, b.Epoch, b.Len(), b.Last, batch, epoch)
	}
	for i, id := range idsOf(epoch, batch) {
		want := strings.Repeat(string([]byte{byte(id)}), int(length(id)))
		if b.ID(i) != id || string(b.Bytes(i)) != want || string(b.Field(i, 0)) != want {
			t.Fatalf("sample %d of batch %d: id %d, bytes %x", i, batch, b.ID(i), b.Bytes(i))
		}
	}
}

// readAll reads from a start to the end of the job, checking every batch.
func readAll(t testing.TB, s *Session, epoch, batch int) {
	t.Helper()
	for ; epoch < anAttach.Epochs; epoch, batch = epoch+1, 0 {
		for ; batch < batches; batch++ {
			b, err := s.Next(bg)
			if err != nil {
				t.Fatalf("batch %d of epoch %d: %v", batch, epoch, err)
			}
			verify(t, b, epoch, batch)
			b.Release()
			b.Release()
		}
	}
	for range 2 {
		if b, err := s.Next(bg); err != io.EOF || b != nil {
			t.Fatalf("after the last batch: %v, %v", b, err)
		}
	}
}

func TestWholeJob(t *testing.T) {
	var all *peer
	d := listen(t, "", greetOnly, func(p *peer) { all = p; whole(p) })
	s := open(t, dial(t, d, Config{}), anAttach)
	if s.Info().Samples != samples {
		t.Errorf("attached to %+v", s.Info())
	}
	readAll(t, s, 0, 0)
	st := s.Stats()
	if n := int64(3 * batches); st.Batches != n || st.Samples != n*batchSize || st.Bytes == 0 ||
		st.Reconnects != 0 {
		t.Errorf("stats: %+v", st)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Next(bg); err == nil {
		t.Error("a closed session has a next batch")
	}
	d.wg.Wait()
	if len(all.released) != 3*batches {
		t.Errorf("%d of %d leases were released", len(all.released), 3*batches)
	}
}

func TestStallIsAttributed(t *testing.T) {
	d := listen(t, "", greetOnly, func(p *peer) {
		p.greet()
		p.attach()
		p.slab(0, wire.SlabArena)
		for i, cause := range []wire.Cause{wire.CauseSSD, wire.CauseArena, 200} {
			// A client says what it released before it waits: so it waits from here on.
			for len(p.released) < i && p.hear() {
			}
			p.send(p.lease(0, 0, i, cause))
		}
		p.drain()
	})
	s := open(t, dial(t, d, Config{}), anAttach)
	for i, cause := range []wire.Cause{wire.CauseSSD, wire.CauseArena, 200} {
		b, err := s.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		if verify(t, b, 0, i); b.Cause != cause {
			t.Errorf("batch %d was delayed by %s", i, b.Cause)
		}
		b.Release()
	}
	st := s.Stats()
	for c, stall := range st.Stall {
		stalled := wire.Cause(c) == wire.CauseArena || wire.Cause(c) == wire.CauseNone
		if (stall > 0) != stalled {
			t.Errorf("stall by %s: %v", wire.Cause(c), stall)
		}
	}
}

// A daemon whose arena is full of what another goroutine holds hears of its release even while
// Next waits.
func TestReleaseWhileNextWaits(t *testing.T) {
	waits := make(chan struct{})
	d := listen(t, "", greetOnly, func(p *peer) {
		p.greet()
		p.attach()
		p.slab(0, wire.SlabArena)
		p.send(p.lease(0, 0, 0, wire.CauseNone))
		for p.credits < 5 && p.hear() { // the fifth comes when Next is about to wait
		}
		close(waits)
		for len(p.released) == 0 && p.hear() {
		}
		p.send(p.lease(0, 0, 1, wire.CauseArena))
		p.drain()
	})
	s := open(t, dial(t, d, Config{}), anAttach)
	first, err := s.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { <-waits; first.Release() })
	b, err := s.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, b, 0, 1)
	b.Release()
	wg.Wait()
}

func TestStartInTheMiddle(t *testing.T) {
	d := listen(t, "", greetOnly, whole)
	a := anAttach
	a.Start = wire.Start{Epoch: 1, Batch: 5}
	readAll(t, open(t, dial(t, d, Config{}), a), 1, 5)
}

// When batches wait in the socket, one write tells the daemon of several.
func TestReleasesAreCoalesced(t *testing.T) {
	const n = batches
	sent, heard, got := make(chan struct{}), make(chan struct{}), &peer{}
	d := listen(t, "", greetOnly, func(p *peer) {
		got = p
		p.greet()
		a := p.attach()
		p.slab(0, wire.SlabArena)
		p.deliver(a, n)
		close(sent)
		for len(p.released) < n && p.hear() {
		}
		close(heard)
		p.drain()
	})
	s := open(t, dial(t, d, Config{Depth: n}), anAttach)
	<-sent
	for i := range n {
		b, err := s.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, b, 0, i)
		b.Release()
	}
	ctx, cancel := context.WithTimeout(bg, 10*time.Second)
	defer cancel()
	go func() {
		<-heard
		cancel()
	}()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d.wg.Wait()
	if len(got.released) != n || got.frames > 3 {
		t.Errorf("%d releases came in %d frames; want %d in at most 3",
			len(got.released), got.frames, n)
	}
}

func TestNobodyIsRetriedThatRefuses(t *testing.T) {
	refuse := &Error{Code: wire.CodeAbsent, Fatal: true, Text: "a.jpg is gone"}
	d := listen(t, "", greetOnly, func(p *peer) {
		p.greet()
		p.attach()
		p.send(wire.AppendError(nil, refuse))
	})
	s := open(t, dial(t, d, Config{}), anAttach)
	_, err := s.Next(bg)
	var e *Error
	if !errors.As(err, &e) || *e != *refuse {
		t.Errorf("got %v", err)
	}
	if s.Stats().Reconnects != 0 {
		t.Error("a fatal error was retried")
	}
}

func TestAnErrorMayStandForOneBatch(t *testing.T) {
	d := listen(t, "", greetOnly, func(p *peer) {
		p.greet()
		p.attach()
		p.slab(0, wire.SlabArena)
		p.send(p.lease(0, 0, 0, 0))
		p.send(wire.AppendError(nil, &Error{Code: wire.CodeAbsent, Batch: 1, Text: "gone"}))
		p.send(p.lease(0, 0, 2, 0))
		p.drain()
	})
	s := open(t, dial(t, d, Config{}), anAttach)
	b, err := s.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, b, 0, 0)
	b.Release()
	if _, err := s.Next(bg); !errors.Is(err, &Error{Code: wire.CodeAbsent}) {
		t.Fatalf("got %v", err)
	}
	if b, err = s.Next(bg); err != nil {
		t.Fatal(err)
	}
	verify(t, b, 0, 2)
	b.Release()
}

func TestVersionRefusal(t *testing.T) {
	d := listen(t, "", func(p *peer) {
		_, refusal := wire.Negotiate(wire.Hello{Min: 9, Max: 9})
		p.send(wire.AppendError(nil, refusal))
	})
	_, err := Dial(bg, Config{Socket: d.socket})
	if !errors.Is(err, &Error{Code: wire.CodeVersion}) ||
		!strings.Contains(err.Error(), "upgrade the belady binary") {
		t.Errorf("got %v", err)
	}
}

// Whatever a broken daemon sends, Next ends with an error that says so, once and for all.
func TestBrokenDaemons(t *testing.T) {
	other := func(change func(frame []byte)) func(*peer) {
		return func(p *peer) {
			p.slab(0, wire.SlabArena)
			f := p.lease(0, 0, 0, 0)
			change(f)
			p.send(f)
		}
	}
	for name, script := range map[string]func(*peer){
		"garbage": func(p *peer) { _, _ = p.c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"oversized": func(p *peer) {
			_, _ = p.c.Write([]byte{1, 0, 0, 1, byte(wire.TypeLease), 0, 0, 0})
		},
		"client's frame": func(p *peer) { p.send(wire.AppendDetach(nil)) },
		"no descriptor":  func(p *peer) { p.send(wire.AppendSlab(nil, wire.Slab{Bytes: 4096})) },
		"short slab": func(p *peer) {
			p.slab(0, wire.SlabArena)
			_ = p.w.SendSlab(wire.Slab{Index: 1, Bytes: 1 << 30}, p.fds[0])
		},
		"unknown slab": func(p *peer) { p.send(p.lease(3, 0, 0, 0)) },
		"slab gone": func(p *peer) {
			p.slab(0, wire.SlabArena)
			p.send(wire.AppendSlabGone(nil, 0))
			p.send(p.lease(0, 0, 0, 0))
		},
		"another batch":   func(p *peer) { p.slab(0, wire.SlabArena); p.send(p.lease(0, 0, 1, 0)) },
		"another epoch":   func(p *peer) { p.slab(0, wire.SlabArena); p.send(p.lease(0, 1, 0, 0)) },
		"another receipt": other(func(f []byte) { f[wire.HeaderSize+40]++ }),
		"other ids":       other(func(f []byte) { f[wire.HeaderSize+56]++ }),
		"other lengths":   other(func(f []byte) { f[wire.HeaderSize+56+4*batchSize]++ }),
	} {
		t.Run(name, func(t *testing.T) {
			d := listen(t, "", greetOnly, func(p *peer) {
				p.greet()
				p.attach()
				script(p)
				p.drain()
			})
			s := open(t, dial(t, d, Config{}), anAttach)
			_, err := s.Next(bg)
			if !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, wire.ErrTooLarge) ||
				!strings.Contains(err.Error(), d.socket) {
				t.Errorf("got %v", err)
			}
			if _, again := s.Next(bg); again != err {
				t.Errorf("then: %v", again)
			}
		})
	}
}

func TestADatasetThatChangedIsNotMixed(t *testing.T) {
	d := listen(t, "", greetOnly, func(p *peer) { p.greet(); p.attach() }, func(p *peer) {
		p.greet()
		if _, err := p.r.Next(); err != nil {
			p.t.Error(err)
		}
		out, err := wire.AppendAttached(nil, &wire.Attached{Content: "another"})
		if err != nil {
			p.t.Error(err)
		}
		p.send(out)
	})
	s := open(t, dial(t, d, Config{}), anAttach)
	if _, err := s.Next(bg); !errors.Is(err, &Error{Code: wire.CodeChanged}) {
		t.Errorf("got %v", err)
	}
}

// Slabs come and go; a batch keeps the ones it came with.
func TestSlabsAreReplaced(t *testing.T) {
	d := listen(t, "", greetOnly, func(p *peer) {
		p.greet()
		p.attach()
		for i := range 4 {
			p.slab(uint16(i%2), wire.SlabKind(i%2))
			p.send(p.lease(uint16(i%2), 0, i, 0))
			p.send(wire.AppendSlabGone(nil, uint16(i%2)))
		}
		p.drain()
	})
	s := open(t, dial(t, d, Config{}), anAttach)
	var held []*Batch
	for i := range 4 {
		b, err := s.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, b, 0, i)
		held = append(held, b)
	}
	clear(held[1].Bytes(0)) // packed: ours to write
	held[0].Release()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{2, 3} {
		verify(t, held[i], 0, i)
		held[i].Release()
	}
	held[1].Release()
	d.wg.Wait() // the last release closed the connection
}

func TestClosingKeepsHeldBatches(t *testing.T) {
	var got *peer
	d := listen(t, "", greetOnly, func(p *peer) { got = p; whole(p) })
	s := open(t, dial(t, d, Config{}), anAttach)
	a, err := s.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verify(t, a, 0, 0)
	done := make(chan struct{})
	go func() { a.Release(); close(done) }()
	verify(t, b, 0, 1)
	b.Release()
	<-done
	d.wg.Wait()
	if !got.detached {
		t.Error("the daemon was not told that no more batches are wanted")
	}
}

func TestContextEndsNextAndNothingElse(t *testing.T) {
	goOn := make(chan struct{})
	d := listen(t, "", greetOnly, func(p *peer) {
		p.greet()
		a := p.attach()
		p.slab(0, wire.SlabArena)
		<-goOn
		if p.deliver(a, 1<<30) {
			p.send(wire.AppendEnd(nil))
		}
		p.drain()
	})
	s := open(t, dial(t, d, Config{}), anAttach)
	for range 3 {
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		cancel()
		if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	}
	close(goOn)
	readAll(t, s, 0, 0)
}

func TestWindowsAreSentAgain(t *testing.T) {
	got := make(chan []int, 2)
	serve := func(want, batch, n int) func(*peer) {
		return func(p *peer) {
			p.greet()
			a := p.attach()
			for len(p.windows) < want && p.hear() {
			}
			got <- p.windows
			p.slab(0, wire.SlabArena)
			p.deliver(a, n)
			if n == 1 {
				p.drain()
			}
		}
	}
	d := listen(t, "", greetOnly, serve(3, 0, batches+1), serve(2, batches+1, 1))
	s := open(t, dial(t, d, Config{}), anAttach)
	for epoch := range uint32(3) {
		ids := make([]sample.ID, 10+epoch)
		err := s.Window(bg, epoch, wire.WindowLastOfEpoch, ids, []uint32{uint32(len(ids))})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range batches + 2 {
		b, err := s.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	if w := fmt.Sprint(<-got, <-got); w != "[10 11 12] [11 12]" {
		t.Errorf("windows came as %s", w)
	}
}

func TestNoDaemon(t *testing.T) {
	dir, err := os.MkdirTemp("", "belady")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for socket, says := range map[string]string{
		"":                                "no daemon socket",
		dir + "/none":                     "`belady serve`",
		"/" + strings.Repeat("long/", 30): "shorter",
	} {
		if _, err := Dial(bg, Config{Socket: socket}); err == nil ||
			!strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), socket) {
			t.Errorf("%q: got %v", socket, err)
		}
	}
	if _, err := Dial(bg, Config{Socket: "/x", Depth: 1 << 20}); err == nil {
		t.Error("a depth over the limit is accepted")
	}
}

func TestControl(t *testing.T) {
	d := listen(t, "", greetOnly,
		control(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"path":"`+r.Method+r.URL.Path+`"}`)
		}),
		control(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, `{"error":"no job `+string(body)+`"}`)
		}))
	c := dial(t, d, Config{})
	got, err := c.Status(bg)
	if err != nil || string(got) != `{"path":"GET/v1/status"}` {
		t.Errorf("status: %s, %v", got, err)
	}
	_, err = c.Control(bg, http.MethodPost, "/v1/jobs", 7)
	if err == nil || !strings.Contains(err.Error(), "no job 7") {
		t.Errorf("a refusal: %v", err)
	}
}

// The rate of Next alone: batches of 256 samples of 3 KB, no byte of which is touched.
func BenchmarkNext(b *testing.B) {
	const n, size = 256, 3072
	ids, lengths, places := make([]sample.ID, n), make([]uint32, n), make([]wire.Place, n)
	for i := range ids {
		ids[i], lengths[i], places[i] = sample.ID(i), size, wire.At(0, uint64(i)*size)
	}
	d := listen(b, "", greetOnly, func(p *peer) {
		p.greet()
		p.attach()
		fd, size := memory(b, n*size)
		p.fds = append(p.fds, fd)
		if err := p.w.SendSlab(wire.Slab{Bytes: size}, fd); err != nil {
			b.Error(err)
		}
		clear(p.released)
		var buf []byte
		for batch := uint32(0); ; {
			for p.credits == 0 {
				clear(p.released)
				if !p.hear() {
					return
				}
			}
			buf = buf[:0]
			for ; p.credits > 0; p.credits-- {
				l := &wire.Lease{Seq: uint64(batch), Batch: batch}
				buf = wire.AppendLease(buf, l, ids, lengths, places, nil)
				batch++
			}
			p.send(buf)
		}
	})
	s := open(b, dial(b, d, Config{}), anAttach)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	b.ReportAllocs()
	sum := 0
	for b.Loop() {
		batch, err := s.Next(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for i := range batch.Len() {
			sum += len(batch.Bytes(i))
		}
		batch.Release()
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
	if sum != n*size*b.N {
		b.Fatal("bytes are missing")
	}
}

func TestPackedBatchesAndFields(t *testing.T) {
	d := listen(t, "", greetOnly, func(p *peer) {
		p.greet()
		p.attach()
		fd, size := memory(t, 8192)
		p.fds = append(p.fds, fd)
		if _, err := unix.Pwrite(fd, []byte("imagelabel..pixels"), 100); err != nil {
			t.Error(err)
		}
		if err := p.w.SendSlab(wire.Slab{Kind: wire.SlabPacked, Bytes: size}, fd); err != nil {
			t.Error(err)
		}
		l := &wire.Lease{Form: wire.FormPacked, Stride: 12, Base: wire.At(0, 100), Fields: 3,
			Flags: wire.LeasePrivate}
		p.send(wire.AppendLease(nil, l, []sample.ID{7, 8}, []uint32{10, 6}, nil,
			[]uint32{5, 5, 0, 0, 6, 0}))
		p.drain()
	})
	b, err := open(t, dial(t, d, Config{}), anAttach).Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	var got []string
	for i := range b.Len() {
		for f := range b.Fields() {
			got = append(got, string(b.Field(i, f)))
		}
	}
	if s := strings.Join(got, "|"); s != "image|label|||pixels|" || b.Size() != 16 || !b.Private {
		t.Errorf("fields are %q of %d bytes, private %v", s, b.Size(), b.Private)
	}
}
