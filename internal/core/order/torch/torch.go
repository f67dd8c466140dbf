// Package torch reproduces the index streams of PyTorch's CPU generator bit for bit: MT19937, and
// randperm, randint and multinomial on top of it, under the rules of a named PyTorch version.
//
// A Generator is a plain value: copying it forks the stream, and whoever owns a copy may draw from
// it without asking anybody. The package never reads a clock, never seeds itself, and knows nothing
// of ranks, epochs or batches: those belong to package order. CUDA generators draw differently and
// are out of reach here.
package torch

import (
	"fmt"
	"strconv"
	"strings"
)

// Rules are what differs between PyTorch versions in the streams we reproduce. Thresholds, not
// version tests, so that each rule is stated once and can be tested at small sizes.
type Rules struct {
	// PermWideFrom is the n from which randperm draws 64-bit words and runs inside out.
	PermWideFrom uint64
	// IntWideFrom is the range from which randint draws 64-bit words.
	IntWideFrom uint64
}

// Newest is the rule set of a spec that names no version.
const Newest = "2.14"

const never = 1 << 63

// permWideFrom is UINT32_MAX/20: above it one 32-bit word modulo n would be visibly biased.
const permWideFrom = (1<<32 - 1) / 20

// versions lists the rule sets oldest first. A version between two maps to the older one.
var versions = []struct {
	major, minor int
	rules        Rules
}{
	{1, 13, Rules{PermWideFrom: never, IntWideFrom: 1 << 32}},
	{2, 6, Rules{PermWideFrom: permWideFrom, IntWideFrom: 1 << 32}},
	{2, 14, Rules{PermWideFrom: permWideFrom, IntWideFrom: 1 << 28}},
}

// RulesOf returns the newest rule set that is not newer than version, which reads like
// torch.__version__ ("2.6.0+cu124") or a prefix of it ("2.6"). Empty means Newest.
func RulesOf(version string) (Rules, error) {
	if version == "" {
		version = Newest
	}
	major, minor, ok := parseVersion(version)
	if !ok {
		return Rules{}, fmt.Errorf(
			"torch version %q is not major.minor: give torch.__version__, such as \"2.6\"", version)
	}
	for i := len(versions) - 1; i >= 0; i-- {
		v := versions[i]
		if major > v.major || major == v.major && minor >= v.minor {
			return v.rules, nil
		}
	}
	return Rules{}, fmt.Errorf(
		"torch version %q is older than 1.13, the oldest whose order is known: "+
			"send the order as kind explicit", version)
}

func parseVersion(s string) (major, minor int, ok bool) {
	head, rest, found := strings.Cut(s, ".")
	if !found {
		return 0, 0, false
	}
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	major, errMajor := strconv.Atoi(head)
	minor, errMinor := strconv.Atoi(rest[:end])
	return major, minor, errMajor == nil && errMinor == nil && major >= 0
}
