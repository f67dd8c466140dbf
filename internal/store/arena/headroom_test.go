package arena

import (
	"math"
	"os"
	"testing"
	"testing/fstest"
)

func TestAvailableIsTheTightestLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	root := fstest.MapFS{}
	expect := func(what string, want int64) {
		t.Helper()
		if got := available(root); got != want {
			t.Errorf("%s: %d bytes, want %d", what, got, want)
		}
	}
	expect("nothing known", math.MaxInt64)
	root["proc/meminfo"] = file("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
	expect("machine", 8000*1024)
	root["proc/self/cgroup"] = file("0::/pods/one\n")
	expect("no controller", 8000*1024)
	root["sys/fs/cgroup/pods/one/memory.max"] = file("max\n")
	root["sys/fs/cgroup/pods/one/memory.current"] = file("100\n")
	expect("unlimited group", 8000*1024)
	root["sys/fs/cgroup/pods/memory.max"] = file("5000\n")
	root["sys/fs/cgroup/pods/memory.current"] = file("3000\n")
	expect("limited parent", 2000)
	root["sys/fs/cgroup/pods/memory.stat"] = file("anon 7\ninactive_file 500\n")
	expect("idle file pages", 2500)
	root["sys/fs/cgroup/pods/one/memory.max"] = file("1000\n")
	expect("limited group", 900)
	root["proc/self/cgroup"] = file("0::/\n")
	root["sys/fs/cgroup/memory.max"] = file("70\n")
	root["sys/fs/cgroup/memory.current"] = file("7\n")
	expect("namespace root", 63)
	root["proc/self/cgroup"] = file("4:memory:/old\n")
	expect("version 1 only", 8000*1024)
}

func TestAvailableOfThisMachine(t *testing.T) {
	if got := available(os.DirFS("/")); got <= 0 || got == math.MaxInt64 {
		t.Fatalf("%d bytes", got)
	}
}
