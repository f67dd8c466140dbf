package perf

// Pacer says how many requests to have in flight: twice the product of the best latency seen and
// the rate of answers, as a transport does, and never so few that a near origin with work of its
// own to do could fall idle. While more requests bring more answers the limit doubles; once they
// only wait longer it stands. A function of what it is told, with no clock; times are ns.
type Pacer struct {
	most  int // configured
	limit int

	since   int64 // when this round began
	answers int   // in this round
	full    bool  // the limit was reached in this round
	best    int64 // least time a request took, over the last rounds
	fresh   int64 // least time in this generation
	rounds  int
	probe   int // rounds left of a look at the latency without a queue of our own
	resume  int // the limit after it
}

const (
	paceLeast = 32
	// paceRound is the least time over which a rate is taken; a round also lasts until every
	// request in flight could have been answered twice.
	paceRound = 20_000_000
	// paceMemory is how many rounds a latency is believed: origins change. Then a few requests
	// at a time look for the new one: measured behind a queue of our own it would justify that
	// queue, and a longer one next time.
	paceMemory = 256
	paceProbe  = 4 // the limit is divided by
)

// NewPacer begins with few requests, and never lets more than most be in flight.
func NewPacer(most int) Pacer { return Pacer{most: most, limit: min(paceLeast, most)} }

// Limit is how many requests may be in flight now.
func (p *Pacer) Limit() int { return p.limit }

// Best is the least time that a request has taken of late; 0: none has ended.
func (p *Pacer) Best() int64 { return p.best }

// Ended takes n requests that took that long together, when active were in flight.
func (p *Pacer) Ended(now, took int64, n, active int) {
	each := took / int64(n)
	if p.fresh == 0 || each < p.fresh {
		p.fresh = each
	}
	p.answers += n
	p.full = p.full || active >= p.limit
	if p.since == 0 {
		p.since = now
	}
	if now-p.since < max(paceRound, 2*p.best) || p.answers < p.limit {
		return
	}
	p.round(now - p.since)
	p.since, p.answers, p.full = now, 0, false
}

func (p *Pacer) round(length int64) {
	switch {
	case p.probe == 2: // what was in flight before has been answered
		p.probe, p.fresh = 1, 0
		return
	case p.probe == 1:
		p.probe, p.best, p.limit = 0, p.fresh, p.resume
		return
	}
	if p.best == 0 || p.fresh < p.best {
		p.best = p.fresh
	}
	if p.rounds++; p.rounds%paceMemory == 0 {
		p.probe, p.resume, p.limit = 2, p.limit, max(p.limit/paceProbe, min(paceLeast, p.most))
		return
	}
	if !p.full {
		return // demand, not the limit, set the rate: it says nothing about the limit
	}
	product := float64(p.answers) / float64(length) * float64(p.best)
	p.limit = min(max(int(2*product), paceLeast), p.most)
}

// Grain is how many samples of that size to claim at once: one where a request is long, several
// where claiming would cost as much as reading.
func (p *Pacer) Grain(size int) int {
	if size >= 64<<10 || p.best == 0 || p.best > 100_000 {
		return 1
	}
	return 8
}
