package endurance

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// jumpy is the machine's clock with both of its hands within reach: both move on
// together when the process is held, the wall clock alone when it is set.
type jumpy struct {
	*nvmeioctl.SystemClock
	held, set atomic.Int64
}

func (c *jumpy) Now() nvmeioctl.Instant {
	return c.SystemClock.Now() + nvmeioctl.Instant(c.held.Load())
}
func (c *jumpy) Wall() time.Time {
	return c.SystemClock.Wall().Add(time.Duration(c.held.Load() + c.set.Load()))
}

// Case B3: a process that was stopped for twenty seconds has a gap of nineteen or
// twenty, not rows of zeros; all other seconds have exactly one row, and the
// totals are right.
func TestRun_heldProcessLeavesAGap(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	clock := &jumpy{SystemClock: nvmeioctl.NewSystemClock()}
	d.clock = clock
	job := realJob()
	job.Phases[0].End = run.End{DurationNS: 23 * second1}
	time.AfterFunc(1200*time.Millisecond, func() { clock.held.Store(20 * second1) })
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if len(m.gaps) != 1 || m.gaps[0].Seconds < 18 || m.gaps[0].Seconds > 20 || m.gaps[0].Reason != "the process did not run" {
		t.Errorf("gaps %+v", m.gaps)
	}
	for _, r := range m.rows[:len(m.rows)-1] {
		if r.Ops() == 0 {
			t.Errorf("second %d has a row of zeros", r.Second)
		}
	}
	if v.Totals.WriteBytes != d.bytes.Load() {
		t.Errorf("%d bytes counted, %d received", v.Totals.WriteBytes, d.bytes.Load())
	}
	if !hasEvent(m, run.EventHeld, "did not run") {
		t.Errorf("events %+v", m.events)
	}
}

func hasEvent(m *memory, kind run.EventKind, text string) bool {
	for _, e := range m.events {
		if e.Kind == kind && strings.Contains(e.Text, text) {
			return true
		}
	}
	return false
}

// A wall clock that is set is an event; the rows go on second by second.
func TestRun_wallClockIsSet(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	clock := &jumpy{SystemClock: nvmeioctl.NewSystemClock()}
	d.clock = clock
	job := realJob()
	job.Phases[0].End = run.End{DurationNS: 2 * second1}
	time.AfterFunc(700*time.Millisecond, func() { clock.set.Store(-7200 * second1) })
	if _, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: clock}); err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if len(m.gaps) != 0 || !hasEvent(m, run.EventClock, "set by -7200") {
		t.Errorf("gaps %+v, events %+v", m.gaps, m.events)
	}
	for _, r := range m.rows {
		if r.MonoNS != (r.Second+1)*second1 {
			t.Errorf("second %d ends at %d ns", r.Second, r.MonoNS)
		}
	}
}

// A machine that is suspended for an hour in the midst of a run: the clock that the
// run goes by stood still with it, the one that counts sleep and the calendar did
// not. It is an event and a gap without seconds; nothing is called stalled or unsteady,
// no second is missing, and what was not due is not caught up with.
func TestRun_machineSleeps(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	clock := &jumpy{SystemClock: nvmeioctl.NewSystemClock()}
	d.clock = clock
	var slept atomic.Int64
	job := realJob()
	job.StallNS = 20 * second1
	job.Phases[0].Rate = run.Rate{IOPS: 200, Arrival: run.ArrivalOpen}
	job.Phases[0].End = run.End{DurationNS: 2 * second1}
	time.AfterFunc(700*time.Millisecond, func() {
		slept.Store(3600 * second1)
		clock.set.Store(3600 * second1)
	})
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: clock, asleep: slept.Load})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if !hasEvent(m, run.EventClock, "slept for 3600 s") {
		t.Errorf("events %+v", m.events)
	}
	zero := 0
	for _, g := range m.gaps {
		if g.Seconds == 0 && g.Reason == "the machine slept for 3600 s" {
			zero++
		}
	}
	if zero != 1 {
		t.Errorf("gaps %+v", m.gaps)
	}
	for _, kind := range []run.EventKind{run.EventStalled, run.EventUnsteady} {
		if hasEvent(m, kind, "") {
			t.Errorf("a sleep is called %s: %+v", kind, m.events)
		}
	}
	// An hour at this rate would be 720,000 operations.
	if n := v.Totals.WriteOps; n > 402 {
		t.Errorf("%d operations in 2 s at 200 a second", n)
	}
	if p, _ := v.Measured(); p.ActiveNS > 60*second1 {
		t.Errorf("at work for %d ns", p.ActiveNS)
	}
}

