package prospect

import (
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"belady/internal/core/order"
	"belady/internal/core/perf"
	"belady/internal/core/plan"
	"belady/internal/core/sample"
)

// Report is what `belady plan` prints.
type Report struct {
	Dataset string `json:"dataset"`
	Samples int    `json:"samples"`
	Bytes   int64  `json:"bytes"`
	Epochs  int    `json:"epochs"`
	World   int    `json:"world"`
	Nodes   int    `json:"nodes"`
	Policy  string `json:"policy"`
	// Keep, Staging and Log are of each node, as its daemon counts them.
	Keep    int64 `json:"keep_bytes"`
	Staging int64 `json:"staging_bytes"`
	Log     int64 `json:"log_bytes"`
	// Exact says that tiers and origin are what will be read; otherwise what must be, at the least.
	Exact  bool   `json:"exact"`
	Tiers  []Tier `json:"tiers"`
	Origin Origin `json:"origin"`
	Uses   Uses   `json:"uses"`
	// First and Later are the least times of an epoch; nil: nothing is known that bounds them.
	First  *Epoch   `json:"first_epoch,omitempty"`
	Later  *Epoch   `json:"epoch,omitempty"`
	Digest string   `json:"digest"`
	Notes  []string `json:"notes"`
}

// Tier is what one tier of all nodes holds and gives.
type Tier struct {
	Tier    string  `json:"tier"`
	Samples int     `json:"samples"`
	Bytes   int64   `json:"bytes"`
	Share   float64 `json:"share"` // of the dataset's bytes
	// Home and Peers are read in an epoch after the first, on average: by the node itself, and by
	// others.
	Home  int64 `json:"home_bytes"`
	Peers int64 `json:"peer_bytes"`
}

// Origin is what it must send.
type Origin struct {
	First   int64   `json:"first_epoch_bytes"`
	Later   int64   `json:"epoch_bytes"` // each after the first
	All     int64   `json:"all_epochs_bytes"`
	Samples int     `json:"samples"` // that have no home
	Share   float64 `json:"share"`
}

// Uses are reads of a sample by a node.
type Uses struct {
	Epochs   int     `json:"epochs"` // that were counted
	Least    int     `json:"least"`
	Most     int     `json:"most"`
	Mean     float64 `json:"mean"`
	Above    int     `json:"above"`    // a tenth more than the mean
	Counted  int     `json:"counted"`  // samples that the first node reads more often than that
	Expected float64 `json:"expected"` // by chance
}

// Epoch is the least time of one, by resource.
type Epoch struct {
	Time      time.Duration            `json:"time_ns"`
	Binding   string                   `json:"binding"`
	Stall     time.Duration            `json:"stall_ns"`
	Resources map[string]time.Duration `json:"resources_ns"`
	// Estimate says that what binds it was reckoned for larger samples than were measured: the time
	// is no bound then.
	Estimate bool `json:"estimate"`
	all      []perf.Bound
}

// mean adds up whole numbers that are divided by a common one, losing nothing on the way.
type mean struct{ whole, part int64 }

func (m *mean) add(n, over int64) {
	m.whole += n / over
	m.part += n % over
}

func (m *mean) of(over int64) int64 { return m.whole + m.part/over }

// walk is what one pass over the dataset finds.
type walk struct {
	bytes, firstBytes     int64
	firstSamples          int
	outside               int64 // of firstBytes, what is not in the log
	homeless              int
	homelessBytes         int64
	origin                mean
	home, peers           [2]mean // by tier
	read, received, fromS []mean  // by node: all, of others, and what its ssd gives
}

