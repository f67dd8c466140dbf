package torch_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"belady/internal/core/order/torch"
	"belady/internal/core/sample"
)

// TestEngineReference pins the engine to the published MT19937 check value: the 10,000th word of
// the default-seeded std::mt19937.
func TestEngineReference(t *testing.T) {
	g := torch.Seeded(5489)
	g.Skip(9999)
	if got := g.Uint32(); got != 4123659995 {
		t.Fatalf("10000th word is %d, want 4123659995", got)
	}
}

func TestSeedsAgreeModulo32Bits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Int64().Draw(t, "seed")
		a, b := torch.Seeded(seed), torch.Seeded(int64(uint32(seed)))
		if a != b {
			t.Fatalf("seed %d and its low 32 bits give different generators", seed)
		}
	})
}

// TestBulkMatchesSingle: Fill and Skip move the stream exactly as single draws do.
func TestBulkMatchesSingle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Int64().Draw(t, "seed")
		bulk, single := torch.Seeded(seed), torch.Seeded(seed)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			n := rapid.IntRange(0, 1500).Draw(t, "n")
			if rapid.Bool().Draw(t, "skip") {
				bulk.Skip(uint64(n))
				for range n {
					single.Uint32()
				}
				continue
			}
			words := make([]uint32, n)
			bulk.Fill(words)
			for i, got := range words {
				if want := single.Uint32(); got != want {
					t.Fatalf("word %d of %d is %d, want %d", i, n, got, want)
				}
			}
		}
		if bulk.Uint64() != single.Uint64() {
			t.Fatal("streams differ afterwards")
		}
	})
}

// export writes a generator that has drawn from its stream as get_state() would.
func export(words []uint32, left int32, next uint64) []byte {
	b := make([]byte, torch.StateSize)
	binary.LittleEndian.PutUint32(b[8:], uint32(left))
	binary.LittleEndian.PutUint32(b[12:], 1)
	binary.LittleEndian.PutUint64(b[16:], next)
	for i, w := range words {
		binary.LittleEndian.PutUint64(b[24+8*i:], uint64(w))
	}
	return b
}

// seedWords is init_genrand, written a second time so that Restore is not tested against Seeded's
// own memory.
func seedWords(seed uint32) []uint32 {
	s := make([]uint32, 624)
	s[0] = seed
	for j := 1; j < 624; j++ {
		s[j] = 1812433253*(s[j-1]^(s[j-1]>>30)) + uint32(j)
	}
	return s
}

