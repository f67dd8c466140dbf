package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/core/job"
	"belady/internal/core/plan"
	"belady/internal/core/policy"
	"belady/internal/node/event"
	"belady/internal/node/session"
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
	log     *world.Log // nil: none
	loan    *loan      // of memory to the log; nil: none
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
	deadline := time.Now().Add(orphaned * d.Patience)
	for {
		p, made := d.enter(key, set.ID(), files)
		if made {
			d.make(ctx, key, p, a, set, rule)
			if p.err != nil {
				return nil, nil, p.err
			}
			return p.world, d.leaver(p), nil
		}
		w, err := d.join(ctx, key, p, set.ID(), a.Policy)
		if err == nil && w != nil {
			d.granting.Lock()
			d.regrow(w, d.rings(a, set))
			d.granting.Unlock()
			if err := closeFiles(files); err != nil {
				d.tell(event.Trouble{What: "close a second map of " + key, Err: err})
			}
			return w, d.leaver(p), nil
		}
		if errors.Is(err, errInUse) && time.Now().Before(deadline) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			return nil, nil, errors.Join(err, closeFiles(files))
		}
	}
}

// errInUse: ranks read what a client wants replaced.
var errInUse = errors.New("the dataset is in use")

// enter returns the place of a dataset, new and in use if there is none.
func (d *Daemon) enter(key string, content dataset.ID, files []*catalog.Dataset) (*place, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.worlds[key]
	if p != nil {
		return p, false
	}
	p = &place{ready: make(chan struct{}), content: content, files: files, users: 1}
	d.worlds[key] = p
	return p, true
}

// join counts a client in where the place fits what it wants; one that names no policy takes the
// one in force. A place that fits no more goes, if nobody uses it: no world and no error mean that
// there is room for a new one.
func (d *Daemon) join(
	ctx context.Context, key string, p *place, content dataset.ID, rule string,
) (*world.World, error) {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.err != nil {
		return nil, p.err // its maker has closed it
	}
	d.mu.Lock()
	switch {
	case d.worlds[key] != p: // it has gone since
		d.mu.Unlock()
		return nil, nil
	case p.content == content && (rule == "" || p.world.Rule == rule):
		p.users++
		d.mu.Unlock()
		return p.world, nil
	case p.users > 0:
		d.mu.Unlock()
		if rule != "" && p.world.Rule != rule {
			return nil, fmt.Errorf("%w: %s is being read with policy %s, which all its readers "+
				"share: ask for that one, or wait until it is free", errInUse, key, p.world.Rule)
		}
		return nil, fmt.Errorf("%w: %s was scanned anew while ranks still read what it was: "+
			"end those first", errInUse, key)
	}
	delete(d.worlds, key)
	d.mu.Unlock()
	if err := p.close(); err != nil {
		d.tell(event.Trouble{What: "close " + key, Err: err})
	}
	return nil, nil
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
	for _, m := range a.Datasets {
		f, err := d.catalog.Open(m.Name)
		if err != nil {
			return nil, nil, errors.Join(err, closeFiles(files))
		}
		files = append(files, f)
		members = append(members, f.Manifest)
	}
	for i, m := range members[1:] {
		if !slices.Equal(m.Fields(), members[0].Fields()) {
			return nil, nil, errors.Join(fmt.Errorf("%s has fields %v but %s has %v: datasets of "+
				"one job need the same fields", a.Datasets[0].Name, members[0].Fields(),
				a.Datasets[i+1].Name, m.Fields()), closeFiles(files))
		}
	}
	set, err := dataset.NewSet(members, nil) // weights are a job's own
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
	d.openLog(key, p, set, d.layoutFor(key, a, set, rule))
	// One at a time, until the memory is taken: two that open together must not count the same
	// bytes.
	d.granting.Lock()
	defer d.granting.Unlock()
	bytes, err := d.grant(ctx, p, set, d.RAM-d.rings(a, set)-d.setAside(p))
	if err != nil {
		return nil, err
	}
	cfg := world.Config{Name: key, Set: set, Origins: p.origins, Log: p.log, Pool: d.pool,
		Bytes: bytes, Staging: min(d.Staging, bytes), Concurrency: d.Concurrency, Rule: rule,
		Seed: uint64(a.Order.Seed), Listen: d.Listen}
	if d.Trace != "" {
		cfg.Record = func(p *plan.Plan) (world.Recorder, error) { return d.record(key, p) }
	}
	return world.New(cfg)
}

// rings is the memory to leave for the packed batches of a job's ranks.
func (d *Daemon) rings(a *wire.Attach, set *dataset.Set) int64 {
	if !a.Packed {
		return 0
	}
	ranks := int64(min(a.Order.Ranks(), 8))
	largest := world.LargestBatch(&a.Order, set.Len())
	return min(ranks*session.RingBytes(d.pool, set, largest), d.RAM/4)
}

