package txn

import (
	"context"
	"encoding/json"
	"fmt"

	"nvop/nvmeioctl"
)

// Verdict is what reading back says about a step.
type Verdict uint8

// The verdicts. They are about the direction asked for: Done means "the step
// is done" for [Forward] and "the step is undone" for [Backward].
const (
	// Unknown: the drive does not tell. The zero value, so that nothing is
	// taken for done by omission.
	Unknown Verdict = iota
	NotDone
	// Partly: some of it is done; taking it again completes it.
	Partly
	Done
)

func (v Verdict) String() string {
	switch v {
	case NotDone:
		return "not done"
	case Partly:
		return "partly done"
	case Done:
		return "done"
	}
	return "unknown"
}

// Prepared is what an executor read and decided before its command.
type Prepared struct {
	// Before is stored with the intent and handed to Verify after a crash.
	Before json.RawMessage
	// Commands are the exact commands about to be sent; none when nothing
	// needs to be sent any more.
	Commands []Command
	// Resets says that the step resets the controller, which is no command.
	Resets bool
	// Note is stored with the intent.
	Note string
}

// Executor does, undoes and verifies steps of one kind. It keeps no state:
// everything comes from the step and the scope.
type Executor interface {
	// Prepare reads the drive and says what will be sent. It changes nothing.
	// An error refuses the step before anything is sent.
	Prepare(ctx context.Context, s *Scope) (Prepared, error)
	// Take carries the step out in the scope's direction and returns the state
	// that later steps need. It returns an error that Is
	// [nvmeioctl.ErrIndeterminate] when the drive did not answer. The context
	// counts until submission only.
	Take(ctx context.Context, s *Scope) (state json.RawMessage, err error)
	// Verify reads back whether the scope's direction has been achieved, and
	// the state Take would have returned. It changes nothing on the drive.
	Verify(ctx context.Context, s *Scope) (Verdict, json.RawMessage, error)
	// Repeatable says that a step whose fate is unknown may simply be taken
	// again in this direction (a format may, a create may not).
	Repeatable(dir Direction) bool
}

// Registry finds executors by the kind of a step.
type Registry map[string]Executor

func (r Registry) find(step Step) (Executor, error) {
	ex, ok := r[step.Kind]
	if !ok {
		return nil, fmt.Errorf("step %d: this version does not know steps of kind %q", step.Index+1, step.Kind)
	}
	return ex, nil
}

// Scope is what an executor works with while one step is taken. It is valid
// during the call only.
type Scope struct {
	// Device is the drive; mutating commands pass only where the pre-step
	// check granted them.
	Device nvmeioctl.Device
	Clock  nvmeioctl.Clock
	Step   Step
	// Direction is which way the step is taken.
	Direction Direction
	// Before is what Prepare stored with the newest intent of this taking; for
	// Verify of a step that was never taken it is nil.
	Before json.RawMessage
	// Answered says, to Verify, that the drive answered the command with
	// success: what is read back has to agree, but need not prove by itself
	// that the command was carried out.
	Answered bool

	run *execution
	// seq is the number of the first intent of this taking, attempt counts them.
	seq, attempt int
}

// Transaction is the transaction the step belongs to.
func (s *Scope) Transaction() Transaction { return s.run.tx }

// StateOf returns what the step with this index left for others when taken in
// this direction; false when it has not been done.
func (s *Scope) StateOf(index int, dir Direction) (json.RawMessage, bool) {
	return s.run.stateOf(index, dir)
}

// Retaken says that the step was begun before in this direction, so that the
// drive may hold what that attempt left.
func (s *Scope) Retaken() bool {
	for _, in := range s.run.hist.Intents {
		if in.StepIndex == s.Step.Index && in.Direction == s.Direction && in.Seq < s.seq {
			return true
		}
	}
	return false
}

// Attempt records a further intent of the same taking, before a changed
// command is sent.
func (s *Scope) Attempt(ctx context.Context, p Prepared) error {
	if p.Before == nil {
		p.Before = s.Before
	}
	return s.run.recordIntent(ctx, s, p)
}
