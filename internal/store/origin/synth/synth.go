// Package synth is an origin whose bytes are computed: any number of samples of any size, without
// a disk, for benchmarks, demonstrations and tests.
//
// The bytes are a pure function of (seed, id, offset), the object's name carries the id, and sizes
// and versions follow from the configuration, so that two processes with the same URL agree and
// any range can be checked without keeping it. Names sort in the order of their ids, also after
// an image folder's sorting by class. It holds no state and is safe for any number of goroutines.
package synth

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/url"
	"strconv"
	"sync/atomic"

	"belady/internal/core/dataset"
	"belady/internal/core/sample"
	"belady/internal/store/origin"
)

// Config says which dataset to compute.
type Config struct {
	Name      string
	Samples   int64   // 1 … sample.MaxCount
	SizeBytes int64   // of every sample, or in the middle of the spread
	Spread    float64 // sizes lie in SizeBytes × (1 ± Spread), evenly
	Seed      uint64
	Classes   int64 // folders; sample i lies in folder ⌊i·Classes/Samples⌋
}

// Defaults are the values of parameters that a URL leaves out.
func Defaults() Config {
	return Config{Name: "synth", Samples: 10000, SizeBytes: 110_000, Classes: 1, Seed: 1}
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Samples < 1 || c.Samples > sample.MaxCount {
		errs = append(errs, fmt.Errorf("samples is %d; want 1 to %d", c.Samples,
			int64(sample.MaxCount)))
	}
	if c.Classes < 1 || c.Classes > max(c.Samples, 1) {
		errs = append(errs, fmt.Errorf("classes is %d; want 1 to the number of samples", c.Classes))
	}
	if !(c.Spread >= 0 && c.Spread <= 1) {
		errs = append(errs, fmt.Errorf("spread is %v; want 0 to 1", c.Spread))
	}
	if c.SizeBytes < 0 || float64(c.SizeBytes)*(1+c.Spread) > sample.MaxSize {
		errs = append(errs, fmt.Errorf("size is %d; want at most %d with its spread",
			c.SizeBytes, int64(sample.MaxSize)))
	}
	return errors.Join(errs...)
}

// ParseURL reads synth://NAME?samples=14200000&size=110KB&spread=0.2&seed=1&classes=100.
func ParseURL(u *url.URL) (Config, error) {
	c := Defaults()
	p := origin.NewParams(u)
	if u.Host != "" {
		c.Name = u.Host
	}
	c.Samples = p.Int("samples", c.Samples)
	c.SizeBytes = p.Bytes("size", c.SizeBytes)
	c.Spread = p.Fraction("spread", c.Spread)
	c.Seed = p.Uint64("seed", c.Seed)
	c.Classes = p.Int("classes", c.Classes)
	err := p.Err()
	if err == nil && (u.Scheme != "synth" || (u.Path != "" && u.Path != "/")) {
		err = errors.New("write synth://NAME?samples=N&size=110KB")
	}
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return Config{}, fmt.Errorf("origin %q: %w", u.Redacted(), err)
	}
	return c, nil
}

// Origin computes one dataset.
type Origin struct {
	config               Config
	sizeMin, sizeSpan    uint64 // sizes are sizeMin + hash mod sizeSpan
	classWidth, idWidth  int
	version, sizeHashKey uint64
	closed               atomic.Bool
}

var _ origin.Origin = (*Origin)(nil)

// New makes the origin that c describes.
func New(c Config) (*Origin, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("origin synth://%s: %w", c.Name, err)
	}
	half := uint64(float64(c.SizeBytes) * c.Spread)
	o := &Origin{
		config:     c,
		sizeMin:    uint64(c.SizeBytes) - half,
		sizeSpan:   2*half + 1,
		classWidth: max(4, len(strconv.FormatInt(c.Classes-1, 10))),
		idWidth:    max(8, len(strconv.FormatInt(c.Samples-1, 10))),
	}
	o.sizeHashKey = mix(c.Seed, 0x73697a65)
	o.version = max(mix(mix(c.Seed, o.sizeMin), o.sizeSpan), 1)
	return o, nil
}

// URL says which dataset this is; ParseURL reads it back.
func (o *Origin) URL() string {
	c := o.config
	return fmt.Sprintf("synth://%s?samples=%d&size=%d&spread=%v&seed=%d&classes=%d",
		c.Name, c.Samples, c.SizeBytes, c.Spread, c.Seed, c.Classes)
}

// Len returns the number of samples.
func (o *Origin) Len() int { return int(o.config.Samples) }

// Size returns the size of sample id.
func (o *Origin) Size(id sample.ID) uint32 {
	if o.sizeSpan == 1 {
		return uint32(o.sizeMin)
	}
	return uint32(o.sizeMin + mix(o.sizeHashKey, uint64(id))%o.sizeSpan)
}

// Object returns sample id as List shows it.
func (o *Origin) Object(id sample.ID) dataset.Object {
	return dataset.Object{
		Name:    string(o.appendName(nil, id)),
		Size:    int64(o.Size(id)),
		Version: dataset.Version(o.version),
	}
}

