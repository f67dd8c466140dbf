package world

import (
	"errors"
	"time"

	"belady/internal/core/pump"
	"belady/internal/core/sample"
	"belady/internal/store/tier"
)

// owing is what memory keeps and the log was too busy to take: since it will not be fetched again,
// it is appended from memory, when no rank waits. The owner's.
type owing struct {
	owed   []debt
	paid   []sample.ID // appended, and the pump has not heard of it
	paying bool        // a timer will go on
}

type debt struct {
	id    sample.ID
	epoch int32
}

// Some samples are appended at a time, so that the owner is soon back.
const (
	payBytes = 1 << 20
	payPause = 2 * time.Millisecond
	// payPatience is the time until a log that takes nothing, or a rank that waits, is tried again.
	payPatience = 50 * time.Millisecond
)

// owe notes what a fetch could not append. It runs before the pump hears of it.
func (w *World) owe(f *fetch) {
	for i := range f.tasks {
		if t := &f.tasks[i]; f.busy.Has(int(t.at)) && f.slots.Has(int(t.at)) {
			w.owed = append(w.owed, debt{t.id, f.epoch})
		}
	}
	w.payIn(payPatience)
}

func (w *World) payIn(pause time.Duration) {
	if !w.paying && len(w.owed) > 0 {
		w.paying = true
		time.AfterFunc(pause, func() { w.mail.call(w.pay) })
	}
}

// pay appends some of what is owed, the oldest first.
func (w *World) pay() {
	w.paying = false
	pause, bytes, done := payPause, 0, 0
	for ; done < len(w.owed) && bytes < payBytes; done++ {
		d := w.owed[done]
		p := w.places[d.id]
		if p == 0 || !w.pump.Kept(d.id) {
			continue // its next fetch will see to it
		}
		size, err := w.Set.Size(d.id), tier.ErrBusy
		if w.pump.Present(d.id) && !w.wanted() {
			err = w.Log.Append(d.epoch, d.id, w.arena.Bytes(p, size))
		}
		if errors.Is(err, tier.ErrBusy) {
			pause = payPatience
			break
		}
		if err == nil {
			w.paid = append(w.paid, d.id)
		}
		bytes += int(size)
	}
	if w.owed = w.owed[done:]; len(w.owed) == 0 && len(w.paid) > 0 {
		w.tellPaid()
	}
	w.payIn(pause)
}

// tellPaid has the pump hear what was appended.
func (w *World) tellPaid() {
	set := make([]uint64, (len(w.places)+63)/64)
	for _, id := range w.paid {
		set[id/64] |= 1 << (id % 64)
	}
	w.paid = w.paid[:0]
	w.mail.post(pump.Event{Kind: pump.Logged, Set: set})
}
