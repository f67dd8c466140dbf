package prospect

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/perf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func question() Question {
	return Question{Order: order.Spec{Kind: order.Distributed, Samples: 5000, World: 4, Batch: 10},
		Epochs: 3, Nodes: 2, Size: "10KB", Has: Node{RAM: 32 << 20}}
}

// What nodes have counts where a question does not say.
func TestCapacitiesOfTheNode(t *testing.T) {
	has := question()
	says := question()
	says.RAM, says.Has = "32MiB", Node{RAM: 1 << 40, Ssd: 1 << 30}
	says.Ssd = "0B"
	var digests []string
	for _, q := range []Question{has, says} {
		r, err := q.Answer(t.Context(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, r.Digest)
	}
	if digests[0] != digests[1] {
		t.Error("the same memory, said otherwise, gives another plan")
	}
}

func TestADatasetAndSamples(t *testing.T) {
	q := question()
	q.Dataset = Dataset{Name: "d", Sizes: even{5000, 10_000}}
	if _, err := q.Answer(t.Context(), io.Discard); !errors.As(err, new(WrongError)) {
		t.Error(err)
	}
	q.Order.Samples = 0
	if _, err := q.Answer(t.Context(), io.Discard); !errors.As(err, new(WrongError)) {
		t.Error("a dataset's samples have another size:", err)
	}
	q.Size = ""
	if r, err := q.Answer(t.Context(), io.Discard); err != nil || r.Samples != 5000 {
		t.Errorf("%+v, %v", r, err)
	}
}

// What a reader might take for granted, and should not, is said.
func TestNotes(t *testing.T) {
	for _, c := range []struct {
		change func(*Question)
		want   string
	}{
		{func(q *Question) { q.Has.Ssd = 1 << 30 }, "are second copies"},
		{func(q *Question) { q.Has = Node{RAM: 200 << 30, Ssd: 1 << 30}; q.Size = "600MB" },
			"too large for its log"},
		{func(q *Question) { q.Order.Samples, q.Order.DropLast = 20, true }, "nothing is read"},
		{func(q *Question) { q.Epochs = 1000 }, "over 255 of 1000 epochs"},
		{func(q *Question) { q.Nodes = 1; q.Policy = "lru" }, "these are bounds"},
		{func(q *Question) { q.Rates = &perf.Profile{} }, "the network's time is not known"},
		{func(q *Question) {
			q.Rates = &perf.Profile{Origin: perf.Origin{Readers: perf.Curve{{At: 1, Rate: 1e8}}}}
			q.Size = "20KB"
		}, "may still be staged when"},
	} {
		q := question()
		if r, err := q.Answer(t.Context(), io.Discard); err != nil ||
			strings.Contains(strings.Join(r.Notes, "\n"), c.want) {
			t.Errorf("%q without a reason, %v", c.want, err)
		}
		c.change(&q)
		r, err := q.Answer(t.Context(), io.Discard)
		if err != nil || !strings.Contains(strings.Join(r.Notes, "\n"), c.want) {
			t.Errorf("no %q, %v: %+v", c.want, err, r)
		}
	}
}

// Counting ends when nobody waits for it.
func TestCountingStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := question()
	if _, err := q.Answer(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Counts do not depend on how epochs were shared out.
func TestCountingInParallel(t *testing.T) {
	q := question()
	for _, q.Epochs = range []int{1, 2, 3, 7, 300} {
		p := &prospect{epochs: q.Epochs, nodes: q.Nodes}
		p.Order, p.Sizes = q.Order, even{q.Order.Samples, 1}
		if err := p.count(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
		for i := range q.Order.Samples {
			first, all := int(p.first[i]), int(p.uses[0][i])+int(p.uses[1][i])
			if want := min(q.Epochs, maxHorizon); first != 1 || all != want {
				t.Fatalf("%d epochs: sample %d is read %d times, %d in the first", q.Epochs, i, all, first)
			}
		}
	}
}

func TestMeanLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		over := rapid.Int64Range(1, 255).Draw(rt, "over")
		var m mean
		total := int64(0)
		for _, n := range rapid.SliceOf(rapid.Int64Range(0, 1<<40)).Draw(rt, "numbers") {
			m.add(n, over)
			total += n
		}
		if m.of(over) != total/over {
			rt.Fatalf("%d over %d: %d", total, over, m.of(over))
		}
	})
}

// A tier, or a peer, that is slower than the origin is said to be.
func TestWhatIsSlowerThanTheOrigin(t *testing.T) {
	q := question()
	q.Has.Ssd = 32 << 20
	fast, slow := perf.Curve{{At: 1, Rate: 1e9}}, perf.Curve{{At: 1, Rate: 1e6}}
	ask := func(origin, disk, link perf.Curve) string {
		q.Rates = &perf.Profile{Ram: perf.Tier{Read: fast}, Peers: link,
			Disks:  []perf.Disk{{Tier: perf.Tier{Name: "/d", Read: disk}}},
			Origin: perf.Origin{Readers: origin}}
		r, err := q.Answer(t.Context(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(r.Notes, "\n")
	}
	const disk, link = "from the ssd than", "from a peer than"
	for _, c := range []struct {
		notes string
		want  [2]bool
	}{
		{ask(slow, fast, fast), [2]bool{false, false}},
		{ask(fast, slow, fast), [2]bool{true, false}},
		{ask(fast, fast, slow), [2]bool{false, true}},
	} {
		if strings.Contains(c.notes, disk) != c.want[0] || strings.Contains(c.notes, link) != c.want[1] {
			t.Errorf("want %v:\n%s", c.want, c.notes)
		}
	}
}

// Rates that were measured with samples of another size bound nothing where these are larger.
func TestOriginMeasuredWithOtherSizes(t *testing.T) {
	// 4 KB at 20 ms and 256 at once come at no more than 52 MB/s, whatever the pipe.
	rates := &perf.Profile{Origin: perf.Origin{Latency: 20e6, Size: 4096,
		Readers: perf.Curve{{At: 1, Rate: 204_800}, {At: 256, Rate: 50e6}}}}
	for _, c := range []struct {
		size     string
		estimate bool
	}{{"1KB", false}, {"4096B", false}, {"4400B", false}, {"1MB", true}} {
		q := question()
		q.Nodes, q.Rates, q.Size, q.Order.Samples, q.Has.RAM = 1, rates, c.size, 600, 256<<20
		r, err := q.Answer(t.Context(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := r.Print(&text); err != nil {
			t.Fatal(err)
		}
		says := text.String()
		if r.First.Estimate != c.estimate || strings.Contains(says, "first    ≈ ") != c.estimate ||
			strings.Contains(says, "first    ≥ ") == c.estimate ||
			strings.Contains(says, "an estimate, not a bound") != c.estimate {
			t.Errorf("%s: %+v\n%s", c.size, r.First, says)
		}
		if r.First.Time.Seconds() > 3.39 {
			t.Errorf("%s: a pipe of 200 MB/s takes 3.39 s, the plan says at least %v", c.size,
				r.First.Time)
		}
	}
}

// An epoch out of ram alone takes no time that anybody knows of, and is bound by nothing.
func TestNothingBinds(t *testing.T) {
	q := question()
	q.Nodes, q.Has.RAM = 1, 1<<30
	q.Rates = &perf.Profile{Origin: perf.Origin{Readers: perf.Curve{{At: 1, Rate: 1e8}}}}
	r, err := q.Answer(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	if r.Later.Binding != "" || !strings.Contains(text.String(), "epoch    takes no time that") {
		t.Errorf("%+v:\n%s", r.Later, text.String())
	}
}
