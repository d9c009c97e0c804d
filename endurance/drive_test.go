package endurance

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
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

// soakJob fills the drive in sequence and then writes it at random.
func soakJob(lapse uint32, milliDriveWrites uint64) run.Job {
	return run.Job{
		Seed: 1, CapacityBytes: 7_681_501_126_656, LBABytes: 512, TimeLapse: lapse, Workers: 1, SampleIntervalNS: 60 * second1,
		Phases: []run.Phase{
			{Kind: run.PhasePrecondition, Pattern: run.PatternSequential, BlockBytes: 131072, Depth: 128, End: run.End{Passes: 1}},
			{Kind: run.PhaseMeasure, Pattern: run.PatternReplacement, BlockBytes: 4096, Depth: 256, End: run.End{DriveWritesMilli: milliDriveWrites}},
		},
	}
}

func driveQueues(d *sim.Drive, lapse uint32) QueueFactory {
	return func(int) (nvmeioctl.IOQueue, error) { return d.Queue(1, 256, lapse) }
}

// The whole of it on a simulated drive: filled in sequence, then written at
// random, it settles at the write amplification of its profile, and the engine,
// the drive's counters and the samples agree.
func TestSimulate_simulatedDriveSettles(t *testing.T) {
	const lapse = 20000
	d := simulatedDrive(t)
	m := &memory{}
	cfg := Config{Job: soakJob(lapse, 3000), Recorder: m, Sampler: NewAdminSampler(d, 1), Queues: driveQueues(d, lapse)}
	v, err := Simulate(context.Background(), cfg, d.Clock())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	p, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
	want := p.Flash.FloorWAF * 3.116
	if got, ok := v.WAF.Value(); !ok || !v.WAF.Settled || math.Abs(got/want-1) > 0.03 {
		t.Errorf("WAF %.4f of %.4f: %+v", got, want, v.WAF)
	}
	if e := float64(v.WAF.ErrorMicro) / float64(v.WAF.Micro); e > 0.02 {
		t.Errorf("the error is stated as %.2f %%", e*100)
	}
	if r, _ := v.Measured(); r.LittlePermille < 990 || r.LittlePermille > 1010 || r.WriteIOPS < 400_000 || r.WriteIOPS > 500_000 {
		t.Errorf("%d IOPS, Little %d", r.WriteIOPS, r.LittlePermille)
	}
	// Case D6: what the drive says it was given is what the engine counted.
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	given := last.Host[0].After.Sub(first.Host[0].After).Lo * last.Host[0].UnitBytes
	if diff := int64(given) - int64(v.Totals.WriteBytes); diff < -512_000 || diff > 512_000 {
		t.Errorf("the drive was given %d bytes, the engine counted %d", given, v.Totals.WriteBytes)
	}
	if elapsed := int64(d.Clock().Now()) / second1; elapsed != int64(len(m.rows)) {
		t.Errorf("the drive's clock shows %d s, there are %d rows", elapsed, len(m.rows))
	}
	if v.Deltas.Available != true || !v.HealthAvailable {
		t.Errorf("%+v", v)
	}
}

// Killed at some commit, with only the drive's file and the journal left: the
// file carries the journal's checkpoint or the next, and the run goes on to the
// same totals as an uninterrupted one.
func TestSimulate_killedWithTheDriveInAFile(t *testing.T) {
	const lapse = 28000
	p, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
	job := soakJob(lapse, 200)
	want, history := uint64(0), []byte(nil)
	for _, cut := range []int{0, 0, 2, 4} {
		path := filepath.Join(t.TempDir(), "drive.nvop")
		if err := sim.Create(path, p, sim.Options{Seed: 7, Start: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}); err != nil {
			t.Fatal(err)
		}
		m := &memory{cutAfter: cut}
		session := func(resume *run.Checkpoint) (run.Verdict, error) {
			d, err := sim.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			if resume != nil && d.Checkpoint() != resume.Number && d.Checkpoint() != resume.Number+1 {
				t.Fatalf("the drive is at checkpoint %d, the journal at %d", d.Checkpoint(), resume.Number)
			}
			return Simulate(context.Background(), Config{
				Job: job, Recorder: m, Sampler: NewAdminSampler(d, 1), Queues: driveQueues(d, lapse), Resume: resume,
				Samples: m.samples, SaveDrive: d.Save, CheckpointOps: 3_000,
			}, d.Clock())
		}
		v, err := session(nil)
		if cut == 0 {
			if err != nil || m.commits < 5 {
				t.Fatalf("%v after %d commits", err, m.commits)
			}
			// L5: one seed, one history, byte for byte, drive included.
			if history != nil && !bytes.Equal(history, m.log) {
				t.Error("two runs on drives of one seed differ")
			}
			want, history = v.Totals.WriteBytes, m.log
			continue
		}
		if !errors.Is(err, errCut) {
			t.Fatalf("cut %d: %v", cut, err)
		}
		cp := m.cp
		m.cutAfter = 0
		if v, err = session(&cp); err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
		m.check(t)
		if v.Totals.WriteBytes != want {
			t.Errorf("cut %d: %d bytes, uninterrupted %d", cut, v.Totals.WriteBytes, want)
		}
		if len(m.gaps) != 1 {
			t.Errorf("cut %d: gaps %+v", cut, m.gaps)
		}
	}
}
