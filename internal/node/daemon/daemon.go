// Package daemon is the node's process: it owns the directory and the socket, gives each dataset
// its world and its share of memory, and each connection its session or the control answers.
//
// It decides nothing about samples. One lock guards the table of worlds; it is never held across
// I/O on an origin or a client.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/core/order"
	"belady/internal/node/event"
	"belady/internal/node/session"
	"belady/internal/node/wire"
	"belady/internal/store/arena"
	"belady/internal/store/catalog"
	"belady/internal/store/origin"
	"belady/internal/store/tier"
)

// Config is what a daemon is told.
type Config struct {
	Dir, Socket string
	Version     string
	// RAM is all memory for samples; Staging the part of it for batches on their way, 0 for a
	// share of RAM.
	RAM, Staging int64
	// Concurrency is the most requests at once to one origin.
	Concurrency int
	Retry       origin.RetryConfig
	// Patience is how long a stopping daemon tries to say goodbye to a client that does not read.
	// Five times as long a client waits for the last readers of another policy, of an older scan or
	// of an earlier run to leave. Zero: 2 s. Clients hung up on lose nothing: what they were lent is
	// theirs while they map it.
	Patience   time.Duration
	OpenOrigin catalog.OpenOrigin
	// Disks are where logs of datasets may be written, in that layout; nil: nowhere. The daemon does
	// not close them.
	Disks  tier.Directories
	Layout tier.Layout
	Listen event.Listener
	// IdleExit stops the daemon when nobody has been connected for so long; 0 never does.
	IdleExit time.Duration
	// Trace is a folder for a trace of every dataset's pump; empty records none.
	Trace string
	// NewOrder computes orders; nil: order.New. Tests put a wrong one here.
	NewOrder func(order.Spec) (order.Order, error)
	// RecordEvery is the longest that a part of an epoch goes unrecorded; 0: some minutes.
	RecordEvery time.Duration
}

// Daemon is a running node.
type Daemon struct {
	Config
	catalog *catalog.Catalog
	pool    *arena.Pool
	lock    *os.File
	began   time.Time
	jobs    *jobLog

	granting sync.Mutex // held while memory is dealt out; taken before mu

	mu       sync.Mutex
	worlds   map[string]*place // guarded by mu, as all below
	sessions int
	left     time.Time // when the last session ended
	next     int
	drifts   int
	ranks    map[string]event.Attached // by session

	beginnings beginnings
}

// New takes the directory: a second daemon on it is refused.
func New(cfg Config) (*Daemon, error) {
	if err := wire.CheckSocket(cfg.Socket); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	if cfg.Trace != "" {
		if err := os.MkdirAll(cfg.Trace, 0o700); err != nil {
			return nil, fmt.Errorf("make the folder for traces: %w", err)
		}
	}
	lock, err := takeLock(filepath.Join(cfg.Dir, "daemon.lock"))
	if err != nil {
		return nil, err
	}
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	return &Daemon{Config: cfg, catalog: catalog.New(cfg.Dir, cfg.OpenOrigin),
		pool: arena.NewPool(cfg.RAM), lock: lock, began: time.Now(),
		worlds: map[string]*place{}, ranks: map[string]event.Attached{}}, nil
}

// takeLock locks the directory for this process; the kernel lets go when it dies.
func takeLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(name)
		_ = f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		return nil, fmt.Errorf("another daemon (pid %s) uses %s: stop it, or give this one "+
			"another --dir", holder, filepath.Dir(name))
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", name, err), f.Close())
	}
	return f, nil
}

// Run serves until ctx ends, then says goodbye to its clients and closes everything.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.lock.Close()
	l, err := d.listen()
	if err != nil {
		return err
	}
	d.tell(event.Started{Dir: d.Dir, Socket: d.Socket, RAM: d.RAM})
	d.jobs = newJobLog(d.Dir, d.tell)
	defer d.jobs.close()
	control := newControl(d)
	served := make(chan error, 1)
	go func() { served <- control.server.Serve(control) }()
	var sessions sync.WaitGroup
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if d.IdleExit > 0 {
		sessions.Go(func() { d.leaveWhenIdle(ctx, leave) })
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	patience, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	d.accept(ctx, l, func(conn *net.UnixConn) {
		sessions.Go(func() {
			defer context.AfterFunc(patience, func() { _ = conn.Close() })()
			d.connected(ctx, conn, control)
		})
	})
	d.mu.Lock()
	d.tell(event.Stopping{Sessions: d.sessions})
	d.mu.Unlock()
	_ = control.server.Close()
	<-served
	_ = os.Remove(d.Socket)
	defer time.AfterFunc(d.Patience, hangUp).Stop()
	sessions.Wait()
	return d.closeWorlds()
}

