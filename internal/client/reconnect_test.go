package client

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"belady/internal/node/wire"
)

func TestReconnectContinuesAtTheSameBatch(t *testing.T) {
	for _, say := range []bool{false, true} {
		t.Run(fmt.Sprintf("shutting down said %v", say), func(t *testing.T) {
			const first = batches + 5
			var again *wire.Attach
			d := listen(t, "", greetOnly, func(p *peer) {
				p.greet()
				a := p.attach()
				p.slab(0, wire.SlabArena)
				p.deliver(a, first)
				if say {
					p.send(wire.AppendError(nil, &Error{Code: wire.CodeShuttingDown, Fatal: true}))
				}
			}, func(p *peer) {
				p.greet()
				again = p.attach()
				p.slab(0, wire.SlabArena)
				if p.deliver(again, 1<<30) {
					p.send(wire.AppendEnd(nil))
				}
				p.drain()
			})
			s := open(t, dial(t, d, Config{}), anAttach)
			var held []*Batch
			for i := range first {
				b, err := s.Next(bg)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, b)
				if i%2 == 0 {
					b.Release()
				}
			}
			readAll(t, s, first/batches, first%batches)
			// What was handed out by the dead daemon is still there.
			for i, b := range held {
				if i%2 == 1 {
					verify(t, b, i/batches, i%batches)
				}
				b.Release()
			}
			if st := s.Stats(); st.Reconnects != 1 || st.Away == 0 ||
				st.Batches != 3*batches {
				t.Errorf("stats: %+v", st)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			d.wg.Wait()
			if want := (wire.Start{Epoch: 1, Batch: 5}); again.Start != want {
				t.Errorf("attached again at %+v", again.Start)
			}
		})
	}
}

// Whenever daemons die and whatever is held meanwhile, a loop sees the same batches, each once.
func TestAnyDeathsGiveTheSameBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		scripts := []func(*peer){greetOnly}
		for range rapid.IntRange(0, 4).Draw(rt, "deaths") {
			n := rapid.IntRange(0, 15).Draw(rt, "batches before")
			scripts = append(scripts, func(p *peer) {
				p.greet()
				a := p.attach()
				p.slab(0, wire.SlabArena)
				if p.deliver(a, n) {
					p.send(wire.AppendEnd(nil))
				}
			})
		}
		d := listen(t, "", append(scripts, whole)...)
		s := open(t, dial(t, d, Config{Depth: rapid.IntRange(1, 6).Draw(rt, "depth")}), anAttach)
		hold := rapid.IntRange(0, 10).Draw(rt, "hold")
		var held []*Batch
		var wg sync.WaitGroup
		for i := range 3 * batches {
			b, err := s.Next(bg)
			if err != nil {
				rt.Fatalf("batch %d: %v", i, err)
			}
			verify(t, b, i/batches, i%batches)
			if held = append(held, b); len(held) > hold {
				verify(t, held[0], (i-hold)/batches, (i-hold)%batches)
				wg.Go(held[0].Release)
				held = held[1:]
			}
		}
		if _, err := s.Next(bg); err != io.EOF {
			rt.Fatalf("after the last batch: %v", err)
		}
		if err := s.Close(); err != nil {
			rt.Fatalf("close: %v", err)
		}
		for i, b := range held {
			j := 3*batches - len(held) + i
			verify(t, b, j/batches, j%batches)
			b.Release()
		}
		wg.Wait()
		_ = d.ln.Close() // the job may have ended before the last daemon was needed
		d.wg.Wait()
	})
}

func TestResumeInsideAnEpochKeepsItsPosition(t *testing.T) {
	starts := make(chan wire.Start, 2)
	serve := func(n int) func(*peer) {
		return func(p *peer) {
			p.greet()
			a := p.attach()
			starts <- a.Start
			p.slab(0, wire.SlabArena)
			p.deliver(a, n)
		}
	}
	d := listen(t, "", greetOnly, serve(2), serve(1))
	a := anAttach
	a.Start = wire.Start{Epoch: 1, Position: 640, Batch: 3}
	s := open(t, dial(t, d, Config{}), a)
	for i := range 3 {
		b, err := s.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, b, 1, 3+i)
		b.Release()
	}
	<-starts
	if got, want := <-starts, (wire.Start{Epoch: 1, Position: 640, Batch: 5}); got != want {
		t.Errorf("attached again at %+v, want %+v", got, want)
	}
}

func TestDaemonDiesForGood(t *testing.T) {
	d := listen(t, "", greetOnly, func(p *peer) {
		p.greet()
		a := p.attach()
		p.slab(0, wire.SlabArena)
		p.deliver(a, 3)
	})
	s := open(t, dial(t, d, Config{ReconnectFor: 30 * time.Millisecond}), anAttach)
	for range 3 {
		b, err := s.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	_, err := s.Next(bg)
	for _, want := range []string{d.socket, "did not come back", "belady serve", "batch 3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if _, again := s.Next(bg); again != err {
		t.Errorf("then: %v", again)
	}
}
