package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

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
	if !sameMedia(prev.Media, s.Media) {
		why |= keptEdge
		before = keptBeforeEdge
	}
	if health(prev) != health(s) {
		why |= keptHealth
	}
	return why, before
}

func sameMedia(a, b []run.MediaCounter) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
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
	firmware, identity         string
}

func health(s *run.Sample) condition {
	return condition{
		percent: [3]uint8{s.PercentageUsed, s.SparePercent, s.SpareThresholdPercent}, warning: s.CriticalWarning,
		counts:         [4]run.Uint128{s.MediaErrors, s.UnsafeShutdowns, s.PowerCycles, s.ErrorLogEntries},
		warningMinutes: s.WarningTempMinutes, critical: s.CriticalTempMin,
		thermalTimes: s.ThermalTransitions, thermalTotal: s.ThermalSeconds,
		firmware: s.Firmware, identity: s.Identity,
	}
}

// thin replaces rows older than a day by one for each minute and phase, in the
// same transaction as the commit: sums, maxima and flags stay exact, means and
// percentiles are those of the merged histograms. Samples that are kept for no
// reason go. Events, counter edges and steps are never thinned.
func (c *commit) thin(ctx context.Context, brought int) error {
	var next int64
	if err := c.tx.QueryRowContext(ctx, `SELECT next_second FROM checkpoints WHERE run_id = ?
		ORDER BY checkpoint DESC LIMIT 1`, c.run).Scan(&next); err != nil {
		return err
	}
	from := c.state.thinnedTo
	to := min(next-secondsKept, from+int64(brought)+thinAtOnce)
	to -= to % thinSeconds
	if to <= from {
		return nil
	}
	minutes, err := c.minutes(ctx, from, to)
	if err != nil {
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
	return insertMany(ctx, c, "rows", rowColumns(), len(minutes), func(args []any, i int) []any {
		return append(append(args, c.run), minutes[i]...)
	})
}

// minutes sums the rows of [from, to) by minute and phase, in the order of
// rowColumns without the run.
func (c *commit) minutes(ctx context.Context, from, to int64) ([][]any, error) {
	rows, err := c.tx.QueryContext(ctx, `SELECT g.*, l.mono_ns, l.in_flight FROM (
			SELECT min(second) AS first, max(second) AS last, sum(seconds), min(at_unix_ns), phase, sum(active_ns),
				sum(read_ops), sum(write_ops), sum(read_bytes), sum(write_bytes), sum(read_errors), sum(write_errors),
				sum(read_measured_ops), max(read_max_ns), sum(write_measured_ops), max(write_max_ns),
				max(temperature_celsius), `+orOfFlags()+`
			FROM rows WHERE run_id = ?1 AND second >= ?2 AND second < ?3
			GROUP BY second / ?4, phase) g
		JOIN rows l ON l.run_id = ?1 AND l.second = g.last ORDER BY g.first`, c.run, from, to, thinSeconds)
	if err != nil {
		return nil, err
	}
	latencies, err := c.latencies(ctx, from, to)
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	var minutes [][]any
	err = eachRow(rows, func() error {
		var first, last, seconds, at, phase, active, flags, mono, inFlight int64
		var counts [6]int64
		var measured [2]int64
		var longest [2]sql.NullInt64
		var temperature sql.NullInt64
		if err := rows.Scan(&first, &last, &seconds, &at, &phase, &active, &counts[0], &counts[1], &counts[2], &counts[3],
			&counts[4], &counts[5], &measured[0], &longest[0], &measured[1], &longest[1], &temperature, &flags,
			&mono, &inFlight); err != nil {
			return err
		}
		m := []any{first, seconds, at, mono, phase, active}
		for _, n := range counts {
			m = append(m, n)
		}
		for w := range 2 {
			l := latencies[minuteKey{first / thinSeconds, phase, w == 1}]
			m = append(m, measured[w])
			m = append(m, l.of(measured[w])...)
			m = append(m, longest[w])
		}
		minutes = append(minutes, append(m, inFlight, temperature, flags))
		return nil
	})
	return minutes, err
}

// orOfFlags is the bitwise OR of the flags of a group, which SQLite lacks.
func orOfFlags() string {
	s := "0"
	for bit := range 16 {
		s += fmt.Sprintf(" | max(flags & %d)", 1<<bit)
	}
	return s
}

// minuteKey is a minute of one phase and direction.
type minuteKey struct {
	minute, phase int64
	write         bool
}

// minuteLatency is what the histograms of a minute say.
type minuteLatency struct {
	count           uint64
	mean, p99, p999 any
}

// of returns mean, p99 and p999, or NULLs unless the histograms hold exactly
// the operations that the rows measured.
func (l minuteLatency) of(measured int64) []any {
	if measured == 0 || l.count != uint64(measured) {
		return []any{nil, nil, nil}
	}
	return []any{l.mean, l.p99, l.p999}
}

// latencies merges the histograms that lie within each minute of [from, to).
func (c *commit) latencies(ctx context.Context, from, to int64) (map[minuteKey]minuteLatency, error) {
	rows, err := c.tx.QueryContext(ctx, `SELECT second / ?4, phase, is_write, encoded FROM histograms
		WHERE run_id = ?1 AND second >= ?2 AND second < ?3 AND second / ?4 = (second + max(seconds, 1) - 1) / ?4
		ORDER BY second / ?4, phase, is_write`, c.run, from, to, thinSeconds)
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
		out[current] = minuteLatency{
			count: merged.Count(), mean: known(merged.Mean()),
			p99: known(merged.Percentile(990_000)), p999: known(merged.Percentile(999_000)),
		}
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

func known(ns int64, ok bool) any {
	if !ok {
		return nil
	}
	return ns
}
