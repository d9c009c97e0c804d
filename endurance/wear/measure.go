package wear

import (
	"fmt"
	"math"
)

// Options say what is known of the workload.
type Options struct {
	// CapacityBytes is one drive write.
	CapacityBytes uint64
	// AlphaMilli is raw over exported capacity in thousandths; 0 when not
	// known, and it then follows from the WAF itself, by the same law.
	AlphaMilli uint32
	// FillDriveWrites is how many drive writes pass until the drive is full,
	// before which garbage collection has less to do: 0 when it was full before
	// the first sample.
	FillDriveWrites float64
}

const (
	// WindowsPerDriveWrite is how finely the course of WAF is told.
	WindowsPerDriveWrite = 4
	// stableWindows is over how many successive windows WAF must hold still to
	// be called settled by the data, and stableSpread by how much it may move.
	stableWindows = 8
	stableSpread  = 0.02
	// maxDiscard bounds the drive writes that the law discards: near WAF 1 it
	// asks for ever more, and the data decide.
	maxDiscard = 8.0
)

// Window is the WAF of one stretch of about a quarter of a drive write, between
// two edges of the media counter.
type Window struct {
	WAF
	// From and To are the samples at its edges.
	From, To int
	// HostBefore is what the host had written before it since the first
	// sample, in bytes.
	HostBefore float64
}

// Result is what a run's samples say.
type Result struct {
	// WAF is that of the settled part, or of the latter half of the samples
	// when nothing has settled.
	WAF WAF
	// Settled says whether the workload had settled, Rule by which rule, and
	// DiscardedBytes how much the host wrote before that.
	Settled        bool
	Rule           string
	DiscardedBytes float64
	Windows        []Window
	Epochs         []Span
}

// Measure computes the WAF of a workload from the samples taken since it began.
//
// Garbage collection rings with a period of alpha/A drive writes after a change
// and settles to 1 % within about three periods, so at least
// max(1, 3*alpha/A) drive writes are discarded. Where that is not known or not
// reached, the data may show it: eight successive windows within 2 %.
func Measure(samples []Sample, o Options) Result {
	r := Result{Epochs: Epochs(samples)}
	if len(samples) == 0 {
		r.WAF = notAvailable("not reported: no samples")
		return r
	}
	p, reason := choose(&samples[len(samples)-1])
	if reason != "" {
		r.WAF = notAvailable(reason)
		return r
	}
	c := course{samples: samples, pair: p, spans: r.Epochs}
	c.build(o)
	r.Windows = c.windows
	if len(c.points) < 2 {
		r.WAF = (&stretch{}).waf(samples, p)
		return r
	}
	total := c.points[len(c.points)-1].host
	if from, rule, ok := c.settledByLaw(o); ok {
		r.Settled, r.Rule, r.DiscardedBytes = true, rule, from
	} else if at, rule2, ok := c.settledByData(o); ok {
		r.Settled, r.Rule, r.DiscardedBytes = true, rule2, at
	} else {
		r.Rule, r.DiscardedBytes = rule+"; the latter half is shown", total/2
	}
	r.WAF = c.from(r.DiscardedBytes)
	if !r.WAF.Available {
		r.Settled = false
	}
	return r
}

// point is an edge and what the host had written by then.
type point struct {
	sample, span int
	host         float64
}

// course is the run of the counters over all epochs.
type course struct {
	samples []Sample
	pair    pair
	spans   []Span
	points  []point
	windows []Window
}

// usable says whether a span has the chosen counters.
func (c *course) usable(s Span) bool {
	first, last := &c.samples[s.From], &c.samples[len(c.samples)-1]
	return len(first.Media) > c.pair.media && len(first.Host) > c.pair.host &&
		first.Media[c.pair.media].Source == last.Media[c.pair.media].Source &&
		first.Media[c.pair.media].UnitBytes == last.Media[c.pair.media].UnitBytes &&
		first.Host[c.pair.host].Source == last.Host[c.pair.host].Source &&
		first.Host[c.pair.host].UnitBytes == last.Host[c.pair.host].UnitBytes
}

// written is what the host wrote between two samples of an epoch, in bytes.
func (c *course) written(i, j int) float64 {
	a, b := &c.samples[i].Host[c.pair.host], &c.samples[j].Host[c.pair.host]
	return b.After.Sub(a.After).Float() * float64(b.UnitBytes)
}

func (c *course) build(o Options) {
	width := float64(o.CapacityBytes) / WindowsPerDriveWrite
	base := 0.0
	for k, span := range c.spans {
		if !c.usable(span) {
			continue
		}
		at := edges(c.samples, span, c.pair)
		start := -1
		for _, e := range at {
			host := base + c.written(span.From, e)
			c.points = append(c.points, point{sample: e, span: k, host: host})
			switch {
			case start < 0:
				start = len(c.points) - 1
			case width > 0 && host-c.points[start].host >= width:
				var s stretch
				s.add(c.samples, c.pair, c.points[start].sample, e)
				c.windows = append(c.windows, Window{
					WAF: s.waf(c.samples, c.pair), From: c.points[start].sample, To: e, HostBefore: c.points[start].host,
				})
				start = len(c.points) - 1
			}
		}
		base += c.written(span.From, span.To-1)
	}
}

