package dataset

import (
	"bytes"
	"cmp"
	"unicode/utf8"
)

// compareNames orders sample names as torchvision's make_dataset visits files: classes sorted,
// inside a class the folders sorted as whole path strings (os.walk, sorted), inside a folder the
// file names sorted. suffix is what the first field appends to a sample's name: torchvision sorts
// "a-b.jpg" before "a.jpg", although "a" sorts before "a-b".
//
// Files in the root belong to no class and come last: ImageFolder does not see them, and a stray
// README must not shift the ids of all the others.
func compareNames(a, b, suffix []byte) int {
	slashA, slashB := bytes.LastIndexByte(a, '/'), bytes.LastIndexByte(b, '/')
	if slashA == slashB && (slashA < 0 || bytes.Equal(a[:slashA], b[:slashA])) {
		return compareSuffixed(a[slashA+1:], b[slashB+1:], suffix)
	}
	if slashA < 0 {
		return 1
	}
	if slashB < 0 {
		return -1
	}
	if c := compareText(classOf(a), classOf(b)); c != 0 {
		return c
	}
	return compareText(a[:slashA], b[:slashB])
}

// classOf is the first component of a name that has a folder, nil for a file in the root.
func classOf(name []byte) []byte {
	slash := bytes.IndexByte(name, '/')
	if slash < 0 {
		return nil
	}
	return name[:slash]
}

// compareSuffixed compares a+suffix with b+suffix, without joining them where it can.
func compareSuffixed(a, b, suffix []byte) int {
	if c, ok := compareASCII(a, b); ok && (len(suffix) == 0 || c.differ) {
		return c.sign
	}
	if len(suffix) == 0 {
		return compareDecoded(a, b)
	}
	return compareText(append(append([]byte(nil), a...), suffix...),
		append(append([]byte(nil), b...), suffix...))
}

// compareText compares as Python compares the str of two file names: by code point, where a byte
// that is not UTF-8 counts as the lone surrogate U+DC00+byte (surrogateescape).
func compareText(a, b []byte) int {
	if c, ok := compareASCII(a, b); ok {
		return c.sign
	}
	return compareDecoded(a, b)
}

// comparison is a sign, and whether it came from a differing byte rather than from the lengths.
type comparison struct {
	sign   int
	differ bool
}

// compareASCII decides by the first differing byte; ok is false when that byte is part of a longer
// code point, where the order of bytes need not be the order of code points.
func compareASCII(a, b []byte) (c comparison, ok bool) {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i < n {
		return comparison{cmp.Compare(a[i], b[i]), true}, a[i]|b[i] < utf8.RuneSelf
	}
	// The longer one may go on inside a code point that the shorter one has cut in two.
	cut := len(a) > n && a[n] >= utf8.RuneSelf || len(b) > n && b[n] >= utf8.RuneSelf
	return comparison{cmp.Compare(len(a), len(b)), false}, !cut
}

func compareDecoded(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		runeA, sizeA := decode(a)
		runeB, sizeB := decode(b)
		if runeA != runeB {
			return cmp.Compare(runeA, runeB)
		}
		a, b = a[sizeA:], b[sizeB:]
	}
	return cmp.Compare(len(a), len(b))
}

func decode(p []byte) (rune, int) {
	r, size := utf8.DecodeRune(p)
	if r == utf8.RuneError && size == 1 {
		return 0xDC00 + rune(p[0]), 1
	}
	return r, size
}
