package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/pump"
	"belady/internal/core/trace"
	"belady/internal/node/event"
	"belady/internal/node/world"
)

// recorder writes a pump's trace to a file. The pump's owner only encodes; a goroutine of its own
// writes. If the disk falls too far behind, the trace ends there and says so: a daemon never waits
// for its own diary.
type recorder struct {
	encoder *trace.Encoder
	file    *os.File
	listen  event.Listener
	blocks  chan []byte
	done    chan error
	over    bool
}

// backlog is how many blocks of a trace may wait for the disk.
const backlog = 256

// record opens a trace for a dataset: FOLDER/NAME-TIME.trace.
func (d *Daemon) record(name string, p *plan.Plan) (world.Recorder, error) {
	file := fmt.Sprintf("%s-%s.trace", strings.ReplaceAll(name, "+", "_"),
		time.Now().UTC().Format("20060102T150405.000"))
	f, err := os.OpenFile(filepath.Join(d.Trace, file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a trace: %w", err)
	}
	e, err := trace.NewEncoder(trace.HeaderOf(name, p))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &recorder{encoder: e, file: f, listen: d.tell, blocks: make(chan []byte, backlog),
		done: make(chan error, 1)}
	go r.write()
	return r, nil
}

func (r *recorder) write() {
	failed := false
	for b := range r.blocks {
		if failed {
			continue
		}
		if _, err := r.file.Write(b); err != nil {
			failed = true
			r.listen(event.Trouble{What: "the trace " + r.file.Name() + " ends here", Err: err})
		}
	}
	r.done <- r.file.Close()
}

// Reading implements world.Recorder.
func (r *recorder) Reading(cursor int32, reading job.Reading) {
	if err := r.encoder.Reading(cursor, reading); err != nil && !r.over {
		r.end(err)
	}
}

// Step implements world.Recorder.
func (r *recorder) Step(now pump.Instant, events []pump.Event, moves []pump.Move) {
	if r.over {
		return
	}
	r.encoder.Step(now, events, moves)
	r.carry()
}

// carry passes finished blocks on to the writer.
func (r *recorder) carry() {
	b := r.encoder.Take()
	if len(b) == 0 {
		return
	}
	select {
	case r.blocks <- append([]byte(nil), b...):
	default:
		r.end(errors.New("the disk is too slow for it"))
	}
}

func (r *recorder) end(why error) {
	r.over = true
	r.listen(event.Trouble{What: "the trace " + r.file.Name() + " ends here", Err: why})
}

// Close implements world.Recorder.
func (r *recorder) Close() error {
	if !r.over {
		r.encoder.Flush()
		r.carry()
	}
	close(r.blocks)
	return <-r.done
}
