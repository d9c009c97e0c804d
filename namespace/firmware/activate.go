package firmware

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// activation are the parameters of KindActivate.
type activation struct {
	// Back is how many steps before this one staged what is to be activated: the
	// step's own number changes when plans are joined.
	Back     int    `json:"steps_back"`
	Revision string `json:"revision,omitempty"`
	Slot     uint8  `json:"slot"`
	// Wait is how long the controller may take.
	Wait   time.Duration `json:"wait_ns"`
	Before was           `json:"before"`
}

func (a activation) step(index int) (txn.Step, error) {
	raw, err := json.Marshal(a)
	return txn.Step{
		Index: index, Kind: KindActivate, Title: "reset the controller, to activate the firmware", Params: raw, TimeoutMS: a.Wait.Milliseconds(),
		Commands: []txn.Command{},
		UndoText: fmt.Sprintf("makes slot %d the next again and resets the controller, where it still holds revision %s; settings that are not saved go back with each reset", a.Before.Active, a.Before.slot(a.Before.Active).Revision),
	}, err
}

// activator resets the controller. Never the subsystem: drives have vanished.
type activator struct{ o ExecutorOptions }

// staged is what the step before left.
func (activator) staged(s *txn.Scope, a activation) (Record, error) {
	var r Record
	raw, ok := s.StateOf(s.Step.Index-a.Back, txn.Forward)
	if !ok || len(raw) == 0 {
		return r, fmt.Errorf("what step %d staged is not recorded", s.Step.Index-a.Back+1)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("recorded state: %w", err)
	}
	return r, nil
}

// wanted says whether a reset is needed, and which revision should run after it.
func (x activator) wanted(ctx context.Context, s *txn.Scope, a activation) (revision string, needed bool, note string, err error) {
	r, err := x.staged(s, a)
	if err != nil {
		return "", false, "", err
	}
	now, err := Read(ctx, s.Device)
	if err != nil {
		return "", false, "", err
	}
	if s.Direction == txn.Backward {
		old := a.Before.slot(a.Before.Active)
		held, _ := now.Slot(a.Before.Active)
		switch {
		case now.Running == a.Before.Running && now.Active == a.Before.Active:
			return a.Before.Running, false, "the old revision runs: nothing to undo", nil
		case held.Revision != old.Revision:
			return "", false, "", leave(refused("undo", s.Device.String(), "load the old revision's image", "slot %d no longer holds revision %s", a.Before.Active, old.Revision))
		}
		return a.Before.Running, true, "", nil
	}
	switch {
	case now.Running == r.Revision && now.Active == r.Slot:
		return r.Revision, false, "it runs already", nil
	case r.Pending != ResetController:
		return r.Revision, false, "the drive asks for a power cycle: the controller is not reset", nil
	}
	if err := now.idle(s.Device.String(), true, x.o.AcceptUnread); err != nil {
		return "", false, "", err
	}
	return r.Revision, true, "", nil
}

// Prepare implements txn.Executor.
func (x activator) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	a, err := decode[activation](s.Step)
	if err != nil {
		return txn.Prepared{}, err
	}
	_, needed, note, err := x.wanted(ctx, s, a)
	if err != nil || !needed {
		return txn.Prepared{Note: note}, err
	}
	prep := txn.Prepared{Resets: true, Note: "the controller is reset"}
	if s.Direction == txn.Backward {
		cmd, err := x.commitOld(a).describeCommit()
		prep.Commands = []txn.Command{cmd}
		return prep, err
	}
	return prep, nil
}

// commitOld makes the slot that ran before the next one.
func (activator) commitOld(a activation) params {
	return params{Slot: a.Before.Active, Action: nvmespec.CommitActivate, Revision: a.Before.slot(a.Before.Active).Revision, Wait: a.Wait, Before: a.Before}
}

