package vfs

import "sync"

// Pool keeps buffers of one size for direct I/O. There are as many as were ever in use at a time.
type Pool struct {
	Bytes int // of each

	mu   sync.Mutex
	idle [][]byte
}

// Take returns a buffer that may hold anything.
func (p *Pool) Take() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		buf := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return buf
	}
	return Aligned(p.Bytes)
}

// Put takes a buffer back.
func (p *Pool) Put(buf []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, buf)
}

// Free gives back the memory of all that were put back.
func (p *Pool) Free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, buf := range p.idle {
		Free(buf)
	}
	p.idle = nil
}
