package endurance

import (
	"fmt"
	"math"
	"math/bits"

	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/endurance/wear"
)

// judge looks at the stop rules after a row, and names the first whose limit is
// reached.
func (l *ledger) judge() (reason string) {
	for i := range l.limits {
		r := &l.limits[i]
		value, ok := l.quantity(r.Rule.Kind)
		if !ok {
			continue
		}
		r.Available, r.Value = true, value
		reached := value >= r.Rule.Limit
		switch r.Rule.Kind {
		case run.StopSpare:
			reached = value <= r.Rule.Limit
		case run.StopCriticalWarning:
			reached = value&r.Rule.Limit != 0
		}
		if reached {
			r.Reached = true
			if reason == "" {
				reason = fmt.Sprintf("%s %s (limit %s)", r.Rule.Kind.Term(), r.Rule.Kind.Text(value), r.Rule.Kind.Text(r.Rule.Limit))
			}
		}
	}
	return reason
}

// quantity is what a stop rule watches, in the rule's unit.
func (l *ledger) quantity(kind run.StopKind) (int64, bool) {
	switch kind {
	case run.StopBytes:
		return clampInt(l.cp.Totals.WriteBytes), true
	case run.StopDriveWrites:
		hi, lo := bits.Mul64(l.cp.Totals.WriteBytes, 1000)
		if hi >= l.job.CapacityBytes {
			return math.MaxInt64, true
		}
		q, _ := bits.Div64(hi, lo, l.job.CapacityBytes)
		return clampInt(q), true
	case run.StopDuration:
		return l.cp.RunActiveNS, true
	case run.StopLatency:
		if n := len(l.batch.Rows); n != 0 {
			r := &l.batch.Rows[n-1]
			return max(r.Read.MaxNS, r.Write.MaxNS), max(r.Read.MaxNS, r.Write.MaxNS) != run.NotAvailable
		}
		return 0, false
	}
	s := l.latest
	if s == nil {
		return 0, false
	}
	switch kind {
	case run.StopPercentageUsed:
		return int64(s.PercentageUsed), true
	case run.StopSpare:
		return int64(s.SparePercent), s.SpareAvailable
	case run.StopTemperature:
		c, ok := s.TemperatureCelsius()
		return int64(c), ok
	case run.StopMediaErrors:
		if l.cp.First == nil {
			return 0, false
		}
		d := s.MediaErrors.Sub(l.cp.First.MediaErrors)
		if s.MediaErrors.Cmp(l.cp.First.MediaErrors) < 0 {
			return 0, false // counted anew: nothing can be said
		}
		if d.Hi != 0 {
			return math.MaxInt64, true
		}
		return clampInt(d.Lo), true
	case run.StopCriticalWarning:
		if l.cp.First == nil {
			return 0, false
		}
		return int64(s.CriticalWarning &^ l.cp.First.CriticalWarning), true
	}
	return 0, false
}

func clampInt(v uint64) int64 { return int64(min(v, math.MaxInt64)) }

// isGoal says whether reaching a rule's limit is how a soak is meant to end;
// the others are limits that a good drive does not reach.
func isGoal(kind run.StopKind) bool {
	switch kind {
	case run.StopBytes, run.StopDriveWrites, run.StopDuration, run.StopPercentageUsed:
		return true
	}
	return false
}

// phaseResult is what the current phase has come to so far.
func (l *ledger) phaseResult() run.PhaseResult {
	r := run.PhaseResult{
		Phase: l.cp.Phase, Kind: l.stage.Kind, FirstSecond: l.cp.PhaseFirstSecond, Totals: l.cp.PhaseTotals, ActiveNS: l.cp.PhaseActiveNS,
		Verified: l.cp.PhaseVerified,
	}
	for _, m := range l.marks {
		if m.Next < l.stage.limit {
			r.Next = make([]uint64, len(l.marks))
			for i := range l.marks {
				r.Next[i] = l.marks[i].Next
			}
			break
		}
	}
	var whole [directions]*stats.Histogram
	for d := range directions {
		whole[d] = stats.NewHistogram()
		whole[d].Merge(l.sum[d])
		whole[d].Merge(l.open[d])
	}
	r.Read, r.Write = percentiles(whole[dirRead]), percentiles(whole[dirWrite])
	if l.stage.pace.period != 0 {
		read, write := percentiles(l.late[dirRead]), percentiles(l.late[dirWrite])
		r.ReadFromDue, r.WriteFromDue = &read, &write
	}
	if r.ActiveNS <= 0 {
		return r
	}
	r.ReadIOPS = perSecond(r.Totals.ReadOps, r.ActiveNS)
	r.WriteIOPS = perSecond(r.Totals.WriteOps, r.ActiveNS)
	// Little's law: the latencies add up to operations in flight times time, as
	// long as nothing but the drive keeps the number in flight down.
	inFlight := float64(l.stage.Depth) * float64(l.job.Workers)
	if inFlight > 0 && l.stage.pace.period == 0 && l.cp.PhasePausedNS == 0 {
		sum := 0.0
		for _, h := range whole {
			hi, lo := h.Sum()
			sum += float64(hi)*(1<<64) + float64(lo)
		}
		r.LittlePermille = int64(math.Round(sum / (float64(r.ActiveNS) / float64(l.lapse)) / inFlight * 1000))
	}
	return r
}

