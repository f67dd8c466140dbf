package wire

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belady/internal/core/order"
	"belady/internal/core/receipt"
	"belady/internal/core/sample"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file of a new version")

var (
	someAttach = &Attach{
		Job:      "resnet50",
		Datasets: []Dataset{{Name: "imagenet"}, {Name: "extra", Weight: 0.5}},
		Order: order.Spec{
			Kind: "torch-distributed", Torch: "2.6", Samples: 1281167, Seed: 7, World: 8,
			Batch: 256,
		},
		Epochs: 90,
		Start:  Start{Epoch: 3, Position: 4096, Batch: 2},
		Rank:   5, Policy: "spread", Packed: true,
		Client: Client{PID: 4242, Name: "train.py"},
	}
	someAttached = &Attached{
		Session: "s1", Samples: 1281167, Batches: 625, Fields: []string{"jpg", "cls"},
		Content: "b1946ac9", Start: Start{Epoch: 3, Position: 4096, Batch: 2},
	}
	someError = &Error{Code: CodeChanged, Fatal: true, Epoch: 3, Batch: 9, Text: "a.jpg changed"}
	scattered = Lease{Seq: 77, Epoch: 3, Batch: 9, Cause: CauseOrigin, Fields: 2,
		Flags: LeaseLastOfEpoch}
	packed = Lease{Seq: 78, Epoch: 4, Batch: 0, Form: FormPacked, Flags: LeasePrivate,
		Stride: 4096, Base: At(2, 8192)}
	someIDs     = []sample.ID{10, 1 << 31, 12}
	someLengths = []uint32{100, 0, 4096}
	somePlaces  = []Place{At(0, 0), At(65535, 1<<47), At(1, 4096)}
	someFields  = []uint32{99, 1, 0, 0, 4000, 96}
)

type named struct {
	name  string
	frame []byte
}

// everyFrame has each frame once, leases in both forms.
func everyFrame(t testing.TB) []named {
	t.Helper()
	attach, err := AppendAttach(nil, someAttach)
	if err != nil {
		t.Fatal(err)
	}
	attached, err := AppendAttached(nil, someAttached)
	if err != nil {
		t.Fatal(err)
	}
	return []named{
		{"Hello", AppendHello(nil, Hello{Min: 1, Max: 1, Features: 0x80000001})},
		{"Attach", attach},
		{"Credit", AppendCredit(nil, 4)},
		{"Release", AppendRelease(nil, []uint64{1, 1 << 40})},
		{"Window", AppendWindow(nil, 3, WindowLastOfEpoch|WindowLastOfJob, someIDs,
			[]uint32{2, 3})},
		{"Detach", AppendDetach(nil)},
		{"Welcome", AppendWelcome(nil, Welcome{Version: 1, Features: 1, PID: 4242})},
		{"Attached", attached},
		{"Slab", AppendSlab(nil, Slab{Index: 513, Kind: SlabPacked, Bytes: 1 << 28})},
		{"SlabGone", AppendSlabGone(nil, 513)},
		{"Lease scattered", AppendLease(nil, &scattered, someIDs, someLengths, somePlaces,
			someFields)},
		{"Lease packed", AppendLease(nil, &packed, someIDs, someLengths, nil, nil)},
		{"End", AppendEnd(nil)},
		{"Error", AppendError(nil, someError)},
		{"Drift", AppendDrift(nil, Drift{Epoch: 3, Batch: 9})},
	}
}

