package endurance

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"nvop/endurance/run"
	"nvop/endurance/stats"
)

const (
	// spanSeconds is how many rows share a histogram in the journal.
	spanSeconds = 60
	// minWindow is the least number of operations to reserve ahead.
	minWindow = 1 << 16
	// maxSamplesKept bounds the samples that WAF is computed from in memory;
	// beyond it every other one goes.
	maxSamplesKept = 8192
)

// ledger turns tallies into rows, keeps the totals, judges the stop rules and
// commits. It belongs to the driver's goroutine; committing happens in another,
// so that neither waits for the other unless two commits meet.
type ledger struct {
	cfg   *Config
	job   *run.Job
	lapse uint64
	track *track
	stage *stage
	// origin is the calendar time of second 0, first the first second of this
	// session.
	origin, first int64

	cp    run.Checkpoint
	marks []run.WorkerMark
	batch *run.Batch
	spare *run.Batch
	// rowHist merges workers; open is the current span, sum the phase before it.
	rowHist, open, sum [directions]*stats.Histogram
	// late sums the phase's latencies from when operations were due.
	late      [directions]*stats.Histogram
	openFirst int64
	openRows  int64

	rowOps     uint64 // operations of the latest row, not scaled
	peakOps    uint64 // of the busiest row lately
	sinceOps   uint64 // since the last checkpoint
	windowSize uint64 // operations reserved beyond the slowest worker, at least
	need       uint64 // a position that the next mark has to reach

	samples []run.Sample
	latest  *run.Sample
	polled  bool
	// polling says that health is being read right now.
	polling bool
	idleNS  int64 // without a completion, on the drive's calendar
	stalled bool
	limits  []run.LimitResult
	rules   rules

	scribe *scribe
	// waiting says that a commit is being tried again and again, for the reason of
	// trouble, and that the workers are held meanwhile. The driver is told of its
	// beginning and its end.
	waiting     bool
	trouble     string
	onTrouble   func(err error)
	onRecovered func()
	pending     uint64 // the mark that the commit under way will allow
	// crashHigh is how far a session that crashed in this phase may have gone.
	crashHigh uint64
	failure   error // of the journal or the drive's file
	newest    int64 // the latest second of any event of this session
	// listed is how many mismatches of each kind are recorded one by one.
	listed map[run.MismatchKind]int
}

// newLedger prepares the books of a session.
func newLedger(cfg *Config, t *track) *ledger {
	l := &ledger{
		cfg: cfg, job: &cfg.Job, lapse: uint64(cfg.Job.TimeLapse), track: t, origin: cfg.StartWallUnixNS,
		batch: &run.Batch{}, spare: &run.Batch{}, windowSize: minWindow,
		marks: make([]run.WorkerMark, len(t.lanes)),
	}
	for d := range directions {
		l.rowHist[d], l.open[d], l.sum[d] = stats.NewHistogram(), stats.NewHistogram(), stats.NewHistogram()
		l.late[d] = stats.NewHistogram()
	}
	for _, s := range l.job.Stops {
		l.limits = append(l.limits, run.LimitResult{Rule: s})
	}
	for i := range cfg.Samples {
		l.keep(cfg.Samples[i])
	}
	if cfg.Resume != nil {
		l.cp = *cfg.Resume
		l.first = l.cp.NextSecond
		l.crashHigh = l.cp.CrashHigh
		if l.cp.State == run.StateRunning {
			l.crashHigh = l.cp.ReservedHigh
		}
	}
	return l
}

// restore takes the phase's histograms and marks from the checkpoint.
func (l *ledger) restore() error {
	for i := range l.marks {
		l.marks[i] = run.WorkerMark{Next: uint64(i)}
	}
	l.doubt()
	if l.cfg.Resume == nil {
		return nil
	}
	if len(l.cp.Workers) != len(l.marks) {
		return fmt.Errorf("the checkpoint has %d workers, the job %d", len(l.cp.Workers), len(l.marks))
	}
	for i, m := range l.cp.Workers {
		if m.Next%uint64(len(l.marks)) != uint64(i) {
			return fmt.Errorf("the checkpoint has worker %d at position %d, which is not its own", i, m.Next)
		}
		l.marks[i] = run.WorkerMark{Next: m.Next, Incomplete: slices.Clone(m.Incomplete)}
	}
	l.openFirst = l.cp.NextSecond
	for _, h := range l.cp.Open {
		l.openFirst, l.openRows = h.Second, h.Seconds
	}
	if err := decodeInto(&l.open, l.cp.Open); err != nil {
		return fmt.Errorf("checkpoint %d: %w", l.cp.Number, err)
	}
	if err := errors.Join(decodeInto(&l.sum, l.cp.PhaseSum), decodeInto(&l.late, l.cp.PhaseLate)); err != nil {
		return fmt.Errorf("checkpoint %d: %w", l.cp.Number, err)
	}
	return nil
}

