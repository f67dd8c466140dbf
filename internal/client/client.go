// Package client is the Go client of a node's daemon: batches by lease over the wire protocol, and
// control calls as HTTP over the same socket. The CLI, tests and benchmarks use it; Python has its
// own client, written from docs/format/wire.md.
//
// A Session belongs to one goroutine, which calls Next in a loop; Batch.Release, Session.Window
// and Session.Stats may be called from any. Samples are read where the daemon put them: a Batch's
// slices are views of shared memory, valid until its Release and never after. If the daemon dies
// or restarts, Next reconnects and goes on with the batch that was due; batches handed out before
// stay readable.
//
// It starts no goroutine, copies no sample, and never starts a daemon.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"belady/internal/node/wire"
)

// Error is what a daemon reported; its Code says what kind.
type Error = wire.Error

// maxControlBytes bounds a control call's answer.
const maxControlBytes = 64 << 20

// Config says how to reach a daemon. The zero value of each field but Socket is its default.
type Config struct {
	// Socket is the path of the daemon's Unix socket.
	Socket string
	// Timeout bounds connecting and the exchange of versions; 10 s. Attaching may take as long as
	// the dataset does and is bounded by its context only.
	Timeout time.Duration
	// ReconnectFor is how long Next tries to reach a daemon that went away; 30 s. Negative: not
	// at all.
	ReconnectFor time.Duration
	// Depth is how many batches may wait ahead of the loop; 4. Memory: Depth batches of staging.
	Depth int
	// Away is told when a session's daemon went away, and again, with true, when the session goes on
	// at the same batch; nil: nobody is. Called from Next.
	Away func(back bool)
	// Name tells people reading `belady status` who this client is; the program's name.
	Name string
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.ReconnectFor == 0 {
		c.ReconnectFor = 30 * time.Second
	}
	if c.Depth == 0 {
		c.Depth = 4
	}
	if c.Name == "" {
		c.Name = os.Args[0]
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Socket == "":
		return errors.New("no daemon socket is given")
	case c.Depth < 1 || c.Depth > wire.MaxCredit:
		return fmt.Errorf("a depth of %d batches: 1 to %d are possible", c.Depth, wire.MaxCredit)
	}
	return wire.CheckSocket(c.Socket)
}

// Client reaches one daemon. It is safe for concurrent use and holds no connection of its own.
type Client struct {
	cfg  Config
	http *http.Client
}

// Dial checks that a daemon listens on the socket and speaks a version this build speaks.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg}
	c.http = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.dial(ctx)
		},
	}}
	l, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c, l.close()
}

func (c *Client) dial(ctx context.Context) (*net.UnixConn, error) {
	d := net.Dialer{Timeout: c.cfg.Timeout}
	conn, err := d.DialContext(ctx, "unix", c.cfg.Socket)
	switch {
	case err == nil:
		return conn.(*net.UnixConn), nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no daemon listens on %s: start one with `belady serve` (%w)",
			c.cfg.Socket, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the daemon on %s belongs to another user: start your own with"+
			" `belady serve` (%w)", c.cfg.Socket, err)
	}
	return nil, c.unreached(fmt.Errorf("connect to the daemon on %s: %w", c.cfg.Socket, err))
}

// unreached says of an error that means so that the daemon does not answer, or is gone. Its log is
// not this process's: whoever started the daemon has it.
func (c *Client) unreached(err error) error {
	const log = "its log is what `belady serve` prints, or serve.log in its --dir if Python started it"
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the daemon on %s listens but does not answer: is it stopped, or the machine "+
			"overloaded? %s (%w)", c.cfg.Socket, log, err)
	case lost(err):
		return fmt.Errorf("the daemon on %s went away: %s; start one with `belady serve` (%w)",
			c.cfg.Socket, log, err)
	}
	return err
}

// Status is the daemon's account of itself.
func (c *Client) Status(ctx context.Context) (json.RawMessage, error) {
	return c.Control(ctx, http.MethodGet, "/v1/status", nil)
}

// Control makes one control call. body, if not nil, is sent as JSON; the answer is returned as it
// came. An answer that is not 2xx is an error with the daemon's words.
func (c *Client) Control(
	ctx context.Context, method, path string, body any,
) (answer json.RawMessage, err error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the body of %s %s: %w", method, path, err)
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://belady"+path, content)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreached(fmt.Errorf("%s %s: %w", method, path, err))
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxControlBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	case len(text) > maxControlBytes:
		return nil, fmt.Errorf("%s %s: the answer has over %d bytes", method, path, maxControlBytes)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, fmt.Errorf("%s %s: the daemon refused: %s (%s)",
			method, path, refusal(text), resp.Status)
	}
	return text, nil
}

// refusal takes the sentence out of {"error": "…"}, or whatever text there is instead.
func refusal(text []byte) string {
	var e struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(text, &e); err == nil && e.Error != "" {
		return e.Error
	}
	return string(bytes.TrimSpace(text[:min(len(text), wire.MaxErrorText)]))
}
