package synth_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"belady/internal/core/dataset"
	"belady/internal/core/sample"
	"belady/internal/store/origin/origintest"
	"belady/internal/store/origin/synth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	origintest.Run(t, func(t *testing.T, _ map[string][]byte) origintest.Subject {
		o, err := synth.New(synth.Config{Name: "x", Samples: 200, SizeBytes: 900, Spread: 1,
			Seed: 5, Classes: 7})
		if err != nil {
			t.Fatal(err)
		}
		return origintest.Subject{Origin: o, Files: origintest.ComputedFiles(o)}
	})
}

func drawConfig(t *rapid.T) synth.Config {
	samples := rapid.Int64Range(1, sample.MaxCount).Draw(t, "samples")
	return synth.Config{
		Name:      "x",
		Samples:   samples,
		SizeBytes: rapid.Int64Range(0, 1<<20).Draw(t, "size"),
		Spread:    rapid.Float64Range(0, 1).Draw(t, "spread"),
		Seed:      rapid.Uint64().Draw(t, "seed"),
		Classes:   rapid.Int64Range(1, min(samples, 5000)).Draw(t, "classes"),
	}
}

// Bytes do not depend on how a read is cut, and any wrong byte is found.
func TestRangesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		o, err := synth.New(c)
		if err != nil {
			t.Fatal(err)
		}
		id := sample.ID(rapid.Int64Range(0, c.Samples-1).Draw(t, "id"))
		size := int64(o.Size(id))
		from := rapid.Int64Range(0, size).Draw(t, "from")
		n := rapid.Int64Range(0, min(size-from, 1000)).Draw(t, "n")
		whole := make([]byte, size)
		o.Fill(id, 0, whole)
		part := dataset.Part{Name: o.Object(id).Name, Offset: from}
		got := make([]byte, n)
		if err := o.Read(t.Context(), part, got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, whole[from:from+n]) {
			t.Fatalf("[%d, +%d) differs from the whole", from, n)
		}
		if err := o.Check(id, from, got); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			got[rapid.Int64Range(0, n-1).Draw(t, "flip")] ^= 1
			if o.Check(id, from, got) == nil {
				t.Fatal("a wrong byte was not found")
			}
		}
	})
}

// Names carry ids, sort as ids, and nothing else is a name.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		o, err := synth.New(c)
		if err != nil {
			t.Fatal(err)
		}
		id := sample.ID(rapid.Int64Range(0, c.Samples-1).Draw(t, "id"))
		name := o.Object(id).Name
		if got, ok := o.ID(name); !ok || got != id {
			t.Fatalf("ID(%q) = %d, %v; want %d", name, got, ok, id)
		}
		if int64(id)+1 < c.Samples && o.Object(id+1).Name <= name {
			t.Fatalf("the name of %d does not sort after %q", id+1, name)
		}
		b := []byte(name)
		i := rapid.IntRange(0, len(b)-1).Draw(t, "i")
		b[i] ^= rapid.ByteRange(1, 255).Draw(t, "bits")
		if got, ok := o.ID(string(b)); ok && o.Object(got).Name != string(b) {
			t.Fatalf("ID(%q) = %d, whose name is another", b, got)
		}
	})
}

func TestSizesAndBytesAreSpread(t *testing.T) {
	o, err := synth.New(synth.Config{Samples: 10000, SizeBytes: 1000, Spread: 0.2, Seed: 1,
		Classes: 1})
	if err != nil {
		t.Fatal(err)
	}
	var sum, low, high int64 = 0, 1 << 40, 0
	for id := range sample.ID(10000) {
		n := int64(o.Size(id))
		sum, low, high = sum+n, min(low, n), max(high, n)
	}
	if low < 800 || low > 810 || high < 1190 || high > 1200 || sum/10000 < 990 || sum/10000 > 1010 {
		t.Errorf("sizes %d … %d, mean %d; want 800 … 1200, mean 1000", low, high, sum/10000)
	}
	var count [256]int
	buf := make([]byte, 1<<20)
	o.Fill(3, 0, buf)
	for _, b := range buf {
		count[b]++
	}
	for b, n := range count {
		if n < 3700 || n > 4500 { // mean 4096, standard deviation 64
			t.Errorf("byte %#02x occurs %d times in %d", b, n, len(buf))
		}
	}
}

func TestParseURL(t *testing.T) {
	const text = "synth://images?samples=14200000&size=110KB&spread=0.2&seed=9&classes=100"
	c, err := parse(text)
	want := synth.Config{Name: "images", Samples: 14200000, SizeBytes: 110000, Spread: 0.2, Seed: 9,
		Classes: 100}
	if err != nil || c != want {
		t.Fatalf("got %+v, %v", c, err)
	}
	o, err := synth.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := parse(o.URL()); err != nil || again != c {
		t.Errorf("ParseURL(URL()) = %+v, %v; want %+v", again, err, c)
	}
	for bad, named := range map[string]string{
		"synth://x?sample=1":            "sample",
		"synth://x?samples=0":           "samples",
		"synth://x?samples=1&samples=2": "samples",
		"synth://x?size=big":            "size",
		"synth://x?spread=2":            "spread",
		"synth://x?classes=99999999":    "classes",
		"synth://x/y":                   "synth://NAME",
	} {
		if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("ParseURL(%q) returned %v, want %q named", bad, err, named)
		}
	}
}

func parse(s string) (synth.Config, error) {
	u, err := url.Parse(s)
	if err != nil {
		return synth.Config{}, err
	}
	return synth.ParseURL(u)
}

func FuzzParseURL(f *testing.F) {
	f.Add("synth://images?samples=14200000&size=110KB&spread=0.2&seed=9&classes=100")
	f.Add("synth://?size=1e9GiB&spread=NaN")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parse(s)
		if err != nil {
			return
		}
		if _, err := synth.New(c); err != nil {
			t.Errorf("New refuses what ParseURL(%q) gave: %v", s, err)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for name, size := range map[string]int64{"3KB": 3000, "110KB": 110_000} {
		b.Run(name, func(b *testing.B) {
			o, err := synth.New(synth.Config{Samples: 1000, SizeBytes: size, Classes: 10})
			if err != nil {
				b.Fatal(err)
			}
			part := dataset.Part{Name: o.Object(77).Name}
			dst := make([]byte, size)
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if err := o.Read(b.Context(), part, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
