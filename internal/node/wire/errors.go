package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Code says what kind of error a daemon reports, so that a client can decide without reading the
// text. ONLY APPEND.
type Code uint16

const (
	// CodeInternal: a defect of the daemon; the text and its events say more.
	CodeInternal Code = 1
	// CodeProtocol: the client sent what the protocol does not allow.
	CodeProtocol Code = 2
	// CodeVersion: no common protocol version; the text says which side to upgrade.
	CodeVersion Code = 3
	// CodeUnknownDataset: no dataset of that name is known to the daemon.
	CodeUnknownDataset Code = 4
	// CodeBadRequest: well-formed, but it cannot be done as asked (an order, a rank, a start).
	CodeBadRequest Code = 5
	// CodeTooLarge: a batch, a window or a frame is over a limit.
	CodeTooLarge Code = 6
	// CodeArenaTooSmall: two batches of this job do not fit into the arena.
	CodeArenaTooSmall Code = 7
	// CodeAbsent: a sample is no longer in the origin.
	CodeAbsent Code = 8
	// CodeChanged: a sample is not what it was when the dataset was scanned.
	CodeChanged Code = 9
	// CodeDenied: the origin or the daemon refuses this user.
	CodeDenied Code = 10
	// CodeUnavailable: the origin does not answer within its deadline.
	CodeUnavailable Code = 11
	// CodeShuttingDown: the daemon is leaving; reconnect. The one fatal code worth a retry.
	CodeShuttingDown Code = 12
	// CodeUnequalStart: the job's ranks begin at different positions.
	CodeUnequalStart Code = 13
)

var codeNames = [...]string{
	CodeInternal: "internal", CodeProtocol: "protocol", CodeVersion: "version",
	CodeUnknownDataset: "unknown-dataset", CodeBadRequest: "bad-request",
	CodeTooLarge: "too-large", CodeArenaTooSmall: "arena-too-small", CodeAbsent: "absent",
	CodeChanged: "changed", CodeDenied: "denied", CodeUnavailable: "unavailable",
	CodeShuttingDown: "shutting-down", CodeUnequalStart: "unequal-start",
}

// String names the code as the document does.
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("code-%d", uint16(c))
}

// MaxErrorText is the most bytes of text an Error carries; longer ones are cut.
const MaxErrorText = 4096

// Error is what a daemon reports to a client. A fatal one ends the session. One that is not stands
// in place of the batch it names, which will not come; the next one will.
//
//	u16 code | u8 fatal | u8 reserved | u32 epoch | u32 batch | text (UTF-8, the rest)
type Error struct {
	Code  Code
	Fatal bool
	Epoch uint32
	Batch uint32
	Text  string
}

// Error says what happened in the daemon's own words.
func (e *Error) Error() string { return fmt.Sprintf("daemon: %s (%s)", e.Text, e.Code) }

// Is makes errors.Is(err, &Error{Code: c}) ask for the code alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Text == ""
}

// AppendError appends the frame; the text is made valid UTF-8 and cut to MaxErrorText.
func AppendError(dst []byte, e *Error) []byte {
	dst, at := begin(dst, TypeError)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(e.Code))
	dst = append(dst, 0, 0)
	if e.Fatal {
		dst[len(dst)-2] = 1
	}
	dst = binary.LittleEndian.AppendUint32(dst, e.Epoch)
	dst = binary.LittleEndian.AppendUint32(dst, e.Batch)
	return finish(append(dst, cut(strings.ToValidUTF8(e.Text, "?"), MaxErrorText)...), at)
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// DecodeError allocates the text: errors are not the hot path, and outlive their frame.
func DecodeError(p []byte) (*Error, error) {
	switch {
	case len(p) < 12 || len(p) > 12+MaxErrorText:
		return nil, fmt.Errorf("%w: Error has %d bytes, not 12 to %d",
			ErrMalformed, len(p), 12+MaxErrorText)
	case p[2] > 1:
		return nil, fmt.Errorf("%w: Error has %d for fatal, not 0 or 1", ErrMalformed, p[2])
	}
	return &Error{
		Code:  Code(binary.LittleEndian.Uint16(p)),
		Fatal: p[2] == 1,
		Epoch: binary.LittleEndian.Uint32(p[4:]),
		Batch: binary.LittleEndian.Uint32(p[8:]),
		Text:  strings.ToValidUTF8(string(p[12:]), "?"),
	}, nil
}
