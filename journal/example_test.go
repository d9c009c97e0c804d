package journal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"nvop/endurance/run"
	"nvop/journal"
)

// A run is begun, one second of it recorded together with the checkpoint that
// covers it, and read back.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nvop-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	j, err := journal.Open(ctx, filepath.Join(dir, "journal.db"), journal.ReadWrite)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = j.Close() }()

	rec, err := j.BeginRun(ctx, run.Header{Name: "first", Serial: "SN1", Job: run.Job{
		Seed: 1, CapacityBytes: 1 << 40, LBABytes: 4096, TimeLapse: 1, Workers: 1,
		Phases: []run.Phase{{Kind: run.PhaseMeasure, Pattern: run.PatternRandom, BlockBytes: 4096, Depth: 32,
			End: run.End{Passes: 1}}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	counts := run.Counts{WriteOps: 411_000, WriteBytes: 411_000 * 4096}
	row := run.Row{ActiveNS: 1e9, Counts: counts}
	batch := &run.Batch{Rows: []run.Row{row}, Checkpoint: run.Checkpoint{
		Number: 1, State: run.StateRunning, NextSecond: 1, LowWater: 411_000, ReservedHigh: 900_000,
		Totals: run.Totals{Counts: counts, Rows: 1},
	}}
	if err := rec.Commit(ctx, batch); err != nil {
		fmt.Println(err)
		return
	}
	info, err := j.FindRun(ctx, "first")
	if err != nil {
		fmt.Println(err)
		return
	}
	v, err := j.Verify(ctx)
	fmt.Println(info.ID, info.State, info.Totals.WriteOps, v.OK(), err)
	// Output: r1 running 411000 true <nil>
}
