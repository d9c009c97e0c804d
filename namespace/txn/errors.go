package txn

import (
	"errors"
	"fmt"

	"nvop/nvmeioctl"
)

// PartlyDoneError says that a transaction stopped between its first command
// and its end. The drive is in the state named; the transaction can go on or
// be undone.
type PartlyDoneError struct {
	// ID is the transaction.
	ID string
	// Step is the step at which it stopped.
	Step Step
	// Direction is which way the step was taken.
	Direction Direction
	// Drive says what state the drive is in, for people.
	Drive string
	// Err is why it stopped.
	Err error
}

func (e *PartlyDoneError) Error() string {
	what := "stopped"
	if e.Direction == Backward {
		what = "stopped rolling back"
	}
	s := fmt.Sprintf("transaction %s %s at step %d (%s): %v", e.ID, what, e.Step.Index+1, e.Step.Title, e.Err)
	if e.Drive != "" {
		s += "; " + e.Drive
	}
	if e.Direction == Backward {
		return s + fmt.Sprintf("; go on with: nvop rollback %s", e.ID)
	}
	return s + fmt.Sprintf("; go on with: nvop resume %s; or undo with: nvop rollback %s", e.ID, e.ID)
}

func (e *PartlyDoneError) Unwrap() error { return e.Err }

// ExitCode is the process's exit code for this error.
func (e *PartlyDoneError) ExitCode() int { return 7 }

// RolledBackError says that the drive refused a step and that what had been
// done before was undone: the drive has its old geometry.
type RolledBackError struct {
	ID   string
	Step Step
	// Drive says what state the drive is in, for people.
	Drive string
	// Err is what the drive answered.
	Err error
}

func (e *RolledBackError) Error() string {
	return fmt.Sprintf("step %d (%s): %v; %s", e.Step.Index+1, e.Step.Title, e.Err, e.Drive)
}

func (e *RolledBackError) Unwrap() error { return e.Err }

// ExitCode is the process's exit code for this error: the cause's, or 6.
func (e *RolledBackError) ExitCode() int {
	if code, ok := exitCode(e.Err); ok {
		return code
	}
	return 6
}

// CancelledError says that the context was cancelled before anything was sent.
type CancelledError struct{ Err error }

func (e *CancelledError) Error() string { return "interrupted before anything was changed" }

func (e *CancelledError) Unwrap() error { return e.Err }

// ExitCode is the process's exit code for this error.
func (e *CancelledError) ExitCode() int { return 130 }

func exitCode(err error) (int, bool) {
	if coder, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coder.ExitCode(), true
	}
	return 0, false
}

// ErrMismatch is what the error of an executor's Take is when the drive answered a
// command with success and what it left is not what the step is for. It may have
// had an effect: the drive is read back, and the step counts as refused by nobody.
var ErrMismatch = errors.New("the drive did something else than the step is for")

// refusedByDrive says that the controller answered with an error status, so
// that the command is known not to have been carried out.
func refusedByDrive(err error) bool {
	code, ok := exitCode(err)
	return ok && code == 6 && !indeterminate(err) && !errors.Is(err, ErrMismatch)
}

func indeterminate(err error) bool {
	return errors.Is(err, nvmeioctl.ErrIndeterminate) || errors.Is(err, nvmeioctl.ErrDeviceGone)
}

// refusal marks the drive's refusal of a step's own command, as against a
// reading command that failed.
type refusal struct{ err error }

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

// also joins two errors into one line; second may be nil. A cut passes alone.
func also(first, second error) error {
	if second == nil {
		return first
	}
	if cut, ok := errors.AsType[*cutError](second); ok {
		return cut
	}
	return fmt.Errorf("%w; %w", first, second)
}

// LeftError is what an executor's Prepare returns for a step that cannot be undone
// and that does no harm where it is: a rollback goes on without it. Where nothing
// else is to be undone it is the rollback's own refusal.
type LeftError struct{ Err error }

func (e *LeftError) Error() string { return e.Err.Error() }

func (e *LeftError) Unwrap() error { return e.Err }
