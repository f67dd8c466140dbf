package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// keep is where the pictures of these tests are left for a person to look at.
var keep = flag.String("keep", "", "folder for the pictures")

type drawer interface{ Draw(io.Writer) error }

var thesis = Stacked{
	Title:    "NoPFS thesis, scenario 4",
	Subtitle: "400,000 samples of 3 MB, 4 nodes, 5 epochs",
	Axis:     "time of the run, s (split by the share of reading time with each source)",
	Parts: []string{"filling before the run", "own ram", "own ssd", "peers", "origin",
		"compute alone"},
	Mark: "published", Line: 15204.78, LineName: "lower bound",
	Bars: []Bar{
		{Name: "perfect", Parts: []float64{0, 0, 0, 0, 0, 15205}, Mark: 15204.78,
			Note: "15,205 s  1.00×"},
		{Name: "naive", Parts: []float64{0, 0, 0, 0, 60800}, Mark: 60526,
			Note: "60,800 s  4.00×"},
		{Name: "lbann-preload", Note: "n/a: needs the dataset in the nodes' ram"},
		{Name: "deepio-opportunistic", Parts: []float64{829, 3000, 0, 12205}, Mark: 16034.89,
			Note: "16,034 s  1.05×"},
		{Name: "nopfs", Parts: []float64{0, 1200, 4500, 5500, 5373}, Mark: 16795.17,
			Note: "16,573 s  1.09×"},
	}}

var curves = Lines{Title: "Hit ratio over the kept share",
	Subtitle: "one node, uniform order, 20,000 samples", X: "kept share of the dataset, %",
	Y: "hit ratio", Series: []Series{
		{Name: "spread (Belady)", Points: [][2]float64{{10, 0.1}, {50, 0.5}, {90, 0.9}}},
		{Name: "min", Points: [][2]float64{{10, 0.1}, {50, 0.5}, {90, 0.9}},
			Published: [][2]float64{{50, 0.52}}},
		{Name: "lru", Points: [][2]float64{{10, 0.01}, {50, 0.15}, {90, 0.7}}}}}

var fig8 = Grid{Title: "NoPFS Fig. 8: time of the run, s", Subtitle: "thesis scenario 3, nopfs",
	X: "ssd of a node", Y: "ram of a node", Columns: []string{"0 GB", "20 GB", "40 GB", "80 GB"},
	Rows: []string{"0 GB", "10 GB", "20 GB"},
	Values: [][]float64{{9947, 9579, 9257, 8703}, {9706, 9400, 9100, 8500},
		{9139, 9000, 8800, 8100}}}

// Every picture is well-formed, the same every time, and names what it shows.
func TestPictures(t *testing.T) {
	for name, test := range map[string]struct {
		picture drawer
		says    []string
	}{
		"stacked": {&thesis, []string{"NoPFS thesis, scenario 4", "deepio-opportunistic",
			"own ram", "lower bound", "n/a: needs"}},
		"lines": {&curves, []string{"Hit ratio", "spread (Belady)", "published"}},
		"grid":  {&fig8, []string{"Fig. 8", "9,947", "8,100", "ram of a node"}},
	} {
		first, second := drawn(t, test.picture), drawn(t, test.picture)
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two drawings differ", name)
		}
		if err := wellFormed(first); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if bytes.Contains(first, []byte("NaN")) || bytes.Contains(first, []byte("Inf")) {
			t.Errorf("%s has coordinates that are no numbers", name)
		}
		if n := bytes.Count(first, []byte("<text ")); n == 0 ||
			bytes.Count(first, []byte(" textLength=")) != n {
			t.Errorf("%s: not all of %d texts have the room that was measured for them", name, n)
		}
		for _, words := range test.says {
			if !bytes.Contains(first, []byte(words)) {
				t.Errorf("%s does not say %q", name, words)
			}
		}
		if *keep != "" {
			if err := os.WriteFile(filepath.Join(*keep, name+".svg"), first, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func drawn(t *testing.T, d drawer) []byte {
	t.Helper()
	var svg bytes.Buffer
	if err := d.Draw(&svg); err != nil {
		t.Fatal(err)
	}
	return svg.Bytes()
}

func wellFormed(svg []byte) error {
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// The bars' lengths are in proportion to their values, and a part of nothing is not seen.
func TestBarsAreInProportion(t *testing.T) {
	s := Stacked{Title: "t", Axis: "s", Parts: []string{"a", "b"},
		Bars: []Bar{{Name: "one", Parts: []float64{100}}, {Name: "two", Parts: []float64{150, 50}},
			{Name: "none"}}}
	svg := string(drawn(t, &s))
	wide := func(colour string) (all []float64) {
		paths := regexp.MustCompile(`<path d="M([-0-9.]+),[-0-9.]+L([-0-9.]+),[^"]*"\s+style="fill:` +
			colour)
		for _, m := range paths.FindAllStringSubmatch(svg, -1) {
			left, _ := strconv.ParseFloat(m[1], 64)
			right, _ := strconv.ParseFloat(m[2], 64)
			all = append(all, right-left)
		}
		return all
	}
	a, b := wide("#999999"), wide("#009E73")
	// The last of each colour is not the legend's swatch, which comes first.
	if len(a) != 3 || len(b) != 2 || math.Abs(a[2]/a[1]-1.5) > 1e-3 ||
		math.Abs(b[1]/a[1]-0.5) > 1e-3 {
		t.Fatalf("widths %v and %v", a, b)
	}
	if strings.Contains(svg, "lower bound") {
		t.Error("a line nobody gave")
	}
}

// What cannot be drawn is refused, never drawn wrong.
func TestRefused(t *testing.T) {
	for name, d := range map[string]drawer{
		"no bars":      &Stacked{},
		"zero bars":    &Stacked{Parts: []string{"a"}, Bars: []Bar{{Parts: []float64{0}}}},
		"nan":          &Stacked{Parts: []string{"a"}, Bars: []Bar{{Parts: []float64{math.NaN()}}}},
		"more parts":   &Stacked{Bars: []Bar{{Parts: []float64{1}}}},
		"no series":    &Lines{},
		"no points":    &Lines{Series: []Series{{Name: "a"}}},
		"infinite":     &Lines{Series: []Series{{Points: [][2]float64{{1, math.Inf(1)}}}}},
		"no cells":     &Grid{},
		"short row":    &Grid{Rows: []string{"a"}, Columns: []string{"b"}, Values: [][]float64{{}}},
		"missing rows": &Grid{Rows: []string{"a"}, Columns: []string{"b"}},
	} {
		if err := d.Draw(io.Discard); err == nil {
			t.Errorf("%s is drawn", name)
		}
	}
}
