package endurance

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"nvop/endurance/run"
)

// rules is where the rules stand that hold a run or tell of it without ending it.
type rules struct {
	// held says that the pause rule holds the workers; heldThrough is the last
	// second that it touched.
	held        bool
	heldThrough int64
	steady      steadiness
	// reached is the stop rule that a row reached, the first of all.
	reached string
	// before is the health at the beginning of an excursion.
	before *run.Sample
}

// cool judges the pause rule: it holds the workers while the drive is too hot.
// While the drive does not tell its temperature they stay as they are.
func (s *session) cool() {
	p, l := s.job.Pause, s.ledger
	if p == (run.Pause{}) || l.latest == nil || s.state != run.StateRunning {
		return
	}
	celsius, ok := l.latest.TemperatureCelsius()
	switch r := &l.rules; {
	case !ok:
	case !r.held && celsius >= p.AtCelsius:
		r.held = true
		l.cp.Pauses++
		s.track.hold.Store(true)
		l.event(max(l.cp.NextSecond-1, 0), run.EventPaused, fmt.Sprintf("temperature %d C: paused at %d C, goes on at %d C", celsius, p.AtCelsius, p.ResumeCelsius))
	case r.held && celsius <= p.ResumeCelsius:
		r.held, r.heldThrough = false, l.cp.NextSecond
		s.track.hold.Store(l.waiting)
		l.event(max(l.cp.NextSecond-1, 0), run.EventContinued, fmt.Sprintf("temperature %d C: goes on", celsius))
	}
}

// judgeRow judges the stop rules right after a row: the last row of a run, and
// each of several that are made at once, counts as any other.
func (l *ledger) judgeRow() {
	if reason := l.judge(); reason != "" && l.rules.reached == "" {
		l.rules.reached = reason
	}
}

// heed marks a row that a pause touched, or in which nothing could be recorded for
// a while, and looks whether the rate is steady.
func (l *ledger) heed(r *run.Row, outageNS int64) {
	hot := l.rules.held || l.cp.Pauses != 0 && r.Second <= l.rules.heldThrough
	if hot {
		l.cp.PausedNS += r.ActiveNS
		l.cp.PhasePausedNS += r.ActiveNS
	}
	if hot || outageNS != 0 {
		r.Flags |= run.FlagPaused
		l.rules.steady.interrupted()
		return
	}
	if l.stage == nil || l.stage.Kind != run.PhaseMeasure {
		return
	}
	switch said := l.rules.steady.add(r); said.what {
	case steadyNow:
		l.event(r.Second, run.EventSteady, fmt.Sprintf("steady at %.0f operations a second: five minutes within 20 %%, slope within 10 %%", said.rate))
	case steadyLeft:
		l.rules.before = l.sampleBefore(r.Second - 60)
		l.event(r.Second, run.EventUnsteady, fmt.Sprintf("%.0f operations a second for 10 s, %+.0f %% of the steady %.0f: %s",
			said.rate, (said.rate/said.base-1)*100, said.base, cause(l.rules.before, l.latest)))
	case steadyBack:
		l.event(r.Second, run.EventSteady, fmt.Sprintf("back at %.0f operations a second; meanwhile: %s", said.rate, cause(l.rules.before, l.latest)))
	}
}

// sampleBefore is the last sample that is not later than a second, or the first
// there is.
func (l *ledger) sampleBefore(second int64) *run.Sample {
	for i := len(l.samples) - 1; i >= 0; i-- {
		if l.samples[i].Second <= second || i == 0 {
			s := l.samples[i]
			return &s
		}
	}
	return nil
}

// cause hints at why a drive changed its pace between two samples: what changed
// among the counters that explain such things. It is a hint, not a proof.
func cause(a, b *run.Sample) string {
	if a == nil || b == nil {
		return "the drive's health is not known"
	}
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if n := int64(b.ThermalTransitions - a.ThermalTransitions); n > 0 {
		add("the drive throttled itself %d times (thermal management transitions)", n)
	} else if n := int64(b.ThermalSeconds - a.ThermalSeconds); n > 0 {
		add("the drive managed its heat for %d s", n)
	}
	if n := int64(b.WarningTempMinutes) - int64(a.WarningTempMinutes); n > 0 {
		add("%d min above the warning temperature", n)
	}
	before, known := a.TemperatureCelsius()
	if now, ok := b.TemperatureCelsius(); ok && known && (now-before >= 5 || before-now >= 5) {
		add("temperature %d C, was %d C", now, before)
	}
	if bits := b.CriticalWarning &^ a.CriticalWarning; bits != 0 {
		add("critical warning 0x%02x", bits)
	}
	if b.MediaErrors.Cmp(a.MediaErrors) > 0 {
		add("%s new media errors", b.MediaErrors.Sub(a.MediaErrors))
	}
	if b.PowerCycles != a.PowerCycles {
		add("the drive's power was cycled")
	}
	if text := settingsChanged(a, b); text != "" {
		add("%s", text)
	}
	if len(found) == 0 {
		return "the drive's counters show no cause"
	}
	return strings.Join(found, "; ")
}

