package arena_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"belady/internal/store/arena"
)

func TestHugeIsASliceOfZeros(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 1<<20 + 7} {
		s := arena.Huge[[2]uint64](n)
		if len(s) != n {
			t.Fatalf("%d elements, want %d", len(s), n)
		}
		for i, v := range s {
			if v != [2]uint64{} {
				t.Fatalf("element %d is %v", i, v)
			}
		}
	}
}

// The kernel's own account says whether the advice reached the pages of the slice: "hg" among the
// flags of the mapping that holds its middle.
func TestHugeAsksForHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Logf("this kernel has no huge pages to give: %v", err)
		return
	}
	s := arena.Huge[uint64](8 << 20)
	middle := uintptr(unsafe.Pointer(&s[len(s)/2]))
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	inside := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			inside = from <= middle && middle < to
		}
		if flags, found := strings.CutPrefix(lines.Text(), "VmFlags:"); found && inside {
			if !strings.Contains(flags+" ", " hg ") {
				t.Errorf("flags of the mapping:%s", flags)
			}
			return
		}
	}
	t.Error("no mapping holds the slice")
}
