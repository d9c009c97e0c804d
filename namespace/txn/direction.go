package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// goOn takes the steps forward from wherever the journal and the drive say the
// transaction is.
func (x *execution) goOn(ctx context.Context) (Report, error) {
	// Only the step that was begun last is read back: what later steps did may
	// look as if an earlier one were undone (a new namespace under the NSID of
	// the deleted one).
	last := -1
	for i := range x.tx.Steps {
		if x.taking(i, Forward).seq != 0 {
			last = i
		}
	}
	for i := range x.tx.Steps {
		done, err := x.isDone(ctx, i, i == last)
		if err == nil && !done {
			err = x.take(ctx, i, Forward)
		}
		if err != nil {
			return x.stopped(ctx, i, err)
		}
	}
	if err := x.setState(ctx, StateDone, "all steps done and verified"); err != nil {
		// Everything is done and recorded; resume only repeats the last words.
		return Report{}, x.partly(ctx, len(x.tx.Steps)-1, Forward, err)
	}
	return x.report(Forward), nil
}

// isDone says whether a step needs no more taking. The journal is believed
// about steps that others were built upon; the last one done and the open one
// are read back.
func (x *execution) isDone(ctx context.Context, index int, readBack bool) (bool, error) {
	t := x.taking(index, Forward)
	switch {
	case t.seq == 0, t.result == ResultRefused:
		return false, nil
	case t.result == ResultDone && !readBack:
		return true, nil
	}
	verdict, err := x.reconcile(ctx, index, Forward)
	if err != nil {
		return false, err
	}
	return x.decide(index, Forward, verdict)
}

func (x *execution) decide(index int, dir Direction, verdict Verdict) (done bool, err error) {
	switch verdict {
	case Done:
		return true, nil
	case NotDone, Partly:
		return false, nil
	}
	ex, err := x.r.Registry.find(x.tx.Steps[index])
	if err != nil {
		return false, err
	}
	if ex.Repeatable(dir) {
		return false, nil
	}
	return false, fmt.Errorf("the drive does not tell whether the step is %s: look at it before going on", map[Direction]string{Forward: "done", Backward: "undone"}[dir])
}

// rollBack undoes in reverse.
func (x *execution) rollBack(ctx context.Context) (Report, error) {
	if x.tx.State != StateRollingBack {
		// The direction is turned on the right drive only.
		if err := x.checkIdentity(ctx); err != nil {
			return Report{}, x.partly(ctx, len(x.tx.Steps)-1, Forward, err)
		}
		if err := x.setState(ctx, StateRollingBack, ""); err != nil {
			return Report{}, x.partly(ctx, len(x.tx.Steps)-1, Forward, err)
		}
	}
	for i := len(x.tx.Steps) - 1; i >= 0; i-- {
		needed, err := x.needsUndo(ctx, i)
		if err == nil && needed {
			err = x.take(ctx, i, Backward)
		}
		if left, ok := errors.AsType[*LeftError](err); ok && x.undone() {
			x.left = append(x.left, fmt.Sprintf("step %d (%s) is left as it is: %v", i+1, x.tx.Steps[i].Title, left))
			continue
		}
		if err != nil {
			return Report{}, x.stoppedBack(ctx, i, err)
		}
	}
	lost := x.lost()
	message := "all steps undone and verified"
	if rest := append(slices.Clone(lost), x.left...); len(rest) > 0 {
		message = "undone and verified; " + strings.Join(rest, "; ")
	}
	if err := x.setState(ctx, StateRolledBack, message); err != nil {
		return Report{}, x.partly(ctx, 0, Backward, err)
	}
	rep := x.report(Backward)
	rep.Left, rep.Lost = x.left, lost
	return rep, nil
}

// lost says what the steps that were taken have destroyed: undoing a deletion
// brings back the shape and never the data.
func (x *execution) lost() []string {
	var list []string
	for i, step := range x.tx.Steps {
		if t := x.taking(i, Forward); step.Destroys == "" || t.seq == 0 || t.result == ResultRefused || t.result == ResultNotDone {
			continue
		}
		list = append(list, fmt.Sprintf("lost for good: %s (undone, step %d %s)", step.Destroys, i+1, step.UndoText))
	}
	return list
}

// undone says whether a step has been undone.
func (x *execution) undone() bool {
	for i := range x.tx.Steps {
		if x.taking(i, Backward).result == ResultDone {
			return true
		}
	}
	return false
}

// stoppedBack decides what a step that could not be undone means. Where nothing
// has been undone yet the transaction goes back to the state it was in, so that
// it can still go on, or is not left half done for nothing.
func (x *execution) stoppedBack(ctx context.Context, index int, cause error) error {
	if _, cut := errors.AsType[*cutError](cause); cut {
		return cause
	}
	done := true
	for i := range x.tx.Steps {
		if x.taking(i, Backward).seq != 0 {
			return x.partly(ctx, index, Backward, cause)
		}
		done = done && x.taking(i, Forward).result == ResultDone
	}
	if done {
		return also(cause, x.setState(ctx, StateDone, "rolling back was refused: "+cause.Error()))
	}
	return x.partly(ctx, index, Forward, also(cause, x.setState(ctx, StateOpen, "")))
}

