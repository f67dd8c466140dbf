package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits: the sizes at which code elsewhere has started to go wrong.
const (
	lineColumns      = 100 // in characters: a tab counts one
	functionLines    = 70
	fileLines        = 600
	packageLines     = 4000
	structFields     = 20
	interfaceMethods = 5
)

var vagueNames = []string{
	"util", "utils", "common", "helper", "helpers", "misc", "types", "base", "lib",
}

func checkPackageNames(t *tree) (found []violation) {
	for folder, files := range t.packages() {
		for _, name := range []string{path.Base(folder), files[0].syntax.Name.Name} {
			if slices.Contains(vagueNames, strings.TrimSuffix(name, "_test")) {
				found = append(found, violation{folder, "no package is named " + name,
					"a name that fits everything collects everything: say what it does"})
				break
			}
		}
	}
	return found
}

// checkPackageComments wants exactly one package comment a folder: a contract has one text.
func checkPackageComments(t *tree) (found []violation) {
	const why = "the package comment is the contract: what it is, who may use it how, " +
		"what it never does"
	for folder, files := range t.packages() {
		var commented []string
		for _, s := range files {
			if s.syntax.Doc == nil {
				continue
			}
			commented = append(commented, path.Base(s.path))
			name := s.syntax.Name.Name
			opening := "Package " + name + " "
			if name == "main" {
				opening = "Command " + path.Base(folder) + " "
			}
			if !strings.HasPrefix(s.syntax.Doc.Text(), opening) {
				found = append(found, violation{s.path,
					fmt.Sprintf("the package comment begins with %q", opening), why})
			}
		}
		if len(commented) != 1 {
			found = append(found, violation{folder, fmt.Sprintf(
				"one package comment a folder, here are %d %v", len(commented), commented), why})
		}
	}
	return found
}

func checkNoInit(t *tree) (found []violation) {
	for s := range t.goFiles {
		for _, decl := range s.syntax.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if ok && function.Recv == nil && function.Name.Name == "init" {
				found = append(found, violation{t.at(s, decl.Pos()), "no init()",
					"names map to constructors in one visible table, and import order is no input"})
			}
		}
	}
	return found
}

var (
	skipCalls    = []string{"Skip", "Skipf", "SkipNow"}
	testingNames = []string{"t", "b", "f", "tb"}
	pythonSkips  = regexp.MustCompile(`pytest\.skip|mark\.skip|importor` + `skip|SkipTest`)
)

// checkNoSkips: a test that cannot run must fail, and what it needs be installed by `make test`.
func checkNoSkips(t *tree) (found []violation) {
	const why = "a skip nobody sees is a hole in the proof: make the test able to run"
	for _, s := range t.files {
		if path.Ext(s.path) == ".py" {
			for number, line := range lines(s) {
				if pythonSkips.MatchString(line) {
					found = append(found, violation{
						fmt.Sprintf("%s:%d", s.path, number), "no test is skipped", why})
				}
			}
		}
		if s.syntax == nil {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(skipCalls, selector.Sel.Name) {
				return true
			}
			on, ok := selector.X.(*ast.Ident)
			if ok && slices.Contains(testingNames, on.Name) {
				found = append(found, violation{t.at(s, n.Pos()), "no test is skipped", why})
			}
			return true
		})
	}
	return found
}

// checkSizes bounds files, packages and functions.
func checkSizes(t *tree) (found []violation) {
	inPackage := make(map[string]int)
	for s := range t.goFiles {
		length := strings.Count(s.text, "\n")
		if length > fileLines {
			found = append(found, violation{s.path,
				fmt.Sprintf("a file has at most %d lines, not %d", fileLines, length),
				"a file is one thought: split it by concept"})
		}
		if s.isTest() {
			continue
		}
		inPackage[s.folder()] += length
		for _, decl := range s.syntax.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if length := t.span(function); length > functionLines {
				found = append(found, violation{t.at(s, decl.Pos()), fmt.Sprintf(
					"function %s has %d lines, at most %d", function.Name.Name, length,
					functionLines), "a function fits on a screen: push loops down and ifs up"})
			}
		}
	}
	for folder, length := range inPackage {
		if length > packageLines {
			found = append(found, violation{folder,
				fmt.Sprintf("a package has at most %d lines, not %d", packageLines, length),
				"small packages at the leaves do not prevent a giant at the centre"})
		}
	}
	return found
}

func (t *tree) span(n ast.Node) int {
	return t.fset.Position(n.End()).Line - t.fset.Position(n.Pos()).Line + 1
}

// checkShapes bounds structs and interfaces. An embedded type counts as one.
func checkShapes(t *tree) (found []violation) {
	for s := range t.goFiles {
		if s.isTest() {
			continue
		}
		report := func(pos token.Pos, kind string, have, limit int, why string) {
			if have > limit {
				found = append(found, violation{t.at(s, pos),
					fmt.Sprintf("%s has %d, at most %d", kind, have, limit), why})
			}
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				report(n.Pos(), "fields: this struct", n.Fields.NumFields(), structFields,
					"so many fields are several things: group what changes together")
			case *ast.InterfaceType:
				report(n.Pos(), "methods: this interface", n.Methods.NumFields(), interfaceMethods,
					"a small interface can be implemented and faked; more is optional")
			}
			return true
		})
	}
	return found
}

// goldenLine is pure data, as in tables of expected values: reading it in columns does not matter.
var goldenLine = regexp.MustCompile(`^[\s{}\[\](),:"0-9a-fA-Fx+.-]*$`)

func checkLines(t *tree) (found []violation) {
	for s := range t.goFiles {
		for number, line := range lines(s) {
			width := utf8.RuneCountInString(line)
			if width > lineColumns && !(s.isTest() && goldenLine.MatchString(line)) {
				found = append(found, violation{fmt.Sprintf("%s:%d", s.path, number),
					fmt.Sprintf("a line has at most %d columns, not %d", lineColumns, width),
					"two files side by side must fit a screen"})
			}
		}
	}
	return found
}

// unfinished is put together from halves so that this file does not break its own law.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

func checkMarks(t *tree) (found []violation) {
	for _, s := range t.files {
		for number, line := range lines(s) {
			if mark := unfinished.FindString(line); mark != "" {
				found = append(found, violation{fmt.Sprintf("%s:%d", s.path, number),
					"no " + mark + " marks", "finish it, or write an issue that someone will read"})
			}
		}
	}
	return found
}

// lines yields the lines of a file, numbered from one.
func lines(s *source) func(yield func(number int, line string) bool) {
	return func(yield func(number int, line string) bool) {
		number := 0
		for line := range strings.Lines(s.text) {
			number++
			if !yield(number, strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	}
}
