package archtest

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the module path of go.mod: an import below it is the project's own.
const module = "belady/"

// A rule says which packages of the project one package may import. A pattern ending in "/..."
// stands for everything below, and a rule for such a pattern speaks for all folders below it; the
// first rule that matches counts.
type rule struct {
	folder string
	may    []string
	why    string
}

// rules is the whole import graph, from the bottom up. A folder no rule speaks of is a violation:
// its place must be decided here first.
var rules = []rule{
	// CORE: pure decisions, shared by the daemon and the simulator. coreRanks orders it inside.
	{"internal/core/order/torch", []string{"internal/core/sample"},
		"PyTorch's generator and draws are order's own and know nothing of Belady but ids"},
	{"internal/core/...", []string{"internal/core/..."},
		"core decides and never acts: what it imported from above could act"},

	// STORE: bytes, decides nothing.
	{"internal/store/vfs", nil,
		"vfs is the seam to the file system: it must stand under every store"},
	{"internal/store/vfs/vfstest", []string{"internal/store/vfs"},
		"file systems that fail are for tests of any store"},
	{"internal/store/segment", []string{"internal/core/sample"},
		"segment is bytes and their meaning; who reads and writes them is the tier's"},
	{"internal/store/arena", []string{"internal/core/sample", "internal/core/dataset"},
		"the arena is memory and knows nothing of where bytes come from"},
	{"internal/store/origin", []string{"internal/core/dataset", "internal/core/sample"},
		"origin is the contract that drivers meet; it cannot know them"},
	{"internal/store/origin/throttle", []string{"internal/core/dataset", "internal/store/origin"},
		"throttle wraps an origin it is given and must work for any"},
	{"internal/store/origin/...", []string{"internal/core/dataset", "internal/core/sample",
		"internal/store/origin", "internal/store/vfs"},
		"origins meet only through package origin, so that each can be replaced or removed alone"},
	{"internal/store/tier", []string{"internal/core/...", "internal/store/arena",
		"internal/store/vfs"},
		"tier is the contract that tiers meet; it cannot know them"},
	{"internal/store/tier/...", []string{"internal/core/...", "internal/store/arena",
		"internal/store/memo", "internal/store/probe", "internal/store/segment", "internal/store/vfs",
		"internal/store/tier"},
		"a tier that knew another would decide where samples go; that is the pump's"},
	{"internal/store/memo", []string{"internal/core/perf", "internal/store/vfs"},
		"a memo is counts that may be lost: whose they are and what they bound is not its business"},
	{"internal/store/audit", []string{"internal/store/segment", "internal/store/vfs"},
		"an audit reads logs by their format alone: what wrote them it cannot know"},
	{"internal/store/jobs", []string{"internal/core/..."},
		"the record of jobs keeps what was delivered and knows neither origins nor memory"},
	{"internal/store/catalog", []string{"internal/core/...", "internal/store/origin",
		"internal/store/vfs"},
		"the catalogue keeps manifests and reads origins only through their contract"},
	{"internal/store/probe", []string{"internal/core/...", "internal/store/arena",
		"internal/store/origin", "internal/store/vfs"},
		"probes measure what they are given through its contract, as the daemon would use it"},

	// NODE: the daemon.
	{"internal/node/event", []string{"internal/core/..."},
		"events are told to everyone, so they may depend on nobody"},
	{"internal/node/wire", []string{"internal/core/..."},
		"wire is spoken by clients too: it must not bring the daemon with it"},
	{"internal/node/...", []string{"internal/core/...", "internal/store/arena",
		"internal/store/catalog", "internal/store/jobs", "internal/store/origin", "internal/store/tier",
		"internal/store/vfs", "internal/node/..."},
		"the daemon moves bytes through the stores' contracts; cmd picks the drivers"},

	// FACES, CLIENT, SIMULATOR.
	{"internal/serve/...", []string{"internal/core/...", "internal/node/..."},
		"a face shows the daemon's data and reads no store behind its back"},
	{"internal/client", []string{"internal/core/...", "internal/node/wire"},
		"a client runs inside a training process: protocol and pure code only"},
	{"internal/sim", []string{"internal/core/..."},
		"the simulator is the other world over the same core: never a store nor the daemon"},
	{"internal/sim/strategy", []string{"internal/core/...", "internal/sim"},
		"the model of a cluster is arithmetic: never a store nor the daemon"},

	// FILES AND PICTURES: what a person writes and sees.
	{"internal/yamlfile", nil,
		"files are read strictly, with places, whatever they say"},
	{"internal/profile", []string{"internal/core/...", "internal/yamlfile"},
		"a profile is a file of core's rates: who measured them is not its business"},
	{"internal/scenario", []string{"internal/core/...", "internal/sim", "internal/sim/strategy",
		"internal/profile", "internal/yamlfile"},
		"a scenario is a file that becomes the simulator's input, never a store's nor the daemon's"},
	{"internal/scenario/show", []string{"internal/scenario", "internal/chart"},
		"showing results decides nothing and runs nothing"},
	{"internal/progress", nil, "how far work is is told in numbers, whatever the work"},
	{"internal/prospect", []string{"internal/core/...", "internal/node/world", "internal/progress",
		"internal/store/tier/ssd", "internal/yamlfile"},
		"a prospect asks the daemon's arithmetic, so that it is the daemon's plan, and runs nothing"},
	{"internal/chart", nil, "pictures are drawn from numbers, whoever counted them"},

	{"internal/archtest", nil, "the laws read the project as text and depend on none of it"},
	{"cmd/belady", []string{"internal/..."},
		"cmd is the one place that knows everything, and nothing imports it"},
}

