package yamlfile_test

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/yamlfile"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"4GiB": 4 << 30, "4 GiB": 4 << 30, "4GB": 4e9, "1.5MiB": 3 << 19, "4096": 4096, "0": 0,
	} {
		if got, err := yamlfile.ParseBytes(text); err != nil || got != want {
			t.Errorf("yamlfile.ParseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	refused := []string{"", "GiB", "1,5GiB", "-1", "4XiB", "9EiB", "1e3", "1GiB/s", "99999999PB"}
	for _, text := range refused {
		if got, err := yamlfile.ParseBytes(text); err == nil {
			t.Errorf("yamlfile.ParseBytes(%q) = %d, want a refusal", text, got)
		}
	}
}

// A whole number of any unit is read exactly: sizes are compared and added up.
func TestParseBytesIsExact(t *testing.T) {
	units := map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"B", "KiB", "MiB", "GiB", "TiB"}).Draw(t, "unit")
		n := rapid.Int64Range(0, (1<<63-1)/units[unit]).Draw(t, "n")
		text := rapid.StringMatching("[ ]?").Draw(t, "space") + unit
		got, err := yamlfile.ParseBytes(strconv.FormatInt(n, 10) + text)
		if err != nil || got != n*units[unit] {
			t.Fatalf("yamlfile.ParseBytes(%s%s) = %d, %v", strconv.FormatInt(n, 10), text, got, err)
		}
	})
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]int64{"66MB/s": 66e6, "1.5 GiB/s": 3 << 29, "10B/s": 10} {
		if got, err := yamlfile.ParseRate(text); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "/s", "66MB", "66MB/h", "-1MB/s", "66MB/s/s", "1,5GB/s"} {
		if got, err := yamlfile.ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %d, want a refusal", text, got)
		}
	}
}

type cluster struct {
	Title string `yaml:"title"`
	Nodes struct {
		Count int    `yaml:"count"`
		Tiers []tier `yaml:"tiers"`
	} `yaml:"nodes"`
	Share float64 `yaml:"share"`
}

type tier struct {
	Capacity yamlfile.Bytes    `yaml:"capacity"`
	Read     yamlfile.Rate     `yaml:"read"`
	Latency  yamlfile.Duration `yaml:"latency"`
}

const sound = `
title: small
nodes:
  count: 4
  tiers:
    - {capacity: 1GiB, read: 2GB/s}
    - capacity: 10GB
      read: 66MB/s
      latency: 20ms
`

func TestDecode(t *testing.T) {
	var c cluster
	places, err := yamlfile.Decode("a.yaml", []byte(sound), &c)
	if err != nil {
		t.Fatal(err)
	}
	slow := c.Nodes.Tiers[1]
	if c.Nodes.Count != 4 || slow.Capacity != 10e9 || slow.Read != 66e6 || slow.Latency != 20e6 {
		t.Errorf("%+v", c)
	}
	for key, says := range map[string]string{
		"nodes.count":             "a.yaml:4: nodes.count is bad",
		"nodes.tiers[0].capacity": "a.yaml:6: nodes.tiers[0].capacity is bad",
		"nodes.tiers[1].latency":  "a.yaml:9: nodes.tiers[1].latency is bad",
		"nodes.tiers[0].latency":  "a.yaml:6: ", // not there: the tier's
		"nodes.tiers[7].read":     "a.yaml:6: ",
		"nodes.compute":           "a.yaml:4: ",
		"title":                   "a.yaml:2: ",
		"":                        "a.yaml:2: is bad",
	} {
		if err := places.Wrong(key, "is %s", "bad"); !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v, want %s", key, err, says)
		}
	}
	if !places.Has("nodes.tiers[1].latency") || places.Has("nodes.tiers[0].latency") ||
		places.Has("share") {
		t.Error("Has does not say what is in the file")
	}
}

func TestDecodeRefusals(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"unknown key", "title: a\ntitel: b\n",
			"f:2: there is no setting titel; expected title, nodes or share"},
		{"unknown key in a list", "nodes:\n  tiers:\n  - {capacity: 1B}\n  - {write: 1B/s}\n",
			"f:4: there is no setting write; expected capacity, read or latency"},
		{"twice", "title: a\ntitle: b\n", "f:2: "},
		{"size", "nodes:\n  tiers:\n  - capacity: 1GB/s\n", `f:3: size "1GB/s" is not`},
		{"rate", "nodes:\n  tiers: [{read: 66MB}]\n", `f:2: rate "66MB" is not bytes a second`},
		{"time", "nodes: {tiers: [{latency: 20}]}\n", `f:1: "20" is not a time; write it like 20ms`},
		{"negative time", "nodes: {tiers: [{latency: -2ms}]}\n", `f:1: "-2ms" is not a time`},
		{"whole number", "nodes: {count: 4.5}\n", "f:1: `4.5` stands where a whole number must"},
		{"number", "share: many\n", "f:1: `many` stands where a number must"},
		{"list", "nodes: {tiers: 5}\n", "f:1: `5` stands where a list must"},
		{"second document", "title: a\n---\ntitle: b\n", "f:2: only one YAML document"},
		{"not YAML", "title: {\n", "f:1: it is not YAML: "},
		{"two problems", "titel: a\nshare: b\n", "f:2: `b` stands where a number must"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := yamlfile.Decode("f", []byte(c.text), new(cluster))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want it to say %q", err, c.says)
			}
			for _, leak := range []string{"yaml:", "unmarshal", "yamlfile"} {
				if strings.Contains(err.Error(), leak) {
					t.Errorf("%v: it speaks of %s", err, leak)
				}
			}
		})
	}
}

func TestDecodeNothing(t *testing.T) {
	c := cluster{Title: "before"}
	places, err := yamlfile.Decode("f", []byte("# a comment\n"), &c)
	if err != nil || c.Title != "before" {
		t.Fatalf("%+v: %v", c, err)
	}
	if err := places.Wrong("title", "is missing"); err.Error() != "f: title is missing" {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(sound))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("nodes: &n {count: 1}\nshare: *n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c cluster
		places, err := yamlfile.Decode("f", text, &c)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("an error without a word")
			}
			return
		}
		for i, tier := range c.Nodes.Tiers {
			_ = places.Wrong("nodes.tiers["+strconv.Itoa(i)+"].capacity", "").Error()
			if tier.Capacity < 0 || tier.Read < 0 || tier.Latency < 0 {
				t.Fatalf("accepted a negative number: %+v", tier)
			}
		}
	})
}
