package client

import (
	"strings"
	"testing"
	"time"
)

// A daemon that ends or stops while it is asked is said to, with where to look.
func TestDaemonUnreached(t *testing.T) {
	ends := func(*peer) {}
	d := listen(t, "", ends)
	_, err := Dial(bg, Config{Socket: d.socket})
	saysWhere(t, err, "went away", d.socket)

	d = listen(t, "", (*peer).greet, (*peer).greet)
	c, err := Dial(bg, Config{Socket: d.socket})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Open(bg, anAttach)
	saysWhere(t, err, "went away", d.socket)
	saysWhere(t, err, `attach job "test"`, d.socket)

	over := make(chan struct{})
	d = listen(t, "", func(*peer) { <-over })
	_, err = Dial(bg, Config{Socket: d.socket, Timeout: 50 * time.Millisecond})
	close(over)
	saysWhere(t, err, "does not answer", d.socket)
}

func saysWhere(t *testing.T, err error, what, socket string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), socket) ||
		!strings.Contains(err.Error(), "serve.log") {
		t.Errorf("got %v, want %q, %s and where its log is", err, what, socket)
	}
}