// slowLog is a sampler whose vendor log takes its time, but for the first reading.
type slowLog struct {
	takes time.Duration
	n     int
}

func (s *slowLog) Sample(context.Context) (run.Sample, error) {
	if s.n++; s.n > 1 {
		time.Sleep(s.takes)
	}
	return run.Sample{TemperatureKelvin: 300}, nil
}

// Case G1, E4: while a log takes a second and a half to read, operations go on, and every
// second of the reading is flagged, not only the one in which it ended.
func TestRun_slowLogIsFlagged(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	job := realJob()
	job.SampleIntervalNS = second1
	job.Phases[0].End = run.End{DurationNS: 4 * second1}
	if _, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock, Sampler: &slowLog{takes: 1500 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	m.check(t)
	polled, quiet := 0, 0
	for _, r := range m.rows {
		if r.Flags&run.FlagPolled != 0 && r.ActiveNS > second1/2 {
			polled++
		}
		if r.Ops() == 0 && r.ActiveNS > second1/2 {
			quiet++
		}
	}
	if polled < 2 || quiet != 0 {
		t.Errorf("%d seconds are flagged, %d have no operations, of %d", polled, quiet, len(m.rows))
	}
	took := false
	for _, s := range m.samples {
		took = took || s.DurationNS > second1
	}
	if !took {
		t.Errorf("no sample says how long it took: %+v", m.samples)
	}
}

// A rate in real time: the operations of each second, over a drive that could do
// many times as many.
func TestRun_rate(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	job := realJob()
	job.Phases[0].Rate = run.Rate{IOPS: 200, Arrival: run.ArrivalOpen}
	job.Phases[0].End = run.End{DurationNS: 3 * second1}
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	// Never more; less only where this machine was busy, which catches up later.
	if n := v.Totals.WriteOps; n > 602 || n < 400 {
		t.Errorf("%d operations in 3 s at 200 a second", n)
	}
	if p, _ := v.Measured(); p.WriteFromDue == nil || p.WriteFromDue.Operations != v.Totals.WriteOps || p.WriteFromDue.MinNS < p.Write.MinNS {
		t.Errorf("%+v", p)
	}
}

// hung is a sampler that answers once and then never, whatever is asked of it: an
// admin command that does not come back from the kernel.
type hung struct {
	n    int
	free chan struct{}
}

func (h *hung) Sample(context.Context) (run.Sample, error) {
	if h.n++; h.n > 1 {
		<-h.free
	}
	return run.Sample{TemperatureKelvin: 300}, nil
}

// Case E4: a log that never comes delays no operation and no row, is said after
// its deadline, and does not keep the run from ending. It takes the deadline twice,
// so the long tests have it; the short one of a slow log is above.
func TestRun_hangingLog(t *testing.T) {
	if os.Getenv("NVOP_LONG") == "" {
		t.Skip("takes a quarter of a minute: set NVOP_LONG=1")
	}
	t.Parallel()
	d, m := newDisk(), &memory{}
	h := &hung{free: make(chan struct{})}
	defer close(h.free)
	job := realJob()
	job.SampleIntervalNS = second1
	job.Phases[0].End = run.End{DurationNS: 8 * second1}
	v, err := Run(context.Background(), Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock, Sampler: h})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if v.State != run.StateFinished || !hasEvent(m, run.EventSampleFailed, "does not answer") {
		t.Errorf("%s, events %+v", v.State, m.events)
	}
	for _, r := range m.rows[:8] {
		if r.Ops() == 0 {
			t.Errorf("second %d has no operations", r.Second)
		}
	}
}
