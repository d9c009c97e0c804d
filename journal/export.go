package journal

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/namespace/txn"
)

// Table is what of a run is exported as CSV.
type Table string

// The tables of a run. Each has one header line and a column order that does
// not change within a version of nvop's export.
const (
	TableRows       Table = "rows"
	TableGaps       Table = "gaps"
	TableSamples    Table = "samples"
	TableCounters   Table = "counters"
	TableEvents     Table = "events"
	TableHistograms Table = "histograms"
	// TableMismatches are blocks that verification found not as they must be.
	TableMismatches Table = "mismatches"
)

// Tables lists the tables that [Journal.ExportCSV] knows, the usual one first.
func Tables() []Table {
	return []Table{TableRows, TableGaps, TableSamples, TableCounters, TableEvents, TableHistograms, TableMismatches}
}

// one is what a record of the table is called.
func (t Table) one() string {
	if t == TableMismatches {
		return "mismatch"
	}
	return string(t[:len(t)-1])
}

// cell is one named value: nil, int64, uint64, string or bool.
type cell struct {
	name  string
	value any
}

func (c cell) text() string {
	switch v := c.value.(type) {
	case nil:
		return ""
	case int64:
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	case bool:
		return strconv.FormatBool(v)
	case string:
		return v
	}
	return fmt.Sprint(c.value)
}

// ExportCSV writes one table of a run as CSV (RFC 4180, line feeds). An empty
// field means "not available". It streams: a long run needs little memory.
func (j *Journal) ExportCSV(ctx context.Context, w io.Writer, id string, t Table) error {
	return j.readRun(ctx, "export", id, func(q querier, number int64) error {
		out := csv.NewWriter(w)
		first := true
		err := eachCells(ctx, q, number, t, func(cells []cell) error {
			if first {
				first = false
				if err := out.Write(texts(cells, func(c cell) string { return c.name })); err != nil {
					return err
				}
				if cells[0].value == nil {
					return nil // only the names
				}
			}
			return out.Write(texts(cells, cell.text))
		})
		out.Flush()
		return errors.Join(err, out.Error())
	})
}

func texts(cells []cell, of func(cell) string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = of(c)
	}
	return out
}

// eachCells calls f for every record of a table; first, if there may be none,
// with an empty record that has only names (its first value is nil).
func eachCells(ctx context.Context, q querier, number int64, t Table, f func([]cell) error) error {
	empty := func(cells []cell) error {
		cells[0].value = nil
		return f(cells)
	}
	switch t {
	case TableRows:
		if err := empty(rowCells(&Row{})); err != nil {
			return err
		}
		return eachRunRow(ctx, q, number, func(r Row) error { return f(rowCells(&r)) })
	case TableGaps:
		if err := empty(gapCells(&run.GapRow{})); err != nil {
			return err
		}
		gaps, err := scanGaps(ctx, q, number)
		for i := 0; i < len(gaps) && err == nil; i++ {
			err = f(gapCells(&gaps[i]))
		}
		return err
	case TableSamples, TableCounters:
		return sampleTable(ctx, q, number, t, empty, f)
	case TableEvents:
		if err := empty(eventCells(&run.Event{})); err != nil {
			return err
		}
		return eachEvent(ctx, q, number, func(_ int64, e *run.Event, _, _ link) error { return f(eventCells(e)) })
	case TableMismatches:
		if err := empty(mismatchCells(&run.Mismatch{})); err != nil {
			return err
		}
		return eachMismatch(ctx, q, number, func(m *run.Mismatch) error { return f(mismatchCells(m)) })
	case TableHistograms:
		if err := empty(bucketCells(&run.Histogram{}, 0, 0)); err != nil {
			return err
		}
		return eachHistogram(ctx, q, number, func(h *run.Histogram, d *stats.Histogram) error {
			var err error
			d.Each(func(upper int64, count uint64) {
				if err == nil {
					err = f(bucketCells(h, upper, count))
				}
			})
			return err
		})
	}
	return fmt.Errorf("%q is not one of the tables %v", t, Tables())
}

