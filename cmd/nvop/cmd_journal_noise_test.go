package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/journal"
)

func TestDiffer(t *testing.T) {
	part := func(v float64) *float64 { return &v }
	micro := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		name          string
		ratio         *int64
		before, after *float64
		bound         float64
		verdict       string
		half          float64 // below 0: null
	}{
		{"far beyond", micro(588_000), part(0.003), part(0.004), 0, differsDown, 0.00294},
		{"above", micro(1_020_000), part(0.003), part(0.004), 0, differsUp, 0.0051},
		{"within", micro(1_004_000), part(0.003), part(0.004), 0, differsNot, 0.00502},
		{"within what the counters resolve", micro(990_000), part(0.001), part(0), 0.0095, differsNot, 0.010395},
		{"no scatter at all", micro(1_000_001), part(0), part(0), 0, differsUp, 0.5e-6},
		{"scatter not told", micro(900_000), nil, part(0.001), 0.05, differsUnknown, -1},
		{"nor needed", micro(960_000), nil, nil, 0.05, differsNot, -1},
		{"no figure", nil, part(0.1), part(0.1), 0.1, differsUnknown, -1},
	} {
		d := differ("x", c.ratio, c.before, c.after, c.bound)
		if d.Verdict != c.verdict || (d.HalfWidth == nil) != (c.half < 0) || d.HalfWidth != nil && math.Abs(*d.HalfWidth-c.half) > 1e-6 {
			t.Errorf("%s: %+v, half-width %v", c.name, d, d.HalfWidth)
		}
	}
}

func noisyRow(writes uint64) journal.Row {
	r := journal.Row{Seconds: 1}
	r.ActiveNS, r.WriteOps = 1e9, writes
	return r
}

// span is recorded latencies about a mean.
func span(rng *rand.Rand, operations int, mean float64) *stats.Histogram {
	h := stats.NewHistogram()
	for range operations {
		h.Record(int64(mean * (1 + 0.2*rng.ExpFloat64())))
	}
	return h
}

// A run of any length is kept in bins whose number is bounded; nothing is lost.
func TestNoiseBins_areBounded(t *testing.T) {
	for _, rows := range []int{1, 100, maxNoiseBins, 3*maxNoiseBins + 7, 300_000} {
		var n noiseBins
		want := 0.0
		for i := range rows {
			r := noisyRow(uint64(1000 + i%7))
			want += float64(r.WriteOps)
			n.addRow(&r)
		}
		got, active, least, most := 0.0, 0.0, math.Inf(1), 0.0
		for _, b := range n.bins {
			got, active = got+b.ops[1], active+b.activeNS
			least, most = min(least, b.activeNS), max(most, b.activeNS)
		}
		if len(n.bins) > maxNoiseBins || rows >= maxNoiseBins && len(n.bins) < maxNoiseBins/2 {
			t.Errorf("%d rows: %d bins", rows, len(n.bins))
		}
		if got != want || active != float64(rows)*1e9 {
			t.Errorf("%d rows: %.0f operations of %.0f, %.0f ns", rows, got, want, active)
		}
		if n.bins[0].activeNS > 4*least && len(n.bins) > 2 && most > 4*n.bins[1].activeNS {
			t.Errorf("%d rows: bins of %.0f to %.0f ns", rows, least, most)
		}
	}
	var n noiseBins
	r := noisyRow(5)
	r.ActiveNS = 0
	if n.addRow(&r); len(n.bins) != 0 {
		t.Error("a row that was not at work counts")
	}
}

