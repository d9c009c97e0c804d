package endurance

import (
	"context"
	"math"
	"strings"
	"testing"

	"nvop/endurance/run"
)

// thermal is a sampler of a drive that is hot between two samples.
type thermal struct {
	n, from, to int
	change      func(n int, s *run.Sample)
}

func (h *thermal) Sample(context.Context) (run.Sample, error) {
	s := run.Sample{TemperatureKelvin: 273 + 50, Format: "512+0, 1000 blocks"}
	if h.n >= h.from && h.n < h.to {
		s.TemperatureKelvin = 273 + 80
	}
	if h.change != nil {
		h.change(h.n, &s)
	}
	h.n++
	return s, nil
}

// A drive too hot is given time to cool: nothing is submitted, every second has a
// row that says so, and the run goes on to the same end.
func TestSimulate_pausesWhileHot(t *testing.T) {
	for _, rate := range []run.Rate{{}, {IOPS: 400, Arrival: run.ArrivalOpen}} {
		w, m := newWorld(), &memory{}
		w.service = 2_000_000 // 500 a second
		job := testJob(run.PatternRandom)
		job.Workers = 2
		job.Phases[0].Rate = rate
		job.Phases[0].End = run.End{Passes: 20}
		job.SampleIntervalNS = 2 * second1
		job.Pause = run.Pause{AtCelsius: 75, ResumeCelsius: 60}
		v, err := simulate(t, Config{Job: job, Recorder: m, Sampler: &thermal{from: 5, to: 10}}, w, virtualClock())
		if err != nil {
			t.Fatal(err)
		}
		m.check(t)
		paused, most := 0, uint64(0)
		for i, r := range m.rows {
			if r.Flags&run.FlagPaused == 0 {
				most = max(most, r.Ops())
				continue
			}
			paused++
			before := m.rows[i-1].Flags&run.FlagPaused != 0
			after := i+1 < len(m.rows) && m.rows[i+1].Flags&run.FlagPaused != 0
			if before && after && r.Ops() > uint64(job.Workers)*uint64(job.Phases[0].Depth) {
				t.Errorf("second %d of the pause has %d operations", r.Second, r.Ops())
			}
		}
		if paused < 8 || paused > 14 {
			t.Errorf("%d seconds paused", paused)
		}
		if rate.IOPS != 0 && most > rate.IOPS+2 {
			t.Errorf("up to %d operations a second: the pause was caught up with", most)
		}
		if v.Totals.WriteOps != 20*1001 || v.State != run.StateFinished {
			t.Errorf("%s after %d operations", v.State, v.Totals.WriteOps)
		}
		if !strings.Contains(strings.Join(v.Notes, "\n"), "paused 1 times") {
			t.Errorf("notes %q", v.Notes)
		}
		var kinds []string
		for _, e := range m.events {
			kinds = append(kinds, string(e.Kind))
		}
		if text := strings.Join(kinds, " "); !strings.Contains(text, "paused") || !strings.Contains(text, "continued") {
			t.Errorf("events %s", text)
		}
	}
}

// Case C2: a phase that ends by time ends then, also while a rule holds it, and
// also when the rule came right at its end, with operations in flight: what is in
// flight is waited for, not the drive to cool down.
func TestSimulate_pausedAtTheEnd(t *testing.T) {
	for _, from := range []int{4, 5} { // the samples at 8 s and at 10 s
		for _, rate := range []run.Rate{{}, {IOPS: 400, Arrival: run.ArrivalOpen}} {
			w, m := newWorld(), &memory{}
			w.service = 2_000_000
			job := testJob(run.PatternRandom)
			job.Phases[0].Rate, job.Phases[0].End = rate, run.End{DurationNS: 10 * second1}
			job.SampleIntervalNS = 2 * second1
			job.Pause = run.Pause{AtCelsius: 75, ResumeCelsius: 60}
			v, err := simulate(t, Config{Job: job, Recorder: m, Sampler: &thermal{from: from, to: 30}}, w, virtualClock())
			if err != nil {
				t.Fatal(err)
			}
			m.check(t)
			if len(m.rows) > 11 || v.State != run.StateFinished || v.Phases[0].ActiveNS > 10*second1+second1/5 {
				t.Errorf("hot from sample %d, %+v: %s after %d rows, at work for %d ns of 10 s", from, rate, v.State, len(m.rows), v.Phases[0].ActiveNS)
			}
		}
	}
}