// perSecond is a rate, rounded to the nearest whole number.
func perSecond(n uint64, ns int64) uint64 {
	hi, lo := bits.Mul64(n, second1)
	lo, carry := bits.Add64(lo, uint64(ns)/2, 0)
	if hi+carry >= uint64(ns) {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi+carry, lo, uint64(ns))
	return q
}

func percentiles(h *stats.Histogram) run.Percentiles {
	return run.Percentiles{
		Operations: h.Count(), MeanNS: known(h.Mean()), MinNS: known(h.Min()), MaxNS: known(h.Max()),
		P50NS: known(h.Percentile(500_000)), P90NS: known(h.Percentile(900_000)), P99NS: known(h.Percentile(990_000)),
		P999NS: known(h.Percentile(999_000)), P9999NS: known(h.Percentile(999_900)), P99999NS: known(h.Percentile(999_990)),
		Overflow: h.Overflow(),
	}
}

// WearSamples are a run's samples as package wear reads them; those that failed
// are left out.
func WearSamples(samples []run.Sample) []wear.Sample {
	out := make([]wear.Sample, 0, len(samples))
	for i := range samples {
		s := &samples[i]
		if s.Failure != "" {
			continue
		}
		w := wear.Sample{
			TimeNS: s.Second * second1, Epoch: s.Identity + " " + s.Firmware + " " + s.Format, PowerOnHours: count(s.PowerOnHours),
			PercentageUsed: s.PercentageUsed, SparePercent: s.SparePercent,
		}
		for _, h := range s.Host {
			w.Host = append(w.Host, wear.Host{Source: h.Source, UnitBytes: h.UnitBytes, Before: count(h.Before), After: count(h.After)})
		}
		for _, m := range s.Media {
			w.Media = append(w.Media, wear.Media{Source: m.Source, UnitBytes: m.UnitBytes, Units: count(m.Units)})
		}
		out = append(out, w)
	}
	return out
}

func count(u run.Uint128) wear.Count { return wear.Count{Hi: u.Hi, Lo: u.Lo} }

// epochBreak says why the second sample begins a new epoch, or nothing.
func epochBreak(two []run.Sample) string {
	if spans := wear.Epochs(WearSamples(two)); len(spans) == 2 {
		return spans[1].Reason
	}
	return ""
}

// MeasureWAF is the WAF of the samples of one workload, taken since it began:
// that of its settled part, with the rule that found it. alphaMilli is that of
// the job.
func MeasureWAF(samples []run.Sample, capacityBytes uint64, alphaMilli uint32, fillDriveWrites float64) run.WAF {
	r := wear.Measure(WearSamples(samples), wear.Options{CapacityBytes: capacityBytes, AlphaMilli: alphaMilli, FillDriveWrites: fillDriveWrites})
	w := plainWAF(r.WAF)
	w.Settled, w.Rule = r.Settled, r.Rule
	return w
}

// LifetimeWAF is the WAF of the drive's whole life, as one sample has it.
func LifetimeWAF(s *run.Sample) run.WAF {
	if s == nil {
		return run.WAF{Reason: "not reported: no samples"}
	}
	ws := WearSamples([]run.Sample{*s})
	if len(ws) == 0 {
		return run.WAF{Reason: "not reported: the sample failed"}
	}
	return plainWAF(wear.Lifetime(&ws[0]))
}

func plainWAF(w wear.WAF) run.WAF {
	if !w.Available {
		return run.WAF{Reason: w.Reason}
	}
	return run.WAF{
		Available: true, Micro: int64(math.Round(w.Value * 1e6)), ErrorMicro: int64(math.Ceil(w.Error()*1e6)) + 1, Source: w.Source,
		HostBytes:   run.Uint128{Hi: w.HostBytes.Hi, Lo: w.HostBytes.Lo},
		MediaBytes:  run.Uint128{Hi: w.MediaBytes.Hi, Lo: w.MediaBytes.Lo},
		FirstSecond: w.FirstNS / second1, LastSecond: w.LastNS / second1,
	}
}