// direction is the index of a histogram's direction.
func direction(write bool) int {
	if write {
		return dirWrite
	}
	return dirRead
}

func decodeInto(to *[directions]*stats.Histogram, from []run.Histogram) error {
	for _, e := range from {
		h, err := stats.DecodeHistogram(e.Encoded)
		if err != nil {
			return err
		}
		to[direction(e.Write)] = h
	}
	return nil
}

// encode is the histograms of a span that are not empty.
func (l *ledger) encode(from *[directions]*stats.Histogram, first, seconds int64) []run.Histogram {
	var out []run.Histogram
	for d, h := range from {
		if h.Count() == 0 {
			continue
		}
		b, _ := h.AppendBinary(nil)
		out = append(out, run.Histogram{
			Phase: l.cp.Phase, Write: d == dirWrite, Second: first, Seconds: seconds, Encoded: b,
		})
	}
	return out
}

// beginPhase opens the books of a phase at a second. On resume in its midst
// they are open already.
func (l *ledger) beginPhase(s *stage, second int64, resumed bool) {
	l.stage = s
	l.rowOps, l.peakOps, l.idleNS, l.stalled = 0, 0, 0, false
	l.rules.steady = newSteadiness(l.lapse)
	if resumed {
		l.prepareChecks()
		return
	}
	l.cp.Phase, l.cp.Pass, l.cp.PhaseTotals, l.cp.PhaseActiveNS = uint32(s.index), 0, run.Totals{}, 0
	l.cp.PhaseFirstSecond, l.crashHigh = second, 0
	l.cp.PhaseVerified, l.cp.Flushed = run.Verified{}, nil
	for d := range directions {
		l.open[d].Reset()
		l.sum[d].Reset()
		l.late[d].Reset()
	}
	l.openFirst, l.openRows, l.cp.PhasePausedNS = second, 0, 0
	for i := range l.marks {
		l.marks[i] = run.WorkerMark{Next: uint64(i)}
	}
	if s.Kind == run.PhaseMeasure && l.cp.Measured == nil {
		l.cp.Measured = l.latest
	}
	l.prepareChecks()
	l.event(second, run.EventPhaseStarted, fmt.Sprintf("phase %d: %s, %s", s.index, s.Kind, s.Pattern))
}

// event notes that something happened in a second. What begins or ends does so
// after all that was noted before, of whatever second by the clock.
func (l *ledger) event(second int64, kind run.EventKind, text string) {
	switch kind {
	case run.EventPhaseStarted, run.EventPhaseEnded, run.EventFinished, run.EventStopped, run.EventInterrupted, run.EventDeviceGone:
		second = max(second, l.newest)
	}
	l.newest = max(l.newest, second)
	l.batch.Events = append(l.batch.Events, run.Event{Second: second, WallUnixNS: l.wall(second), Kind: kind, Text: text})
}

// wall is the calendar time of a second's beginning, as the run counts seconds.
func (l *ledger) wall(second int64) int64 { return l.origin + second*second1 }

// rowTime is when a row was.
type rowTime struct {
	second     int64
	wallUnixNS int64
	activeNS   int64
	// outageNS is how much of the second nothing could be recorded in; none of it is
	// in activeNS.
	outageNS int64
	// silent is what workers that do not answer had in flight when last heard.
	silent uint32
}

