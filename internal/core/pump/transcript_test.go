package pump_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

var rewrite = flag.Bool("rewrite", false, "write what the transcripts should say")

// script is a pump driven by a transcript.
type script struct {
	plan *plan.Plan
	pump *pump.Pump
	runs map[uint32]pump.Run // fetches by handle
}

// TestTranscripts runs testdata/*.txt: commands, "----", and what came of them, up to an empty
// line. Run with -rewrite after a change, and read the difference.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := transcribe(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s would read:\n%s", file, got)
			}
		})
	}
}

func transcribe(t *testing.T, text string) string {
	s := &script{runs: map[uint32]pump.Run{}}
	var out []string
	for _, part := range strings.Split(strings.TrimSpace(text), "\n\n") {
		command, _, found := strings.Cut(part+"\n", "\n----\n")
		if !found {
			out = append(out, part) // a comment
			continue
		}
		out = append(out, strings.TrimSuffix(command+"\n----\n"+s.do(t, command), "\n"))
	}
	return strings.Join(out, "\n\n") + "\n"
}

// words splits a line into its words and its name=value settings.
func words(line string) (plain []string, set map[string]string) {
	set = map[string]string{}
	for _, word := range strings.Fields(line) {
		if name, value, ok := strings.Cut(word, "="); ok {
			set[name] = value
		} else {
			plain = append(plain, word)
		}
	}
	return plain, set
}

func number(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%q is no number", text)
	}
	return n
}

func numbers[T sample.ID | uint32](t *testing.T, text string) (list []T) {
	for _, word := range strings.Split(text, ",") {
		if word == "-" {
			list = append(list, T(job.NoNext))
			continue
		}
		list = append(list, T(number(t, word)))
	}
	return list
}

func (s *script) do(t *testing.T, command string) string {
	lines := strings.Split(command, "\n")
	plain, set := words(lines[0])
	switch plain[0] {
	case "plan":
		return s.makePlan(t, set, plain[len(plain)-1] == "carry")
	case "step":
		var events []pump.Event
		for _, line := range lines[1:] {
			events = append(events, s.event(t, line))
		}
		return s.step(pump.Instant(number(t, plain[1])), events)
	case "stats":
		v := s.pump.Stats()
		text := fmt.Sprintf("hits %d, shared %d, misses %d; staging %d, kept %d\n", v.Hits, v.Shared,
			v.Misses, v.StagingBytes, v.KeptBytes)
		if s.plan.Log > 0 {
			text += fmt.Sprintf("ssd hits %d, logged %d, unlogged %d\n", v.SsdHits, v.Logged,
				v.Unlogged)
		}
		return text
	}
	t.Fatalf("unknown command %q", lines[0])
	return ""
}

// makePlan: plan policy=P keep=N staging=N samples=N size=N [log=N] [carry]
func (s *script) makePlan(t *testing.T, set map[string]string, carry bool) string {
	size := make(sizes, number(t, set["samples"]))
	for i := range size {
		size[i] = uint32(number(t, set["size"]))
	}
	in := plan.Input{Sizes: size, Seed: 1, Policy: set["policy"], Carry: carry,
		Keep: number(t, set["keep"]), Staging: number(t, set["staging"])}
	if set["log"] != "" {
		in.Log = number(t, set["log"])
	}
	p, err := plan.Make(in)
	if err != nil {
		return err.Error() + "\n"
	}
	s.plan, s.pump = p, pump.New(p)
	var kept, logged []sample.ID
	for id := range size {
		if p.Rule.Fixed && p.InSet(sample.ID(id)) {
			kept = append(kept, sample.ID(id))
		}
		if p.InLog(sample.ID(id)) {
			logged = append(logged, sample.ID(id))
		}
	}
	text := "set " + list(kept) + "\n"
	if p.Log > 0 {
		text += "log " + list(logged) + "\n"
	}
	return text
}

