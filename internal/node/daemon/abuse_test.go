package daemon_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/sample"
	"belady/internal/node/wire"
)

// frame is a frame as anybody could send it.
func frame(kind wire.Type, reserved uint16, length int, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(length))
	b = append(b, byte(kind), 0)
	b = binary.LittleEndian.AppendUint16(b, reserved)
	return append(b, payload...)
}

// abuse is something a client may not send, and when.
type abuse struct {
	before func(*peer)
	send   []byte
	code   wire.Code
}

func abuses(d data) map[string]abuse {
	one, ex := d.attach(order.Random, 8, 2), explicit(d, 2)
	window := func(epoch, flags uint32, ids ...sample.ID) []byte {
		return wire.AppendWindow(nil, epoch, flags, ids, []uint32{uint32(len(ids))})
	}
	hello := func(p *peer) { p.hello() }
	attached := func(p *peer) { p.attach(one, 2) }
	explicitly := func(p *peer) { p.attach(ex, 2) }
	// Without credit no batch is sent, so the job's End cannot overtake what is refused.
	starved := func(p *peer) { p.attach(ex, 0) }
	releasing := func(p *peer) {
		p.attach(one, 2)
		p.expect(wire.TypeLease)
	}
	seq := wire.AppendRelease(nil, []uint64{0})
	long := make([]sample.ID, wire.MaxBatch(1)+1)
	for i := range long {
		long[i] = sample.ID(i % d.len)
	}
	one4, zero4 := []byte{1, 0, 0, 0}, []byte{0, 0, 0, 0}
	return map[string]abuse{
		"version": {nil, wire.AppendHello([]byte(wire.Preamble), wire.Hello{Min: 99, Max: 99}),
			wire.CodeVersion},
		"no hello": {nil, wire.AppendDetach([]byte(wire.Preamble)), wire.CodeProtocol},
		"short hello": {nil, append([]byte(wire.Preamble), frame(wire.TypeHello, 0, 2, []byte{1, 0})...),
			wire.CodeProtocol},
		"no attach":     {hello, wire.AppendCredit(nil, 1), wire.CodeProtocol},
		"bad json":      {hello, frame(wire.TypeAttach, 0, 3, []byte("{,}")), wire.CodeProtocol},
		"oversized":     {attached, frame(wire.TypeWindow, 0, 1<<30, nil), wire.CodeTooLarge},
		"reserved":      {attached, frame(wire.TypeCredit, 7, 4, one4), wire.CodeProtocol},
		"unknown type":  {attached, frame(200, 0, 0, nil), wire.CodeProtocol},
		"daemon's type": {attached, wire.AppendEnd(nil), wire.CodeProtocol},
		"second attach": {attached, frame(wire.TypeAttach, 0, 2, []byte("{}")), wire.CodeProtocol},
		"no credit":     {attached, frame(wire.TypeCredit, 0, 4, zero4), wire.CodeProtocol},
		"credit flood": {attached, slices.Repeat(wire.AppendCredit(nil, wire.MaxCredit), 300),
			wire.CodeProtocol},
		"unknown lease": {attached, wire.AppendRelease(nil, []uint64{1 << 60}), wire.CodeProtocol},
		"twice":         {releasing, append(slices.Clone(seq), seq...), wire.CodeProtocol},
		"release flood": {attached, slices.Repeat(wire.AppendRelease(nil, make([]uint64, 1000)), 100),
			wire.CodeProtocol},
		"a window here":  {attached, window(0, 1, 1), wire.CodeProtocol},
		"another epoch":  {explicitly, window(1, 1, 1), wire.CodeProtocol},
		"epoch again":    {explicitly, append(window(0, 1, 1), window(0, 1, 2)...), wire.CodeProtocol},
		"after the job":  {starved, append(window(0, 3, 1), window(1, 3, 2)...), wire.CodeProtocol},
		"no such sample": {explicitly, window(0, 1, 1000), wire.CodeBadRequest},
		"a long batch": {explicitly, window(0, 1, long...),
			wire.CodeTooLarge},
	}
}