// coreRanks orders the packages of core: each imports only those of a lower rank, so that data
// flows one way and no decision depends on its own consequence.
var coreRanks = map[string]int{
	"sample":  0,
	"dataset": 1, "importance": 1, "ring": 1, "perf": 1,
	"order": 2, "policy": 2,
	"job": 3, "receipt": 3,
	"plan":  4,
	"pump":  5,
	"trace": 6,
}

const core = "internal/core/"

// checkImports holds the project's own imports to rules and coreRanks. Tests have a law of their
// own: they may use suites and neighbours.
func checkImports(t *tree) (found []violation) {
	for folder := range t.packages() {
		if ruleFor(folder) == nil {
			found = append(found, violation{folder, "no import rule speaks of this package",
				"add one to rules in internal/archtest/imports.go, with its reason"})
		}
	}
	for s := range t.goFiles {
		if s.isTest() {
			continue
		}
		for where, imported := range t.imports(s) {
			target, own := strings.CutPrefix(imported, module)
			if !own {
				continue
			}
			law := fmt.Sprintf("%s must not import %s", s.folder(), target)
			if why := forbidden(s.folder(), target); why != "" {
				found = append(found, violation{where, law, why})
			}
		}
	}
	return found
}

// forbidden returns why folder must not import target, or "" when it may.
func forbidden(folder, target string) string {
	mayKnow := folder == "internal/core/order" || folder == "cmd/belady"
	if path.Dir(target) == "internal/core/order" && !mayKnow {
		return "what lies below core/order is order's own: ask order"
	}
	if r := ruleFor(folder); r != nil && !slices.ContainsFunc(r.may, matcher(target)) {
		return r.why
	}
	if strings.HasPrefix(folder, core) && strings.HasPrefix(target, core) {
		return forbiddenInCore(strings.TrimPrefix(folder, core), strings.TrimPrefix(target, core))
	}
	return ""
}

func forbiddenInCore(folder, target string) string {
	if path.Dir(target) == folder || path.Dir(folder) == "order" {
		return "" // a package's own part, whose imports are its rule's alone
	}
	from, known := coreRanks[folder]
	to, knownToo := coreRanks[target]
	if !known || !knownToo {
		return "core's packages are ordered in coreRanks of internal/archtest/imports.go: " +
			"give this one its place"
	}
	if to >= from {
		return "core imports downwards only: sample < {dataset, importance, ring, perf} < " +
			"{order, policy} < job < plan < pump < trace"
	}
	return ""
}

func ruleFor(folder string) *rule {
	match := matcher(folder)
	for i := range rules {
		if match(rules[i].folder) {
			return &rules[i]
		}
	}
	return nil
}

