package txn

import (
	"context"
	"encoding/json"
	"errors"

	"nvop/nvmeioctl"
)

// Phase is a point in the taking of a step.
type Phase string

// The phases of a step, in order. A test can cut after each.
const (
	PhaseBeforeIntent Phase = "before_intent"
	PhaseAfterIntent  Phase = "after_intent"
	PhaseAfterTake    Phase = "after_take"
	PhaseAfterOutcome Phase = "after_outcome"
	PhaseAfterVerify  Phase = "after_verify"
)

// Event is reported while a transaction runs.
type Event struct {
	TransactionID string
	Step          Step
	// Steps is the number of steps in the transaction.
	Steps     int
	Direction Direction
	Phase     Phase
	// Attempt is 1 except where a refused command is tried again, changed.
	Attempt int
	Note    string
}

// StepInfo is what the pre-step check is told.
type StepInfo struct {
	TransactionID string
	Step          Step
	Direction     Direction
	// Commands are the exact commands about to be sent.
	Commands []Command
}

// Runner runs transactions on one drive. The fields are set before use and not
// changed; it is not safe for concurrent use.
type Runner struct {
	Device   nvmeioctl.Device
	Clock    nvmeioctl.Clock
	Log      Log
	Registry Registry
	// Identify reads the identity of the drive behind Device; it is compared
	// with the transaction's before each step. Required.
	Identify func(ctx context.Context, dev nvmeioctl.Device) (nvmeioctl.Identity, error)
	// PreStep is called right before each step's intent is recorded: the place
	// to check use again and to grant the step's commands. It returns the
	// device to send them through; nil means Device. nil allows everything.
	PreStep func(ctx context.Context, info StepInfo) (nvmeioctl.Device, error)
	// Notify is told how the transaction goes; nil for nobody.
	Notify func(Event)
	// Cut ends the run at once, as a kill would, when it returns an error:
	// nothing further is sent or recorded and Run returns that error. For
	// tests; nil never cuts.
	Cut func(Event) error
	// LeaveRefused leaves the transaction unfinished when the drive refuses a
	// step. By default what was done before is undone, so that a refused
	// resize does not leave a drive without its namespace.
	LeaveRefused bool
}

// Report is how a transaction ended well.
type Report struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	// States holds what each step left for others, by index, in the direction
	// last taken.
	States []json.RawMessage `json:"states"`
}

// Begin stores a transaction without running any step, and returns its ID.
func (r *Runner) Begin(ctx context.Context, t Transaction) (string, error) {
	return "", errors.New("not yet")
}

// Run stores t and carries out its steps.
func (r *Runner) Run(ctx context.Context, t Transaction) (Report, error) {
	return Report{}, errors.New("not yet")
}

// Resume carries on an unfinished transaction in the direction it was going.
func (r *Runner) Resume(ctx context.Context, id string) (Report, error) {
	return Report{}, errors.New("not yet")
}

// Rollback undoes what an unfinished transaction has done, in reverse.
func (r *Runner) Rollback(ctx context.Context, id string) (Report, error) {
	return Report{}, errors.New("not yet")
}

type execution struct{}

func (x *execution) stateOf(int, Direction) (json.RawMessage, bool) { return nil, false }

func (x *execution) intent(context.Context, *Scope, Prepared) error { return nil }
