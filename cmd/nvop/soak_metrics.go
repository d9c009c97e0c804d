package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// metricsEvery is how often the file is written at most.
const metricsEvery = 5 * time.Second

// metricsFile keeps the figures of the runs of this process in a file, in the text
// format of Prometheus. It is replaced as a whole by renaming, so that a reader
// never sees a part; it is written in a goroutine of its own, so that a slow file
// system holds nothing up.
type metricsFile struct {
	path  string
	clock nvmeioctl.Clock
	note  func(format string, args ...any)
	mu    sync.Mutex
	runs  []*runMetrics
	last  nvmeioctl.Instant
	wake  chan struct{}
	done  chan struct{}
	// Of the goroutine: whether a failure was told already.
	told bool
}

// runMetrics is what is known of one run.
type runMetrics struct {
	id      string
	header  run.Header
	totals  run.Totals
	row     run.Row
	cp      run.Checkpoint
	sample  *run.Sample
	waf     run.WAF
	verdict *run.Verdict
}

func newMetricsFile(path string, clock nvmeioctl.Clock, note func(string, ...any)) *metricsFile {
	m := &metricsFile{path: path, clock: clock, note: note, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for range m.wake {
			m.write()
		}
	}()
	return m
}

// of finds or adds a run.
func (m *metricsFile) of(s subject) *runMetrics {
	for _, r := range m.runs {
		if r.id == s.id {
			return r
		}
	}
	r := &runMetrics{id: s.id, header: *s.header}
	m.runs = append(m.runs, r)
	slices.SortFunc(m.runs, func(a, b *runMetrics) int { return strings.Compare(a.id, b.id) })
	return r
}

// take notes what was committed.
func (m *metricsFile) take(s subject, b *run.Batch, sample *run.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(s)
	r.totals, r.sample = b.Checkpoint.Totals, sample
	r.cp = run.Checkpoint{Number: b.Checkpoint.Number, State: b.Checkpoint.State, Phase: b.Checkpoint.Phase, WallUnixNS: b.Checkpoint.WallUnixNS,
		PausedNS: b.Checkpoint.PausedNS, RunActiveNS: b.Checkpoint.RunActiveNS, Verified: b.Checkpoint.Verified}
	if n := len(b.Rows); n != 0 {
		r.row = b.Rows[n-1]
	}
	if now := m.clock.Now(); m.last == 0 || now.Sub(m.last) >= metricsEvery {
		m.last = now
		m.nudge()
	}
}

// ended notes how a run ended.
func (m *metricsFile) ended(s subject, v run.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(s)
	r.verdict, r.waf, r.cp.State, r.totals = &v, v.WAF, v.State, v.Totals
	m.nudge()
}

func (m *metricsFile) nudge() {
	select {
	case m.wake <- struct{}{}:
	default: // one is due already
	}
}

// close writes the last figures.
func (m *metricsFile) close() {
	m.mu.Lock()
	m.nudge()
	close(m.wake)
	m.mu.Unlock()
	select {
	case <-m.done:
	case <-time.After(eventsAtEnd):
		m.note("--metrics %s: the file cannot be written in time", m.path)
	}
}

func (m *metricsFile) write() {
	m.mu.Lock()
	text := metricsText(m.runs)
	m.mu.Unlock()
	err := mayReplace(m.path, metricsBegin)
	if err == nil {
		err = replaceFile(m.path, text)
	}
	if err != nil && !m.told {
		m.told = true
		m.note("--metrics: %v", err)
	} else if err == nil {
		m.told = false
	}
}

// metricsPath is where the file of --metrics is, links followed, or why it cannot
// be kept there: whoever watches a run by it must not learn at its end that there
// was none. Nothing is written yet.
func metricsPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	link, _ := os.Lstat(path)
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist) && link == nil:
	case err != nil:
		return "", usagef("--metrics: %v", err)
	case !info.Mode().IsRegular():
		return "", usagef("--metrics %s: a file is put in its place at each writing, and what is there is none", path)
	default:
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", usagef("--metrics: %v", err)
		}
		if err := mayReplace(path, metricsBegin); err != nil {
			return "", err
		}
	}
	const writeAndSearch = 2 | 1 // access(2)
	folder := filepath.Dir(path)
	if info, err := os.Stat(folder); err != nil {
		return "", usagef("--metrics: the folder is missing: %v", err)
	} else if !info.IsDir() {
		return "", usagef("--metrics: %s is no folder", folder)
	}
	if err := syscall.Access(folder, writeAndSearch); err != nil {
		return "", usagef("--metrics: no file can be made in %s: %v", folder, err)
	}
	return path, nil
}

