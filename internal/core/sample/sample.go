// Package sample names the unit of everything: one training example.
//
// An ID is a dense index into one manifest, so that per-sample state anywhere is a slice, never a
// map. It imports nothing and may be imported by everything.
package sample

// ID is a sample's index in its dataset's manifest: 0 ≤ ID < Manifest.Len().
type ID uint32

// MaxCount is the largest number of samples one manifest may hold. The last ID is kept free so
// that None can stand for "no sample".
const MaxCount = 1<<32 - 1

// None is no sample.
const None ID = 1<<32 - 1

// MaxSize is the largest sample in bytes. Sizes travel as uint32 everywhere.
const MaxSize = 1<<32 - 2
