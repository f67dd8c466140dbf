package torch

import (
	"encoding/binary"
	"fmt"
)

const (
	words = 624
	shift = 397

	// DefaultSeed is what torch.Generator() starts from before manual_seed.
	DefaultSeed = 67280421310721

	// StateSize is the length of torch.Generator.get_state() on the CPU.
	StateSize = 5056
)

// A Generator is torch.Generator on the CPU: MT19937. The zero value is not seeded; use Seeded or
// Restore.
//
// state[next:] holds the untempered words still to be drawn of this round; a twist makes the next
// 624.
type Generator struct {
	state [words]uint32
	next  int
}

// Seeded is torch.Generator().manual_seed(seed). Only the low 32 bits of the seed matter, as in
// PyTorch, so seeds 2^32 apart give one stream.
func Seeded(seed int64) Generator {
	var g Generator
	g.state[0] = uint32(seed)
	for j := uint32(1); j < words; j++ {
		last := g.state[j-1]
		g.state[j] = 1812433253*(last^(last>>30)) + j
	}
	g.next = words
	return g
}

// Restore imports a live generator from its get_state():
//
//	u64 seed | i32 left | i32 seeded | u64 next | 624 × u64 word | cached normals, ignored
//
// all little-endian, 5056 bytes with padding. The next word drawn is word[next]; left counts down
// to 1, at which the next draw twists first.
func Restore(state []byte) (Generator, error) {
	var g Generator
	if len(state) != StateSize {
		return g, fmt.Errorf("generator state has %d bytes, want %d: "+
			"send torch.Generator.get_state() of a CPU generator", len(state), StateSize)
	}
	left := int32(binary.LittleEndian.Uint32(state[8:]))
	next := binary.LittleEndian.Uint64(state[16:])
	if seeded := binary.LittleEndian.Uint32(state[12:]); seeded != 1 {
		return g, fmt.Errorf("generator state says seeded=%d, want 1: "+
			"it is not a CPU generator's get_state()", seeded)
	}
	// A fresh generator has left=1 with next=0; every other keeps next+left = 625.
	if left < 1 || left > words || next > words || left > 1 && next+uint64(left) != words+1 {
		return g, fmt.Errorf("generator state has left=%d and next=%d, which no generator "+
			"reaches: it is damaged or not a CPU generator's get_state()", left, next)
	}
	for j := range g.state {
		word := binary.LittleEndian.Uint64(state[24+8*j:])
		if word > 1<<32-1 {
			return g, fmt.Errorf("generator state word %d is %#x, over 32 bits: "+
				"it is damaged or not a CPU generator's get_state()", j, word)
		}
		g.state[j] = uint32(word)
	}
	g.next = words - int(left) + 1
	return g, nil
}

// Uint32 is random(): one word of the stream.
func (g *Generator) Uint32() uint32 {
	if g.next == words {
		g.twist()
	}
	y := g.state[g.next]
	g.next++
	return temper(y)
}

// Uint64 is random64(): two words, the first one high.
func (g *Generator) Uint64() uint64 {
	high := uint64(g.Uint32())
	return high<<32 | uint64(g.Uint32())
}

// Int64 is torch.empty((), dtype=torch.int64).random_(generator=g): how DataLoader draws its
// base_seed and RandomSampler its seed. It costs SeedWords words.
func (g *Generator) Int64() int64 { return int64(g.Uint64() &^ (1 << 63)) }

// SeedWords is how far one Int64 moves the stream.
const SeedWords = 2

// Float64 is a uniform double in [0, 1): 53 bits of random64().
func (g *Generator) Float64() float64 { return float64(g.Uint64()&(1<<53-1)) * 0x1p-53 }

// Fill draws len(dst) words at once: the bulk form of Uint32.
func (g *Generator) Fill(dst []uint32) {
	for len(dst) > 0 {
		if g.next == words {
			g.twist()
		}
		n := min(len(dst), words-g.next)
		out := dst[:n]
		for i, y := range g.state[g.next : g.next+n] {
			out[i] = temper(y)
		}
		g.next += n
		dst = dst[n:]
	}
}

// Skip moves the stream n words on without tempering them: what an epoch that nobody reads costs.
func (g *Generator) Skip(n uint64) {
	for n > 0 {
		if g.next == words {
			g.twist()
		}
		step := min(n, uint64(words-g.next))
		g.next += int(step)
		n -= step
	}
}

func (g *Generator) twist() {
	s := &g.state
	for j := 0; j < words-shift; j++ {
		s[j] = s[j+shift] ^ mix(s[j], s[j+1])
	}
	for j := words - shift; j < words-1; j++ {
		s[j] = s[j+shift-words] ^ mix(s[j], s[j+1])
	}
	s[words-1] = s[shift-1] ^ mix(s[words-1], s[0])
	g.next = 0
}

func mix(u, v uint32) uint32 {
	// -(v&1) is all ones for odd v: a branch here would be mispredicted half the time.
	return (u&0x80000000|v&0x7fffffff)>>1 ^ -(v&1)&0x9908b0df
}

func temper(y uint32) uint32 {
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}
