package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// lawful is a small repository that breaks no law; each mutation below changes one file of it.
var lawful = map[string]string{
	"go.mod": "module belady\n",
	"cmd/belady/main.go": `// Command belady is a fixture.
package main

import (
	"fmt"
	"os"

	"belady/internal/store/origin/posix"
)

func main() { fmt.Fprintln(os.Stdout, posix.New()) }
`,
	"internal/core/sample/sample.go": `// Package sample is a fixture.
package sample

type ID uint32
`,
	"internal/core/plan/plan.go": `// Package plan is a fixture.
package plan

import "belady/internal/core/sample"

type Plan struct{ First sample.ID }
`,
	"internal/core/plan/plan_test.go": `package plan

import (
	"os"
	"testing"
	"time"
)

func TestPlan(t *testing.T) { t.Log(os.Args, time.Now()) }
`,
	"internal/store/origin/origin.go": `// Package origin is a fixture.
package origin

import "context"

type Origin interface{ Close(context.Context) error }
`,
	"internal/store/origin/posix/posix.go": `// Package posix is a fixture.
package posix

import "belady/internal/store/origin"

func New() origin.Origin { return nil }
`,
	"internal/sim/sim.go": `// Package sim is a fixture.
package sim

import "belady/internal/core/plan"

func Run(plan.Plan) {}
`,
	"python/tests/test_client.py": "def test_client():\n    pass\n",
}

