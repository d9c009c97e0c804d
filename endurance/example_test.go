package endurance_test

import (
	"context"
	"fmt"
	"time"

	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
)

// printer is a recorder that keeps nothing.
type printer struct{ bytes uint64 }

func (p *printer) Commit(_ context.Context, b *run.Batch) error {
	for _, r := range b.Rows {
		p.bytes += r.WriteBytes
	}
	return nil
}

// A simulated drive is written over once, faster than it could be in truth.
func ExampleSimulate() {
	profile, _ := sim.LookupProfile("client-1tb")
	drive, err := sim.New(profile, sim.Options{Seed: 1, Start: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = drive.Close() }()
	const lapse = 1000
	var journal printer
	verdict, err := endurance.Simulate(context.Background(), endurance.Config{
		Job: run.Job{
			Seed: 1, CapacityBytes: profile.CapacityBytes, LBABytes: 512, TimeLapse: lapse, Workers: 1,
			Phases: []run.Phase{{
				Kind: run.PhaseMeasure, Pattern: run.PatternSequential, BlockBytes: 128 << 10, Depth: 32,
				End: run.End{Bytes: 1_000_000_000_000},
			}},
		},
		Recorder: &journal,
		Sampler:  endurance.NewAdminSampler(drive, 1),
		Queues:   func(int) (nvmeioctl.IOQueue, error) { return drive.Queue(1, 32, lapse) },
	}, drive.Clock())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(verdict.State, verdict.Totals.WriteBytes >= 1_000_000_000_000, journal.bytes == verdict.Totals.WriteBytes)
	// Output: finished true true
}
