package ssd

import (
	"cmp"
	"fmt"
	"slices"

	"belady/internal/store/segment"
	"belady/internal/store/tier"
	"belady/internal/store/vfs"
)

const (
	recordHeader = segment.RecordHeader

	bounceBytes = 1 << 20 // of a read that cannot go straight to where it is wanted

	joinGap   = 64 << 10 // records so near each other are read together: what lies between costs less
	rereadMax = 3        // when a record moved while it was read
)

// want is one sample to be read from the device.
type want struct {
	place place
	sum   uint32
	read  *tier.Read
}

// from and to are the blocks of the file that hold the sample's bytes.
func (w want) from() int64 {
	return (w.place.offset() + recordHeader) / vfs.Block * vfs.Block
}

func (w want) to() int64 {
	end := w.place.offset() + recordHeader + int64(len(w.read.Dst))
	return (end + vfs.Block - 1) / vfs.Block * vfs.Block
}

// direct tells whether the device can write the sample straight to where it is wanted.
func (w want) direct() bool {
	dst := w.read.Dst
	return len(dst) >= segment.DirectSize && int64(cap(dst)) >= w.to()-w.from() &&
		vfs.IsAligned(dst)
}

// Read reads samples in the sequence they lie on the device, neighbours together.
func (l *log) Read(epoch int32, reads []tier.Read) {
	if !l.gate.enter() {
		for i := range reads {
			reads[i].Err = tier.ErrDown
		}
		return
	}
	defer l.gate.leave()
	var few [32]want
	wants := few[:0]
	for i := range reads {
		if w, ok := l.find(&reads[i]); ok {
			wants = append(wants, w)
		}
	}
	if l.follow.Load() != nil {
		wants = l.fromBuckets(epoch, wants)
	}
	slices.SortFunc(wants, func(a, b want) int { return cmp.Compare(a.place, b.place) })
	for len(wants) > 0 {
		n := together(wants)
		l.fetch(wants[:n], rereadMax)
		wants = wants[n:]
	}
}

// find looks a sample up, and copies it if it is still in memory. False: nothing is left to do.
func (l *log) find(r *tier.Read) (want, bool) {
	r.Err = tier.ErrAbsent
	if int(r.ID) >= len(l.index.spots) || uint32(len(r.Dst)) != l.config.Sizes.Size(r.ID) {
		return want{}, false
	}
	p, sum := l.index.get(r.ID)
	if p == 0 {
		return want{}, false
	}
	r.Err = nil
	f := l.fileOf(p)
	slot, at := f.locate(p)
	w := want{p, sum, r}
	if f.writer.copyOut(f, slot, at, r.Dst) && l.fits(w) {
		l.counts.read.Add(int64(len(r.Dst)))
		l.counts.copied.Add(int64(len(r.Dst)))
		return want{}, false
	}
	return w, true
}

// together is how many of the first wants are read at once.
func together(wants []want) int {
	if wants[0].direct() {
		return 1
	}
	n := 1
	for n < len(wants) {
		w := wants[n]
		if w.place.file() != wants[0].place.file() || w.direct() ||
			w.from()-wants[n-1].to() >= joinGap || w.to()-wants[0].from() > bounceBytes {
			break
		}
		n++
	}
	return n
}

// fetch reads wants that lie together, verifies them, and gives up what does not fit.
func (l *log) fetch(wants []want, tries int) {
	f := l.fileOf(wants[0].place)
	if !f.dir.health.admit(l.now()) {
		for _, w := range wants {
			w.read.Err = tier.ErrDown
		}
		return
	}
	err := l.load(f, wants)
	if err != nil && len(wants) > 1 { // which of them it is, each says alone
		f.dir.health.undecided()
		for i := range wants {
			l.fetch(wants[i:i+1], tries)
		}
		return
	}
	var moved []want
	o := outcome{records: len(wants), failed: err != nil}
	for _, w := range wants {
		switch {
		case err == nil && l.fits(w):
			l.counts.read.Add(int64(len(w.read.Dst)))
		case l.giveUp(f, w, err):
			o.damaged++
		default:
			moved = append(moved, w)
		}
	}
	s, changed := f.dir.health.took(o, l.now())
	l.fares(f.dir, s, changed, err)
	for _, w := range moved {
		if w, again := l.find(w.read); again && tries > 0 {
			l.fetch([]want{w}, tries-1)
		} else if again {
			w.read.Err = tier.ErrAbsent
		}
	}
}

// fits verifies a sample's bytes against the sum that its record was written with.
func (l *log) fits(w want) bool {
	f := l.fileOf(w.place)
	slot, at := f.locate(w.place)
	e := segment.Entry{ID: w.read.ID, At: at, Length: uint32(len(w.read.Dst))}
	return f.header.Bind(slot).Sum(e, f.slots[slot].generation.Load(), w.read.Dst) == w.sum
}

// giveUp drops a record that cannot be read or does not fit. False: it is elsewhere by now.
func (l *log) giveUp(f *file, w want, err error) bool {
	if !l.drop(w.read.ID, w.place) {
		return false
	}
	l.counts.corrupt.Add(1)
	w.read.Err = tier.ErrCorrupt
	if err != nil {
		w.read.Err = fmt.Errorf("%w: %w", tier.ErrCorrupt, err)
	}
	if f.dir.health.state() == sound && f.dir.health.lately.few() { // Usage counts them all
		l.tell(tier.Notice{Kind: tier.Dropped, Dir: f.dir.path, Samples: 1,
			Bytes: int64(len(w.read.Dst)), Err: w.read.Err, Text: fmt.Sprintf(
				"the record of sample %d at %d in %s is damaged: the sample is read from the origin"+
					" again", w.read.ID, w.place.offset(), f.name)})
	}
	return true
}

// load brings the bytes of wants from the device, verified by nobody yet.
func (l *log) load(f *file, wants []want) error {
	if w := wants[0]; w.direct() {
		n := w.to() - w.from()
		_, err := f.io.ReadAt(w.read.Dst[:n], w.from())
		return err
	}
	bounce := l.bounces.Take()
	defer l.bounces.Put(bounce)
	from, to := wants[0].from(), wants[0].to()
	for _, w := range wants[1:] {
		to = max(to, w.to())
	}
	for at := from; at < to; at += bounceBytes {
		piece := bounce[:min(to-at, bounceBytes)]
		if _, err := f.io.ReadAt(piece, at); err != nil {
			return err
		}
		for _, w := range wants {
			w.copy(piece, at)
		}
	}
	for _, w := range wants {
		l.counts.copied.Add(int64(len(w.read.Dst)))
	}
	return nil
}

// copy takes what a piece of the file, read from at, has of the sample.
func (w want) copy(piece []byte, at int64) {
	begin := w.place.offset() + recordHeader
	dst := w.read.Dst
	if begin < at {
		dst = dst[min(at-begin, int64(len(dst))):]
		begin = at
	}
	if skip := begin - at; skip < int64(len(piece)) {
		copy(dst, piece[skip:])
	}
}