// row closes a second with what the workers did in it.
func (l *ledger) row(t rowTime, tallies []*tally) {
	r := run.Row{
		Second: t.second, WallUnixNS: t.wallUnixNS, MonoNS: (t.second - l.first + 1) * second1,
		Phase: l.cp.Phase, ActiveNS: t.activeNS, InFlight: t.silent,
	}
	l.rowOps = 0
	var hist [directions]*stats.Histogram
	for _, y := range tallies {
		l.tallied(&r, y, &hist)
	}
	r.Read, r.Write = latency(hist[dirRead]), latency(hist[dirWrite])
	for d, h := range hist {
		if h != nil {
			l.open[d].Merge(h)
		}
		l.rowHist[d].Reset()
	}
	if l.latest != nil {
		r.TemperatureCelsius, r.TemperatureAvailable = l.latest.TemperatureCelsius()
		if !r.TemperatureAvailable {
			r.TemperatureCelsius = 0
		}
	}
	if l.polled || l.polling {
		r.Flags |= run.FlagPolled
		l.polled = false
	}
	l.watch(&r)
	l.heed(&r, t.outageNS)
	l.batch.Rows = append(l.batch.Rows, r)
	for _, totals := range []*run.Totals{&l.cp.Totals, &l.cp.PhaseTotals} {
		totals.Add(r.Counts)
		totals.Rows++
	}
	l.cp.NextSecond = t.second + 1
	l.cp.PhaseActiveNS += t.activeNS
	l.cp.RunActiveNS += t.activeNS
	l.sinceOps += l.rowOps
	l.peakOps = max(l.peakOps-l.peakOps/16, l.rowOps)
	// A span ends with a whole minute of the run, as the journal's minutes do.
	if l.openRows++; l.cp.NextSecond%spanSeconds == 0 {
		l.closeSpan()
	}
	l.judgeRow()
}

// gap records that there are no rows for some seconds, from the next on.
func (l *ledger) gap(g run.GapRow) {
	l.batch.Gaps = append(l.batch.Gaps, g)
	l.cp.NextSecond += g.Seconds
	// A histogram's span has no holes.
	l.closeSpan()
}

// tallied adds one worker's second to a row.
func (l *ledger) tallied(r *run.Row, y *tally, hist *[directions]*stats.Histogram) {
	r.ReadOps += y.ops[dirRead] * l.lapse
	r.WriteOps += y.ops[dirWrite] * l.lapse
	r.ReadBytes += y.bytes[dirRead] * l.lapse
	r.WriteBytes += y.bytes[dirWrite] * l.lapse
	r.ReadErrors += y.errors[dirRead]
	r.WriteErrors += y.errors[dirWrite]
	r.InFlight += y.inFlight
	l.rowOps += y.ops[dirRead] + y.ops[dirWrite] + y.errors[dirRead] + y.errors[dirWrite]
	if y.drained {
		r.Flags |= run.FlagDrained
	}
	if y.second < r.Second || y.merged {
		r.Flags |= run.FlagLate
	}
	for d, h := range y.hist {
		if y.late[d] != nil {
			l.late[d].Merge(y.late[d])
		}
		switch {
		case h.Count() == 0:
		case hist[d] == nil:
			hist[d] = h
		default:
			if hist[d] != l.rowHist[d] {
				l.rowHist[d].Merge(hist[d])
				hist[d] = l.rowHist[d]
			}
			hist[d].Merge(h)
		}
	}
	l.failures(r.Second, y)
	l.verified(r.Second, y)
	m := &l.marks[y.worker]
	m.Next = y.mark.Next
	m.Incomplete = append(m.Incomplete[:0], y.mark.Incomplete...)
}

// failures lists the operations of a tally that did not succeed.
func (l *ledger) failures(second int64, y *tally) {
	for _, f := range y.failures {
		e := run.Event{
			Second: second, WallUnixNS: l.wall(second), Kind: run.EventIOError, Op: "read", Status: f.status, Count: 1,
			LBA:    uint64(f.op.OffsetBytes) / uint64(l.job.LBABytes),
			Blocks: uint32(f.op.LengthBytes) / l.job.LBABytes,
		}
		if f.op.Write {
			e.Op = "write"
		}
		if f.flush {
			e.Op = "flush"
		}
		if f.err != nil {
			e.Text = f.err.Error()
		} else {
			e.Text = fmt.Sprintf("status 0x%04x", f.status)
		}
		l.batch.Events = append(l.batch.Events, e)
	}
	if n := y.errors[dirRead] + y.errors[dirWrite]; n > uint64(len(y.failures)) {
		l.batch.Events = append(l.batch.Events, run.Event{
			Second: second, WallUnixNS: l.wall(second), Kind: run.EventIOError,
			Count: n - uint64(len(y.failures)), Text: "more failed operations of the same second, not listed",
		})
	}
}