// A version's bytes are written down once. If this fails, either undo the change or raise
// MaxVersion and run with -rewrite: the file of a version that exists is never rewritten.
func TestGolden(t *testing.T) {
	var got strings.Builder
	for _, f := range everyFrame(t) {
		fmt.Fprintf(&got, "%s\n%s\n", f.name, hex.Dump(f.frame))
	}
	file := fmt.Sprintf("testdata/version-%d.golden", MaxVersion)
	want, err := os.ReadFile(file)
	if *rewrite && errors.Is(err, os.ErrNotExist) {
		want, err = []byte(got.String()), os.WriteFile(file, []byte(got.String()), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("the bytes of protocol version %d changed:\n%s", MaxVersion, d)
	}
}

// decode runs the decoder of a frame and says what it read, in a form to compare.
func decode(f Frame) (any, error) {
	switch f.Type {
	case TypeHello:
		return DecodeHello(f.Payload)
	case TypeAttach:
		return DecodeAttach(f.Payload)
	case TypeCredit:
		return DecodeCredit(f.Payload)
	case TypeRelease:
		v, err := DecodeRelease(f.Payload)
		seqs := []uint64{}
		for i := range v.Len() {
			seqs = append(seqs, v.At(i))
		}
		return seqs, err
	case TypeDrift:
		return DecodeDrift(f.Payload)
	case TypeWindow:
		v, err := DecodeWindow(f.Payload)
		return readWindow(v), err
	case TypeDetach:
		return nil, DecodeDetach(f.Payload)
	case TypeWelcome:
		return DecodeWelcome(f.Payload)
	case TypeAttached:
		return DecodeAttached(f.Payload)
	case TypeSlab:
		return DecodeSlab(f.Payload)
	case TypeSlabGone:
		return DecodeSlabGone(f.Payload)
	case TypeLease:
		v, err := DecodeLease(f.Payload)
		return readLease(&v), err
	case TypeEnd:
		return nil, DecodeEnd(f.Payload)
	case TypeError:
		return DecodeError(f.Payload)
	}
	return nil, ErrMalformed
}

type window struct {
	Epoch, Flags uint32
	IDs          []sample.ID
	Ends         []uint32
}

func readWindow(v WindowView) window {
	w := window{Epoch: v.Epoch, Flags: v.Flags}
	for i := range v.Len() {
		w.IDs = append(w.IDs, v.ID(i))
	}
	for i := range v.Batches() {
		w.Ends = append(w.Ends, v.End(i))
	}
	return w
}

type lease struct {
	Lease
	IDs       []sample.ID
	Lengths   []uint32
	Places    []Place
	FieldLens []uint32
}

func readLease(v *LeaseView) lease {
	l := lease{Lease: v.Lease}
	if v.ids == nil {
		return l // not decoded
	}
	for i := range v.Len() {
		l.IDs = append(l.IDs, v.ID(i))
		l.Lengths = append(l.Lengths, v.Length(i))
		if v.Form == FormScattered {
			l.Places = append(l.Places, v.Place(i))
		}
		for f := 0; f < int(v.Fields) && v.Fields > 1; f++ {
			l.FieldLens = append(l.FieldLens, v.FieldLength(i, f))
		}
	}
	return l
}

func one(t interface{ Fatalf(string, ...any) }, frame []byte) Frame {
	f, size, need, err := Parse(frame, MaxFromDaemon)
	if err != nil || need != 0 || size != len(frame) {
		t.Fatalf("Parse of %d bytes: size %d, need %d, %v", len(frame), size, need, err)
	}
	return f
}

func TestDecodersReadWhatAppendWrote(t *testing.T) {
	want := map[string]any{
		"Hello": Hello{Min: 1, Max: 1, Features: 0x80000001}, "Attach": someAttach,
		"Credit": uint32(4), "Release": []uint64{1, 1 << 40},
		"Window": window{3, 3, someIDs, []uint32{2, 3}}, "Detach": nil,
		"Welcome":  Welcome{Version: 1, Features: 1, PID: 4242},
		"Attached": someAttached, "Slab": Slab{Index: 513, Kind: SlabPacked, Bytes: 1 << 28},
		"SlabGone": uint16(513), "End": nil, "Error": someError,
	}
	for _, f := range everyFrame(t) {
		got, err := decode(one(t, f.frame))
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		if w, ok := want[f.name]; ok {
			if d := cmp.Diff(w, got); d != "" {
				t.Errorf("%s: %s", f.name, d)
			}
		}
	}
}

// Every shorter payload and every payload with a byte more is refused, or is as valid as text is.
func TestDecodersRefuseOtherLengths(t *testing.T) {
	for _, f := range everyFrame(t) {
		frame := one(t, f.frame)
		for n := range len(frame.Payload) {
			if f.name == "Error" && n >= 12 || f.name == "Release" && n > 0 && n%8 == 0 {
				continue
			}
			_, err := decode(Frame{frame.Type, 0, frame.Payload[:n]})
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%s cut to %d bytes: %v", f.name, n, err)
			}
		}
		long := append(append([]byte(nil), frame.Payload...), 1)
		_, err := decode(Frame{frame.Type, 0, long})
		grows := f.name == "Hello" || f.name == "Welcome" || f.name == "Error"
		if !grows && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s with a byte more: %v", f.name, err)
		}
	}
}

