package layer

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Dry is a device that lets reads through and records the rest. Make one with
// [DryRun].
type Dry struct {
	dev      nvmeioctl.Device
	mu       sync.Mutex
	recorded []nvmeioctl.Command
	others   []string
}

// DryRun returns a device that really reads the drive but sends nothing that
// would change it: such commands, resets and rescans are recorded and answered
// with success and result 0. What is not known to only read counts as a change.
// A command that reads data gets its buffer back as it was.
func DryRun(dev nvmeioctl.Device) *Dry { return &Dry{dev: dev} }

// Recorded returns the commands that were not sent, in order. Their buffers are
// copies.
func (d *Dry) Recorded() []nvmeioctl.Command {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.recorded)
}

// RecordedOthers names what else was not done, in order: "controller reset".
func (d *Dry) RecordedOthers() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.others)
}

// Submit implements nvmeioctl.Device.
func (d *Dry) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if nvmespec.ClassOf(!cmd.IO, cmd.Opcode, cmd.CDW10) == nvmespec.ClassRead {
		return d.dev.Submit(ctx, cmd)
	}
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	record := *cmd
	record.Data = bytes.Clone(cmd.Data)
	record.Metadata = bytes.Clone(cmd.Metadata)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recorded = append(d.recorded, record)
	return nvmeioctl.Completion{}, nil
}

func (d *Dry) String() string { return d.dev.String() }

// Close implements nvmeioctl.Device.
func (d *Dry) Close() error { return d.dev.Close() }

// Unwrap implements nvmeioctl.Wrapper.
func (d *Dry) Unwrap() nvmeioctl.Device { return d.dev }

func (d *Dry) other(ctx context.Context, what string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.others = append(d.others, what)
	return nil
}

// ResetController implements nvmeioctl.Resetter by recording it.
func (d *Dry) ResetController(ctx context.Context) error { return d.other(ctx, "controller reset") }

// ResetSubsystem implements nvmeioctl.Resetter by recording it.
func (d *Dry) ResetSubsystem(ctx context.Context) error { return d.other(ctx, "subsystem reset") }

// Rescan implements nvmeioctl.Resetter by recording it.
func (d *Dry) Rescan(ctx context.Context) error { return d.other(ctx, "rescan") }
