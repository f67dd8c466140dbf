package arena

import (
	"math/rand/v2"
	"testing"
)

// A place for direct I/O begins and ends at blocks, and no other sample lies in its last one: what
// a read fills behind the sample is nobody else's. All is given back when the samples go.
func TestDirectPlacesAreAlone(t *testing.T) {
	const bytes = 64 << 20
	h := Measure(100, func(i int) uint32 { return uint32(1+i) * 60_000 })
	a, err := New(Config{Pool: NewPool(bytes), Bytes: bytes, Sizes: h, Packed: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	free := a.Usage().SpansFree
	r := rand.New(rand.NewPCG(1, 1))
	type held struct {
		place Place
		bytes []byte
		mark  byte
	}
	var all []held
	direct := 0
	for i := 0; ; i++ {
		size := uint32(r.IntN(300_000))
		if i%50 == 0 {
			size += SpanBytes
		}
		alloc, view := a.AllocRun, a.Bytes
		if i%3 > 0 {
			alloc, view = a.AllocDirect, a.Direct
		}
		p, ok := alloc(size)
		if !ok {
			break
		}
		b := view(p, size)
		if i%3 > 0 {
			direct++
			if p.Offset()%DirectAlign != 0 || cap(b) < len(b) || cap(b)%DirectAlign != 0 {
				t.Fatalf("a sample of %d bytes lies at %d with room for %d", size, p.Offset(), cap(b))
			}
		}
		mark := byte(i)
		for j := range b[:cap(b)] {
			b[:cap(b)][j] = mark
		}
		all = append(all, held{p, b, mark})
	}
	if direct < 100 {
		t.Fatalf("only %d samples fit: the test tests nothing", direct)
	}
	for _, h := range all {
		for j, c := range h.bytes[:cap(h.bytes)] {
			if c != h.mark {
				t.Fatalf("byte %d of %v was overwritten", j, h.place)
			}
		}
	}
	for _, h := range all {
		a.Free(h.place)
	}
	if u := a.Usage(); u.SpansFree != free || u.Runs != 0 || u.Slots != 0 {
		t.Errorf("freed, and yet %+v of %d spans", u, free)
	}
}

func TestPoolLends(t *testing.T) {
	p := NewPool(100)
	if !p.Lend(60) || p.Lend(41) || !p.Lend(40) || p.Left() != 0 {
		t.Fatalf("%d are left of 100", p.Left())
	}
	p.Return(60)
	p.Return(40)
	if p.Left() != 100 {
		t.Fatalf("%d are left of 100", p.Left())
	}
}
