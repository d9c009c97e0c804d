package journal

import (
	"context"
	"fmt"
	"slices"

	"nvop/endurance/run"
	"nvop/endurance/stats"
)

const (
	// secondsKept is how long a run keeps one row a second, in seconds of the
	// run's own clock; after that it keeps one a minute.
	secondsKept = 24 * 60 * 60
	// thinSeconds is the span of a thinned row.
	thinSeconds = 60
	// coarseSeconds is the span of a thinned histogram, and how far apart
	// samples are that are kept for no reason of their own.
	coarseSeconds = 600
	// thinAtOnce bounds the seconds thinned in one commit beyond as many as
	// it brings, so that a run resumed after a long gap has no slow commit.
	thinAtOnce = 7200
)

// Why a sample is kept for good (samples.kept_because); 0 means that it may go
// after a day.
const (
	// keptEdge: a media counter is not what it was in the sample before.
	keptEdge = 1 << iota
	// keptBeforeEdge: the next sample is an edge, and this one bounds when.
	keptBeforeEdge
	// keptHealth: the first, a failed one, one after a failure, or one whose
	// health differs from the sample before in more than temperature and time.
	keptHealth
	// keptRegular: the first of its ten minutes.
	keptRegular
)

// keepReasons says why s is kept, given the sample before it (nil for none),
// and what is to be added to that one's reasons.
func keepReasons(prev, s *run.Sample) (why, before int) {
	if prev == nil || prev.Failure != "" || s.Failure != "" {
		return keptHealth, 0
	}
	if prev.Second/coarseSeconds != s.Second/coarseSeconds {
		why |= keptRegular
	}
	if !slices.Equal(prev.Media, s.Media) {
		why |= keptEdge
		before |= keptBeforeEdge
	}
	if health(prev) != health(s) || !follows(prev, s) {
		// What cannot be compared is kept on both sides.
		why |= keptHealth
		before |= keptHealth
	}
	return why, before
}

// follows says whether the counters of s can come after those of prev: the
// same ones, and none has stepped back.
func follows(prev, s *run.Sample) bool {
	if len(prev.Host) != len(s.Host) || len(prev.Media) != len(s.Media) || s.PowerOnHours.Cmp(prev.PowerOnHours) < 0 {
		return false
	}
	for i := range s.Host {
		a, b := &prev.Host[i], &s.Host[i]
		if a.Source != b.Source || a.UnitBytes != b.UnitBytes || b.Before.Cmp(a.After) < 0 || b.After.Cmp(b.Before) < 0 {
			return false
		}
	}
	for i := range s.Media {
		a, b := &prev.Media[i], &s.Media[i]
		if a.Source != b.Source || a.UnitBytes != b.UnitBytes || b.Units.Cmp(a.Units) < 0 {
			return false
		}
	}
	return true
}

// condition is what of a sample is worth keeping when it changes.
type condition struct {
	percent                    [3]uint8
	warning                    uint8
	counts                     [4]run.Uint128
	warningMinutes, critical   uint32
	thermalTimes, thermalTotal uint64
	firmware, format, identity string
}

func health(s *run.Sample) condition {
	return condition{
		percent: [3]uint8{s.PercentageUsed, s.SparePercent, s.SpareThresholdPercent}, warning: s.CriticalWarning,
		counts:         [4]run.Uint128{s.MediaErrors, s.UnsafeShutdowns, s.PowerCycles, s.ErrorLogEntries},
		warningMinutes: s.WarningTempMinutes, critical: s.CriticalTempMinutes,
		thermalTimes: s.ThermalTransitions, thermalTotal: s.ThermalSeconds,
		firmware: s.Firmware, format: s.Format, identity: s.Identity,
	}
}

// minute sums the rows of one minute and phase.
type minute struct {
	first run.Row // sums and maxima are kept in it
	rows  int64
}