// from is the WAF of everything from the first edge at or after the host had
// written so many bytes. Epochs are never bridged.
func (c *course) from(host float64) WAF {
	var s stretch
	for i := 0; i < len(c.points); {
		if c.points[i].host < host {
			i++
			continue
		}
		j := i
		for j+1 < len(c.points) && c.points[j+1].span == c.points[i].span {
			j++
		}
		if j > i {
			from := c.sharpest(i, min(i+edgeChoice, j-1))
			to := c.sharpest(j, max(j-edgeChoice, from+1))
			s.add(c.samples, c.pair, c.points[from].sample, c.points[to].sample)
		}
		i = j + 1
	}
	return s.waf(c.samples, c.pair)
}

// edgeChoice is how many edges beside the first and the last are looked at for
// one that is known more exactly.
const edgeChoice = 3

// sharpest is the edge at point k, or one between k and limit before which
// the host wrote less than half as much since the sample before: where samples
// have been thinned, some edges are only known to lie within a long stretch.
func (c *course) sharpest(k, limit int) int {
	gap := func(k int) float64 { return c.written(c.points[k].sample-1, c.points[k].sample) }
	step := 1
	if limit < k {
		step = -1
	}
	best, least := k, gap(k)/2
	for i := k; i != limit; {
		i += step
		if g := gap(i); g < least {
			best, least = i, g
		}
	}
	return best
}

// Ring is the period, in drive writes, with which WAF rings after a change:
// alpha/A. Where alpha, raw over exported capacity in thousandths, is 0 it follows
// from the WAF by the same law. False near a WAF of 1, where nothing rings.
func Ring(alphaMilli uint32, waf float64) (driveWrites float64, ok bool) {
	switch {
	case alphaMilli > 1000 && waf > 0:
		return float64(alphaMilli) / 1000 / waf, true
	case waf > 1:
		// A = 1/(1-u) and u = exp(-alpha/A) give alpha/A = ln(A/(A-1)).
		return math.Log(waf / (waf - 1)), true
	}
	return 0, false
}

// settledByLaw discards max(1, 3*alpha/A) drive writes, after what it takes to
// fill the drive, and asks for half a drive write beyond.
func (c *course) settledByLaw(o Options) (discard float64, rule string, ok bool) {
	capacity := float64(o.CapacityBytes)
	total := c.points[len(c.points)-1].host
	if capacity == 0 {
		return 0, "not settled: the capacity is not known", false
	}
	// The latter half tells A well enough to say how much to discard.
	late := c.from(total / 2)
	if !late.Available {
		return 0, "not settled: " + late.Reason, false
	}
	periods, how := math.Inf(1), ""
	if o.AlphaMilli > 1000 {
		how = fmt.Sprintf("alpha %.3f", float64(o.AlphaMilli)/1000)
	} else {
		how = "alpha from the WAF itself"
	}
	if ring, ok := Ring(o.AlphaMilli, late.Value); ok {
		periods = 3 * ring
	}
	if periods > maxDiscard {
		return 0, fmt.Sprintf("not settled: near a WAF of 1 only the data can show it (%d windows of 1/%d drive write within %.0f %%)",
			stableWindows, WindowsPerDriveWrite, stableSpread*100), false
	}
	writes := o.FillDriveWrites + max(1, periods)
	if total < (writes+0.5)*capacity {
		return 0, fmt.Sprintf("not settled: %.2f drive writes of the %.2f needed (max(1, 3*alpha/A), %s, and a half)",
			total/capacity, writes+0.5, how), false
	}
	return writes * capacity, fmt.Sprintf("the first %.2f drive writes discarded (max(1, 3*alpha/A), %s)", writes, how), true
}

// settledByData finds the earliest window from which on, up to the end, WAF
// holds still: at least stableWindows of them, after the first drive write.
func (c *course) settledByData(o Options) (discard float64, rule string, ok bool) {
	n := len(c.windows)
	first := n
	low, high := math.Inf(1), math.Inf(-1)
	for i := n - 1; i >= 0; i-- {
		w := &c.windows[i]
		if !w.Available || w.HostBefore < max(1, o.FillDriveWrites)*float64(o.CapacityBytes) {
			break
		}
		low, high = min(low, w.Value), max(high, w.Value)
		if high-low > stableSpread*low {
			break
		}
		first = i
	}
	if n-first < stableWindows {
		return 0, "", false
	}
	return c.windows[first].HostBefore, fmt.Sprintf("the last %d windows of 1/%d drive write are within %.0f %%",
		n-first, WindowsPerDriveWrite, stableSpread*100), true
}

// Lifetime is the WAF of a drive's whole life by one sample: absolute values,
// which start at 0 and were counted by every firmware the drive ever had.
func Lifetime(s *Sample) WAF {
	p, reason := choose(s)
	if reason != "" {
		return notAvailable(reason)
	}
	h, m := &s.Host[p.host], &s.Media[p.media]
	host, media := h.After.Times(h.UnitBytes), m.Units.Times(m.UnitBytes)
	low := host.Float() - float64(h.UnitBytes)
	if low <= 0 {
		return notAvailable("not reported: too little was written for the resolution of the counters")
	}
	return WAF{
		Available: true, Value: media.Float() / host.Float(),
		Low:    max(0, media.Float()-float64(m.UnitBytes)) / (host.Float() + float64(h.UnitBytes)),
		High:   (media.Float() + float64(m.UnitBytes)) / low,
		Source: m.Source + " / " + h.Source, HostBytes: host, MediaBytes: media, LastNS: s.TimeNS,
	}
}
