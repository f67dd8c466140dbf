// Package progress shows how far a long piece of work is: as a moving bar on a terminal, as lines
// now and then elsewhere.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// Bar shows how far a long piece of work is. Methods may be called from any goroutine and
// as often as the caller likes: drawing happens at its own pace. Nothing may follow Done or Stop.
type Bar interface {
	// Set says how much is done so far.
	Set(current int64)
	// SetTotal says how much there is in all; zero means not known yet.
	SetTotal(total int64)
	// Message prints one line without disturbing the bar.
	Message(line string)
	// Done ends the bar at what was last set and leaves its last state visible.
	Done()
	// Stop ends it where it is: the work was given up.
	Stop()
}

// pause is how often plain progress speaks: rare enough for a batch system's log.
const pause = 5 * time.Second

// New returns a moving bar when w is a terminal, else lines now and then. The unit is what
// is counted; "B" is bytes, shown as KiB, MiB and so on. A total of zero means not known yet.
func New(w io.Writer, title string, total int64, unit string) Bar {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return newMoving(w, title, total, unit)
	}
	return newLines(w, title, total, unit, time.Now)
}

// moving draws with mpb, which owns the drawing goroutine until Done.
type moving struct {
	container *mpb.Progress
	bar       *mpb.Bar
}

func newMoving(w io.Writer, title string, total int64, unit string) moving {
	container := mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
	counted := func(s decor.Statistics) string { return amount(s.Current, s.Total, unit) }
	start := time.Now()
	rate := func(s decor.Statistics) string {
		if unit != "B" {
			return ""
		}
		seconds := max(time.Since(start).Seconds(), 0.001)
		return " " + quantity(int64(float64(s.Current)/seconds), unit) + "/s"
	}
	// mpb's own estimate turns negative while the total is unknown.
	left := func(s decor.Statistics) string {
		if s.Completed {
			return ", done"
		}
		if s.Current <= 0 || s.Total <= s.Current {
			return ""
		}
		share := float64(s.Total-s.Current) / float64(s.Current)
		estimate := time.Duration(float64(time.Since(start)) * share)
		return ", " + estimate.Round(time.Second).String() + " left"
	}
	// mpb ends a bar made with a total only when that total is reached, which may never happen;
	// one made without can be ended by Done.
	bar := container.AddBar(0,
		mpb.PrependDecorators(decor.Name(title+" ")),
		mpb.AppendDecorators(decor.Any(counted), decor.Any(rate), decor.Any(left)))
	bar.SetTotal(total, false)
	return moving{container, bar}
}

func (p moving) Set(current int64)    { p.bar.SetCurrent(current) }
func (p moving) SetTotal(total int64) { p.bar.SetTotal(total, false) }

func (p moving) Message(line string) {
	// A failed write to the terminal leaves nobody to tell.
	_, _ = fmt.Fprintln(p.container, line)
}

func (p moving) Done() {
	p.bar.SetTotal(p.bar.Current(), true)
	p.container.Wait()
}

func (p moving) Stop() {
	p.bar.Abort(false)
	p.container.Wait()
}

// lines prints from the caller's own goroutine, so it needs none of its own.
type lines struct {
	out   io.Writer
	title string
	unit  string
	now   func() time.Time

	mu      sync.Mutex // guards the fields below and the order of lines in out
	current int64
	total   int64
	spoken  time.Time
}

func newLines(
	w io.Writer, title string, total int64, unit string, now func() time.Time,
) *lines {
	return &lines{out: w, title: title, unit: unit, now: now, total: total, spoken: now()}
}

func (p *lines) Set(current int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = current
	if now := p.now(); now.Sub(p.spoken) >= pause {
		p.spoken = now
		p.speak("")
	}
}

func (p *lines) SetTotal(total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
}

func (p *lines) Message(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, line)
}

func (p *lines) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = p.current
	p.speak(", done")
}

func (p *lines) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speak(", stopped")
}

func (p *lines) speak(end string) {
	fmt.Fprintf(p.out, "%s: %s%s\n", p.title, amount(p.current, p.total, p.unit), end)
}

// amount says "40 of 100 samples", or only "40 samples" while the total is unknown or reached.
func amount(current, total int64, unit string) string {
	if total <= 0 || total == current {
		return quantity(current, unit)
	}
	done := quantity(current, unit)
	if unit != "B" { // "40 of 100 samples" says the unit once; bytes need it twice: 1 MiB of 2 GiB
		done = humanize.Comma(current)
	}
	return fmt.Sprintf("%s of %s (%d%%)", done, quantity(total, unit),
		int64(float64(current)*100/float64(total)))
}

func quantity(n int64, unit string) string {
	if unit == "B" {
		return humanize.IBytes(uint64(max(n, 0)))
	}
	return humanize.Comma(n) + " " + unit
}