// A change of power state or of autonomous transitions is an event, and a new
// epoch: what was measured before does not compare with what comes after.
func TestSimulate_settingsAreEpochs(t *testing.T) {
	w, m := newWorld(), &memory{}
	job := testJob(run.PatternRandom)
	job.SampleIntervalNS = second1
	w.service = 2_000_000
	s := &thermal{change: func(n int, s *run.Sample) {
		s.Format += "; power state 0; APST off"
		if n > 3 {
			s.Format = strings.Replace(s.Format, "state 0", "state 2", 1)
		}
	}}
	if _, err := simulate(t, Config{Job: job, Recorder: m, Sampler: s}, w, virtualClock()); err != nil {
		t.Fatal(err)
	}
	setting, epoch := "", 0
	for _, e := range m.events {
		if e.Kind == run.EventSetting {
			setting = e.Text
		}
		if e.Kind == run.EventEpoch {
			epoch++
		}
	}
	if setting != "changed from power state 0 to power state 2" || epoch != 1 {
		t.Errorf("event %q, %d epochs", setting, epoch)
	}
}

// feed gives a detector seconds of a rate and collects what it says.
func feed(s *steadiness, seconds int, rate func(second int) float64) []steadyWord {
	var said []steadyWord
	for i := range seconds {
		r := run.Row{ActiveNS: second1}
		r.WriteOps = uint64(rate(i))
		if x := s.add(&r); x.what != steadyQuiet {
			said = append(said, x.what)
		}
	}
	return said
}

// Case C6: leaving the steady state is noticed when it happens, once, and so is
// coming back; noise and drift are neither.
func TestSteadiness(t *testing.T) {
	level := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	same := func(got []steadyWord, want ...steadyWord) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("said %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("said %v, want %v", got, want)
			}
		}
	}
	s := newSteadiness(1)
	same(feed(&s, 290, level(100_000)))
	same(feed(&s, 20, level(100_000)), steadyNow)
	same(feed(&s, 1000, level(100_000)))
	same(feed(&s, 10, level(60_000)), steadyLeft)
	same(feed(&s, 100, level(60_000)))
	same(feed(&s, 30, level(99_000)), steadyBack)
	// A new level for good.
	same(feed(&s, 290, level(50_000)), steadyLeft)
	same(feed(&s, 100, level(50_000)), steadyNow)
	same(feed(&s, 10, level(80_000)), steadyLeft)
	// A fall is never called steady.
	s = newSteadiness(1)
	same(feed(&s, 2000, func(i int) float64 { return 200_000 * math.Exp(-float64(i)/1500) }))
	// A sawtooth of 10 % is, and stays, steady.
	s = newSteadiness(1)
	same(feed(&s, 3000, func(i int) float64 { return 100_000 + float64(i/10%2)*10_000 }), steadyNow)
	// Under time lapse a second has few operations: counting noise is no excursion.
	s = newSteadiness(8192)
	x := uint64(1)
	same(feed(&s, 20_000, func(int) float64 {
		x = x*6364136223846793005 + 1442695040888963407
		return float64(40+x>>33%20) * 8192
	}), steadyNow)
	// A pause starts anew.
	s = newSteadiness(1)
	feed(&s, 310, level(100_000))
	s.interrupted()
	same(feed(&s, 10, level(100_000)))
}

// The hint names what the drive's own counters show.
func TestCause(t *testing.T) {
	a := run.Sample{TemperatureKelvin: 320, Format: "512+0, 9 blocks; power state 0"}
	b := a
	if text := cause(&a, &b); !strings.Contains(text, "no cause") {
		t.Error(text)
	}
	b.TemperatureKelvin, b.ThermalTransitions, b.CriticalWarning, b.MediaErrors = 350, 3, 2, run.U128(4)
	b.Format = "512+0, 9 blocks; power state 3"
	text := cause(&a, &b)
	for _, want := range []string{"throttled itself 3 times", "temperature 77 C, was 47 C", "critical warning 0x02", "4 new media errors", "power state 3"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	if text := cause(nil, &b); !strings.Contains(text, "not known") {
		t.Error(text)
	}
}

// In a whole run: the drive slows down after it was steady, and the event has the
// hint.
func TestSimulate_leavesSteadyState(t *testing.T) {
	w, m := newWorld(), &memory{}
	w.service = 5_000_000 // 200 a second
	job := testJob(run.PatternReplacement)
	job.Workers = 1
	job.Phases[0].End = run.End{DurationNS: 500 * second1}
	s := &thermal{}
	s.change = func(n int, x *run.Sample) {
		if n > 40 {
			w.service, x.ThermalTransitions = 10_000_000, 5
		}
	}
	if _, err := simulate(t, Config{Job: job, Recorder: m, Sampler: s}, w, virtualClock()); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range m.events {
		if e.Kind == run.EventSteady || e.Kind == run.EventUnsteady {
			texts = append(texts, string(e.Kind)+": "+e.Text)
		}
	}
	if len(texts) != 2 || !strings.HasPrefix(texts[0], "steady: steady at 200 ") ||
		!strings.Contains(texts[1], "-50 %") || !strings.Contains(texts[1], "throttled itself 5 times") {
		t.Errorf("events %q", texts)
	}
}