// latency sums up a histogram for a row.
func latency(h *stats.Histogram) run.Latency {
	if h == nil {
		return run.Latency{MeanNS: run.NotAvailable, P99NS: run.NotAvailable, P999NS: run.NotAvailable, MaxNS: run.NotAvailable}
	}
	return run.Latency{
		Operations: h.Count(), MeanNS: known(h.Mean()), P99NS: known(h.Percentile(990_000)),
		P999NS: known(h.Percentile(999_000)), MaxNS: known(h.Max()),
	}
}

// known is a latency, or NotAvailable.
func known(ns int64, ok bool) int64 {
	if !ok {
		return run.NotAvailable
	}
	return ns
}

// watch notes when nothing completes although something is outstanding.
func (l *ledger) watch(r *run.Row) {
	if l.rowOps != 0 || r.InFlight == 0 {
		if l.stalled {
			l.event(r.Second, run.EventMoving, "operations complete again")
		}
		l.idleNS, l.stalled = 0, false
		return
	}
	l.idleNS += second1
	if l.idleNS/int64(l.lapse) < l.job.StallNS {
		return
	}
	r.Flags |= run.FlagStalled
	if !l.stalled {
		l.stalled = true
		l.event(r.Second, run.EventStalled, fmt.Sprintf("nothing has completed for %d s; %d operations are outstanding",
			l.idleNS/int64(l.lapse)/second1, r.InFlight))
	}
}

// closeSpan hands the open histograms over and adds them to the phase's.
func (l *ledger) closeSpan() {
	if l.openRows == 0 {
		l.openFirst = l.cp.NextSecond
		return
	}
	l.batch.Histograms = append(l.batch.Histograms, l.encode(&l.open, l.openFirst, l.openRows)...)
	for d := range directions {
		l.sum[d].Merge(l.open[d])
		l.open[d].Reset()
	}
	l.openFirst, l.openRows = l.cp.NextSecond, 0
}

// endPhase closes the books of a phase and keeps its result.
func (l *ledger) endPhase() {
	l.closeSpan()
	l.cp.Results = append(l.cp.Results, l.phaseResult())
	last := max(l.cp.NextSecond-1, l.cp.PhaseFirstSecond)
	l.event(last, run.EventPhaseEnded, fmt.Sprintf("phase %d: %s ended", l.stage.index, l.stage.Kind))
}

// sample takes in a reading of the drive's health.
func (l *ledger) sample(s run.Sample, second int64, wallUnixNS int64) {
	if l.cfg.Path != nil {
		for _, text := range l.cfg.Path() {
			l.event(second, run.EventLink, text)
		}
	}
	s.Second, s.WallUnixNS, s.EngineWriteBytes = second, wallUnixNS, l.cp.Totals.WriteBytes
	l.polled = true
	l.batch.Samples = append(l.batch.Samples, s)
	if s.Failure != "" {
		l.event(second, run.EventSampleFailed, s.Failure)
		return
	}
	if l.latest != nil {
		before := []run.Sample{*l.latest, s}
		if reason := epochBreak(before); reason != "" {
			l.event(second, run.EventEpoch, reason)
		}
		if text := settingsChanged(l.latest, &s); text != "" {
			l.event(second, run.EventSetting, text)
		}
	}
	l.keep(s)
	if l.cp.First == nil {
		l.cp.First = l.latest
	}
	if l.cp.Measured == nil && l.stage != nil && l.stage.Kind == run.PhaseMeasure {
		l.cp.Measured = l.latest
	}
}

