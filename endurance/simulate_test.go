package endurance

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

func virtualClock() *nvmeioctl.VirtualClock {
	return nvmeioctl.NewVirtualClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
}

func simulate(t *testing.T, cfg Config, w *world, clock *nvmeioctl.VirtualClock) (run.Verdict, error) {
	t.Helper()
	cfg.Queues = func(int) (nvmeioctl.IOQueue, error) { return w.queue(cfg.Job.MaxDepth()), nil }
	return Simulate(context.Background(), cfg, clock)
}

// Sequential, then random passes: every block exactly once a pass, the tail
// included, no two writes of a block in flight, rows and totals in agreement
// with what the drive received.
func TestSimulate_coversAndCounts(t *testing.T) {
	for _, workers := range []uint32{1, 2, 5} {
		w, m := newWorld(), &memory{}
		job := testJob(run.PatternSequential, run.PatternRandom)
		job.Workers = workers
		v, err := simulate(t, Config{Job: job, Recorder: m, CheckpointOps: 500}, w, virtualClock())
		if err != nil {
			t.Fatal(err)
		}
		m.check(t)
		if len(w.written) != 1001 {
			t.Errorf("%d blocks were written of 1001", len(w.written))
		}
		for offset, n := range w.written {
			if n != 6 {
				t.Fatalf("offset %d was written %d times of 6", offset, n)
			}
		}
		if w.overlap {
			t.Error("two writes of one block were in flight")
		}
		if v.Totals.WriteBytes != w.bytes || v.Totals.WriteBytes != 6*(4096*1000+512) || v.Totals.WriteOps != 6006 {
			t.Errorf("totals %+v, the drive received %d bytes", v.Totals, w.bytes)
		}
		if v.State != run.StateFinished || v.ExitCode != 0 {
			t.Errorf("%s, exit %d", v.State, v.ExitCode)
		}
		if m.verdict == nil || m.cp.State != run.StateFinished {
			t.Errorf("the journal ends with %s, verdict %v", m.cp.State, m.verdict)
		}
	}
}

// The rate is what the drive can do, whatever the time lapse, and Little's law holds.
func TestSimulate_rateAndLapse(t *testing.T) {
	for _, lapse := range []uint32{1, 7, 1000} {
		w, m := newWorld(), &memory{}
		job := testJob(run.PatternReplacement)
		job.CapacityBytes = 4096 * 1000 * uint64(lapse)
		job.TimeLapse = lapse
		job.Phases[0].Depth = 16
		job.Phases[0].End = run.End{DurationNS: int64(lapse) * second1 / 5}
		clock := virtualClock()
		v, err := simulate(t, Config{Job: job, Recorder: m}, w, clock)
		if err != nil {
			t.Fatal(err)
		}
		m.check(t)
		p, _ := v.Measured()
		if p.WriteIOPS < 495_000 || p.WriteIOPS > 500_100 {
			t.Errorf("lapse %d: %d IOPS of 500000", lapse, p.WriteIOPS)
		}
		if p.LittlePermille < 990 || p.LittlePermille > 1010 {
			t.Errorf("lapse %d: Little's law gives %d thousandths", lapse, p.LittlePermille)
		}
		if v.Totals.WriteBytes != w.bytes*uint64(lapse) {
			t.Errorf("lapse %d: %d bytes counted, the drive received %d", lapse, v.Totals.WriteBytes, w.bytes)
		}
		wantRows := max(int64(lapse)/5+1, 1)
		if n := int64(len(m.rows)); n < wantRows || n > wantRows+2 {
			t.Errorf("lapse %d: %d rows, %d seconds", lapse, n, wantRows)
		}
		if p.Write.P50NS < 60_000 || p.Write.P50NS > 75_000 {
			t.Errorf("lapse %d: median latency %d", lapse, p.Write.P50NS)
		}
	}
}

// L5: one seed, one history, byte for byte.
func TestSimulate_isDeterministic(t *testing.T) {
	logOf := func(seed uint64) []byte {
		w, m := newWorld(), &memory{}
		job := testJob(run.PatternSequential, run.PatternRandom, run.PatternReplacement)
		job.Seed, job.TimeLapse, job.CapacityBytes = seed, 3, 3*4096*1000+3*512
		job.Phases[1].ReadPercent = 30
		job.Phases[1].Kind = run.PhaseWarmUp
		job.Phases[2].End = run.End{DriveWritesMilli: 2500}
		if _, err := simulate(t, Config{Job: job, Recorder: m, CheckpointOps: 300}, w, virtualClock()); err != nil {
			t.Fatal(err)
		}
		m.check(t)
		return m.log
	}
	a, b := logOf(1), logOf(1)
	if !bytes.Equal(a, b) {
		t.Error("two runs with one seed differ")
	}
	if bytes.Equal(a, logOf(2)) {
		t.Error("the seed changes nothing")
	}
}

