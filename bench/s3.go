package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	s3Key, s3Secret = "belady-bench", "belady-bench-secret"
	s3Bucket        = "bench"
	s3Size          = 110_000
)

// s3: the first epoch from a real server, beside a third-party client's best.
func (s *suite) s3() (t *table, err error) {
	g, err := s.startGateway()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	objects, sweepTime := 40_000, 3*time.Second
	if s.quick {
		objects, sweepTime = 10_000, time.Second
	}
	s.say("writing %d objects of 110 KB", objects)
	if err := g.fill(s.ctx, objects); err != nil {
		return nil, err
	}
	t = newTable()
	best, workers := 0.0, 0
	for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
		rate, err := g.get(s.ctx, n, objects, sweepTime)
		if err != nil {
			return nil, err
		}
		s.say("minio-go, %2d requests at once: %.0f MB/s", n, rate/1e6)
		t.info(fmt.Sprintf("minio-go, %d requests at once", n), fmt.Sprintf("%.0f MB/s", rate/1e6))
		if rate > best {
			best, workers = rate, n
		}
	}
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	env := []string{"AWS_ACCESS_KEY_ID=" + s3Key, "AWS_SECRET_ACCESS_KEY=" + s3Secret,
		"AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true"}
	url := fmt.Sprintf("s3://%s/?endpoint=http://%s&path_style=true", s3Bucket, g.addr)
	if _, err := s.add(dir, "data", url, env...); err != nil {
		return nil, err
	}
	ours, theirs, err := s.alternate(g, dir, workers, objects, env)
	if err != nil {
		return nil, err
	}
	t.bar("Belady's first epoch", fmt.Sprintf("%.0f MB/s", ours.rate/1e6),
		fmt.Sprintf("minio-go, %d at once: %.0f MB/s", workers, theirs.rate/1e6),
		ours.rate/theirs.rate, 0.9, true)
	t.info("CPU an object, Belady", ours.cpu())
	t.info("CPU an object, minio-go", theirs.cpu())
	t.note("%d objects of 110 KB on versitygw with --keep-alive, all of them in the page cache. "+
		"minio-go (a third-party client) reads each object once, in random order, and discards it; "+
		"Belady starts anew each time, keeps little, and its rank takes every batch. Eight runs "+
		"alternate: theirs, ours, ours, theirs, and again; each figure is the median of four.",
		objects)
	return t, nil
}

// side is one run, or the median of one side's: bytes a second, and CPU an object in µs of the
// reader (with Belady its daemon and its rank) and of the server.
type side struct{ rate, reader, server float64 }

// median is of each figure by itself, so that one disturbed run decides nothing.
func median(runs []side) side {
	of := func(figure func(side) float64) float64 {
		var all []float64
		for _, r := range runs {
			all = append(all, figure(r))
		}
		slices.Sort(all)
		return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
	}
	return side{of(func(r side) float64 { return r.rate }),
		of(func(r side) float64 { return r.reader }), of(func(r side) float64 { return r.server })}
}

func (m side) cpu() string {
	return fmt.Sprintf("%.0f µs, the server %.0f µs", m.reader, m.server)
}

// alternate reads everything eight times: theirs, ours, ours, theirs, and again.
func (s *suite) alternate(g *gateway, dir string, workers, objects int, env []string) (
	ours, theirs side, err error) {
	const pattern = "ABBAABBA"
	runs := map[string][]side{}
	for i, who := range pattern {
		own, err := ownCPU()
		if err != nil {
			return ours, theirs, err
		}
		server, err := cpuOf(g.cmd.Process.Pid)
		if err != nil {
			return ours, theirs, err
		}
		var rate float64
		var daemon time.Duration
		name := "minio-go"
		if who == 'A' {
			rate, err = g.get(s.ctx, workers, objects, time.Hour)
		} else {
			name = "Belady"
			rate, daemon, err = s.firstEpoch(dir, objects, env)
		}
		if err != nil {
			return ours, theirs, err
		}
		ownNow, err := ownCPU()
		if err != nil {
			return ours, theirs, err
		}
		serverNow, err := cpuOf(g.cmd.Process.Pid)
		if err != nil {
			return ours, theirs, err
		}
		micros := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(objects) }
		one := side{rate, micros(ownNow - own + daemon), micros(serverNow - server)}
		s.say("%d of %d: %-8s %.0f MB/s, CPU an object %s", i+1, len(pattern), name, rate/1e6,
			one.cpu())
		runs[name] = append(runs[name], one)
	}
	return median(runs["Belady"]), median(runs["minio-go"]), nil
}

