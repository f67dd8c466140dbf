package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"go.uber.org/goleak"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
	"belady/internal/store/origin/origintest"
	"belady/internal/store/origin/s3"
	"belady/internal/store/origin/throttle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, endpoint, bucket, prefix string) origin.Origin {
	t.Helper()
	o, err := s3.New(t.Context(), s3.Config{Bucket: bucket, Prefix: prefix, Endpoint: endpoint,
		PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func content(n int) []byte {
	random := rand.New(rand.NewPCG(uint64(n), 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func TestConformance(t *testing.T) {
	server := startServer(t)
	client := server.client()
	var buckets atomic.Int64
	maker := func(prefix string, wrap func(*testing.T, origin.Origin) origin.Origin) origintest.Maker {
		return func(t *testing.T, files map[string][]byte) origintest.Subject {
			bucket := bucketName(buckets.Add(1))
			server.makeBucket(client, bucket)
			key := func(name string) string { return strings.TrimPrefix(prefix+"/"+name, "/") }
			for name, content := range files {
				server.put(client, bucket, key(name), content)
			}
			if prefix != "" {
				server.put(client, bucket, prefix+"beside", []byte("not below the prefix"))
			}
			return origintest.Subject{
				Origin: wrap(t, open(t, server.endpoint(), bucket, prefix)),
				Files:  files,
				Put: func(name string, content []byte) {
					server.put(client, bucket, key(name), content)
				},
				Delete: func(name string) {
					k := key(name)
					in := &awss3.DeleteObjectInput{Bucket: &bucket, Key: &k}
					if _, err := client.DeleteObject(t.Context(), in); err != nil {
						t.Fatal(err)
					}
				},
			}
		}
	}
	plain := func(_ *testing.T, o origin.Origin) origin.Origin { return o }
	t.Run("bucket", func(t *testing.T) { origintest.Run(t, maker("", plain)) })
	t.Run("prefix", func(t *testing.T) { origintest.Run(t, maker("data sets/x", plain)) })
	t.Run("throttled", func(t *testing.T) {
		origintest.Run(t, maker("", func(t *testing.T, o origin.Origin) origin.Origin {
			throttled, err := throttle.New(o, throttle.Config{Concurrency: 4})
			if err != nil {
				t.Fatal(err)
			}
			return throttled
		}))
	})
	t.Run("resilient", func(t *testing.T) {
		origintest.Run(t, maker("", func(t *testing.T, o origin.Origin) origin.Origin {
			resilient, err := origin.Resilient(o, origin.RetryDefaults())
			if err != nil {
				t.Fatal(err)
			}
			return resilient
		}))
	})
}

// A body cut again and again is put together from ranges; none of it is lost or doubled.
func TestCutBodyIsResumed(t *testing.T) {
	server := startServer(t)
	client := server.client()
	server.makeBucket(client, "cut")
	want := content(1_000_000)
	server.put(client, "cut", "object", want)
	proxy := startProxy(t, server.addr)
	o := open(t, proxy.endpoint(), "cut", "")
	part := dataset.Part{Name: "object", Size: uint32(len(want))}

	proxy.limit.Store(400_000)
	dst := make([]byte, len(want))
	if err := o.Read(t.Context(), part, dst); err != nil {
		t.Fatalf("Read over cut connections: %v", err)
	}
	if !bytes.Equal(dst, want) {
		t.Error("Read over cut connections gave other bytes")
	}
	if got := proxy.accepted.Load(); got != 3 {
		t.Errorf("%d connections, want 3", got)
	}

	proxy.limit.Store(50_000) // would need 20 resumes: more than one read may take
	if err := o.Read(t.Context(), part, dst); !errors.Is(err, origin.ErrUnavailable) {
		t.Errorf("Read over hopeless connections returned %v", err)
	}
	proxy.limit.Store(0)
	if err := o.Read(t.Context(), part, dst); err != nil || !bytes.Equal(dst, want) {
		t.Errorf("Read after the cuts: %v", err)
	}
}

// What came is compared with the checksum the server keeps of the object: here a disk that turned a
// byte behind its back, so that size, time and ETag are as they were.
func TestChecksums(t *testing.T) {
	server := startServer(t)
	client := server.client()
	server.makeBucket(client, "sums")
	want := content(300_000)
	for _, algorithm := range []types.ChecksumAlgorithm{types.ChecksumAlgorithmCrc32,
		types.ChecksumAlgorithmCrc32c, types.ChecksumAlgorithmCrc64nvme} {
		key := string(algorithm)
		_, err := client.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: aws.String("sums"),
			Key: &key, Body: bytes.NewReader(want), ChecksumAlgorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		proxy := startProxy(t, server.addr)
		o := open(t, proxy.endpoint(), "sums", "")
		whole := dataset.Part{Name: key, Size: uint32(len(want)), Whole: true}
		dst := make([]byte, len(want))
		for _, limit := range []int64{0, 120_000} { // in one piece, and put together from three
			proxy.limit.Store(limit)
			if err := o.Read(t.Context(), whole, dst); err != nil || !bytes.Equal(dst, want) {
				t.Fatalf("%s, cut at %d: %v", key, limit, err)
			}
		}
		turnByte(t, filepath.Join(server.dir, "sums", key), 200_000)
		for _, limit := range []int64{0, 120_000} {
			proxy.limit.Store(limit)
			err := o.Read(t.Context(), whole, dst)
			if !errors.Is(err, origin.ErrUnavailable) ||
				!strings.Contains(err.Error(), "do not fit the checksum") {
				t.Errorf("%s, cut at %d: %v", key, limit, err)
			}
		}
	}
}

// turnByte changes one byte of a file.
func turnByte(t *testing.T, path string, at int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var b [1]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := file.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	server := startServer(t)
	client := server.client()
	server.makeBucket(client, "here")
	server.put(client, "here", "object", content(100))
	dst := make([]byte, 100)
	read := func(o origin.Origin) error {
		return o.Read(t.Context(), dataset.Part{Name: "object"}, dst)
	}
	if err := read(open(t, server.endpoint(), "elsewhere", "")); !errors.Is(err, origin.ErrAbsent) {
		t.Errorf("Read in an absent bucket returned %v", err)
	}
	good := open(t, server.endpoint(), "here", "")

	setCredentials(t, accessKey, "a-wrong-secret")
	denied := open(t, server.endpoint(), "here", "")
	listErr := denied.List(t.Context(), func([]dataset.Object) error { return nil })
	for _, err := range []error{read(denied), listErr} {
		if !errors.Is(err, origin.ErrDenied) {
			t.Errorf("a wrong secret gave %v", err)
		}
		if strings.Contains(fmt.Sprint(err), "wrong-secret") {
			t.Errorf("the secret is in the error: %v", err)
		}
	}
	if strings.Contains(denied.URL(), "wrong-secret") || strings.Contains(denied.URL(), accessKey) {
		t.Errorf("URL shows credentials: %s", denied.URL())
	}

	server.stop()
	if err := read(good); !errors.Is(err, origin.ErrUnavailable) {
		t.Errorf("Read from a stopped server returned %v", err)
	}
	server.start()
	if err := read(good); err != nil {
		t.Errorf("Read from the restarted server: %v", err)
	}
}

// Rotated credentials are found without a restart.
func TestCredentialsAreReadAgain(t *testing.T) {
	server := startServer(t)
	client := server.client()
	server.makeBucket(client, "here")
	server.put(client, "here", "object", content(100))

	file := filepath.Join(t.TempDir(), "credentials")
	write := func(secret string) {
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n",
			accessKey, secret)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the-old-secret")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	o := open(t, server.endpoint(), "here", "")
	write(secretKey)
	if err := o.Read(t.Context(), dataset.Part{Name: "object"}, make([]byte, 100)); err != nil {
		t.Errorf("Read after the credentials were rotated: %v", err)
	}
	if got := origintest.List(t, o); len(got) != 1 {
		t.Errorf("listed %v", got)
	}
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]s3.Config{
		"s3://b": {Bucket: "b"},
		"s3://b/p/q/?region=eu-west-1&profile=x": {Bucket: "b", Prefix: "p/q", Region: "eu-west-1",
			Profile: "x"},
		"s3://b/p?endpoint=http://h:1": {Bucket: "b", Prefix: "p", Endpoint: "http://h:1",
			PathStyle: true},
		"s3://b?endpoint=https://h&path_style=false&anonymous=true": {Bucket: "b",
			Endpoint: "https://h", Anonymous: true},
	} {
		if got, err := parse(in); err != nil || got != want {
			t.Errorf("ParseURL(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for bad, named := range map[string]string{
		"s3:///p":                            "bucket",
		"s3://b?endpoint=h:1":                "endpoint",
		"s3://b?endpoint=http://u:pass@h":    "endpoint",
		"s3://b?regoin=x":                    "regoin",
		"s3://key:hidden@b/p":                "credentials",
		"http://b/p":                         "s3://BUCKET",
		"s3://b?anonymous=perhaps":           "anonymous",
		"s3://b?endpoint=http://h/with/path": "endpoint",
	} {
		_, err := parse(bad)
		if err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("ParseURL(%q) returned %v, want %q named", bad, err, named)
		}
		if strings.Contains(fmt.Sprint(err), "hidden") || strings.Contains(fmt.Sprint(err), "pass") {
			t.Errorf("ParseURL(%q) repeats a secret: %v", bad, err)
		}
	}
}

func parse(s string) (s3.Config, error) {
	u, err := url.Parse(s)
	if err != nil {
		return s3.Config{}, err
	}
	return s3.ParseURL(u)
}

func FuzzParseURL(f *testing.F) {
	f.Add("s3://b/p?endpoint=http://h:1&region=x")
	f.Add("s3://a:b@c?endpoint=//")
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := parse(s); err == nil && c.Validate() != nil {
			t.Errorf("ParseURL(%q) gave what Validate refuses: %+v", s, c)
		}
	})
}

// BenchmarkGet reports the CPU time of this process alone: on loopback the server takes the rest.
func BenchmarkGet(b *testing.B) {
	server := startServer(b)
	client := server.client()
	server.makeBucket(client, "bench")
	for _, size := range []int{3000, 110_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			server.put(client, "bench", fmt.Sprint(size), content(size))
			o := open(b, server.endpoint(), "bench", "")
			part := dataset.Part{Name: fmt.Sprint(size), Size: uint32(size)}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.SetParallelism(8)
			before := cpuTime(b)
			b.RunParallel(func(pb *testing.PB) {
				dst := make([]byte, size)
				for pb.Next() {
					if err := o.Read(b.Context(), part, dst); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