// metricsBegin is how every file of figures begins.
const metricsBegin = "# HELP nvop_"

// notOurs refuses to keep figures in a file that the runs themselves need: the
// journal with what lies beside it, and what they run on.
func (a *app) notOurs(metrics string, sessions []*soakSession) error {
	if metrics == "" {
		return nil
	}
	path, err := a.journalFile()
	if err != nil {
		return err
	}
	if besides(metrics, path) {
		return refusedf("metrics", metrics, "", "it is the journal, or has the name of a file that belongs to it")
	}
	for _, s := range sessions {
		name, ok := strings.CutPrefix(s.target.address, "sim:")
		if !ok {
			name = s.target.path
		}
		if name != "" && besides(metrics, name) {
			return refusedf("metrics", metrics, "", "it is what is soaked (%s), or has the name of a file that belongs to it", s.target.address)
		}
	}
	return nil
}

// checkMetrics is the check of --metrics where no drive is named.
func (a *app) checkMetrics(metrics string) error {
	if metrics == "" {
		return nil
	}
	path, err := metricsPath(metrics)
	if err != nil {
		return err
	}
	return a.notOurs(path, nil)
}

// besides says whether path is the file at of, whatever they are called, or bears
// its name with something behind it ("-wal", ".r1.map") in the same folder,
// whether or not it exists.
func besides(path, of string) bool {
	if isSameFile(path, of) {
		return true
	}
	for _, at := range []string{of, resolved(of)} {
		rest, ok := strings.CutPrefix(filepath.Base(path), filepath.Base(at))
		// "run.db.prom" is a name of its own.
		if ok && (strings.HasPrefix(rest, "-") || strings.HasSuffix(rest, ".map")) && isSameFile(filepath.Dir(path), filepath.Dir(at)) {
			return true
		}
	}
	return false
}

// resolved is a path without symbolic links; as it is where there is no file.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// replaceFile puts a new file in the place of the one at path, in one step.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".nvop-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if cerr := f.Chmod(0o644); err == nil {
		err = cerr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		if rerr := os.Remove(f.Name()); rerr != nil && !os.IsNotExist(rerr) {
			err = fmt.Errorf("%w; %w", err, rerr)
		}
	}
	return err
}

// metric is one family of figures.
type metric struct {
	name, kind, help string
	value            func(r *runMetrics) (string, bool)
}

func uintMetric(v uint64) (string, bool) { return strconv.FormatUint(v, 10), true }

func seconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e9, 'g', -1, 64) }

// latencyMetric is a latency of the last second; none where nothing was measured.
func latencyMetric(ns int64) (string, bool) { return seconds(ns), ns != run.NotAvailable }