// Cut the journal after every possible commit, then resume: the totals are those
// of an uninterrupted run, every block is written as often, and again only
// within the reserved window.
func TestSimulate_resumesAfterACut(t *testing.T) {
	const lapse, blocks = 10_000, 1001
	job := testJob(run.PatternSequential, run.PatternRandom)
	job.TimeLapse, job.CapacityBytes = lapse, lapse*(4096*(blocks-1)+512)
	config := func(m *memory) Config { return Config{Job: job, Recorder: m, CheckpointOps: 100} }
	whole := &memory{}
	if _, err := simulate(t, config(whole), newWorld(), virtualClock()); err != nil {
		t.Fatal(err)
	}
	if whole.commits < 30 {
		t.Fatalf("only %d commits to cut at", whole.commits)
	}
	again := 0
	for cut := 1; cut < whole.commits; cut++ {
		w, m, clock := newWorld(), &memory{cutAfter: cut}, virtualClock()
		if _, err := simulate(t, config(m), w, clock); !errors.Is(err, errCut) {
			t.Fatalf("cut %d: %v", cut, err)
		}
		m.check(t)
		before := m.cp
		m.cutAfter = 0
		cfg := config(m)
		cfg.Resume = &before
		v, err := simulate(t, cfg, w, clock)
		if err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
		m.check(t)
		if v.Totals.Counts != whole.cp.Totals.Counts {
			t.Errorf("cut %d: totals %+v, uninterrupted %+v", cut, v.Totals.Counts, whole.cp.Totals.Counts)
		}
		if len(m.gaps) != 1 || m.gaps[0].Reason != "resumed after a crash" {
			t.Errorf("cut %d: gaps %+v", cut, m.gaps)
		}
		// A window that reaches into another pass may hold a block twice.
		most := 1 + int(before.ReservedHigh/blocks-before.LowWater/blocks)
		extra := uint64(0)
		for offset, n := range w.written {
			if n < 6 || n > 6+most {
				t.Fatalf("cut %d: offset %d was written %d times; window %d to %d", cut, offset, n, before.LowWater, before.ReservedHigh)
			}
			extra += uint64(n - 6)
		}
		if len(w.written) != blocks || extra > m.gaps[0].UncountedOpsMax {
			t.Errorf("cut %d: %d blocks, %d written again of at most %d", cut, len(w.written), extra, m.gaps[0].UncountedOpsMax)
		}
		again += int(extra)
	}
	if again == 0 {
		t.Error("no cut lost anything: the test cannot fail")
	}
}

// teller counts what it is told.
type teller struct{ reports int }

func (o *teller) Progress(*run.Progress) { o.reports++ }

// A second of a drive's clock that takes minutes of the machine's: where the run
// stands is told meanwhile, and who ends it does not wait for the second's end.
func TestSimulate_interruptedWithinASecond(t *testing.T) {
	w, m, o := newWorld(), &memory{}, &teller{}
	w.service, w.latency = 1, 1 // a thousand million operations a second
	job := testJob(run.PatternRandom)
	job.Phases[0].End = run.End{DurationNS: 3600 * second1}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	time.AfterFunc(1500*time.Millisecond, stop)
	began := time.Now()
	cfg := Config{Job: job, Recorder: m, Observer: o, Queues: func(int) (nvmeioctl.IOQueue, error) { return w.queue(job.MaxDepth()), nil }}
	v, err := Simulate(ctx, cfg, virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if v.State != run.StateInterrupted || v.ExitCode != run.ExitInterrupted || v.Totals.WriteOps == 0 {
		t.Errorf("%s, exit code %d, after %d operations", v.State, v.ExitCode, v.Totals.WriteOps)
	}
	if took := time.Since(began); took > 20*time.Second || len(m.rows) > 5 {
		t.Errorf("it took %s and %d rows", took, len(m.rows))
	}
	if o.reports < 2 {
		t.Errorf("it was told %d times where the run stands", o.reports)
	}
}

// What happens on the way to the drive is an event of the run, once.
func TestSimulate_recordsWhatHappensOnThePath(t *testing.T) {
	w, m := newWorld(), &memory{}
	asked := 0
	path := func() []string {
		if asked++; asked == 2 {
			return []string{"0000:01:00.0: link is 8 GT/s x4, was 16 GT/s x4"}
		}
		return nil
	}
	health := &canned{samples: []run.Sample{{TemperatureKelvin: 300}}}
	cfg := Config{Job: testJob(run.PatternSequential, run.PatternRandom), Recorder: m, Sampler: health, Path: path}
	if _, err := simulate(t, cfg, w, virtualClock()); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range m.events {
		if e.Kind == run.EventLink {
			found = append(found, e.Text)
		}
	}
	if asked < 2 || len(found) != 1 || found[0] != "0000:01:00.0: link is 8 GT/s x4, was 16 GT/s x4" {
		t.Errorf("asked %d times; events of the path: %q", asked, found)
	}
}
