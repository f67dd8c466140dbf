package origin_test

import (
	"testing"
	"time"

	"belady/internal/store/origin"
	"belady/internal/store/origin/origintest"
	"belady/internal/store/origin/posix"
	"belady/internal/store/origin/synth"
	"belady/internal/store/origin/throttle"
)

func resilient(t *testing.T, o origin.Origin) origin.Origin {
	t.Helper()
	c := origin.RetryDefaults()
	c.BackoffMin, c.BackoffMax = time.Microsecond, time.Millisecond
	r, err := origin.Resilient(o, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResilientOverSynth(t *testing.T) {
	origintest.Run(t, func(t *testing.T, _ map[string][]byte) origintest.Subject {
		inner, err := synth.New(synth.Config{Samples: 50, SizeBytes: 500, Spread: 0.5, Classes: 3})
		if err != nil {
			t.Fatal(err)
		}
		return origintest.Subject{Origin: resilient(t, inner), Files: origintest.ComputedFiles(inner)}
	})
}

// Over an origin that fails one read in five, everything the suite asks for still holds.
func TestResilientOverFaultyPosix(t *testing.T) {
	script, err := throttle.ParseScript("seed:3,error:0.1,short:0.1")
	if err != nil {
		t.Fatal(err)
	}
	origintest.Run(t, func(t *testing.T, files map[string][]byte) origintest.Subject {
		return origintest.Folder(t, files, func(dir string) origin.Origin {
			inner, err := posix.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			faulty, err := throttle.New(inner, throttle.Config{Faults: script})
			if err != nil {
				t.Fatal(err)
			}
			return resilient(t, faulty)
		})
	})
}