// keep remembers a sample for WAF.
func (l *ledger) keep(s run.Sample) {
	if s.Failure != "" {
		return
	}
	l.latest = &s
	l.samples = append(l.samples, s)
	if len(l.samples) < maxSamplesKept {
		return
	}
	kept := l.samples[:0]
	// In pairs, so that a change of a counter between the two stays known as
	// closely as they were taken: what halving does not spoil is an edge.
	for i := range l.samples {
		if i%4 < 2 || i >= len(l.samples)-2 {
			kept = append(kept, l.samples[i])
		}
	}
	l.samples = kept
}

// commit hands over everything since the last commit, with a checkpoint. It
// waits for the commit before, not for this one.
func (l *ledger) commit(state run.State, clockNS int64, verdict *run.Verdict) error {
	if err := l.settle(); err != nil {
		return err
	}
	l.checkpoint(state, clockNS)
	if l.cfg.SaveDrive != nil {
		if err := l.cfg.SaveDrive(l.cp.Number); err != nil {
			l.failure = fmt.Errorf("save the drive at checkpoint %d: %w", l.cp.Number, err)
			return l.failure
		}
	}
	b := l.batch
	b.Checkpoint, b.Verdict = l.cp, verdict
	// Those of a row come when it is made, those of the moment at once.
	slices.SortStableFunc(b.Events, func(x, y run.Event) int { return cmp.Compare(x.Second, y.Second) })
	l.pending = l.cp.ReservedHigh
	l.batch, l.spare = l.spare, l.batch
	clearBatch(l.batch)
	l.sinceOps = 0
	l.scribe.busy = true
	l.scribe.in <- b
	return nil
}

// clearBatch empties a batch that was committed, keeping its room.
func clearBatch(b *run.Batch) {
	*b = run.Batch{
		Rows: b.Rows[:0], Gaps: b.Gaps[:0], Histograms: b.Histograms[:0], Samples: b.Samples[:0], Events: b.Events[:0],
		Mismatches: b.Mismatches[:0],
	}
}

// checkpoint brings the checkpoint up to date.
func (l *ledger) checkpoint(state run.State, clockNS int64) {
	l.cp.Number++
	l.cp.State, l.cp.ClockNS = state, clockNS
	l.cp.WallUnixNS = l.wall(l.cp.NextSecond)
	low, highest := uint64(math.MaxUint64), uint64(0)
	l.cp.Workers = make([]run.WorkerMark, len(l.marks))
	for i, m := range l.marks {
		slices.Sort(m.Incomplete)
		l.cp.Workers[i] = run.WorkerMark{Next: m.Next, Incomplete: slices.Clone(m.Incomplete)}
		highest = max(highest, m.Next)
		low = min(low, m.Next)
		if len(m.Incomplete) != 0 {
			low = min(low, m.Incomplete[0])
		}
	}
	l.cp.LowWater, l.cp.Pass = low, 0
	if l.stage != nil && l.stage.blocks != 0 {
		l.cp.Pass = l.stage.passes(low / l.stage.blocks)
	}
	l.cp.ReservedHigh = max(highest, l.crashHigh)
	if state == run.StateRunning && l.stage != nil {
		l.cp.ReservedHigh = max(l.cp.ReservedHigh, l.reserve(low))
	}
	l.cp.Doubts, l.cp.Flushed, l.cp.CrashHigh = l.track.doubts.all(), slices.Clone(l.cp.Flushed), l.crashHigh
	l.cp.Open = l.encode(&l.open, l.openFirst, l.openRows)
	l.cp.PhaseSum = l.encode(&l.sum, l.cp.PhaseFirstSecond, l.openFirst-l.cp.PhaseFirstSecond)
	l.cp.PhaseLate = l.encode(&l.late, l.cp.PhaseFirstSecond, l.cp.NextSecond-l.cp.PhaseFirstSecond)
}

// reserve is how far the workers may go until the next commit: as far as they
// may already, and beyond the slowest of them four seconds of the busiest one
// lately, and at least what the driver asked for. A checkpoint a second then
// never makes them wait.
func (l *ledger) reserve(low uint64) uint64 {
	front := l.track.slowest(func(a *lane) uint64 { return a.next.Load() })
	if front == math.MaxUint64 {
		front = low
	}
	ahead := max(front, low) + max(l.windowSize, 4*l.peakOps)
	ahead, l.need = max(ahead, l.need), 0
	return min(max(l.track.high.Load(), ahead), l.stage.limit)
}
