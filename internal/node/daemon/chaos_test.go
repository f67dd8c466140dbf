package daemon_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"
	"time"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/node/wire"
)

// TestChaos: ranks come, leave, hold, die and pack at random, over several datasets and an origin
// that errs. Every byte and every order is checked; at the end nothing is
// left. The seed reproduces what each rank does, not when.
func TestChaos(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			n := start(t, 96*mib, func(c *config) {
				c.Staging = 24 * mib
				c.Retry.TotalTimeout = 20 * time.Second
			})
			sets := []data{
				n.addSynth("a", "throttle+", "samples=700&size=30KB&spread=0.9&seed=1"+
					"&throttle.latency=1ms&throttle.faults="+url.QueryEscape("seed:3,error:0.05")),
				n.addSynth("b", "", "samples=1500&size=25KB&seed=2"),
				n.addSynth("c", "", "samples=300&size=120KB&spread=0.3&seed=3"),
			}
			var wg sync.WaitGroup
			served := make([]int, 8)
			for i := range served {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 6 {
						served[i] += chaotic(t, n, sets[random.IntN(len(sets))], random)
					}
				})
			}
			wg.Wait()
			total := 0
			for _, s := range served {
				total += s
			}
			if total < 200 {
				t.Errorf("only %d batches were served: nothing was tried", total)
			}
			// One that died without a word may still be let in, and an idle dataset go for it.
			eventually(t, "nobody is there", func() bool {
				for _, s := range n.status().Datasets {
					if s.Ranks > 0 {
						return false
					}
				}
				return n.status().Sessions == 0
			})
			for _, s := range n.status().Datasets {
				n.quiet(s.Dataset)
			}
		})
	}
}

// chaotic is one rank's random life; it returns how many batches it saw.
func chaotic(t *testing.T, n *node, d data, random *rand.Rand) int {
	at := d.attach(order.Random, 1+random.IntN(12), 2)
	at.Order.Seed = int64(random.IntN(5))
	at.Packed = random.IntN(3) == 0
	left := 1 + random.IntN(60)
	if random.IntN(4) == 0 { // one that dies without a word
		p := dial(t, n.socket)
		defer p.close()
		p.hello()
		frames, err := wire.AppendAttach(nil, &at)
		if err != nil {
			t.Error(err)
			return 0
		}
		p.send(wire.AppendCredit(frames, uint32(1+random.IntN(8))))
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		return 0
	}
	r := reading{Attach: at, data: d, depth: 1 + random.IntN(6), held: random.IntN(3)}
	r.each = func(*client.Batch) bool {
		if random.IntN(10) == 0 {
			time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
		}
		left--
		return left > 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	a, err := n.read(ctx, r)
	// So many ranks at once may be too many for the memory there is: that is said when they attach.
	if err != nil && (code(err) != wire.CodeArenaTooSmall || a.batches > 0) {
		t.Errorf("%s, batches of %d, packed %t: after %d batches: %v", d.name, at.Order.Batch,
			at.Packed, a.batches, err)
	}
	return a.batches
}
