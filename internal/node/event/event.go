// Package event names what happens in a daemon: one type for each happening, with a String that
// is an interface of its own. Logs, metrics and tests listen; nobody acts on an event, and telling
// one never blocks the data path.
package event

import "fmt"

// Event is something that happened. Code is stable: people and scripts search for it.
type Event interface {
	Code() string
	String() string
}

// Listener is told events. It may be called from any goroutine and must return quickly.
type Listener func(Event)

// Started: the daemon listens.
type Started struct {
	Dir, Socket string
	RAM         int64
}

// Code names the event.
func (Started) Code() string { return "daemon-started" }
func (e Started) String() string {
	return fmt.Sprintf("listening on %s with %d MiB of memory, data in %s",
		e.Socket, e.RAM>>20, e.Dir)
}

// Stopping: the daemon leaves.
type Stopping struct{ Sessions int }

// Code names the event.
func (Stopping) Code() string     { return "daemon-stopping" }
func (e Stopping) String() string { return fmt.Sprintf("stopping, %d sessions open", e.Sessions) }

// Planned: a dataset's plan is in force.
type Planned struct {
	Dataset       string
	Samples       int
	Policy        string
	Keep, Staging int64
	Kept          int
	Log           int64 // bytes of samples on ssd
	Logged        int   // how many these are
}

// Code names the event.
func (Planned) Code() string { return "plan" }
func (e Planned) String() string {
	text := fmt.Sprintf("%s: %d samples, policy %s: keeps %d of them (%d MiB), stages %d MiB",
		e.Dataset, e.Samples, e.Policy, e.Kept, e.Keep>>20, e.Staging>>20)
	if e.Logged > 0 {
		text += fmt.Sprintf(", %d of them on ssd (%d MiB)", e.Logged, e.Log>>20)
	}
	return text
}

// Attached: a rank joined.
type Attached struct {
	Session string `json:"session"`
	Job     string `json:"job"`
	Dataset string `json:"dataset"`
	Rank    int    `json:"rank"`
	World   int    `json:"world"`
	PID     int    `json:"pid"`
	Client  string `json:"client"` // the program, as it calls itself
}

// Code names the event.
func (Attached) Code() string { return "session-attached" }
func (e Attached) String() string {
	return fmt.Sprintf("session %s: rank %d of %d of job %q reads %s (%q, pid %d)",
		e.Session, e.Rank, e.World, e.Job, e.Dataset, e.Client, e.PID)
}

// Detached: a rank left; Reason is empty when it was done.
type Detached struct{ Session, Reason string }

// Code names the event.
func (Detached) Code() string { return "session-ended" }
func (e Detached) String() string {
	if e.Reason == "" {
		return fmt.Sprintf("session %s ended", e.Session)
	}
	return fmt.Sprintf("session %s ended: %s", e.Session, e.Reason)
}

// Drifted: a client was lent other samples than the order gives by its own computing.
type Drifted struct {
	Session, Job, Dataset string
	Rank                  int
	Epoch, Batch          uint32
}

// Code names the event.
func (Drifted) Code() string { return "order-drift" }
func (e Drifted) String() string {
	return fmt.Sprintf("session %s: rank %d of %s computes another order of %s than this daemon, "+
		"from batch %d of epoch %d on; it reads on demand now", e.Session, e.Rank, e.Job, e.Dataset,
		e.Batch, e.Epoch)
}

// FetchFailed: a sample could not be read from its origin.
type FetchFailed struct {
	Dataset, Sample string
	Err             error
}

// Code names the event.
func (FetchFailed) Code() string { return "fetch-failed" }
func (e FetchFailed) String() string {
	return fmt.Sprintf("%s: sample %q: %v", e.Dataset, e.Sample, e.Err)
}

// Tightened: the arena held less than planned, so the plan keeps less.
type Tightened struct {
	Dataset string
	Keep    int64
}

// Code names the event.
func (Tightened) Code() string { return "plan-tightened" }
func (e Tightened) String() string {
	return fmt.Sprintf("%s: the arena is too fragmented for the plan; it now keeps %d MiB",
		e.Dataset, e.Keep>>20)
}

// Resized: a dataset's memory changed.
type Resized struct {
	Dataset       string
	Bytes, Before int64
}