func (s *script) event(t *testing.T, line string) pump.Event {
	plain, set := words(line)
	cursor := int32(0)
	if len(plain) > 1 {
		cursor = int32(number(t, plain[1]))
	}
	switch plain[0] {
	case "attach":
		e := pump.Event{Kind: pump.Attached, Cursor: cursor, N: int32(number(t, set["batch"]))}
		if set["reserve"] != "" {
			e.Reserve = number(t, set["reserve"])
		}
		e.Follows = plain[len(plain)-1] == "follows"
		return e
	case "order":
		w := &job.Window{Epoch: int(number(t, set["epoch"])), LastOfEpoch: true,
			LastOfJob: plain[len(plain)-1] == "last"}
		if set["ids"] != "" {
			w.IDs, w.Ends = numbers[sample.ID](t, set["ids"]), numbers[uint32](t, set["ends"])
		}
		if set["next"] != "" {
			w.Next = numbers[uint32](t, set["next"])
		}
		return pump.Event{Kind: pump.Ordered, Cursor: cursor, Window: w}
	case "credit":
		return pump.Event{Kind: pump.Credited, Cursor: cursor, N: int32(number(t, plain[2]))}
	case "staged":
		e := pump.Event{Kind: pump.Staged, Run: s.runs[uint32(cursor)]}
		for name, mask := range map[string]*pump.Mask{"failed": &e.Failed, "unlogged": &e.Unlogged} {
			if set[name] != "" {
				for _, i := range numbers[uint32](t, set[name]) {
					mask.Set(int(i))
				}
			}
		}
		return e
	case "logged", "unlogged":
		e := pump.Event{Kind: pump.Logged, Set: make([]uint64, 1)}
		if plain[0] == "unlogged" {
			e.Kind = pump.Unlogged
		}
		for _, id := range numbers[sample.ID](t, set["ids"]) {
			e.Set[0] |= 1 << id
		}
		return e
	case "release":
		return pump.Event{Kind: pump.Released, Cursor: cursor, Seq: uint64(number(t, plain[2]))}
	case "detach":
		return pump.Event{Kind: pump.Detached, Cursor: cursor}
	case "replan":
		in := s.plan.Input
		in.Keep, in.Staging = number(t, set["keep"]), number(t, set["staging"])
		p, err := plan.Make(in)
		if err != nil {
			t.Fatal(err)
		}
		s.plan = p
		return pump.Event{Kind: pump.Replanned, Plan: p}
	}
	t.Fatalf("unknown event %q", line)
	return pump.Event{}
}

func (s *script) step(now pump.Instant, events []pump.Event) string {
	var b strings.Builder
	for _, m := range s.pump.Step(now, events, nil) {
		switch m.Kind {
		case pump.Fetch:
			s.runs[m.Run.Handle] = m.Run
			fmt.Fprintf(&b, "fetch run %d of cursor %d: %s; slots %s", m.Run.Handle, m.Cursor,
				list(s.masked(&m, &m.Mask)), list(s.masked(&m, &m.Slots)))
			if s.plan.Log > 0 {
				fmt.Fprintf(&b, "; ssd %s; log %s", list(s.masked(&m, &m.Ssd)),
					list(s.masked(&m, &m.Log)))
			}
			b.WriteByte('\n')
		case pump.Drop:
			fmt.Fprintf(&b, "drop %s\n", list(s.masked(&m, &m.Mask)))
		case pump.Evict:
			for _, id := range m.Evicted() {
				fmt.Fprintf(&b, "evict %d\n", id)
			}
		case pump.Lease:
			fmt.Fprintf(&b, "lease %d to cursor %d: epoch %d, batch %d: %s", m.Seq, m.Cursor,
				m.Epoch, m.Batch, list(s.pump.IDs(m.Cursor, m.Run.First, m.Run.Count)))
			for _, word := range []struct {
				is   bool
				text string
			}{{m.Cause != pump.None, "waited for " + m.Cause.String()}, {m.Last, "last"},
				{m.Failed, "failed"}} {
				if word.is {
					b.WriteString("; " + word.text)
				}
			}
			b.WriteByte('\n')
		case pump.Refuse:
			fmt.Fprintf(&b, "refuse batch %d of epoch %d to cursor %d: %d bytes\n", m.Batch,
				m.Epoch, m.Cursor, m.Bytes)
		case pump.Need:
			fmt.Fprintf(&b, "need window %d of cursor %d\n", m.Epoch, m.Cursor)
		default:
			fmt.Fprintf(&b, "%s cursor %d\n", m.Kind, m.Cursor)
		}
	}
	if s.pump.More() {
		b.WriteString("more\n")
	}
	return b.String()
}

func (s *script) masked(m *pump.Move, mask *pump.Mask) (some []sample.ID) {
	for i, id := range s.pump.IDs(m.Cursor, m.Run.First, m.Run.Count) {
		if mask.Has(i) {
			some = append(some, id)
		}
	}
	return some
}

func list(ids []sample.ID) string {
	if len(ids) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint(ids), "[]")
}
