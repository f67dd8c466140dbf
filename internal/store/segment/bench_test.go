package segment

import (
	"fmt"
	"testing"
)

// BenchmarkSum is what verifying a read costs a sample.
func BenchmarkSum(b *testing.B) {
	for _, size := range []int{64, 3 << 10, 110 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			bytes, binding := content(1, size), bind(1)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				binding.Sum(Entry{ID: 1, Length: uint32(size)}, 7, bytes)
			}
		})
	}
}

// BenchmarkAdd is what an append costs a sample.
func BenchmarkAdd(b *testing.B) {
	for _, size := range []int{64, 3 << 10, 110 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			bytes, buf := content(1, size), make([]byte, 16<<20)
			var s Builder
			s.Begin(bind(1), Tag{Generation: 1}, buf)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.Add(1, bytes); !ok {
					s.Close(0)
					s.Begin(bind(1), Tag{Generation: 1}, buf)
				}
			}
		})
	}
}
