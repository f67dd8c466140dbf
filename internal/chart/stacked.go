package chart

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Stacked is a picture of bars, one below the other, each made of the same parts.
type Stacked struct {
	Title, Subtitle string
	Axis            string   // what the bars' length is, with its unit
	Parts           []string // what each part is
	Bars            []Bar
	Mark            string // what a bar's mark is; needed where one has a mark
	// Line, where above zero, is drawn through all bars and called LineName.
	Line     float64
	LineName string
}

// Bar is one of them.
type Bar struct {
	Name  string
	Parts []float64 // their lengths, in the picture's order
	Mark  float64   // a point to compare the end with; 0 means none
	Note  string    // written behind the bar
}

func (b *Bar) length() (sum float64) {
	for _, p := range b.Parts {
		sum += p
	}
	return sum
}

const barRow = 26 * vg.Length(1)

// Draw writes the picture as SVG.
func (s *Stacked) Draw(w io.Writer) error {
	if len(s.Bars) == 0 {
		return ErrNothing
	}
	longest := s.Line
	for i := range s.Bars {
		b := &s.Bars[i]
		if len(b.Parts) > len(s.Parts) || !finite(append(b.Parts, b.Mark)...) {
			return fmt.Errorf("bar %q: %v and mark %v of %d parts cannot be drawn", b.Name, b.Parts,
				b.Mark, len(s.Parts))
		}
		longest = max(longest, b.length(), b.Mark)
	}
	if longest <= 0 {
		return ErrNothing
	}
	sheet := newSheet(s.Title, s.Subtitle, 150+barRow*vg.Length(len(s.Bars)))
	sheet.legend(s.keys(longest / 500))
	p := newPlot(s.Axis, "")
	p.X.Min, p.X.Max, p.X.Tick.Marker = 0, longest*1.01, ticks{}
	p.Y.Min, p.Y.Max = -0.5, float64(len(s.Bars))-0.5
	p.Y.Tick.Width, p.Y.LineStyle.Width = 0, 0
	p.Y.Tick.Marker = plot.ConstantTicks(s.names())
	p.Add(bars{s})
	p.Draw(sheet.room)
	return sheet.write(w)
}

// keys are the legend: parts that an eye can see somewhere, then the mark and the line.
func (s *Stacked) keys(seen float64) (keys []key) {
	for i, part := range s.Parts {
		if slices.ContainsFunc(s.Bars, func(b Bar) bool {
			return i < len(b.Parts) && b.Parts[i] > seen
		}) {
			keys = append(keys, swatch(part, partColour(i)))
		}
	}
	if s.Mark != "" {
		keys = append(keys, key{s.Mark, 12, func(c draw.Canvas, at vg.Point) { diamond(c, at, ink) }})
	}
	if s.Line > 0 {
		keys = append(keys, key{s.LineName, 4, func(c draw.Canvas, at vg.Point) {
			c.StrokeLine2(dashed, at.X, at.Y-6, at.X, at.Y+6)
		}})
	}
	return keys
}

// names label the rows, the first on top, with some room before the bars.
func (s *Stacked) names() (all []plot.Tick) {
	for i := range s.Bars {
		all = append(all, plot.Tick{Value: float64(len(s.Bars) - 1 - i), Label: s.Bars[i].Name + "  "})
	}
	return all
}

var dashed = draw.LineStyle{Color: ink, Width: 1, Dashes: []vg.Length{4, 3}}

// diamond is a mark that stands out on every part's colour.
func diamond(c draw.Canvas, at vg.Point, fill color.Color) {
	shape := func(r vg.Length) []vg.Point {
		return []vg.Point{{X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y},
			{X: at.X, Y: at.Y - r}}
	}
	c.FillPolygon(ground, shape(6.5))
	c.FillPolygon(fill, shape(4.5))
}

// bars draws all rows into a plot.
type bars struct{ *Stacked }

func (s bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if t.Label != "" {
			c.StrokeLine2(draw.LineStyle{Color: rule, Width: 0.7}, x(t.Value), c.Min.Y, x(t.Value),
				c.Max.Y)
		}
	}
	half := vg.Length(math.Min(9, float64(y(1)-y(0))/2.6))
	row := func(i int) vg.Length { return y(float64(len(s.Bars) - 1 - i)) }
	for i := range s.Bars {
		from := 0.0
		for part, length := range s.Bars[i].Parts {
			c.FillPolygon(partColour(part), box(x(from), row(i)-half, x(from+length), row(i)+half))
			from += length
		}
	}
	if s.Line > 0 {
		c.StrokeLine2(dashed, x(s.Line), c.Min.Y, x(s.Line), c.Max.Y)
	}
	for i := range s.Bars {
		b := &s.Bars[i]
		end := x(b.length())
		if b.Mark > 0 {
			diamond(c, vg.Point{X: x(b.Mark), Y: row(i)}, ink)
			end = max(end, x(b.Mark)+5)
		}
		note(c, vg.Point{X: end + 7, Y: row(i) - 4}, b.Note)
	}
}

// GlyphBoxes claims room for the notes, so that the longest bar's still fits.
func (s bars) GlyphBoxes(p *plot.Plot) (boxes []plot.GlyphBox) {
	for i := range s.Bars {
		b := &s.Bars[i]
		boxes = append(boxes, plot.GlyphBox{X: p.X.Norm(max(b.length(), b.Mark)), Y: 0.5,
			Rectangle: vg.Rectangle{Max: vg.Point{X: 14 + sans(small, ink).Width(b.Note)}}})
	}
	return boxes
}

// note writes on a patch of ground, so that no line runs through it.
func note(c draw.Canvas, at vg.Point, words string) {
	if words == "" {
		return
	}
	style := sans(small, ink)
	c.FillPolygon(ground, box(at.X-2, at.Y-3, at.X+style.Width(words)+2, at.Y+small))
	c.FillText(style, at, words)
}
