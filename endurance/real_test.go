package endurance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/pattern"
	"nvop/nvmeioctl/syncio"
)

// disk is a drive in real time, in memory, shared by several queues: what it
// holds is checked against what was sent.
type disk struct {
	mu      sync.Mutex
	clock   nvmeioctl.Clock
	latency time.Duration
	written map[int64]int
	bytes   atomic.Uint64
	stuck   atomic.Bool
	gone    atomic.Bool
	failLBA int64
	opened  atomic.Int32
	nilBufs atomic.Bool
}

type diskQueue struct {
	disk *disk
	out  []nvmeioctl.IOResult
	max  int
}

func (d *disk) queue(depth int) func(int) (nvmeioctl.IOQueue, error) {
	return func(int) (nvmeioctl.IOQueue, error) {
		d.opened.Add(1)
		return &diskQueue{disk: d, max: depth}, nil
	}
}

func (q *diskQueue) Depth() int   { return q.max }
func (q *diskQueue) Close() error { q.disk.opened.Add(-1); return nil }

func (q *diskQueue) Submit(r []nvmeioctl.IORequest) (int, error) {
	for i := range r {
		res := nvmeioctl.IOResult{Tag: r[i].Tag, Done: r[i].At.Add(q.disk.latency)}
		switch {
		case q.disk.gone.Load():
			res.Err = nvmeioctl.ErrDeviceGone
		case q.disk.failLBA > 0 && r[i].OffsetBytes == q.disk.failLBA*512:
			res.Status = 0x281
		case r[i].Op == nvmeioctl.OpWrite:
			if len(r[i].Buf) != int(r[i].LengthBytes) {
				q.disk.nilBufs.Store(true)
			}
			q.disk.mu.Lock()
			q.disk.written[r[i].OffsetBytes]++
			q.disk.mu.Unlock()
			q.disk.bytes.Add(uint64(r[i].LengthBytes))
		}
		q.out = append(q.out, res)
	}
	return len(r), nil
}

func (q *diskQueue) Reap(res []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	clock := q.disk.clock
	for len(q.out) != 0 {
		now := clock.Now()
		n := 0
		for !q.disk.stuck.Load() && n < len(res) && n < len(q.out) && q.out[n].Done <= now {
			res[n] = q.out[n]
			res[n].Done = now
			n++
		}
		if n != 0 {
			q.out = append(q.out[:0], q.out[n:]...)
			return n, nil
		}
		if now >= until {
			return 0, nil
		}
		_ = clock.Sleep(context.Background(), min(time.Millisecond, until.Sub(now)))
	}
	return 0, nil
}

func newDisk() *disk {
	return &disk{clock: nvmeioctl.NewSystemClock(), latency: 2 * time.Millisecond, written: map[int64]int{}}
}

func realJob() run.Job {
	j := testJob(run.PatternRandom)
	j.CapacityBytes = 4096 * 2000
	j.Phases[0].Depth = 4
	j.Phases[0].End = run.End{Passes: 1}
	j.Phases[0].BlockBytes = 4096
	return j
}

func TestRun_coversAndCounts(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	job := realJob()
	job.Pin = true
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if len(d.written) != 2000 || v.Totals.WriteBytes != d.bytes.Load() || v.Totals.WriteOps != 2000 {
		t.Errorf("%d blocks, totals %+v, received %d bytes", len(d.written), v.Totals, d.bytes.Load())
	}
	if v.ExitCode != 0 || v.State != run.StateFinished || d.opened.Load() != 0 || d.nilBufs.Load() {
		t.Errorf("exit %d, %s, %d queues left open, buffers missing: %v", v.ExitCode, v.State, d.opened.Load(), d.nilBufs.Load())
	}
	if p, _ := v.Measured(); p.Write.MinNS < 2_000_000 || p.Write.Operations != 2000 {
		t.Errorf("latencies %+v", p.Write)
	}
}