// Code names the event.
func (Resized) Code() string { return "arena-resized" }
func (e Resized) String() string {
	return fmt.Sprintf("%s: memory changes from %d to %d MiB", e.Dataset, e.Before>>20, e.Bytes>>20)
}

// LogOpened: a dataset's log on ssd was found, or begun.
type LogOpened struct {
	Dataset        string
	Samples, Bytes int64
	Seconds        float64
}

// Code names the event.
func (LogOpened) Code() string { return "log-opened" }
func (e LogOpened) String() string {
	return fmt.Sprintf("%s: the log on ssd holds %d samples (%d MiB), opened in %.2f s",
		e.Dataset, e.Samples, e.Bytes>>20, e.Seconds)
}

// LogLayout: how a log is laid out was decided.
type LogLayout struct{ Dataset, Why string }

// Code names the event.
func (LogLayout) Code() string     { return "log-layout" }
func (e LogLayout) String() string { return fmt.Sprintf("%s: %s", e.Dataset, e.Why) }

// LogDropped: damaged parts of a log were given up; their samples come from the origin once more.
type LogDropped struct {
	Dataset, Dir, What string
	Samples            int64
	Err                error
}

// Code names the event.
func (LogDropped) Code() string { return "log-dropped" }
func (e LogDropped) String() string {
	return fmt.Sprintf("%s: %d samples of the log in %s were given up, and will be read from the "+
		"origin again%s", e.Dataset, e.Samples, e.Dir, because(e.What, e.Err))
}

// LogFull: nothing more is written to a log.
type LogFull struct {
	Dataset, Dir, What string
	Err                error
}

// Code names the event.
func (LogFull) Code() string { return "log-full" }
func (e LogFull) String() string {
	return fmt.Sprintf("%s: %s is full%s", e.Dataset, e.Dir, because(e.What, e.Err))
}

// LogRemoved: the log of a dataset that nobody reads made room for another.
type LogRemoved struct {
	Dataset, Dir, What string
	Bytes              int64
}

// Code names the event.
func (LogRemoved) Code() string { return "log-removed" }
func (e LogRemoved) String() string {
	return fmt.Sprintf("%s: %d MiB were removed from %s%s", e.Dataset, e.Bytes>>20, e.Dir,
		because(e.What, nil))
}

// LogDirectory: a directory's state changed.
type LogDirectory struct {
	Dir, State, What string
	Err              error
}

// Code names the event.
func (LogDirectory) Code() string { return "log-directory" }
func (e LogDirectory) String() string {
	return fmt.Sprintf("%s is %s%s", e.Dir, e.State, because(e.What, e.Err))
}

// LogSlow: a log answers so late that the origin is read in its place.
type LogSlow struct{ Dataset string }

// Code names the event.
func (LogSlow) Code() string { return "log-slow" }
func (e LogSlow) String() string {
	return e.Dataset + ": the log on ssd answers too late: what ranks wait for is read from the " +
		"origin until it is faster"
}

// LogWear: a day's bytes are written.
type LogWear struct {
	Dataset, Dir, What string
	Bytes              int64
}

// Code names the event.
func (LogWear) Code() string { return "log-wear" }
func (e LogWear) String() string {
	return fmt.Sprintf("%s: %d MiB were written to %s today: samples stay where they are%s",
		e.Dataset, e.Bytes>>20, e.Dir, because(e.What, nil))
}

// LogClosed: a dataset is read without its log.
type LogClosed struct {
	Dataset string
	Err     error
}

// Code names the event.
func (LogClosed) Code() string { return "log-closed" }
func (e LogClosed) String() string {
	return fmt.Sprintf("%s is read without a log on ssd: %v", e.Dataset, e.Err)
}

// because is the end of a sentence that says why, if that is known.
func because(what string, err error) string {
	switch {
	case err == nil && what == "":
		return ""
	case err == nil:
		return ": " + what
	case what == "":
		return fmt.Sprintf(": %v", err)
	}
	return fmt.Sprintf(": %s: %v", what, err)
}

// Trouble: something else went wrong and was survived.
type Trouble struct {
	What string
	Err  error
}

// Code names the event.
func (Trouble) Code() string     { return "trouble" }
func (e Trouble) String() string { return fmt.Sprintf("%s: %v", e.What, e.Err) }
