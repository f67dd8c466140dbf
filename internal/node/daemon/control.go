package daemon

import (
	"cmp"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"belady/internal/node/event"
	"belady/internal/node/world"
	"belady/internal/store/tier"
)

// control answers HTTP on the daemon's own socket. It is a listener too: connections that turn
// out to speak HTTP are given to it.
type control struct {
	daemon *Daemon
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	mux    *http.ServeMux
}

func newControl(d *Daemon) *control {
	c := &control{daemon: d, conns: make(chan net.Conn), closed: make(chan struct{}),
		mux: http.NewServeMux()}
	c.mux.HandleFunc("GET /v1/status", c.status)
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	return c
}

func (c *control) give(conn net.Conn) {
	select {
	case c.conns <- conn:
	case <-c.closed:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (c *control) Accept() (net.Conn, error) {
	select {
	case conn := <-c.conns:
		return conn, nil
	case <-c.closed:
		return nil, http.ErrServerClosed
	}
}

// Close implements net.Listener; the server calls it once.
func (c *control) Close() error {
	close(c.closed)
	return nil
}

// Addr implements net.Listener.
func (c *control) Addr() net.Addr { return &net.UnixAddr{Name: c.daemon.Socket, Net: "unix"} }

// ServeHTTP implements http.Handler.
func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	c.mux.ServeHTTP(w, r)
}

// Status is the answer to GET /v1/status.
type Status struct {
	Version string  `json:"version"`
	PID     int     `json:"pid"`
	Dir     string  `json:"dir"`
	UptimeS float64 `json:"uptime_seconds"`
	// IdleExitS is how long after its last client it leaves; 0: it stays. A client that finds such a
	// daemon gone may start another: some client had started it.
	IdleExitS float64        `json:"idle_exit_seconds"`
	RAM       int64          `json:"ram_bytes"`
	RAMLeft   int64          `json:"ram_left_bytes"`
	Sessions  int            `json:"sessions"`
	Drifts    int            `json:"drifts"` // sessions that computed another order than ours
	Datasets  []world.Status `json:"datasets"`
	// Ssd are the directories that logs are written to.
	Ssd []tier.DirUsage `json:"ssd,omitempty"`
	// Ranks are the sessions that read, the oldest first.
	Ranks []event.Attached `json:"ranks"`
}

func (c *control) status(w http.ResponseWriter, _ *http.Request) {
	d := c.daemon
	s := Status{Version: d.Version, PID: os.Getpid(), Dir: d.Dir, RAM: d.RAM,
		UptimeS: time.Since(d.began).Seconds(), RAMLeft: d.pool.Left(),
		IdleExitS: d.IdleExit.Seconds(), Datasets: []world.Status{}}
	if d.Disks != nil {
		s.Ssd = d.Disks.Usage()
	}
	d.mu.Lock()
	s.Drifts = d.drifts
	s.Ranks = slices.AppendSeq([]event.Attached{}, maps.Values(d.ranks))
	var open []*world.World
	for _, p := range d.worlds {
		if p.world != nil {
			open = append(open, p.world)
		}
	}
	d.mu.Unlock()
	slices.SortFunc(s.Ranks, func(a, b event.Attached) int {
		return cmp.Or(cmp.Compare(len(a.Session), len(b.Session)), cmp.Compare(a.Session, b.Session))
	})
	for _, w := range open {
		if one, err := w.Status(); err == nil {
			s.Datasets = append(s.Datasets, one)
			s.Sessions += one.Ranks // connections that only ask are no sessions
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}
