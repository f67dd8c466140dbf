package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
	"belady/internal/store/origin/s3"
)

// answering is a server that answers every request as told: what no real server does on demand.
func answering(t *testing.T, handle http.HandlerFunc) origin.Origin {
	t.Helper()
	setCredentials(t, accessKey, secretKey)
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return open(t, server.URL, "bucket", "")
}

func TestStatusesMeanErrors(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		code   string
		want   error
		after  time.Duration
	}{
		{503, "", "SlowDown", origin.ErrSlowDown, 0},
		{503, "3", "SlowDown", origin.ErrSlowDown, 3 * time.Second},
		{503, "soon", "", origin.ErrSlowDown, 0},
		{429, "1", "", origin.ErrSlowDown, time.Second},
		{500, "", "InternalError", origin.ErrUnavailable, 0},
		{502, "", "", origin.ErrUnavailable, 0},
		{504, "", "", origin.ErrUnavailable, 0},
		{408, "", "", origin.ErrUnavailable, 0},
		{404, "", "NoSuchKey", origin.ErrAbsent, 0},
		{403, "", "AccessDenied", origin.ErrDenied, 0},
		{401, "", "", origin.ErrDenied, 0},
		{400, "", "ExpiredToken", origin.ErrDenied, 0},
		{412, "", "PreconditionFailed", origin.ErrChanged, 0},
		{416, "", "InvalidRange", origin.ErrChanged, 0},
		{301, "", "PermanentRedirect", nil, 0},
		{400, "", "InvalidBucketName", nil, 0},
	} {
		t.Run(fmt.Sprint(c.status, c.code, c.header), func(t *testing.T) {
			o := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.WriteHeader(c.status)
				fmt.Fprintf(w, "<Error><Code>%s</Code><StringToSign>signed</StringToSign></Error>",
					c.code)
			})
			err := o.Read(t.Context(), dataset.Part{Name: "x"}, make([]byte, 1))
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
				t.Fatalf("Read returned %v, want %v", err, c.want)
			}
			if c.want == nil && errors.Is(err, origin.ErrUnavailable) {
				t.Errorf("Read returned %v, which would be retried in vain", err)
			}
			if c.want == origin.ErrSlowDown && !errors.Is(err, origin.ErrUnavailable) {
				t.Errorf("%v is not unavailable too", err)
			}
			if got := origin.RetryAfter(err); got != c.after {
				t.Errorf("Retry-After is %v, want %v", got, c.after)
			}
			if strings.Contains(err.Error(), "signed") {
				t.Errorf("the error repeats the server's body: %v", err)
			}
		})
	}
}

// A body cut in the middle whose rest belongs to another version is never put together, whether
// the server honours If-Match or not.
func TestResumeNeverMixesVersions(t *testing.T) {
	for _, honours := range []bool{true, false} {
		var requests atomic.Int64
		o := answering(t, func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) == 1 {
				w.Header().Set("Etag", `"one"`)
				w.Header().Set("Content-Range", "bytes 0-99999/100000")
				w.Header().Set("Content-Length", "100000")
				w.WriteHeader(http.StatusPartialContent)
				w.Write(make([]byte, 50_000))
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			if r.Header.Get("If-Match") != `"one"` {
				t.Errorf("If-Match is %q", r.Header.Get("If-Match"))
			}
			if honours {
				w.WriteHeader(http.StatusPreconditionFailed)
				return
			}
			w.Header().Set("Etag", `"two"`)
			http.ServeContent(w, withoutMatch(r), "", time.Time{}, bytes.NewReader(make([]byte, 1e5)))
		})
		err := o.Read(t.Context(), dataset.Part{Name: "x"}, make([]byte, 100_000))
		if !errors.Is(err, origin.ErrChanged) {
			t.Errorf("Read returned %v", err)
		}
		if requests.Load() != 2 {
			t.Errorf("%d requests, want 2", requests.Load())
		}
	}
}

func withoutMatch(r *http.Request) *http.Request {
	r.Header.Del("If-Match")
	return r
}

// A server that ignores Range must not pass the object's first bytes for those in the middle.
func TestRangeIgnored(t *testing.T) {
	o := answering(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1000)) })
	if err := o.Read(t.Context(), dataset.Part{Name: "x", Offset: 500}, make([]byte, 10)); err == nil {
		t.Error("Read in the middle succeeded")
	}
	if err := o.Read(t.Context(), dataset.Part{Name: "x"}, make([]byte, 1000)); err != nil {
		t.Errorf("Read of the whole: %v", err)
	}
	wrong := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 0-9/1000")
		w.WriteHeader(http.StatusPartialContent)
		w.Write(make([]byte, 10))
	})
	err := wrong.Read(t.Context(), dataset.Part{Name: "x", Offset: 500}, make([]byte, 10))
	if !errors.Is(err, origin.ErrUnavailable) {
		t.Errorf("Read answered with another range returned %v", err)
	}
}

func TestHangEndsWithTheContext(t *testing.T) {
	for _, headers := range []bool{false, true} {
		arrived := make(chan struct{})
		o := answering(t, func(w http.ResponseWriter, r *http.Request) {
			if headers {
				w.Header().Set("Content-Length", "10")
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
			}
			close(arrived)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		err := o.Read(ctx, dataset.Part{Name: "x"}, make([]byte, 10))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Read returned %v", err)
		}
	}
}

func TestAnonymousIsNotSigned(t *testing.T) {
	setCredentials(t, accessKey, secretKey)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("an anonymous request is signed")
		}
		w.Write([]byte("0123456789"))
	}))
	defer server.Close()
	o, err := s3.New(t.Context(), s3.Config{Bucket: "b", Endpoint: server.URL, PathStyle: true,
		Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Read(t.Context(), dataset.Part{Name: "x"}, make([]byte, 10)); err != nil {
		t.Error(err)
	}
}
