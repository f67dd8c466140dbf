package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"belady/internal/core/job"
	"belady/internal/core/order"
)

// Limits of an Attach, checked before anything is looked up.
const (
	MaxNameBytes = 1024
	MaxDatasets  = 256
)

// Attach is what one rank of a job wants to read. Unknown JSON fields are ignored, so that a newer
// client can say more to an older daemon.
type Attach struct {
	// Job names the training run; ranks and restarts of one run use one name.
	Job string `json:"job"`
	// Datasets are read as one: ids of the second follow those of the first.
	Datasets []Dataset `json:"datasets"`
	// Order decides who reads what and when.
	Order order.Spec `json:"order"`
	// Epochs is the number of the epoch after the last: 10 means epochs 0 to 9.
	Epochs int   `json:"epochs"`
	Start  Start `json:"start"`
	Rank   int   `json:"rank"`
	// Policy is the kept set's; empty is the daemon's choice.
	Policy string `json:"policy,omitempty"`
	// Packed asks for packed leases where the samples allow it.
	Packed bool   `json:"packed,omitempty"`
	Client Client `json:"client"`
	// Share says what an explicit order is a part of, for the record; with FeatureShare.
	Share *Share `json:"share,omitempty"`
	// Begins is how often, this time included, the client's process has begun to read this order as
	// this rank: anew, or from a checkpoint. 0: it does not say, or goes on after a reconnect. Ranks
	// that begin for the same time must begin at the same position; with FeatureBegin.
	Begins int `json:"begins,omitempty"`
}

// Share is a worker's part of its rank's epoch, from a position on: the batches First, First+Step
// and so on.
type Share struct {
	Order    order.Spec `json:"order"`
	Rank     int        `json:"rank"`
	Epoch    int        `json:"epoch"`
	Position int64      `json:"position"`
	First    int        `json:"first"`
	Step     int        `json:"step"`
}

// Dataset is one dataset of a job. Weight is its share of the draws where the order has any;
// 0 means 1.
type Dataset struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight,omitempty"`
}

// Start is where a session begins. Position is c: how many entries of the epoch's permutation
// were already returned, over all ranks; what is left is dealt anew from there. Batch is the index
// of the first batch wanted among those, and is what a reconnecting client moves forward. A Batch
// equal to the epoch's number of batches means the next epoch's first.
type Start = job.Start

// Client says who asks, for events and `belady status`.
type Client struct {
	PID  int    `json:"pid,omitempty"`
	Name string `json:"name,omitempty"`
}

// Attached is the daemon's answer to Attach.
type Attached struct {
	// Session is the daemon's name for this connection.
	Session string `json:"session"`
	// Samples is the number of samples of all datasets together.
	Samples int `json:"samples"`
	// Batches is the number of batches of a whole epoch of this rank; 0 for explicit orders.
	Batches int `json:"batches_per_epoch"`
	// Fields names the parts of a sample; empty or one name means that a sample is one piece.
	Fields []string `json:"fields,omitempty"`
	// Content is the content id of the datasets; a client that reconnects compares it.
	Content string `json:"content"`
	// Start is where delivery begins, in normal form: Batch below the epoch's number of batches.
	Start Start `json:"start"`
}

// AppendAttach appends the frame. It fails only on what JSON cannot say (a weight of NaN).
func AppendAttach(dst []byte, a *Attach) ([]byte, error) { return appendJSON(dst, TypeAttach, a) }

// AppendAttached appends the frame.
func AppendAttached(dst []byte, a *Attached) ([]byte, error) {
	return appendJSON(dst, TypeAttached, a)
}

func appendJSON(dst []byte, t Type, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("encode %s: %w", t, err)
	}
	out, at := begin(dst, t)
	return finish(append(out, text...), at), nil
}

