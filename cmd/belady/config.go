package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"belady/internal/store/tier"
	"belady/internal/yamlfile"
)

// config is what `belady serve` can be told. Every setting can be given as a flag (--ram), in the
// environment (BELADY_RAM) or in the YAML file that --config names (ram:); the first of these that
// speaks wins, and without any the default holds.
type config struct {
	// Dir and Socket are as in environment: every verb heeds them.
	Dir    string `yaml:"dir"`
	Socket string `yaml:"socket"`
	// RAM is all the memory for samples: those kept from epoch to epoch and those on their way.
	RAM byteSize `yaml:"ram"`
	// Staging is the part of RAM for batches on their way to consumers. Each rank needs two
	// batches of it; the rest lets fetches run ahead. Zero is a share of RAM: an eighth, at least
	// 64 MiB, at most 1 GiB, never more than half.
	Staging byteSize `yaml:"staging"`
	// Trace is a folder that records every event and move, a file for each dataset, for
	// `belady sim --replay`; empty records none.
	Trace string `yaml:"trace"`
	// Profile is a file that says what this node's sources give: docs/profile.md. Empty: that in
	// Dir, if there is one and it was written by hand or measured less than a day ago.
	Profile string `yaml:"profile"`
	// IdleExitSeconds stops the daemon when no client has been connected for so long; 0 never.
	IdleExitSeconds int `yaml:"idle_exit_seconds"`

	Origin originConfig `yaml:"origin"`
	Ssd    ssdConfig    `yaml:"ssd"`
}

// originConfig bounds what the daemon asks of each origin.
type originConfig struct {
	// Concurrency is the most requests in flight; as many are used as bring more bytes. The rate
	// it can reach is concurrency × bytes a request ÷ latency: 256 × 110 KB ÷ 100 ms = 281 MB/s.
	Concurrency int `yaml:"concurrency"`
	// DeadlineSeconds is how long one read may take, retries included, before its samples fail.
	DeadlineSeconds int `yaml:"deadline_seconds"`
}

// ssdConfig says where samples may be kept on ssd, and how.
type ssdConfig struct {
	// Dirs are folders, best each on a device of its own, written DIR or DIR:BYTES. Without any,
	// nothing is kept on ssd.
	Dirs []ssdDir `yaml:"dirs"`
	// Layout is static, carry or auto: docs/format/log.md.
	Layout string `yaml:"layout"`
	// Free is what stays free of each file system. Zero: a twentieth of it, 16 GiB at most.
	Free byteSize `yaml:"free"`
	// Wear is the most that carrying may write to each folder in a day. Zero: what the folder may
	// hold.
	Wear byteSize `yaml:"wear"`
}

// ssdDir is a folder for samples on ssd and the most it may hold; zero is all but what stays free.
type ssdDir struct {
	Path  string
	Bytes byteSize
}

// leastSsd is less than a log can be made of.
const leastSsd = 16 << 20

// parse reads DIR or DIR:BYTES. A colon that nothing like a size follows is a part of the name; a
// size that is misspelt must not be, as the folder would then have all of the disk.
func (d *ssdDir) parse(text string) error {
	*d = ssdDir{Path: text}
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		size := text[i+1:]
		switch err := d.Bytes.parse(size); {
		case err == nil:
			d.Path = text[:i]
			if d.Bytes < leastSsd {
				return fmt.Errorf("%q gives %s %d bytes, but a log on ssd needs at least %s: write "+
					"the size like %s:100GB", text, d.Path, int64(d.Bytes), byteSize(leastSsd), d.Path)
			}
		case strings.IndexAny(size, "0123456789-+.") == 0 && !strings.Contains(size, "/"):
			return fmt.Errorf("%q: %w; or end the name of a folder with / if it has that colon",
				text, err)
		}
	}
	if d.Path == "" {
		return fmt.Errorf("%q names no folder; write DIR or DIR:BYTES", text)
	}
	return nil
}

// UnmarshalYAML reads a folder as the flag does.
func (d *ssdDir) UnmarshalYAML(node *yaml.Node) error {
	if err := d.parse(node.Value); err != nil {
		return yamlfile.At(node, err)
	}
	return nil
}

func (c *ssdConfig) parseDirs(texts []string) error {
	c.Dirs = make([]ssdDir, len(texts))
	for i, text := range texts {
		if err := c.Dirs[i].parse(text); err != nil {
			return err
		}
	}
	return nil
}

func configDefaults() config {
	return config{
		RAM:    1 << 30,
		Origin: originConfig{Concurrency: 256, DeadlineSeconds: 30},
		Ssd:    ssdConfig{Layout: string(tier.Auto)},
	}
}

// validate refuses what could only fail later and less clearly.
func (c config) validate() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(c.RAM < 16<<20, "ram is %s, but must be at least 16MiB", c.RAM)
	refuse(c.Staging != 0 && c.Staging < 1<<20,
		"staging is %s, but batches need at least 1MiB", c.Staging)
	refuse(c.Staging > c.RAM, "staging (%s) is a part of ram (%s) and cannot be more",
		c.Staging, c.RAM)
	refuse(c.IdleExitSeconds < 0, "idle exit is %d s, but cannot be negative", c.IdleExitSeconds)
	refuse(c.Origin.Concurrency < 1 || c.Origin.Concurrency > 4096,
		"origin concurrency is %d, but must be 1 to 4096", c.Origin.Concurrency)
	refuse(c.Origin.DeadlineSeconds < 1 || c.Origin.DeadlineSeconds > 3600,
		"origin deadline is %d s, but must be 1 to 3600", c.Origin.DeadlineSeconds)
	refuse(!slices.Contains([]tier.Layout{tier.Auto, tier.Static, tier.Carry},
		tier.Layout(c.Ssd.Layout)), "ssd layout is %q, but must be auto, static or carry", c.Ssd.Layout)
	for i, d := range c.Ssd.Dirs {
		for _, other := range c.Ssd.Dirs[:i] {
			a, b := filepath.Clean(d.Path), filepath.Clean(other.Path)
			refuse(a == b, "ssd folder %s is named twice", d.Path)
			refuse(a != b && (within(a, b) || within(b, a)),
				"of the ssd folders %s and %s one lies in the other: each needs one of its own", b, a)
		}
	}
	return errors.Join(wrong...)
}

