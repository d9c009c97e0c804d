package wear

import "math"

// HealthPercent is 100 - percentage used: negative on a drive worn beyond its
// rating, and at most -155 since drives report no more than 255. Spare is
// another matter and never taken for it.
func HealthPercent(s *Sample) int { return 100 - int(s.PercentageUsed) }

// Interval is a range that holds the true value.
type Interval struct{ Low, High float64 }

// Life is how much more can be written until percentage used is 100.
type Life struct {
	Available bool
	Reason    string
	// MediaBytes more can be written to the flash; High is +Inf-free: when no
	// step of percentage used was seen, HighKnown is false and High is 0.
	MediaBytes Interval
	HighKnown  bool
	// Steps is how many steps of percentage used were seen: with none there is
	// only a lower bound, with each more the interval narrows.
	Steps int
}

// Estimate bounds the remaining life of a drive whose wear is linear in media
// bytes: percentage used is floor(a + b*x), so a step from one value to the
// next was crossed between two samples, and each pair of steps bounds b from
// both sides. The result is a guaranteed interval, no confidence interval.
func Estimate(samples []Sample) Life {
	spans := Epochs(samples)
	if len(spans) == 0 {
		return Life{Reason: "no samples"}
	}
	span := spans[len(spans)-1]
	last := &samples[span.To-1]
	p, reason := choose(last)
	if reason != "" {
		return Life{Reason: reason}
	}
	if last.PercentageUsed == 255 {
		return Life{Reason: "percentage used is at its end, 255"}
	}
	x := func(i int) float64 {
		m := &samples[i].Media[p.media]
		return m.Units.Sub(samples[span.From].Media[p.media].Units).Float() * float64(m.UnitBytes)
	}
	type step struct{ used, low, high float64 }
	var steps []step
	for i := span.From + 1; i < span.To; i++ {
		if used := samples[i].PercentageUsed; used > samples[i-1].PercentageUsed {
			steps = append(steps, step{used: float64(used), low: x(i - 1), high: x(i)})
		}
	}
	end := x(span.To - 1)
	if end <= 0 {
		return Life{Reason: "nothing was written to the flash between the samples"}
	}
	// Within one value less than 1 % passes: b < (steps+1)/x, and more with steps.
	used := float64(last.PercentageUsed)
	rate := Interval{Low: 0, High: (used - float64(samples[span.From].PercentageUsed) + 1) / end}
	for j := range steps {
		for k := j + 1; k < len(steps); k++ {
			d := steps[k].used - steps[j].used
			rate.Low = max(rate.Low, d/(steps[k].high-steps[j].low))
			if apart := steps[k].low - steps[j].high; apart > 0 {
				rate.High = min(rate.High, d/apart)
			}
		}
	}
	life := Life{Available: true, Steps: len(steps)}
	// At the end percentage used is within [used, used+1).
	life.MediaBytes.Low = max(0, (100-used-1)/rate.High)
	if rate.Low > 0 {
		life.MediaBytes.High, life.HighKnown = max(0, (100-used)/rate.Low), true
	}
	if math.IsInf(life.MediaBytes.High, 0) || math.IsNaN(life.MediaBytes.High) {
		life.MediaBytes.High, life.HighKnown = 0, false
	}
	return life
}
