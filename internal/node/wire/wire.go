// Package wire is the protocol between the daemon and its local clients: the frames, their bytes,
// and how they travel over a Unix socket. docs/format/wire.md is the same contract for readers who
// do not write Go; a change of bytes changes both, and the version.
//
//	connection   "BLDY" (client, once, unframed), then frames both ways
//	frame        u32 payload length | u8 type | u8 flags | u16 reserved | payload
//
// Append functions add one whole frame to a slice; Decode functions take one frame's payload and
// return views into it without allocating (the JSON frames and Error apart). A decoder checks every
// count and length before it uses it and refuses what it cannot represent with ErrMalformed, so
// that a view's methods never fail. A view is valid as long as its payload is. Nothing here holds
// state but Reader and Writer, each of which belongs to one goroutine at a time.
//
// The package decides nothing about leases, orders or memory, maps no slab, and never writes to
// memory it was handed.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Preamble is what a client sends first, once, outside any frame. No HTTP method begins so:
// a connection that begins otherwise is control traffic.
const Preamble = "BLDY"

// maxSocketPath is the longest path a Unix socket's address holds on Linux, less its final NUL.
const maxSocketPath = 107

// CheckSocket refuses a path that no socket can have.
func CheckSocket(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("socket path %q has %d bytes, the kernel allows %d: "+
			"name a shorter one with --socket", path, len(path), maxSocketPath)
	}
	return nil
}

// MinVersion and MaxVersion are the protocol versions this build speaks. Any change to the bytes
// of a frame that exists needs a new version; new frame types, flags and JSON fields need only a
// feature bit.
const (
	MinVersion = 1
	MaxVersion = 1
)

// Features, as bits. Only append.
const (
	FeatureDrift uint32 = 1 << 0 // the client may send Drift
	FeatureShare uint32 = 1 << 1 // Attach may have a share
	FeatureBegin uint32 = 1 << 2 // Attach may have begins, and be refused as unequal-start
)

// Features are the optional parts this build knows.
const Features = FeatureDrift | FeatureShare | FeatureBegin

// HeaderSize is the size of a frame's header.
const HeaderSize = 8

// Limits on payloads, by sender. A client sends orders in windows of at most a million ids; a
// daemon sends at most one batch.
const (
	MaxFromClient = 4<<20 + 64
	MaxFromDaemon = 16 << 20
)

// MaxCredit is the most credits a client may have unspent: the batches that may wait for it.
const MaxCredit = 1024

// Type says what a frame is. ONLY APPEND: a number, once used, keeps its meaning for ever.
type Type uint8

// Frames of the client are below 64, those of the daemon from 64 on, so that a frame that comes
// back to its sender is never taken for an answer.
const (
	TypeHello   Type = 1
	TypeAttach  Type = 2
	TypeCredit  Type = 3
	TypeRelease Type = 4
	TypeWindow  Type = 5
	TypeDetach  Type = 6
	TypeDrift   Type = 7 // with FeatureDrift

	TypeWelcome  Type = 64
	TypeAttached Type = 65
	TypeSlab     Type = 66
	TypeSlabGone Type = 67
	TypeLease    Type = 68
	TypeEnd      Type = 69
	TypeError    Type = 70
)

var typeNames = map[Type]string{
	TypeHello: "Hello", TypeAttach: "Attach", TypeCredit: "Credit", TypeRelease: "Release",
	TypeWindow: "Window", TypeDetach: "Detach", TypeDrift: "Drift",
	TypeWelcome: "Welcome", TypeAttached: "Attached", TypeSlab: "Slab", TypeSlabGone: "SlabGone",
	TypeLease: "Lease", TypeEnd: "End", TypeError: "Error",
}

// String names the frame as the document does.
func (t Type) String() string {
	if n, ok := typeNames[t]; ok {
		return n
	}
	return fmt.Sprintf("frame type %d", uint8(t))
}

// ErrMalformed means that the bytes are not what the protocol allows: the other end is broken or
// is not a Belady. The connection is of no further use.
var ErrMalformed = errors.New("malformed frame")

// ErrTooLarge means that a frame is larger than its sender may send.
var ErrTooLarge = errors.New("frame too large")

// Frame is one frame as it was read. Payload is the reader's memory: valid until its next call.
type Frame struct {
	Type    Type
	Flags   uint8
	Payload []byte
}

// Parse takes the first frame off buf. need is 0 if there was one, otherwise how many bytes buf
// must hold before it is worth asking again. A header that announces more than max bytes is
// refused before anything is allocated for it.
func Parse(buf []byte, max int) (f Frame, size, need int, err error) {
	if len(buf) < HeaderSize {
		return Frame{}, 0, HeaderSize, nil
	}
	n := binary.LittleEndian.Uint32(buf)
	if uint64(n) > uint64(max) {
		return Frame{}, 0, 0, fmt.Errorf("%w: %s of %d bytes, at most %d are allowed",
			ErrTooLarge, Type(buf[4]), n, max)
	}
	if r := binary.LittleEndian.Uint16(buf[6:]); r != 0 {
		return Frame{}, 0, 0, fmt.Errorf("%w: reserved header bytes are %#x", ErrMalformed, r)
	}
	size = HeaderSize + int(n)
	if len(buf) < size {
		return Frame{}, 0, size, nil
	}
	f = Frame{Type: Type(buf[4]), Flags: buf[5], Payload: buf[HeaderSize:size:size]}
	return f, size, 0, nil
}

// begin appends a header whose length finish fills in.
func begin(dst []byte, t Type) (out []byte, at int) {
	return append(dst, 0, 0, 0, 0, byte(t), 0, 0, 0), len(dst)
}

func finish(dst []byte, at int) []byte {
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-HeaderSize))
	return dst
}

// exactly refuses a payload that is not n bytes long.
func exactly(t Type, p []byte, n int) error {
	if len(p) != n {
		return fmt.Errorf("%w: %s has %d bytes, not %d", ErrMalformed, t, len(p), n)
	}
	return nil
}
