package endurance

import (
	"math"
	"testing"

	"nvop/endurance/run"
)

// A drive of 7.68 TB whose vendor log counts 32 MiB: a sequential pass, then six
// drive writes at random, read every minute; percentage used follows once an
// hour.
func lifeSamples(unit uint64) (*run.Job, *run.Checkpoint, []run.Sample) {
	const capacity, rate, perPercent = 7_681_501_126_656, 1.7e9, 2e14
	job := &run.Job{CapacityBytes: capacity, AlphaMilli: 1206, TimeLapse: 1, LBABytes: 4096, Phases: []run.Phase{
		{Kind: run.PhaseWarmUp, Pattern: run.PatternSequential, BlockBytes: 131072},
		{Kind: run.PhaseMeasure, Pattern: run.PatternReplacement, BlockBytes: 4096},
	}}
	cp := &run.Checkpoint{Phase: 1, Results: []run.PhaseResult{{Phase: 0, FirstSecond: 0}}}
	host, media := 1e13, 3e13
	var samples []run.Sample
	used := uint8(0)
	for second := int64(0); host < 1e13+7*capacity; second += 60 {
		waf := 3.12
		if host < 1e13+capacity {
			waf = 1.02
			cp.PhaseFirstSecond = second + 60
		}
		if second%3600 == 0 {
			used = uint8(media / perPercent)
		}
		h := run.Uint128{Lo: uint64(host / 512000)}
		samples = append(samples, run.Sample{
			Second: second, PercentageUsed: used, EngineWriteBytes: uint64(host - 1e13),
			Host:  []run.HostCounter{{Source: "SMART", UnitBytes: 512000, Before: h, After: h}},
			Media: []run.MediaCounter{{Source: "vendor", UnitBytes: unit, Units: run.Uint128{Lo: uint64(media / (32 << 20))}}},
		})
		host += rate * 60
		media += rate * 60 * waf
	}
	return job, cp, samples
}

func TestLifeOf(t *testing.T) {
	job, cp, samples := lifeSamples(32 << 20)
	var since []run.Sample
	for _, s := range samples {
		if s.Second >= cp.PhaseFirstSecond {
			since = append(since, s)
		}
	}
	waf := MeasureWAF(since, job.CapacityBytes, job.AlphaMilli, 0)
	r := LifeOf(job, cp, samples, waf)
	if !r.Scatter.Available || math.Abs(r.Scatter.Mean-3.12) > 0.01 || r.Scatter.HalfWidth > 0.01 {
		t.Errorf("scatter %+v of %+v", r.Scatter, waf)
	}
	if !r.Life.Available || len(r.Futures) != 3 {
		t.Fatalf("%+v", r)
	}
	left := 2e16 - 3e13 - (1.02+6*3.12)*7_681_501_126_656 // media bytes to 100 percent
	if l := r.Life.MediaBytes; left < l.Low || r.Life.HighKnown && left > l.High {
		t.Errorf("life %+v after %d steps, true %.4g", l, r.Life.Steps, left)
	}
	if f := r.Futures[0]; f.Name != "this workload" || f.Low > left/3.12 {
		t.Errorf("%+v, true %.4g", f, left/3.12)
	}
	if !r.Unit.Available || !r.Unit.Agrees(r.Assumed) || r.Assumed != 32<<20 {
		t.Errorf("unit %+v, assumed %d", r.Unit, r.Assumed)
	}
	// A unit that was assumed wrongly is found out.
	job, cp, samples = lifeSamples(1_000_000_000)
	if r := LifeOf(job, cp, samples, run.WAF{}); !r.Unit.Available || r.Unit.Agrees(r.Assumed) || len(r.Futures) != 0 {
		t.Errorf("unit %+v, assumed %d, futures %v", r.Unit, r.Assumed, r.Futures)
	}
}