// settingsChanged says what of a drive's settings differs between two samples:
// LBA format, power state, autonomous power state transitions.
func settingsChanged(a, b *run.Sample) string {
	if a.Format == b.Format || a.Format == "" || b.Format == "" {
		return ""
	}
	was, is := strings.Split(a.Format, "; "), strings.Split(b.Format, "; ")
	var gone, come []string
	for _, x := range was {
		if !slices.Contains(is, x) {
			gone = append(gone, x)
		}
	}
	for _, x := range is {
		if !slices.Contains(was, x) {
			come = append(come, x)
		}
	}
	return fmt.Sprintf("changed from %s to %s", orNothing(gone), orNothing(come))
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// SameWorkload says whether two phases wear a drive alike, so that one goes on
// where the other ended.
func SameWorkload(a, b *run.Phase) bool {
	return a.Pattern == b.Pattern && a.ReadPercent == b.ReadPercent && a.BlockBytes == b.BlockBytes && a.AlignBytes == b.AlignBytes &&
		a.ZipfMilli == b.ZipfMilli && slices.Equal(a.Sizes, b.Sizes) && slices.Equal(a.WriteSizes, b.WriteSizes) && slices.Equal(a.Zones, b.Zones)
}

const (
	// steadyRows are averaged to one value, steadyValues values make a window.
	steadyRows, steadyValues = 10, 30
	// steadyRange and steadySlope are what a window may differ in, over its mean:
	// the rule of the SNIA performance test specification, over five minutes.
	steadyRange, steadySlope = 0.20, 0.10
	// steadyOut is how far one value leaves the steady state, and steadyIn how
	// near three in a row have to be to be back.
	steadyOut, steadyIn = 0.20, 0.10
	steadyReturns       = 3
	// What the noise of counting may add, in standard deviations of one value: to
	// the distance of one value, to that of one that is back, to the range of a
	// window (thirty values spread over four on average), to its slope.
	noiseOut, noiseIn, noiseRange, noiseSlope = 6, 3, 5, 3
)

type steadyWord uint8

const (
	steadyQuiet steadyWord = iota
	// steadyNow: the rate has become steady, or steady at another level.
	steadyNow
	// steadyLeft: it has left the steady state. steadyBack: it has come back.
	steadyLeft
	steadyBack
)

// steadySaid is what became of the steady state with a row.
type steadySaid struct {
	what       steadyWord
	rate, base float64
}

// steadiness finds out when a rate becomes steady, and when it leaves that state:
// a drive that throttles or falls off its cache after hours is seen as it happens.
type steadiness struct {
	lapse float64
	// The value being averaged.
	ops, activeNS float64
	rows          int
	values        [steadyValues]float64
	count         int // in all; the last steadyValues are kept
	noise         float64
	base          float64
	known, out    bool
	// returns counts values near the base while out, and since all values then.
	returns, since int
}

func newSteadiness(lapse uint64) steadiness { return steadiness{lapse: float64(max(lapse, 1))} }

// interrupted forgets what is being averaged and the window: a pause is no
// excursion.
func (s *steadiness) interrupted() {
	s.ops, s.activeNS, s.rows, s.count, s.returns = 0, 0, 0, 0, 0
}

// add takes in a row.
func (s *steadiness) add(r *run.Row) steadySaid {
	if r.Flags&run.FlagDrained != 0 {
		return steadySaid{} // the end of a phase is no measurement
	}
	s.ops += float64(r.Ops())
	s.activeNS += float64(r.ActiveNS)
	if s.rows++; s.rows < steadyRows {
		return steadySaid{}
	}
	rate := s.ops / s.activeNS * second1
	// What is counted is ops/lapse; the relative noise of a count n is 1/sqrt(n).
	noise := 1.0
	if s.ops > 0 {
		noise = 1 / math.Sqrt(s.ops/s.lapse)
	}
	s.ops, s.activeNS, s.rows = 0, 0, 0
	s.noise = max(noise, s.noise*0.9)
	s.since++
	s.values[s.count%steadyValues] = rate
	s.count++
	return s.judge(rate)
}

func (s *steadiness) judge(rate float64) steadySaid {
	said := steadySaid{rate: rate, base: s.base}
	mean, steady := s.window()
	off := math.Inf(1)
	if s.base > 0 {
		off = math.Abs(rate/s.base - 1)
	}
	switch {
	case !s.known:
		if steady {
			s.known, s.base = true, mean
			return steadySaid{what: steadyNow, rate: mean, base: mean}
		}
	case !s.out && off > steadyOut+noiseOut*s.noise:
		s.out, s.returns, s.since = true, 0, 1
		said.what = steadyLeft
	case s.out && off <= steadyIn+noiseIn*s.noise:
		if s.returns++; s.returns >= steadyReturns {
			s.out = false
			said.what = steadyBack
		}
	case s.out:
		s.returns = 0
		if steady && s.since >= steadyValues {
			s.out, s.base = false, mean
			return steadySaid{what: steadyNow, rate: mean, base: mean}
		}
	case steady:
		s.base = mean // it may drift; that is what the window allows
	}
	return said
}

// window says whether the last values are steady, and their mean.
func (s *steadiness) window() (mean float64, steady bool) {
	if s.count < steadyValues {
		return 0, false
	}
	low, high, sum, sumXY := math.Inf(1), 0.0, 0.0, 0.0
	for i := range steadyValues {
		y := s.values[(s.count+i)%steadyValues]
		low, high = min(low, y), max(high, y)
		sum += y
		sumXY += float64(i) * y
	}
	const n = 1.0 * steadyValues // not of whole numbers
	mean = sum / n
	if mean <= 0 {
		return 0, false
	}
	// Least squares over x = 0..n-1; sums of x and x^2 in closed form.
	slope := (n*sumXY - n*(n-1)/2*sum) / (n * (n*n - 1) / 12 * n)
	return mean, (high-low)/mean <= steadyRange+noiseRange*s.noise && math.Abs(slope)*(n-1)/mean <= steadySlope+noiseSlope*s.noise
}
