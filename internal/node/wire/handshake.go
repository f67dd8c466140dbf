package wire

import (
	"encoding/binary"
	"fmt"
)

// Hello is the client's first frame: the versions it speaks and the features it knows.
//
//	u16 lowest version | u16 highest version | u32 features
type Hello struct {
	Min, Max uint16
	Features uint32
}

// OurHello is the Hello of this build.
func OurHello() Hello { return Hello{Min: MinVersion, Max: MaxVersion, Features: Features} }

// AppendHello appends the frame, without the preamble.
func AppendHello(dst []byte, h Hello) []byte {
	dst, at := begin(dst, TypeHello)
	dst = binary.LittleEndian.AppendUint16(dst, h.Min)
	dst = binary.LittleEndian.AppendUint16(dst, h.Max)
	dst = binary.LittleEndian.AppendUint32(dst, h.Features)
	return finish(dst, at)
}

// DecodeHello accepts a longer payload than it knows: later versions may add to Hello, and must
// still be told in words that they are too new.
func DecodeHello(p []byte) (Hello, error) {
	if len(p) < 8 {
		return Hello{}, fmt.Errorf("%w: Hello has %d bytes, not 8", ErrMalformed, len(p))
	}
	h := Hello{
		Min:      binary.LittleEndian.Uint16(p),
		Max:      binary.LittleEndian.Uint16(p[2:]),
		Features: binary.LittleEndian.Uint32(p[4:]),
	}
	if h.Min == 0 || h.Min > h.Max {
		return Hello{}, fmt.Errorf("%w: Hello offers versions %d to %d",
			ErrMalformed, h.Min, h.Max)
	}
	return h, nil
}

// Welcome is the daemon's answer: the version both will speak, the features both know, and the
// daemon's process id, which tells a restarted daemon from the one before.
//
//	u16 version | u16 reserved | u32 features | u32 daemon pid
type Welcome struct {
	Version  uint16
	Features uint32
	PID      uint32
}

// AppendWelcome appends the frame.
func AppendWelcome(dst []byte, w Welcome) []byte {
	dst, at := begin(dst, TypeWelcome)
	dst = binary.LittleEndian.AppendUint16(dst, w.Version)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, w.Features)
	dst = binary.LittleEndian.AppendUint32(dst, w.PID)
	return finish(dst, at)
}

// DecodeWelcome accepts a longer payload than it knows, as DecodeHello does.
func DecodeWelcome(p []byte) (Welcome, error) {
	if len(p) < 12 {
		return Welcome{}, fmt.Errorf("%w: Welcome has %d bytes, not 12", ErrMalformed, len(p))
	}
	return Welcome{
		Version:  binary.LittleEndian.Uint16(p),
		Features: binary.LittleEndian.Uint32(p[4:]),
		PID:      binary.LittleEndian.Uint32(p[8:]),
	}, nil
}

// Negotiate is the daemon's choice: the highest version both speak and the features both know, or
// the Error to send before closing. Welcome.PID is left to the caller.
func Negotiate(h Hello) (Welcome, *Error) {
	return negotiate(h, OurHello())
}

func negotiate(client, daemon Hello) (Welcome, *Error) {
	refuse := func(what string) (Welcome, *Error) {
		return Welcome{}, &Error{Code: CodeVersion, Fatal: true, Text: fmt.Sprintf(
			"the client speaks protocol %s, the daemon %s: %s",
			versions(client), versions(daemon), what)}
	}
	switch {
	case client.Max < daemon.Min:
		return refuse("upgrade the client (pip install --upgrade belady, or the belady binary)")
	case client.Min > daemon.Max:
		return refuse("upgrade the belady binary on this node and restart the daemon")
	}
	return Welcome{
		Version:  min(client.Max, daemon.Max),
		Features: client.Features & daemon.Features,
	}, nil
}

func versions(h Hello) string {
	if h.Min == h.Max {
		return fmt.Sprintf("version %d", h.Min)
	}
	return fmt.Sprintf("versions %d to %d", h.Min, h.Max)
}
