package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"nvop/endurance/run"
	"nvop/endurance/stats"
)

// RunInfo is a run in short.
type RunInfo struct {
	// ID names the run in this journal.
	ID     string     `json:"id"`
	Header run.Header `json:"header"`
	State  run.State  `json:"state"`
	// StopReason names the stop rule or the interruption; empty otherwise.
	StopReason string `json:"stop_reason,omitempty"`
	// LastCheckpoint is the number of the last checkpoint; 0 means there is none.
	LastCheckpoint uint64 `json:"last_checkpoint"`
	// Seconds is how long the run has lasted on its own clock, gaps included.
	Seconds int64      `json:"elapsed_seconds"`
	Totals  run.Totals `json:"totals"`
	// Verdict is the last one; nil for a run that has not been ended, also by
	// a crash.
	Verdict *run.Verdict `json:"verdict,omitempty"`
}

// Run is a run with what is needed to go on.
type Run struct {
	RunInfo
	// Checkpoint is the last one; nil when nothing was committed.
	Checkpoint *run.Checkpoint
	// Samples are all that are kept, in order.
	Samples []run.Sample
}

const runSelect = `SELECT run_id, header_json, state, stop_reason, last_checkpoint, next_second, rows_total,
	read_ops, write_ops, read_bytes, write_bytes, read_errors, write_errors,
	(SELECT verdict_json FROM verdicts v WHERE v.run_id = runs.run_id ORDER BY checkpoint DESC LIMIT 1)
	FROM runs `

func scanRuns(ctx context.Context, q querier, where string, args ...any) ([]RunInfo, error) {
	rows, err := q.QueryContext(ctx, runSelect+where, args...)
	if err != nil {
		return nil, err
	}
	var infos []RunInfo
	err = eachRow(rows, func() error {
		var number int64
		var header string
		var verdict sql.NullString
		var i RunInfo
		if err := rows.Scan(&number, &header, &i.State, &i.StopReason, &i.LastCheckpoint, &i.Seconds, &i.Totals.Rows,
			&i.Totals.ReadOps, &i.Totals.WriteOps, &i.Totals.ReadBytes, &i.Totals.WriteBytes,
			&i.Totals.ReadErrors, &i.Totals.WriteErrors, &verdict); err != nil {
			return err
		}
		i.ID = runID(number)
		if err := json.Unmarshal([]byte(header), &i.Header); err != nil {
			return fmt.Errorf("header of run %s: %w", i.ID, err)
		}
		if verdict.Valid {
			i.Verdict = &run.Verdict{}
			if err := json.Unmarshal([]byte(verdict.String), i.Verdict); err != nil {
				return fmt.Errorf("verdict of run %s: %w", i.ID, err)
			}
		}
		infos = append(infos, i)
		return nil
	})
	return infos, err
}

// Runs lists all runs, oldest first.
func (j *Journal) Runs(ctx context.Context) ([]RunInfo, error) {
	var infos []RunInfo
	err := j.read(ctx, "list runs", func(q querier) (err error) {
		infos, err = scanRuns(ctx, q, `ORDER BY run_id`)
		return err
	})
	return infos, err
}

// FindRun finds a run by its ID, by its name, or by the beginning of its name
// where only one begins like that. An ambiguous or unknown reference is a
// [*NotFoundError].
func (j *Journal) FindRun(ctx context.Context, ref string) (RunInfo, error) {
	var infos []RunInfo
	err := j.read(ctx, "find run", func(q querier) (err error) {
		if number, ok := runNumber(ref); ok {
			if infos, err = scanRuns(ctx, q, `WHERE run_id = ?`, number); err != nil || len(infos) == 1 {
				return err
			}
		}
		if infos, err = scanRuns(ctx, q, `WHERE name = ? ORDER BY run_id DESC LIMIT ?`, ref, severalMost); err != nil || len(infos) > 0 || ref == "" {
			return err
		}
		infos, err = scanRuns(ctx, q, `WHERE substr(name, 1, length(?1)) = ?1 ORDER BY run_id DESC LIMIT ?2`, ref, severalMost)
		return err
	})
	if err == nil && len(infos) != 1 {
		e := &NotFoundError{Kind: "run", ID: ref}
		for _, i := range infos {
			e.Several = append(e.Several, i.ID)
		}
		err = e
	}
	if err != nil {
		return RunInfo{}, err
	}
	return infos[0], nil
}