// workloadWAF is the WAF of the current workload: that of the phases since the
// first of warm-up and measure with the same pattern and mix as the present one.
func (l *ledger) workloadWAF() run.WAF {
	if len(l.samples) == 0 {
		return run.WAF{Reason: "not reported: no samples"}
	}
	at := int(l.cp.Phase)
	for at > 0 && l.job.Phases[at].Pattern == run.PatternNone {
		at--
	}
	now := l.job.Phases[at]
	from := l.firstSecondOf(at)
	unfilled := true
	for i := at - 1; i >= 0; i-- {
		p := l.job.Phases[i]
		same := SameWorkload(&p, &now)
		if same && from == l.firstSecondOf(i+1) {
			from = l.firstSecondOf(i)
		}
		if p.Pattern == run.PatternSequential || p.Pattern == run.PatternRandom {
			unfilled = unfilled && (p.ReadPercent != 0 || p.End.Passes == 0 && p.End.DriveWritesMilli < 1000 && p.End.Bytes < l.job.CapacityBytes)
		}
	}
	var since []run.Sample
	for i := range l.samples {
		if l.samples[i].Second >= from {
			since = append(since, l.samples[i])
		}
	}
	fill := 0.0
	if unfilled {
		fill = fillDriveWrites(now.Pattern)
	}
	return MeasureWAF(since, l.job.CapacityBytes, l.job.AlphaMilli, fill)
}

// fillDriveWrites is how many drive writes of an order it takes to fill a drive.
// Drawn anew, blocks that were never written become fewer by e a drive write:
// after five, 0.7 % are left.
func fillDriveWrites(p run.Pattern) float64 {
	if p == run.PatternReplacement {
		return 5
	}
	return 1
}

// firstSecondOf is the first second of a phase that has begun.
func (l *ledger) firstSecondOf(phase int) int64 {
	if phase == int(l.cp.Phase) {
		return l.cp.PhaseFirstSecond
	}
	for _, r := range l.cp.Results {
		if int(r.Phase) == phase {
			return r.FirstSecond
		}
	}
	return 0
}

// verdict says how the run, or this session of it, ended.
func (l *ledger) verdict(state run.State, reason string) *run.Verdict {
	v := &run.Verdict{
		State: state, Reason: reason, Totals: l.cp.Totals, Verified: l.cp.Verified,
		Phases: append([]run.PhaseResult(nil), l.cp.Results...),
		Limits: append([]run.LimitResult(nil), l.limits...),
		WAF:    l.workloadWAF(), Lifetime: LifetimeWAF(l.latest),
	}
	if l.stage != nil && (len(v.Phases) == 0 || v.Phases[len(v.Phases)-1].Phase != l.cp.Phase) {
		v.Phases = append(v.Phases, l.phaseResult())
	}
	if l.latest != nil {
		v.HealthPercent, v.HealthAvailable = l.latest.HealthPercent()
		v.SparePercent = int64(l.latest.SparePercent)
	}
	v.Deltas = deltas(l.cp.First, l.latest)
	if n := l.cp.UncountedOpsMax; n != 0 {
		v.Notes = append(v.Notes, uncounted(n, l.cp.Crashes, l.lapse))
	}
	if state.Resumable() {
		v.ExitCode = run.ExitInterrupted
		return v
	}
	l.fail(v)
	return v
}

// uncounted says how much a run may have done that is in none of its figures.
func uncounted(ops, crashes, lapse uint64) string {
	text := fmt.Sprintf("up to %d operations before %d crashes may have been carried out and are in no row", ops, crashes)
	if crashes == 1 {
		text = fmt.Sprintf("up to %d operations before a crash may have been carried out and are in no row", ops)
	}
	if lapse > 1 {
		text += fmt.Sprintf("; each stands for %d", lapse)
	}
	return text
}