// grant decides a new world's memory: all it can use if that is free; else what idle datasets
// give back; else an equal share, for which the largest in use shrink.
func (d *Daemon) grant(
	ctx context.Context, p *place, set *dataset.Set, most int64,
) (int64, error) {
	want := min(d.wants(set), most)
	for d.pool.Left() < want && d.closeIdle(p, false) {
	}
	if left := d.pool.Left(); left >= want {
		return want, nil
	}
	used := d.inUse(p)
	share := min(want, d.RAM/int64(len(used)+1))
	if err := d.shrink(used, share, share); err != nil {
		return 0, err
	}
	d.waitForMemory(ctx, share)
	got := min(share, d.pool.Left())
	if got < min(want, 8*arena.SpanBytes) {
		for _, w := range used {
			d.regrow(w, 0)
		}
		return 0, fmt.Errorf("%w: %d MiB of --ram are left of %d: start the daemon with more, "+
			"or end a job", world.ErrTooSmall, d.pool.Left()>>20, d.RAM>>20)
	}
	return got, nil
}

// shrink has worlds give back what lacks of bytes beyond what they are giving already, the largest
// first, and none below least.
func (d *Daemon) shrink(worlds []*world.World, bytes, least int64) error {
	lack := bytes - d.pool.Left()
	memory := map[*world.World]int64{}
	for _, w := range worlds {
		if s, err := w.Status(); err == nil {
			memory[w] = s.Memory
			lack -= s.Arena.Total - s.Memory
		}
	}
	slices.SortFunc(worlds, func(a, b *world.World) int { return cmp.Compare(memory[b], memory[a]) })
	for _, w := range worlds {
		give := min(lack, memory[w]-least)
		if give <= 0 {
			continue
		}
		if err := w.Resize(memory[w] - give); err != nil && !errors.Is(err, world.ErrClosed) {
			return err
		}
		lack -= give
	}
	return nil
}

// wants is all the memory a dataset can use.
func (d *Daemon) wants(set *dataset.Set) int64 {
	return world.Wants(set.TotalBytes(), d.Staging, d.RAM)
}

// regrow gives a world that was made to shrink what is free of what it wants, but for some aside.
func (d *Daemon) regrow(w *world.World, aside int64) {
	s, err := w.Status()
	if err != nil {
		return
	}
	bytes := min(d.wants(w.Set), s.Memory+d.pool.Left()-aside)
	if bytes < s.Memory+8*arena.SpanBytes {
		return
	}
	if err := w.Resize(bytes); err != nil && !errors.Is(err, world.ErrClosed) {
		d.tell(event.Trouble{What: "give memory back to " + s.Dataset, Err: err})
	}
}

// closeIdle closes the dataset, or the one with a log, that has been idle longest; false if there
// is none. What goes wrong with it is nobody's business who comes for another.
func (d *Daemon) closeIdle(but *place, logged bool) bool {
	idle := d.takeIdle(but, logged)
	if idle == nil {
		return false
	}
	if err := idle.close(); err != nil {
		d.tell(event.Trouble{What: "close an idle dataset", Err: err})
	}
	return true
}

// memoryPatience is how long a job that joins waits for others to give memory back: they do once
// what they have lent is released.
const memoryPatience = 15 * time.Second

// waitForMemory waits a while for slabs on their way out to be given back.
func (d *Daemon) waitForMemory(ctx context.Context, bytes int64) {
	deadline := time.Now().Add(memoryPatience)
	for d.pool.Left() < bytes && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// spare makes room for a packed ring: an idle dataset goes, or the one being read shrinks.
func (d *Daemon) spare(ctx context.Context, w *world.World, bytes int64) error {
	d.granting.Lock()
	defer d.granting.Unlock()
	for d.pool.Left() < bytes && d.closeIdle(nil, false) {
	}
	if d.pool.Left() >= bytes {
		return nil
	}
	s, err := w.Status()
	if err != nil {
		return err
	}
	if bytes > s.Memory/4 {
		return fmt.Errorf("%w: packed batches take %d MiB beside the %d MiB of %s",
			world.ErrTooSmall, bytes>>20+1, s.Memory>>20, s.Dataset)
	}
	if err := d.shrink([]*world.World{w}, bytes, 0); err != nil {
		return err
	}
	d.waitForMemory(ctx, bytes)
	return ctx.Err()
}

// takeIdle removes from the table the dataset, or the one with a log, that has been idle longest.
func (d *Daemon) takeIdle(but *place, logged bool) *place {
	d.mu.Lock()
	defer d.mu.Unlock()
	var oldest *place
	name := ""
	for key, p := range d.worlds {
		if p != but && p.users == 0 && p.world != nil && (p.log != nil || !logged) &&
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
	if p.log != nil {
		errs = append(errs, p.log.Close())
		p.loan.end()
	}
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