// report says what the plan comes to.
func (p *prospect) report(rates *perf.Profile) (*Report, error) {
	r := &Report{Dataset: p.Name, Samples: p.Sizes.Len(), Epochs: p.epochs,
		World: p.Order.Ranks(), Nodes: p.nodes, Policy: p.plan.Rule.Name, Keep: p.plan.Keep,
		Staging: p.plan.Staging, Log: p.plan.Log,
		Exact: p.plan.Rule.Fixed && !p.Order.Repeats(), Notes: []string{}}
	digest := p.plan.Digest()
	homes, err := p.homes()
	if err != nil {
		return nil, err
	}
	if homes != nil {
		digest = homes.Digest()
	}
	r.Digest = hex.EncodeToString(digest[:])
	w := p.walk(homes)
	r.Bytes = w.bytes
	p.tiers(r, w, homes)
	if !r.Exact {
		p.least(r, w)
	}
	r.Origin.First = w.firstBytes
	later := int64(p.epochs - 1)
	if later > (math.MaxInt64-r.Origin.First)/max(1, r.Origin.Later) {
		return nil, wrong("--epochs %d: the origin would send more bytes than can be counted; plan "+
			"for fewer", p.epochs)
	}
	r.Origin.All = r.Origin.First + later*r.Origin.Later
	if r.Uses, err = p.countedUses(); err != nil {
		return nil, err
	}
	p.times(r, w, rates)
	p.notes(r, w, rates)
	return r, nil
}

// homes are those of several nodes; nil: there is one.
func (p *prospect) homes() (*plan.Homes, error) {
	if p.nodes == 1 {
		return nil, nil
	}
	in := plan.HomesInput{Content: p.Content, Sizes: p.Sizes, Seed: p.plan.Seed,
		LogMost: p.plan.LogMost, Uses: p.uses, Cost: p.plan.Cost}
	for range p.nodes {
		in.Nodes = append(in.Nodes, plan.Node{Ram: p.plan.Keep, Log: p.plan.Log})
	}
	return plan.MakeHomes(in)
}

// find is where a sample lives.
func (p *prospect) find(homes *plan.Homes, id sample.ID) (node int, tier plan.Tier, ok bool) {
	if homes != nil {
		return homes.Of(id)
	}
	switch {
	case p.plan.InSet(id):
		return 0, plan.Ram, true
	case p.plan.InLog(id):
		return 0, plan.Ssd, true
	}
	return 0, 0, false
}

func (p *prospect) walk(homes *plan.Homes) *walk {
	w := &walk{read: make([]mean, p.nodes), received: make([]mean, p.nodes),
		fromS: make([]mean, p.nodes)}
	over := int64(p.horizon)
	for i := range p.Sizes.Len() {
		id := sample.ID(i)
		size := int64(p.Sizes.Size(id))
		w.bytes += size
		if p.first[i] > 0 {
			w.firstBytes += size
			w.firstSamples++
			if p.plan.Log == 0 || !p.plan.InLog(id) {
				w.outside += size
			}
		}
		home, tier, ok := p.find(homes, id)
		second := -1
		if homes != nil {
			if node, has := homes.Second(id); has {
				second = node
			}
		}
		all := int64(0)
		for node, uses := range p.uses {
			n := int64(uses[i])
			all += n
			w.read[node].add(n*size, over)
			switch {
			case !ok:
			case node == home || node == second:
				w.home[tier].add(n*size, over)
			default:
				w.peers[tier].add(n*size, over)
				w.received[node].add(n*size, over)
			}
			if ok && tier == plan.Ssd {
				w.fromS[home].add(n*size, over)
			}
		}
		if !ok { // padding reads what was just read: it is fetched once
			w.homeless++
			w.homelessBytes += size
			w.origin.add(min(all, over)*size, over)
		}
	}
	return w
}

