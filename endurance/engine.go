package endurance

import (
	"context"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// Run carries out a job on real queues, one thread a worker, until it is
// finished, a stop rule ends it, ctx is done or the drive is lost. In every
// case outstanding operations are waited for and all is committed. The verdict
// is valid also with an error; its ExitCode is the run's.
func Run(ctx context.Context, cfg Config) (run.Verdict, error) {
	return run.Verdict{}, nvmeioctl.ErrNotSupported
}

// Simulate carries out a job on queues in virtual time, in the caller's
// goroutine, faster than the time it simulates. drive is the drive's calendar:
// it is advanced to the workers' time, TimeLapse times as fast, before the
// drive is sampled or saved.
func Simulate(ctx context.Context, cfg Config, drive *nvmeioctl.VirtualClock) (run.Verdict, error) {
	return run.Verdict{}, nvmeioctl.ErrNotSupported
}
