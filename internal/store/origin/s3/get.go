package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/zeebo/xxh3"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

const (
	// resumes bounds how often one body is taken up again where it was cut.
	resumes = 4
	// emptyHash is the SHA-256 of no body, which is what every GET carries.
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	// errorBody is how much of an error's body is read to find its code.
	errorBody = 8 << 10
)

// errCut: the connection broke in the body, after some of it.
var errCut = errors.New("connection cut in the body")

// versionOf pins an object by its ETag; never zero, which means "unknown".
func versionOf(etag string) dataset.Version {
	etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if etag == "" {
		return 0
	}
	return dataset.Version(max(xxh3.HashString(etag), 1))
}

// Read makes one GET; more only when the connection is cut in the body or credentials are refused.
func (b *bucket) Read(ctx context.Context, part dataset.Part, dst []byte) error {
	if b.closed.Load() {
		return fmt.Errorf("origin %s is closed", b.URL())
	}
	first, done, err := b.getSigned(ctx, part, dst, "")
	rest, left := part, dst
	for cut := 0; errors.Is(err, errCut); cut++ {
		// Without an ETag the second half might be another version's.
		if cut == resumes || done == 0 || first.etag == "" {
			return fmt.Errorf("%w: %w", origin.ErrUnavailable, err)
		}
		rest.Offset += int64(done)
		left = left[done:]
		_, done, err = b.getSigned(ctx, rest, left, first.etag)
	}
	if err != nil {
		return err
	}
	if !first.sum.fits(dst) {
		return fmt.Errorf("%w: %q in %s: the bytes that came do not fit the checksum they were "+
			"stored with (%s); see what lies between, or store the object again",
			origin.ErrUnavailable, part.Name, b.URL(), first.sum.name)
	}
	return nil
}

// answer is what the head of an answer says of an object.
type answer struct {
	etag string
	sum  checksum
}

// getSigned is get with the credentials of now, and once more with others if those are refused.
func (b *bucket) getSigned(ctx context.Context, part dataset.Part, dst []byte, match string) (
	a answer, n int, err error) {
	if b.secrets == nil {
		return b.get(ctx, nil, part, dst, match)
	}
	for attempt := 0; ; attempt++ {
		credentials, err := b.secrets.Retrieve(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return answer{}, 0, ctx.Err()
			}
			return answer{}, 0, fmt.Errorf("%w: no credentials for %s: %w; set AWS_ACCESS_KEY_ID and "+
				"AWS_SECRET_ACCESS_KEY, a profile, or anonymous=true", origin.ErrDenied, b.URL(), err)
		}
		a, n, err = b.get(ctx, &credentials, part, dst, match)
		if attempt > 0 || !errors.Is(err, origin.ErrDenied) || !b.secrets.renew(ctx, credentials) {
			return a, n, err
		}
	}
}

