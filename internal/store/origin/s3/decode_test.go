package s3

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func FuzzErrorCode(f *testing.F) {
	f.Add("<Error><Code>NoSuchKey</Code></Error>")
	f.Add("<Error><Code>" + strings.Repeat("x", 100))
	f.Fuzz(func(t *testing.T, body string) {
		if code := errorCode(strings.NewReader(body)); len(code) > 64 {
			t.Errorf("a code of %d bytes", len(code))
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("3")
	f.Add("Wed, 21 Oct 2026 07:28:00 GMT")
	f.Fuzz(func(t *testing.T, value string) {
		h := http.Header{"Retry-After": {value}}
		if d := retryAfter(h, time.Unix(1790000000, 0)); d < 0 {
			t.Errorf("Retry-After %q is %v", value, d)
		}
	})
}

// What is sent is what is signed: the escaped path must decode to the key and be kept as it is.
func FuzzEscape(f *testing.F) {
	f.Add("/bucket/a b+c%20/é\xff")
	f.Fuzz(func(t *testing.T, path string) {
		u := url.URL{Path: path, RawPath: escape(path)}
		if got, err := url.PathUnescape(u.RawPath); err != nil || got != path {
			t.Errorf("escape(%q) decodes to %q, %v", path, got, err)
		}
		if got := u.EscapedPath(); got != u.RawPath && path != "*" {
			t.Errorf("%q is sent as %q, not %q", path, got, u.RawPath)
		}
	})
}

func TestVersionOfETag(t *testing.T) {
	if versionOf(`"abc"`) != versionOf("abc") || versionOf(`W/"abc"`) != versionOf("abc") {
		t.Error("quotes are part of the version")
	}
	if versionOf("") != 0 || versionOf(`"a"`) == 0 || versionOf("a") == versionOf("b") {
		t.Error("versions do not tell ETags apart")
	}
}
