package yamlfile

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Places knows where the keys of a decoded file stand.
type Places struct {
	path string
	root yaml.Node
}

// Wrong makes the error of a value, named by the keys that lead to it: "nodes.tiers[1].capacity".
// The text goes on from there: "is 0; expected more than 0". The line is that of the value, or
// where there is none, of the nearest key above it.
func (p *Places) Wrong(key, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if key != "" {
		what = key + " " + what
	}
	return &Problem{p.path, p.Line(key), what}
}

// Has tells whether the file itself says something of a key.
func (p *Places) Has(key string) bool {
	_, all := p.find(key)
	return all
}

// Line is where a key's value stands, or that of the nearest key above it; 0: in an empty file.
func (p *Places) Line(key string) int {
	node, _ := p.find(key)
	return node.Line
}

// top is the value that the document is.
func (p *Places) top() *yaml.Node {
	if p.root.Kind == yaml.DocumentNode {
		return p.root.Content[0]
	}
	return &p.root
}

// find goes as far along the keys as there are any, and tells whether that was all the way.
func (p *Places) find(key string) (*yaml.Node, bool) {
	node := p.top()
	if key == "" {
		return node, node.Line > 0
	}
	for _, name := range strings.Split(strings.ReplaceAll(key, "[", ".["), ".") {
		next := child(node, name)
		if next == nil {
			return node, false
		}
		node = next
	}
	return node, true
}

// child is the value of a key of a map, or of a place of a list, written [2].
func child(node *yaml.Node, name string) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if inside, isPlace := strings.CutPrefix(name, "["); isPlace {
		i, err := strconv.Atoi(strings.TrimSuffix(inside, "]"))
		if err != nil || node.Kind != yaml.SequenceNode || i < 0 || i >= len(node.Content) {
			return nil
		}
		return node.Content[i]
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}