func genLease(t *rapid.T) lease {
	u32 := rapid.Uint32()
	l := lease{Lease: Lease{
		Seq: rapid.Uint64().Draw(t, "seq"), Epoch: u32.Draw(t, "epoch"),
		Batch: u32.Draw(t, "batch"), Cause: Cause(rapid.Uint8().Draw(t, "cause")),
		Form: Form(rapid.IntRange(0, 1).Draw(t, "form")), Flags: u32.Draw(t, "flags"),
		Fields: uint16(rapid.IntRange(0, 4).Draw(t, "fields")),
	}}
	n := rapid.IntRange(0, 40).Draw(t, "count")
	if l.Form == FormPacked {
		l.Stride = 1 << 20
		l.Base = At(rapid.Uint16().Draw(t, "slab"), rapid.Uint64Range(0, 1<<40).Draw(t, "off"))
	}
	for range n {
		length := uint32(0)
		for f := 0; f < max(1, int(l.Fields)); f++ {
			x := rapid.Uint32Range(0, 1<<18).Draw(t, "len")
			length += x
			if l.Fields > 1 {
				l.FieldLens = append(l.FieldLens, x)
			}
		}
		l.IDs = append(l.IDs, sample.ID(u32.Draw(t, "id")))
		l.Lengths = append(l.Lengths, length)
		l.Bytes += uint64(length)
		if l.Form == FormScattered {
			l.Places = append(l.Places,
				At(rapid.Uint16().Draw(t, "slab"), rapid.Uint64Range(0, 1<<47).Draw(t, "off")))
		}
	}
	l.Count = uint32(n)
	l.Receipt, _ = receipt.Of(l.IDs, nil)
	return l
}

func TestLeaseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genLease(t)
		frame := AppendLease([]byte("before"), &want.Lease, want.IDs, want.Lengths, want.Places,
			want.FieldLens)
		v, err := DecodeLease(one(t, frame[len("before"):]).Payload)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if d := cmp.Diff(want, readLease(&v)); d != "" {
			t.Fatalf("%s", d)
		}
		if !v.CheckReceipt() {
			t.Fatalf("the receipt is not that of the ids")
		}
		if v.Len() > 0 {
			v.ids[0]++
			if v.CheckReceipt() {
				t.Fatalf("the receipt fits other ids too")
			}
		}
		for i := range v.Len() {
			if v.Form == FormPacked && v.Place(i) != v.Base+Place(i<<20) {
				t.Fatalf("sample %d is at %x", i, v.Place(i))
			}
		}
	})
}

func TestWindowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := window{Epoch: rapid.Uint32().Draw(t, "epoch"),
			Flags: rapid.SampledFrom([]uint32{0, 1, 3}).Draw(t, "flags")}
		for range rapid.IntRange(0, 10).Draw(t, "batches") {
			for range rapid.IntRange(1, 9).Draw(t, "size") {
				want.IDs = append(want.IDs, sample.ID(rapid.Uint32().Draw(t, "id")))
			}
			want.Ends = append(want.Ends, uint32(len(want.IDs)))
		}
		v, err := DecodeWindow(one(t,
			AppendWindow(nil, want.Epoch, want.Flags, want.IDs, want.Ends)).Payload)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if d := cmp.Diff(want, readWindow(v)); d != "" {
			t.Fatalf("%s", d)
		}
	})
}

func TestErrorRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &Error{Code: Code(rapid.Uint16().Draw(t, "code")),
			Fatal: rapid.Bool().Draw(t, "fatal"),
			Epoch: rapid.Uint32().Draw(t, "epoch"), Batch: rapid.Uint32().Draw(t, "batch"),
			Text: rapid.String().Draw(t, "text")}
		got, err := DecodeError(one(t, AppendError(nil, want)).Payload)
		if err != nil || cmp.Diff(want, got) != "" {
			t.Fatalf("%v, %s", err, cmp.Diff(want, got))
		}
	})
	long := &Error{Text: strings.Repeat("é", MaxErrorText)}
	got, err := DecodeError(one(t, AppendError(nil, long)).Payload)
	if err != nil || len(got.Text) != MaxErrorText || strings.Trim(got.Text, "é") != "" {
		t.Errorf("a long text is cut to %d bytes, %v", len(got.Text), err)
	}
}

func TestParseRefusesBeforeItReads(t *testing.T) {
	_, _, _, err := Parse([]byte{1, 0, 0, 1, byte(TypeLease), 0, 0, 0}, MaxFromDaemon)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("a header over the limit: %v", err)
	}
	_, _, _, err = Parse([]byte{0, 0, 0, 0, byte(TypeEnd), 0, 1, 0}, MaxFromDaemon)
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("a header with reserved bits: %v", err)
	}
}

