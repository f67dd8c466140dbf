// Package profile is the file that says what a node's sources give: docs/profile.md.
//
// `belady bench tiers` writes it; one written by hand for hardware that is not there yet is read
// the same, and held to the same rules.
package profile

import (
	"fmt"
	"time"

	"github.com/google/renameio/v2"
	"go.yaml.in/yaml/v3"

	"belady/internal/core/perf"
	"belady/internal/yamlfile"
)

// Name is the file's name in the folder of Belady's data.
const Name = "profile.yaml"

// Version is of the format.
const Version = 1

// text is the file.
type text struct {
	Version  int           `yaml:"version"`
	Measured moment        `yaml:"measured,omitempty"`
	Ram      *tier         `yaml:"ram,omitempty"`
	Disks    []disk        `yaml:"disks,omitempty"`
	Origin   *origin       `yaml:"origin,omitempty"`
	Peers    *peers        `yaml:"peers,omitempty"`
	Decode   yamlfile.Rate `yaml:"decode,omitempty"`
}

// moment is seconds since 1970, written as RFC 3339 has them.
type moment int64

// UnmarshalYAML reads a time, and names the line of one that it cannot read.
func (m *moment) UnmarshalYAML(node *yaml.Node) error {
	t, err := time.Parse(time.RFC3339, node.Value)
	if err != nil {
		return yamlfile.At(node, fmt.Errorf("%q is not a time; expected one like %s, or nothing in a "+
			"profile that is written by hand", node.Value, "2026-11-15T12:00:00Z"))
	}
	*m = moment(t.Unix())
	return nil
}

// MarshalYAML writes a time as UnmarshalYAML reads it.
func (m moment) MarshalYAML() (any, error) { return time.Unix(int64(m), 0).UTC(), nil }

// byThreads, byReaders and bySize are a step of a curve as each kind is written.
type byThreads struct {
	At   int64         `yaml:"threads"`
	Rate yamlfile.Rate `yaml:"rate"`
}

type byReaders struct {
	At   int64         `yaml:"at"`
	Rate yamlfile.Rate `yaml:"rate"`
}

type bySize struct {
	At   yamlfile.Bytes `yaml:"size"`
	Rate yamlfile.Rate  `yaml:"rate"`
}

type tier struct {
	Capacity yamlfile.Bytes `yaml:"capacity,omitempty"`
	Threads  int64          `yaml:"threads,omitempty"`
	Read     []byThreads    `yaml:"read,flow"`
	Write    []byThreads    `yaml:"write,flow,omitempty"`
}

type disk struct {
	Dir      string         `yaml:"dir"`
	Capacity yamlfile.Bytes `yaml:"capacity,omitempty"`
	Threads  int64          `yaml:"threads,omitempty"`
	Read     []byThreads    `yaml:"read,flow"`
	Write    []byThreads    `yaml:"write,flow,omitempty"`
	Random   []bySize       `yaml:"random,flow,omitempty"`
	Alone    []bySize       `yaml:"alone,flow,omitempty"`
	Mixed    yamlfile.Rate  `yaml:"mixed,omitempty"`
}

type origin struct {
	Readers     []byReaders       `yaml:"readers,flow"`
	Latency     yamlfile.Duration `yaml:"latency,omitempty"`
	Concurrency int64             `yaml:"concurrency,omitempty"`
	Size        yamlfile.Bytes    `yaml:"size,omitempty"`
}

type peers struct {
	Link []byThreads `yaml:"link,flow"`
}

// curve and steps turn what is written into a curve, and back.
func curve[T byThreads | byReaders | bySize](steps []T) perf.Curve {
	var c perf.Curve
	for _, s := range steps {
		switch s := any(s).(type) {
		case byThreads:
			c = append(c, perf.Step{At: s.At, Rate: int64(s.Rate)})
		case byReaders:
			c = append(c, perf.Step{At: s.At, Rate: int64(s.Rate)})
		case bySize:
			c = append(c, perf.Step{At: int64(s.At), Rate: int64(s.Rate)})
		}
	}
	return c
}

func threads(c perf.Curve) (steps []byThreads) {
	for _, s := range c {
		steps = append(steps, byThreads{s.At, yamlfile.Rate(s.Rate)})
	}
	return steps
}

func sizes(c perf.Curve) (steps []bySize) {
	for _, s := range c {
		steps = append(steps, bySize{yamlfile.Bytes(s.At), yamlfile.Rate(s.Rate)})
	}
	return steps
}

// Load reads a profile. An error names the file, the line, and what was expected there; it is
// fs.ErrNotExist where there is no such file.
func Load(path string) (*perf.Profile, error) {
	var t text
	places, err := yamlfile.Read(path, &t)
	if err != nil {
		return nil, err
	}
	return t.profile(places)
}

// profile is what the file says, if it may say so.
func (t *text) profile(places *yamlfile.Places) (*perf.Profile, error) {
	p := &perf.Profile{Measured: int64(t.Measured), Decode: int64(t.Decode)}
	if r := t.Ram; r != nil {
		p.Ram = perf.Tier{Name: "ram", Capacity: int64(r.Capacity), Threads: r.Threads,
			Read: curve(r.Read), Write: curve(r.Write)}
	}
	for _, d := range t.Disks {
		p.Disks = append(p.Disks, perf.Disk{Tier: perf.Tier{Name: d.Dir,
			Capacity: int64(d.Capacity), Threads: d.Threads, Read: curve(d.Read),
			Write: curve(d.Write)}, Random: curve(d.Random), Alone: curve(d.Alone),
			Mixed: int64(d.Mixed)})
	}
	if o := t.Origin; o != nil {
		p.Origin = perf.Origin{Readers: curve(o.Readers), Latency: int64(o.Latency),
			Concurrency: o.Concurrency, Size: int64(o.Size)}
	}
	if t.Peers != nil {
		p.Peers = curve(t.Peers.Link)
	}
	if err := t.validate(p, places); err != nil {
		return nil, err
	}
	return p, nil
}

// Save writes a profile, whole or not at all.
func Save(path string, p *perf.Profile) error {
	t := text{Version: Version, Measured: moment(p.Measured), Decode: yamlfile.Rate(p.Decode)}
	if len(p.Ram.Read) > 0 {
		t.Ram = &tier{yamlfile.Bytes(p.Ram.Capacity), p.Ram.Threads, threads(p.Ram.Read),
			threads(p.Ram.Write)}
	}
	for _, d := range p.Disks {
		one := disk{d.Name, yamlfile.Bytes(d.Capacity), d.Threads, threads(d.Read), threads(d.Write),
			sizes(d.Random), sizes(d.Alone), yamlfile.Rate(d.Mixed)}
		t.Disks = append(t.Disks, one)
	}
	if o := p.Origin; len(o.Readers) > 0 {
		t.Origin = &origin{Latency: yamlfile.Duration(o.Latency), Concurrency: o.Concurrency,
			Size: yamlfile.Bytes(o.Size)}
		for _, s := range o.Readers {
			t.Origin.Readers = append(t.Origin.Readers, byReaders{s.At, yamlfile.Rate(s.Rate)})
		}
	}
	if len(p.Peers) > 0 {
		t.Peers = &peers{threads(p.Peers)}
	}
	body, err := yaml.Marshal(&t)
	if err != nil {
		return err
	}
	head := "# What the sources of this node give: docs/profile.md.\n"
	if p.Measured != 0 {
		head = "# Measured by 'belady bench tiers', which writes it anew: docs/profile.md.\n"
	}
	if err := renameio.WriteFile(path, append([]byte(head), body...), 0o600); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}
