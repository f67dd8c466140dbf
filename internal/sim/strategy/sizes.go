package strategy

import (
	"math"

	"belady/internal/core/sample"
)

// draws is splitmix64: small, and the same on every machine and in every release.
type draws uint64

func (d *draws) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	x := uint64(*d)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below draws a number in 0 to n−1.
func (d *draws) below(n int) int { return int(d.next() >> 11 % uint64(n)) }

func (d *draws) unit() float64 { return float64(d.next()>>11) / (1 << 53) }

// shuffle puts ids into random order.
func (d *draws) shuffle(ids []sample.ID) {
	for i := len(ids) - 1; i > 0; i-- {
		j := d.below(i + 1)
		ids[i], ids[j] = ids[j], ids[i]
	}
}

// Normal draws sizes in bytes from a normal distribution, as NoPFS's scenarios do: what would be
// negative is 0, so a wide one has a larger mean than it is given.
func Normal(samples int, mean, deviation float64, seed uint64) []uint32 {
	sizes, d := make([]uint32, samples), draws(seed)
	for i := range sizes {
		// Box and Muller's; 1 − u is never 0.
		u, v := d.unit(), d.unit()
		x := mean + deviation*math.Sqrt(-2*math.Log(1-u))*math.Cos(2*math.Pi*v)
		sizes[i] = uint32(min(max(math.Round(x), 0), sample.MaxSize))
	}
	return sizes
}