// tiers fills in what each holds.
func (p *prospect) tiers(r *Report, w *walk, homes *plan.Homes) {
	held := func(tier plan.Tier) (samples int, bytes int64) {
		if homes == nil {
			return [2]int{p.plan.SetCount, p.plan.LogCount}[tier],
				[2]int64{p.plan.SetBytes, p.plan.LogBytes}[tier]
		}
		for node := range p.nodes {
			n, b := homes.Held(node, tier)
			samples, bytes = samples+n, bytes+b
		}
		return samples, bytes
	}
	over := int64(p.horizon)
	for _, tier := range []plan.Tier{plan.Ram, plan.Ssd} {
		t := Tier{Tier: tier.String(), Home: w.home[tier].of(over), Peers: w.peers[tier].of(over)}
		t.Samples, t.Bytes = held(tier)
		t.Share = share(t.Bytes, w.bytes)
		if tier == plan.Ram || p.plan.Log > 0 {
			r.Tiers = append(r.Tiers, t)
		}
	}
	r.Origin.Later, r.Origin.Samples = w.origin.of(over), w.homeless
	r.Origin.Share = share(r.Origin.Later, w.bytes)
}

func share(part, whole int64) float64 { return float64(part) / float64(max(whole, 1)) }

// least replaces what a policy decides while it runs by the bound that none can beat: the distinct
// bytes of an epoch that are not in the log, less what ram keeps. The first epoch stands for all.
func (p *prospect) least(r *Report, w *walk) {
	kept := min(p.plan.Keep, w.firstBytes)
	origin := max(0, w.outside-kept)
	logged := w.firstBytes - kept - origin
	r.Tiers[plan.Ram] = Tier{Tier: plan.Ram.String(), Bytes: kept, Share: share(kept, w.bytes),
		Home: kept}
	if len(r.Tiers) > int(plan.Ssd) {
		r.Tiers[plan.Ssd].Home = logged
		w.fromS[0] = mean{whole: logged}
	}
	r.Origin.Later, r.Origin.Share = origin, share(origin, w.bytes)
	r.Origin.Samples = int(r.Origin.Share * float64(r.Samples))
}

// countedUses says how differently nodes use samples (NoPFS).
func (p *prospect) countedUses() (Uses, error) {
	u := Uses{Epochs: p.horizon, Least: maxHorizon}
	total := int64(0)
	for _, uses := range p.uses {
		for _, n := range uses {
			u.Least, u.Most = min(u.Least, int(n)), max(u.Most, int(n))
			total += int64(n)
		}
	}
	u.Mean = float64(total) / float64(max(1, p.nodes*p.Sizes.Len()))
	u.Above = int(u.Mean * 1.1)
	for _, n := range p.uses[0] {
		if int(n) > u.Above {
			u.Counted++
		}
	}
	if p.Order.Kind == order.Sequential || p.Order.Repeats() { // not dealt by chance, or not once
		return u, nil
	}
	var err error
	u.Expected, err = perf.Above(p.Sizes.Len(), p.nodes, p.horizon, u.Above)
	return u, err
}

// times are the rooflines of the first epoch, in which all comes from the origin and goes where it
// is to stay, and of a later one.
func (p *prospect) times(r *Report, w *walk, rates *perf.Profile) {
	if rates == nil {
		if p.compute == 0 {
			return
		}
		rates = new(perf.Profile)
	}
	over, nodes := int64(p.horizon), int64(p.nodes)
	most := func(all []mean) (most int64) {
		for i := range all {
			most = max(most, all[i].of(over))
		}
		return most
	}
	disks := func(bytes int64) (each []int64) {
		for range rates.Disks {
			each = append(each, bytes/int64(len(rates.Disks)))
		}
		return each
	}
	load := perf.Load{Compute: p.batches * int64(p.compute), Decode: most(w.read),
		PeerBytes: most(w.received), Size: r.meanSize()}
	first, later := load, load
	first.OriginBytes, first.OriginRequests = r.Origin.First, int64(w.firstSamples)/nodes
	later.OriginBytes, later.OriginRequests = r.Origin.Later, int64(r.Origin.Samples)/nodes
	if len(r.Tiers) > int(plan.Ssd) {
		first.DiskWrite = disks(r.Tiers[plan.Ssd].Bytes / nodes)
		later.DiskRead = disks(most(w.fromS))
	}
	r.First, r.Later = planned(rates, first), planned(rates, later)
}

