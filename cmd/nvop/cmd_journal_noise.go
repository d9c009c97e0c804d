package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/endurance/wear"
	"nvop/journal"
)

// noiseResult is by how much the figures of a run's measured phase scatter: half of
// the width of the 95 % interval by batch means, as a part of the figure. Null is
// not told, and Reasons then say why.
type noiseResult struct {
	WAF       *float64 `json:"waf"`
	WriteIOPS *float64 `json:"write_iops"`
	ReadIOPS  *float64 `json:"read_iops"`
	WriteP99  *float64 `json:"write_latency_p99"`
	ReadP99   *float64 `json:"read_latency_p99"`
	// Batches is how many the rates and latencies rest on.
	Batches int      `json:"batches"`
	Reasons []string `json:"reasons,omitempty"`
}

// Fewer than minNoiseBatches are no sound interval; more than maxNoiseBatches gain nothing.
const (
	minNoiseBatches = 8
	maxNoiseBatches = 32
	// bucketWidth is what a percentile of a histogram is good to; see stats.Histogram.
	bucketWidth = 0.0078
)

// noiseBin sums some successive rows of a phase. Index 0 is reads, 1 writes.
type noiseBin struct {
	activeNS float64
	ops      [2]float64
}

func (b *noiseBin) add(o noiseBin) {
	b.activeNS += o.activeNS
	for i := range b.ops {
		b.ops[i] += o.ops[i]
	}
}

// noiseBins are the rows of a phase in bins of as equal time as rows allow, at most
// maxNoiseBins: memory does not grow with the run.
type noiseBins struct {
	bins []noiseBin
	span float64 // ns at work in a bin, at least
}

const maxNoiseBins = 4096

func (n *noiseBins) add(o noiseBin) {
	if last := len(n.bins) - 1; last >= 0 && n.bins[last].activeNS < n.span {
		n.bins[last].add(o)
		return
	}
	if len(n.bins) == maxNoiseBins {
		for i := range n.bins[:maxNoiseBins/2] {
			n.bins[i] = n.bins[2*i]
			n.bins[i].add(n.bins[2*i+1])
		}
		n.bins = n.bins[:maxNoiseBins/2]
		n.span = max(2*n.span, 2*o.activeNS)
	}
	n.bins = append(n.bins, o)
}

// addRow takes in a row that was at work.
func (n *noiseBins) addRow(r *journal.Row) {
	if r.ActiveNS <= 0 {
		return
	}
	n.add(noiseBin{activeNS: float64(r.ActiveNS), ops: [2]float64{float64(r.ReadOps), float64(r.WriteOps)}})
}

// latencyBins are the recorded latencies of one direction of a phase, each merged
// from as many successive spans as the others, at most maxLatencyBins.
type latencyBins struct {
	bins []*stats.Histogram
	each int // spans of a bin
	last int // and of the last
}

const maxLatencyBins = 2 * maxNoiseBatches

func (l *latencyBins) add(h *stats.Histogram) {
	if n := len(l.bins); n > 0 && l.last < l.each {
		l.bins[n-1].Merge(h)
		l.last++
		return
	}
	if len(l.bins) == maxLatencyBins {
		for i := range maxLatencyBins / 2 {
			l.bins[i] = l.bins[2*i]
			l.bins[i].Merge(l.bins[2*i+1])
		}
		l.bins, l.each = l.bins[:maxLatencyBins/2], 2*l.each
	}
	l.bins, l.each, l.last = append(l.bins, h), max(l.each, 1), 1
}

// p99 is the half-width of the interval of p99 over at most so many batches, as a
// part of it; else why there is none.
func (l *latencyBins) p99(batches int) (*float64, string) {
	bins := l.bins
	if l.last < l.each {
		bins = bins[:len(bins)-1] // it is not whole
	}
	if min(batches, len(bins)) < minNoiseBatches {
		return nil, fmt.Sprintf("%d recorded spans are fewer than %d", len(bins), minNoiseBatches)
	}
	batches = min(batches, len(bins))
	size := len(bins) / batches
	if larger := size + 1; len(bins)%batches > len(bins)/4 && len(bins)/larger >= minNoiseBatches {
		size, batches = larger, len(bins)/larger // less is left out
	}
	bins = bins[len(bins)-size*batches:]
	var values []float64
	for i := range batches {
		h := stats.NewHistogram()
		for _, part := range bins[i*size : (i+1)*size] {
			h.Merge(part)
		}
		ns, ok := h.Percentile(990_000)
		if !ok {
			return nil, "some batch has fewer than the 1,000 operations that it takes"
		}
		values = append(values, float64(ns))
	}
	x := stats.BatchMeans(values, batches)
	part := x.HalfWidth / x.Mean
	return &part, ""
}