// Ctrl-C, then resume: nothing twice, nothing missing.
func TestRun_interruptedAndResumed(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	job := realJob()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	v, err := Run(ctx, Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if v.State != run.StateInterrupted || v.ExitCode != run.ExitInterrupted || v.Totals.WriteBytes != d.bytes.Load() || v.Totals.WriteOps == 0 {
		t.Fatalf("%s, exit %d, totals %+v, received %d", v.State, v.ExitCode, v.Totals, d.bytes.Load())
	}
	cp := m.cp
	v, err = Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock, Resume: &cp})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if v.Totals.WriteOps != 2000 || len(d.written) != 2000 {
		t.Errorf("%d operations, %d blocks", v.Totals.WriteOps, len(d.written))
	}
	for offset, n := range d.written {
		if n != 1 {
			t.Errorf("offset %d was written %d times", offset, n)
		}
	}
	if len(m.gaps) != 1 || m.gaps[0].Reason != "resumed after an interruption" || m.gaps[0].UncountedOpsMax != 0 {
		t.Errorf("gaps %+v", m.gaps)
	}
}

// Cases B12, E2, E3: an operation that fails is counted apart, listed with its
// LBA and status, and the run does not pass.
func TestRun_failedOperation(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	d.failLBA = 80
	v, err := Run(context.Background(), Config{Job: realJob(), Recorder: m, Queues: d.queue(4), Clock: d.clock})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if v.Totals.WriteOps != 1999 || v.Totals.WriteErrors != 1 || v.ExitCode != run.ExitLimits {
		t.Errorf("%+v, exit %d", v.Totals, v.ExitCode)
	}
	found := false
	for _, e := range m.events {
		found = found || e.Kind == run.EventIOError && e.LBA == 80 && e.Blocks == 8 && e.Status == 0x281 && e.Op == "write"
	}
	if !found {
		t.Errorf("no event names LBA 80: %+v", m.events)
	}
}

// A drive that vanishes: the run is interrupted, resumable, exit 7.
func TestRun_driveGone(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	time.AfterFunc(200*time.Millisecond, func() { d.gone.Store(true) })
	job := realJob()
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock})
	if !errors.Is(err, nvmeioctl.ErrDeviceGone) || v.ExitCode != run.ExitInterrupted || v.State != run.StateInterrupted {
		t.Fatalf("%v, exit %d, %s", err, v.ExitCode, v.State)
	}
	m.check(t)
	d.gone.Store(false)
	cp := m.cp
	v, err = Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock, Resume: &cp})
	if err != nil || v.Totals.WriteOps != 2000 || len(d.written) != 2000 {
		t.Errorf("%v, %+v, %d blocks", err, v.Totals, len(d.written))
	}
	m.check(t)
}

// Case E6: nothing completes. It is said, rows go on, and when it moves again
// that is said too.
func TestRun_stalled(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	job := realJob()
	job.StallNS = second1
	time.AfterFunc(300*time.Millisecond, func() { d.stuck.Store(true) })
	time.AfterFunc(3200*time.Millisecond, func() { d.stuck.Store(false) })
	if _, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock}); err != nil {
		t.Fatal(err)
	}
	m.check(t)
	var kinds []run.EventKind
	for _, e := range m.events {
		if e.Kind == run.EventStalled || e.Kind == run.EventMoving {
			kinds = append(kinds, e.Kind)
		}
	}
	if len(kinds) != 2 || kinds[0] != run.EventStalled || kinds[1] != run.EventMoving {
		t.Errorf("events %v", kinds)
	}
	stalled := 0
	for _, r := range m.rows {
		if r.Flags&run.FlagStalled != 0 {
			stalled++
		}
	}
	if stalled < 1 {
		t.Errorf("%d rows are marked as stalled", stalled)
	}
}

// sleepy is a sampler that takes its time, or never answers.
type sleepy struct {
	wait  time.Duration
	count atomic.Int32
}

func (s *sleepy) Sample(ctx context.Context) (run.Sample, error) {
	s.count.Add(1)
	select {
	case <-time.After(s.wait):
		return run.Sample{TemperatureKelvin: 313}, nil
	case <-ctx.Done():
		return run.Sample{}, ctx.Err()
	}
}

