package layer

import (
	"context"

	"nvop/nvmeioctl"
)

// FaultPlan is a parsed fault expression. It is immutable.
type FaultPlan struct{}

// ParseFaults parses a fault expression: rules separated by ";" or newlines.
//
//	fail 3rd format with 0x4115
//	fail every nsattach with 0x2004
//	after create power-cut
//	drop 2nd delete              carried out, the answer lost
//	corrupt log 0x02
//	delay 2s identify
func ParseFaults(expr string) (FaultPlan, error) { return FaultPlan{}, nil }

// Faulty is a device that misbehaves as planned. Make one with [Fault].
type Faulty struct {
	dev nvmeioctl.Device
}

// Fault makes dev misbehave as planned. Delays are slept on clock.
func Fault(dev nvmeioctl.Device, plan FaultPlan, clock nvmeioctl.Clock) *Faulty {
	return &Faulty{dev: dev}
}

// Submit implements nvmeioctl.Device.
func (f *Faulty) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	return f.dev.Submit(ctx, cmd)
}

func (f *Faulty) String() string { return f.dev.String() }

// Close implements nvmeioctl.Device.
func (f *Faulty) Close() error { return f.dev.Close() }

// Unwrap implements nvmeioctl.Wrapper.
func (f *Faulty) Unwrap() nvmeioctl.Device { return f.dev }
