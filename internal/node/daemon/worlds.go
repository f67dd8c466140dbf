package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/policy"
	"belady/internal/node/wire"
	"belady/internal/node/world"
	"belady/internal/store/arena"
	"belady/internal/store/catalog"
	"belady/internal/store/origin"
)

// place is one dataset, or union of datasets, in the daemon's table.
type place struct {
	world   *world.World // nil until it is made
	ready   chan struct{}
	err     error
	content dataset.ID
	files   []*catalog.Dataset
	origins []origin.Origin
	users   int
	usedAt  time.Time
}

// open finds or makes the world of a client's datasets, and counts it as in use.
func (d *Daemon) open(ctx context.Context, a *wire.Attach) (*world.World, func(), error) {
	rule := job.PolicyName(a.Policy, &a.Order)
	if _, err := policy.Find(rule); err != nil {
		return nil, nil, err
	}
	files, set, err := d.manifests(a)
	if err != nil {
		return nil, nil, err
	}
	key := keyOf(a)
	for {
		d.mu.Lock()
		p := d.worlds[key]
		if p == nil {
			p = &place{ready: make(chan struct{}), content: set.ID(), files: files, users: 1}
			d.worlds[key] = p
			d.mu.Unlock()
			d.make(ctx, key, p, a, set, rule)
			if p.err != nil {
				return nil, nil, p.err
			}
			return p.world, d.leaver(p), nil
		}
		p.users++
		d.mu.Unlock()
		select {
		case <-p.ready:
		case <-ctx.Done():
			d.leaver(p)()
			return nil, nil, errors.Join(ctx.Err(), closeFiles(files))
		}
		if p.err == nil && p.content == set.ID() && p.world.Rule == rule {
			return p.world, d.leaver(p), closeFiles(files)
		}
		if err := d.replace(key, p, rule); err != nil {
			return nil, nil, errors.Join(err, closeFiles(files))
		}
	}
}

// keyOf names a union of datasets in the table.
func keyOf(a *wire.Attach) string {
	var names []string
	for _, m := range a.Datasets {
		names = append(names, m.Name)
	}
	return strings.Join(names, "+")
}

// manifests opens the manifests a client names and joins them.
func (d *Daemon) manifests(a *wire.Attach) ([]*catalog.Dataset, *dataset.Set, error) {
	var files []*catalog.Dataset
	var members []*dataset.Manifest
	var weights []float64
	for _, m := range a.Datasets {
		f, err := d.catalog.Open(m.Name)
		if err != nil {
			return nil, nil, errors.Join(err, closeFiles(files))
		}
		files = append(files, f)
		members = append(members, f.Manifest)
		if m.Weight == 0 {
			m.Weight = 1
		}
		weights = append(weights, m.Weight)
	}
	for i, m := range members[1:] {
		if !slices.Equal(m.Fields(), members[0].Fields()) {
			return nil, nil, errors.Join(fmt.Errorf("%s has fields %v but %s has %v: datasets of "+
				"one job need the same fields", a.Datasets[0].Name, members[0].Fields(),
				a.Datasets[i+1].Name, m.Fields()), closeFiles(files))
		}
	}
	set, err := dataset.NewSet(members, weights)
	if err != nil {
		return nil, nil, errors.Join(err, closeFiles(files))
	}
	return files, set, nil
}

// leaver counts one user out, once.
func (d *Daemon) leaver(p *place) func() {
	left := false
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !left {
			left = true
			p.users--
			p.usedAt = time.Now()
		}
	}
}

