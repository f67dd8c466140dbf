package chart

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Grid is a picture of a value over two axes: a cell for each pair, darker where it is larger, with
// the value written in it.
type Grid struct {
	Title, Subtitle string
	X, Y            string
	Columns, Rows   []string
	Values          [][]float64 // by row, then column
	Text            [][]string  // what is written in a cell; the value where there is none
}

const gridRow = 54 * vg.Length(1)

// Draw writes the picture as SVG.
func (g *Grid) Draw(w io.Writer) error {
	if len(g.Rows) == 0 || len(g.Columns) == 0 {
		return ErrNothing
	}
	low, high := math.Inf(1), math.Inf(-1)
	if len(g.Values) != len(g.Rows) {
		return fmt.Errorf("grid of %d rows has %d rows of values", len(g.Rows), len(g.Values))
	}
	for r, row := range g.Values {
		if len(row) != len(g.Columns) || !finite(row...) {
			return fmt.Errorf("row %q: %v of %d columns cannot be drawn", g.Rows[r], row,
				len(g.Columns))
		}
		for _, v := range row {
			low, high = min(low, v), max(high, v)
		}
	}
	sheet := newSheet(g.Title, g.Subtitle, 136+gridRow*vg.Length(len(g.Rows)))
	sheet.room = draw.Crop(sheet.room, 0, 0, 0, -6)
	p := newPlot(g.X, g.Y)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(len(g.Columns))-0.5, -0.5,
		float64(len(g.Rows))-0.5
	p.X.Tick.Width, p.Y.Tick.Width, p.X.LineStyle.Width, p.Y.LineStyle.Width = 0, 0, 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = labels(g.Columns, false), labels(g.Rows, true)
	p.Add(cells{g, low, high})
	p.Draw(sheet.room)
	return sheet.write(w)
}

// labels stand at 0, 1, …, from the top down where they are rows.
func labels(names []string, down bool) (all plot.ConstantTicks) {
	for i, name := range names {
		at := i
		if down {
			at = len(names) - 1 - i
		}
		all = append(all, plot.Tick{Value: float64(at), Label: name})
	}
	return all
}

type cells struct {
	*Grid
	low, high float64
}

func (g cells) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for r, row := range g.Values {
		for column, v := range row {
			depth := 0.0
			if g.high > g.low {
				depth = (v - g.low) / (g.high - g.low)
			}
			cx, cy := float64(column), float64(len(g.Rows)-1-r)
			c.FillPolygon(shade(depth), box(x(cx-0.5)+1, y(cy-0.5)+1, x(cx+0.5)-1, y(cy+0.5)-1))
			on := ink
			if depth > 0.65 {
				on = ground
			}
			words := grouped(fmt.Sprintf("%.0f", v))
			if g.Text != nil {
				words = g.Text[r][column]
			}
			style := sans(normal, on)
			style.XAlign, style.YAlign = draw.XCenter, draw.YCenter
			c.FillText(style, vg.Point{X: x(cx), Y: y(cy)}, words)
		}
	}
}

// shade goes from the ground's colour to a deep blue.
func shade(depth float64) color.Color {
	mix := func(from, to uint8) uint8 {
		return uint8(math.Round(float64(from) + depth*(float64(to)-float64(from))))
	}
	return color.RGBA{mix(0xde, 0x08), mix(0xeb, 0x51), mix(0xf7, 0x9c), 0xff}
}
