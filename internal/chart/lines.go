package chart

import (
	"fmt"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lines is a picture of curves over one axis, with published points beside them.
type Lines struct {
	Title, Subtitle string
	X, Y            string // what the axes are, with their units
	Series          []Series
	// LogX sets the points of x at equal distance by ratio, for values over decades.
	LogX bool
}

// Series is one curve.
type Series struct {
	Name      string
	Points    [][2]float64
	Published [][2]float64 // drawn as diamonds
}

// glyphs tell curves apart without their colour.
var glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{},
	draw.CrossGlyph{}, draw.PlusGlyph{}}

const linesHeight = 440 * vg.Length(1)

// Draw writes the picture as SVG.
func (l *Lines) Draw(w io.Writer) error {
	p := newPlot(l.X, l.Y)
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{}, ticks{}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = rule, rule
	p.Add(grid)
	var keys []key
	published := false
	for i, s := range l.Series {
		if len(s.Points) == 0 {
			return fmt.Errorf("series %q: %w", s.Name, ErrNothing)
		}
		if err := l.add(p, i, &s); err != nil {
			return err
		}
		keys = append(keys, lineKey(i, s.Name))
		published = published || len(s.Published) > 0
	}
	if len(keys) == 0 {
		return ErrNothing
	}
	if published {
		keys = append(keys, key{"published", 12, func(c draw.Canvas, at vg.Point) {
			diamond(c, at, ink)
		}})
	}
	p.Y.Min = min(p.Y.Min, 0)
	if l.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, l.given()
	}
	sheet := newSheet(l.Title, l.Subtitle, linesHeight)
	sheet.legend(keys)
	p.Draw(sheet.room)
	return sheet.write(w)
}

// add puts one series into the plot.
func (l *Lines) add(p *plot.Plot, i int, s *Series) error {
	curve, points, err := plotter.NewLinePoints(pairs(s.Points))
	if err != nil {
		return fmt.Errorf("series %q: %w", s.Name, err)
	}
	curve.LineStyle, points.GlyphStyle = lineStyle(i), glyph(i)
	p.Add(curve, points)
	if len(s.Published) == 0 {
		return nil
	}
	theirs, err := plotter.NewScatter(pairs(s.Published))
	if err != nil {
		return fmt.Errorf("series %q, published: %w", s.Name, err)
	}
	theirs.GlyphStyle = draw.GlyphStyle{Color: ink, Radius: 6.5, Shape: diamondGlyph{}}
	p.Add(theirs)
	return nil
}

// diamondGlyph is the published point among gonum's glyphs.
type diamondGlyph struct{}

func (diamondGlyph) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	diamond(*c, at, s.Color)
}

// given are the ticks of a logarithmic axis: the values that were measured.
func (l *Lines) given() (all plot.ConstantTicks) {
	seen := map[float64]bool{}
	for _, s := range l.Series {
		for _, xy := range s.Points {
			if !seen[xy[0]] {
				seen[xy[0]] = true
				all = append(all, plot.Tick{Value: xy[0], Label: grouped(fmt.Sprint(xy[0]))})
			}
		}
	}
	return all
}

func pairs(points [][2]float64) plotter.XYs {
	all := make(plotter.XYs, len(points))
	for i, xy := range points {
		all[i] = plotter.XY{X: xy[0], Y: xy[1]}
	}
	return all
}

// lineStyle is dashed for every second curve: where two coincide, both are seen.
func lineStyle(i int) draw.LineStyle {
	s := draw.LineStyle{Color: seriesColour(i), Width: 2.2}
	if i%2 == 1 {
		s.Dashes = []vg.Length{7, 6}
	}
	return s
}

func glyph(i int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: seriesColour(i), Radius: 4, Shape: glyphs[i%len(glyphs)]}
}

func lineKey(i int, name string) key {
	return key{name, 26, func(c draw.Canvas, at vg.Point) {
		c.StrokeLine2(lineStyle(i), at.X-13, at.Y, at.X+13, at.Y)
		c.DrawGlyphNoClip(glyph(i), at)
	}}
}
