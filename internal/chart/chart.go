// Package chart draws what the simulator counted: stacked bars, curves and grids, as SVG.
//
// A picture stands on its own near-white ground with dark text, so it reads the same on a light
// page and on a dark one; colours are told apart by colour-blind eyes too (Okabe and Ito's), and
// nothing is said by colour alone where it can be written. It draws numbers it is given and knows
// nothing of where they come from. Equal input gives equal bytes.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image/color"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// ErrNothing means that there is nothing to draw.
var ErrNothing = errors.New("nothing to draw")

var (
	ground = color.RGBA{0xfc, 0xfc, 0xfa, 0xff}
	ink    = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint  = color.RGBA{0x66, 0x66, 0x66, 0xff}
	rule   = color.RGBA{0xdd, 0xdd, 0xd8, 0xff}
)

// Okabe and Ito's colours. Yellow is left out: it does not stand on a white ground.
var (
	vermilion = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	blue      = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	green     = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	pink      = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	sky       = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	orange    = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	grey      = color.RGBA{0x99, 0x99, 0x99, 0xff}
)

// The parts of bars and the series of curves, in an order that keeps neighbours apart.
var (
	partColours   = []color.RGBA{grey, green, sky, blue, vermilion, orange, pink}
	seriesColours = []color.RGBA{vermilion, blue, green, pink, sky, orange, grey}
)

func partColour(i int) color.RGBA   { return partColours[i%len(partColours)] }
func seriesColour(i int) color.RGBA { return seriesColours[i%len(seriesColours)] }

const (
	width  = 760 * vg.Length(1)
	margin = 18 * vg.Length(1)
	small  = 11 * vg.Length(1)
	normal = 12 * vg.Length(1)
	large  = 15 * vg.Length(1)
)

// sans is the face of every letter. Liberation Sans has the widths of Arial and Helvetica, so a
// viewer without it lays the text out alike.
func sans(size vg.Length, c color.Color) text.Style {
	return text.Style{Color: c, Font: font.From(font.Font{Typeface: "Liberation",
		Variant: "Sans"}, size), Handler: plot.DefaultTextHandler}
}

// sheet is a canvas with a title, from which a chart takes room from the top down.
type sheet struct {
	svg  *vgsvg.Canvas
	room draw.Canvas
}

func newSheet(title, subtitle string, height vg.Length) *sheet {
	svg := vgsvg.New(width, height)
	all := draw.New(svg)
	all.FillPolygon(ground, corners(all.Rectangle))
	s := &sheet{svg, draw.Crop(all, margin, -margin, margin, -margin)}
	s.line(sans(large, ink), title)
	if subtitle != "" {
		s.line(sans(small, faint), subtitle)
	}
	return s
}

// line writes one line at the top of the room and takes it from there.
func (s *sheet) line(style text.Style, words string) {
	s.room.FillText(style, vg.Point{X: s.room.Min.X, Y: s.room.Max.Y - style.Font.Size}, words)
	s.room = draw.Crop(s.room, 0, 0, 0, -style.Font.Size*1.5)
}

// key is one entry of a legend: a swatch, or what draws itself.
type key struct {
	name string
	wide vg.Length
	draw func(c draw.Canvas, at vg.Point) // at its middle
}

// swatch is a key for a filled colour.
func swatch(name string, c color.Color) key {
	return key{name, 10, func(canvas draw.Canvas, at vg.Point) {
		canvas.FillPolygon(c, box(at.X-5, at.Y-5, at.X+5, at.Y+5))
	}}
}

// legend writes the keys in as many rows as they need.
func (s *sheet) legend(keys []key) {
	style := sans(small, ink)
	const near, gap, row = 5, 20, 18
	x := s.room.Min.X
	y := s.room.Max.Y - row/2
	for _, k := range keys {
		wide := k.wide + near + style.Width(k.name)
		if x+wide > s.room.Max.X && x > s.room.Min.X {
			x, y = s.room.Min.X, y-row
		}
		k.draw(s.room, vg.Point{X: x + k.wide/2, Y: y})
		s.room.FillText(style, vg.Point{X: x + k.wide + near, Y: y - 4}, k.name)
		x += wide + gap
	}
	s.room = draw.Crop(s.room, 0, 0, 0, y-row/2-s.room.Max.Y-8)
}

// newPlot is gonum's plot in this package's face: it owns axes and scales, nothing else.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = faint, faint
		a.Label.TextStyle, a.Tick.Label = turned(sans(normal, ink), a.Label.TextStyle),
			turned(sans(small, ink), a.Tick.Label)
		a.Tick.Length, a.Padding, a.Label.Padding = 5, 0, 5
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	return p
}

// turned is a style that keeps where gonum would have put the text.
func turned(s, like text.Style) text.Style {
	s.Rotation, s.XAlign, s.YAlign = like.Rotation, like.XAlign, like.YAlign
	return s
}

// letters is a piece of text as vgsvg writes it: before its end, its size, and its words.
var letters = regexp.MustCompile(`(<text [^>]*font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)

// write ends the sheet. vgsvg names one font, which a viewer may lack: then it takes one of the
// same widths, and where it has none of those the text still gets no more room than was measured.
func (s *sheet) write(w io.Writer) error {
	var svg bytes.Buffer
	if _, err := s.svg.WriteTo(&svg); err != nil {
		return fmt.Errorf("draw svg: %w", err)
	}
	text := strings.ReplaceAll(svg.String(), "font-family:Liberation Sans;",
		"font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
	text = letters.ReplaceAllStringFunc(text, func(element string) string {
		m := letters.FindStringSubmatch(element)
		size, err := strconv.ParseFloat(m[2], 64)
		words := strings.TrimSpace(m[3])
		if err != nil || words == "" {
			return element
		}
		wide := sans(vg.Length(size), ink).Width(html.UnescapeString(words))
		return fmt.Sprintf(`%s textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`, m[1],
			wide.Points(), words)
	})
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write svg: %w", err)
	}
	return nil
}

func corners(r vg.Rectangle) []vg.Point { return box(r.Min.X, r.Min.Y, r.Max.X, r.Max.Y) }

func box(left, bottom, right, top vg.Length) []vg.Point {
	return []vg.Point{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top},
		{X: left, Y: top}}
}

// finite tells whether every value can be drawn.
func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// ticks stand at round numbers, four to eight of them, written with thousands apart.
type ticks struct{}

func (ticks) Ticks(low, high float64) (all []plot.Tick) {
	unit := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	step := unit
	for _, times := range []float64{2, 2.5, 5} {
		if (high-low)/(unit*times) >= 4 {
			step = unit * times
		}
	}
	places := 0
	for scaled := step; math.Abs(scaled-math.Round(scaled)) > 1e-9*scaled; scaled *= 10 {
		places++
	}
	for v := math.Ceil(low/step-1e-9)*step + 0; v <= high+step*1e-6; v += step {
		all = append(all, plot.Tick{Value: v, Label: grouped(fmt.Sprintf("%.*f", places, v))})
	}
	return all
}

// grouped sets the digits before a point in threes.
func grouped(number string) string {
	whole, rest, _ := strings.Cut(number, ".")
	if rest != "" {
		rest = "." + rest
	}
	digits := strings.TrimPrefix(whole, "-")
	if strings.Trim(digits, "0123456789") != "" {
		return number
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if strings.HasPrefix(whole, "-") {
		digits = "−" + digits
	}
	return digits + rest
}
