package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"nvop/nvmeioctl"
)

// execution is one run of one transaction: the runner and what is recorded.
type execution struct {
	r    *Runner
	tx   Transaction
	hist History
	seq  int
	// left says which steps a rollback could not undo and left.
	left []string
}

// taking is what the journal knows about the last time a step was taken in one
// direction.
type taking struct {
	// seq is the number of its first intent; 0 means that it never was taken.
	seq int
	// before is what the newest intent recorded.
	before json.RawMessage
	// result is empty while the taking is open.
	result Result
	state  json.RawMessage
}

func (x *execution) taking(index int, dir Direction) taking {
	var t taking
	for _, in := range x.hist.Intents {
		if in.StepIndex != index || in.Direction != dir {
			continue
		}
		if in.Attempt <= 1 {
			t = taking{seq: in.Seq}
		}
		t.before = in.Before
	}
	for _, out := range x.hist.Outcomes {
		if t.seq != 0 && out.Seq == t.seq {
			t.result, t.state = out.Result, out.State
		}
	}
	return t
}

func (x *execution) stateOf(index int, dir Direction) (json.RawMessage, bool) {
	t := x.taking(index, dir)
	return t.state, t.result == ResultDone
}

// report is what Run returns after the last step in this direction.
func (x *execution) report(dir Direction) Report {
	rep := Report{ID: x.tx.ID, State: x.tx.State, States: make([]json.RawMessage, len(x.tx.Steps))}
	for i := range rep.States {
		rep.States[i] = x.taking(i, dir).state
	}
	return rep
}

// cutError is a run ended by Runner.Cut. It passes through everything.
type cutError struct{ err error }

func (e *cutError) Error() string { return e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

func (x *execution) at(s *Scope, phase Phase, note string) error {
	ev := Event{
		TransactionID: x.tx.ID, Step: s.Step, Steps: len(x.tx.Steps),
		Direction: s.Direction, Phase: phase, Attempt: s.attempt, Note: note,
	}
	if x.r.Notify != nil {
		x.r.Notify(ev)
	}
	if x.r.Cut != nil {
		if err := x.r.Cut(ev); err != nil {
			return &cutError{err: err}
		}
	}
	return nil
}

func (x *execution) scope(index int, dir Direction) *Scope {
	t := x.taking(index, dir)
	return &Scope{
		Device: x.r.Device, Clock: x.r.Clock, Step: x.tx.Steps[index], Direction: dir,
		Before: t.before, Answered: t.result == ResultDone, run: x, seq: t.seq,
	}
}

func (x *execution) recordIntent(ctx context.Context, s *Scope, p Prepared) error {
	s.attempt++
	in := Intent{
		TransactionID: x.tx.ID, Seq: x.seq + 1, StepIndex: s.Step.Index, Direction: s.Direction,
		Attempt: s.attempt, Before: p.Before, Commands: p.Commands, Note: p.Note, At: x.r.Clock.Wall(),
	}
	if err := x.r.Log.Intent(context.WithoutCancel(ctx), in); err != nil {
		return fmt.Errorf("record the intent: %w", err)
	}
	x.seq++
	if s.attempt == 1 {
		s.seq = in.Seq
	}
	s.Before = p.Before
	x.hist.Intents = append(x.hist.Intents, in)
	return x.at(s, PhaseAfterIntent, p.Note)
}

func (x *execution) recordOutcome(ctx context.Context, s *Scope, result Result, state json.RawMessage, cause error) error {
	out := Outcome{
		TransactionID: x.tx.ID, Seq: s.seq, StepIndex: s.Step.Index, Direction: s.Direction,
		Result: result, State: state, At: x.r.Clock.Wall(),
	}
	if cause != nil {
		out.Error = cause.Error()
	}
	if err := x.r.Log.Outcome(context.WithoutCancel(ctx), out); err != nil {
		return fmt.Errorf("record the outcome: %w", err)
	}
	x.hist.Outcomes = append(x.hist.Outcomes, out)
	return x.at(s, PhaseAfterOutcome, string(result))
}

func (x *execution) setState(ctx context.Context, state State, message string) error {
	at := x.r.Clock.Wall()
	if err := x.r.Log.SetState(context.WithoutCancel(ctx), x.tx.ID, state, message, at); err != nil {
		return fmt.Errorf("record that the transaction is %s: %w", state, err)
	}
	x.tx.State, x.tx.Message = state, message
	if state.Finished() {
		x.tx.Ended = at
	}
	return nil
}

// checkIdentity refuses to go on with another drive than the one planned for.
func (x *execution) checkIdentity(ctx context.Context) error {
	now, err := x.r.Identify(ctx, x.r.Device)
	if err != nil {
		return fmt.Errorf("identify the drive: %w", err)
	}
	want := x.tx.Identity
	if now == want {
		return nil
	}
	return &nvmeioctl.RefusedError{
		Check: "identity", Subject: x.r.Device.String(),
		Reason: fmt.Sprintf("the drive is not the one planned for: found %s, planned %s", describeIdentity(now), describeIdentity(want)),
		Remedy: "open the drive the plan was made for",
	}
}

func describeIdentity(id nvmeioctl.Identity) string {
	return fmt.Sprintf("serial %q model %q controller %d of %q", id.Serial, id.Model, id.CNTLID, id.SubsystemNQN)
}

// take carries one step out in one direction: the fixed order around each
// command. A nil error means done, recorded and verified.
func (x *execution) take(ctx context.Context, index int, dir Direction) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := x.scope(index, dir)
	s.Before, s.Answered, s.seq = nil, false, 0
	ex, err := x.r.Registry.find(s.Step)
	if err != nil {
		return err
	}
	if err := x.checkIdentity(ctx); err != nil {
		return err
	}
	p, err := ex.Prepare(ctx, s)
	if err != nil {
		return err
	}
	if x.r.PreStep != nil && (len(p.Commands) > 0 || p.Resets) {
		dev, err := x.r.PreStep(ctx, StepInfo{TransactionID: x.tx.ID, Step: s.Step, Direction: dir, Commands: p.Commands, Resets: p.Resets})
		if err != nil {
			return err
		}
		if dev != nil {
			s.Device = dev
		}
	}
	if err := x.at(s, PhaseBeforeIntent, p.Note); err != nil {
		return err
	}
	if err := x.recordIntent(ctx, s, p); err != nil {
		return err
	}
	state, takeErr := ex.Take(ctx, s)
	if _, cut := errors.AsType[*cutError](takeErr); cut {
		return takeErr
	}
	if err := x.at(s, PhaseAfterTake, ""); err != nil {
		return err
	}
	return x.settle(ctx, ex, s, state, takeErr)
}