// make opens the origins and the world of a new place. It stays in the table only if it works.
func (d *Daemon) make(
	ctx context.Context, key string, p *place, a *wire.Attach, set *dataset.Set, rule string,
) {
	defer close(p.ready)
	w, err := d.newWorld(ctx, key, p, a, set, rule)
	if err != nil {
		err = errors.Join(err, p.closeStores())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.world, p.err = w, err
	if err != nil && d.worlds[key] == p {
		delete(d.worlds, key)
	}
	d.tuneHeap()
}

func (d *Daemon) newWorld(
	ctx context.Context, key string, p *place, a *wire.Attach, set *dataset.Set, rule string,
) (*world.World, error) {
	for _, f := range p.files {
		o, err := d.OpenOrigin(ctx, f.Info.URL)
		if err != nil {
			return nil, err
		}
		safe, err := origin.Resilient(o, d.Retry)
		if err != nil {
			return nil, errors.Join(err, o.Close())
		}
		p.origins = append(p.origins, safe)
	}
	bytes, err := d.grant(ctx, p, set)
	if err != nil {
		return nil, err
	}
	cfg := world.Config{Name: key, Set: set, Origins: p.origins, Pool: d.pool, Bytes: bytes,
		Staging: min(d.Staging, bytes/2), Concurrency: d.Concurrency, Rule: rule,
		Seed: uint64(a.Order.Seed), Listen: d.Listen}
	if d.Record != nil {
		if cfg.Record, err = d.Record(key, &cfg); err != nil {
			return nil, err
		}
	}
	return world.New(cfg)
}

// replace removes a place that no longer fits the catalogue or the policy, if nobody uses it.
func (d *Daemon) replace(key string, p *place, rule string) error {
	d.mu.Lock()
	p.users--
	if p.users > 0 && p.err == nil {
		d.mu.Unlock()
		if p.world.Rule != rule {
			return fmt.Errorf("%s is being read with policy %s, which all its readers share: "+
				"ask for that one, or wait until it is free", key, p.world.Rule)
		}
		return fmt.Errorf("%s was scanned anew while ranks still read what it was: "+
			"end those first", key)
	}
	if d.worlds[key] == p {
		delete(d.worlds, key)
	}
	d.mu.Unlock()
	if p.err != nil {
		return nil // its maker has closed it
	}
	return p.close()
}

// grant decides a new world's memory: all it can use if that is free; else what idle datasets
// give back; else an equal share, for which the largest in use shrink.
func (d *Daemon) grant(ctx context.Context, p *place, set *dataset.Set) (int64, error) {
	staging := d.Staging
	if staging == 0 {
		staging = world.StagingShare(d.RAM)
	}
	want := set.TotalBytes() + set.TotalBytes()/12 + staging + staging/8 + 16*arena.SpanBytes
	want = min(want, d.RAM)
	for d.pool.Left() < want {
		idle := d.takeIdle(p)
		if idle == nil {
			break
		}
		if err := idle.close(); err != nil {
			return 0, err
		}
	}
	if left := d.pool.Left(); left >= want {
		return want, nil
	}
	used := d.inUse(p)
	share := min(want, d.RAM/int64(len(used)+1))
	for _, w := range used {
		s, err := w.Status()
		if err != nil || s.Arena.Total <= share {
			continue
		}
		if err := w.Resize(max(share, s.Arena.Total-share)); err != nil {
			return 0, err
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for d.pool.Left() < share && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	got := min(share, d.pool.Left())
	if got < min(want, 8*arena.SpanBytes) {
		return 0, fmt.Errorf("%w: %d MiB of --ram are left of %d: start the daemon with more, "+
			"or end a job", world.ErrTooSmall, d.pool.Left()>>20, d.RAM>>20)
	}
	return got, nil
}

// takeIdle removes from the table the dataset that has been idle longest.
func (d *Daemon) takeIdle(but *place) *place {
	d.mu.Lock()
	defer d.mu.Unlock()
	var oldest *place
	name := ""
	for key, p := range d.worlds {
		if p != but && p.users == 0 && p.world != nil &&
			(oldest == nil || p.usedAt.Before(oldest.usedAt)) {
			oldest, name = p, key
		}
	}
	delete(d.worlds, name)
	return oldest
}

func (d *Daemon) inUse(but *place) []*world.World {
	d.mu.Lock()
	defer d.mu.Unlock()
	var used []*world.World
	for _, p := range d.worlds {
		if p != but && p.world != nil {
			used = append(used, p.world)
		}
	}
	return used
}

func (p *place) close() error {
	return errors.Join(p.world.Close(), p.closeStores())
}

func (p *place) closeStores() error {
	var errs []error
	for _, o := range p.origins {
		errs = append(errs, o.Close())
	}
	return errors.Join(append(errs, closeFiles(p.files))...)
}

func closeFiles(files []*catalog.Dataset) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (d *Daemon) closeWorlds() error {
	d.mu.Lock()
	all := d.worlds
	d.worlds = map[string]*place{}
	d.mu.Unlock()
	var errs []error
	for _, p := range all {
		<-p.ready
		if p.err == nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}
