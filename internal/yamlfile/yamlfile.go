// Package yamlfile reads files that people write: strictly, and with the place of whatever is
// wrong in them.
//
// A key that nobody knows, a value of the wrong kind, a key given twice and a second document are
// refused. What only the reader of a file can judge he refuses by its key, and the place is found.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	Path string // empty for text that is no file
	Line int    // from 1; 0: of no line
	What string
}

func (p *Problem) Error() string {
	switch {
	case p.Line == 0 && p.Path == "":
		return p.What
	case p.Line == 0:
		return p.Path + ": " + p.What
	case p.Path == "":
		return fmt.Sprintf("line %d: %s", p.Line, p.What)
	}
	return fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.What)
}

// At makes the error of a value's own UnmarshalYAML.
func At(node *yaml.Node, err error) error { return &Problem{Line: node.Line, What: err.Error()} }

// most is more than any file that was written by hand.
const most = 4 << 20

// Read decodes the file of that name.
func Read(path string, into any) (*Places, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most {
		return nil, &Problem{Path: path, What: fmt.Sprintf("is larger than %d bytes; expected a file "+
			"written by hand", most)}
	}
	return Decode(path, text, into)
}

// Decode reads text into a struct, whose fields name their keys by the tag yaml. Text that says
// nothing leaves it as it is. Problems name the path, which may be empty.
func Decode(path string, text []byte, into any) (*Places, error) {
	places := &Places{path: path}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	switch err := decoder.Decode(into); {
	case errors.Is(err, io.EOF): // a file of comments
		return places, nil
	case err != nil:
		return nil, translate(path, err, reflect.TypeOf(into))
	}
	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, &Problem{path, second.Line,
			"only one YAML document is read, and here is a second one"}
	}
	if err := yaml.Unmarshal(text, &places.root); err != nil {
		return nil, translate(path, err, nil)
	}
	if broken := fraction(places.top(), reflect.TypeOf(into)); broken != nil {
		return nil, &Problem{path, broken.Line,
			"`" + broken.Value + "` stands where a whole number must"}
	}
	return places, nil
}

// fraction finds a number with a fraction where a whole one must stand: the YAML package cuts it
// off without a word.
func fraction(node *yaml.Node, t reflect.Type) *yaml.Node {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 && node.Tag == "!!float":
		return node
	case t.Kind() == reflect.Slice && node.Kind == yaml.SequenceNode:
		for _, inside := range node.Content {
			if broken := fraction(inside, t.Elem()); broken != nil {
				return broken
			}
		}
	case t.Kind() == reflect.Map && node.Kind == yaml.MappingNode:
		for i := 1; i < len(node.Content); i += 2 {
			if broken := fraction(node.Content[i], t.Elem()); broken != nil {
				return broken
			}
		}
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			inside := child(node, keyOf(t.Field(i)))
			if inside == nil {
				continue
			}
			if broken := fraction(inside, t.Field(i).Type); broken != nil {
				return broken
			}
		}
	}
	return nil
}

// keyOf is the key of a field; empty: it has none.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return strings.TrimPrefix(key, "-")
}

// How the YAML package says, in terms of Go's types, that a key has no field and that a value is
// none for its field; and where.
var (
	unknownKey = regexp.MustCompile(`field (\S+) not found in type (\S+)`)
	wrongValue = regexp.MustCompile("cannot unmarshal !!(\\w+)( `.*`)? into (\\S+)")
	onLine     = regexp.MustCompile(`^line (\d+): `)
)

// translate says what is wrong in the words of the file.
func translate(path string, err error, into reflect.Type) error {
	var own *Problem
	if errors.As(err, &own) {
		return &Problem{path, own.Line, own.What}
	}
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		text, syntax := strings.CutPrefix(err.Error(), "yaml: ")
		if !syntax { // of a type that reads itself, and knows no lines
			return &Problem{Path: path, What: text}
		}
		p := placed(path, text)
		p.What = "it is not YAML: " + p.What
		return p
	}
	known := keysByType(into)
	all := make([]error, len(wrong.Errors))
	for i, text := range wrong.Errors {
		p := placed(path, text)
		p.What = wrongValue.ReplaceAllStringFunc(p.What, misplaced)
		if m := unknownKey.FindStringSubmatch(p.What); m != nil {
			p.What = "there is no setting " + m[1] + "; expected " + list(known[m[2]])
		}
		all[i] = p
	}
	return errors.Join(all...)
}

// placed takes the line out of a text.
func placed(path, text string) *Problem {
	p := &Problem{Path: path, What: text}
	if m := onLine.FindStringSubmatch(text); m != nil {
		p.Line, _ = strconv.Atoi(m[1]) // digits alone; a number too large for a line has none
		p.What = text[len(m[0]):]
	}
	return p
}

// misplaced says the same as wrongValue in the words of the file.
func misplaced(text string) string {
	m := wrongValue.FindStringSubmatch(text)
	got, want := strings.TrimSpace(m[2]), "settings"
	switch {
	case m[1] == "seq":
		got = "a list"
	case m[1] == "map":
		got = "a group of settings"
	}
	switch {
	case strings.HasPrefix(m[3], "[]"):
		want = "a list"
	case strings.HasPrefix(m[3], "int"), strings.HasPrefix(m[3], "uint"):
		want = "a whole number"
	case strings.HasPrefix(m[3], "float"):
		want = "a number"
	case m[3] == "string":
		want = "a text"
	case m[3] == "bool":
		want = "true or false"
	}
	return got + " stands where " + want + " must"
}

// keysByType collects the keys of every struct below a type, by its name.
func keysByType(top reflect.Type) map[string][]string {
	found := map[string][]string{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if _, seen := found[t.String()]; seen || t.Kind() != reflect.Struct {
			return
		}
		found[t.String()] = nil
		for i := range t.NumField() {
			if key := keyOf(t.Field(i)); key != "" {
				found[t.String()] = append(found[t.String()], key)
			}
			walk(t.Field(i).Type)
		}
	}
	if top != nil {
		walk(top)
	}
	return found
}

// list writes keys as a sentence has them.
func list(keys []string) string {
	if len(keys) < 2 {
		return strings.Join(keys, "")
	}
	last := len(keys) - 1
	return strings.Join(keys[:last], ", ") + " or " + keys[last]
}