// Case E4: health that answers slowly holds nothing up. A duration ends on time
// with a row a second.
func TestRun_slowHealthDelaysNothing(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	job := realJob()
	job.Phases[0].Pattern, job.Phases[0].End = run.PatternReplacement, run.End{DurationNS: 2 * second1}
	job.SampleIntervalNS = second1
	s := &sleepy{wait: 400 * time.Millisecond}
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock, Sampler: s})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if n := len(m.rows); n != 3 && n != 4 {
		t.Errorf("%d rows for 2 s, what was outstanding and the first sample", n)
	}
	if p, _ := v.Measured(); p.ActiveNS < 15*second1/10 || p.ActiveNS > 22*second1/10 {
		t.Errorf("measured for %d ns", p.ActiveNS)
	}
	if s.count.Load() < 3 || len(m.samples) != int(s.count.Load()) {
		t.Errorf("%d samples asked for, %d recorded", s.count.Load(), len(m.samples))
	}
	for _, r := range m.rows[1:] {
		if r.TemperatureCelsius != 40 || !r.TemperatureAvailable {
			t.Errorf("second %d: %d degrees, %v", r.Second, r.TemperatureCelsius, r.TemperatureAvailable)
		}
	}
}

// The journal is cut while the threads work: what is resumed ends with the
// totals of an uninterrupted run, and blocks are written again only within the
// reserved window.
func TestRun_resumesAfterACut(t *testing.T) {
	t.Parallel()
	const cut = 2
	d, m := newDisk(), &memory{cutAfter: cut}
	job := realJob()
	job.Phases[0].End = run.End{Passes: 2}
	_, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock})
	if !errors.Is(err, errCut) {
		t.Fatalf("cut %d: %v", cut, err)
	}
	m.check(t)
	cp := m.cp
	m.cutAfter = 0
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock, Resume: &cp})
	if err != nil {
		t.Fatalf("cut %d: %v", cut, err)
	}
	m.check(t)
	if v.Totals.WriteOps != 4000 || len(d.written) != 2000 {
		t.Errorf("cut %d: %+v, %d blocks", cut, v.Totals, len(d.written))
	}
	extra := uint64(0)
	for offset, n := range d.written {
		if n < 2 {
			t.Fatalf("cut %d: offset %d was written %d times", cut, offset, n)
		}
		extra += uint64(n - 2)
	}
	if extra > m.gaps[0].UncountedOpsMax || m.gaps[0].Reason != "resumed after a crash" {
		t.Errorf("cut %d: %d written again, gap %+v", cut, extra, m.gaps[0])
	}
}

// Down to the bytes: a plain file holds, after two passes, what (seed, LBA,
// generation) say it must.
func TestRun_writesWhatItShould(t *testing.T) {
	t.Parallel()
	const blocks = 300
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 4096*blocks+512), 0o600); err != nil {
		t.Fatal(err)
	}
	clock, m := nvmeioctl.NewSystemClock(), &memory{}
	job := realJob()
	job.CapacityBytes = 4096*blocks + 512
	job.Phases[0].End = run.End{Passes: 2}
	queues := func(int) (nvmeioctl.IOQueue, error) {
		return syncio.Open(path, syncio.Options{Depth: 4, Write: true, Clock: clock, Direct: syncio.DirectOff})
	}
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: queues, Clock: clock, StartWallUnixNS: 77})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if v.Totals.WriteBytes != 2*job.CapacityBytes {
		t.Errorf("%+v", v.Totals)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, job.CapacityBytes)
	source, err := pattern.New(pattern.Config{Run: run.DataRun(77, job.Seed, ""), Seed: job.Seed, BlockBytes: 512})
	if err != nil {
		t.Fatal(err)
	}
	source.Fill(want, 0, 2)
	if !bytes.Equal(got, want) {
		t.Error("the file does not hold the second pass's generation")
	}
}

// witness is an observer.
type witness struct{ seen []run.Progress }

func (w *witness) Progress(p *run.Progress) { w.seen = append(w.seen, *p) }

func TestRun_progress(t *testing.T) {
	t.Parallel()
	d, m, w := newDisk(), &memory{}, &witness{}
	job := realJob()
	job.Phases[0].End = run.End{Passes: 4}
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock, Observer: w})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.seen) < 2 {
		t.Fatalf("%d reports", len(w.seen))
	}
	last, ops := w.seen[len(w.seen)-1], uint64(0)
	if last.State != run.StateFinished || last.DonePermille != 1000 || last.Totals != v.Totals {
		t.Errorf("the last report is %+v", last)
	}
	for _, p := range w.seen {
		if p.Totals.WriteOps < ops || p.DonePermille < 0 || p.DonePermille > 1000 || p.LeftNS < run.NotAvailable {
			t.Errorf("report %+v after %d operations", p, ops)
		}
		ops = p.Totals.WriteOps
	}
}
