package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"belady/internal/core/sample"
	"belady/internal/store/origin/synth"
)

const countedBucket = "counted"

// counted is an origin that outlives the daemons reading it: an S3 server in this process, of a
// fixed rate, that knows who has asked for what. Its objects are computed.
type counted struct {
	*httptest.Server
	samples *synth.Origin
	rate    int64 // bytes a second, over all connections

	mu       sync.Mutex
	free     time.Time // when the line is free again
	requests []int     // of each sample
	barred   []bool    // samples that nobody may ask for
	wrong    []sample.ID
	conns    int
}

func newCounted(t *testing.T, c synth.Config, rate int64) *counted {
	t.Helper()
	samples, err := synth.New(c)
	if err != nil {
		t.Fatal(err)
	}
	o := &counted{samples: samples, rate: rate, requests: make([]int, samples.Len()),
		barred: make([]bool, samples.Len())}
	o.Server = httptest.NewUnstartedServer(o)
	o.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		o.mu.Lock()
		defer o.mu.Unlock()
		switch state {
		case http.StateNew:
			o.conns++
		case http.StateClosed, http.StateHijacked:
			o.conns--
		}
	}
	o.Start()
	t.Cleanup(o.Close)
	return o
}

// url is what `belady dataset add` takes.
func (o *counted) url() string {
	return fmt.Sprintf("s3://%s/?endpoint=%s&path_style=true&anonymous=true&region=x", countedBucket,
		o.URL)
}

func (o *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.Trim(strings.TrimPrefix(r.URL.Path, "/"+countedBucket), "/")
	if name == "" {
		o.list(w)
		return
	}
	n, err := strconv.Atoi(name)
	if err != nil || n < 0 || n >= o.samples.Len() {
		http.NotFound(w, r)
		return
	}
	id := sample.ID(n)
	body := make([]byte, o.samples.Size(id))
	o.samples.Fill(id, 0, body)
	time.Sleep(o.admit(id, len(body)))
	w.Header().Set("ETag", `"1"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// admit counts a request and says how long its bytes are on the line.
func (o *counted) admit(id sample.ID, bytes int) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests[id]++
	if o.barred[id] {
		o.wrong = append(o.wrong, id)
	}
	now := time.Now()
	if o.free.Before(now) {
		o.free = now
	}
	o.free = o.free.Add(time.Duration(int64(bytes) * int64(time.Second) / o.rate))
	return o.free.Sub(now)
}

// list answers all in one page.
func (o *counted) list(w http.ResponseWriter) {
	type object struct {
		Key  string
		Size int64
		ETag string
	}
	page := struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated bool
		Contents    []object
	}{}
	for n := range o.samples.Len() {
		page.Contents = append(page.Contents, object{Key: fmt.Sprintf("%08d", n),
			Size: int64(o.samples.Size(sample.ID(n))), ETag: `"1"`})
	}
	_ = xml.NewEncoder(w).Encode(&page) // the client sees a page cut short
}

// total is how many requests there were.
func (o *counted) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.requests {
		n += r
	}
	return n
}

// bar says which samples nobody may ask for from now on.
func (o *counted) bar(held []bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	copy(o.barred, held)
}

// asked are the samples that were asked for though they were barred.
func (o *counted) asked() []sample.ID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]sample.ID(nil), o.wrong...)
}

// quiet says that nobody is connected: all that a killed daemon asked for has been counted.
func (o *counted) quiet() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conns == 0
}

// newCountedHost adds a dataset "d" of samples of 6 to 114 KB behind a counted origin: both those
// that are read straight into the arena and those that are copied.
func newCountedHost(t *testing.T, bin string, samples int, rate int64) (*host, *counted) {
	t.Helper()
	c := synth.Defaults()
	c.Samples, c.SizeBytes, c.Spread = int64(samples), 60_000, 0.9
	o := newCounted(t, c, rate)
	dir, err := os.MkdirTemp("", "belady") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{t: t, bin: bin, dir: dir, socket: filepath.Join(dir, "s"), samples: o.samples,
		url: o.url()}
	h.must("dataset", "add", "d", h.url)
	return h, o
}