// leaveWhenIdle stops the daemon once nobody has been connected for a while: one that was started
// for a job should not outlive it by much.
func (d *Daemon) leaveWhenIdle(ctx context.Context, leave func()) {
	began := time.Now()
	tick := time.NewTicker(max(d.IdleExit/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		busy, since := d.sessions > 0, d.left
		d.mu.Unlock()
		if since.Before(began) {
			since = began
		}
		if !busy && time.Since(since) >= d.IdleExit {
			leave()
			return
		}
	}
}

const defaultPatience = 2 * time.Second

// orphaned is how many times Patience those who come wait for those who leave: the workers of a
// trainer that was killed look only every 5 s whether it lives, and read on until then.
const orphaned = 5

// listen opens the socket for this user alone. A socket that is there already was left by a dead
// daemon: the lock says so.
func (d *Daemon) listen() (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(d.Socket), 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	if info, err := os.Lstat(d.Socket); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there and is no socket: remove it, or name another "+
				"with --socket", d.Socket)
		}
		if c, err := net.Dial("unix", d.Socket); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("a daemon with another --dir listens on %s: "+
				"name another socket with --socket", d.Socket)
		}
		if err := os.Remove(d.Socket); err != nil {
			return nil, fmt.Errorf("remove the socket of a dead daemon: %w", err)
		}
	}
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Socket, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", d.Socket, err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// accept takes connections until the listener closes. Running out of descriptors slows it down
// and stops nothing.
func (d *Daemon) accept(
	ctx context.Context, l *net.UnixListener, connected func(*net.UnixConn),
) {
	pause := time.Duration(0)
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			d.tell(event.Trouble{What: "accept a connection", Err: err})
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
			continue
		}
		pause = 0
		connected(conn)
	}
}

// connected finds out who called and what they speak.
func (d *Daemon) connected(ctx context.Context, conn *net.UnixConn, control *control) {
	pid, err := sameUser(conn)
	if err != nil {
		d.tell(event.Trouble{What: "refuse a connection", Err: err})
		// Its buffer is empty: this cannot block.
		_, _ = conn.Write(wire.AppendError(nil, &wire.Error{Code: wire.CodeDenied, Fatal: true,
			Text: fmt.Sprintf("the daemon belongs to another user (%v): start your own with "+
				"`belady serve`", err)}))
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	speaks, plain, err := wire.Sniff(conn)
	if err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if !speaks {
		control.give(plain)
		return
	}
	d.mu.Lock()
	d.sessions++
	d.next++
	id := strconv.Itoa(d.next)
	d.mu.Unlock()
	session.Serve(ctx, session.Config{ID: id, Conn: conn, PID: pid, Pool: d.pool,
		Open: d.open, Begin: d.begin, Spare: d.spare, Listen: d.heard, NewOrder: d.NewOrder,
		Record: d.jobs.put, RecordEvery: d.RecordEvery})
	d.mu.Lock()
	d.sessions--
	d.left = time.Now()
	d.mu.Unlock()
}

// sameUser refuses other users: the socket's mode does already, this is the second lock.
func sameUser(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctlErr != nil {
		return 0, ctlErr
	}
	if err != nil {
		return 0, err
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("user %d is not this daemon's", cred.Uid)
	}
	return int(cred.Pid), nil
}

// heard passes a session's events on, and keeps what status shows.
func (d *Daemon) heard(e event.Event) {
	d.mu.Lock()
	switch e := e.(type) {
	case event.Drifted:
		d.drifts++
	case event.Attached:
		d.ranks[e.Session] = e
	case event.Detached:
		delete(d.ranks, e.Session)
	}
	d.mu.Unlock()
	d.tell(e)
}

func (d *Daemon) tell(e event.Event) {
	if d.Listen != nil {
		d.Listen(e)
	}
}
