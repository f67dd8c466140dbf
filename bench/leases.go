package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"belady/internal/client"
	"belady/internal/core/order"
	"belady/internal/core/sample"
)

// leases: a dataset that is wholly kept, read through leases from the second epoch on.
func (s *suite) leases() (*table, error) {
	t := newTable()
	total := int64(2e9)
	if s.quick {
		total = 5e8
	}
	if err := s.leases110(t, total); err != nil {
		return nil, err
	}
	if err := s.leases3(t, total); err != nil {
		return nil, err
	}
	t.note("The dataset is wholly kept; figures are from the second epoch on. The bare read " +
		"touches a memfd of as many bytes with the same function in the same order, and " +
		"alternates with Belady's epochs.")
	return t, nil
}

// kept starts a daemon with room for all of a computed dataset.
func (s *suite) kept(size, total int64) (*node, int, error) {
	dir, err := s.folder()
	if err != nil {
		return nil, 0, err
	}
	info, err := s.add(dir, "data", fmt.Sprintf("synth://data?samples=%d&size=%d", total/size, size))
	if err != nil {
		return nil, 0, err
	}
	staging := int64(64 << 20)
	n, err := s.start(dir, info.Bytes+info.Bytes/8+2*staging, staging)
	return n, info.Samples, err
}

func (s *suite) leases110(t *table, total int64) (err error) {
	const size, batch, rounds = 110_000, 64, 6
	n, samples, err := s.kept(size, total)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	bare, err := newBare(samples, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	if _, err := bare.read(0); err != nil { // its pages are mapped now
		return err
	}
	var through, direct time.Duration
	r := reading{socket: n.socket, dataset: "data", epochs: 2*rounds + 1, batch: batch,
		samples: samples}
	r.ended = func(e *epoch) error {
		if e.index == 0 {
			s.say("filled %d samples of 110 KB at %.0f MB/s", e.samples,
				float64(e.bytes)/e.seconds()/1e6)
		} else {
			through += e.end.Sub(e.begun)
		}
		// Belady, bare, bare, Belady: a drift of the machine meets both alike.
		if e.index%2 == 0 {
			return nil
		}
		for range 2 {
			took, err := bare.read(e.index)
			if err != nil {
				return err
			}
			direct += took
		}
		return nil
	}
	if _, err := r.run(s.ctx); err != nil {
		return err
	}
	rate := func(d time.Duration) float64 {
		return float64(2*rounds) * float64(samples) * size / d.Seconds() / 1e9
	}
	t.bar("110 KB, every byte touched", fmt.Sprintf("%.2f GB/s", rate(through)),
		fmt.Sprintf("bare %.2f GB/s", rate(direct)), rate(through)/rate(direct), 0.8, true)
	return nil
}

func (s *suite) leases3(t *table, total int64) (err error) {
	const size, batch = 3000, 256
	n, samples, err := s.kept(size, total)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	epochs := max(4, int(6_000_000/samples))
	for _, noTouch := range []bool{false, true} {
		r := reading{socket: n.socket, dataset: "data", epochs: epochs + 1, batch: batch,
			samples: samples, noTouch: noTouch}
		var daemon, client, took time.Duration
		r.ended = func(e *epoch) error {
			ours, err := ownCPU()
			if err != nil {
				return err
			}
			theirs, err := cpuOf(n.pid())
			if err != nil {
				return err
			}
			switch e.index {
			case 0:
				daemon, client = -theirs, -ours
			case epochs:
				daemon, client = daemon+theirs, client+ours
			}
			if e.index > 0 {
				took += e.end.Sub(e.begun)
			}
			return nil
		}
		if _, err := r.run(s.ctx); err != nil {
			return err
		}
		read := float64(epochs) * float64(samples)
		each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / read / 1e3 }
		split := fmt.Sprintf("%.3f µs (daemon %.3f, client %.3f)", each(daemon+client),
			each(daemon), each(client))
		if noTouch {
			t.bar("3 KB, CPU a sample, not touched", split, "1 µs", each(daemon+client), 1, false)
			t.info("3 KB, not touched", fmt.Sprintf("%.2f M samples/s", read/took.Seconds()/1e6))
			continue
		}
		t.bar("3 KB, every byte touched", fmt.Sprintf("%.2f M samples/s", read/took.Seconds()/1e6),
			"1 M samples/s", read/took.Seconds()/1e6, 1, true)
		t.info("3 KB, CPU a sample, touched", split)
	}
	return nil
}

// bare is memory read with nothing between.
type bare struct {
	data    []byte
	samples int
	size    int
	stride  int
	ids     []sample.ID
	order   order.Order
	sum     uint64
}

func newBare(samples, size int) (*bare, error) {
	b := &bare{samples: samples, size: size, stride: (size + 63) &^ 63}
	var err error
	b.order, err = order.New(order.Spec{Kind: order.Distributed, Samples: samples, Batch: 64})
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("bare", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "bare")
	defer file.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	bytes := samples * b.stride
	for at := 0; at < bytes; at += len(block) {
		if _, err := file.Write(block[:min(len(block), bytes-at)]); err != nil {
			return nil, err
		}
	}
	b.data, err = unix.Mmap(fd, 0, bytes, unix.PROT_READ, unix.MAP_SHARED)
	return b, err
}

// read touches every sample once, in an epoch's order.
func (b *bare) read(epoch int) (time.Duration, error) {
	e, err := b.order.Epoch(epoch, 0, 0, b.ids)
	if err != nil {
		return 0, err
	}
	b.ids = e.IDs
	begun := time.Now()
	for _, id := range e.IDs {
		at := int(id) * b.stride
		b.sum += client.Touch(b.data[at : at+b.size])
	}
	return time.Since(begun), nil
}

func (b *bare) close() error { return unix.Munmap(b.data) }