// LastRun is the run begun last; a [*NotFoundError] when there is none.
func (j *Journal) LastRun(ctx context.Context) (RunInfo, error) {
	var infos []RunInfo
	err := j.read(ctx, "find the last run", func(q querier) (err error) {
		infos, err = scanRuns(ctx, q, `ORDER BY run_id DESC LIMIT 1`)
		return err
	})
	if err == nil && len(infos) == 0 {
		err = &NotFoundError{Kind: "run", ID: "last"}
	}
	if err != nil {
		return RunInfo{}, err
	}
	return infos[0], nil
}

// LoadRun returns a run with its last checkpoint and its samples.
func (j *Journal) LoadRun(ctx context.Context, id string) (Run, error) {
	var r Run
	number, ok := runNumber(id)
	if !ok {
		return r, &NotFoundError{Kind: "run", ID: id}
	}
	err := j.read(ctx, "load run "+id, func(q querier) error {
		infos, err := scanRuns(ctx, q, `WHERE run_id = ?`, number)
		if err != nil {
			return err
		}
		if len(infos) == 0 {
			return &NotFoundError{Kind: "run", ID: id}
		}
		r.RunInfo = infos[0]
		if r.Checkpoint, err = lastCheckpoint(ctx, q, number); err != nil {
			return err
		}
		r.Samples, err = scanSamples(ctx, q, number, 0)
		return err
	})
	return r, err
}

// lastCheckpoint is nil when nothing was committed.
func lastCheckpoint(ctx context.Context, q querier, number int64) (*run.Checkpoint, error) {
	var text string
	err := q.QueryRowContext(ctx, `SELECT checkpoint_json FROM checkpoints WHERE run_id = ?
		ORDER BY checkpoint DESC LIMIT 1`, number).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cp := &run.Checkpoint{}
	if err := json.Unmarshal([]byte(text), cp); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return cp, nil
}

// ResumeRun returns a recorder that goes on after the run's last checkpoint.
// A run that is over is an error.
func (j *Journal) ResumeRun(ctx context.Context, id string) (*Recorder, Run, error) {
	r, err := j.LoadRun(ctx, id)
	if err != nil {
		return nil, r, err
	}
	if !r.State.Resumable() {
		return nil, r, fmt.Errorf("run %s cannot be resumed: it is %s", id, r.State)
	}
	if j.w == nil {
		return nil, r, fmt.Errorf("journal %s: resume run %s: %w", j.path, id, ErrReadOnly)
	}
	number, _ := runNumber(id)
	return (&Recorder{j: j, number: number}).identify(), r, nil
}

// Row is a recorded row: one second, or one minute after thinning.
type Row struct {
	// Seconds is how many seconds the row sums; 1 before thinning. The latency
	// percentiles and means of a sum are those of the merged histograms, and
	// not available where these do not cover exactly the row.
	Seconds int64 `json:"seconds"`
	run.Row
}

// EachRow calls f for every row of a run, in order of time: minutes as far as
// the run is thinned, seconds after that. The row is f's to keep.
func (j *Journal) EachRow(ctx context.Context, id string, f func(Row) error) error {
	return j.readRun(ctx, "read rows", id, func(q querier, number int64) error {
		return eachRunRow(ctx, q, number, f)
	})
}

func eachRunRow(ctx context.Context, q querier, number int64, f func(Row) error) error {
	s, err := loadRunState(ctx, q, number)
	if err != nil {
		return err
	}
	if err := eachMinute(ctx, q, number, s.thinnedTo, f); err != nil {
		return err
	}
	return eachSecond(ctx, q, number, f)
}

// storedMinuteColumns are minuteColumns with what thinning adds.
func storedMinuteColumns() string {
	return `first_second, seconds, at_unix_ns, mono_ns, phase, active_ns, read_ops, write_ops, read_bytes, write_bytes,
		read_errors, write_errors, read_measured_ops, read_mean_ns, read_p99_ns, read_p999_ns, read_max_ns,
		write_measured_ops, write_mean_ns, write_p99_ns, write_p999_ns, write_max_ns, in_flight, temperature_celsius, flags`
}

func eachMinute(ctx context.Context, q querier, number, to int64, f func(Row) error) error {
	return eachStoredRow(ctx, q, f, `SELECT `+storedMinuteColumns()+` FROM minutes
		WHERE run_id = ? AND minute < ? ORDER BY minute, first_second`, number, to/thinSeconds)
}

func eachSecond(ctx context.Context, q querier, number int64, f func(Row) error) error {
	return eachStoredRow(ctx, q, f, `SELECT second, 1, `+strings.Join(rowColumns()[2:], ", ")+` FROM rows
		WHERE run_id = ? ORDER BY second`, number)
}