// batches cuts the bins into n parts of equal numbers, the oldest remainder left out.
func (n *noiseBins) batches(count int) []noiseBin {
	if count < 1 || len(n.bins) < count {
		return nil
	}
	size := len(n.bins) / count
	bins := n.bins[len(n.bins)-size*count:]
	out := make([]noiseBin, count)
	for i := range bins {
		out[i/size].add(bins[i])
	}
	return out
}

// relative is the half-width of the interval of a figure over batches, as a part of
// its mean; nil where a batch does not have it.
func relative(batches []noiseBin, of func(*noiseBin) (float64, bool)) *float64 {
	var values []float64
	for i := range batches {
		v, ok := of(&batches[i])
		if !ok {
			return nil
		}
		values = append(values, v)
	}
	x := stats.BatchMeans(values, len(values))
	if !x.Available || x.Mean == 0 {
		return nil
	}
	part := x.HalfWidth / x.Mean
	return &part
}

// noiseOf reads what the figures of a run's measured phase scatter by.
func noiseOf(ctx context.Context, j *journal.Journal, full *journal.Run, waf run.WAF) (*noiseResult, error) {
	m, err := j.Measure(ctx, full.ID)
	if err != nil {
		return nil, err
	}
	if m.Phase < 0 {
		return nil, nil
	}
	n := &noiseResult{}
	if l := lifeOf(full, waf); l != nil && l.WAFConfidence != nil {
		if v, ok := waf.Value(); ok && v > 0 {
			part := *l.WAFConfidence / v
			n.WAF = &part
		}
	} else if _, ok := waf.Value(); ok {
		n.Reasons = append(n.Reasons, fmt.Sprintf("of WAF: fewer than %d rings of garbage collection since it settled", minNoiseBatches))
	}
	var bins noiseBins
	written := 0.0
	if err := j.EachRow(ctx, full.ID, func(r journal.Row) error {
		if int64(r.Phase) == m.Phase {
			bins.addRow(&r)
			written += float64(r.WriteBytes)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var latencies [2]latencyBins
	if err := j.EachHistogram(ctx, full.ID, func(h *run.Histogram, d *stats.Histogram) error {
		if int64(h.Phase) == m.Phase {
			i := 0
			if h.Write {
				i = 1
			}
			latencies[i].add(d)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	n.measure(&bins, &latencies, rings(&full.Header.Job, waf, written))
	return n, nil
}

// rings is how many whole rings of garbage collection so many bytes are: within one
// a rate tells the next. Of reads alone nothing rings.
func rings(job *run.Job, waf run.WAF, written float64) float64 {
	if written == 0 {
		return math.Inf(1)
	}
	value, _ := waf.Value()
	ring, ok := wear.Ring(job.AlphaMilli, value)
	if !ok {
		ring = 1
	}
	return written / float64(max(job.CapacityBytes, 1)) / ring
}

// measure fills in rates and latencies.
func (n *noiseResult) measure(bins *noiseBins, latencies *[2]latencyBins, rings float64) {
	count := int(min(rings, float64(len(bins.bins)), maxNoiseBatches))
	if count < minNoiseBatches {
		n.Reasons = append(n.Reasons, fmt.Sprintf("of rates: %d batches, each a ring of garbage collection long or a second, are fewer than %d", count, minNoiseBatches))
		return
	}
	n.Batches = count
	batches := bins.batches(count)
	for i, to := range []struct {
		name      string
		iops, p99 **float64
	}{{"read", &n.ReadIOPS, &n.ReadP99}, {"write", &n.WriteIOPS, &n.WriteP99}} {
		*to.iops = relative(batches, func(b *noiseBin) (float64, bool) { return b.ops[i] / b.activeNS, b.ops[i] > 0 })
		if *to.iops == nil {
			continue
		}
		p99, reason := latencies[i].p99(count)
		if *to.p99 = p99; p99 == nil {
			n.Reasons = append(n.Reasons, fmt.Sprintf("of %s p99: %s", to.name, reason))
		}
	}
}

// text adds the noise to a page.
func (n *noiseResult) text(p *render.Page) {
	if n == nil {
		return
	}
	if n.Batches > 0 {
		var parts []string
		for _, x := range []struct {
			name string
			part *float64
		}{{"write IOPS", n.WriteIOPS}, {"read IOPS", n.ReadIOPS}, {"write p99", n.WriteP99}, {"read p99", n.ReadP99}} {
			if x.part != nil {
				parts = append(parts, fmt.Sprintf("%s +- %.2g %%", x.name, 100**x.part))
			}
		}
		p.Line("  scatter: %s (95 %%, %d batches)", strings.Join(parts, ", "), n.Batches)
	}
	for _, reason := range n.Reasons {
		p.Line("  scatter not told %s", reason)
	}
}

// detail adds to a soak's result what its samples and rows tell: life, and noise.
func (r *soakResult) detail(ctx context.Context, j *journal.Journal, info *journal.RunInfo) error {
	full, err := j.LoadRun(ctx, info.ID)
	if err != nil {
		return err
	}
	waf := run.WAF{}
	if !told(*info) {
		waf = r.soFar(&full)
	} else {
		waf = info.Verdict.WAF
	}
	r.Life = lifeOf(&full, waf)
	r.Noise, err = noiseOf(ctx, j, &full, waf)
	return err
}

// A verdict on a difference.
const (
	differsNot     = "within the noise"
	differsUp      = "higher"
	differsDown    = "lower"
	differsUnknown = "not told"
)

// runDifference sets one figure of two runs beside each other.
type runDifference struct {
	Quantity string `json:"quantity"`
	// Ratio is after over before; null where either is not available.
	Ratio *float64 `json:"ratio"`
	// HalfWidth is that of the ratio's 95 % interval, with what counters and
	// histograms resolve; null where the scatter of either run is not told.
	HalfWidth *float64 `json:"ratio_half_width_95"`
	// Verdict is "lower", "higher", "within the noise", or "not told".
	Verdict string `json:"verdict"`
}

// differ judges a ratio. Scatter of the runs is independent and adds in squares;
// what the counters of either resolve, bound, adds as it is. A ratio within the
// bound alone is no difference even where the scatter is not told.
func differ(quantity string, ratio *int64, before, after *float64, bound float64) runDifference {
	d := runDifference{Quantity: quantity, Verdict: differsUnknown}
	if ratio == nil {
		return d
	}
	r := float64(*ratio) / 1e6
	d.Ratio = &r
	if before == nil || after == nil {
		if math.Abs(r-1) <= bound {
			d.Verdict = differsNot
		}
		return d
	}
	half := r * (math.Hypot(*before, *after) + bound)
	half = max(half, 0.5e-6) // what the ratio itself is rounded to
	d.HalfWidth = &half
	switch {
	case math.Abs(r-1) <= half:
		d.Verdict = differsNot
	case r > 1:
		d.Verdict = differsUp
	default:
		d.Verdict = differsDown
	}
	return d
}

// differences judges a comparison by the noise of both runs.
func differences(x *journal.Comparison, before, after *noiseResult) []runDifference {
	if before == nil {
		before = &noiseResult{}
	}
	if after == nil {
		after = &noiseResult{}
	}
	resolved := 0.0
	for _, w := range []run.WAF{x.Before.WAF, x.After.WAF} {
		if v, ok := w.Value(); ok && v > 0 {
			resolved += float64(w.ErrorMicro) / 1e6 / v
		}
	}
	rounded := func(a, b *uint64) float64 { // IOPS are whole
		if a == nil || b == nil || *a == 0 || *b == 0 {
			return 0
		}
		return 0.5/float64(*a) + 0.5/float64(*b)
	}
	return []runDifference{
		differ("waf", x.WAFRatioMicro, before.WAF, after.WAF, resolved),
		differ("write_iops", x.WriteIOPSRatioMicro, before.WriteIOPS, after.WriteIOPS, rounded(x.Before.WriteIOPS, x.After.WriteIOPS)),
		differ("read_iops", x.ReadIOPSRatioMicro, before.ReadIOPS, after.ReadIOPS, rounded(x.Before.ReadIOPS, x.After.ReadIOPS)),
		differ("write_latency_p99", x.WriteP99RatioMicro, before.WriteP99, after.WriteP99, 2*bucketWidth),
		differ("read_latency_p99", x.ReadP99RatioMicro, before.ReadP99, after.ReadP99, 2*bucketWidth),
	}
}

// compared measures two runs, their noise, and what differs beyond it.
func compared(ctx context.Context, j *journal.Journal, before, after *journal.RunInfo) (compareResult, error) {
	r := compareResult{Schema: "nvop.journal-compare/1"}
	var err error
	if r.Comparison, err = j.Compare(ctx, before.ID, after.ID); err != nil {
		return r, err
	}
	noise := func(m *journal.Measured) (*noiseResult, error) {
		full, err := j.LoadRun(ctx, m.ID)
		if err != nil {
			return nil, err
		}
		return noiseOf(ctx, j, &full, m.WAF)
	}
	var joint error
	r.NoiseBefore, err = noise(&r.Before)
	joint = errors.Join(joint, err)
	r.NoiseAfter, err = noise(&r.After)
	joint = errors.Join(joint, err)
	r.Differences = differences(&r.Comparison, r.NoiseBefore, r.NoiseAfter)
	return r, joint
}