// fail finds what keeps a run that ended from being good.
func (l *ledger) fail(v *run.Verdict) {
	bad := func(format string, args ...any) {
		v.ExitCode = run.ExitLimits
		v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
	}
	for _, r := range v.Limits {
		if r.Reached && !isGoal(r.Rule.Kind) {
			bad("limit reached: %s %s, limit %s", r.Rule.Kind.Term(), r.Rule.Kind.Text(r.Value), r.Rule.Kind.Text(r.Rule.Limit))
		}
		if !r.Available {
			v.Notes = append(v.Notes, fmt.Sprintf("stop rule %s was never judged: the drive does not report it", r.Rule.Kind.Term()))
		}
	}
	if n := v.Totals.Errors(); n != 0 {
		bad("%d operations failed", n)
	}
	l.verifyNotes(v, bad)
	if v.Deltas.Available {
		if !v.Deltas.MediaErrors.IsZero() {
			bad("%s new media errors", v.Deltas.MediaErrors)
		}
		if v.Deltas.CriticalWarnings != 0 {
			bad("new critical warnings 0x%02x", v.Deltas.CriticalWarnings)
		}
		if !v.Deltas.UnsafeShutdowns.IsZero() {
			v.Notes = append(v.Notes, fmt.Sprintf("%s unsafe shutdowns during the run", v.Deltas.UnsafeShutdowns))
		}
		if v.Deltas.ThermalTransitions != 0 || v.Deltas.WarningTempMinutes != 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("the drive throttled: %d thermal transitions, %d s managed, %d min above the warning temperature",
				v.Deltas.ThermalTransitions, v.Deltas.ThermalSeconds, v.Deltas.WarningTempMinutes))
		}
	}
	if l.cp.Pauses != 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("paused %d times to cool down, %d s in all", l.cp.Pauses, l.cp.PausedNS/second1))
	}
	if l.cp.Outages != 0 {
		often := ""
		if l.cp.Outages > 1 {
			often = fmt.Sprintf(", %d times in all", l.cp.Outages)
		}
		v.Notes = append(v.Notes, fmt.Sprintf("for %.1f s nothing could be recorded, so nothing was done%s; that is not counted as time at work",
			float64(l.cp.OutageNS)/second1, often))
	}
	if text := l.miscounted(); text != "" {
		v.Notes = append(v.Notes, text)
	}
	for _, p := range v.Phases {
		// A short phase is mostly ramp and drain, during which less is in flight.
		inFlight := uint64(l.job.Phases[p.Phase].Depth) * uint64(l.job.Workers)
		if d := p.LittlePermille - 1000; p.LittlePermille != 0 && p.Read.Operations+p.Write.Operations >= 100*inFlight && (d > 30 || d < -30) {
			v.Notes = append(v.Notes, fmt.Sprintf("phase %d: rate times latency is %.1f %% of the operations in flight; Little's law allows 3 %% off, so the host kept the drive waiting",
				p.Phase, float64(p.LittlePermille)/10))
		}
		if p.Read.Overflow+p.Write.Overflow != 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("phase %d: %d latencies beyond the histogram's 73 minutes", p.Phase, p.Read.Overflow+p.Write.Overflow))
		}
	}
}

// miscounted says that the drive's own counter of host writes does not confirm
// what the engine wrote: a conditioning that only read has been seen.
func (l *ledger) miscounted() string {
	a, b := l.cp.First, l.latest
	if a == nil || b == nil || len(a.Host) == 0 || len(b.Host) == 0 || b.Host[0].After.IsZero() ||
		epochBreak([]run.Sample{*a, *b}) != "" {
		return ""
	}
	units := b.Host[0].After.Sub(a.Host[0].Before)
	hi, counted := bits.Mul64(units.Lo, b.Host[0].UnitBytes)
	wrote := b.EngineWriteBytes - a.EngineWriteBytes
	// One unit of rounding at each end.
	if hi != 0 || units.Hi != 0 || counted+2*b.Host[0].UnitBytes >= wrote/100*99 {
		return ""
	}
	return fmt.Sprintf("the drive counted %d bytes written by the host (%s), the run wrote %d", counted, b.Host[0].Source, wrote)
}

// deltas are what changed between two samples. Counters that stepped back are
// counted from 0, which is the least that happened.
func deltas(a, b *run.Sample) run.Deltas {
	if a == nil || b == nil {
		return run.Deltas{}
	}
	since := func(x, y run.Uint128) run.Uint128 {
		if y.Cmp(x) < 0 {
			return y
		}
		return y.Sub(x)
	}
	less := func(x, y uint64) uint64 {
		if y < x {
			return y
		}
		return y - x
	}
	return run.Deltas{
		Available:          true,
		MediaErrors:        since(a.MediaErrors, b.MediaErrors),
		UnsafeShutdowns:    since(a.UnsafeShutdowns, b.UnsafeShutdowns),
		PowerCycles:        since(a.PowerCycles, b.PowerCycles),
		ErrorLogEntries:    since(a.ErrorLogEntries, b.ErrorLogEntries),
		ThermalTransitions: less(a.ThermalTransitions, b.ThermalTransitions),
		ThermalSeconds:     less(a.ThermalSeconds, b.ThermalSeconds),
		WarningTempMinutes: uint32(less(uint64(a.WarningTempMinutes), uint64(b.WarningTempMinutes))),
		CriticalWarnings:   b.CriticalWarning &^ a.CriticalWarning,
		PercentageUsed:     int64(b.PercentageUsed) - int64(a.PercentageUsed),
	}
}
