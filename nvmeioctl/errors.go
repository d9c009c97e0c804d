package nvmeioctl

import (
	"errors"
	"fmt"
)

// Errors to test with errors.Is.
var (
	// ErrNotSupported: drive, kernel or transport lacks the feature.
	ErrNotSupported = errors.New("not supported")
	// ErrIndeterminate: the command was sent and no answer came (EINTR, time-out,
	// controller reset). It may have been carried out; identify the drive again.
	ErrIndeterminate = errors.New("outcome unknown")
	// ErrDeviceGone: the controller is no longer there.
	ErrDeviceGone = errors.New("device is gone")
)

// OpError is a typed operation that did not succeed. There is one in a chain.
type OpError struct {
	// Op is the operation: "identify namespace".
	Op string
	// Dev is the device's name as the user gave it.
	Dev string
	// NSID is the namespace concerned; 0 for none, 0xFFFFFFFF for all.
	NSID uint32
	// Err is a *os.SyscallError for a failed call, a nvmespec.StatusError for
	// an answer of the controller, or says why the answer was not usable.
	Err error
}

func (e *OpError) Error() string {
	switch e.NSID {
	case 0:
		return fmt.Sprintf("%s: %s: %v", e.Dev, e.Op, e.Err)
	case 0xFFFFFFFF:
		return fmt.Sprintf("%s: %s (all namespaces): %v", e.Dev, e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %s (namespace %d): %v", e.Dev, e.Op, e.NSID, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// UnsupportedError says what is missing. It Is [ErrNotSupported].
type UnsupportedError struct {
	Feature string // what was asked for
	Needs   string // what it needs
	Have    string // what is there
}

func (e *UnsupportedError) Error() string {
	s := e.Feature + " is not supported"
	if e.Needs != "" {
		s += ": it needs " + e.Needs
	}
	if e.Have != "" {
		s += "; " + e.Have
	}
	return s
}

func (e *UnsupportedError) Is(target error) bool { return target == ErrNotSupported }

// ExitCode is the process's exit code for this error.
func (e *UnsupportedError) ExitCode() int { return 5 }

// RefusedError says that a safety check said no. Nothing was sent; it is never
// retried.
type RefusedError struct {
	Check   string // which check: "in use", "identity", "grant"
	Subject string // what it looked at: "/dev/nvme0n1"
	Reason  string // what it found
	Remedy  string // what the user can do; may be empty
}

func (e *RefusedError) Error() string {
	s := "refused: " + e.Subject + ": " + e.Reason
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// ExitCode is the process's exit code for this error.
func (e *RefusedError) ExitCode() int { return 4 }
