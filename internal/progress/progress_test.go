package progress

import (
	"bytes"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestLines(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	bar := newLines(&out, "scan", 0, "samples", func() time.Time { return now })
	bar.Set(10) // too soon to speak
	now = now.Add(pause)
	bar.Set(2000)
	bar.SetTotal(4000)
	bar.Message("a line between")
	now = now.Add(pause)
	bar.Set(3000)
	bar.Set(3500)
	bar.Done()
	want := "scan: 2,000 samples\na line between\nscan: 3,000 of 4,000 samples (75%)\n" +
		"scan: 3,500 samples, done\n"
	if out.String() != want {
		t.Fatalf("got\n%swant\n%s", out.String(), want)
	}
}

func TestOffATerminalIsLines(t *testing.T) {
	var out bytes.Buffer
	bar := New(&out, "read", 3<<20, "B")
	bar.Set(1 << 20)
	bar.Done()
	if out.String() != "read: 1.0 MiB, done\n" {
		t.Fatalf("got %q", out.String())
	}
}

// Work that was given up is not said to be done.
func TestStopped(t *testing.T) {
	var out bytes.Buffer
	bar := New(&out, "read", 3<<20, "B")
	bar.Set(1 << 20)
	bar.Stop()
	if out.String() != "read: 1.0 MiB of 3.0 MiB (33%), stopped\n" {
		t.Fatalf("got %q", out.String())
	}
}

// The moving bar owns a goroutine; Done must end it, whether or not the total was reached.
func TestMovingEnds(t *testing.T) {
	for _, total := range []int64{0, 1 << 20, 9 << 20} {
		var out bytes.Buffer
		bar := newMoving(&out, "read", total, "B")
		bar.Set(1 << 20)
		bar.SetTotal(3 << 20)
		bar.Message("a line between")
		if total == 0 {
			bar.Stop()
			continue
		}
		bar.Done()
	}
	goleak.VerifyNone(t)
}
