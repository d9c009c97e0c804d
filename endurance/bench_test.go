package endurance

import (
	"context"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
)

// ring is the cheapest virtual queue there can be: one server, completions in
// order of submission.
type ring struct {
	out        []nvmeioctl.IOResult
	head, tail uint32
	busy       nvmeioctl.Instant
}

func newRing(depth int) *ring {
	size := 1
	for size < depth {
		size *= 2
	}
	return &ring{out: make([]nvmeioctl.IOResult, size)}
}

func (q *ring) Depth() int         { return len(q.out) }
func (q *ring) DiscardsData() bool { return true }
func (q *ring) Close() error       { return nil }

func (q *ring) Submit(r []nvmeioctl.IORequest) (int, error) {
	for i := range r {
		q.busy = max(q.busy, r[i].At) + 2400
		q.out[q.tail&uint32(len(q.out)-1)] = nvmeioctl.IOResult{Tag: r[i].Tag, Done: q.busy + 9000}
		q.tail++
	}
	return len(r), nil
}

func (q *ring) Reap(res []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	n := 0
	for ; n < len(res) && q.head != q.tail && q.out[q.head&uint32(len(q.out)-1)].Done <= until; n++ {
		res[n] = q.out[q.head&uint32(len(q.out)-1)]
		q.head++
	}
	return n, nil
}

// discard records nothing.
type discard struct{ rows int }

func (d *discard) Commit(_ context.Context, b *run.Batch) error { d.rows += len(b.Rows); return nil }

func benchJob(lapse uint32, pattern run.Pattern, ops uint64) run.Job {
	return run.Job{
		Seed: 1, CapacityBytes: 7_681_501_126_656, LBABytes: 512, TimeLapse: lapse, Workers: 1,
		Phases: []run.Phase{{Kind: run.PhaseMeasure, Pattern: pattern, BlockBytes: 4096, Depth: 256, End: run.End{Bytes: ops * 4096 * uint64(lapse)}}},
	}
}

func BenchmarkSimulate(b *testing.B) {
	for _, c := range []struct {
		name    string
		lapse   uint32
		pattern run.Pattern
	}{
		{"sequential/1", 1, run.PatternSequential}, {"random/1", 1, run.PatternRandom},
		{"replacement/1", 1, run.PatternReplacement}, {"replacement/2000", 2000, run.PatternReplacement},
		{"replacement/20000", 20000, run.PatternReplacement},
	} {
		b.Run(c.name, func(b *testing.B) {
			const ops = 1 << 20
			d := &discard{}
			for b.Loop() {
				cfg := Config{Job: benchJob(c.lapse, c.pattern, ops), Recorder: d}
				cfg.Queues = func(int) (nvmeioctl.IOQueue, error) { return newRing(256), nil }
				if _, err := Simulate(context.Background(), cfg, virtualClock()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/ops, "ns/io")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(d.rows), "ns/row")
		})
	}
}

func BenchmarkSimulatedDrive(b *testing.B) {
	p, ok := sim.LookupProfile("pblaze7-7940-7.68tb")
	if !ok {
		b.Fatal("no such profile")
	}
	d, err := sim.New(p, sim.Options{Start: time.Unix(2e9, 0)})
	if err != nil {
		b.Fatal(err)
	}
	const ops = 1 << 21
	for b.Loop() {
		cfg := Config{Job: benchJob(2000, run.PatternReplacement, ops), Recorder: &discard{}}
		cfg.Queues = func(int) (nvmeioctl.IOQueue, error) { return d.Queue(1, 256, 2000) }
		v, err := Simulate(context.Background(), cfg, d.Clock())
		if err != nil {
			b.Fatal(err)
		}
		m, _ := v.Measured()
		b.ReportMetric(float64(m.WriteIOPS), "iops")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/ops, "ns/io")
}
