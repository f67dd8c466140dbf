package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"belady/internal/core/job"
	"belady/internal/core/pump"
	"belady/internal/core/sample"
)

// Tags of the entries of a block.
const (
	tagReading = 1
	tagStep    = 2
)

// Encoder writes a trace into memory; its owner carries the bytes away with Take.
type Encoder struct {
	out   []byte // closed blocks
	block []byte // the open one
	last  pump.Instant
	known map[int32]bool // cursors whose windows follow from their reading
}

// NewEncoder begins a trace.
func NewEncoder(h Header) (*Encoder, error) {
	out, err := AppendHeader(nil, h)
	if err != nil {
		return nil, err
	}
	return &Encoder{out: out, known: map[int32]bool{}}, nil
}

// Reading says what a cursor will read. It comes before the Step that attaches the cursor.
func (e *Encoder) Reading(cursor int32, r job.Reading) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record the reading of cursor %d: %w", cursor, err)
	}
	// Weights are no part of a spec's JSON: without them the order cannot be computed again.
	e.known[cursor] = r.Order.Known() && r.Order.Weights == nil
	e.block = append(e.block, tagReading)
	e.block = appendInt(e.block, int64(cursor))
	e.block = appendBool(e.block, e.known[cursor])
	e.block = appendInt(e.block, int64(len(text)))
	e.block = append(e.block, text...)
	return nil
}

// Step records one call of the pump's. Steps in which nothing happened are recorded too: what a
// pump does in one call is bounded, so their number matters.
func (e *Encoder) Step(now pump.Instant, events []pump.Event, moves []pump.Move) {
	b := append(e.block, tagStep)
	b = appendInt(b, int64(now-e.last))
	e.last = now
	b = appendInt(b, int64(len(events)))
	for i := range events {
		b = e.event(b, &events[i])
	}
	b = appendInt(b, int64(len(moves)))
	for i := range moves {
		b = appendMove(b, &moves[i])
	}
	e.block = b
	if len(e.block) >= blockBytes {
		e.Flush()
	}
}

// Flush closes the open block, so that Take gives everything recorded so far.
func (e *Encoder) Flush() {
	if len(e.block) > 0 {
		e.out = appendBlock(e.out, e.block)
		e.block = e.block[:0]
	}
}

// Take returns the closed blocks and forgets them. The slice is valid until the next call of any
// method.
func (e *Encoder) Take() []byte {
	out := e.out
	e.out = e.out[:0]
	return out
}

func (e *Encoder) event(b []byte, v *pump.Event) []byte {
	b = append(b, byte(v.Kind))
	if ofCursor(v.Kind) {
		b = appendInt(b, int64(v.Cursor))
	}
	switch v.Kind {
	case pump.Attached:
		b = appendInt(b, int64(v.N))
		b = appendInt(b, v.Reserve)
		b = appendBool(b, v.Follows)
	case pump.Ordered:
		b = appendBool(b, !e.known[v.Cursor])
		if !e.known[v.Cursor] {
			b = appendWindow(b, v.Window)
		}
	case pump.Credited:
		b = appendInt(b, int64(v.N))
	case pump.Staged:
		b = appendRun(b, &v.Run)
		b = appendMask(b, &v.Failed)
		b = appendMask(b, &v.Unlogged)
	case pump.Released:
		b = binary.AppendUvarint(b, v.Seq)
	case pump.Replanned:
		b = appendInt(b, v.Plan.Keep)
		b = appendInt(b, v.Plan.Staging)
		b = appendInt(b, v.Plan.Log)
		b = appendBool(b, v.Plan.Carry)
	case pump.Logged, pump.Unlogged:
		b = appendInt(b, int64(len(v.Set)))
		for _, word := range v.Set {
			b = binary.LittleEndian.AppendUint64(b, word)
		}
	}
	return b
}

// ofCursor reports whether events of that kind name a cursor of their own.
func ofCursor(k pump.EventKind) bool { return k <= pump.Detached && k != pump.Staged }

func appendMove(b []byte, m *pump.Move) []byte {
	b = append(b, byte(m.Kind))
	switch m.Kind {
	case pump.Fetch:
		b = appendRun(b, &m.Run)
		b = appendMask(b, &m.Mask)
		b = appendMask(b, &m.Slots)
		b = appendInt(b, int64(m.Epoch))
		b = appendMask(b, &m.Ssd)
		b = appendMask(b, &m.Log)
	case pump.Drop:
		b = appendRun(b, &m.Run)
		b = appendMask(b, &m.Mask)
	case pump.Evict:
		before := sample.ID(0)
		b = appendInt(b, int64(len(m.Evicted())))
		for _, id := range m.Evicted() {
			b = appendInt(b, int64(id)-int64(before))
			before = id
		}
	case pump.Lease:
		b = appendInt(b, int64(m.Cursor))
		b = append(b, byte(m.Cause))
		b = appendBool(b, m.Last)
		b = appendBool(b, m.Failed)
		b = appendPlace(b, m)
		b = appendInt(b, m.Run.First)
		b = appendInt(b, int64(m.Run.Count))
	case pump.Need:
		b = appendInt(b, int64(m.Cursor))
		b = appendInt(b, int64(m.Epoch))
	case pump.Refuse:
		b = appendInt(b, int64(m.Cursor))
		b = appendPlace(b, m)
		b = appendInt(b, m.Bytes)
	case pump.Finish, pump.Forget:
		b = appendInt(b, int64(m.Cursor))
	}
	return b
}

func appendPlace(b []byte, m *pump.Move) []byte {
	b = appendInt(b, int64(m.Epoch))
	b = appendInt(b, int64(m.Batch))
	return binary.AppendUvarint(b, m.Seq)
}

func appendRun(b []byte, r *pump.Run) []byte {
	b = appendInt(b, int64(r.Cursor))
	b = binary.AppendUvarint(b, uint64(r.Handle))
	b = appendInt(b, r.First)
	return appendInt(b, int64(r.Count))
}

// appendMask writes a bit for each word that is not zero, then those words.
func appendMask(b []byte, m *pump.Mask) []byte {
	at := len(b)
	b = append(b, 0)
	for i, word := range m {
		if word != 0 {
			b[at] |= 1 << i
			b = binary.LittleEndian.AppendUint64(b, word)
		}
	}
	return b
}

func appendWindow(b []byte, w *job.Window) []byte {
	b = appendInt(b, int64(w.Epoch))
	b = appendInt(b, int64(w.Batch))
	b = appendBool(b, w.LastOfEpoch)
	b = appendBool(b, w.LastOfJob)
	b = appendList(b, w.IDs)
	b = appendList(b, w.Ends)
	b = appendBool(b, w.Next != nil)
	if w.Next != nil {
		b = appendList(b, w.Next)
	}
	return b
}

func appendList[T sample.ID | uint32](b []byte, list []T) []byte {
	b = appendInt(b, int64(len(list)))
	for _, n := range list {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func appendInt(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

func appendBool(b []byte, is bool) []byte {
	if is {
		return append(b, 1)
	}
	return append(b, 0)
}