// appendName appends the name of id: c0042/s00001234, zero-padded so that names sort as ids do.
func (o *Origin) appendName(b []byte, id sample.ID) []byte {
	class := uint64(id) * uint64(o.config.Classes) / uint64(o.config.Samples)
	b = appendPadded(append(b, 'c'), class, o.classWidth)
	return appendPadded(append(b, '/', 's'), uint64(id), o.idWidth)
}

func appendPadded(b []byte, v uint64, width int) []byte {
	start := len(b)
	for range width {
		b = append(b, '0')
	}
	for i := start + width - 1; v > 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
	return b
}

// ID returns the sample that name carries; false when no sample has exactly that name.
func (o *Origin) ID(name string) (sample.ID, bool) {
	if len(name) != o.classWidth+o.idWidth+3 {
		return 0, false
	}
	var v uint64
	for _, c := range []byte(name[len(name)-o.idWidth:]) {
		v = v*10 + uint64(c-'0') // a byte that is no digit fails the comparison below
	}
	if v >= uint64(o.config.Samples) {
		return 0, false
	}
	var buf [64]byte
	return sample.ID(v), string(o.appendName(buf[:0], sample.ID(v))) == name
}

const listBatch = 4096

// List shows all samples in the order of their ids.
func (o *Origin) List(ctx context.Context, fn func([]dataset.Object) error) error {
	batch := make([]dataset.Object, 0, min(listBatch, o.config.Samples))
	for first := int64(0); first < o.config.Samples; first += listBatch {
		if err := ctx.Err(); err != nil {
			return err
		}
		if o.closed.Load() {
			return o.errClosed()
		}
		batch = batch[:0]
		for id := first; id < min(first+listBatch, o.config.Samples); id++ {
			batch = append(batch, o.Object(sample.ID(id)))
		}
		if err := fn(batch); err != nil {
			return err
		}
	}
	return nil
}

// Read computes the part's bytes into dst.
func (o *Origin) Read(ctx context.Context, part dataset.Part, dst []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if o.closed.Load() {
		return o.errClosed()
	}
	id, ok := o.ID(part.Name)
	if !ok {
		return fmt.Errorf("%w: %q in %s", origin.ErrAbsent, part.Name, o.URL())
	}
	if part.Version != 0 && part.Version != dataset.Version(o.version) {
		return fmt.Errorf("%w: %q in %s: the manifest was made with another seed or size",
			origin.ErrChanged, part.Name, o.URL())
	}
	if size := int64(o.Size(id)); part.Offset < 0 || part.Offset+int64(len(dst)) > size {
		return fmt.Errorf("%w: %q in %s has %d bytes and the manifest has bytes up to %d",
			origin.ErrChanged, part.Name, o.URL(), size, part.Offset+int64(len(dst)))
	}
	o.Fill(id, part.Offset, dst)
	return nil
}

// Close makes later reads fail, as they would on an origin with connections.
func (o *Origin) Close() error {
	o.closed.Store(true)
	return nil
}

func (o *Origin) errClosed() error { return fmt.Errorf("origin %s is closed", o.URL()) }

// mix is one round of 64×64→128-bit multiplication folded by xor, the step of the wyhash family:
// every output bit depends on every input bit, at about one multiplication per cycle.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xe7037ed1a0b428db)
	return hi ^ lo
}

// word is the i-th little-endian 8-byte word of the object with this key.
func word(key, i uint64) uint64 {
	x := key + i*0x9e3779b97f4a7c15
	hi, lo := bits.Mul64(x, x^0xe7037ed1a0b428db)
	return hi ^ lo
}

// Fill writes bytes [offset, offset+len(dst)) of sample id into dst.
func (o *Origin) Fill(id sample.ID, offset int64, dst []byte) {
	key := mix(o.config.Seed, uint64(id)+1)
	i := uint64(offset) / 8
	if skip := int(offset % 8); skip != 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], word(key, i))
		dst = dst[copy(dst, b[skip:]):]
		i++
	}
	for len(dst) >= 32 {
		binary.LittleEndian.PutUint64(dst[0:8], word(key, i))
		binary.LittleEndian.PutUint64(dst[8:16], word(key, i+1))
		binary.LittleEndian.PutUint64(dst[16:24], word(key, i+2))
		binary.LittleEndian.PutUint64(dst[24:32], word(key, i+3))
		dst = dst[32:]
		i += 4
	}
	for ; len(dst) > 0; i++ {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], word(key, i))
		dst = dst[copy(dst, b[:]):]
	}
}

// Check says at which byte got differs from bytes [offset, offset+len(got)) of sample id.
func (o *Origin) Check(id sample.ID, offset int64, got []byte) error {
	if int64(id) >= o.config.Samples || offset+int64(len(got)) > int64(o.Size(id)) {
		return fmt.Errorf("sample %d of %s has no bytes [%d, %d)", id, o.URL(), offset,
			offset+int64(len(got)))
	}
	var want [4096]byte
	for len(got) > 0 {
		n := min(len(got), len(want))
		o.Fill(id, offset, want[:n])
		if string(got[:n]) != string(want[:n]) {
			for i := range n {
				if got[i] != want[i] {
					return fmt.Errorf("sample %d of %s: byte %d is %#02x, want %#02x",
						id, o.URL(), offset+int64(i), got[i], want[i])
				}
			}
		}
		got, offset = got[n:], offset+int64(n)
	}
	return nil
}