// DecodeAttach checks what can be checked without knowing any dataset; the order's own rules are
// the order's to check.
func DecodeAttach(p []byte) (*Attach, error) {
	a := new(Attach)
	if err := json.Unmarshal(p, a); err != nil {
		return nil, fmt.Errorf("%w: Attach: %w", ErrMalformed, err)
	}
	if err := a.validate(); err != nil {
		// Well-formed, but it asks for what cannot be.
		return nil, &Error{Code: CodeBadRequest, Fatal: true, Text: err.Error()}
	}
	return a, nil
}

func (a *Attach) validate() error {
	if n := len(a.Datasets); n == 0 || n > MaxDatasets {
		return fmt.Errorf("%d datasets, not 1 to %d", n, MaxDatasets)
	}
	for _, d := range a.Datasets {
		if err := nameFits("dataset", d.Name); err != nil {
			return err
		}
		if d.Name == "" || d.Weight < 0 || math.IsInf(d.Weight, 0) || math.IsNaN(d.Weight) {
			return fmt.Errorf("dataset %q with weight %g: a name and a weight ≥ 0 are needed",
				d.Name, d.Weight)
		}
	}
	for _, n := range [...][2]string{
		{"job", a.Job}, {"policy", a.Policy}, {"client", a.Client.Name}, {"order", a.Order.Kind},
	} {
		if err := nameFits(n[0], n[1]); err != nil {
			return err
		}
	}
	if world := max(a.Order.World, 1); a.Rank < 0 || a.Rank >= world {
		return fmt.Errorf("rank %d is not in a world of %d: ranks are 0 to %d",
			a.Rank, world, world-1)
	}
	if a.Epochs < 1 || int64(a.Epochs) > math.MaxUint32 {
		return fmt.Errorf("epochs is %d: at least 1 is needed", a.Epochs)
	}
	if err := startFits(a.Start); err != nil {
		return err
	}
	if a.Start.Epoch > a.Epochs {
		return fmt.Errorf("start at epoch %d, but the job ends after %d", a.Start.Epoch, a.Epochs)
	}
	if a.Begins < 0 {
		return fmt.Errorf("begins is %d: it counts from 1", a.Begins)
	}
	if a.Share != nil && (a.Order.Kind != order.Explicit || a.Epochs != 1) {
		return errors.New("a share is of an explicit order of one epoch")
	}
	return a.Share.validate()
}

func (s *Share) validate() error {
	if s == nil {
		return nil
	}
	if !s.Order.Known() || s.Rank < 0 || s.Rank >= s.Order.Ranks() || s.Epoch < 0 ||
		s.Position < 0 || s.First < 0 || int64(s.First) > math.MaxUint32 || s.Step < 1 ||
		int64(s.Step) > math.MaxUint32 {
		return fmt.Errorf("a share of order %s for rank %d, batches from %d by %d: out of range",
			s.Order.Kind, s.Rank, s.First, s.Step)
	}
	return s.Order.Validate()
}

func nameFits(what, name string) error {
	if len(name) > MaxNameBytes {
		return fmt.Errorf("the %s name has %d bytes, at most %d are allowed",
			what, len(name), MaxNameBytes)
	}
	return nil
}

// startFits keeps what leases count in u32 inside u32.
func startFits(s Start) error {
	if s.Epoch < 0 || int64(s.Epoch) > math.MaxUint32 || s.Position < 0 ||
		s.Batch < 0 || int64(s.Batch) > math.MaxUint32 {
		return fmt.Errorf("start at epoch %d, position %d, batch %d: out of range",
			s.Epoch, s.Position, s.Batch)
	}
	return nil
}

// DecodeAttached checks only what a client computes with.
func DecodeAttached(p []byte) (*Attached, error) {
	a := new(Attached)
	if err := json.Unmarshal(p, a); err != nil {
		return nil, fmt.Errorf("%w: Attached: %w", ErrMalformed, err)
	}
	if err := startFits(a.Start); err != nil {
		return nil, fmt.Errorf("%w: Attached: %w", ErrMalformed, err)
	}
	if a.Samples < 0 || a.Batches < 0 {
		return nil, fmt.Errorf("%w: Attached: %d samples, %d batches",
			ErrMalformed, a.Samples, a.Batches)
	}
	return a, nil
}
