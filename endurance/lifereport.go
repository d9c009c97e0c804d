package endurance

import (
	"math"

	"nvop/endurance/predict"
	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/endurance/wear"
)

// LifeReport is what the samples of a run say of the drive's life.
type LifeReport struct {
	// Scatter is the mean WAF over batches of whole rings of garbage collection
	// with its 95 % interval, counters taken as exact; not available with fewer
	// than eight.
	Scatter stats.Interval
	// Life is what is left in media bytes.
	Life wear.Life
	// Futures are what that is in host bytes, under three workloads; none where
	// Life or WAF is not available.
	Futures []predict.Outlook
	// Unit is what a sequential phase said of the media counter's unit, and
	// Assumed what it was taken to be, in bytes.
	Unit    wear.Unit
	Assumed uint64
}

// minBatches make a sound interval.
const minBatches = 8

// LifeOf reads the life of a drive off a run's samples, given the WAF of the
// workload that the run measured.
func LifeOf(job *run.Job, cp *run.Checkpoint, samples []run.Sample, waf run.WAF) LifeReport {
	o := LifeReport{Life: wear.Estimate(WearSamples(samples))}
	o.Scatter = scatter(job, samples, waf)
	o.unit(job, cp, samples)
	value, ok := waf.Value()
	if !ok || !o.Life.Available || value <= 0 {
		return o
	}
	bound := float64(waf.ErrorMicro) / 1e6
	uniform := false
	for _, p := range job.Phases {
		uniform = p.Pattern == run.PatternReplacement && p.BlockBytes == 4096
	}
	now := predict.Interval{Low: max(value-bound, 1e-3), Mid: value, High: value + bound}
	o.Futures = predict.Outlooks(o.Life.MediaBytes.Low, o.Life.MediaBytes.High, now, float64(job.AlphaMilli)/1000, 0, uniform, 0)
	return o
}

// scatter is the confidence interval of WAF by batch means. A batch is as long
// as WAF rings after a change, since within a ring one value tells the next.
func scatter(job *run.Job, samples []run.Sample, waf run.WAF) stats.Interval {
	value, ok := waf.Value()
	if !ok || !waf.Settled || value <= 0 {
		return stats.Interval{}
	}
	r := wear.Measure(WearSamples(samples), wear.Options{CapacityBytes: job.CapacityBytes, AlphaMilli: job.AlphaMilli})
	var values []float64
	for i := range r.Windows {
		if w := &r.Windows[i]; w.Available && w.FirstNS/second1 >= waf.FirstSecond {
			values = append(values, w.Value)
		}
	}
	ring, ok := wear.Ring(job.AlphaMilli, value)
	if !ok {
		ring = 1
	}
	batches := int(float64(len(values)) / wear.WindowsPerDriveWrite / max(ring, 1./wear.WindowsPerDriveWrite))
	if batches < minBatches {
		return stats.Interval{}
	}
	return stats.BatchMeans(values, min(batches, 64))
}

// unit looks for a sequential phase that tells the unit of the media counter.
func (o *LifeReport) unit(job *run.Job, cp *run.Checkpoint, samples []run.Sample) {
	if cp == nil {
		return
	}
	for _, p := range cp.Results {
		if int(p.Phase) >= len(job.Phases) {
			continue
		}
		phase := job.Phases[p.Phase]
		if phase.Pattern != run.PatternSequential || phase.ReadPercent != 0 || p.Phase != 0 {
			continue
		}
		end := int64(math.MaxInt64)
		for _, q := range cp.Results {
			if q.Phase == p.Phase+1 {
				end = q.FirstSecond
			}
		}
		if int(cp.Phase) == int(p.Phase)+1 {
			end = cp.PhaseFirstSecond
		}
		var within []run.Sample
		for i := range samples {
			if s := &samples[i]; s.Failure == "" && s.Second >= p.FirstSecond && s.Second <= end && len(s.Media) != 0 {
				within = append(within, *s)
			}
		}
		// The counter may be late: from a change to a change.
		ws := WearSamples(within)
		if len(ws) < 3 {
			return
		}
		o.Assumed = within[0].Media[0].UnitBytes
		o.Unit = wear.CalibrateUnit(&ws[1], &ws[len(ws)-1])
	}
}