func eachStoredRow(ctx context.Context, q querier, f func(Row) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	return eachRow(rows, func() error {
		var r Row
		var temperature sql.NullInt32
		var read, write [4]sql.NullInt64
		if err := rows.Scan(&r.Second, &r.Seconds, &r.WallUnixNS, &r.MonoNS, &r.Phase, &r.ActiveNS,
			&r.ReadOps, &r.WriteOps, &r.ReadBytes, &r.WriteBytes, &r.ReadErrors, &r.WriteErrors,
			&r.Read.Operations, &read[0], &read[1], &read[2], &read[3],
			&r.Write.Operations, &write[0], &write[1], &write[2], &write[3],
			&r.InFlight, &temperature, &r.Flags); err != nil {
			return err
		}
		r.TemperatureCelsius, r.TemperatureAvailable = temperature.Int32, temperature.Valid
		scanLatency(&r.Read, &read)
		scanLatency(&r.Write, &write)
		return f(r)
	})
}

func scanLatency(to *run.Latency, v *[4]sql.NullInt64) {
	to.MeanNS, to.P99NS = orNotAvailable(v[0]), orNotAvailable(v[1])
	to.P999NS, to.MaxNS = orNotAvailable(v[2]), orNotAvailable(v[3])
}

func orNotAvailable(v sql.NullInt64) int64 {
	if !v.Valid {
		return run.NotAvailable
	}
	return v.Int64
}

// Gaps returns the gaps of a run, in the order in which they were recorded.
func (j *Journal) Gaps(ctx context.Context, id string) ([]run.GapRow, error) {
	var gaps []run.GapRow
	err := j.readRun(ctx, "read gaps", id, func(q querier, number int64) (err error) {
		gaps, err = scanGaps(ctx, q, number)
		return err
	})
	return gaps, err
}

func scanGaps(ctx context.Context, q querier, number int64) ([]run.GapRow, error) {
	rows, err := q.QueryContext(ctx, `SELECT second, seconds, at_unix_ns, reason, uncounted_ops_max FROM gaps
		WHERE run_id = ? ORDER BY gap`, number)
	if err != nil {
		return nil, err
	}
	var gaps []run.GapRow
	err = eachRow(rows, func() error {
		var g run.GapRow
		err := rows.Scan(&g.Second, &g.Seconds, &g.WallUnixNS, &g.Reason, &g.UncountedOpsMax)
		gaps = append(gaps, g)
		return err
	})
	return gaps, err
}

// Events returns the events of a run in order.
func (j *Journal) Events(ctx context.Context, id string) ([]run.Event, error) {
	var events []run.Event
	err := j.readRun(ctx, "read events", id, func(q querier, number int64) error {
		return eachEvent(ctx, q, number, func(_ int64, e *run.Event, _, _ link) error {
			events = append(events, *e)
			return nil
		})
	})
	return events, err
}

func eachEvent(ctx context.Context, q querier, number int64, f func(event int64, e *run.Event, prev, this link) error) error {
	rows, err := q.QueryContext(ctx, `SELECT event, second, at_unix_ns, kind, text, ifnull(op, ''), ifnull(lba, 0),
		ifnull(blocks, 0), ifnull(status, 0), ifnull(occurrences, 0), prev_sha256, sha256
		FROM events WHERE run_id = ? ORDER BY event`, number)
	if err != nil {
		return err
	}
	return eachRow(rows, func() error {
		var event, lba int64
		var e run.Event
		var a, b []byte
		if err := rows.Scan(&event, &e.Second, &e.WallUnixNS, &e.Kind, &e.Text, &e.Op, &lba, &e.Blocks, &e.Status,
			&e.Count, &a, &b); err != nil {
			return err
		}
		e.LBA = uint64(lba)
		prev, err := scanLink(a)
		if err != nil {
			return err
		}
		this, err := scanLink(b)
		if err != nil {
			return err
		}
		return f(event, &e, prev, this)
	})
}

// Samples returns the samples of a run that are kept, in order.
func (j *Journal) Samples(ctx context.Context, id string) ([]run.Sample, error) {
	var samples []run.Sample
	err := j.readRun(ctx, "read samples", id, func(q querier, number int64) (err error) {
		samples, err = scanSamples(ctx, q, number, 0)
		return err
	})
	return samples, err
}

