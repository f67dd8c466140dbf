package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belady/internal/core/order"
	"belady/internal/core/receipt"
)

// TestJobs: jobs are listed and proved while a daemon runs and after it has gone; a record that was
// tampered with is found out.
func TestJobs(t *testing.T) {
	n := startNode(t, "64MiB")
	n.does("job", "ls")
	n.does("dataset", "add", "d", "synth://x?samples=100&size=1KB")
	for rank := range 2 {
		n.does("read", "d", "--job", "run 1", "--batch", "8", "--epochs", "3", "--seed", "5",
			"--world", "2", "--rank", fmt.Sprint(rank))
	}
	n.does("read", "d", "--job", "run 1", "--batch", "8", "--epochs", "3", "--seed", "5",
		"--world", "3", "--rank", "2")
	var out string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		code, said, errs := n.belady("job", "verify", "run%201")
		if code != exitOK {
			t.Fatalf("code %d: %s%s", code, said, errs)
		}
		if out = said; strings.Contains(out, "epoch 2: ok so far: 1 of 3 ranks, 5 batches; "+
			"padding: sample ") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it is not recorded: %s", out)
		}
	}
	n.stop()
	for _, want := range []string{"epoch 0: ok: 2 of 2 ranks, 14 batches; padding: none\n",
		"epoch 2: ok: 2 of 2", " (rank 2)\n", "only the ranks counted above are proven"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	if _, listed, _ := n.belady("job", "ls"); !strings.Contains(listed, "run%201") ||
		!strings.Contains(listed, "torch-distributed") {
		t.Errorf("listed is %s", listed)
	}
	n.checkJSON()
	n.refuses(1, `no record of such a job.*belady job ls`, "job", "verify", "nobody")
	n.refuses(1, `nothing is recorded of epoch 9`, "job", "verify", "run%201", "--epoch", "9")
	n.refuses(2, `--epoch is -2`, "job", "verify", "run%201", "--epoch", "-2")
	n.refuses(2, `accepts 1 arg`, "job", "verify")
	n.refuses(2, `no verb "prove"`, "job", "prove")
	n.tamper()
}

// checkJSON reads what both verbs print for programs.
func (n *node) checkJSON() {
	n.t.Helper()
	var jobs []jobSummary
	_, out, _ := n.belady("job", "ls", "--json")
	if err := json.Unmarshal([]byte(out), &jobs); err != nil || len(jobs) != 1 ||
		jobs[0].ID != "run%201" || jobs[0].Job != "run 1" || jobs[0].Epochs != 3 ||
		jobs[0].World != 3 {
		n.t.Errorf("%v: %s", err, out)
	}
	var v verification
	_, out, _ = n.belady("job", "verify", "run%201", "--epoch", "1", "--json")
	if err := json.Unmarshal([]byte(out), &v); err != nil || !v.OK || v.Complete ||
		len(v.Epochs) != 2 || len(v.Epochs[0].Ranks) != 2 || v.Epochs[0].Ranks[0].Sent != 7 ||
		len(v.Epochs[0].Padding) != 0 || !strings.Contains(out, `"padding": []`) {
		n.t.Errorf("%v: %s", err, out)
	}
	// 100 samples over 3 ranks: 102 are read, of which rank 2's last is rank 1's first once more.
	o, err := order.New(order.Spec{Kind: order.Distributed, Samples: 100, Seed: 5, World: 3,
		Batch: 8})
	if err != nil {
		n.t.Fatal(err)
	}
	first, err := o.Epoch(1, 1, 0, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	if got := v.Epochs[1].Padding; len(got) != 1 ||
		got[0] != (receipt.Padding{Rank: 2, Batch: 4, Sample: first.IDs[0]}) {
		n.t.Errorf("the padding is %+v", got)
	}
}

// tamper changes the record: bytes, which the checksums show; then a digest with its checksum set
// right again, which only computing the order shows.
func (n *node) tamper() {
	n.t.Helper()
	path := filepath.Join(n.dir, "jobs", "run%201.log")
	data, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte{'\n'})
	for i, line := range lines {
		if !bytes.Contains(line, []byte(`"kind":"delivered"`)) ||
			!bytes.Contains(line, []byte(`"epoch":1,`)) {
			continue
		}
		marks := bytes.Index(line, []byte(`"marks":"`)) + len(`"marks":"`)
		forged := bytes.Clone(line)
		copy(forged[marks+12:], "AAAA") // bytes 9 to 11, of batch 2's mark
		lines[i] = forged
		n.rewrite(path, lines)
		code, out, _ := n.belady("job", "verify", "run%201")
		if code != exitFailure || !strings.Contains(out, "damaged at run%201.log:") {
			n.t.Errorf("a changed byte: code %d, %s", code, out)
		}
		text := bytes.TrimSuffix(forged[9:], []byte{'\n'})
		sum := crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))
		lines[i] = fmt.Appendf(nil, "%08x %s\n", sum, text)
		n.rewrite(path, lines)
		n.refuses(1, `run%201 was not delivered as its order says`, "job", "verify", "run%201")
		_, out, _ = n.belady("job", "verify", "run%201", "--epoch", "1")
		if !strings.Contains(out, "epoch 1: WRONG: rank 0: batch 2 is not what the order gives") {
			n.t.Errorf("a forged digest: %s", out)
		}
		n.does("job", "verify", "run%201", "--epoch", "0")
		return
	}
	n.t.Fatalf("no account of epoch 1: %s", data)
}

func (n *node) rewrite(path string, lines [][]byte) {
	n.t.Helper()
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
		n.t.Fatal(err)
	}
}
