package nvmetest

import (
	"testing"

	"nvop/nvmeioctl"
)

// Opener opens the device under test afresh; the suite closes it.
type Opener func(t *testing.T) nvmeioctl.Device

// Options are what the suite may do.
type Options struct {
	// ReadOnly leaves out everything that changes the drive.
	ReadOnly bool
}

// TestDevice runs the conformance suite on a device. Without ReadOnly it
// destroys everything on the drive.
func TestDevice(t *testing.T, open Opener, opts Options) {}
