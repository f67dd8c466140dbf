package yamlfile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v3"
)

// Bytes is a number of bytes that people write as "4GiB".
type Bytes int64

// Rate is bytes a second, written as "66MB/s".
type Rate int64

// Duration is a time that people write as "20ms".
type Duration time.Duration

// ParseBytes reads a size as people write it: 4GiB is 4 × 2³⁰, 4GB is 4 × 10⁹, 4096 is bytes. A
// rate is no size, and 1,5GiB would be read as 15 GiB.
func ParseBytes(text string) (int64, error) {
	if strings.ContainsAny(text, ",/") {
		return 0, fmt.Errorf("size %q is not a number of bytes; write it like 512MiB or 1.5GiB", text)
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("size %q is not a number of bytes; write it like 4096, 110KB or 2GiB",
			text)
	}
	return int64(n), nil
}

// ParseRate reads a rate as people write it: 66MB/s is 66 × 10⁶ bytes a second.
func ParseRate(text string) (int64, error) {
	size, perSecond := strings.CutSuffix(text, "/s")
	n, err := ParseBytes(size)
	if err != nil || !perSecond {
		return 0, fmt.Errorf("rate %q is not bytes a second; write it like 66MB/s or 1.5GB/s", text)
	}
	return n, nil
}

// parseDuration reads a time that is not negative.
func parseDuration(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time; write it like 20ms or 1.5s", text)
	}
	return int64(d), nil
}

// scalar reads one value, and names the line of one that it cannot read.
func scalar[T ~int64](into *T, node *yaml.Node, parse func(string) (int64, error)) error {
	n, err := parse(node.Value)
	if err != nil {
		return At(node, err)
	}
	*into = T(n)
	return nil
}

// UnmarshalYAML reads a size.
func (b *Bytes) UnmarshalYAML(node *yaml.Node) error { return scalar(b, node, ParseBytes) }

// UnmarshalYAML reads a rate.
func (r *Rate) UnmarshalYAML(node *yaml.Node) error { return scalar(r, node, ParseRate) }

// UnmarshalYAML reads a time.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error { return scalar(d, node, parseDuration) }

// units are those of sizes, the largest first: those of ten and those of two.
var units = []struct {
	bytes int64
	name  string
}{{1 << 40, "TiB"}, {1e12, "TB"}, {1 << 30, "GiB"}, {1e9, "GB"}, {1 << 20, "MiB"}, {1e6, "MB"},
	{1 << 10, "KiB"}, {1e3, "KB"}}

// String writes a size in the largest unit that it is a whole number of, so that nothing is lost.
func (b Bytes) String() string {
	for _, u := range units {
		if n := int64(b); n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

func (r Rate) String() string { return Bytes(r).String() + "/s" }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalYAML writes a size as UnmarshalYAML reads it.
func (b Bytes) MarshalYAML() (any, error) { return b.String(), nil }

// MarshalYAML writes a rate as UnmarshalYAML reads it.
func (r Rate) MarshalYAML() (any, error) { return r.String(), nil }

// MarshalYAML writes a time as UnmarshalYAML reads it.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }
