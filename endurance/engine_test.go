package endurance

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Nothing on the path of an operation is allocated: fill, submit, reap, account,
// whatever the pattern, with contents and without.
func TestStep_allocatesNothing(t *testing.T) {
	for _, pattern := range []run.Pattern{run.PatternSequential, run.PatternRandom, run.PatternReplacement} {
		for _, contents := range []bool{false, true} {
			job := benchJob(1, pattern, 1<<40)
			job.Phases[0].ReadPercent = 30
			job.Phases[0].Depth = 64
			st, err := newStage(&job, 0)
			if err != nil {
				t.Fatal(err)
			}
			tr := &track{lanes: make([]lane, 1)}
			tr.high.Store(1 << 60)
			if tr.source, err = newSource(&job, 1, ""); err != nil {
				t.Fatal(err)
			}
			var q nvmeioctl.IOQueue = newRing(64)
			if contents {
				q = struct{ nvmeioctl.IOQueue }{q} // no longer a DataDiscarder
			}
			w := newWorker(0, 64, 32, q, tr)
			if err := w.equip(&job); err != nil {
				t.Fatal(err)
			}
			w.rowEnd, w.tally = nvmeioctl.Never, newTally(0, 64)
			if err := w.begin(st, job.LBABytes, run.WorkerMark{}, 0, 0, nvmeioctl.Never); err != nil {
				t.Fatal(err)
			}
			if n := testing.AllocsPerRun(300, func() { w.step(nvmeioctl.Never - 1) }); n != 0 {
				t.Errorf("%s, contents %v: %v allocations a step", pattern, contents, n)
			}
			if w.tally.ops[dirRead] == 0 || w.tally.ops[dirWrite] == 0 {
				t.Errorf("%s: nothing happened", pattern)
			}
			for w.outstanding > 0 {
				tr.stop.Store(true)
				w.step(nvmeioctl.Never - 1)
			}
			if err := w.release(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Case A4, and the mix: with replacement no two writes of one block are ever in
// flight, and reads are exactly as many as asked for.
func TestSimulate_replacementNeverOverlaps(t *testing.T) {
	w, m := newWorld(), &memory{}
	job := testJob(run.PatternReplacement)
	job.CapacityBytes = 4096 * 100
	job.Phases[0].Depth, job.Phases[0].ReadPercent = 20, 40
	job.Phases[0].End = run.End{Bytes: 60 * 4096 * 100}
	v, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if w.overlap {
		t.Error("two writes of one block were in flight")
	}
	if total := v.Totals.Ops(); total != 10_100 || v.Totals.ReadOps != 4040 {
		t.Errorf("%d operations, %d reads", total, v.Totals.ReadOps)
	}
	if v.Totals.WriteBytes < job.Phases[0].End.Bytes {
		t.Errorf("%d bytes written of %d", v.Totals.WriteBytes, job.Phases[0].End.Bytes)
	}
}

// canned is a sampler that gives one sample after the other, then the last.
type canned struct {
	samples []run.Sample
	next    int
}

func (c *canned) Sample(context.Context) (run.Sample, error) {
	s := c.samples[min(c.next, len(c.samples)-1)]
	c.next++
	if s.Failure != "" {
		return s, errors.New(s.Failure)
	}
	return s, nil
}

// Every stop rule ends the run, by name, with the exit code of a goal or of a
// limit, and everything in order.
func TestSimulate_stopRules(t *testing.T) {
	start := run.Sample{TemperatureKelvin: 300, SparePercent: 100, SpareThresholdPercent: 10, SpareAvailable: true, MediaErrors: run.U128(7), CriticalWarning: 4}
	later := func(change func(*run.Sample)) []run.Sample {
		s := start
		change(&s)
		return []run.Sample{start, s}
	}
	for _, c := range []struct {
		rule    run.StopRule
		samples []run.Sample
		exit    int
	}{
		{run.StopRule{Kind: run.StopBytes, Limit: 4096 * 5000}, nil, 0},
		{run.StopRule{Kind: run.StopDriveWrites, Limit: 2500}, nil, 0},
		{run.StopRule{Kind: run.StopDuration, Limit: 3 * second1}, nil, 0},
		{run.StopRule{Kind: run.StopPercentageUsed, Limit: 3}, later(func(s *run.Sample) { s.PercentageUsed = 3 }), 0},
		{run.StopRule{Kind: run.StopSpare, Limit: 20}, later(func(s *run.Sample) { s.SparePercent = 20 }), 3},
		{run.StopRule{Kind: run.StopTemperature, Limit: 70}, later(func(s *run.Sample) { s.TemperatureKelvin = 343 }), 3},
		{run.StopRule{Kind: run.StopMediaErrors, Limit: 2}, later(func(s *run.Sample) { s.MediaErrors = run.U128(9) }), 3},
		{run.StopRule{Kind: run.StopCriticalWarning, Limit: 6}, later(func(s *run.Sample) { s.CriticalWarning = 6 }), 3},
		{run.StopRule{Kind: run.StopLatency, Limit: 10_000}, nil, 3},
	} {
		t.Run(string(c.rule.Kind), func(t *testing.T) {
			w, m := newWorld(), &memory{}
			job := testJob(run.PatternReplacement)
			job.TimeLapse, job.CapacityBytes = 1000, 1000*4096*1000
			job.SampleIntervalNS = 2 * second1
			job.Phases[0].End = run.End{DurationNS: 3600 * second1}
			job.Stops = []run.StopRule{c.rule}
			if c.rule.Kind == run.StopBytes {
				job.Stops[0].Limit *= 1000
			}
			if c.rule.Kind == run.StopDuration {
				job.Phases[0].End = run.End{DriveWritesMilli: 1_000_000}
			}
			if c.samples == nil {
				c.samples = []run.Sample{start}
			}
			v, err := simulate(t, Config{Job: job, Recorder: m, Sampler: &canned{samples: c.samples}}, w, virtualClock())
			if err != nil {
				t.Fatal(err)
			}
			m.check(t)
			if v.State != run.StateStopped || v.ExitCode != c.exit || !strings.HasPrefix(v.Reason, c.rule.Kind.Term()+" ") {
				t.Errorf("%s, exit %d, %q, notes %q", v.State, v.ExitCode, v.Reason, v.Notes)
			}
			if len(v.Limits) != 1 || !v.Limits[0].Reached || !v.Limits[0].Available {
				t.Errorf("limits %+v", v.Limits)
			}
			if len(m.rows) > 40 {
				t.Errorf("it went on for %d rows", len(m.rows))
			}
			if v.Totals.WriteBytes != w.bytes*1000 {
				t.Errorf("%d bytes counted, %d received", v.Totals.WriteBytes, w.bytes)
			}
		})
	}
}

// Where a drive reports nothing nothing is judged, and the verdict says so.
func TestSimulate_ruleThatCannotBeJudged(t *testing.T) {
	job := testJob(run.PatternSequential)
	job.Stops = []run.StopRule{{Kind: run.StopSpare, Limit: 20}}
	v, err := simulate(t, Config{Job: job, Recorder: &memory{}, Sampler: &canned{samples: []run.Sample{{}}}}, newWorld(), virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	if v.State != run.StateFinished || v.ExitCode != 0 || v.Limits[0].Available || len(v.Notes) == 0 || !strings.Contains(v.Notes[0], "never judged") {
		t.Errorf("%s, exit %d, limits %+v, notes %q", v.State, v.ExitCode, v.Limits, v.Notes)
	}
	if v.WAF.Available || v.WAF.Reason == "" {
		t.Errorf("WAF %+v", v.WAF)
	}
}

// A drive that develops media errors does not pass, rule or no rule.
func TestSimulate_mediaErrorsDoNotPass(t *testing.T) {
	job := testJob(run.PatternSequential)
	samples := []run.Sample{{MediaErrors: run.U128(1)}, {MediaErrors: run.U128(2), ThermalTransitions: 3}}
	v, err := simulate(t, Config{Job: job, Recorder: &memory{}, Sampler: &canned{samples: samples}}, newWorld(), virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	if v.ExitCode != run.ExitLimits || v.Deltas.MediaErrors != run.U128(1) || len(v.Notes) != 2 {
		t.Errorf("exit %d, deltas %+v, notes %q", v.ExitCode, v.Deltas, v.Notes)
	}
}

// A failed reading is an event; it neither ends the run nor counts as zero.
func TestSimulate_failedSample(t *testing.T) {
	m := &memory{}
	job := testJob(run.PatternSequential)
	c := &canned{samples: []run.Sample{{Failure: "no answer"}, {PercentageUsed: 5}}}
	v, err := simulate(t, Config{Job: job, Recorder: m, Sampler: c}, newWorld(), virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.samples) != 2 || m.samples[0].Failure == "" || v.HealthPercent != 95 || m.cp.First.PercentageUsed != 5 {
		t.Errorf("samples %+v, health %d", m.samples, v.HealthPercent)
	}
}

// Errors are counted apart, bounded in number, and rows still add up.
func TestSimulate_errorStorm(t *testing.T) {
	w, m := newWorld(), &memory{}
	w.fail = func(n uint64) (nvmespec.Status, error) {
		if n%3 == 0 {
			return 0x4002, nil
		}
		return 0, nil
	}
	v, err := simulate(t, Config{Job: testJob(run.PatternRandom), Recorder: m}, w, virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if v.Totals.WriteErrors != 1001 || v.Totals.WriteOps != 2002 || v.ExitCode != run.ExitLimits || v.Totals.WriteBytes != w.bytes {
		t.Errorf("%+v, exit %d", v.Totals, v.ExitCode)
	}
	listed, counted := 0, uint64(0)
	for _, e := range m.events {
		if e.Kind == run.EventIOError {
			listed++
			counted += e.Count
		}
	}
	if counted != 1001 || listed > 2*(errorsKept+1) {
		t.Errorf("%d events for %d errors", listed, counted)
	}
}

func TestSimulate_driveGone(t *testing.T) {
	w, m, clock := newWorld(), &memory{}, virtualClock()
	w.fail = func(n uint64) (nvmespec.Status, error) {
		if n > 1500 {
			return 0, nvmeioctl.ErrDeviceGone
		}
		return 0, nil
	}
	job := testJob(run.PatternRandom)
	v, err := simulate(t, Config{Job: job, Recorder: m}, w, clock)
	if !errors.Is(err, nvmeioctl.ErrDeviceGone) || v.ExitCode != run.ExitInterrupted || m.cp.State != run.StateInterrupted {
		t.Fatalf("%v, exit %d, %s", err, v.ExitCode, m.cp.State)
	}
	m.check(t)
	w.fail = nil
	cp := m.cp
	v, err = simulate(t, Config{Job: job, Recorder: m, Resume: &cp}, w, clock)
	if err != nil || v.Totals.WriteOps != 3003 {
		t.Errorf("%v, %+v", err, v.Totals)
	}
	m.check(t)
	for offset, n := range w.written {
		if n != 3 {
			t.Fatalf("offset %d was written %d times", offset, n)
		}
	}
}

// Anything at or above the committed mark must not have been submitted, at any
// time, in any pattern.
func TestSimulate_neverBeyondTheMark(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, m := newWorld(), &memory{}
		job := testJob(rapid.SampledFrom([]run.Pattern{run.PatternSequential, run.PatternRandom, run.PatternReplacement}).Draw(rt, "pattern"))
		job.Seed = rapid.Uint64().Draw(rt, "seed")
		job.Workers = rapid.Uint32Range(1, 4).Draw(rt, "workers")
		job.TimeLapse = rapid.Uint32Range(1, 50_000).Draw(rt, "lapse")
		job.CapacityBytes = uint64(job.TimeLapse) * 4096 * 150
		job.Phases[0].Depth = rapid.Uint32Range(1, 16).Draw(rt, "depth")
		job.Phases[0].ReadPercent = rapid.SampledFrom([]uint8{0, 50}).Draw(rt, "reads")
		job.Phases[0].End = run.End{DriveWritesMilli: 3000}
		r := &watcher{memory: m, world: w}
		cfg := Config{Job: job, Recorder: r, CheckpointOps: rapid.SampledFrom([]uint64{1, 7, 100, 300}).Draw(rt, "checkpoint")}
		if _, err := simulate(t, cfg, w, virtualClock()); err != nil {
			rt.Fatal(err)
		}
		m.check(t)
		if r.beyond != "" {
			rt.Fatal(r.beyond)
		}
	})
}

// watcher checks at each commit that no more operations have arrived than the
// mark before allowed.
type watcher struct {
	*memory
	world  *world
	beyond string
}

func (w *watcher) Commit(ctx context.Context, b *run.Batch) error {
	// The engine is held up at the mark while this commit is under way, so what
	// has arrived is bounded by the mark that was committed before it.
	if w.memory.cp.Number != 0 && b.Checkpoint.Phase == w.memory.cp.Phase && w.world.ops.Load() > w.memory.cp.ReservedHigh {
		w.beyond = "more operations arrived than the committed mark allows"
	}
	return w.memory.Commit(ctx, b)
}

func TestPoll(t *testing.T) {
	p := newPoll(10)
	var taken []int64
	units := uint64(0)
	for second := range int64(400) {
		if second%60 == 7 {
			units++ // a counter that changes once a minute
		}
		if p.due(second) {
			taken = append(taken, second)
			p.taken(second, &run.Sample{Media: []run.MediaCounter{{Units: run.U128(units)}}})
		}
	}
	near, total := 0, 0
	for _, s := range taken {
		if s < 200 {
			continue // it has to learn the period first
		}
		total++
		if s%60 == 7 {
			near++
		}
	}
	if near != 3 || total > 60 {
		t.Errorf("of %d readings %d hit one of three edges: %v", total, near, taken)
	}
	for i := 1; i < len(taken); i++ {
		if d := taken[i] - taken[i-1]; d < 1 || d > 10 {
			t.Errorf("readings %d s apart", d)
		}
	}
	// A counter that changes all the time is read at the steady interval.
	p = newPoll(10)
	n := 0
	for second := range int64(100) {
		if p.due(second) {
			n++
			p.taken(second, &run.Sample{Media: []run.MediaCounter{{Units: run.U128(uint64(second))}}})
		}
	}
	if n != 10 {
		t.Errorf("%d readings in 100 s", n)
	}
}

// quitter asks the run to end after so many commits, as Ctrl-C does.
type quitter struct {
	*memory
	after int
	quit  context.CancelFunc
}

func (q *quitter) Commit(ctx context.Context, b *run.Batch) error {
	if q.memory.commits >= q.after {
		q.quit()
	}
	return q.memory.Commit(ctx, b)
}

// Interrupted again and again, and resumed: nothing is written twice, and a
// phase that lasts for a time lasts no longer.
func TestSimulate_interruptedAndResumed(t *testing.T) {
	w, m, clock := newWorld(), &memory{}, virtualClock()
	job := testJob(run.PatternRandom, run.PatternReplacement)
	job.TimeLapse, job.CapacityBytes = 10_000, 10_000*(4096*1000)
	job.Phases[1].End = run.End{DurationNS: 100 * second1}
	var resume *run.Checkpoint
	sessions := 0
	for ; sessions < 200; sessions++ {
		ctx, cancel := context.WithCancel(context.Background())
		q := &quitter{memory: m, after: m.commits + 3, quit: cancel}
		cfg := Config{Job: job, Recorder: q, CheckpointOps: 60, Resume: resume}
		cfg.Queues = func(int) (nvmeioctl.IOQueue, error) { return w.queue(cfg.Job.MaxDepth()), nil }
		v, err := Simulate(ctx, cfg, clock)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		m.check(t)
		if v.Totals.WriteBytes != w.bytes*10_000 {
			t.Fatalf("session %d: %d bytes counted, %d received", sessions, v.Totals.WriteBytes, w.bytes)
		}
		if v.State == run.StateFinished {
			break
		}
		if v.State != run.StateInterrupted || v.ExitCode != run.ExitInterrupted {
			t.Fatalf("session %d: %s, exit %d", sessions, v.State, v.ExitCode)
		}
		cp := m.cp
		resume = &cp
	}
	if sessions < 5 || len(m.cp.Results) != 2 {
		t.Fatalf("%d sessions, %d phases", sessions, len(m.cp.Results))
	}
	if r := m.cp.Results[0]; r.Totals.WriteOps != 3000*10_000 {
		t.Errorf("random passes: %+v", r.Totals)
	}
	// Each session ends with a drain, of up to 1 s of a calendar this fast.
	if r := m.cp.Results[1]; r.ActiveNS < 100*second1 || r.ActiveNS > int64(102+2*sessions)*second1 {
		t.Errorf("%d ns of 100 s in %d sessions", r.ActiveNS, sessions)
	}
}

// A queue that does not do what it promises ends the run; nothing panics.
func TestSimulate_brokenQueue(t *testing.T) {
	for name, q := range map[string]nvmeioctl.IOQueue{
		"completes what it was not given": &broken{tag: 99},
		"takes less than it should":       &broken{takes: 1},
		"cannot be reaped":                &broken{reapErr: errors.New("ring is gone")},
		"cannot be submitted to":          &broken{submitErr: errors.New("ring is full")},
	} {
		m := &memory{}
		job := testJob(run.PatternSequential)
		job.Workers = 1
		cfg := Config{Job: job, Recorder: m, Queues: func(int) (nvmeioctl.IOQueue, error) { return q, nil }}
		v, err := Simulate(context.Background(), cfg, virtualClock())
		if err == nil || v.ExitCode != run.ExitInterrupted || m.cp.State != run.StateInterrupted {
			t.Errorf("%s: %v, exit %d, %s", name, err, v.ExitCode, m.cp.State)
		}
		m.check(t)
	}
	cfg := Config{Job: testJob(run.PatternSequential), Recorder: &memory{}, Queues: func(int) (nvmeioctl.IOQueue, error) { return nil, errCut }}
	if _, err := Simulate(context.Background(), cfg, virtualClock()); !errors.Is(err, errCut) {
		t.Errorf("a queue that cannot be opened: %v", err)
	}
	if _, err := Run(context.Background(), cfg); !errors.Is(err, errCut) {
		t.Errorf("a queue that cannot be opened: %v", err)
	}
}

type broken struct {
	takes, given       int
	tag                uint32
	reapErr, submitErr error
}

func (q *broken) Depth() int         { return 8 }
func (q *broken) DiscardsData() bool { return true }
func (q *broken) Close() error       { return nil }

func (q *broken) Submit(r []nvmeioctl.IORequest) (int, error) {
	if q.takes != 0 {
		return min(q.takes, len(r)), q.submitErr
	}
	if q.submitErr != nil {
		return 0, q.submitErr
	}
	return len(r), nil
}

func (q *broken) Reap(res []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	if q.reapErr != nil {
		return 0, q.reapErr
	}
	if q.given++; q.given > 8 {
		return 0, nil
	}
	tag := uint32(q.given - 1)
	if q.tag != 0 {
		tag = q.tag
	}
	res[0] = nvmeioctl.IOResult{Tag: tag, Done: until}
	return 1, nil
}

// Where passes are short, the end of one and the beginning of the next would
// meet in flight, were it not that every worker waits for the others there.
func TestSimulate_passesDoNotOverlap(t *testing.T) {
	for _, workers := range []uint32{1, 2, 3} {
		w, m := newWorld(), &memory{}
		job := testJob(run.PatternRandom)
		job.CapacityBytes, job.Workers = 4096*20, workers
		job.Phases[0].End = run.End{Passes: 200}
		v, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock())
		if err != nil {
			t.Fatal(err)
		}
		m.check(t)
		if w.overlap {
			t.Errorf("%d workers: two writes of one block were in flight", workers)
		}
		if v.Totals.WriteOps != 4000 || len(w.written) != 20 {
			t.Errorf("%d workers: %+v", workers, v.Totals)
		}
	}
}

// A worker stops at the committed mark, and goes on when it is moved.
func TestStep_stopsAtTheMark(t *testing.T) {
	for _, pattern := range []run.Pattern{run.PatternSequential, run.PatternRandom, run.PatternReplacement} {
		job := benchJob(1, pattern, 1<<40)
		job.Phases[0].Depth = 8
		st, err := newStage(&job, 0)
		if err != nil {
			t.Fatal(err)
		}
		tr := &track{lanes: make([]lane, 1)}
		w := newWorker(0, 8, 32, newRing(8), tr)
		w.rowEnd, w.tally = nvmeioctl.Never, newTally(0, 8)
		if err := w.begin(st, job.LBABytes, run.WorkerMark{}, 0, 0, nvmeioctl.Never); err != nil {
			t.Fatal(err)
		}
		for _, high := range []uint64{0, 3, 50, 51} {
			tr.high.Store(high)
			var got standing
			for range 100 {
				got = w.step(nvmeioctl.Never - 1)
			}
			if w.next != high || w.tally.ops[dirWrite] != high || got != blocked {
				t.Errorf("%s: %d submitted, %d completed at mark %d, standing %d", pattern, w.next, w.tally.ops[dirWrite], high, got)
			}
		}
	}
}