func TestRestoreFresh(t *testing.T) {
	for _, next := range []uint64{0, 624} {
		g, err := torch.Restore(export(seedWords(42), 1, next))
		if err != nil {
			t.Fatal(err)
		}
		if g != torch.Seeded(42) {
			t.Fatalf("a fresh state with next=%d is not manual_seed(42)", next)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	good := export(seedWords(1), 100, 525)
	if _, err := torch.Restore(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":      func(b []byte) []byte { return b[:len(b)-1] },
		"long":       func(b []byte) []byte { return append(b, 0) },
		"left zero":  func(b []byte) []byte { b[8] = 0; return b },
		"left high":  func(b []byte) []byte { b[10] = 1; return b },
		"next":       func(b []byte) []byte { b[16]++; return b },
		"not seeded": func(b []byte) []byte { b[12] = 0; return b },
		"wide word":  func(b []byte) []byte { b[24+8*7+4] = 1; return b },
	} {
		if _, err := torch.Restore(spoil(slices.Clone(good))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzRestore: any state is refused or gives a generator that can be drawn from. The input is what
// Restore decides on (the header, one word, the length), not the 5056 bytes: those the fuzzer would
// spend its time minimizing.
func FuzzRestore(f *testing.F) {
	f.Add(int32(1), uint32(1), uint64(0), uint16(0), uint64(5), uint16(torch.StateSize))
	f.Add(int32(624), uint32(1), uint64(1), uint16(1), uint64(5), uint16(torch.StateSize))
	f.Add(int32(100), uint32(1), uint64(525), uint16(525), uint64(5), uint16(torch.StateSize))
	f.Add(int32(-1), uint32(0), uint64(700), uint16(9), uint64(1)<<32, uint16(11))
	f.Fuzz(func(
		t *testing.T, left int32, seeded uint32, next uint64, at uint16, word uint64, size uint16,
	) {
		state := export(seedWords(7), left, next)
		binary.LittleEndian.PutUint32(state[12:], seeded)
		binary.LittleEndian.PutUint64(state[24+8*(at%624):], word)
		g, err := torch.Restore(state[:min(int(size), len(state))])
		if err != nil {
			return
		}
		if left < 1 || left > 624 || word > 1<<32-1 || seeded != 1 {
			t.Fatalf("left %d, seeded %d, word %#x were accepted", left, seeded, word)
		}
		one := g
		if left > 1 {
			// The first word drawn must be the tempered word[next] of the state itself.
			y := uint32(binary.LittleEndian.Uint64(state[24+8*next:]))
			y ^= y >> 11
			y ^= y << 7 & 0x9d2c5680
			y ^= y << 15 & 0xefc60000
			y ^= y >> 18
			if got := one.Uint32(); got != y {
				t.Fatalf("first word %d, want %d", got, y)
			}
		}
		two := g
		two.Skip(2000)
		for range 2000 {
			g.Uint32()
		}
		if g.Uint32() != two.Uint32() {
			t.Fatal("drawing and skipping disagree")
		}
	})
}

// TestRandperm compares both branches with the rule as PyTorch's source states it, one draw at a
// time, with the threshold low enough to reach, and checks the count of words.
func TestRandperm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3000).Draw(t, "n")
		seed := rapid.Int64().Draw(t, "seed")
		rules := torch.Rules{PermWideFrom: uint64(rapid.IntRange(0, 3000).Draw(t, "wide"))}
		g, ref := torch.Seeded(seed), torch.Seeded(seed)
		got := make([]sample.ID, n)
		torch.Randperm(&g, rules, got)

		want := make([]sample.ID, n)
		if uint64(n) >= rules.PermWideFrom {
			for i := range want {
				z := ref.Uint64() % uint64(i+1)
				want[i] = sample.ID(i)
				want[i] = want[z]
				want[z] = sample.ID(i)
			}
		} else {
			for i := range want {
				want[i] = sample.ID(i)
			}
			for i := 0; i < n-1; i++ {
				z := int(ref.Uint32() % uint32(n-i))
				want[i], want[i+z] = want[i+z], want[i]
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
		counted := torch.Seeded(seed)
		counted.Skip(torch.PermWords(rules, n))
		if next := ref.Uint32(); g.Uint32() != next || counted.Uint32() != next {
			t.Fatal("the stream is not where the count of words says")
		}
		slices.Sort(got)
		for i, id := range got {
			if int(id) != i {
				t.Fatalf("not a permutation: %d at %d", id, i)
			}
		}
	})
}

func TestRandintRules(t *testing.T) {
	for _, c := range []struct {
		version string
		n       int
		wide    bool
	}{
		{"1.13", 1<<32 - 1, false},
		{"2.6", 1<<32 - 1, false},
		{"2.14", 1<<28 - 1, false},
		{"2.14", 1 << 28, true},
	} {
		rules, err := torch.RulesOf(c.version)
		if err != nil {
			t.Fatal(err)
		}
		g, ref := torch.Seeded(3), torch.Seeded(3)
		got := make([]sample.ID, 40)
		torch.Randint(&g, rules, c.n, got)
		for i, id := range got {
			want := uint64(0)
			if c.wide {
				want = ref.Uint64() % uint64(c.n)
			} else {
				want = uint64(ref.Uint32()) % uint64(c.n)
			}
			if uint64(id) != want {
				t.Fatalf("%s n=%d: draw %d is %d, want %d", c.version, c.n, i, id, want)
			}
		}
		counted := torch.Seeded(3)
		counted.Skip(torch.IntWords(rules, c.n, len(got)))
		if counted.Uint32() != g.Uint32() {
			t.Fatalf("%s n=%d: wrong count of words", c.version, c.n)
		}
	}
}

func TestRulesOf(t *testing.T) {
	of := func(v string) torch.Rules {
		r, err := torch.RulesOf(v)
		if err != nil {
			t.Errorf("%q: %v", v, err)
		}
		return r
	}
	if of("") != of(torch.Newest) || of("2.14.1+debian") != of("2.14") || of("3.0") != of("2.14") {
		t.Error("versions from 2.14 on do not share its rules")
	}
	if of("2.6.0") != of("2.13.9") || of("2.6") == of("2.14") || of("2.6") == of("2.5.1+cu124") {
		t.Error("2.6 to 2.13 must share rules of their own")
	}
	if of("1.13.0a0") != of("2.5") {
		t.Error("1.13 to 2.5 must share rules")
	}
	for _, bad := range []string{"1.12", "0.4", "2", "two.six", "-1.2", ".", "2.x"} {
		if _, err := torch.RulesOf(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestMultinomial(t *testing.T) {
	for _, bad := range [][]float64{
		nil, {}, {0}, {0, 0}, {1, -1}, {1, math.NaN()}, {math.Inf(1)}, {1e308, 1e308},
	} {
		if _, err := torch.Accumulate(bad); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 50).Draw(t, "weights")
		cum, err := torch.Accumulate(weights)
		if err != nil {
			return // all zero
		}
		g, ref := torch.Seeded(1), torch.Seeded(1)
		got := make([]sample.ID, 100)
		torch.Multinomial(&g, cum, got)
		for i, id := range got {
			u := ref.Float64()
			if cum[id] < u || id > 0 && cum[id-1] >= u {
				t.Fatalf("draw %d: %v fell on %d of %v", i, u, id, cum)
			}
		}
	})
}
