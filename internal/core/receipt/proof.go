package receipt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"belady/internal/core/order"
	"belady/internal/core/sample"
)

// Epoch is the proof of one epoch of one order: of what was delivered from a position on, to all
// the ranks that are known here.
type Epoch struct {
	Reading  Reading `json:"-"` // of one of the ranks
	Number   int     `json:"epoch"`
	Position int64   `json:"position"`
	// Begun: some rank attached there, or is known to have taken something. Of others only the first
	// batches were sent, ahead of loops that ended before.
	Begun bool   `json:"begun"`
	Ranks []Rank `json:"ranks"`
	// Padding is what was delivered once more than the epoch has it, by rank.
	Padding []Padding `json:"padding"`
}

// Padding is one entry that a rank was sent although another rank, or an earlier batch, has it too:
// ranks read equally many, and the epoch does not divide by them.
type Padding struct {
	Rank   int       `json:"rank"`
	Batch  int       `json:"batch"`
	Sample sample.ID `json:"sample"`
}

func paddingOf(e order.Epoch, rank int) (all []Padding) {
	for i := len(e.IDs) - e.Padding; i < len(e.IDs); i++ {
		all = append(all, Padding{Rank: rank, Batch: i / e.Batch, Sample: e.IDs[i]})
	}
	return all
}

// Rank is one rank's part of a proof.
type Rank struct {
	Rank int `json:"rank"`
	// Due is how many batches the order has for it, Sent how many of them were delivered at least
	// once.
	Due  int `json:"batches_due"`
	Sent int `json:"batches_sent"`
	// Wrong says what is not as the order has it; empty: all that was delivered is.
	Wrong string `json:"wrong,omitempty"`

	sent    []bool    // by batch
	padding []Padding // sent or not
}

// Whole says that every rank known here was sent everything.
func (e *Epoch) Whole() bool {
	return !slices.ContainsFunc(e.Ranks, func(r Rank) bool { return r.Sent < r.Due })
}

// Wrong says that some rank was sent something else than the order gives.
func (e *Epoch) Wrong() bool {
	return slices.ContainsFunc(e.Ranks, func(r Rank) bool { return r.Wrong != "" })
}

// ProveAll proves accounts, in whatever order they come, epoch by epoch. An account without batches
// says that a rank meant to read there. only, if not negative, is the one epoch to prove.
func ProveAll(accounts []Account, only int) ([]Epoch, error) {
	p := prover{orders: map[string]order.Order{}, at: map[string]int{}}
	for i := range accounts {
		if a := &accounts[i]; only < 0 || a.Epoch == only {
			if err := p.add(a); err != nil {
				return nil, err
			}
		}
	}
	for i := range p.epochs {
		e := &p.epochs[i]
		slices.SortFunc(e.Ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
		for _, r := range e.Ranks {
			for _, p := range r.padding {
				if r.sent != nil && r.sent[p.Batch] {
					e.Padding = append(e.Padding, p)
				}
			}
		}
	}
	slices.SortStableFunc(p.epochs, func(a, b Epoch) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Position, b.Position))
	})
	return p.epochs, nil
}

// prover gathers proofs. Orders are kept, since each keeps the permutation its ranks share.
type prover struct {
	orders map[string]order.Order
	epochs []Epoch
	at     map[string]int // of an epoch in epochs
}

func (p *prover) add(a *Account) error {
	reading := a.Reading
	reading.Rank = 0
	text, err := json.Marshal(reading)
	if err != nil {
		return fmt.Errorf("an account's order cannot be told: %w", err)
	}
	key := string(text)
	if p.orders[key] == nil {
		if p.orders[key], err = a.New(); err != nil {
			return err
		}
	}
	place := fmt.Sprintf("%s %d %d", key, a.Epoch, a.Position)
	i, known := p.at[place]
	if !known {
		i = len(p.epochs)
		p.at[place] = i
		p.epochs = append(p.epochs, Epoch{Reading: a.Reading, Number: a.Epoch,
			Position: a.Position, Padding: []Padding{}})
	}
	p.epochs[i].Begun = p.epochs[i].Begun || !a.Ahead
	p.epochs[i].rank(a.Rank).add(a, p.orders[key])
	return nil
}

func (e *Epoch) rank(number int) *Rank {
	for i := range e.Ranks {
		if e.Ranks[i].Rank == number {
			return &e.Ranks[i]
		}
	}
	e.Ranks = append(e.Ranks, Rank{Rank: number})
	return &e.Ranks[len(e.Ranks)-1]
}

// add proves one account; the first that is wrong is what is said.
func (r *Rank) add(a *Account, o order.Order) {
	f, err := a.Prove(o)
	r.Due = max(r.Due, f.Due)
	if err == nil {
		r.padding = f.padding
	}
	switch {
	case r.Wrong != "" || a.Chain.Batches == 0 && err == nil:
	case err != nil:
		r.Wrong = err.Error()
	case f.Differs && f.From == f.To:
		r.Wrong = fmt.Sprintf("batch %d is not what the order gives", f.From)
	case f.Differs:
		r.Wrong = fmt.Sprintf("one of batches %d to %d is not what the order gives", f.From, f.To)
	default:
		r.count(a)
	}
}

// count adds up the batches sent, each once. All of them are in the order.
func (r *Rank) count(a *Account) {
	if r.sent == nil {
		r.sent = make([]bool, r.Due)
	}
	for i := range a.Chain.Batches {
		if b := a.Batch(i); !r.sent[b] {
			r.sent[b] = true
			r.Sent++
		}
	}
}