// settle turns what Take returned into a recorded outcome. Whatever the drive
// did not clearly answer is established by reading back.
func (x *execution) settle(ctx context.Context, ex Executor, s *Scope, state json.RawMessage, takeErr error) error {
	keep := context.WithoutCancel(ctx)
	switch {
	case takeErr == nil:
		if err := x.recordOutcome(ctx, s, ResultDone, state, nil); err != nil {
			return err
		}
		return x.confirm(keep, ex, s)
	case refusedByDrive(takeErr):
		return &refusal{err: also(takeErr, x.recordOutcome(ctx, s, ResultRefused, nil, takeErr))}
	}
	// No answer, or an answer that could not be used: another drive may sit
	// there by now, so the identity comes first.
	if err := x.checkIdentity(keep); err != nil {
		return also(takeErr, err)
	}
	verdict, found, err := ex.Verify(keep, s)
	if err != nil {
		return also(takeErr, fmt.Errorf("read back: %w", err))
	}
	switch verdict {
	case Done:
		if err := x.recordOutcome(ctx, s, ResultDone, found, takeErr); err != nil {
			return err
		}
		return x.confirm(keep, ex, s)
	case NotDone:
		return also(takeErr, x.recordOutcome(ctx, s, ResultNotDone, nil, takeErr))
	}
	return also(takeErr, x.recordOutcome(ctx, s, ResultUnknown, nil, takeErr))
}

// confirm reads back what the drive said it did.
func (x *execution) confirm(ctx context.Context, ex Executor, s *Scope) error {
	s.Answered = true
	verdict, _, err := ex.Verify(ctx, s)
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if verdict != Done {
		return fmt.Errorf("the drive answered success, but reading back says that the step is %s", verdict)
	}
	return x.at(s, PhaseAfterVerify, "")
}

// reconcile finds out from the drive how far a step got whose taking is open
// or unclear, and records it. It returns the verdict for the direction.
func (x *execution) reconcile(ctx context.Context, index int, dir Direction) (Verdict, error) {
	if err := x.checkIdentity(ctx); err != nil {
		return Unknown, err
	}
	s := x.scope(index, dir)
	ex, err := x.r.Registry.find(s.Step)
	if err != nil {
		return Unknown, err
	}
	verdict, state, err := ex.Verify(ctx, s)
	if err != nil {
		return Unknown, fmt.Errorf("read back step %d: %w", index+1, err)
	}
	switch verdict {
	case Done:
		if s.Answered {
			return Done, nil
		}
		return Done, x.recordOutcome(ctx, s, ResultDone, state, errors.New("found done by reading back"))
	case NotDone:
		if t := x.taking(index, dir); t.result == ResultRefused || t.result == ResultNotDone {
			return NotDone, nil
		}
		return NotDone, x.recordOutcome(ctx, s, ResultNotDone, nil, errors.New("found not done by reading back"))
	}
	return verdict, nil
}