// Take implements txn.Executor.
func (x activator) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	a, err := decode[activation](s.Step)
	if err != nil {
		return nil, err
	}
	revision, needed, _, err := x.wanted(ctx, s, a)
	if err != nil {
		return nil, err
	}
	if !needed {
		return x.left(ctx, s, a, revision, false)
	}
	host, ok := nvmeioctl.As[nvmeioctl.Resetter](s.Device)
	if !ok {
		return nil, &nvmeioctl.UnsupportedError{Feature: "a controller reset", Needs: "a device that can be reset from here"}
	}
	if s.Direction == txn.Backward {
		if _, err := (updater{}).commit(ctx, s, x.commitOld(a)); err != nil {
			return nil, err
		}
	}
	if err := host.ResetController(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("%w: controller reset: %w", nvmeioctl.ErrIndeterminate, err)
	}
	return x.left(context.WithoutCancel(ctx), s, a, revision, true)
}

// left waits until the controller answers, and says what runs.
func (x activator) left(ctx context.Context, s *txn.Scope, a activation, revision string, reset bool) (json.RawMessage, error) {
	r, err := x.staged(s, a)
	if err != nil {
		return nil, err
	}
	deadline := s.Clock.Now().Add(a.Wait)
	for {
		now, err := Read(ctx, s.Device)
		switch {
		case err == nil && now.Running == revision:
			r.Phase, r.Pending, r.Note = PhaseActive, ResetNone, ""
			if s.Direction == txn.Backward {
				r.Revision, r.Slot = revision, now.Active
			}
			return json.Marshal(r)
		case err == nil && !reset:
			return json.Marshal(r)
		case err == nil:
			// It is back and runs the old revision (case FW-05): a drive may need
			// its power taken away, whatever it said.
			r.Pending = r.Pending.stronger(ResetConventional)
			r.Note = fmt.Sprintf("a controller reset did not activate it: revision %s runs; power cycle the drive", now.Running)
			if s.Direction == txn.Backward {
				r.Revision, r.Slot, r.Phase = revision, a.Before.Active, PhaseStaged
			}
			return json.Marshal(r)
		case s.Clock.Now() >= deadline:
			return nil, fmt.Errorf("%w: the controller does not answer after a reset: %w", nvmeioctl.ErrIndeterminate, err)
		}
		if err := s.Clock.Sleep(ctx, pollPause); err != nil {
			return nil, err
		}
	}
}

// Verify implements txn.Executor. A reset leaves no trace but what runs.
func (x activator) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	if s.Answered {
		return txn.Done, nil, nil
	}
	a, err := decode[activation](s.Step)
	if err != nil {
		return txn.Unknown, nil, err
	}
	revision, needed, _, err := x.wanted(ctx, s, a)
	if err != nil || needed {
		return txn.NotDone, nil, err
	}
	raw, err := x.left(ctx, s, a, revision, false)
	return txn.Done, raw, err
}

// Repeatable implements txn.Executor.
func (activator) Repeatable(txn.Direction) bool { return true }

// verifier writes down what a drive made of an earlier record: the end of the
// state machine, active or failed.
type verifier struct{}

// VerifyStep is a step that compares the drive with a record.
func VerifyStep(r Record) (txn.Step, error) {
	raw, err := json.Marshal(r)
	return txn.Step{Kind: KindVerify, Title: fmt.Sprintf("verify firmware %s", r.Revision), Params: raw,
		Commands: []txn.Command{}, UndoText: "not needed: it only reads"}, err
}

// Prepare implements txn.Executor.
func (verifier) Prepare(context.Context, *txn.Scope) (txn.Prepared, error) {
	return txn.Prepared{}, nil
}

// Take implements txn.Executor.
func (verifier) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	r, err := decode[Record](s.Step)
	if err != nil || s.Direction == txn.Backward {
		return nil, err
	}
	now, err := Read(ctx, s.Device)
	if err != nil {
		return nil, err
	}
	j := Judge(r, now)
	r.Phase, r.Pending, r.Note = j.Phase, j.Pending, j.Text
	return json.Marshal(r)
}

// Verify implements txn.Executor.
func (verifier) Verify(_ context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	if s.Answered || s.Direction == txn.Backward {
		return txn.Done, nil, nil
	}
	return txn.NotDone, nil, nil
}

// Repeatable implements txn.Executor.
func (verifier) Repeatable(txn.Direction) bool { return true }