// needsUndo says whether a step has to be undone: taken forward, or possibly
// so, and not undone since.
func (x *execution) needsUndo(ctx context.Context, index int) (bool, error) {
	fwd, back := x.taking(index, Forward), x.taking(index, Backward)
	if fwd.seq == 0 || x.passed(index) {
		return false, nil
	}
	if back.seq > fwd.seq {
		switch back.result {
		case ResultDone:
			return false, nil
		case ResultRefused, ResultNotDone:
			return true, nil
		}
		verdict, err := x.reconcile(ctx, index, Backward)
		if err != nil {
			return false, err
		}
		undone, err := x.decide(index, Backward, verdict)
		return !undone, err
	}
	if fwd.result == ResultDone {
		return true, nil
	}
	// Refused, not done, unclear or open: the drive knows. What was refused
	// may have been carried out in part.
	verdict, err := x.reconcile(ctx, index, Forward)
	if err != nil {
		return false, err
	}
	switch verdict {
	case NotDone:
		return false, nil
	case Unknown:
		_, err := x.decide(index, Backward, Unknown)
		return true, err
	}
	return true, nil
}

// passed says that the rollback is already beyond a step: an earlier one has
// been begun to be undone. Reading this one back would mislead then, since the
// old state is coming back (the old namespace under the NSID of the new one).
func (x *execution) passed(index int) bool {
	for i := range index {
		if back := x.taking(i, Backward); back.seq > x.taking(index, Forward).seq {
			return true
		}
	}
	return false
}

// stopped decides what a failed step means for the whole.
func (x *execution) stopped(ctx context.Context, index int, cause error) (Report, error) {
	if _, cut := errors.AsType[*cutError](cause); cut {
		return Report{}, cause
	}
	if !x.touched() {
		return Report{}, x.nothingDone(ctx, cause)
	}
	if _, refused := errors.AsType[*refusal](cause); refused && !x.r.LeaveRefused {
		return Report{}, x.restore(ctx, index, cause)
	}
	return Report{}, x.partly(ctx, index, Forward, cause)
}

// restore rolls back after the drive refused a step.
func (x *execution) restore(ctx context.Context, index int, cause error) error {
	rep, err := x.rollBack(ctx)
	if err == nil {
		return &RolledBackError{
			ID: x.tx.ID, Step: x.tx.Steps[index], Err: cause,
			Drive: restored(x.describe(ctx), append(rep.Lost, x.left...)),
		}
	}
	if _, cut := errors.AsType[*cutError](err); cut {
		return err
	}
	if partly, ok := errors.AsType[*PartlyDoneError](err); ok {
		partly.Err = fmt.Errorf("%w (while restoring the old state, because step %d was refused: %w)", partly.Err, index+1, cause)
		return partly
	}
	return fmt.Errorf("%w (while restoring the old state, because step %d was refused: %w)", err, index+1, cause)
}

// touched says whether a command of this transaction may have had an effect.
func (x *execution) touched() bool {
	for i := range x.tx.Steps {
		t := x.taking(i, Forward)
		if t.seq != 0 && t.result != ResultRefused && t.result != ResultNotDone {
			return true
		}
	}
	return false
}

// nothingDone ends a transaction that changed nothing, and returns why.
func (x *execution) nothingDone(ctx context.Context, cause error) error {
	err := cause
	switch {
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		err = &CancelledError{Err: cause}
	case indeterminate(cause):
		// The command is known not to have been carried out, but the drive is
		// in trouble: keep the transaction so that it can go on.
		return x.partly(ctx, 0, Forward, fmt.Errorf("%w; nothing has been changed so far", cause))
	}
	return also(err, x.setState(ctx, StateCancelled, "nothing was changed: "+cause.Error()))
}

func (x *execution) partly(ctx context.Context, index int, dir Direction, cause error) *PartlyDoneError {
	return &PartlyDoneError{ID: x.tx.ID, Step: x.tx.Steps[index], Direction: dir, Drive: x.describe(ctx), Err: cause}
}

func (x *execution) describe(ctx context.Context) string {
	if x.r.Describe == nil {
		return ""
	}
	text, err := x.r.Describe(context.WithoutCancel(ctx), x.r.Device)
	if err != nil {
		return "the drive could not be read: " + err.Error()
	}
	return text
}

func restored(drive string, left []string) string {
	text := "what had been done before was undone"
	if len(left) > 0 {
		text += ", but not all of it"
	}
	if drive != "" {
		text += ": " + drive
	}
	return strings.Join(append([]string{text}, left...), "; ")
}