func fixture(t *testing.T, changes map[string]string) *tree {
	t.Helper()
	fsys := make(fstest.MapFS)
	for name, text := range lawful {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for name, text := range changes {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	parsed, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func broken(t *tree) map[string][]violation {
	found := make(map[string][]violation)
	for name, check := range laws {
		if v := check(t); len(v) > 0 {
			found[name] = v
		}
	}
	return found
}

func TestLawfulFixtureBreaksNoLaw(t *testing.T) {
	if found := broken(fixture(t, nil)); len(found) > 0 {
		t.Fatal(found)
	}
}

// TestMutations breaks one law at a time: that law, and no other, must say so, with its reason.
func TestMutations(t *testing.T) {
	pkg := func(name, rest string) string {
		return fmt.Sprintf("// Package %s is a fixture.\npackage %s\n%s", name, name, rest)
	}
	importing := func(name, imported string) string {
		return pkg(name, fmt.Sprintf("\nimport _ %q\n", imported))
	}
	repeat := strings.Repeat
	mutations := []struct {
		what, law, file, text, says string
	}{
		{"time in core", "pure core", "internal/core/plan/plan.go",
			importing("plan", "time"), "`now` is an argument"},
		{"net/http in core", "pure core", "internal/core/plan/plan.go",
			importing("plan", "net/http"), "belongs to node"},
		{"math/rand/v2 in core", "pure core", "internal/core/plan/plan.go",
			importing("plan", "math/rand/v2"), "differ between Go releases"},
		{"sync/atomic in core", "pure core", "internal/core/plan/plan.go",
			importing("plan", "sync/atomic"), "belongs to the caller"},
		{"a module in core", "pure core", "internal/core/plan/plan.go",
			importing("plan", "golang.org/x/sys/unix"), "few pure modules"},
		{"upwards in core", "imports", "internal/core/sample/sample.go",
			importing("sample", "belady/internal/core/plan"), "downwards only"},
		{"sideways in core", "imports", "internal/core/order/order.go",
			importing("order", "belady/internal/core/policy"), "downwards only"},
		{"torch past order", "imports", "internal/core/plan/plan.go",
			importing("plan", "belady/internal/core/order/torch"), "order's own"},
		{"no rank in core", "imports", "internal/core/fresh/fresh.go",
			importing("fresh", "belady/internal/core/sample"), "give this one its place"},
		{"store in core", "imports", "internal/core/plan/plan.go",
			importing("plan", "belady/internal/store/origin"), "decides and never acts"},
		{"node in store", "imports", "internal/store/origin/posix/posix.go",
			importing("posix", "belady/internal/node/wire"), "only through package origin"},
		{"an origin in an origin", "imports", "internal/store/origin/posix/posix.go",
			importing("posix", "belady/internal/store/origin/s3"), "only through package origin"},
		{"a driver in the daemon", "imports", "internal/node/session/session.go",
			importing("session", "belady/internal/store/origin/s3"), "cmd picks the drivers"},
		{"store in sim", "imports", "internal/sim/sim.go",
			importing("sim", "belady/internal/store/origin"), "the other world"},
		{"the daemon in the client", "imports", "internal/client/client.go",
			importing("client", "belady/internal/node/session"), "training process"},
		{"an unlisted package", "imports", "internal/fresh/fresh.go",
			pkg("fresh", ""), "add one to rules"},
		{"node in store's tests", "tests' imports", "internal/store/origin/posix/posix_test.go",
			"package posix\n\nimport _ \"belady/internal/node/wire\"\n", "understood alone"},
		{"std log", "banned imports", "internal/store/origin/posix/posix.go",
			importing("posix", "log"), "log/slog"},
		{"std log in a test", "banned imports", "internal/core/plan/plan_test.go",
			"package plan\n\nimport _ \"log\"\n", "log/slog"},
		{"no package comment", "package comment", "internal/sim/sim.go",
			"package sim\n", "here are 0"},
		{"two package comments", "package comment", "internal/sim/two.go",
			pkg("sim", ""), "here are 2"},
		{"a comment of another", "package comment", "internal/sim/sim.go",
			"// Sim simulates.\npackage sim\n", "begins with"},
		{"a vague name", "package names", "internal/store/origin/utils/utils.go",
			pkg("utils", ""), "say what it does"},
		{"init", "no init", "internal/sim/sim.go",
			pkg("sim", "\nfunc init() {}\n"), "visible table"},
		{"a skip", "no skips", "internal/core/plan/plan_test.go",
			"package plan\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.Skip() }\n",
			"able to run"},
		{"a Python skip", "no skips", "python/tests/test_client.py",
			"pytest.importor" + "skip('torch')\n", "able to run"},
		{"a long file", "sizes", "internal/core/plan/plan_test.go",
			"package plan\n" + repeat("\n", fileLines), "split it by concept"},
		{"a long function", "sizes", "internal/sim/sim.go",
			pkg("sim", "\nfunc Run() {"+repeat("\n", functionLines)+"}\n"), "fits on a screen"},
		{"a wide struct", "shapes", "internal/sim/sim.go",
			pkg("sim", "\ntype S struct{ "+repeat("A, ", structFields)+"Z int }\n"),
			"several things"},
		{"a wide interface", "shapes", "internal/sim/sim.go",
			pkg("sim", "\ntype I interface{ "+repeat("M(); ", interfaceMethods+1)+"}\n"),
			"can be implemented"},
		{"a long line", "lines", "internal/sim/sim.go",
			pkg("sim", "\n// "+repeat("y", lineColumns)+"\n"), "side by side"},
		{"a long line in a test", "lines", "internal/core/plan/plan_test.go",
			"package plan\n\n// " + repeat("y", lineColumns) + "\n", "side by side"},
		{"a mark", "marks", "internal/sim/sim.go",
			pkg("sim", "\n// TO"+"DO: later\n"), "finish it"},
		{"a mark in Python", "marks", "python/tests/test_client.py",
			"# FIX" + "ME\n", "finish it"},
	}
	covered := make(map[string]bool)
	for _, m := range mutations {
		covered[m.law] = true
		t.Run(m.what, func(t *testing.T) {
			found := broken(fixture(t, map[string]string{m.file: m.text}))
			if names := slices.Collect(maps.Keys(found)); !slices.Equal(names, []string{m.law}) {
				t.Fatalf("broke %v, want only %q: %v", names, m.law, found)
			}
			if text := fmt.Sprint(found[m.law]); !strings.Contains(text, m.says) {
				t.Fatalf("the violation %s does not say %q", text, m.says)
			}
		})
	}
	for name := range laws {
		if !covered[name] {
			t.Errorf("no mutation shows that law %q can fail", name)
		}
	}
}

// TestPackageSize needs several files, which is more than one mutation.
func TestPackageSize(t *testing.T) {
	changes := make(map[string]string)
	for i := range packageLines/fileLines + 1 {
		changes[fmt.Sprintf("internal/sim/part%d.go", i)] =
			"package sim\n" + strings.Repeat("\n", fileLines-1)
	}
	found := broken(fixture(t, changes))
	if text := fmt.Sprint(found["sizes"]); len(found) != 1 || !strings.Contains(text, "giant") {
		t.Fatal(found)
	}
}

// TestExceptions are what the laws leave alone on purpose.
func TestExceptions(t *testing.T) {
	found := broken(fixture(t, map[string]string{
		"internal/core/plan/golden_test.go": "package plan\n\nvar golden = []int{\n\t" +
			strings.Repeat("12345, ", lineColumns) + "\n}\n",
		"internal/core/plan/testdata/broken.go": "not Go at all",
		".cache/tool/tool.go":                   "not Go at all",
		"bench/go.mod":                          "module bench\n",
		"bench/bench.go":                        "not Go at all",
		"internal/core/order/order.go": "// Package order is a fixture.\npackage order\n\n" +
			"import _ \"belady/internal/core/order/torch\"\n",
		"internal/core/order/torch/torch.go": "// Package torch is a fixture.\npackage torch\n\n" +
			"import _ \"belady/internal/core/sample\"\n",
	}))
	if len(found) > 0 {
		t.Fatal(found)
	}
}