// matcher tells whether a pattern stands for folder.
func matcher(folder string) func(pattern string) bool {
	return func(pattern string) bool {
		if above, all := strings.CutSuffix(pattern, "/..."); all {
			return folder == above || strings.HasPrefix(folder, above+"/")
		}
		return folder == pattern
	}
}

// imports yields where each import stands and what it names.
func (t *tree) imports(s *source) func(yield func(where, imported string) bool) {
	return func(yield func(where, imported string) bool) {
		for _, spec := range s.syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err == nil && !yield(t.at(s, spec.Pos()), imported) {
				return
			}
		}
	}
}

// worldly are the standard packages core must not import, each with what to do instead. A pattern
// ending in "/..." stands for the package and everything below.
var worldly = []struct{ pattern, why string }{
	{"time/...", "`now` is an argument, so that virtual time works"},
	{"context/...", "pure code neither waits nor is cancelled"},
	{"io/...", "core is handed slices and returns slices"},
	{"bufio/...", "core is handed slices and returns slices"},
	{"os/...", "the world belongs to store and node"},
	{"syscall/...", "the world belongs to store and node"},
	{"net/...", "the world belongs to node"},
	{"embed/...", "the world belongs to store and node"},
	{"log/...", "core returns events and errors; the caller says them"},
	{"math/rand/...", "its streams differ between Go releases; orders are a contract"},
	{"crypto/rand/...", "equal inputs must give equal plans on every node"},
	{"hash/maphash/...", "its seed differs between processes; plans are compared between nodes"},
	{"runtime/...", "a decision must not depend on the machine"},
	{"sync/...", "parallelism over pure code belongs to the caller"},
	{"testing/...", "test code stays in tests"},
	{"unsafe/...", "core is the part that must be right on every architecture"},
	{"reflect/...", "core runs per sample: decide by type, not by reflection"},
}

// coreModules are the modules core may use: pure functions, pinned in go.mod.
var coreModules = []string{"github.com/zeebo/xxh3"}

// checkCorePurity keeps everything that touches the world out of core.
func checkCorePurity(t *tree) (found []violation) {
	for s := range t.goFiles {
		if s.isTest() || !strings.HasPrefix(s.path, core) {
			continue
		}
		for where, imported := range t.imports(s) {
			law := "core must not import " + imported
			match := matcher(imported)
			for _, ban := range worldly {
				if match(ban.pattern) {
					found = append(found, violation{where, law, ban.why})
				}
			}
			foreign := strings.Contains(strings.Split(imported, "/")[0], ".")
			if foreign && !slices.Contains(coreModules, imported) {
				found = append(found, violation{where, law,
					"core uses the standard library and the few pure modules in coreModules"})
			}
		}
	}
	return found
}

// banned are imports no file may have, tests included.
var banned = map[string]string{
	"log":       "diagnostics are events told through log/slog; a log here is records on ssd",
	"io/ioutil": "deprecated: io and os have the same functions",
}

func checkBannedImports(t *tree) (found []violation) {
	for s := range t.goFiles {
		for where, imported := range t.imports(s) {
			if why := banned[imported]; why != "" {
				found = append(found, violation{where, "nothing imports " + imported, why})
			}
		}
	}
	return found
}

// layers, from the bottom up: a test may reach sideways, never upwards.
var layers = []string{"internal/core", "internal/store", "internal/node", "internal/serve", "cmd"}

func layerOf(folder string) int {
	return slices.IndexFunc(layers, func(layer string) bool {
		return folder == layer || strings.HasPrefix(folder, layer+"/")
	})
}

func checkTestImports(t *tree) (found []violation) {
	for s := range t.goFiles {
		if !s.isTest() {
			continue
		}
		for where, imported := range t.imports(s) {
			target, own := strings.CutPrefix(imported, module)
			from, to := layerOf(s.folder()), layerOf(target)
			if own && from >= 0 && to > from {
				found = append(found, violation{where,
					fmt.Sprintf("tests of %s must not import %s", layers[from], target),
					"a layer that needs a higher one to be tested cannot be understood alone"})
			}
		}
	}
	return found
}
