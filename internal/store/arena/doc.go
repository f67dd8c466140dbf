// Package arena keeps the bytes of samples in memory that clients can map but not change.
//
// One arena belongs to one dataset on one node. It is a list of slabs; each slab is a sealed memfd
// carved into spans of 2 MiB; each span holds slots (kept samples and single fetches, in size
// classes), a piece of a run (bump-allocated, freed whole), or part of one large sample. The bits
// are drawn in docs/format/arena.md.
//
// Who may call what: an Arena has one owner goroutine, and every method belongs to it except
// Bytes, Direct, Gather, Err and WaitReady, which any goroutine may call. The first three need the
// place to stay live during the call; who writes and who reads the bytes behind a place is for the
// caller to order. A Pool is safe for concurrent use. A Ring has one owner goroutine.
//
// Memory is faulted in before it is handed out, and only as far as the machine and its control
// groups have it, so running out is an error or a refused allocation, never a signal. Nothing has a
// name in a file system: a crash leaves nothing behind.
//
// The package never decides what to keep or drop, never reads a clock, and never writes a file.
// Freeing a place twice, or a place of another arena, is a broken invariant and panics.
package arena