// within tells whether a path lies below another one.
func within(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// A setting is one key of the configuration under all its names: the flag is its name, the
// environment variable is BELADY_ and the name in capitals.
type setting struct {
	name  string
	usage string
	list  bool // the flag may be given several times, the variable separates by commas
	set   func(c *config, texts []string) error
}

// settings are those of `belady serve` that flags and the environment can give. Beside the fields
// of config this is the only list of them.
var settings = []setting{
	{"ram", "memory for samples, kept and on their way, such as 4GiB (default 1GiB)", false,
		func(c *config, t []string) error { return c.RAM.parse(t[0]) }},
	{"staging", "the part of --ram for batches on their way to consumers (default an eighth of it, " +
		"64MiB to 1GiB)", false,
		func(c *config, t []string) error { return c.Staging.parse(t[0]) }},
	{"trace", "folder to record every event and move in (default none)", false,
		func(c *config, t []string) error { c.Trace = t[0]; return nil }},
	{"profile", "file that says what this node's disks give (default none: the one that 'belady " +
		"bench tiers' wrote to --dir within a day)", false,
		func(c *config, t []string) error { c.Profile = t[0]; return nil }},
	{"idle-exit-seconds", "stop when no client has been connected for so long " +
		"(default 0: never)", false,
		func(c *config, t []string) error { return parseCount(&c.IdleExitSeconds, t[0]) }},
	{"origin-concurrency", "most requests in flight to one origin (default 256)", false,
		func(c *config, t []string) error { return parseCount(&c.Origin.Concurrency, t[0]) }},
	{"origin-deadline-seconds", "how long one read from an origin may take, retries included " +
		"(default 30)", false,
		func(c *config, t []string) error { return parseCount(&c.Origin.DeadlineSeconds, t[0]) }},
	{"ssd", "folder to keep samples in on ssd, and the most it may hold, as DIR or DIR:100GB; " +
		"may be given again for another device (default none)", true,
		func(c *config, t []string) error { return c.Ssd.parseDirs(t) }},
	{"ssd-layout", "how samples lie on ssd: static, carry or auto (default auto)", false,
		func(c *config, t []string) error { c.Ssd.Layout = t[0]; return nil }},
	{"ssd-free", "what stays free of an ssd's file system (default 5 %, 16GiB at most)", false,
		func(c *config, t []string) error { return c.Ssd.Free.parse(t[0]) }},
	{"ssd-wear", "the most that carrying samples along may write to an ssd in a day " +
		"(default what it may hold)", false,
		func(c *config, t []string) error { return c.Ssd.Wear.parse(t[0]) }},
}

func (s setting) variable() string {
	return "BELADY_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// addConfigFlags gives a verb a flag for every setting.
func addConfigFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, s := range settings {
		if usage := s.usage + " (or $" + s.variable() + ")"; s.list {
			flags.StringArray(s.name, nil, usage)
		} else {
			flags.String(s.name, "", usage)
		}
	}
}

// given is what a verb's flag says of a setting, else the environment, and which of them.
func (s setting) given(cmd *cobra.Command, getenv func(string) string) ([]string, string) {
	f := cmd.Flags().Lookup(s.name)
	switch {
	case f.Changed && s.list:
		texts, _ := cmd.Flags().GetStringArray(s.name) // it is one
		return texts, "--" + s.name
	case f.Changed:
		return []string{f.Value.String()}, "--" + s.name
	case s.list:
		return strings.Split(getenv(s.variable()), ","), "$" + s.variable()
	}
	return []string{getenv(s.variable())}, "$" + s.variable()
}

// override puts a verb's flags over the environment over what c, the file, says, and validates the
// result.
func (c config) override(cmd *cobra.Command, getenv func(string) string) (config, error) {
	for _, s := range settings {
		texts, from := s.given(cmd, getenv)
		if len(texts) == 0 || texts[0] == "" {
			continue
		}
		if err := s.set(&c, texts); err != nil {
			return config{}, usagef("%s: %w", from, err)
		}
	}
	if err := c.validate(); err != nil {
		return config{}, usageError{err}
	}
	return c, nil
}

func (c *config) readFile(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return c.decode(text)
}

// decode is strict: a key that is misspelt would otherwise be a setting silently left out.
func (c *config) decode(text []byte) error {
	_, err := yamlfile.Decode("", text, c)
	return err
}

// byteSize is a number of bytes that people write as "4GiB".
type byteSize int64

func (b byteSize) String() string { return humanize.IBytes(uint64(b)) }

func (b *byteSize) parse(text string) error {
	n, err := parseBytes(text)
	if err == nil {
		*b = byteSize(n)
	}
	return err
}

// UnmarshalYAML reads a size and names the line of one it cannot read.
func (b *byteSize) UnmarshalYAML(node *yaml.Node) error {
	if err := b.parse(node.Value); err != nil {
		return yamlfile.At(node, err)
	}
	return nil
}

// parseBytes reads the size of a flag.
func parseBytes(text string) (int64, error) { return yamlfile.ParseBytes(text) }

func parseCount(count *int, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", text)
	}
	*count = n
	return nil
}
