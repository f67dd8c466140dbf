package s3_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	accessKey = "belady-test"
	secretKey = "belady-test-secret"
)

// findServer returns the path of versitygw: a test without a real S3 server proves nothing, so a
// missing one is a failure.
func findServer(t testing.TB) string {
	path := os.Getenv("BELADY_VERSITYGW")
	if path == "" {
		path = filepath.Join("..", "..", "..", "..", ".cache", "bin", "versitygw")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the S3 server is missing (%v); run make tools, or name it in BELADY_VERSITYGW", err)
	}
	return path
}

// server is one versitygw process on a fixed port that can be stopped and started again.
type server struct {
	t    testing.TB
	dir  string
	addr string
	cmd  *exec.Cmd
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func startServer(t testing.TB) *server {
	t.Helper()
	setCredentials(t, accessKey, secretKey)
	s := &server{t: t, dir: t.TempDir(), addr: freeAddr(t)}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func setCredentials(t testing.TB, key, secret string) {
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
}

func (s *server) endpoint() string { return "http://" + s.addr }

func (s *server) start() {
	s.t.Helper()
	var log bytes.Buffer
	s.cmd = exec.Command(findServer(s.t), "--quiet", "--keep-alive", "--port", s.addr, "posix", s.dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 1000 {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			c.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	s.t.Fatalf("versitygw does not listen on %s: %s", s.addr, log.String())
}

func (s *server) stop() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	s.cmd.Wait() // "signal: killed" is what was asked for
	s.cmd = nil
}

// client writes objects; only tests may.
func (s *server) client() *awss3.Client {
	s.t.Helper()
	cfg, err := config.LoadDefaultConfig(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 512}
	s.t.Cleanup(transport.CloseIdleConnections)
	return awss3.NewFromConfig(cfg, func(o *awss3.Options) {
		o.BaseEndpoint = aws.String(s.endpoint())
		o.UsePathStyle = true
		o.HTTPClient = &http.Client{Transport: transport}
	})
}

func (s *server) makeBucket(c *awss3.Client, bucket string) {
	s.t.Helper()
	_, err := c.CreateBucket(s.t.Context(), &awss3.CreateBucketInput{Bucket: &bucket})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) put(c *awss3.Client, bucket, key string, content []byte) {
	s.t.Helper()
	_, err := c.PutObject(context.Background(), &awss3.PutObjectInput{Bucket: &bucket, Key: &key,
		Body: bytes.NewReader(content)})
	if err != nil {
		s.t.Fatalf("put %q: %v", key, err)
	}
}

// proxy passes TCP on, and cuts a connection once it has carried limit bytes of answers.
type proxy struct {
	listener net.Listener
	target   string
	limit    atomic.Int64 // bytes of the next connections; 0: no limit
	accepted atomic.Int64
	running  sync.WaitGroup
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target}
	p.running.Go(p.run)
	t.Cleanup(func() {
		l.Close()
		p.running.Wait()
	})
	return p
}

func (p *proxy) endpoint() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) run() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.running.Go(func() {
			io.Copy(out, in) // ends when either side closes
			out.Close()
			in.Close()
		})
		p.running.Go(func() {
			if limit := p.limit.Load(); limit > 0 {
				io.CopyN(in, out, limit)
			} else {
				io.Copy(in, out)
			}
			out.Close()
			in.Close()
		})
	}
}

func bucketName(i int64) string { return fmt.Sprintf("bucket-%d", i) }

// cpuTime is what this process, without its server, has used so far.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