// firstEpoch is the rate of a fresh daemon that can keep little, and the CPU it took.
func (s *suite) firstEpoch(dir string, samples int, env []string) (
	rate float64, cpu time.Duration, err error) {
	n, err := s.start(dir, 512<<20, 256<<20, env...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	r := reading{socket: n.socket, dataset: "data", epochs: 1, batch: 64, samples: samples,
		noTouch: true}
	epochs, err := r.run(s.ctx)
	if err != nil {
		return 0, 0, err
	}
	cpu, err = cpuOf(n.pid())
	return float64(epochs[0].bytes) / epochs[0].seconds(), cpu, err
}

// gateway is a versitygw process over a folder.
type gateway struct {
	cmd  *exec.Cmd
	addr string
	core minio.Core
	log  tail
}

func (s *suite) startGateway() (*gateway, error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gateway{addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		return nil, err
	}
	binary := filepath.Join(s.root, ".cache", "bin", "versitygw")
	g.cmd = exec.Command(binary, "--quiet", "--keep-alive", "--port", g.addr, "posix", dir)
	g.cmd.Env = environ("ROOT_ACCESS_KEY="+s3Key, "ROOT_SECRET_KEY="+s3Secret)
	g.cmd.Stdout, g.cmd.Stderr = &g.log, &g.log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the S3 server (make tools installs it): %w", err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, MaxIdleConns: 256,
		DisableCompression: true}
	core, err := minio.NewCore(g.addr, &minio.Options{Transport: transport,
		Creds: credentials.NewStaticV4(s3Key, s3Secret, ""), Region: "us-east-1"})
	if err != nil {
		return nil, errors.Join(err, g.stop())
	}
	g.core = *core
	for range 500 {
		if c, err := net.Dial("tcp", g.addr); err == nil {
			return g, c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("versitygw does not listen: %s", &g.log), g.stop())
}

// stop kills the server: it holds nothing that is needed.
func (g *gateway) stop() error {
	if err := g.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = g.cmd.Wait() // "signal: killed" is what was asked for
	return nil
}

func object(i int) string { return fmt.Sprintf("c%02d/s%06d", i%100, i) }

func (g *gateway) fill(ctx context.Context, objects int) error {
	if err := g.core.MakeBucket(ctx, s3Bucket, minio.MakeBucketOptions{}); err != nil {
		return err
	}
	_, err := each(ctx, 8, objects, time.Hour, func(i int) error {
		body := make([]byte, s3Size)
		fillRandom(body, uint64(i))
		_, err := g.core.PutObject(ctx, s3Bucket, object(i), bytes.NewReader(body), s3Size, "", "",
			minio.PutObjectOptions{DisableContentSha256: true})
		return err
	})
	return err
}

func fillRandom(body []byte, seed uint64) {
	draw := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i+8 <= len(body); i += 8 {
		x := draw.Uint64()
		for j := range 8 {
			body[i+j] = byte(x >> (8 * j))
		}
	}
}

// get reads every object once with n requests at once, or as many as the time allows, and returns
// bytes a second.
func (g *gateway) get(ctx context.Context, n, objects int, limit time.Duration) (float64, error) {
	order := rand.New(rand.NewPCG(uint64(n), 2)).Perm(objects)
	begun := time.Now()
	done, err := each(ctx, n, objects, limit, func(i int) error {
		body, _, _, err := g.core.GetObject(ctx, s3Bucket, object(order[i]), minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer body.Close()
		got, err := io.Copy(io.Discard, body)
		if err == nil && got != s3Size {
			err = fmt.Errorf("%s has %d bytes", object(order[i]), got)
		}
		return err
	})
	return float64(done) * s3Size / time.Since(begun).Seconds(), err
}

// each runs f for 0 to count−1 on n goroutines until the time is up, and says for how many.
func each(ctx context.Context, n, count int, limit time.Duration, f func(i int) error) (
	int64, error) {
	var next, done atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	deadline := time.Now().Add(limit)
	for range n {
		all.Go(func() {
			for failed.Load() == nil && ctx.Err() == nil && time.Now().Before(deadline) {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return done.Load(), *err
	}
	return done.Load(), ctx.Err()
}
