package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/perf"
)

// A node asks another for bytes by connecting and sending hello; the other sends what means
// nothing until the connection is closed, or for answerSpan.
const (
	hello       = "belady bench 1\n"
	answerSpan  = 5 * time.Second
	answersMost = 64 // connections at once
	peerSpan    = 500 * time.Millisecond
	peerWait    = 2 * time.Second // to connect, and for the first byte
	peerBlock   = 256 << 10
)

// peerThreads are how many connections a link is measured with.
var peerThreads = []int{1, 2, 4, 8}

// Answer lets others measure the link to this node, through l, until ctx is done. It serves no data
// but bytes at random, each connection for a few seconds, and reads no more than a greeting.
func Answer(ctx context.Context, l net.Listener) error {
	block := make([]byte, peerBlock)
	r := rand.NewChaCha8([32]byte{2})
	_, _ = r.Read(block) // never fails
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, answersMost)
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case places <- struct{}{}:
		default: // as many as there may be are being answered
			_ = conn.Close()
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			answer(ctx, conn, block)
		})
	}
}

// answer sends the block again and again to who says hello.
func answer(ctx context.Context, conn net.Conn, block []byte) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	greeting := make([]byte, len(hello))
	if conn.SetDeadline(time.Now().Add(answerSpan)) != nil {
		return
	}
	if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != hello {
		return
	}
	for {
		if _, err := conn.Write(block); err != nil {
			return // it has enough, or the time is over
		}
	}
}

// Peer measures the link to another node, on which Answer runs: bytes a second by connections.
func Peer(ctx context.Context, address string, step func()) (link perf.Curve, err error) {
	for _, threads := range peerThreads {
		rate, err := receive(ctx, address, threads)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, fmt.Errorf("measure the link to %s: %w; "+
				"on that node run 'belady bench peer --listen HOST:PORT'", address, err)
		}
		step()
		link = append(link, perf.Step{At: int64(threads), Rate: rate})
	}
	return link, nil
}

// receive is the bytes a second that so many connections bring together, once all of them do.
func receive(ctx context.Context, address string, threads int) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	var received atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel() // which ends those that are waited for
	failed, begun := make(chan error, threads), make(chan struct{}, threads)
	for range threads {
		all.Go(func() {
			if err := drain(ctx, address, begun, &received); err != nil {
				failed <- err
			}
		})
	}
	for range threads {
		select {
		case <-begun:
		case err := <-failed:
			return 0, err
		}
	}
	from, began := received.Load(), time.Now()
	select {
	case <-time.After(peerSpan):
	case err := <-failed:
		return 0, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return int64(float64(received.Load()-from) / time.Since(began).Seconds()), nil
}

// drain counts what one connection brings until ctx is done.
func drain(
	ctx context.Context, address string, begun chan<- struct{}, received *atomic.Int64,
) error {
	dialer := net.Dialer{Timeout: peerWait}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(peerWait)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, hello); err != nil {
		return err
	}
	buf := make([]byte, peerBlock)
	for first := true; ; first = false {
		n, err := conn.Read(buf)
		received.Add(int64(n))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("it closed the connection")
		case err != nil:
			return err
		case first:
			begun <- struct{}{}
		}
	}
}

// slowest is the slower of two links, step by step.
func slowest(a, b perf.Curve) perf.Curve {
	if a == nil {
		return b
	}
	for i := range a {
		a[i].Rate = min(a[i].Rate, b[i].Rate)
	}
	return a
}
