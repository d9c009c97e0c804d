package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// wantWAF is the law the demo has to follow, written down apart from the model:
// with T the bytes that garbage collection works in and U what the host has
// written, valid is the share of a victim that is still valid, the solution of
// u = exp(-alpha (1-u)), and A = 1/(1-u).
func wantWAF(rawBytes, userBytes float64) float64 {
	alpha := rawBytes / userBytes
	u := 0.5
	for range 10_000 {
		u = math.Exp(-alpha * (1 - u))
	}
	return 1 / (1 - u)
}

// TestWantWAF_publishedValues holds the oracle itself to the published table.
func TestWantWAF_publishedValues(t *testing.T) {
	for rho, want := range map[float64]float64{0.07: 7.817, 0.145: 4.131, 0.28: 2.481, 0.5: 1.716, 1: 1.255} {
		if got := wantWAF(1+rho, 1); math.Abs(got-want) > 0.002 {
			t.Errorf("WAF at over-provisioning %v is %.4f, want %v", rho, got, want)
		}
	}
}

// demoRaw is T of the demo's drive: 64 dies of 1 Tb with 5.3 % extra blocks.
const demoRaw = 8 * (1 << 40) * 1.053

// runDemo runs the demo as a user does.
func runDemo(t *testing.T, args ...string) demoResult {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	var out, errout bytes.Buffer
	env := func(k string) string {
		return map[string]string{"HOME": t.TempDir(), "XDG_RUNTIME_DIR": t.TempDir()}[k]
	}
	args = append([]string{"demo", "--dir", dir, "-o", "json"}, args...)
	if code := execute(context.Background(), args, streams{strings.NewReader(""), &out, &errout}, env); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &errout)
	}
	var r demoResult
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return r
}

// within wants got within percent of want.
func within(t *testing.T, what string, got, want, percent float64) {
	t.Helper()
	if math.Abs(got/want-1) > percent/100 {
		t.Errorf("%s is %.4f, want %.4f +-%v %%", what, got, want, percent)
	}
}

// checkDemo holds a demo to the law, to its journal and to its own sums.
func checkDemo(t *testing.T, r demoResult) {
	t.Helper()
	const floor = 1.02 // the profile's
	before, after := wantWAF(demoRaw, float64(r.Before.CapacityBytes)), wantWAF(demoRaw, float64(r.After.CapacityBytes))
	within(t, "WAF before", r.Before.WAF, floor*before, 3)
	within(t, "WAF after", r.After.WAF, floor*after, 3)
	within(t, "ratio of the WAFs", r.Before.WAF/r.After.WAF, before/after, 3)
	within(t, "IOPS before", float64(r.Before.WriteIOPS), 411_000, 5)
	within(t, "IOPS after", float64(r.After.WriteIOPS), 411_000*before/after, 5)
	if r.HostBytes < 1e15 || r.HostBytes > 1.1e15 || r.TimeLapse == 0 || r.Before.HealthPercent <= r.After.HealthPercent {
		t.Errorf("host bytes %d, time lapse %d, health %d then %d", r.HostBytes, r.TimeLapse, r.Before.HealthPercent, r.After.HealthPercent)
	}
	sum := uint64(0)
	for _, side := range []demoSide{r.Before, r.After} {
		sum += sumOfRows(t, r.Journal, side.Run)
		within(t, "WAF of "+side.Run+" from the raw counters", side.WAF, rawWAF(t, r.Journal, side.Run), 3)
	}
	if sum != r.HostBytes {
		t.Errorf("the rows add up to %d bytes, the demo says %d", sum, r.HostBytes)
	}
	var v verifyResult
	document1(t, &v, "journal", "verify", "--journal", r.Journal)
	if len(v.Problems) != 0 {
		t.Errorf("journal: %v", v.Problems)
	}
}

// exported is a table of a run with its columns by name.
func exported(t *testing.T, journal, run, table string) (column map[string]int, rows [][]string) {
	t.Helper()
	var out, errout bytes.Buffer
	args := []string{"journal", "export", run, "--table", table, "--journal", journal}
	if code := execute(context.Background(), args, streams{strings.NewReader(""), &out, &errout}, func(string) string { return "" }); code != 0 {
		t.Fatalf("export: exit code %d\n%s", code, &errout)
	}
	all, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(all) < 2 {
		t.Fatalf("export of %s: %d lines, %v", table, len(all), err)
	}
	column = map[string]int{}
	for i, name := range all[0] {
		column[name] = i
	}
	return column, all[1:]
}

func sumOfRows(t *testing.T, journal, run string) uint64 {
	t.Helper()
	column, rows := exported(t, journal, run, "rows")
	sum := uint64(0)
	for _, row := range rows {
		n, err := strconv.ParseUint(row[column["write_bytes"]], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// rawWAF is media bytes over host bytes of the second half of a run, by the
// plain difference of the counters at its middle and at its end.
func rawWAF(t *testing.T, journal, run string) float64 {
	t.Helper()
	column, rows := exported(t, journal, run, "counters")
	type point struct{ second, bytes float64 }
	values := map[string][]point{}
	source := map[string]string{}
	for _, row := range rows {
		kind := row[column["kind"]]
		if source[kind] == "" {
			source[kind] = row[column["source"]]
		}
		if row[column["source"]] != source[kind] {
			continue // another counter of the same thing, with its own resolution
		}
		second, err1 := strconv.ParseFloat(row[column["second"]], 64)
		units, err2 := strconv.ParseFloat(row[column["units"]], 64)
		unit, err3 := strconv.ParseFloat(row[column["unit_bytes"]], 64)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		values[kind] = append(values[kind], point{second, units * unit})
	}
	host, media := values["host"], values["media"]
	if len(host) < 10 || len(host) != len(media) {
		t.Fatalf("%d host and %d media counters in the journal", len(host), len(media))
	}
	middle, end := len(host)/2, len(host)-1
	return (media[end].bytes - media[middle].bytes) / (host[end].bytes - host[middle].bytes)
}

// document1 runs a command and reads its document.
func document1(t *testing.T, result any, args ...string) {
	t.Helper()
	r := call(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(r.out), result); err != nil {
		t.Fatalf("nvop %s: %v\n%s%s", strings.Join(args, " "), err, r.out, r.errout)
	}
}

// TestDemo_followsTheLaw is the README's first command.
func TestDemo_followsTheLaw(t *testing.T) {
	if raceDetector {
		t.Skip("skipped under the race detector: 30 million simulated operations take minutes there; the plain run has it")
	}
	if testing.Short() {
		t.Skip("skipped with -short: a petabyte takes half a minute")
	}
	checkDemo(t, runDemo(t))
}
