package archtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestLaws holds the repository to every law.
func TestLaws(t *testing.T) {
	repository, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(repository.files) < 20 {
		t.Fatalf("only %d files found: the laws are looking at the wrong place",
			len(repository.files))
	}
	for name, check := range laws {
		t.Run(name, func(t *testing.T) {
			found := check(repository)
			slices.SortFunc(found, func(a, b violation) int {
				return strings.Compare(a.where, b.where)
			})
			for _, v := range found {
				t.Error(v)
			}
		})
	}
}