func (m *minute) add(r *run.Row) {
	if m.rows++; m.rows == 1 {
		m.first = *r
		return
	}
	f := &m.first
	f.Counts.Add(r.Counts)
	f.MonoNS, f.InFlight = r.MonoNS, r.InFlight
	f.ActiveNS += r.ActiveNS
	f.Flags |= r.Flags
	f.Read.Operations += r.Read.Operations
	f.Write.Operations += r.Write.Operations
	f.Read.MaxNS = max(f.Read.MaxNS, r.Read.MaxNS) // NotAvailable is below all
	f.Write.MaxNS = max(f.Write.MaxNS, r.Write.MaxNS)
	if r.TemperatureAvailable && (!f.TemperatureAvailable || r.TemperatureCelsius > f.TemperatureCelsius) {
		f.TemperatureCelsius, f.TemperatureAvailable = r.TemperatureCelsius, true
	}
}

func minuteColumns() []string {
	return []string{"run_id", "minute", "phase", "first_second", "seconds", "at_unix_ns", "mono_ns", "active_ns",
		"read_ops", "write_ops", "read_bytes", "write_bytes", "read_errors", "write_errors", "read_measured_ops",
		"read_max_ns", "write_measured_ops", "write_max_ns", "in_flight", "temperature_celsius", "flags"}
}

// minuteConflict adds to a minute of which an earlier commit brought a part.
func minuteConflict() string {
	s := ` ON CONFLICT (run_id, minute, phase) DO UPDATE SET mono_ns = excluded.mono_ns,
		in_flight = excluded.in_flight, flags = flags | excluded.flags`
	for _, c := range []string{"seconds", "active_ns", "read_ops", "write_ops", "read_bytes", "write_bytes",
		"read_errors", "write_errors", "read_measured_ops", "write_measured_ops"} {
		s += fmt.Sprintf(", %[1]s = %[1]s + excluded.%[1]s", c)
	}
	for _, c := range []string{"read_max_ns", "write_max_ns", "temperature_celsius"} {
		s += fmt.Sprintf(", %[1]s = coalesce(max(%[1]s, excluded.%[1]s), %[1]s, excluded.%[1]s)", c)
	}
	return s
}

// minutes sums the rows of a batch by minute and phase beside the rows
// themselves, so that thinning has only to drop what is old: nothing is read
// back, and Verify can compare the two while both are there.
func (c *commit) minutes(ctx context.Context, bind *binder, rows []run.Row) error {
	var ms []minute
	for i := range rows {
		r := &rows[i]
		if n := len(ms); n == 0 || ms[n-1].first.Second/thinSeconds != r.Second/thinSeconds || ms[n-1].first.Phase != r.Phase {
			ms = append(ms, minute{})
		}
		ms[len(ms)-1].add(r)
	}
	return upsertMany(ctx, c, "minutes", minuteColumns(), minuteConflict(), len(ms), func(args []any, i int) []any {
		r := &ms[i].first
		var temperature any
		if r.TemperatureAvailable {
			temperature = int64(r.TemperatureCelsius)
		}
		args = append(args, c.run, r.Second/thinSeconds, int64(r.Phase), r.Second, ms[i].rows, r.WallUnixNS, r.MonoNS, r.ActiveNS)
		args = bind.counts(args, &r.Counts)
		return append(args, bind.u64("operations", r.Read.Operations), orNull(r.Read.MaxNS),
			bind.u64("operations", r.Write.Operations), orNull(r.Write.MaxNS), int64(r.InFlight), temperature, int64(r.Flags))
	})
}

// thin drops the rows older than a day, whose minutes stay, merges histograms
// older than that to ten minutes, and drops samples that are kept for no
// reason, in the same transaction as the commit. Sums, maxima and flags of a
// minute are exact; its means and percentiles are those of the histograms
// within it. Events, counter edges and steps are never thinned.
func (c *commit) thin(ctx context.Context, next int64, brought int) error {
	from := c.state.thinnedTo
	to := min(next-c.keepSeconds, from+int64(brought)+thinAtOnce)
	to -= to % coarseSeconds
	if to <= from {
		return nil
	}
	if err := c.coarsen(ctx, from, to); err != nil {
		return err
	}
	for _, statement := range []string{
		`DELETE FROM rows WHERE run_id = ? AND second >= ? AND second < ?`,
		`DELETE FROM samples WHERE run_id = ? AND second >= ? AND second < ? AND kept_because = 0`,
	} {
		if _, err := c.tx.ExecContext(ctx, statement, c.run, from, to); err != nil {
			return err
		}
	}
	c.state.thinnedTo = to
	return nil
}