// metrics are the families, in the order in which they are written.
func metrics() []metric {
	sample := func(f func(s *run.Sample) (string, bool)) func(r *runMetrics) (string, bool) {
		return func(r *runMetrics) (string, bool) {
			if r.sample == nil {
				return "", false
			}
			return f(r.sample)
		}
	}
	return []metric{
		{"nvop_soak_read_bytes_total", "counter", "Bytes read by the run.", func(r *runMetrics) (string, bool) { return uintMetric(r.totals.ReadBytes) }},
		{"nvop_soak_written_bytes_total", "counter", "Bytes written by the run.", func(r *runMetrics) (string, bool) { return uintMetric(r.totals.WriteBytes) }},
		{"nvop_soak_reads_total", "counter", "Reads that succeeded.", func(r *runMetrics) (string, bool) { return uintMetric(r.totals.ReadOps) }},
		{"nvop_soak_writes_total", "counter", "Writes that succeeded.", func(r *runMetrics) (string, bool) { return uintMetric(r.totals.WriteOps) }},
		{"nvop_soak_errors_total", "counter", "Operations that did not succeed.", func(r *runMetrics) (string, bool) { return uintMetric(r.totals.Errors()) }},
		{"nvop_soak_mismatched_blocks_total", "counter", "Logical blocks that were not as they must be.", func(r *runMetrics) (string, bool) { return uintMetric(r.cp.Verified.Mismatches()) }},
		{"nvop_soak_active_seconds_total", "counter", "Time of the run, gaps left out.", func(r *runMetrics) (string, bool) { return seconds(r.cp.RunActiveNS), true }},
		{"nvop_soak_paused_seconds_total", "counter", "Time paused to cool down.", func(r *runMetrics) (string, bool) { return seconds(r.cp.PausedNS), true }},
		{"nvop_soak_phase", "gauge", "Index of the phase.", func(r *runMetrics) (string, bool) { return uintMetric(uint64(r.cp.Phase)) }},
		{"nvop_soak_reads_last_second", "gauge", "Reads of the last second.", func(r *runMetrics) (string, bool) { return uintMetric(r.row.ReadOps) }},
		{"nvop_soak_writes_last_second", "gauge", "Writes of the last second.", func(r *runMetrics) (string, bool) { return uintMetric(r.row.WriteOps) }},
		{"nvop_soak_read_latency_p99_seconds", "gauge", "Of the last second, submission to completion.", func(r *runMetrics) (string, bool) { return latencyMetric(r.row.Read.P99NS) }},
		{"nvop_soak_write_latency_p99_seconds", "gauge", "Of the last second, submission to completion.", func(r *runMetrics) (string, bool) { return latencyMetric(r.row.Write.P99NS) }},
		{"nvop_soak_paused", "gauge", "1 while the drive is given time to cool down.", flagMetric(run.FlagPaused)},
		{"nvop_soak_stalled", "gauge", "1 while nothing completes.", flagMetric(run.FlagStalled)},
		{"nvop_soak_temperature_celsius", "gauge", "Composite temperature.", sample(func(s *run.Sample) (string, bool) {
			c, ok := s.TemperatureCelsius()
			return strconv.FormatInt(int64(c), 10), ok
		})},
		{"nvop_soak_percentage_used", "gauge", "Percentage used as the drive reports it; may exceed 100.", sample(func(s *run.Sample) (string, bool) { return uintMetric(uint64(s.PercentageUsed)) })},
		{"nvop_soak_available_spare_percent", "gauge", "Available spare.", sample(func(s *run.Sample) (string, bool) {
			return strconv.FormatUint(uint64(s.SparePercent), 10), s.SpareAvailable
		})},
		{"nvop_soak_media_errors_total", "counter", "Media and data integrity errors of the drive's life.", sample(func(s *run.Sample) (string, bool) { return s.MediaErrors.String(), true })},
		{"nvop_soak_critical_warning", "gauge", "Critical warning bits.", sample(func(s *run.Sample) (string, bool) { return uintMetric(uint64(s.CriticalWarning)) })},
		{"nvop_soak_lifetime_waf", "gauge", "Write amplification of the drive's life.", sample(func(s *run.Sample) (string, bool) { return wafMetric(endurance.LifetimeWAF(s)) })},
		{"nvop_soak_last_commit_timestamp_seconds", "gauge", "When the journal was last committed, in the drive's world.", func(r *runMetrics) (string, bool) {
			return strconv.FormatFloat(float64(r.cp.WallUnixNS)/1e9, 'f', 3, 64), true
		}},
		{"nvop_soak_running", "gauge", "1 while the run is at work.", func(r *runMetrics) (string, bool) {
			if r.verdict == nil {
				return "1", true
			}
			return "0", true
		}},
		{"nvop_soak_exit_code", "gauge", "How the run ended: 0 good, 3 a limit or an error, 7 can be resumed.", func(r *runMetrics) (string, bool) {
			if r.verdict == nil {
				return "", false
			}
			return strconv.Itoa(r.verdict.ExitCode), true
		}},
	}
}

// flagMetric is 1 where the last row has a flag.
func flagMetric(f run.RowFlags) func(*runMetrics) (string, bool) {
	return func(r *runMetrics) (string, bool) {
		if r.row.Flags&f != 0 {
			return "1", true
		}
		return "0", true
	}
}

func wafMetric(w run.WAF) (string, bool) {
	v, ok := w.Value()
	return strconv.FormatFloat(v, 'g', 6, 64), ok
}

// metricsText is the whole file.
func metricsText(runs []*runMetrics) []byte {
	var b strings.Builder
	for _, m := range metrics() {
		headed := false
		for _, r := range runs {
			v, ok := m.value(r)
			if !ok {
				continue
			}
			if !headed {
				fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
				headed = true
			}
			fmt.Fprintf(&b, "%s{run=%s,name=%s,serial=%s,model=%s,nsid=\"%d\"} %s\n", m.name, label(r.id), label(r.header.Name), label(r.header.Serial),
				label(r.header.Model), r.header.NSID, v)
		}
	}
	return []byte(b.String())
}

// label is a label's value as the format quotes it.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "?")) + `"`
}
