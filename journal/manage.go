package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"nvop/endurance/run"
	"nvop/endurance/stats"
)

// Backup writes a copy of the journal, as of one moment, to a new file. It may
// be taken while a run is being recorded. An existing file is never replaced:
// the error then wraps [fs.ErrExist].
func (j *Journal) Backup(ctx context.Context, to string) (err error) {
	abs, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(abs); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return &OpenError{Path: abs, Reason: "backup is not written: " + causeAt(abs, err), Err: err}
	}
	// Under another name first: a cut leaves no file that looks like a backup.
	scratch, err := os.MkdirTemp(filepath.Dir(abs), ".backup-")
	if err != nil {
		return &OpenError{Path: abs, Reason: "backup is not written: " + causeAt(abs, err), Err: err}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	part := filepath.Join(scratch, "part.db")
	if err := vacuumInto(ctx, j.file, j.opts, part); err != nil {
		return j.failed("backup", err)
	}
	if err := syncFile(part); err != nil {
		return j.failed("backup", err)
	}
	if err := publish(part, abs); err != nil {
		return &OpenError{Path: abs, Reason: "backup is not written: " + causeAt(abs, err), Err: err}
	}
	return syncDir(filepath.Dir(abs))
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// PruneOptions say what is to be removed. Nothing is by default.
type PruneOptions struct {
	// Runs are removed by ID, whatever their state.
	Runs []string
	// Before removes the runs that are over and whose last checkpoint is
	// older; zero removes none. Runs that can be resumed stay, and so does all
	// that was done to simulated drives, whose calendar is their own.
	Before time.Time
	// Transactions also removes the finished transactions that ended before
	// Before. Unfinished ones always stay.
	Transactions bool
	// DryRun only says what would be removed.
	DryRun bool
}

// Pruned is what was removed, or would be.
type Pruned struct {
	Runs         []string `json:"runs"`
	Transactions []string `json:"transactions"`
	// FreedBytes is by how much the file has become smaller.
	FreedBytes int64 `json:"freed_bytes"`
}

// GenerationMapFile is where the generation map of a run is kept, beside the
// journal: too large and too often changed to be in it. It is removed with the run
// by [Journal.Prune], and is not part of [Journal.Backup].
func (j *Journal) GenerationMapFile(id string) string { return j.path + "." + id + ".map" }

// removeMaps removes the generation maps of runs, where there are any.
func (j *Journal) removeMaps(ids []string) error {
	var errs []error
	for _, id := range ids {
		if err := os.Remove(j.GenerationMapFile(id)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Prune removes runs, and transactions where asked for, and gives the space
// back to the file system.
func (j *Journal) Prune(ctx context.Context, o PruneOptions) (Pruned, error) {
	p := Pruned{Runs: []string{}, Transactions: []string{}}
	size := fileSize(j.path)
	err := j.write(ctx, "prune", func(tx *sql.Tx) error {
		runs, transactions, err := prunable(ctx, tx, o)
		if err != nil {
			return err
		}
		for _, n := range runs {
			p.Runs = append(p.Runs, runID(n))
		}
		for _, n := range transactions {
			p.Transactions = append(p.Transactions, transactionID(n))
		}
		if o.DryRun {
			return nil
		}
		for _, n := range runs {
			if _, err := tx.ExecContext(ctx, `DELETE FROM runs WHERE run_id = ?`, n); err != nil {
				return err
			}
		}
		for _, n := range transactions {
			if _, err := tx.ExecContext(ctx, `DELETE FROM transactions WHERE transaction_id = ?`, n); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM drives WHERE drive_id NOT IN
			(SELECT drive_id FROM runs UNION SELECT drive_id FROM transactions)`)
		return err
	})
	if err != nil || o.DryRun {
		return p, err
	}
	if err := j.removeMaps(p.Runs); err != nil {
		return p, j.failed("remove generation maps", err)
	}
	if err := j.shrink(ctx); err != nil {
		return p, j.failed("shrink", err)
	}
	p.FreedBytes = max(size-fileSize(j.path), 0)
	return p, nil
}

func prunable(ctx context.Context, tx *sql.Tx, o PruneOptions) (runs, transactions []int64, err error) {
	for _, id := range o.Runs {
		number, ok := runNumber(id)
		if !ok {
			return nil, nil, &NotFoundError{Kind: "run", ID: id}
		}
		if _, err := loadRunState(ctx, tx, number); err != nil {
			return nil, nil, err
		}
		runs = append(runs, number)
	}
	if o.Before.IsZero() {
		return runs, nil, nil
	}
	before := o.Before.UnixNano()
	found, err := numbers(ctx, tx, `SELECT run_id FROM runs WHERE state IN ('finished', 'stopped') AND is_simulated = 0 AND
		(SELECT max(at_unix_ns) FROM checkpoints c WHERE c.run_id = runs.run_id) < ? ORDER BY run_id`, before)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range found {
		named := false
		for _, r := range runs {
			named = named || r == n
		}
		if !named {
			runs = append(runs, n)
		}
	}
	if o.Transactions {
		transactions, err = numbers(ctx, tx, `SELECT transaction_id FROM transactions
			WHERE state NOT IN ('open', 'rolling_back') AND ended_at_unix_ns < ? AND address NOT LIKE 'sim:%' ORDER BY transaction_id`, before)
	}
	return runs, transactions, err
}

func numbers(ctx context.Context, q querier, query string, args ...any) ([]int64, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var ns []int64
	err = eachRow(rows, func() error {
		var n int64
		err := rows.Scan(&n)
		ns = append(ns, n)
		return err
	})
	return ns, err
}

// shrink returns free pages to the file system. The pages that thinning frees
// are not worth it: the next rows use them.
func (j *Journal) shrink(ctx context.Context) error {
	rows, err := j.w.QueryContext(ctx, "PRAGMA incremental_vacuum")
	if err != nil {
		return err
	}
	if err := eachRow(rows, func() error { return nil }); err != nil {
		return err
	}
	var busy, log, moved int
	return j.w.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &moved)
}

// Measured is what a run came to, computed anew from what was recorded every
// second and every sample, not from its verdict.
type Measured struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	State         run.State `json:"state"`
	Serial        string    `json:"serial"`
	Model         string    `json:"model"`
	Firmware      string    `json:"firmware"`
	CapacityBytes uint64    `json:"capacity_bytes"`
	TimeLapse     uint32    `json:"time_lapse"`
	// Seconds is how long the run has lasted on its own clock, gaps included.
	Seconds        int64  `json:"elapsed_seconds"`
	HostWriteBytes uint64 `json:"host_write_bytes"`
	// Phase is the index of the phase that the rest is about: the last measured
	// one, else the last that has rows; -1 when there is none.
	Phase int64 `json:"phase"`
	// WAF is as the verdict has it, WAFRecomputedMicro from the raw counters
	// of the same two samples, in millionths; null when not available, with
	// the reason.
	WAF                run.WAF `json:"waf"`
	WAFRecomputedMicro *int64  `json:"waf_recomputed_micro"`
	WAFReason          string  `json:"waf_reason,omitempty"`
	// IOPS are operations per second of the time at work.
	ReadIOPS  *uint64 `json:"read_iops"`
	WriteIOPS *uint64 `json:"write_iops"`
	// P99 are of the merged histograms, in nanoseconds.
	ReadP99NS  *int64 `json:"read_latency_p99_ns"`
	WriteP99NS *int64 `json:"write_latency_p99_ns"`
	// HealthPercent is 100 - percentage used at the last sample.
	HealthPercent *int64 `json:"health_percent"`
}

// Comparison sets two runs beside each other.
type Comparison struct {
	Before Measured `json:"before"`
	After  Measured `json:"after"`
	// Ratios are after over before, in millionths; null when either is not
	// available.
	WAFRatioMicro       *int64 `json:"waf_ratio_micro"`
	ReadIOPSRatioMicro  *int64 `json:"read_iops_ratio_micro"`
	WriteIOPSRatioMicro *int64 `json:"write_iops_ratio_micro"`
	ReadP99RatioMicro   *int64 `json:"read_latency_p99_ratio_micro"`
	WriteP99RatioMicro  *int64 `json:"write_latency_p99_ratio_micro"`
}

// Compare measures two runs, by ID, and sets them beside each other.
func (j *Journal) Compare(ctx context.Context, before, after string) (Comparison, error) {
	var c Comparison
	var err error
	if c.Before, err = j.Measure(ctx, before); err != nil {
		return c, err
	}
	if c.After, err = j.Measure(ctx, after); err != nil {
		return c, err
	}
	a, b := &c.After, &c.Before
	c.WAFRatioMicro = ratio(a.WAFRecomputedMicro, b.WAFRecomputedMicro)
	c.ReadIOPSRatioMicro = ratio(signed(a.ReadIOPS), signed(b.ReadIOPS))
	c.WriteIOPSRatioMicro = ratio(signed(a.WriteIOPS), signed(b.WriteIOPS))
	c.ReadP99RatioMicro = ratio(a.ReadP99NS, b.ReadP99NS)
	c.WriteP99RatioMicro = ratio(a.WriteP99NS, b.WriteP99NS)
	return c, nil
}

func signed(v *uint64) *int64 {
	if v == nil || *v > math.MaxInt64 {
		return nil
	}
	s := int64(*v)
	return &s
}

func ratio(a, b *int64) *int64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	return rounded(new(big.Int).Mul(big.NewInt(*a), big.NewInt(1e6)), big.NewInt(*b))
}

// rounded is a/b to the nearest integer, or nil when it does not fit.
func rounded(a, b *big.Int) *int64 {
	if b.Sign() <= 0 {
		return nil
	}
	q := new(big.Int).Div(new(big.Int).Add(new(big.Int).Lsh(a, 1), b), new(big.Int).Lsh(b, 1))
	if !q.IsInt64() {
		return nil
	}
	v := q.Int64()
	return &v
}

// Measure computes what a run came to from its rows, histograms and samples.
func (j *Journal) Measure(ctx context.Context, id string) (Measured, error) {
	var m Measured
	err := j.readRun(ctx, "measure", id, func(q querier, number int64) error {
		infos, err := scanRuns(ctx, q, `WHERE run_id = ?`, number)
		if err != nil {
			return err
		}
		i := &infos[0]
		m = Measured{ID: i.ID, Name: i.Header.Name, State: i.State, Serial: i.Header.Serial, Model: i.Header.Model,
			Firmware: i.Header.Firmware, CapacityBytes: i.Header.Job.CapacityBytes, TimeLapse: i.Header.Job.TimeLapse,
			Seconds: i.Seconds, HostWriteBytes: i.Totals.WriteBytes}
		if err := m.phase(ctx, q, number); err != nil {
			return err
		}
		samples, err := scanSamples(ctx, q, number, 0)
		if err != nil {
			return err
		}
		m.waf(i.Verdict, samples)
		for _, s := range samples {
			if health, ok := s.HealthPercent(); ok {
				m.HealthPercent = &health
			}
		}
		return nil
	})
	return m, err
}

// phase sums the rows of the phase that counts.
func (m *Measured) phase(ctx context.Context, q querier, number int64) error {
	err := q.QueryRowContext(ctx, `SELECT ifnull(max(CASE kind WHEN 'measure' THEN phase END), ifnull(max(phase), -1)) FROM phases
		WHERE run_id = ?1 AND phase IN (SELECT phase FROM minutes WHERE run_id = ?1)`, number).Scan(&m.Phase)
	if err != nil || m.Phase < 0 {
		return err
	}
	var active, reads, writes int64
	if err := q.QueryRowContext(ctx, `SELECT sum(active_ns), sum(read_ops), sum(write_ops) FROM minutes
		WHERE run_id = ? AND phase = ?`, number, m.Phase).Scan(&active, &reads, &writes); err != nil {
		return err
	}
	for _, d := range []struct {
		write bool
		ops   int64
		iops  **uint64
		p99   **int64
	}{{false, reads, &m.ReadIOPS, &m.ReadP99NS}, {true, writes, &m.WriteIOPS, &m.WriteP99NS}} {
		if active > 0 && d.ops > 0 {
			if v := rounded(new(big.Int).Mul(big.NewInt(d.ops), big.NewInt(1e9)), big.NewInt(active)); v != nil {
				u := uint64(*v)
				*d.iops = &u
			}
		}
		h, err := phaseLatencies(ctx, q, number, m.Phase, d.write)
		if err != nil {
			return err
		}
		if p99, ok := h.Percentile(990_000); ok {
			*d.p99 = &p99
		}
	}
	return nil
}

// phaseLatencies merges all latencies of a phase: the recorded spans, and the
// one that the last checkpoint holds open.
func phaseLatencies(ctx context.Context, q querier, number, phase int64, write bool) (*stats.Histogram, error) {
	merged := stats.NewHistogram()
	err := eachHistogram(ctx, q, number, func(h *run.Histogram, d *stats.Histogram) error {
		if int64(h.Phase) == phase && h.Write == write {
			merged.Merge(d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	cp, err := lastCheckpoint(ctx, q, number)
	if err != nil || cp == nil {
		return merged, err
	}
	for _, o := range cp.Open {
		if int64(o.Phase) != phase || o.Write != write {
			continue
		}
		d, err := stats.DecodeHistogram(o.Encoded)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		merged.Merge(d)
	}
	return merged, nil
}

// waf takes the verdict's WAF and computes it anew from the raw counters.
func (m *Measured) waf(v *run.Verdict, samples []run.Sample) {
	switch {
	case v == nil:
		m.WAFReason = "not reported: the run has no verdict"
		return
	case !v.WAF.Available:
		m.WAF, m.WAFReason = v.WAF, v.WAF.Reason
		return
	}
	m.WAF = v.WAF
	micro, err := recomputeWAF(&v.WAF, samples)
	if err != nil {
		m.WAFReason = "not computed anew: " + err.Error()
		return
	}
	m.WAFRecomputedMicro = &micro
}

// wafSamples finds the two samples that w rests on, by index; false when they
// are not there.
func wafSamples(w *run.WAF, samples []run.Sample) (first, last int, ok bool) {
	first, last = -1, -1
	for i := range samples {
		s := &samples[i]
		if s.Failure != "" {
			continue
		}
		if s.Second == w.FirstSecond && first < 0 {
			first = i
		}
		if s.Second == w.LastSecond {
			last = i
		}
	}
	return first, last, first >= 0 && last > first
}

// newEpoch returns the second at which counters stop to be comparable among
// samples; false when they are throughout.
func newEpoch(samples []run.Sample) (int64, bool) {
	prev := &samples[0]
	for i := range samples {
		s := &samples[i]
		if s.Failure != "" {
			continue
		}
		if i > 0 && !follows(prev, s) || s.Firmware != prev.Firmware || s.Format != prev.Format || s.Identity != prev.Identity {
			return s.Second, true
		}
		prev = s
	}
	return 0, false
}

// errEpochs says that a WAF is the sum over several epochs, which one division
// does not give.
var errEpochs = errors.New("the counters begin a new epoch in between")

// recomputeWAF divides what the two counters that w names have counted between
// the two samples that w rests on: media bytes by host bytes, the host counter
// as the mean of its readings before and after. The result is in millionths.
func recomputeWAF(w *run.WAF, samples []run.Sample) (int64, error) {
	first, last, ok := wafSamples(w, samples)
	if !ok {
		return 0, fmt.Errorf("the samples of seconds %d and %d are not in the journal", w.FirstSecond, w.LastSecond)
	}
	var media, host [2]*big.Int
	for i, s := range []*run.Sample{&samples[first], &samples[last]} {
		for m := range s.Media {
			for h := range s.Host {
				if w.Source == s.Media[m].Source+" / "+s.Host[h].Source {
					media[i] = bytesOf(s.Media[m].Units, s.Media[m].UnitBytes)
					host[i] = bytesOf(s.Host[h].Before, s.Host[h].UnitBytes)
					host[i].Add(host[i], bytesOf(s.Host[h].After, s.Host[h].UnitBytes))
				}
			}
		}
		if media[i] == nil {
			return 0, fmt.Errorf("the sample of second %d does not hold the counters %q", s.Second, w.Source)
		}
	}
	if second, ok := newEpoch(samples[first : last+1]); ok {
		return 0, fmt.Errorf("at second %d: %w", second, errEpochs)
	}
	written := new(big.Int).Sub(media[1], media[0])
	micro := rounded(written.Mul(written, big.NewInt(2e6)), new(big.Int).Sub(host[1], host[0]))
	if micro == nil {
		return 0, errors.New("what the counters say gives no write amplification")
	}
	return *micro, nil
}

func bytesOf(u run.Uint128, unitBytes uint64) *big.Int {
	b := u.Big()
	return b.Mul(b, new(big.Int).SetUint64(unitBytes))
}
