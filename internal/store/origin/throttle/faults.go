package throttle

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// Fault is a way in which a read is made to go wrong.
type Fault uint8

// The faults, in the order in which a read is tried against them.
const (
	None     Fault = iota
	Absent         // the object does not exist
	Changed        // the object is another version
	SlowDown       // 503: fewer requests, please
	Error          // 5xx
	Hang           // no answer until the caller gives up
	Drip           // the body comes at dripRate
	Short          // the connection is cut in the body
	Corrupt        // one byte is wrong and nothing says so
)

// dripRate is how slowly a dripping body comes: bytes per second.
const dripRate = 1024

var faultNames = map[string]Fault{
	"absent": Absent, "changed": Changed, "slowdown": SlowDown, "error": Error, "hang": Hang,
	"drip": Drip, "short": Short, "corrupt": Corrupt,
}

// rule makes one fault happen: to one name, or to a share of all requests, within a window of
// time since the origin was opened.
type rule struct {
	fault    Fault
	name     string  // Absent and Changed
	share    float64 // the others
	from, to time.Duration
}

// Script is a seeded list of rules. The zero value injects nothing.
type Script struct {
	seed  uint64
	rules []rule
}

// ParseScript reads rules separated by commas: seed:7,error:0.01,slowdown:0.5@2s-5s,absent:NAME.
// Each is FAULT:SHARE or, for absent and changed, FAULT:NAME with the name percent-encoded, and
// may end in @FROM-TO, counted from the opening of the origin.
func ParseScript(text string) (Script, error) {
	var s Script
	if text == "" {
		return s, nil
	}
	for _, item := range strings.Split(text, ",") {
		if err := s.parseRule(item); err != nil {
			return Script{}, fmt.Errorf("fault %q: %w", item, err)
		}
	}
	return s, nil
}

func (s *Script) parseRule(item string) error {
	kind, arg, ok := strings.Cut(item, ":")
	if !ok {
		return fmt.Errorf("write FAULT:SHARE, like error:0.01, or absent:NAME")
	}
	arg, window, windowed := strings.Cut(arg, "@")
	if kind == "seed" {
		seed, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || windowed {
			return fmt.Errorf("write seed:NUMBER")
		}
		s.seed = seed
		return nil
	}
	fault, ok := faultNames[kind]
	if !ok {
		return fmt.Errorf("no such fault; there are seed, absent, changed, slowdown, error, hang, " +
			"drip, short and corrupt")
	}
	r := rule{fault: fault, to: 1<<63 - 1}
	var err error
	if fault == Absent || fault == Changed {
		if r.name, err = url.PathUnescape(arg); err != nil || r.name == "" {
			return fmt.Errorf("write %s:NAME with the name percent-encoded", kind)
		}
	} else {
		r.share, err = strconv.ParseFloat(arg, 64)
		if err != nil || !(r.share >= 0 && r.share <= 1) {
			return fmt.Errorf("the share must be a number between 0 and 1")
		}
	}
	if windowed {
		from, to, _ := strings.Cut(window, "-")
		var errFrom, errTo error
		r.from, errFrom = time.ParseDuration(from)
		r.to, errTo = time.ParseDuration(to)
		if errFrom != nil || errTo != nil || r.from < 0 || r.to < r.from {
			return fmt.Errorf("write the window as @2s-5s")
		}
	}
	s.rules = append(s.rules, r)
	return nil
}

// Pick says what happens to the request with this sequence number, asked for at now (since the
// opening). A pure function of the script and its arguments: the same script gives the same
// faults, whatever the timing.
func (s *Script) Pick(sequence uint64, now time.Duration, name string) Fault {
	for i := range s.rules {
		r := &s.rules[i]
		if now < r.from || now >= r.to {
			continue
		}
		if r.fault == Absent || r.fault == Changed {
			if r.name == name {
				return r.fault
			}
		} else if chance(s.seed, uint64(i), sequence) < r.share {
			return r.fault
		}
	}
	return None
}

// chance is a number in [0, 1), even over sequence for each (seed, rule).
func chance(seed, rule, sequence uint64) float64 {
	var b [16]byte
	for i := range 8 {
		b[i] = byte(rule >> (8 * i))
		b[8+i] = byte(sequence >> (8 * i))
	}
	return float64(xxh3.HashSeed(b[:], seed)>>11) / (1 << 53)
}
