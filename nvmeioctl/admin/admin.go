// Package admin has the typed admin operations of an NVMe controller as functions
// over [nvmeioctl.Device].
//
// Every function sends the dwords it says, decodes the answer with nvmespec, and
// returns errors as one *[nvmeioctl.OpError]: its cause is a
// [nvmespec.StatusError] where the controller answered, the device's own error
// where it did not, and says what was wrong with the data otherwise. Commands
// that change something also have a builder, so that a plan can show them before
// they are sent. Nothing here asks for consent or retries a change: that is the
// caller's.
package admin

import (
	"context"
	"errors"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Timeouts of commands. A timeout resets the controller and leaves the outcome
// unknown, so these are what the slowest drives seen need, not what is usual.
const (
	IdentifyTimeout = 60 * time.Second
	LogTimeout      = 60 * time.Second
	FeatureTimeout  = 60 * time.Second
	// AttachTimeout is for attaching and detaching.
	AttachTimeout = 5 * time.Minute
	// NamespaceTimeout is for creating and deleting: large drives have taken more
	// than the minute a kernel allows.
	NamespaceTimeout = 30 * time.Minute
)

// FormatTimeout is the time a Format NVM of a namespace of this size may take: an
// hour for each 8 TB begun, and ten hours for each 32 TB begun where user data is
// erased block by block, at most 1000 hours: the kernel counts milliseconds in 32
// bits.
func FormatTimeout(sizeBytes uint64, erase nvmespec.EraseKind) time.Duration {
	const terabyte = 1_000_000_000_000
	hours := time.Duration(1 + sizeBytes/(8*terabyte))
	if erase == nvmespec.EraseUserData {
		hours = 10 * time.Duration(1+sizeBytes/(32*terabyte))
	}
	return min(hours, 1000) * time.Hour
}

// orDefault is the timeout asked for, or d for 0.
func orDefault(timeout, d time.Duration) time.Duration {
	if timeout <= 0 {
		return d
	}
	return timeout
}

// opError wraps err as the one OpError of its chain.
func opError(op string, dev nvmeioctl.Device, nsid uint32, err error) error {
	if err == nil {
		return nil
	}
	var have *nvmeioctl.OpError
	if errors.As(err, &have) {
		return err
	}
	return &nvmeioctl.OpError{Op: op, Dev: dev.String(), NSID: nsid, Err: err}
}

// submit sends a command and turns every way it can fail into an error.
func submit(ctx context.Context, dev nvmeioctl.Device, op string, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	c, err := dev.Submit(ctx, cmd)
	if err == nil {
		err = c.Err()
	}
	return c, opError(op, dev, cmd.NSID, err)
}

// Submit sends a command that a builder of this package made, for example from a
// plan, and names it op in errors.
func Submit(ctx context.Context, dev nvmeioctl.Device, op string, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	return submit(ctx, dev, op, cmd)
}

// IsUnsupported says that an error means "the drive does not have this": an
// optional log, list or command that answered invalid opcode, field or log page,
// or what this program found missing before sending.
func IsUnsupported(err error) bool {
	for _, target := range []error{nvmeioctl.ErrNotSupported, nvmespec.ErrInvalidLogPage,
		nvmespec.ErrInvalidField, nvmespec.ErrInvalidOpcode} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// Identity reads who the controller is, to compare before each destructive
// command.
func Identity(ctx context.Context, dev nvmeioctl.Device) (nvmeioctl.Identity, error) {
	c, err := IdentifyController(ctx, dev)
	if err != nil {
		return nvmeioctl.Identity{}, err
	}
	return IdentityOf(c), nil
}

// IdentityOf is the identity in an Identify Controller structure.
func IdentityOf(c nvmespec.Controller) nvmeioctl.Identity {
	return nvmeioctl.Identity{SubsystemNQN: c.SubsystemNQN, Serial: c.SerialNumber, Model: c.ModelNumber, CNTLID: c.ControllerID}
}