func TestNegotiate(t *testing.T) {
	daemon := Hello{Min: 3, Max: 5, Features: 0b0110}
	for _, c := range []struct {
		client  Hello
		version uint16
		says    string
	}{
		{client: Hello{Min: 1, Max: 3, Features: 0b0011}, version: 3},
		{client: Hello{Min: 4, Max: 4, Features: 0b0010}, version: 4},
		{client: Hello{Min: 5, Max: 9, Features: 0b1010}, version: 5},
		{client: Hello{Min: 1, Max: 2}, says: "upgrade the client"},
		{client: Hello{Min: 6, Max: 6}, says: "upgrade the belady binary"},
	} {
		w, refusal := negotiate(c.client, daemon)
		if c.says == "" {
			if refusal != nil || w.Version != c.version || w.Features != 0b0010 {
				t.Errorf("%+v: got %+v, %v", c.client, w, refusal)
			}
			continue
		}
		if refusal == nil || refusal.Code != CodeVersion || !refusal.Fatal ||
			!strings.Contains(refusal.Text, c.says) {
			t.Errorf("%+v: got %+v, %v; want %q", c.client, w, refusal, c.says)
		}
	}
	if w, refusal := Negotiate(OurHello()); refusal != nil || w.Version != MaxVersion {
		t.Errorf("this build refuses itself: %+v, %v", w, refusal)
	}
}

func TestNames(t *testing.T) {
	for c := CodeInternal; c <= CodeUnequalStart; c++ {
		if strings.HasPrefix(c.String(), "code-") {
			t.Errorf("code %d has no name", c)
		}
	}
	for c := range Cause(Causes) {
		if strings.HasPrefix(c.String(), "cause-") {
			t.Errorf("cause %d has no name", c)
		}
	}
	err := fmt.Errorf("open: %w", someError)
	if !errors.Is(err, &Error{Code: CodeChanged}) || errors.Is(err, &Error{Code: CodeAbsent}) {
		t.Errorf("errors.Is does not go by code")
	}
}

// Clients in other languages are written from the document: it must name what the code names.
func TestDocumentNamesEverything(t *testing.T) {
	text, err := os.ReadFile("../../../docs/format/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	wants := []string{fmt.Sprintf("version %d", MaxVersion), Preamble}
	for c := CodeInternal; c <= CodeUnequalStart; c++ {
		wants = append(wants, fmt.Sprintf("| %d | %s |", c, c))
	}
	for c := range Cause(Causes) {
		wants = append(wants, fmt.Sprintf("| %d | %s |", c, c))
	}
	for typ, name := range typeNames {
		wants = append(wants, fmt.Sprintf("| %d | %s |", typ, name), "### "+name)
	}
	for _, want := range wants {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/format/wire.md does not say %q", want)
		}
	}
}

func TestLargestBatchFits(t *testing.T) {
	for _, k := range []int{0, 1, 2, 7, 65535} {
		n := MaxBatch(k)
		size := func(n int) int {
			if k > 1 {
				return leaseHead + n*(16+4*k)
			}
			return leaseHead + n*16
		}
		if size(n) > MaxFromDaemon || size(n+1) <= MaxFromDaemon {
			t.Errorf("%d fields: MaxBatch is %d", k, n)
		}
	}
}

// The frames of the hot path cost no allocation, either way.
func TestHotPathDoesNotAllocate(t *testing.T) {
	ids, lengths, places := batch256()
	buf := AppendLease(nil, &Lease{}, ids, lengths, places, nil)
	seqs := []uint64{1, 2}
	if n := testing.AllocsPerRun(100, func() {
		buf = AppendLease(buf[:0], &Lease{Seq: 1}, ids, lengths, places, nil)
		f, _, _, err := Parse(buf, MaxFromDaemon)
		if err != nil {
			t.Fatal(err)
		}
		v, err := DecodeLease(f.Payload)
		if err != nil || !v.CheckReceipt() {
			t.Fatal("broken lease")
		}
		buf = AppendCredit(AppendRelease(buf[:0], seqs), 2)
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func batch256() (ids []sample.ID, lengths []uint32, places []Place) {
	for i := range 256 {
		ids = append(ids, sample.ID(i*7919))
		lengths = append(lengths, 3072)
		places = append(places, At(0, uint64(i)*3072))
	}
	return ids, lengths, places
}

func BenchmarkLease256(b *testing.B) {
	ids, lengths, places := batch256()
	buf := AppendLease(nil, &Lease{}, ids, lengths, places, nil)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendLease(buf[:0], &Lease{}, ids, lengths, places, nil)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			v, err := DecodeLease(buf[HeaderSize:])
			if err != nil || !v.CheckReceipt() {
				b.Fatal(err)
			}
		}
	})
}
