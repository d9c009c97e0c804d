package wear

import (
	"math"
	"sort"
)

// HealthPercent is 100 - percentage used: negative on a drive worn beyond its
// rating, and at most -155 since drives report no more than 255. Spare is
// another matter and never taken for it.
func HealthPercent(s *Sample) int { return 100 - int(s.PercentageUsed) }

// Interval is a range that holds the true value.
type Interval struct{ Low, High float64 }

// UpdateNS is how old percentage used may be: drives update it once in an hour
// of power-on (NVMe Base 2.x, SMART log, byte 5), here in nanoseconds.
const UpdateNS = 3600 * 1_000_000_000

// Life is how much more can be written until percentage used is 100.
type Life struct {
	Available bool
	Reason    string
	// MediaBytes more can be written to the flash; High is +Inf-free: when no
	// step of percentage used was seen, HighKnown is false and High is 0.
	MediaBytes Interval
	HighKnown  bool
	// PercentPerByte is how fast percentage used rises with media bytes; Low is
	// 0 where HighKnown is false.
	PercentPerByte Interval
	// Steps is how many steps of percentage used were seen: with none there is
	// only a lower bound, with each more the interval narrows.
	Steps int
}

// Estimate bounds the remaining life of a drive whose wear is linear in media
// bytes and whose percentage used is at most an hour old; see [EstimateLag].
func Estimate(samples []Sample) Life { return EstimateLag(samples, UpdateNS) }

// EstimateLag bounds the remaining life of a drive whose wear is linear in media
// bytes: percentage used is floor(a + b*x), x being the media bytes at a moment
// at most lagNS before the sample. So a sample that shows p says that a + b*x is
// at least p now and was below p + 1 then; each pair of such says something of
// b. The result is what all of them leave: a guaranteed interval, no confidence
// interval. Only the last epoch counts.
func EstimateLag(samples []Sample, lagNS int64) Life {
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
	w := witness{samples: samples[span.From:span.To], media: p.media, lag: lagNS}
	if w.x(len(w.samples)-1) <= 0 {
		return Life{Reason: "nothing was written to the flash between the samples"}
	}
	w.pace()
	w.gather()
	return w.life()
}

// bound is one thing that is known: at x, a + b*x is at least (or below) used.
type bound struct{ x, used float64 }

// witness gathers what the samples of one epoch say.
type witness struct {
	samples []Sample
	media   int
	lag     int64
	// least: used was reached by x. below: it was not at x. Both in order.
	least, below []bound
	steps        int
	// fastest is the highest rate over a lag, in media bytes a nanosecond: before
	// the first sample the drive was not written faster.
	fastest float64
}

// pace finds the highest rate over any stretch of a lag, or over all there is.
func (w *witness) pace() {
	end := len(w.samples) - 1
	for i, j := 0, 0; j <= end; j++ {
		for w.samples[j].TimeNS-w.samples[i+1].TimeNS >= w.lag && i+1 < j {
			i++
		}
		if dt := w.samples[j].TimeNS - w.samples[i].TimeNS; dt >= w.lag || j == end && dt > 0 && w.fastest == 0 {
			w.fastest = max(w.fastest, (w.x(j)-w.x(i))/float64(dt))
		}
	}
}

// x is the media bytes of a sample since the first.
func (w *witness) x(i int) float64 {
	m := &w.samples[i].Media[w.media]
	return m.Units.Sub(w.samples[0].Media[w.media].Units).Float() * float64(m.UnitBytes)
}

// by is how much had been written at the latest when sample i was taken: what
// the media counter shows at its next change. Without one it is not known, where the
// counter stood still at i: it may be late.
func (w *witness) by(i int) (x float64, known bool) {
	m := w.samples[i].Media[w.media]
	for j := i + 1; j < len(w.samples); j++ {
		if w.samples[j].Media[w.media].Units != m.Units {
			return w.x(j), true
		}
	}
	if i > 0 && w.samples[i-1].Media[w.media].Units == m.Units {
		return w.x(i) + float64(m.UnitBytes) + w.fastest*float64(w.standstill(i)), false
	}
	return w.x(i) + float64(m.UnitBytes), true
}

// standstill is for how long the media counter had stood still at sample i, and the
// time between samples in which it last moved, in nanoseconds.
func (w *witness) standstill(i int) int64 {
	k := i
	for k > 0 && w.samples[k].Media[w.media].Units == w.samples[i].Media[w.media].Units {
		k--
	}
	return w.samples[i].TimeNS - w.samples[k].TimeNS
}

// since is how much had been written at the least a lag before sample i.
func (w *witness) since(i int) float64 {
	then := w.samples[i].TimeNS - w.lag
	j := sort.Search(len(w.samples), func(j int) bool { return w.samples[j].TimeNS > then })
	if j == 0 { // before the first sample
		return float64(then-w.samples[0].TimeNS) * w.fastest
	}
	return w.x(j-1) - float64(w.samples[j-1].Media[w.media].UnitBytes)
}

func (w *witness) gather() {
	if x, known := w.by(0); known {
		w.least = append(w.least, bound{x, float64(w.samples[0].PercentageUsed)})
	}
	for i := 1; i < len(w.samples); i++ {
		before, now := w.samples[i-1].PercentageUsed, w.samples[i].PercentageUsed
		if now <= before {
			continue
		}
		w.steps += int(now - before)
		if x, known := w.by(i); known {
			w.least = append(w.least, bound{x, float64(now)})
		}
		w.below = append(w.below, bound{w.since(i - 1), float64(before) + 1})
	}
	end := len(w.samples) - 1
	w.below = append(w.below, bound{w.since(end), float64(w.samples[end].PercentageUsed) + 1})
}

// life is what the bounds leave of b, and of the bytes to 100 percent.
func (w *witness) life() Life {
	life := Life{Available: true, Steps: w.steps}
	rate := Interval{High: math.Inf(1)}
	for _, l := range w.least {
		for _, u := range w.below {
			// l.used - b*l.x <= a < u.used - b*u.x
			switch d, dx := u.used-l.used, u.x-l.x; {
			case dx > 0:
				rate.High = min(rate.High, d/dx)
			case dx < 0:
				rate.Low = max(rate.Low, d/dx)
			}
		}
	}
	if !(rate.High < math.Inf(1)) || !(rate.High > 0) {
		return Life{Steps: w.steps, Reason: "not reported: the drive has been written for less than an update of percentage used takes"}
	}
	rate.Low = max(0, min(rate.Low, rate.High))
	life.PercentPerByte = rate
	shown := w.x(len(w.samples) - 1)
	end, _ := w.by(len(w.samples) - 1)
	// At a rate b the highest a is that of the tightest "below", the lowest
	// that of the tightest "least"; both lives fall with b.
	low := math.Inf(-1)
	for _, u := range w.below {
		low = max(low, (100-u.used)/rate.High+u.x)
	}
	life.MediaBytes.Low = max(0, low-end)
	if rate.Low > 0 {
		high := math.Inf(1)
		for _, l := range w.least {
			high = min(high, (100-l.used)/rate.Low+l.x)
		}
		life.MediaBytes.High, life.HighKnown = max(0, high-shown, life.MediaBytes.Low), true
	}
	if math.IsInf(life.MediaBytes.High, 0) || math.IsNaN(life.MediaBytes.High) {
		life.MediaBytes.High, life.HighKnown = 0, false
	}
	return life
}
