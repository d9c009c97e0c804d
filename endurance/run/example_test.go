package run_test

import (
	"fmt"

	"nvop/endurance/run"
)

// A phase has exactly one end, and nothing ends it that was not asked for.
func ExampleJob_Validate() {
	job := run.Job{
		CapacityBytes: 1 << 40, LBABytes: 4096, TimeLapse: 1, Workers: 1,
		Phases: []run.Phase{{
			Kind: run.PhaseMeasure, Pattern: run.PatternRandom, BlockBytes: 4096, Depth: 32,
			End: run.End{Passes: 2, DurationNS: 3600e9},
		}},
	}
	fmt.Println(job.Validate())
	// Output: phase 0 (measure): job cannot be run: it has 2 ends, which conflict: give one
}
