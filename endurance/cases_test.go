package endurance

import (
	"context"
	"testing"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// Cases C1, C4, C5: a run lasts exactly as long as its phases say, the warm-up
// comes first and is in none of the measured figures, and the parts add up.
func TestSimulate_warmUpIsHonoured(t *testing.T) {
	w, m := newWorld(), &memory{}
	job := testJob(run.PatternReplacement)
	measure := job.Phases[0]
	measure.End = run.End{DurationNS: 5 * second1}
	measure.Rate = run.Rate{IOPS: 100, Arrival: run.ArrivalOpen}
	warm := measure
	warm.Kind, warm.End.DurationNS = run.PhaseWarmUp, 7*second1
	job.Phases = []run.Phase{warm, measure}
	v, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	if len(m.rows) != 12 {
		t.Errorf("%d rows, want 7 of warm-up and 5 measured", len(m.rows))
	}
	p, ok := v.Measured()
	if !ok || p.Totals.Rows != 5 || p.Totals.WriteOps < 499 || p.Totals.WriteOps > 501 || p.Write.Operations != p.Totals.WriteOps {
		t.Errorf("measured %+v", p)
	}
	if sum := v.Phases[0].Totals.WriteOps + v.Phases[1].Totals.WriteOps; sum != v.Totals.WriteOps {
		t.Errorf("the phases add up to %d operations, the run to %d", sum, v.Totals.WriteOps)
	}
}

// Cases B5, H8: a second without operations has a row with its time, and no
// latency, which is not a latency of 0.
func TestSimulate_emptySeconds(t *testing.T) {
	w, m := newWorld(), &memory{}
	job := paced(run.PatternSequential, run.Rate{BytesPerSecond: 1024}, run.End{DurationNS: 20 * second1})
	if _, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock()); err != nil {
		t.Fatal(err)
	}
	m.check(t)
	empty := 0
	for i, r := range m.rows {
		if r.WallUnixNS == 0 || r.MonoNS == 0 || i > 0 && r.WallUnixNS-m.rows[i-1].WallUnixNS != second1 {
			t.Errorf("second %d is at %d, its end at %d", r.Second, r.WallUnixNS, r.MonoNS)
		}
		if r.Ops() != 0 {
			continue
		}
		empty++
		if r.Write.MeanNS != run.NotAvailable || r.Write.MaxNS != run.NotAvailable || r.Read.P99NS != run.NotAvailable || r.Write.Operations != 0 {
			t.Errorf("second %d without operations has latencies %+v", r.Second, r.Write)
		}
	}
	if empty != 15 || len(m.rows) != 20 {
		t.Errorf("%d of %d seconds are empty", empty, len(m.rows))
	}
}

// streams is a queue that watches how far a stream strays from one cursor.
type streams struct {
	nvmeioctl.IOQueue
	front, strayed *int64
}

func (q *streams) Submit(r []nvmeioctl.IORequest) (int, error) {
	for i := range r {
		*q.front = max(*q.front, r[i].OffsetBytes)
		*q.strayed = max(*q.strayed, *q.front-r[i].OffsetBytes)
	}
	return q.IOQueue.Submit(r)
}

func (q *streams) DiscardsData() bool { return true }

// Case D4: however many workers, a sequential phase is one stream: no block is
// written twice in a pass, so none comes from a cache, and nobody is far behind.
func TestSimulate_sequentialIsOneStream(t *testing.T) {
	for _, workers := range []uint32{2, 8} {
		w, m := newWorld(), &memory{}
		job := testJob(run.PatternSequential)
		job.CapacityBytes, job.Workers = 64<<20, workers
		job.Phases[0].Depth, job.Phases[0].End = 4, run.End{Passes: 1}
		var front, strayed int64
		cfg := Config{Job: job, Recorder: m, Queues: func(int) (nvmeioctl.IOQueue, error) {
			return &streams{w.queue(job.MaxDepth()), &front, &strayed}, nil
		}}
		if _, err := Simulate(context.Background(), cfg, virtualClock()); err != nil {
			t.Fatal(err)
		}
		m.check(t)
		for offset, n := range w.written {
			if n != 1 {
				t.Errorf("%d workers: offset %d was written %d times", workers, offset, n)
			}
		}
		if most := int64(workers) * (4 + sequentialAhead) * 4096; len(w.written) != 16384 || strayed > most {
			t.Errorf("%d workers: %d blocks, up to %d bytes behind the front, %d allowed", workers, len(w.written), strayed, most)
		}
	}
}

// A limit that is reached in the very last second of a run is reached: a short run
// must not pass because nobody looked.
func TestSimulate_limitInTheLastRow(t *testing.T) {
	w, m := newWorld(), &memory{}
	job := testJob(run.PatternRandom)
	job.Phases[0].End = run.End{Passes: 1}
	job.Stops = []run.StopRule{{Kind: run.StopLatency, Limit: 1}}
	v, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	if v.ExitCode != run.ExitLimits || !v.Limits[0].Reached || v.Totals.WriteOps != 1001 {
		t.Errorf("exit %d, %s, limits %+v", v.ExitCode, v.Reason, v.Limits)
	}
}

// What the journal has of a run that was killed says how it stood: the figures of
// its last checkpoint, with health and WAF.
func TestVerdictSoFar_afterAKill(t *testing.T) {
	w, m := newWorld(), &memory{cutAfter: 6}
	w.service = 1_000_000
	job := testJob(run.PatternSequential, run.PatternRandom)
	job.SampleIntervalNS = second1
	s := &thermal{change: func(n int, s *run.Sample) { s.PercentageUsed = uint8(n) }}
	if _, err := simulate(t, Config{Job: job, Recorder: m, Sampler: s, CheckpointOps: 500}, w, virtualClock()); err == nil {
		t.Fatal("it was not cut")
	}
	v, ok := VerdictSoFar(&job, &m.cp, m.samples)
	if !ok || v.Totals != m.cp.Totals || !v.HealthAvailable || v.HealthPercent != 100-int64(m.samples[len(m.samples)-1].PercentageUsed) ||
		!v.Deltas.Available || v.ExitCode != run.ExitInterrupted || len(v.Phases) == 0 {
		t.Errorf("%v %+v", ok, v)
	}
	if _, ok := VerdictSoFar(&job, nil, nil); ok {
		t.Error("something is said of a run that committed nothing")
	}
}
