package journal

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"nvop/endurance/run"
)

// checkpointsKept is how many of a run's checkpoints are kept. Only the last is
// needed to go on; the others let Verify see that the marks rise.
const checkpointsKept = 8

// Recorder records one run. It is made by [Journal.BeginRun] or
// [Journal.ResumeRun] and satisfies endurance.Recorder. One process records a
// run at a time; a second one is refused by the number of its checkpoint.
type Recorder struct {
	j      *Journal
	number int64
	// file is the journal's file as it was when recording began; nil when it
	// could not be looked at.
	file fs.FileInfo
}

// ID names the run in this journal: "r1", "r2" and so on, never used again.
func (r *Recorder) ID() string { return runID(r.number) }

// BeginRun records that a run begins, and what its numbers depend on.
func (j *Journal) BeginRun(ctx context.Context, h run.Header) (*Recorder, error) {
	header, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("journal: begin run: %w", err)
	}
	r := (&Recorder{j: j}).identify()
	err = j.write(ctx, "begin run", func(tx *sql.Tx) error {
		drive, err := driveID(ctx, tx, h.SubsystemNQN, h.Serial, h.Model)
		if err != nil {
			return err
		}
		b := &binder{}
		args := headerArgs(b, &h, drive, string(header))
		if b.err != nil {
			return b.err
		}
		res, err := tx.ExecContext(ctx, insertSQL("runs", headerColumns(), 1), args...)
		if err != nil {
			return err
		}
		if r.number, err = res.LastInsertId(); err != nil {
			return err
		}
		head := runGenesis(r.number, string(header))
		if _, err := tx.ExecContext(ctx, `UPDATE runs SET events_head_sha256 = ? WHERE run_id = ?`,
			head[:], r.number); err != nil {
			return err
		}
		return insertPhases(ctx, tx, r.number, h.Job.Phases)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// runGenesis is what a run's chain of events begins with: its header, so that
// a changed header breaks the chain.
func runGenesis(number int64, header string) link {
	return nextLink(link{}, "run", number, header)
}

func headerColumns() []string {
	return []string{"drive_id", "name", "began_at_unix_ns", "address", "is_simulated", "firmware", "cntlid",
		"nsid", "nguid", "eui64", "lba_data_bytes", "lba_metadata_bytes", "drive_capacity_bytes",
		"over_provisioning_permille", "power_state", "apst", "link", "host", "kernel", "nvop_version", "seed",
		"capacity_bytes", "time_lapse", "header_json", "state", "stop_reason", "last_checkpoint", "next_second",
		"thinned_to_second", "rows_total", "read_ops", "write_ops", "read_bytes", "write_bytes", "read_errors",
		"write_errors", "events", "events_head_sha256"}
}

func headerArgs(b *binder, h *run.Header, drive int64, header string) []any {
	var capacity any
	if !h.TotalCapacityBytes.IsZero() {
		capacity = blob128(h.TotalCapacityBytes)
	}
	return []any{drive, h.Name, h.StartWallUnixNS, h.Address, h.Simulated, h.Firmware, int64(h.CNTLID),
		int64(h.NSID), h.NGUID, h.EUI64, int64(h.LBADataBytes), int64(h.LBAMetadataBytes), capacity,
		orNull(h.OverProvisioningPermille), orNull(h.PowerState), h.APST, h.Link, h.Host, h.Kernel, h.Version,
		strconv.FormatUint(h.Job.Seed, 10), b.u64("capacity", h.Job.CapacityBytes), int64(h.Job.TimeLapse), header,
		string(run.StateRunning), "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, make([]byte, 32)}
}

func insertPhases(ctx context.Context, tx *sql.Tx, number int64, phases []run.Phase) error {
	for i, p := range phases {
		b := &binder{}
		var ends [4]any // NULL where the field is unset
		for k, v := range []uint64{p.End.Bytes, p.End.DriveWritesMilli, p.End.Passes, uint64(p.End.DurationNS)} {
			if v != 0 {
				ends[k] = b.u64("end of phase", v)
			}
		}
		if b.err != nil {
			return b.err
		}
		var checks any
		if p.Check != run.CheckNone {
			checks = string(p.Check)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO phases (run_id, phase, kind, pattern, read_percent, block_bytes,
			depth, end_bytes, end_drive_writes_milli, end_passes, end_duration_ns, checks) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			number, i, string(p.Kind), string(p.Pattern), int64(p.ReadPercent), int64(p.BlockBytes),
			int64(p.Depth), ends[0], ends[1], ends[2], ends[3], checks); err != nil {
			return err
		}
	}
	return nil
}

// runState is the part of a run that a commit builds upon.
type runState struct {
	state      string
	checkpoint int64
	nextSecond int64
	thinnedTo  int64
	totals     run.Totals
	events     int64
	head       link
}

func loadRunState(ctx context.Context, q querier, number int64) (runState, error) {
	var s runState
	var head []byte
	err := q.QueryRowContext(ctx, `SELECT state, last_checkpoint, next_second, thinned_to_second, rows_total,
		read_ops, write_ops, read_bytes, write_bytes, read_errors, write_errors, events, events_head_sha256
		FROM runs WHERE run_id = ?`, number).Scan(&s.state, &s.checkpoint, &s.nextSecond, &s.thinnedTo, &s.totals.Rows,
		&s.totals.ReadOps, &s.totals.WriteOps, &s.totals.ReadBytes, &s.totals.WriteBytes, &s.totals.ReadErrors,
		&s.totals.WriteErrors, &s.events, &head)
	if errors.Is(err, sql.ErrNoRows) {
		return s, &NotFoundError{Kind: "run", ID: runID(number)}
	}
	if err != nil {
		return s, err
	}
	s.head, err = scanLink(head)
	return s, err
}

// Commit makes a batch durable, all or nothing. A batch whose checkpoint has
// been committed before is not recorded again, so a caller that does not know
// whether its commit went through may repeat it. A batch whose rows do not add
// up to its checkpoint, or whose marks go back, is refused.
func (r *Recorder) Commit(ctx context.Context, b *run.Batch) error {
	if err := r.present(); err != nil {
		return err
	}
	checkpoint, err := json.Marshal(&b.Checkpoint)
	if err != nil {
		return fmt.Errorf("journal: checkpoint: %w", err)
	}
	what := fmt.Sprintf("run %s: commit checkpoint %d", r.ID(), b.Checkpoint.Number)
	return r.j.write(ctx, what, func(tx *sql.Tx) error {
		s, err := loadRunState(ctx, tx, r.number)
		if err != nil {
			return err
		}
		if b.Checkpoint.Number == uint64(s.checkpoint) && s.checkpoint > 0 {
			return r.sameAgain(ctx, tx, b, checkpoint)
		}
		if err := s.admits(b); err != nil {
			return err
		}
		c := &commit{tx: tx, run: r.number, state: s, keepSeconds: r.j.keepSeconds, statements: map[string]*sql.Stmt{}}
		return c.record(ctx, b, checkpoint)
	})
}

// sameAgain accepts the repetition of the last commit and nothing else.
func (r *Recorder) sameAgain(ctx context.Context, tx *sql.Tx, b *run.Batch, checkpoint []byte) error {
	var stored []byte
	err := tx.QueryRowContext(ctx, `SELECT checkpoint_json FROM checkpoints WHERE run_id = ? AND checkpoint = ?`,
		r.number, int64(b.Checkpoint.Number)).Scan(&stored)
	if err == nil && !bytes.Equal(stored, checkpoint) {
		err = errors.New("another one with this number is recorded: is the run being recorded twice?")
	}
	return err
}

// admits says whether b follows on what has been recorded.
func (s *runState) admits(b *run.Batch) error {
	cp := &b.Checkpoint
	if st := run.State(s.state); !st.Resumable() {
		return fmt.Errorf("the run is over (%s)", st)
	}
	if cp.Number != uint64(s.checkpoint)+1 {
		return fmt.Errorf("the last one recorded is %d", s.checkpoint)
	}
	if cp.LowWater > cp.ReservedHigh || cp.NextSecond < s.nextSecond {
		return fmt.Errorf("its marks go back: low water %d, reserved high %d, next second %d after %d",
			cp.LowWater, cp.ReservedHigh, cp.NextSecond, s.nextSecond)
	}
	sum := s.totals
	last := s.nextSecond - 1
	for i := range b.Rows {
		row := &b.Rows[i]
		if row.Second <= last || row.Second >= cp.NextSecond {
			return fmt.Errorf("a row of second %d after second %d, before second %d", row.Second, last, cp.NextSecond)
		}
		last = row.Second
		sum.Add(row.Counts)
		sum.Rows++
	}
	if sum != cp.Totals {
		return fmt.Errorf("the rows sum to %+v and the checkpoint says %+v", sum, cp.Totals)
	}
	return nil
}

// commit records one batch.
type commit struct {
	tx    *sql.Tx
	run   int64
	state runState
	// keepSeconds is the age at which rows are thinned.
	keepSeconds int64
	statements  map[string]*sql.Stmt
}

// prepared is a statement of this transaction, and is closed with it.
func (c *commit) prepared(ctx context.Context, text string) (*sql.Stmt, error) {
	if st, ok := c.statements[text]; ok {
		return st, nil
	}
	st, err := c.tx.PrepareContext(ctx, text)
	if err == nil {
		c.statements[text] = st
	}
	return st, err
}

func (c *commit) record(ctx context.Context, b *run.Batch, checkpoint []byte) error {
	bind := &binder{}
	steps := []func() error{
		func() error { return c.rows(ctx, bind, b.Rows) },
		func() error { return c.minutes(ctx, bind, b.Rows) },
		func() error { return c.gaps(ctx, bind, b.Gaps) },
		func() error { return c.histograms(ctx, b.Histograms) },
		func() error { return c.samples(ctx, bind, b.Samples) },
		func() error { return c.events(ctx, bind, b.Events) },
		func() error { return c.mismatches(ctx, bind, b.Mismatches) },
		func() error { return c.verification(ctx, bind, &b.Checkpoint) },
		func() error { return c.checkpoint(ctx, bind, &b.Checkpoint, checkpoint) },
		func() error { return c.results(ctx, bind, b.Checkpoint.Results) },
		func() error { return c.verdict(ctx, b) },
		func() error { return c.thin(ctx, b.Checkpoint.NextSecond, len(b.Rows)) },
		func() error { return c.head(ctx, bind, &b.Checkpoint) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		if bind.err != nil {
			return bind.err
		}
	}
	return nil
}

func rowColumns() []string {
	return []string{"run_id", "second", "at_unix_ns", "mono_ns", "phase", "active_ns",
		"read_ops", "write_ops", "read_bytes", "write_bytes", "read_errors", "write_errors",
		"read_measured_ops", "read_mean_ns", "read_p99_ns", "read_p999_ns", "read_max_ns",
		"write_measured_ops", "write_mean_ns", "write_p99_ns", "write_p999_ns", "write_max_ns",
		"in_flight", "temperature_celsius", "flags"}
}

func (c *commit) rows(ctx context.Context, bind *binder, rows []run.Row) error {
	return insertMany(ctx, c, "rows", rowColumns(), len(rows), func(args []any, i int) []any {
		r := &rows[i]
		var temperature any
		if r.TemperatureAvailable {
			temperature = int64(r.TemperatureCelsius)
		}
		args = append(args, c.run, r.Second, r.WallUnixNS, r.MonoNS, int64(r.Phase), r.ActiveNS)
		args = bind.counts(args, &r.Counts)
		args = bind.latency(args, &r.Read)
		args = bind.latency(args, &r.Write)
		return append(args, int64(r.InFlight), temperature, int64(r.Flags))
	})
}

func (c *commit) gaps(ctx context.Context, bind *binder, gaps []run.GapRow) error {
	for _, g := range gaps {
		if _, err := c.tx.ExecContext(ctx, `INSERT INTO gaps (run_id, gap, second, seconds, at_unix_ns, reason, uncounted_ops_max)
			SELECT ?1, 1 + count(*), ?2, ?3, ?4, ?5, ?6 FROM gaps WHERE run_id = ?1`,
			c.run, g.Second, g.Seconds, g.WallUnixNS, g.Reason, bind.u64("uncounted operations", g.UncountedOpsMax)); err != nil {
			return err
		}
	}
	return nil
}

func (c *commit) histograms(ctx context.Context, hs []run.Histogram) error {
	columns := []string{"run_id", "second", "phase", "is_write", "seconds", "encoded"}
	return insertMany(ctx, c, "histograms", columns, len(hs), func(args []any, i int) []any {
		h := &hs[i]
		return append(args, c.run, h.Second, int64(h.Phase), h.Write, h.Seconds, h.Encoded)
	})
}

func sampleColumns() []string {
	return []string{"run_id", "sample", "second", "at_unix_ns", "duration_ns", "engine_write_bytes", "kept_because",
		"failure", "firmware", "format", "identity", "percentage_used", "spare_percent", "spare_threshold_percent",
		"critical_warning", "temperature_kelvin", "host_read_units", "media_errors", "unsafe_shutdowns",
		"power_cycles", "power_on_hours", "error_log_entries", "warning_temperature_minutes",
		"critical_temperature_minutes", "thermal_transitions", "thermal_seconds"}
}

// samples records the samples and their counters, and why each is kept.
func (c *commit) samples(ctx context.Context, bind *binder, samples []run.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	prev, first, err := c.lastSample(ctx)
	if err != nil {
		return err
	}
	why := make([]int, len(samples))
	for i := range samples {
		var before int
		why[i], before = keepReasons(prev, &samples[i])
		prev = &samples[i]
		if i > 0 {
			why[i-1] |= before
		} else if before != 0 {
			if _, err := c.tx.ExecContext(ctx, `UPDATE samples SET kept_because = kept_because | ?
				WHERE run_id = ? AND sample = ?`, before, c.run, first-1); err != nil {
				return err
			}
		}
	}
	if err := insertMany(ctx, c, "samples", sampleColumns(), len(samples), func(args []any, i int) []any {
		return sampleArgs(bind, append(args, c.run, first+int64(i)), &samples[i], why[i])
	}); err != nil {
		return err
	}
	return c.counters(ctx, bind, samples, first)
}

// lastSample returns the last sample recorded, nil for none, and the number of
// the next.
func (c *commit) lastSample(ctx context.Context) (*run.Sample, int64, error) {
	var last int64
	err := c.tx.QueryRowContext(ctx, `SELECT ifnull(max(sample), 0) FROM samples WHERE run_id = ?`, c.run).Scan(&last)
	if err != nil || last == 0 {
		return nil, 1, err
	}
	samples, err := scanSamples(ctx, c.tx, c.run, last)
	if err != nil || len(samples) == 0 {
		return nil, last + 1, err
	}
	return &samples[len(samples)-1], last + 1, nil
}

func sampleArgs(bind *binder, args []any, s *run.Sample, why int) []any {
	args = append(args, s.Second, s.WallUnixNS, s.DurationNS, bind.u64("bytes written", s.EngineWriteBytes), why)
	if s.Failure != "" {
		args = append(args, s.Failure)
		for range len(sampleColumns()) - 8 {
			args = append(args, nil)
		}
		return args
	}
	return append(args, nil, s.Firmware, s.Format, s.Identity, int64(s.PercentageUsed), int64(s.SparePercent),
		int64(s.SpareThresholdPercent), int64(s.CriticalWarning), int64(s.TemperatureKelvin),
		blob128(s.HostReadUnits), blob128(s.MediaErrors), blob128(s.UnsafeShutdowns), blob128(s.PowerCycles),
		blob128(s.PowerOnHours), blob128(s.ErrorLogEntries), int64(s.WarningTempMinutes), int64(s.CriticalTempMinutes),
		bind.u64("thermal transitions", s.ThermalTransitions), bind.u64("thermal seconds", s.ThermalSeconds))
}

// counterRow is one counter of one sample.
type counterRow struct {
	sample      int64
	media       bool
	preference  int
	source      int64
	units       run.Uint128
	after       run.Uint128
	afterStored bool
}

func (c *commit) counters(ctx context.Context, bind *binder, samples []run.Sample, first int64) error {
	var all []counterRow
	sources := map[run.MediaCounter]int64{}
	source := func(name string, unitBytes uint64) (int64, error) {
		key := run.MediaCounter{Source: name, UnitBytes: unitBytes}
		id, ok := sources[key]
		if ok {
			return id, nil
		}
		id, err := sourceID(ctx, c.tx, name, bind.u64("counter unit", unitBytes))
		sources[key] = id
		return id, err
	}
	for i := range samples {
		s := &samples[i]
		if s.Failure != "" {
			continue
		}
		for k, h := range s.Host {
			id, err := source(h.Source, h.UnitBytes)
			if err != nil {
				return err
			}
			all = append(all, counterRow{sample: first + int64(i), preference: k, source: id, units: h.Before,
				after: h.After, afterStored: true})
		}
		for k, m := range s.Media {
			id, err := source(m.Source, m.UnitBytes)
			if err != nil {
				return err
			}
			all = append(all, counterRow{sample: first + int64(i), media: true, preference: k, source: id, units: m.Units})
		}
	}
	columns := []string{"run_id", "sample", "is_media", "preference", "source_id", "units", "units_after"}
	return insertMany(ctx, c, "counters", columns, len(all), func(args []any, i int) []any {
		r := &all[i]
		var after any
		if r.afterStored {
			after = blob128(r.after)
		}
		return append(args, c.run, r.sample, r.media, r.preference, r.source, blob128(r.units), after)
	})
}

// sourceID finds or adds the name and unit of a counter.
func sourceID(ctx context.Context, tx *sql.Tx, source string, unitBytes int64) (int64, error) {
	if _, err := tx.ExecContext(ctx, `INSERT INTO counter_sources (source, unit_bytes) VALUES (?, ?)
		ON CONFLICT DO NOTHING`, source, unitBytes); err != nil {
		return 0, err
	}
	var id int64
	err := tx.QueryRowContext(ctx, `SELECT source_id FROM counter_sources WHERE source = ? AND unit_bytes = ?`,
		source, unitBytes).Scan(&id)
	return id, err
}

func eventFields(number int64, e *run.Event) []any {
	// An LBA is below 2^63 on every drive; an unlikely larger one keeps its bits.
	return []any{number, e.Second, e.WallUnixNS, string(e.Kind), e.Text, e.Op, int64(e.LBA),
		int64(e.Blocks), int64(e.Status), int64(e.Count)}
}

func (c *commit) events(ctx context.Context, _ *binder, events []run.Event) error {
	columns := []string{"run_id", "event", "second", "at_unix_ns", "kind", "text", "op", "lba", "blocks",
		"status", "occurrences", "prev_sha256", "sha256"}
	return insertMany(ctx, c, "events", columns, len(events), func(args []any, i int) []any {
		c.state.events++
		fields := eventFields(c.state.events, &events[i])
		prev := c.state.head
		c.state.head = nextLink(prev, fields...)
		args = append(append(args, c.run), fields...)
		return append(args, prev[:], bytes.Clone(c.state.head[:]))
	})
}

func (c *commit) checkpoint(ctx context.Context, bind *binder, cp *run.Checkpoint, text []byte) error {
	var flushed any
	if len(cp.Flushed) != 0 {
		flushed = bind.u64("flushed", slices.Min(cp.Flushed))
	}
	if _, err := c.tx.ExecContext(ctx, `INSERT INTO checkpoints (run_id, checkpoint, at_unix_ns, next_second, phase,
		pass, low_water, reserved_high, flushed, checkpoint_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		c.run, bind.u64("checkpoint", cp.Number), cp.WallUnixNS, cp.NextSecond, int64(cp.Phase), bind.u64("pass", cp.Pass),
		bind.u64("low water", cp.LowWater), bind.u64("reserved high", cp.ReservedHigh), flushed, string(text)); err != nil {
		return err
	}
	_, err := c.tx.ExecContext(ctx, `DELETE FROM checkpoints WHERE run_id = ? AND checkpoint <= ?`,
		c.run, int64(cp.Number)-checkpointsKept)
	return err
}

// results keeps the results of phases that are over, once each.
func (c *commit) results(ctx context.Context, bind *binder, results []run.PhaseResult) error {
	for i := range results {
		p := &results[i]
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		var verified, mismatched any
		if p.Verified.Blocks != 0 {
			verified, mismatched = bind.u64("blocks", p.Verified.Blocks), bind.u64("blocks", p.Verified.Mismatches())
		}
		if _, err := c.tx.ExecContext(ctx, `UPDATE phases SET active_ns = ?, read_ops = ?, write_ops = ?, read_bytes = ?,
			write_bytes = ?, read_iops = ?, write_iops = ?, read_p99_ns = ?, write_p99_ns = ?, verified_blocks = ?,
			mismatched_blocks = ?, result_json = ?
			WHERE run_id = ? AND phase = ? AND result_json IS NULL`, p.ActiveNS,
			bind.u64("read operations", p.Totals.ReadOps), bind.u64("write operations", p.Totals.WriteOps),
			bind.u64("bytes read", p.Totals.ReadBytes), bind.u64("bytes written", p.Totals.WriteBytes),
			bind.u64("read IOPS", p.ReadIOPS), bind.u64("write IOPS", p.WriteIOPS),
			orNull(p.Read.P99NS), orNull(p.Write.P99NS), verified, mismatched, string(text), c.run, int64(p.Phase)); err != nil {
			return err
		}
	}
	return nil
}

func (c *commit) verdict(ctx context.Context, b *run.Batch) error {
	v := b.Verdict
	if v == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	args := []any{c.run, int64(b.Checkpoint.Number), string(v.State), v.Reason, int64(v.ExitCode)}
	if w := &v.WAF; w.Available {
		args = append(args, w.Micro, w.ErrorMicro, blob128(w.HostBytes), blob128(w.MediaBytes),
			w.FirstSecond, w.LastSecond, w.Settled)
	} else {
		args = append(args, nil, nil, nil, nil, nil, nil, nil)
	}
	if v.HealthAvailable {
		args = append(args, v.HealthPercent, v.SparePercent)
	} else {
		args = append(args, nil, nil)
	}
	_, err = c.tx.ExecContext(ctx, `INSERT INTO verdicts (run_id, checkpoint, state, reason, exit_code, waf_micro,
		waf_error_micro, waf_host_bytes, waf_media_bytes, waf_first_second, waf_last_second, is_waf_settled,
		health_percent, spare_percent, verdict_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		append(args, string(text))...)
	return err
}

// head brings the run's own row up to date.
func (c *commit) head(ctx context.Context, bind *binder, cp *run.Checkpoint) error {
	args := []any{string(cp.State), cp.StopReason, int64(cp.Number), cp.NextSecond, c.state.thinnedTo,
		bind.u64("rows", cp.Totals.Rows)}
	args = bind.counts(args, &cp.Totals.Counts)
	_, err := c.tx.ExecContext(ctx, `UPDATE runs SET state = ?, stop_reason = ?, last_checkpoint = ?, next_second = ?,
		thinned_to_second = ?, rows_total = ?, read_ops = ?, write_ops = ?, read_bytes = ?, write_bytes = ?,
		read_errors = ?, write_errors = ?, events = ?, events_head_sha256 = ? WHERE run_id = ?`,
		append(args, c.state.events, c.state.head[:], c.run)...)
	return err
}

// binder turns Go values into SQL ones; the first that does not fit sticks.
type binder struct{ err error }

// u64 refuses what SQLite's 64-bit signed integer cannot hold: 9.2 exabytes.
func (b *binder) u64(what string, v uint64) int64 {
	if v > math.MaxInt64 && b.err == nil {
		b.err = fmt.Errorf("%s: %d is more than the journal can hold", what, v)
	}
	return int64(v)
}

func (b *binder) counts(args []any, c *run.Counts) []any {
	return append(args, b.u64("read operations", c.ReadOps), b.u64("write operations", c.WriteOps),
		b.u64("bytes read", c.ReadBytes), b.u64("bytes written", c.WriteBytes),
		b.u64("read errors", c.ReadErrors), b.u64("write errors", c.WriteErrors))
}

func (b *binder) latency(args []any, l *run.Latency) []any {
	return append(args, b.u64("operations", l.Operations), orNull(l.MeanNS), orNull(l.P99NS), orNull(l.P999NS), orNull(l.MaxNS))
}

// orNull turns "not available" into NULL.
func orNull(v int64) any {
	if v == run.NotAvailable {
		return nil
	}
	return v
}

// blob128 is a 128-bit counter as sixteen bytes, big-endian, so that SQLite
// compares blobs as it would numbers.
func blob128(u run.Uint128) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 16), u.Hi)
	return binary.BigEndian.AppendUint64(b, u.Lo)
}

func scan128(b []byte) (run.Uint128, error) {
	if len(b) != 16 {
		return run.Uint128{}, fmt.Errorf("a counter of %d bytes instead of 16", len(b))
	}
	return run.Uint128{Hi: binary.BigEndian.Uint64(b), Lo: binary.BigEndian.Uint64(b[8:])}, nil
}

// rowsAtOnce is how many rows one INSERT holds: about where more gain no speed.
const rowsAtOnce = 8

// insertMany inserts n rows, several with each statement; add appends the
// values of the i-th to args.
func insertMany(ctx context.Context, c *commit, table string, columns []string, n int, add func(args []any, i int) []any) error {
	return upsertMany(ctx, c, table, columns, "", n, add)
}

func upsertMany(ctx context.Context, c *commit, table string, columns []string, conflict string, n int, add func(args []any, i int) []any) error {
	args := make([]any, 0, rowsAtOnce*len(columns))
	for i := 0; i < n; {
		k := 1
		if n-i >= rowsAtOnce {
			k = rowsAtOnce
		}
		args = args[:0]
		for range k {
			args = add(args, i)
			i++
		}
		st, err := c.prepared(ctx, insertSQL(table, columns, k)+conflict)
		if err != nil {
			return err
		}
		if _, err := st.ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func insertSQL(table string, columns []string, rows int) string {
	one := "(" + strings.Repeat("?, ", len(columns)-1) + "?)"
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES " +
		strings.Repeat(one+", ", rows-1) + one
}
