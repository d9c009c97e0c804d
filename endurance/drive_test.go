package endurance

import (
	"context"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
)

func simulatedDrive(t testing.TB) *sim.Drive {
	t.Helper()
	p, ok := sim.LookupProfile("pblaze7-7940-7.68tb")
	if !ok {
		t.Fatal("the profile is gone")
	}
	d, err := sim.New(p, sim.Options{Seed: 7, Start: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// The whole of it on a simulated drive: filled in sequence, then written at
// random, it settles at the write amplification and the rate of its profile, and
// the engine, the drive's counters and the samples agree.
func TestSimulate_simulatedDriveSettles(t *testing.T) {
	const lapse = 20000
	d := simulatedDrive(t)
	m := &memory{}
	cfg := Config{
		Job: run.Job{
			Seed: 1, CapacityBytes: 7_681_501_126_656, LBABytes: 512, TimeLapse: lapse, Workers: 1, SampleIntervalNS: 60 * second1,
			Phases: []run.Phase{
				{Kind: run.PhasePrecondition, Pattern: run.PatternSequential, BlockBytes: 131072, Depth: 128, End: run.End{Passes: 1}},
				{Kind: run.PhaseMeasure, Pattern: run.PatternReplacement, BlockBytes: 4096, Depth: 256, End: run.End{DriveWritesMilli: 12_000}},
			},
		},
		Recorder: m, Sampler: NewAdminSampler(d, 1),
		Queues: func(int) (nvmeioctl.IOQueue, error) { return d.Queue(1, 256, lapse) },
	}
	v, err := Simulate(context.Background(), cfg, d.Clock())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	t.Logf("WAF %+v", v.WAF)
	t.Logf("lifetime %+v", v.Lifetime)
	p, _ := v.Measured()
	t.Logf("measured %+v", p)
	t.Logf("rows %d samples %d commits %d notes %q", len(m.rows), len(m.samples), m.commits, v.Notes)
}