// scanSamples reads the samples of a run from the one numbered from.
func scanSamples(ctx context.Context, q querier, number, from int64) ([]run.Sample, error) {
	rows, err := q.QueryContext(ctx, `SELECT `+strings.Join(sampleColumns()[1:], ", ")+` FROM samples
		WHERE run_id = ? AND sample >= ? ORDER BY sample`, number, from)
	if err != nil {
		return nil, err
	}
	var samples []run.Sample
	place := map[int64]int{}
	err = eachRow(rows, func() error {
		n, s, err := scanSample(rows)
		place[n] = len(samples)
		samples = append(samples, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	if rows, err = q.QueryContext(ctx, `SELECT sample, is_media, source, unit_bytes, units, units_after
		FROM counters JOIN counter_sources USING (source_id) WHERE run_id = ? AND sample >= ?
		ORDER BY sample, is_media, preference`, number, from); err != nil {
		return nil, err
	}
	err = eachRow(rows, func() error { return scanCounter(rows, samples, place) })
	return samples, err
}

func scanSample(rows *sql.Rows) (int64, run.Sample, error) {
	var number, why int64
	var s run.Sample
	var failure, firmware, format, identity sql.NullString
	var small [7]sql.NullInt64
	var thermal [2]sql.NullInt64
	var wide [6][]byte
	if err := rows.Scan(&number, &s.Second, &s.WallUnixNS, &s.DurationNS, &s.EngineWriteBytes, &why, &failure, &firmware,
		&format, &identity, &small[0], &small[1], &small[2], &small[3], &small[4], &wide[0], &wide[1], &wide[2], &wide[3],
		&wide[4], &wide[5], &small[5], &small[6], &thermal[0], &thermal[1]); err != nil {
		return number, s, err
	}
	s.Failure, s.Firmware, s.Format, s.Identity = failure.String, firmware.String, format.String, identity.String
	s.PercentageUsed, s.SparePercent = uint8(small[0].Int64), uint8(small[1].Int64)
	s.SpareThresholdPercent, s.CriticalWarning = uint8(small[2].Int64), uint8(small[3].Int64)
	s.TemperatureKelvin = uint16(small[4].Int64)
	s.WarningTempMinutes, s.CriticalTempMinutes = uint32(small[5].Int64), uint32(small[6].Int64)
	s.ThermalTransitions, s.ThermalSeconds = uint64(thermal[0].Int64), uint64(thermal[1].Int64)
	for i, to := range []*run.Uint128{&s.HostReadUnits, &s.MediaErrors, &s.UnsafeShutdowns, &s.PowerCycles,
		&s.PowerOnHours, &s.ErrorLogEntries} {
		if wide[i] == nil {
			continue
		}
		var err error
		if *to, err = scan128(wide[i]); err != nil {
			return number, s, err
		}
	}
	return number, s, nil
}

func scanCounter(rows *sql.Rows, samples []run.Sample, place map[int64]int) error {
	var sample, unitBytes int64
	var media bool
	var source string
	var units, after []byte
	if err := rows.Scan(&sample, &media, &source, &unitBytes, &units, &after); err != nil {
		return err
	}
	i, ok := place[sample]
	if !ok {
		return fmt.Errorf("a counter of sample %d, which is missing", sample)
	}
	value, err := scan128(units)
	if err != nil {
		return err
	}
	s := &samples[i]
	if media {
		s.Media = append(s.Media, run.MediaCounter{Source: source, Units: value, UnitBytes: uint64(unitBytes)})
		return nil
	}
	h := run.HostCounter{Source: source, UnitBytes: uint64(unitBytes), Before: value}
	if h.After, err = scan128(after); err != nil {
		return err
	}
	s.Host = append(s.Host, h)
	return nil
}

// PhaseHistogram merges all latencies of one phase and direction.
func (j *Journal) PhaseHistogram(ctx context.Context, id string, phase uint32, write bool) (*stats.Histogram, error) {
	var merged *stats.Histogram
	err := j.readRun(ctx, "read histograms", id, func(q querier, number int64) (err error) {
		merged, err = phaseLatencies(ctx, q, number, int64(phase), write)
		return err
	})
	return merged, err
}

// readRun runs f in a read transaction in which the run exists.
func (j *Journal) readRun(ctx context.Context, what, id string, f func(q querier, number int64) error) error {
	number, ok := runNumber(id)
	if !ok {
		return &NotFoundError{Kind: "run", ID: id}
	}
	return j.read(ctx, what+" of run "+id, func(q querier) error {
		if _, err := loadRunState(ctx, q, number); err != nil {
			return err
		}
		return f(q, number)
	})
}

func runID(number int64) string { return "r" + strconv.FormatInt(number, 10) }

func runNumber(id string) (int64, bool) {
	digits, ok := strings.CutPrefix(id, "r")
	number, err := strconv.ParseInt(digits, 10, 64)
	return number, ok && err == nil && number >= 1 && runID(number) == id
}
