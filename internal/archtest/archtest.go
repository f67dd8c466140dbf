// Package archtest holds the laws of this repository as tests: which package may import which, and
// how large and of what shape code may be.
//
// Nothing imports it and it imports nothing of the project: it reads the sources as text. They are
// parsed in this process, never through `go list`: the test cache sees files a test opens but not
// what a child process reads, and would replay a pass after a violation.
//
// A law is a function from the source tree to violations. Each violation says where, which law,
// and why the law is there. To change a law, change its table here and say why in the commit.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A violation is one place where a law is broken.
type violation struct {
	where string // path, or path:line
	law   string
	why   string
}

func (v violation) String() string { return v.where + ": " + v.law + " (" + v.why + ")" }

// A law looks at the whole tree, because some laws speak of packages and not of files.
type law func(t *tree) []violation

// laws are all of them; the repository must give each one nothing to say.
var laws = map[string]law{
	"imports":         checkImports,
	"pure core":       checkCorePurity,
	"banned imports":  checkBannedImports,
	"tests' imports":  checkTestImports,
	"package comment": checkPackageComments,
	"package names":   checkPackageNames,
	"no init":         checkNoInit,
	"no skips":        checkNoSkips,
	"sizes":           checkSizes,
	"shapes":          checkShapes,
	"lines":           checkLines,
	"marks":           checkMarks,
}

// tree is the repository's source, parsed.
type tree struct {
	fset  *token.FileSet
	files []*source
}

// source is one file. Only Go files have a syntax; scripts and Python are text.
type source struct {
	path   string // slash-separated, from the root
	text   string
	syntax *ast.File
}

func (s *source) folder() string { return path.Dir(s.path) }
func (s *source) isTest() bool   { return strings.HasSuffix(s.path, "_test.go") }

// goFiles yields the Go files in a stable order.
func (t *tree) goFiles(yield func(*source) bool) {
	for _, s := range t.files {
		if s.syntax != nil && !yield(s) {
			return
		}
	}
}

// packages groups the Go files by folder.
func (t *tree) packages() map[string][]*source {
	byFolder := make(map[string][]*source)
	for s := range t.goFiles {
		byFolder[s.folder()] = append(byFolder[s.folder()], s)
	}
	return byFolder
}

func (t *tree) at(s *source, pos token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, t.fset.Position(pos).Line)
}

// textKinds are the suffixes read beside Go, for the laws about text.
var textKinds = []string{".go", ".py", ".sh"}

// load reads and parses every source file below the root of fsys. It leaves out testdata, hidden
// folders (tools and their downloads) and nested modules (they have laws of their own).
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(fsys, name)
		}
		if !slices.Contains(textKinds, path.Ext(name)) {
			return nil
		}
		return t.add(fsys, name)
	})
	return t, err
}

func skipFolder(fsys fs.FS, name string) error {
	if name == "." {
		return nil
	}
	base := path.Base(name)
	_, err := fs.Stat(fsys, path.Join(name, "go.mod"))
	if strings.HasPrefix(base, ".") || base == "testdata" || err == nil {
		return fs.SkipDir
	}
	return nil
}

func (t *tree) add(fsys fs.FS, name string) error {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	s := &source{path: name, text: string(text)}
	if path.Ext(name) == ".go" {
		mode := parser.ParseComments | parser.SkipObjectResolution
		if s.syntax, err = parser.ParseFile(t.fset, name, text, mode); err != nil {
			return err
		}
	}
	t.files = append(t.files, s)
	return nil
}
