package profile

import (
	"errors"
	"fmt"
	"path/filepath"

	"belady/internal/core/perf"
	"belady/internal/core/sample"
	"belady/internal/yamlfile"
)

// Beyond these no source is believed: a unit was mistaken.
const (
	mostRate        = 1e15    // bytes a second
	mostCapacity    = 1 << 60 // bytes
	mostThreads     = 1 << 16
	mostLatency     = 3600e9 // ns
	mostConcurrency = 4096
)

// checks collects what is wrong with a file.
type checks struct {
	*yamlfile.Places
	wrong []error
}

func (c *checks) refuse(bad bool, key, format string, args ...any) {
	if bad {
		c.wrong = append(c.wrong, c.Wrong(key, format, args...))
	}
}

// curve holds a curve to the rules, step by step.
func (c *checks) curve(key, at string, steps perf.Curve, most int64) {
	var bad *perf.StepError
	switch err := steps.Validate(); {
	case errors.As(err, &bad):
		c.refuse(true, fmt.Sprintf("%s[%d]", key, bad.Step), "%s", bad.What)
		return
	case err != nil:
		c.refuse(true, key, "%s, like {%s: 1, rate: 66MB/s}", err.Error(), at)
		return
	}
	for i, s := range steps {
		place := fmt.Sprintf("%s[%d].", key, i)
		c.refuse(s.At > most, place+at, "is %d; expected at most %d", s.At, most)
		c.refuse(s.Rate > mostRate, place+"rate", "is %v; expected at most %v",
			yamlfile.Rate(s.Rate), yamlfile.Rate(mostRate))
	}
}

// tier holds what ram and disks have in common to the rules.
func (c *checks) tier(key string, t *perf.Tier) {
	c.refuse(c.Has(key+".capacity") && (t.Capacity <= 0 || t.Capacity > mostCapacity),
		key+".capacity", "is %v; expected more than 0 and at most %v", yamlfile.Bytes(t.Capacity),
		yamlfile.Bytes(mostCapacity))
	c.refuse(c.Has(key+".threads") && (t.Threads < 1 || t.Threads > mostThreads), key+".threads",
		"is %d; expected 1 to %d", t.Threads, mostThreads)
	c.curve(key+".read", "threads", t.Read, mostThreads)
	if c.Has(key + ".write") {
		c.curve(key+".write", "threads", t.Write, mostThreads)
	}
}

func (c *checks) rate(key string, rate int64) {
	c.refuse(c.Has(key) && (rate <= 0 || rate > mostRate), key,
		"is %v; expected more than 0 and at most %v", yamlfile.Rate(rate), yamlfile.Rate(mostRate))
}

// validate says everything that is wrong with a profile that was read.
func (t *text) validate(p *perf.Profile, places *yamlfile.Places) error {
	c := &checks{Places: places}
	switch {
	case !c.Has("version"):
		c.refuse(true, "", "has no version; expected version: %d", Version)
	default:
		c.refuse(t.Version != Version, "version", "is %d; expected %d", t.Version, Version)
	}
	c.refuse(p.Measured < 0, "measured", "is before 1970; expected the time of measuring, or nothing")
	if t.Ram != nil {
		c.tier("ram", &p.Ram)
	}
	for i := range p.Disks {
		c.disk(fmt.Sprintf("disks[%d]", i), &p.Disks[i], p.Disks[:i])
	}
	if t.Origin != nil {
		c.origin(&p.Origin)
	}
	if t.Peers != nil {
		c.curve("peers.link", "threads", p.Peers, mostThreads)
	}
	c.rate("decode", p.Decode)
	return errors.Join(c.wrong...)
}

func (c *checks) disk(key string, d *perf.Disk, before []perf.Disk) {
	c.refuse(!filepath.IsAbs(d.Name), key+".dir", "is %q; expected a path from the root", d.Name)
	for _, other := range before {
		c.refuse(filepath.Clean(other.Name) == filepath.Clean(d.Name), key+".dir",
			"is %q once more; expected each directory once", d.Name)
	}
	c.tier(key, &d.Tier)
	if c.Has(key + ".random") {
		c.curve(key+".random", "size", d.Random, sample.MaxSize)
	}
	if c.Has(key + ".alone") {
		c.curve(key+".alone", "size", d.Alone, sample.MaxSize)
		c.refuse(len(d.Random) == 0, key+".random", "is missing; expected it beside alone")
	}
	c.rate(key+".mixed", d.Mixed)
}

func (c *checks) origin(o *perf.Origin) {
	c.curve("origin.readers", "at", o.Readers, mostThreads)
	c.refuse(o.Latency > mostLatency, "origin.latency", "is %v; expected at most %v",
		yamlfile.Duration(o.Latency), yamlfile.Duration(mostLatency))
	c.refuse(c.Has("origin.concurrency") && (o.Concurrency < 1 || o.Concurrency > mostConcurrency),
		"origin.concurrency", "is %d; expected 1 to %d", o.Concurrency, mostConcurrency)
	c.refuse(c.Has("origin.size") && (o.Size < 1 || o.Size > sample.MaxSize), "origin.size",
		"is %v; expected the mean size of samples, 1 to %d bytes", yamlfile.Bytes(o.Size),
		int64(sample.MaxSize))
}