// Of two runs of one rate that scatters, few are said to differ: about one in
// twenty. Of two that differ by ten times their scatter, all are.
func TestDifferences_coverTheTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	var latencies []*stats.Histogram
	for range 20 {
		latencies = append(latencies, span(rng, 2000, 100_000))
	}
	noisy := func(mean float64) (*noiseResult, float64) {
		var bins noiseBins
		ops := 0.0
		for range 400 {
			r := noisyRow(uint64(mean * (1 + 0.05*rng.NormFloat64())))
			ops += float64(r.WriteOps)
			bins.addRow(&r)
		}
		n := &noiseResult{}
		n.measure(&bins, &[2]latencyBins{{}, {bins: latencies}}, 100)
		return n, ops / 400
	}
	const pairs = 300
	same, apart := 0, 0
	for range pairs {
		a, x := noisy(100_000)
		b, y := noisy(100_000)
		c, z := noisy(103_000)
		if a.WriteIOPS == nil || a.WriteP99 == nil || a.ReadIOPS != nil || a.Batches != maxNoiseBatches || len(a.Reasons) != 0 {
			t.Fatalf("%+v", a)
		}
		ratio := func(v float64) *int64 { n := int64(v * 1e6); return &n }
		if differ("w", ratio(y/x), a.WriteIOPS, b.WriteIOPS, 0).Verdict != differsNot {
			same++
		}
		if differ("w", ratio(z/x), a.WriteIOPS, c.WriteIOPS, 0).Verdict == differsUp {
			apart++
		}
	}
	t.Logf("%d of %d equal pairs were said to differ, %d of as many different ones", same, pairs, apart)
	if same > pairs/10 || apart < pairs*95/100 {
		t.Errorf("%d of %d equal pairs were said to differ, %d of as many different ones", same, pairs, apart)
	}
}

// However many spans there are, few histograms are kept, and they have all of them.
func TestLatencyBins_areBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, spans := range []int{7, 8, 64, 65, 500} {
		var l latencyBins
		for range spans {
			l.add(span(rng, 200, 100_000))
		}
		sum := uint64(0)
		for _, h := range l.bins {
			sum += h.Count()
		}
		if len(l.bins) > maxLatencyBins || sum != uint64(200*spans) {
			t.Errorf("%d spans: %d bins with %d latencies", spans, len(l.bins), sum)
		}
		part, reason := l.p99(32)
		switch {
		case spans == 7 && (part != nil || reason == ""), spans == 8 && (part != nil || reason == ""), spans == 64 && part != nil:
			t.Errorf("%d spans: %v, %q", spans, part, reason)
		case spans == 65 && part != nil: // a batch of one or two has 400 at most
			t.Errorf("%d spans: %v", spans, *part)
		case spans == 500 && (part == nil || *part < 0.001 || *part > 0.02):
			t.Errorf("%d spans: %v, %q", spans, part, reason)
		}
	}
}

func TestNoise_tooShort(t *testing.T) {
	var bins noiseBins
	for range 100 {
		r := noisyRow(10)
		bins.addRow(&r)
	}
	n := &noiseResult{}
	if n.measure(&bins, &[2]latencyBins{}, 7.9); n.WriteIOPS != nil || n.Batches != 0 || len(n.Reasons) != 1 {
		t.Errorf("fewer than eight rings: %+v", n)
	}
	n = &noiseResult{}
	if n.measure(&bins, &[2]latencyBins{}, 8); n.WriteIOPS == nil || n.WriteP99 != nil || len(n.Reasons) != 1 {
		t.Errorf("no p99: %+v", n)
	}
	if r := rings(&run.Job{CapacityBytes: 100}, run.WAF{}, 0); !math.IsInf(r, 1) {
		t.Errorf("reads ring %g times", r)
	}
	waf := run.WAF{Available: true, Micro: 3_000_000}
	if r := rings(&run.Job{CapacityBytes: 100, AlphaMilli: 1200}, waf, 1000); math.Abs(r-25) > 1e-9 {
		t.Errorf("%g rings in 10 drive writes of 0.4", r)
	}
}

// Whatever number of spans and of batches there is, an interval rests on eight
// batches or more, or is not told.
func TestLatencyBins_batches(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	whole := span(rng, 1500, 1000)
	for spans := 1; spans < 150; spans++ {
		var l latencyBins
		for range spans {
			h := stats.NewHistogram()
			h.Merge(whole)
			l.add(h)
		}
		for _, batches := range []int{8, 9, 20, 32} {
			part, reason := l.p99(batches)
			if (part == nil) != (spans < 8) || (part == nil) == (reason == "") {
				t.Fatalf("%d spans, %d batches: %v, %q", spans, batches, part, reason)
			}
			if part != nil && *part > 1e-12 {
				t.Fatalf("equal spans scatter by %g", *part)
			}
		}
	}
}
