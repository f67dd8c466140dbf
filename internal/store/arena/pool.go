package arena

import (
	"errors"
	"fmt"
	"sync"
)

// ErrNoBudget says that the node's memory budget has no room for the slabs asked for. Shrink
// another dataset, or give the node more memory.
var ErrNoBudget = errors.New("memory budget is spent")

// Pool is the node's byte budget, from which arenas take slabs and rings their buffers. Memory
// moves between datasets by one arena giving slabs back and another taking them. Safe for
// concurrent use.
type Pool struct {
	total int64

	mu   sync.Mutex
	used int64
}

// NewPool makes a budget of the given bytes. It takes no memory.
func NewPool(bytes int64) *Pool { return &Pool{total: bytes} }

// Total is the whole budget in bytes.
func (p *Pool) Total() int64 { return p.total }

// Left is what nobody has taken, in bytes.
func (p *Pool) Left() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total - p.used
}

// Lend takes bytes for buffers that are no arena's; false if there are not as many left.
func (p *Pool) Lend(bytes int64) bool { return p.take(bytes) == nil }

// Return gives back what was lent.
func (p *Pool) Return(bytes int64) { p.give(bytes) }

func (p *Pool) take(bytes int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+bytes > p.total {
		return fmt.Errorf("take %d bytes, %d of %d are left: %w",
			bytes, p.total-p.used, p.total, ErrNoBudget)
	}
	p.used += bytes
	return nil
}

func (p *Pool) give(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= bytes
	if p.used < 0 {
		panic(fmt.Sprintf("arena: pool was given back %d bytes more than taken", -p.used))
	}
}
