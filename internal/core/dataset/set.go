package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"belady/internal/core/sample"
)

// Set is what a job reads: one manifest, or several joined end to end. Its ids run through the
// members in order.
type Set struct {
	members []*Manifest
	weights []float64
	// starts[i] is the first id of member i; one more entry holds the length.
	starts []int
}

var _ Sizes = (*Set)(nil)

// NewSet joins manifests. weights, if any, are one positive number a member: the chance of a
// member, spread evenly over its samples.
func NewSet(members []*Manifest, weights []float64) (*Set, error) {
	if len(members) == 0 {
		return nil, errors.New("a job needs at least one dataset")
	}
	if len(weights) != 0 && len(weights) != len(members) {
		return nil, fmt.Errorf("%d weights for %d datasets: give one for each, or none",
			len(weights), len(members))
	}
	for i, w := range weights {
		if !(w > 0) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("weight %v of dataset %d must be a positive number", w, i)
		}
	}
	s := &Set{members: members, weights: weights, starts: make([]int, 1, len(members)+1)}
	for _, m := range members {
		s.starts = append(s.starts, s.Len()+m.Len())
	}
	if s.Len() > sample.MaxCount {
		return nil, fmt.Errorf("the datasets have %d samples together, at most %d are possible",
			s.Len(), uint32(sample.MaxCount))
	}
	return s, nil
}

// Members are the manifests; the caller must not change the slice.
func (s *Set) Members() []*Manifest { return s.members }

// Len is the number of samples of all members.
func (s *Set) Len() int { return s.starts[len(s.starts)-1] }

// Locate finds the member that holds a sample, and the sample's id in it.
func (s *Set) Locate(id sample.ID) (member int, local sample.ID) {
	if len(s.members) == 1 {
		return 0, id
	}
	member = sort.SearchInts(s.starts, int(id)+1) - 1
	return member, id - sample.ID(s.starts[member])
}

// Size is the sample's size in bytes.
func (s *Set) Size(id sample.ID) uint32 {
	if len(s.members) == 1 {
		return s.members[0].Size(id) // asked of every sample when a dataset is opened
	}
	member, local := s.Locate(id)
	return s.members[member].Size(local)
}

// Name is the sample's name in its own dataset.
func (s *Set) Name(id sample.ID) string {
	member, local := s.Locate(id)
	return s.members[member].Name(local)
}

// Label is the sample's label in its own dataset.
func (s *Set) Label(id sample.ID) int32 {
	member, local := s.Locate(id)
	return s.members[member].Label(local)
}

// Parts appends the sample's parts to dst; they are objects of the member's origin.
func (s *Set) Parts(id sample.ID, dst []Part) []Part {
	member, local := s.Locate(id)
	return s.members[member].Parts(local, dst)
}

// TotalBytes is the sum of all sizes.
func (s *Set) TotalBytes() int64 {
	total := int64(0)
	for _, m := range s.members {
		total += m.TotalBytes()
	}
	return total
}

// MaxSize is the largest sample's size in bytes.
func (s *Set) MaxSize() uint32 {
	largest := uint32(0)
	for _, m := range s.members {
		largest = max(largest, m.MaxSize())
	}
	return largest
}

// setDomain separates the ids of sets from content ids.
const setDomain = "belady dataset set 1"

// ID names the members, their order and their weights. One member without a weight has its own id.
func (s *Set) ID() ID {
	if len(s.members) == 1 && len(s.weights) == 0 {
		return s.members[0].ID()
	}
	text := append([]byte(nil), setDomain...)
	for i, m := range s.members {
		id := m.ID()
		text = append(text, id[:]...)
		if len(s.weights) > 0 {
			text = binary.LittleEndian.AppendUint64(text, math.Float64bits(s.weights[i]))
		}
	}
	return sha256.Sum256(text)
}

// SampleWeights are the weights of all samples: a member's weight divided by its length, so that
// drawing by them draws each member in proportion to its weight. Nil if the set has no weights.
func (s *Set) SampleWeights() []float64 {
	if len(s.weights) == 0 {
		return nil
	}
	counts := make([]int, len(s.members))
	for i, m := range s.members {
		counts[i] = m.Len()
	}
	return SampleWeights(counts, s.weights)
}

// SampleWeights is Set.SampleWeights for members of which only the lengths are known.
func SampleWeights(counts []int, weights []float64) []float64 {
	var all []float64
	for i, n := range counts {
		all = append(all, slices.Repeat([]float64{weights[i] / float64(n)}, n)...)
	}
	return all
}