// TestAbuse: what the protocol does not allow is answered with an error and the end; a rank that
// reads after it is not disturbed (I8).
func TestAbuse(t *testing.T) {
	n := start(t, 48*mib, nil)
	d := n.addSynth("d", "", "samples=1000&size=4KB")
	for name, c := range abuses(d) {
		t.Run(name, func(t *testing.T) {
			p := dial(t, n.socket)
			if c.before != nil {
				c.before(p)
			}
			go p.send(c.send) // the daemon may stop reading in the middle
			p.refused(c.code)
		})
	}
	n.mustRead(reading{Attach: d.attach(order.Random, 8, 2), data: d})
	n.quiet("d")
}

// TestNoise: random bytes after a good beginning, and good frames with random damage, never end the
// daemon nor disturb a reader.
func TestNoise(t *testing.T) {
	n := start(t, 48*mib, nil)
	d := n.addSynth("d", "", "samples=400&size=4KB")
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				done <- err
				return
			default:
				err = n.readErr(reading{Attach: d.attach(order.Random, 8, 1), data: d})
			}
		}
		done <- err
	}()
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 150 {
		p := dial(t, n.socket)
		at := d.attach(order.Random, 8, 1)
		frames, err := wire.AppendAttach(wire.AppendHello([]byte(wire.Preamble), wire.OurHello()), &at)
		if err != nil {
			t.Fatal(err)
		}
		frames = wire.AppendCredit(frames, 3)
		frames = wire.AppendRelease(frames, []uint64{0, 1})
		if i%2 == 0 {
			for range 1 + random.IntN(8) {
				frames[random.IntN(len(frames))] ^= byte(1 << random.IntN(8))
			}
		} else {
			for range random.IntN(200) {
				frames = append(frames, byte(random.Uint32()))
			}
		}
		p.send(frames)
		p.close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n.quiet("d")
}

// TestSlowClients: one that sends half a frame and one that never reads hold up nobody, and the
// daemon ends all the same.
func TestSlowClients(t *testing.T) {
	n := start(t, 48*mib, func(c *config) { c.Staging = 16 * mib })
	d := n.addSynth("d", "", "samples=2000&size=1KB")
	half := dial(t, n.socket)
	half.attach(d.attach(order.Random, 8, 2), 1)
	half.send(frame(wire.TypeRelease, 0, 8000, []byte{1, 2, 3}))
	early := dial(t, n.socket)
	early.send([]byte(wire.Preamble)[:2])
	deaf := dial(t, n.socket)
	deaf.attach(d.attach(order.Random, 1000, 500), 1000) // more than a socket's buffer of leases
	refused := dial(t, n.socket)
	refused.attach(d.attach(order.Random, 1000, 500), 1000)
	refused.send(wire.AppendEnd(nil)) // refused, but it reads nothing
	n.mustRead(reading{Attach: d.attach(order.Random, 16, 2), data: d})
	eventually(t, "the refused rank has left", func() bool { return n.of("d").Ranks == 2 })
	begun := time.Now()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("stopping took %v", took)
	}
}

// TestControl: HTTP beside sessions, with limits.
func TestControl(t *testing.T) {
	n := start(t, 32*mib, nil)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", n.socket)
		}}}
	for path, want := range map[string]int{"/v1/status": 200, "/v1/nothing": 404, "/": 404,
		"/v1/" + strings.Repeat("x", 20<<10): 431} {
		r, err := c.Get("http://belady" + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("GET %.20s gives %d, wanted %d", path, r.StatusCode, want)
		}
	}
	r, err := c.Post("http://belady/v1/status", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != 405 {
		t.Errorf("POST gives %d", r.StatusCode)
	}
}

// TestGoodbye: a stopping daemon tells its clients, who find its successor and go on where they
// were (F-44, F-47).
func TestGoodbye(t *testing.T) {
	n := start(t, 32*mib, nil)
	d := n.addSynth("d", "", "samples=500&size=4KB")
	o, windows := drawn(t, d, 2)
	for _, r := range []reading{
		{Attach: d.attach(order.Random, 8, 3), data: d},
		{Attach: explicit(d, 2), data: d, expect: o,
			opened: func(s *client.Session) { sendWindows(t, s, windows, 2) }},
	} {
		restarted := 0
		r.each = func(b *batch) bool {
			if b.Index == 5 && b.Epoch == 0 {
				restarted++
				if err := n.stop(); err != nil {
					t.Fatal(err)
				}
				n.restart()
			}
			return true
		}
		if a := n.mustRead(r); a.stats.Reconnects != restarted || restarted == 0 {
			t.Errorf("%d restarts, %d reconnects", restarted, a.stats.Reconnects)
		}
	}
}