// meanSize is of the dataset's samples.
func (r *Report) meanSize() int64 { return r.Bytes / int64(max(r.Samples, 1)) }

// alike is by how many percent samples may be larger than the measured ones and still count as
// such: a profile is of a part of a dataset, chosen at random.
const alike = 10

func planned(rates *perf.Profile, l perf.Load) *Epoch {
	bound, all := rates.Roofline(l)
	e := &Epoch{Time: time.Duration(bound.Ns), Binding: bound.Binding,
		Stall: time.Duration(bound.Ns - l.Compute), Resources: map[string]time.Duration{}, all: all}
	for _, b := range all {
		e.Resources[b.Binding] = time.Duration(b.Ns)
	}
	e.Estimate = bound.Binding == perf.OriginBytes && rates.Origin.Stretched(l.Size, alike)
	if bound.Ns == 0 {
		e.Binding = ""
	}
	return e
}

// notes say what the figures leave out.
func (p *prospect) notes(r *Report, w *walk, rates *perf.Profile) {
	note := func(when bool, format string, args ...any) {
		if when {
			r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
		}
	}
	note(p.nodes > 1, "this is what %d nodes would do: this daemon does not serve peers yet", p.nodes)
	note(!r.Exact, "policy %s decides while it runs, or the order repeats samples: these are bounds "+
		"that nothing can beat; 'belady sim' runs it", r.Policy)
	note(w.firstBytes == 0,
		"no rank has a whole batch, and --drop-last drops the rest: nothing is read")
	note(p.quota > 0 && p.plan.LogCount == 0,
		"an ssd of %s takes none of these samples: they are too large for its log", bytesOf(p.quota))
	copies := w.homelessBytes - w.bytes
	for _, tier := range r.Tiers {
		copies += tier.Bytes
	}
	note(r.Exact && copies > 0, "%s of what is kept are second copies, for which there is room",
		bytesOf(copies))
	note(p.horizon < p.epochs, "uses were counted over %d of %d epochs", p.horizon, p.epochs)
	note(rates == nil, "there is no profile, so the times of origin, ssd and network are not known: "+
		"run 'belady bench tiers', or give --profile")
	note(p.compute == 0, "--compute is not given and counts as none: with it an epoch may take "+
		"longer, and stall less")
	if rates == nil {
		return
	}
	note(len(rates.Origin.Readers) == 0, "the profile has no origin: its time is not known")
	note(len(rates.Disks) == 0 && p.plan.Log > 0, "the profile has no disk: its time is not known")
	note(len(rates.Peers) == 0 && p.nodes > 1,
		"the profile has no peers: the network's time is not known")
	size, readers := r.meanSize(), int64(p.nodes)
	note(rates.Origin.Stretched(size, alike), "the origin was measured with samples of %s, and these "+
		"are of %s: the time of its bytes is an estimate, not a bound; 'belady bench tiers DATASET' "+
		"measures it with these", bytesOf(rates.Origin.Size), bytesOf(size))
	staged := min(r.Staging*int64(p.nodes), r.Origin.Later)
	note(p.epochs > 1 && len(rates.Origin.Readers) > 0 && staged > r.Origin.Later/100,
		"up to %s may still be staged when an epoch after the first begins: what bounds it is as much "+
			"less then", bytesOf(staged))
	slower := func(own, peers []bool) bool {
		from, _ := rates.Fastest(size, readers, own, peers)
		return from == perf.FromOrigin && len(rates.Origin.Readers) > 0
	}
	note(p.plan.Log > 0 && len(rates.Disks) > 0 && slower([]bool{false, true}, nil),
		"a sample of %s costs more from the ssd than from the origin: the log slows this job",
		bytesOf(size))
	note(p.nodes > 1 && len(rates.Peers) > 0 && slower(nil, []bool{true}),
		"a sample of %s costs more from a peer than from the origin: homes at peers slow this job",
		bytesOf(size))
}