// coarsen takes from the histograms that begin in [from, to) what the minutes
// there need, and merges them.
func (c *commit) coarsen(ctx context.Context, from, to int64) error {
	rows, err := c.tx.QueryContext(ctx, `SELECT second, phase, is_write, seconds, encoded FROM histograms
		WHERE run_id = ? AND second >= ? AND second < ? ORDER BY second / ?, phase, is_write, second`,
		c.run, from, to, coarseSeconds)
	if err != nil {
		return err
	}
	m := newMerger()
	if err := eachRow(rows, func() error {
		var h run.Histogram
		if err := rows.Scan(&h.Second, &h.Phase, &h.Write, &h.Seconds, &h.Encoded); err != nil {
			return err
		}
		return m.add(&h)
	}); err != nil {
		return err
	}
	if err := m.flush(); err != nil {
		return err
	}
	for _, l := range m.minutes {
		d := direction(l.write)
		st, err := c.prepared(ctx, fmt.Sprintf(`UPDATE minutes SET %[1]s_mean_ns = ?, %[1]s_p99_ns = ?, %[1]s_p999_ns = ?
			WHERE run_id = ? AND minute = ? AND phase = ? AND %[1]s_measured_ops = ?`, d))
		if err != nil {
			return err
		}
		if _, err := st.ExecContext(ctx, l.mean, l.p99, l.p999, c.run, l.minute, l.phase, l.count); err != nil {
			return err
		}
	}
	if _, err := c.tx.ExecContext(ctx, `DELETE FROM histograms WHERE run_id = ? AND second >= ? AND second < ?`,
		c.run, from, to); err != nil {
		return err
	}
	return c.histograms(ctx, m.merged)
}

// minuteLatency is what the histograms of a minute say.
type minuteLatency struct {
	minute, phase   int64
	write           bool
	count           int64
	mean, p99, p999 any // NULL when it cannot be told
}

// merger merges histograms that come in order of ten minutes, phase, direction
// and time.
type merger struct {
	minutes []minuteLatency
	merged  []run.Histogram
	// fine and coarse are the minute and the ten minutes under way.
	fine, coarse *stats.Histogram
	span         run.Histogram // of coarse, without the encoded form
	minute       int64
}

func newMerger() *merger {
	return &merger{fine: stats.NewHistogram(), coarse: stats.NewHistogram()}
}

func (m *merger) add(h *run.Histogram) error {
	d, err := stats.DecodeHistogram(h.Encoded)
	if err != nil {
		return fmt.Errorf("histogram of phase %d, second %d: %w", h.Phase, h.Second, err)
	}
	s := &m.span
	if s.Phase != h.Phase || s.Write != h.Write || s.Second/coarseSeconds != h.Second/coarseSeconds {
		if err := m.flush(); err != nil {
			return err
		}
	}
	last := h.Second + max(h.Seconds, 1) - 1
	if m.minute != h.Second/thinSeconds {
		m.flushMinute()
	}
	if m.coarse.Count() == 0 {
		*s = run.Histogram{Phase: h.Phase, Write: h.Write, Second: h.Second}
	}
	s.Seconds = h.Second + h.Seconds - s.Second
	m.coarse.Merge(d)
	// A histogram that reaches into the next minute tells of neither alone.
	if m.minute = h.Second / thinSeconds; last/thinSeconds == m.minute {
		m.fine.Merge(d)
	}
	return nil
}

func (m *merger) flushMinute() {
	if m.fine.Count() == 0 {
		return
	}
	m.minutes = append(m.minutes, minuteLatency{minute: m.minute, phase: int64(m.span.Phase), write: m.span.Write,
		count: int64(m.fine.Count()), mean: known(m.fine.Mean()), p99: known(m.fine.Percentile(990_000)),
		p999: known(m.fine.Percentile(999_000))})
	m.fine.Reset()
}

func (m *merger) flush() error {
	m.flushMinute()
	if m.coarse.Count() == 0 {
		return nil
	}
	var err error
	if m.span.Encoded, err = m.coarse.AppendBinary(nil); err != nil {
		return err
	}
	m.merged = append(m.merged, m.span)
	m.coarse.Reset()
	return nil
}

func known(ns int64, ok bool) any {
	if !ok {
		return nil
	}
	return ns
}
