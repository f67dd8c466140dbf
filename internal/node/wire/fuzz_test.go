package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fuzz checks one decoder: it never panics, and what it accepts can be read to the end. again,
// where it is given, encodes what was read; its payload must decode to the same.
func fuzz(f *testing.F, t Type, again func(v any) []byte) {
	for _, s := range everyFrame(f) {
		if p := one(f, s.frame); p.Type == t {
			f.Add(p.Payload)
		}
	}
	f.Add([]byte{})
	f.Fuzz(func(tt *testing.T, p []byte) {
		v, err := decode(Frame{Type: t, Payload: p})
		if err != nil {
			return
		}
		w, err := decode(one(tt, again(v)))
		if err != nil {
			tt.Fatalf("%+v is refused when sent back: %v", v, err)
		}
		if d := cmp.Diff(v, w); d != "" {
			tt.Fatalf("it changes when sent back: %s", d)
		}
	})
}

func FuzzHello(f *testing.F) {
	fuzz(f, TypeHello, func(v any) []byte { return AppendHello(nil, v.(Hello)) })
}

func FuzzWelcome(f *testing.F) {
	fuzz(f, TypeWelcome, func(v any) []byte { return AppendWelcome(nil, v.(Welcome)) })
}

func FuzzAttach(f *testing.F) {
	fuzz(f, TypeAttach, func(v any) []byte {
		b, err := AppendAttach(nil, v.(*Attach))
		if err != nil {
			f.Error(err)
		}
		return b
	})
}

func FuzzAttached(f *testing.F) {
	fuzz(f, TypeAttached, func(v any) []byte {
		b, err := AppendAttached(nil, v.(*Attached))
		if err != nil {
			f.Error(err)
		}
		return b
	})
}

func FuzzCredit(f *testing.F) {
	fuzz(f, TypeCredit, func(v any) []byte { return AppendCredit(nil, v.(uint32)) })
}

func FuzzRelease(f *testing.F) {
	fuzz(f, TypeRelease, func(v any) []byte { return AppendRelease(nil, v.([]uint64)) })
}

func FuzzWindow(f *testing.F) {
	fuzz(f, TypeWindow, func(v any) []byte {
		w := v.(window)
		return AppendWindow(nil, w.Epoch, w.Flags, w.IDs, w.Ends)
	})
}

func FuzzDrift(f *testing.F) {
	fuzz(f, TypeDrift, func(v any) []byte { return AppendDrift(nil, v.(Drift)) })
}

func FuzzSlab(f *testing.F) {
	fuzz(f, TypeSlab, func(v any) []byte { return AppendSlab(nil, v.(Slab)) })
}

func FuzzSlabGone(f *testing.F) {
	fuzz(f, TypeSlabGone, func(v any) []byte { return AppendSlabGone(nil, v.(uint16)) })
}

func FuzzLease(f *testing.F) {
	fuzz(f, TypeLease, func(v any) []byte {
		l := v.(lease)
		frame := AppendLease(nil, &l.Lease, l.IDs, l.Lengths, l.Places, l.FieldLens)
		// The receipt is the sender's claim: a wrong one is kept to be found by CheckReceipt.
		copy(frame[HeaderSize+40:], AppendRelease(nil, []uint64{l.Receipt})[HeaderSize:])
		return frame
	})
}

func FuzzError(f *testing.F) {
	fuzz(f, TypeError, func(v any) []byte { return AppendError(nil, v.(*Error)) })
}

// A stream cut into frames is the same stream when put together again.
func FuzzParse(f *testing.F) {
	var all []byte
	for _, s := range everyFrame(f) {
		all = append(all, s.frame...)
	}
	f.Add(all)
	f.Add(all[:100])
	f.Fuzz(func(t *testing.T, stream []byte) {
		var again []byte
		for rest := stream; ; {
			frame, size, need, err := Parse(rest, MaxFromClient)
			if err != nil {
				return
			}
			if need > 0 {
				again = append(again, rest...)
				if need <= len(rest) {
					t.Fatalf("needs %d bytes, has %d", need, len(rest))
				}
				break
			}
			start := len(again)
			again = append(again, 0, 0, 0, 0, byte(frame.Type), frame.Flags, 0, 0)
			again = finish(append(again, frame.Payload...), start)
			rest = rest[size:]
		}
		if !bytes.Equal(stream, again) {
			t.Fatalf("%x became %x", stream, again)
		}
	})
}