// get makes one request for the part's bytes and reads them into dst. match is the ETag of the
// bytes before these, empty for the first request.
func (b *bucket) get(ctx context.Context, credentials *aws.Credentials, part dataset.Part,
	dst []byte, match string) (a answer, n int, err error) {
	request, err := b.request(ctx, credentials, part, len(dst), match)
	if err != nil {
		return a, 0, err
	}
	response, err := b.transport.RoundTrip(request)
	if err != nil {
		if ctx.Err() != nil {
			return a, 0, ctx.Err()
		}
		return a, 0, fmt.Errorf("%w: %q in %s: %w", origin.ErrUnavailable, part.Name, b.URL(), err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusPartialContent {
		code := errorCode(response.Body)
		return a, 0, b.refusal(response.StatusCode, code, response.Header, part.Name)
	}
	if err := b.checkAnswer(response, part, len(dst), match); err != nil {
		return a, 0, err
	}
	a.etag = response.Header.Get("Etag")
	if len(dst) > 0 && response.ContentLength == int64(len(dst)) {
		a.sum = checksumOf(response)
	}
	if n, err = io.ReadFull(response.Body, dst); err != nil {
		if ctx.Err() != nil {
			return a, 0, ctx.Err()
		}
		return a, n, fmt.Errorf("%w: %q in %s: %d of %d bytes: %w", errCut, part.Name, b.URL(),
			n, len(dst), err)
	}
	return a, n, nil
}

// request makes the signed GET of size bytes, or a HEAD when there are none to read.
func (b *bucket) request(ctx context.Context, credentials *aws.Credentials, part dataset.Part,
	size int, match string) (*http.Request, error) {
	path := b.basePath + part.Name
	header := make(http.Header, 8)
	request := (&http.Request{
		Method:     http.MethodGet,
		URL:        &url.URL{Scheme: b.scheme, Host: b.host, Path: path, RawPath: escape(path)},
		Host:       b.host,
		Header:     header,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}).WithContext(ctx)
	header["X-Amz-Content-Sha256"] = []string{emptyHash}
	header["User-Agent"] = []string{"belady"}
	switch {
	case size == 0:
		request.Method = http.MethodHead
	case part.Whole && part.Offset == 0:
		// All of the object: a range would only cost the server some work. It comes with the
		// checksum it was stored with, if there is one, which no range has.
		header["X-Amz-Checksum-Mode"] = []string{"ENABLED"}
	default:
		var buf [48]byte
		r := append(buf[:0], "bytes="...)
		r = strconv.AppendInt(r, part.Offset, 10)
		r = append(r, '-')
		r = strconv.AppendInt(r, part.Offset+int64(size)-1, 10)
		header["Range"] = []string{string(r)}
	}
	if match != "" {
		header["If-Match"] = []string{match}
	}
	if credentials == nil {
		return request, nil
	}
	err := b.secrets.SignHTTP(ctx, *credentials, request, emptyHash, "s3", b.region, time.Now())
	if err != nil {
		return nil, fmt.Errorf("sign request for %q in %s: %w", part.Name, b.URL(), err)
	}
	return request, nil
}

// checkAnswer compares what the server says it sends with what was asked for.
func (b *bucket) checkAnswer(r *http.Response, part dataset.Part, size int, match string) error {
	etag := r.Header.Get("Etag")
	if part.Version != 0 && versionOf(etag) != part.Version {
		return b.changed(part.Name, "its ETag differs")
	}
	if match != "" && etag != match {
		return b.changed(part.Name, "its ETag changed while it was read")
	}
	if size == 0 {
		return nil
	}
	if r.StatusCode == http.StatusOK && part.Offset != 0 {
		return fmt.Errorf("read %q in %s: the server ignores Range; use one that honours it",
			part.Name, b.URL())
	}
	if r.ContentLength >= 0 && r.ContentLength < int64(size) {
		return b.changed(part.Name, fmt.Sprintf("it ends at byte %d and the manifest has bytes up "+
			"to %d", part.Offset+r.ContentLength, part.Offset+int64(size)))
	}
	if r.StatusCode == http.StatusOK && part.Whole && r.ContentLength > int64(size) {
		return b.changed(part.Name, fmt.Sprintf("it has %d bytes and the manifest %d",
			r.ContentLength, size))
	}
	if r.StatusCode == http.StatusPartialContent {
		want := "bytes " + strconv.FormatInt(part.Offset, 10) + "-"
		if got := r.Header.Get("Content-Range"); !strings.HasPrefix(got, want) {
			return fmt.Errorf("%w: %q in %s: asked for bytes from %d, answered %q",
				origin.ErrUnavailable, part.Name, b.URL(), part.Offset, got)
		}
	}
	return nil
}

func (b *bucket) changed(name, how string) error {
	return fmt.Errorf("%w: %q in %s: %s", origin.ErrChanged, name, b.URL(), how)
}

// errorCode finds the code in an error's XML body. The rest of the body is dropped: it may repeat
// what was signed.
func errorCode(body io.Reader) string {
	text, err := io.ReadAll(io.LimitReader(body, errorBody))
	if err != nil {
		return ""
	}
	var e struct {
		Code string `xml:"Code"`
	}
	if xml.Unmarshal(text, &e) != nil || len(e.Code) > 64 {
		return ""
	}
	return e.Code
}

// refusal turns an answer that is no success into the error it means.
func (b *bucket) refusal(status int, code string, header http.Header, name string) error {
	what := fmt.Sprintf("%q in %s: status %d", name, b.URL(), status)
	if code != "" {
		what += " " + strconv.Quote(code)
	}
	switch {
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %s", origin.ErrAbsent, what)
	case status == http.StatusPreconditionFailed:
		return b.changed(name, "its ETag changed while it was read")
	case status == http.StatusRequestedRangeNotSatisfiable:
		return b.changed(name, "it is shorter than the manifest says")
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return origin.SlowDown(retryAfter(header, time.Now()), "%s", what)
	case status == http.StatusForbidden, status == http.StatusUnauthorized,
		code == "ExpiredToken", code == "InvalidToken", code == "TokenRefreshRequired":
		return fmt.Errorf("%w: %s; check the credentials and the bucket's policy",
			origin.ErrDenied, what)
	case status >= 500, status == http.StatusRequestTimeout:
		return fmt.Errorf("%w: %s", origin.ErrUnavailable, what)
	case status >= 300 && status < 400:
		return fmt.Errorf("read %s: the bucket is in another region (%s); set region=", what,
			header.Get("X-Amz-Bucket-Region"))
	}
	return fmt.Errorf("read %s; check the URL, the bucket's name and the region", what)
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	v := header.Get("Retry-After")
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// escape encodes a path as S3 signs it: everything but the unreserved characters and '/'.
func escape(path string) string {
	plain := true
	for i := 0; i < len(path) && plain; i++ {
		plain = unreserved(path[i])
	}
	if plain {
		return path
	}
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(path)+len(path)/2)
	for i := range len(path) {
		if c := path[i]; unreserved(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(out)
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~' || c == '/'
}
