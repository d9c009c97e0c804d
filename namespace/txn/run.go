package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
	// Resets says that the step resets the controller.
	Resets bool
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
	// PreStep is called right before the intent of each step that sends commands
	// or resets the controller is recorded: the place to check use again and to grant the commands. It
	// returns the device to send them through; nil means Device. A step that
	// sends none is not checked: right after an attachment the system itself
	// looks at the new namespace, which is no reason to stop. nil allows
	// everything.
	PreStep func(ctx context.Context, info StepInfo) (nvmeioctl.Device, error)
	// Notify is told how the transaction goes; nil for nobody.
	Notify func(Event)
	// Cut ends the run at once, as a kill would, when it returns an error:
	// nothing further is sent or recorded and Run returns that error. For
	// tests; nil never cuts.
	Cut func(Event) error
	// Describe says in what state the drive is, for the message of a stop; nil
	// leaves it out.
	Describe func(ctx context.Context, dev nvmeioctl.Device) (string, error)
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
	// Left says which steps a rollback could not undo and left as they are.
	Left []string `json:"left,omitempty"`
	// Lost says what a rollback could not bring back although the steps are undone.
	Lost []string `json:"lost,omitempty"`
}

// Begin stores a transaction without running any step, and returns its ID.
// [Runner.Resume] runs it.
func (r *Runner) Begin(ctx context.Context, t Transaction) (string, error) {
	if len(t.Steps) == 0 {
		return "", errors.New("a transaction needs at least one step")
	}
	for i, step := range t.Steps {
		if step.Index != i {
			return "", fmt.Errorf("step %d carries index %d", i, step.Index)
		}
		if _, err := r.Registry.find(step); err != nil {
			return "", err
		}
	}
	if err := ctx.Err(); err != nil {
		return "", &CancelledError{Err: err}
	}
	t.ID, t.State, t.Began = "", StateOpen, r.Clock.Wall()
	id, err := r.Log.BeginTransaction(ctx, t)
	if err != nil {
		return "", fmt.Errorf("record the transaction: %w", err)
	}
	return id, nil
}

// Run stores t and carries out its steps. What it returns beside success: a
// *CancelledError, a *nvmeioctl.RefusedError or the drive's answer when nothing
// was changed; a *RolledBackError when the drive refused a step and the old
// state was restored; a *PartlyDoneError otherwise.
func (r *Runner) Run(ctx context.Context, t Transaction) (Report, error) {
	id, err := r.Begin(ctx, t)
	if err != nil {
		return Report{}, err
	}
	return r.Resume(ctx, id)
}

// Resume carries on an unfinished transaction in the direction it was going.
// The step that was open is verified on the drive first. Resuming a finished
// transaction does nothing and reports it.
func (r *Runner) Resume(ctx context.Context, id string) (Report, error) {
	x, err := r.load(ctx, id)
	if err != nil {
		return Report{}, err
	}
	switch {
	case x.tx.State == StateRollingBack:
		return x.rollBack(ctx)
	case x.tx.State.Finished():
		return x.report(Forward), nil
	}
	return x.goOn(ctx)
}

// Rollback undoes what a transaction has done, in reverse: one that is
// unfinished, or one that is done. Rolling back what is rolled back or was
// cancelled does nothing and reports it.
func (r *Runner) Rollback(ctx context.Context, id string) (Report, error) {
	x, err := r.load(ctx, id)
	if err != nil {
		return Report{}, err
	}
	if x.tx.State == StateRolledBack || x.tx.State == StateCancelled {
		return x.report(Backward), nil
	}
	return x.rollBack(ctx)
}

func (r *Runner) load(ctx context.Context, id string) (*execution, error) {
	h, err := r.Log.Load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("load transaction %s: %w", id, err)
	}
	x := &execution{r: r, tx: h.Transaction, hist: h}
	for _, in := range h.Intents {
		x.seq = max(x.seq, in.Seq)
	}
	for _, step := range x.tx.Steps {
		if _, err := r.Registry.find(step); err != nil {
			return nil, fmt.Errorf("transaction %s: %w", id, err)
		}
	}
	return x, nil
}
