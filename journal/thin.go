package journal

import (
	"context"
	"database/sql"
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
	// sampleSeconds is how far apart samples are that are kept for no reason
	// of their own.
	sampleSeconds = 600
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
	if prev.Second/sampleSeconds != s.Second/sampleSeconds {
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

// thin drops the rows older than a day, whose minutes stay, and samples that
// are kept for no reason, in the same transaction as the commit. Sums, maxima
// and flags of a minute are exact; its means and percentiles are those of the
// merged histograms. Events, counter edges and steps are never thinned.
func (c *commit) thin(ctx context.Context, next int64, brought int) error {
	from := c.state.thinnedTo
	to := min(next-c.keepSeconds, from+int64(brought)+thinAtOnce)
	to -= to % thinSeconds
	if to <= from {
		return nil
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

// minuteKey is a minute of one phase and direction.
type minuteKey struct {
	minute, phase int64
	write         bool
}

// minuteLatency is what the histograms of a minute say.
type minuteLatency struct {
	count           uint64
	mean, p99, p999 int64
}

// complete fills in mean and percentiles, if the histograms hold exactly the
// operations that the rows measured.
func (l minuteLatency) complete(to *run.Latency) {
	to.MeanNS, to.P99NS, to.P999NS = run.NotAvailable, run.NotAvailable, run.NotAvailable
	if l.count != 0 && l.count == to.Operations {
		to.MeanNS, to.P99NS, to.P999NS = l.mean, l.p99, l.p999
	}
}

// minuteLatencies merges the histograms that lie within each minute from
// second from up to second to.
func minuteLatencies(ctx context.Context, q querier, number, from, to int64) (map[minuteKey]minuteLatency, error) {
	rows, err := q.QueryContext(ctx, `SELECT second / ?4, phase, is_write, encoded FROM histograms
		WHERE run_id = ?1 AND second >= ?2 AND second < ?3 AND second / ?4 = (second + max(seconds, 1) - 1) / ?4
		ORDER BY second / ?4, phase, is_write`, number, from, to, thinSeconds)
	if err != nil {
		return nil, err
	}
	out := map[minuteKey]minuteLatency{}
	var current minuteKey
	merged := stats.NewHistogram()
	flush := func() {
		if merged.Count() == 0 {
			return
		}
		out[current] = minuteLatency{count: merged.Count(), mean: known(merged.Mean()),
			p99: known(merged.Percentile(990_000)), p999: known(merged.Percentile(999_000))}
		merged.Reset()
	}
	err = eachRow(rows, func() error {
		var k minuteKey
		var encoded sql.RawBytes
		if err := rows.Scan(&k.minute, &k.phase, &k.write, &encoded); err != nil {
			return err
		}
		if k != current {
			flush()
			current = k
		}
		h, err := stats.DecodeHistogram(encoded)
		if err != nil {
			return err
		}
		merged.Merge(h)
		return nil
	})
	flush()
	return out, err
}

func known(ns int64, ok bool) int64 {
	if !ok {
		return run.NotAvailable
	}
	return ns
}
