package journal

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"nvop/endurance/run"
)

func timeOf(t *testing.T, j *Journal, id string) time.Time {
	t.Helper()
	i, err := j.FindRun(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, i.Header.StartWallUnixNS)
}

func exportAll(t *testing.T, j *Journal, id string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var b bytes.Buffer
	if err := j.ExportJSON(context.Background(), &b, id); err != nil {
		t.Fatal(err)
	}
	out["json"] = b.String()
	for _, table := range Tables() {
		b.Reset()
		if err := j.ExportCSV(context.Background(), &b, id, table); err != nil {
			t.Fatal(err)
		}
		out[string(table)] = b.String()
	}
	return out
}

// TestExport_sameSeedSameBytes: the same run recorded in two journals, in
// batches of different size, is exported the same.
func TestExport_sameSeedSameBytes(t *testing.T) {
	var first map[string]string
	for _, size := range []int64{60, 180} {
		j := openTest(t)
		j.keepSeconds = 300
		r := beginTest(t, j, 5)
		s := newSynth(5)
		s.lean = true
		s.commitAll(t, r, size, 900)
		got := exportAll(t, j, r.ID())
		if first == nil {
			first = got
			continue
		}
		for name, text := range got {
			if text != first[name] {
				t.Errorf("%s differs", name)
			}
		}
	}
	lines := strings.Split(first["json"], "\n")
	if len(lines) < 500 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestExport_jsonLines(t *testing.T) {
	j := openTest(t)
	r := recordSome(t, j, 5)
	counts := map[string]int{}
	var writes float64
	for i, line := range strings.Split(strings.TrimSuffix(exportAll(t, j, r.ID())["json"], "\n"), "\n") {
		var m map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		if err := d.Decode(&m); err != nil {
			t.Fatalf("line %d: %v: %s", i, err, line)
		}
		schema, _ := m["schema"].(string)
		counts[schema]++
		if !strings.HasPrefix(line, `{"schema":"nvop.journal.`) || !strings.HasSuffix(schema, "/1") {
			t.Errorf("line %d begins %.60s", i, line)
		}
		if schema == "nvop.journal.row/1" {
			writes += m["write_bytes"].(float64)
			if p99, ok := m["write_latency_p99_ns"]; !ok || p99 != nil {
				t.Errorf("p99 of 3 operations is %v, not null", p99)
			}
		}
	}
	for schema, n := range map[string]int{"nvop.journal.run/1": 1, "nvop.journal.row/1": 200, "nvop.journal.sample/1": 20,
		"nvop.journal.counter/1": 80, "nvop.journal.event/1": 5, "nvop.journal.mismatch/1": 15,
		"nvop.journal.verification/1": 1, "nvop.journal.verdict/1": 1} {
		if counts[schema] != n {
			t.Errorf("%d lines of %s, want %d (%v)", counts[schema], schema, n, counts)
		}
	}
	i, err := j.FindRun(context.Background(), r.ID())
	if err != nil || writes != float64(i.Totals.WriteBytes) {
		t.Errorf("rows sum to %v bytes, the run wrote %d", writes, i.Totals.WriteBytes)
	}
	var b bytes.Buffer
	if err := j.ExportTransactions(context.Background(), &b); err != nil || strings.Count(b.String(), "\n") != 1 ||
		!strings.Contains(b.String(), `"intents":[`) {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestExport_csv(t *testing.T) {
	j := openTest(t)
	r := recordSome(t, j, 5)
	headers := map[string]string{
		"rows": "second,duration_seconds,time,mono_ns,phase,active_ns,read_ops,write_ops,read_bytes,write_bytes,read_errors,write_errors," +
			"read_measured_ops,read_latency_mean_ns,read_latency_p99_ns,read_latency_p999_ns,read_latency_max_ns," +
			"write_measured_ops,write_latency_mean_ns,write_latency_p99_ns,write_latency_p999_ns,write_latency_max_ns," +
			"in_flight,temperature_celsius,polled,stalled,drained,late",
		"gaps":     "second,duration_seconds,time,reason,uncounted_ops_max",
		"counters": "second,time,kind,source,unit_bytes,units,units_after",
		"mismatches": "second,time,kind,lba,expected_generation,found_generation,found_lba,found_run,offset_bytes,differing_bytes," +
			"expected_hex,found_hex,status,text",
		"events":     "second,time,kind,text,op,lba,blocks,status,occurrences",
		"histograms": "second,duration_seconds,phase,op,latency_upper_ns,measured_ops",
		"samples": "second,time,duration_ns,engine_write_bytes,failure,percentage_used,spare_percent,spare_threshold_percent," +
			"critical_warning,temperature_celsius,host_read_units,media_errors,unsafe_shutdowns,power_cycles,power_on_hours," +
			"error_log_entries,warning_temperature_minutes,critical_temperature_minutes,thermal_transitions,thermal_seconds," +
			"firmware,format,identity",
	}
	for table, text := range exportAll(t, j, r.ID()) {
		if table == "json" {
			continue
		}
		records, err := csv.NewReader(strings.NewReader(text)).ReadAll() // refuses lines of another length
		if err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		if got := strings.Join(records[0], ","); got != headers[table] {
			t.Errorf("%s:\n got %s\nwant %s", table, got, headers[table])
		}
		want := map[string]int{"rows": 200, "gaps": 0, "samples": 20, "counters": 80, "events": 5, "mismatches": 15}
		if n, ok := want[table]; ok && len(records)-1 != n {
			t.Errorf("%s: %d records, want %d", table, len(records)-1, n)
		}
		if table == "counters" && records[1][5] != "0" || table == "counters" && records[4][5] != "92233720368547758080" {
			// Sample 1, the second media counter has Hi 5: 5 * 2^64.
			if records[3][5] != "92233720368547758080" {
				t.Errorf("128-bit counters: %v", records[1:5])
			}
		}
	}
	if err := j.ExportCSV(context.Background(), &bytes.Buffer{}, r.ID(), "drives"); err == nil {
		t.Error("an unknown table is exported")
	}
	if err := j.ExportCSV(context.Background(), &bytes.Buffer{}, "r9", TableRows); err == nil {
		t.Error("an unknown run is exported")
	}
}

func TestExport_writerFails(t *testing.T) {
	j := openTest(t)
	r := recordSome(t, j, 5)
	for _, f := range []func() error{
		func() error { return j.ExportJSON(context.Background(), brokenWriter{}, r.ID()) },
		func() error { return j.ExportCSV(context.Background(), brokenWriter{}, r.ID(), TableRows) },
		func() error { return j.ExportTransactions(context.Background(), brokenWriter{}) },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "pipe is broken") {
			t.Errorf("%v", err)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken{} }

type errBroken struct{}

func (errBroken) Error() string { return "pipe is broken" }

func TestCompare(t *testing.T) {
	ctx := context.Background()
	j := openAt(t, filepath.Join(t.TempDir(), "journal.db"), ReadWrite)
	a, b := recordSome(t, j, 1), recordSome(t, j, 2)
	c, err := j.Compare(ctx, a.ID(), b.ID())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Measured{c.Before, c.After} {
		var ops, active, latencies uint64
		if err := j.EachRow(ctx, m.ID, func(r Row) error {
			if r.Phase == 1 {
				ops += r.WriteOps
				active += uint64(r.ActiveNS)
				latencies += r.Write.Operations
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if m.Phase != 1 || m.WriteIOPS == nil || *m.WriteIOPS != (ops*1e9+active/2)/active {
			t.Errorf("%s: phase %d, write IOPS %v", m.ID, m.Phase, m.WriteIOPS)
		}
		h, err := j.PhaseHistogram(ctx, m.ID, 1, true)
		if err != nil || h.Count() != latencies || m.WriteP99NS != nil {
			// 300 latencies cannot tell a p99.
			t.Errorf("%s: %d of %d latencies, %v; p99 %v", m.ID, h.Count(), latencies, err, m.WriteP99NS)
		}
		if m.WAFRecomputedMicro == nil || *m.WAFRecomputedMicro != m.WAF.Micro || m.WAF.Micro < 1_500_000 {
			t.Errorf("%s: WAF %d, %s", m.ID, m.WAF.Micro, m.WAFReason)
		}
		if m.HealthPercent == nil || *m.HealthPercent != 99 {
			t.Errorf("%s: health %v", m.ID, m.HealthPercent)
		}
	}
	want := strconv.FormatFloat(float64(*c.After.WAFRecomputedMicro)/float64(*c.Before.WAFRecomputedMicro), 'f', 6, 64)
	if c.WAFRatioMicro == nil || strconv.FormatFloat(float64(*c.WAFRatioMicro)/1e6, 'f', 6, 64) != want {
		t.Errorf("ratio %v, want %s", c.WAFRatioMicro, want)
	}
	fresh := beginTest(t, j, 3)
	m, err := j.Measure(ctx, fresh.ID())
	if err != nil || m.Phase != -1 || m.WAFReason == "" || m.WriteIOPS != nil || m.State != run.StateRunning {
		t.Errorf("a run without rows: %+v, %v", m, err)
	}
	if _, err := j.Compare(ctx, "r1", "r7"); err == nil {
		t.Error("compared with nothing")
	}
}