func sampleTable(ctx context.Context, q querier, number int64, t Table, empty, f func([]cell) error) error {
	var err error
	if t == TableSamples {
		err = empty(sampleCells(&run.Sample{}))
	} else {
		err = empty(counterCells(&run.Sample{}, "host", "", 0, run.Uint128{}, nil))
	}
	if err != nil {
		return err
	}
	samples, err := scanSamples(ctx, q, number, 0)
	if err != nil {
		return err
	}
	for i := range samples {
		s := &samples[i]
		if t == TableSamples {
			if err := f(sampleCells(s)); err != nil {
				return err
			}
			continue
		}
		for _, h := range s.Host {
			if err := f(counterCells(s, "host", h.Source, h.UnitBytes, h.Before, h.After.String())); err != nil {
				return err
			}
		}
		for _, m := range s.Media {
			if err := f(counterCells(s, "media", m.Source, m.UnitBytes, m.Units, nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

func timeText(unixNS int64) string { return time.Unix(0, unixNS).UTC().Format(time.RFC3339Nano) }

// available is nil for what could not be told.
func available(v int64) any {
	if v == run.NotAvailable {
		return nil
	}
	return v
}

func rowCells(r *Row) []cell {
	var temperature any
	if r.TemperatureAvailable {
		temperature = int64(r.TemperatureCelsius)
	}
	cells := []cell{
		{"second", r.Second}, {"duration_seconds", r.Seconds}, {"time", timeText(r.WallUnixNS)}, {"mono_ns", r.MonoNS},
		{"phase", int64(r.Phase)}, {"active_ns", r.ActiveNS},
		{"read_ops", r.ReadOps}, {"write_ops", r.WriteOps}, {"read_bytes", r.ReadBytes}, {"write_bytes", r.WriteBytes},
		{"read_errors", r.ReadErrors}, {"write_errors", r.WriteErrors},
	}
	for _, d := range []struct {
		name string
		l    *run.Latency
	}{{"read", &r.Read}, {"write", &r.Write}} {
		cells = append(cells, cell{d.name + "_measured_ops", d.l.Operations},
			cell{d.name + "_latency_mean_ns", available(d.l.MeanNS)}, cell{d.name + "_latency_p99_ns", available(d.l.P99NS)},
			cell{d.name + "_latency_p999_ns", available(d.l.P999NS)}, cell{d.name + "_latency_max_ns", available(d.l.MaxNS)})
	}
	return append(cells, cell{"in_flight", int64(r.InFlight)}, cell{"temperature_celsius", temperature},
		cell{"polled", r.Flags&run.FlagPolled != 0}, cell{"stalled", r.Flags&run.FlagStalled != 0},
		cell{"drained", r.Flags&run.FlagDrained != 0}, cell{"late", r.Flags&run.FlagLate != 0})
}

func gapCells(g *run.GapRow) []cell {
	return []cell{{"second", g.Second}, {"duration_seconds", g.Seconds}, {"time", timeText(g.WallUnixNS)},
		{"reason", g.Reason}, {"uncounted_ops_max", g.UncountedOpsMax}}
}

func sampleCells(s *run.Sample) []cell {
	cells := []cell{{"second", s.Second}, {"time", timeText(s.WallUnixNS)}, {"duration_ns", s.DurationNS},
		{"engine_write_bytes", s.EngineWriteBytes}, {"failure", s.Failure}}
	celsius, reported := s.TemperatureCelsius()
	var temperature any
	if reported {
		temperature = int64(celsius)
	}
	rest := []cell{{"percentage_used", int64(s.PercentageUsed)}, {"spare_percent", int64(s.SparePercent)},
		{"spare_threshold_percent", int64(s.SpareThresholdPercent)}, {"critical_warning", int64(s.CriticalWarning)},
		{"temperature_celsius", temperature}, {"host_read_units", s.HostReadUnits.String()},
		{"media_errors", s.MediaErrors.String()}, {"unsafe_shutdowns", s.UnsafeShutdowns.String()},
		{"power_cycles", s.PowerCycles.String()}, {"power_on_hours", s.PowerOnHours.String()},
		{"error_log_entries", s.ErrorLogEntries.String()}, {"warning_temperature_minutes", int64(s.WarningTempMinutes)},
		{"critical_temperature_minutes", int64(s.CriticalTempMinutes)}, {"thermal_transitions", s.ThermalTransitions},
		{"thermal_seconds", s.ThermalSeconds}, {"firmware", s.Firmware}, {"format", s.Format}, {"identity", s.Identity}}
	if s.Failure != "" {
		for i := range rest {
			rest[i].value = nil
		}
	}
	return append(cells, rest...)
}

func counterCells(s *run.Sample, kind, source string, unitBytes uint64, units run.Uint128, after any) []cell {
	return []cell{{"second", s.Second}, {"time", timeText(s.WallUnixNS)}, {"kind", kind}, {"source", source},
		{"unit_bytes", unitBytes}, {"units", units.String()}, {"units_after", after}}
}

func eventCells(e *run.Event) []cell {
	cells := []cell{{"second", e.Second}, {"time", timeText(e.WallUnixNS)}, {"kind", string(e.Kind)}, {"text", e.Text}}
	rest := []cell{{"op", e.Op}, {"lba", e.LBA}, {"blocks", int64(e.Blocks)}, {"status", int64(e.Status)}, {"occurrences", e.Count}}
	if e.Op == "" && e.Count == 0 {
		for i := range rest {
			rest[i].value = nil
		}
	}
	return append(cells, rest...)
}

func bucketCells(h *run.Histogram, upper int64, count uint64) []cell {
	return []cell{{"second", h.Second}, {"duration_seconds", h.Seconds}, {"phase", int64(h.Phase)},
		{"op", direction(h.Write)}, {"latency_upper_ns", upper}, {"measured_ops", count}}
}

func direction(write bool) string {
	if write {
		return "write"
	}
	return "read"
}

// EachHistogram calls f for every recorded span of latencies of a run, in order of
// time; what the last checkpoint holds open is not among them. The histogram is
// f's to keep.
func (j *Journal) EachHistogram(ctx context.Context, id string, f func(*run.Histogram, *stats.Histogram) error) error {
	return j.readRun(ctx, "read histograms", id, func(q querier, number int64) error {
		return eachHistogram(ctx, q, number, f)
	})
}

func eachHistogram(ctx context.Context, q querier, number int64, f func(*run.Histogram, *stats.Histogram) error) error {
	rows, err := q.QueryContext(ctx, `SELECT phase, is_write, second, seconds, encoded FROM histograms
		WHERE run_id = ? ORDER BY second, phase, is_write`, number)
	if err != nil {
		return err
	}
	return eachRow(rows, func() error {
		var h run.Histogram
		if err := rows.Scan(&h.Phase, &h.Write, &h.Second, &h.Seconds, &h.Encoded); err != nil {
			return err
		}
		d, err := stats.DecodeHistogram(h.Encoded)
		if err != nil {
			return fmt.Errorf("phase %d, %s, second %d: %w", h.Phase, direction(h.Write), h.Second, err)
		}
		return f(&h, d)
	})
}

// Schemas of the records in JSON lines: a name and a version.
const (
	schemaRun         = "nvop.journal.run/1"
	schemaTransaction = "nvop.journal.transaction/1"
	schemaHistogram   = "nvop.journal.histogram/1"
	schemaVerdict     = "nvop.journal.verdict/1"

	schemaVerification = "nvop.journal.verification/1"
)

// runRecord is the first line of a run; the only one that names it, so that
// two runs with the same seed differ in no other.
type runRecord struct {
	Schema     string     `json:"schema"`
	ID         string     `json:"id"`
	State      run.State  `json:"state"`
	StopReason string     `json:"stop_reason,omitempty"`
	Seconds    int64      `json:"elapsed_seconds"`
	Totals     run.Totals `json:"totals"`
	Header     run.Header `json:"header"`
}

type histogramRecord struct {
	Schema   string      `json:"schema"`
	Second   int64       `json:"second"`
	Seconds  int64       `json:"duration_seconds"`
	Phase    uint32      `json:"phase"`
	Op       string      `json:"op"`
	Count    uint64      `json:"measured_ops"`
	MinNS    int64       `json:"latency_min_ns"`
	MaxNS    int64       `json:"latency_max_ns"`
	Overflow uint64      `json:"overflow_ops"`
	Buckets  [][2]uint64 `json:"buckets"`
}

type verdictRecord struct {
	Schema  string       `json:"schema"`
	Verdict *run.Verdict `json:"verdict"`
}

type verificationRecord struct {
	Schema string `json:"schema"`
	VerificationRecord
}

type transactionRecord struct {
	Schema string `json:"schema"`
	txn.History
}

// ExportJSON writes a run as JSON lines: the run, its rows, gaps, samples,
// counters, events, mismatches and histograms, what it verified, and its verdict. Every line is one object
// that begins with its schema, a name and a version; fields keep their order.
// The hashes and resume marks are not exported. Times are those that were
// recorded, so a simulated run with the same seed gives the same bytes but for
// the run's name in the first line.
func (j *Journal) ExportJSON(ctx context.Context, w io.Writer, id string) error {
	return j.readRun(ctx, "export", id, func(q querier, number int64) error {
		infos, err := scanRuns(ctx, q, `WHERE run_id = ?`, number)
		if err != nil {
			return err
		}
		i := &infos[0]
		out := newLines(w)
		out.marshal(runRecord{Schema: schemaRun, ID: i.ID, State: i.State, StopReason: i.StopReason,
			Seconds: i.Seconds, Totals: i.Totals, Header: i.Header})
		for _, t := range []Table{TableRows, TableGaps, TableSamples, TableCounters, TableEvents, TableMismatches} {
			if err := eachCells(ctx, q, number, t, func(cells []cell) error {
				if cells[0].value == nil {
					return nil
				}
				return out.cells("nvop.journal."+t.one()+"/1", cells)
			}); err != nil {
				return err
			}
		}
		if err := eachHistogram(ctx, q, number, func(h *run.Histogram, d *stats.Histogram) error {
			return out.marshal(newHistogramRecord(h, d))
		}); err != nil {
			return err
		}
		verification, err := scanVerification(ctx, q, number)
		if err != nil {
			return err
		}
		if verification != nil {
			out.marshal(verificationRecord{Schema: schemaVerification, VerificationRecord: *verification})
		}
		if i.Verdict != nil {
			out.marshal(verdictRecord{Schema: schemaVerdict, Verdict: i.Verdict})
		}
		return out.flush()
	})
}

func newHistogramRecord(h *run.Histogram, d *stats.Histogram) histogramRecord {
	r := histogramRecord{Schema: schemaHistogram, Second: h.Second, Seconds: h.Seconds, Phase: h.Phase,
		Op: direction(h.Write), Count: d.Count(), Overflow: d.Overflow(), Buckets: [][2]uint64{}}
	r.MinNS, _ = d.Min()
	r.MaxNS, _ = d.Max()
	d.Each(func(upper int64, count uint64) { r.Buckets = append(r.Buckets, [2]uint64{uint64(upper), count}) })
	return r
}

// ExportTransactions writes all transactions with their steps as JSON lines.
func (j *Journal) ExportTransactions(ctx context.Context, w io.Writer) error {
	ts, err := j.Transactions(ctx)
	if err != nil {
		return err
	}
	out := newLines(w)
	for _, t := range ts {
		h, err := j.Load(ctx, t.ID)
		if err != nil {
			return err
		}
		out.marshal(transactionRecord{Schema: schemaTransaction, History: h})
	}
	return out.flush()
}

// lines writes JSON lines; the first error sticks.
type lines struct {
	w   *bufio.Writer
	buf []byte
	err error
}

func newLines(w io.Writer) *lines { return &lines{w: bufio.NewWriterSize(w, 64<<10)} }

func (l *lines) marshal(v any) error {
	b, err := json.Marshal(v)
	if l.err == nil {
		l.err = err
	}
	return l.line(b)
}

// cells writes an object with its fields in the order given.
func (l *lines) cells(schema string, cells []cell) error {
	b := append(l.buf[:0], `{"schema":"`...)
	b = append(append(b, schema...), '"')
	for _, c := range cells {
		b = append(append(append(b, `,"`...), c.name...), `":`...)
		switch v := c.value.(type) {
		case nil:
			b = append(b, "null"...)
		case string:
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			b = append(b, text...)
		default:
			b = append(b, c.text()...)
		}
	}
	l.buf = append(b, '}')
	return l.line(l.buf)
}

func (l *lines) line(b []byte) error {
	if l.err == nil {
		_, l.err = l.w.Write(b)
	}
	if l.err == nil {
		l.err = l.w.WriteByte('\n')
	}
	return l.err
}

func (l *lines) flush() error {
	if l.err == nil {
		l.err = l.w.Flush()
	}
	return l.err
}
