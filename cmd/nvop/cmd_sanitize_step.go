package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// sanitizeKind is the kind of a step that starts a sanitize.
const sanitizeKind = "drive.sanitize"

// sanitizeStep is the step that starts a sanitize. Its command has no namespace;
// it is written down as one of all, which is what it is.
func sanitizeStep(f nvmespec.SanitizeFields) (txn.Step, error) {
	cmd, err := describeSanitize(f)
	if err != nil {
		return txn.Step{}, err
	}
	params, err := json.Marshal(f)
	if err != nil {
		return txn.Step{}, err
	}
	step := txn.Step{
		Kind: sanitizeKind, Title: "start a sanitize by " + f.Action.String(), Params: params, Commands: []txn.Command{cmd},
		Destroys: "all data of all namespaces of the NVM subsystem", UndoText: "cannot be undone: the data is gone", TimeoutMS: cmd.TimeoutMS,
	}
	if f.Action == nvmespec.SanitizeExitFailure {
		step.Title, step.Destroys, step.UndoText = "leave the state of a failed sanitize", "", "cannot be undone"
	}
	return step, nil
}

func describeSanitize(f nvmespec.SanitizeFields) (txn.Command, error) {
	cmd, err := admin.SanitizeCommand(f)
	if err != nil {
		return txn.Command{}, err
	}
	c := txn.DescribeCommand("sanitize", cmd, "")
	c.NSID = nvmespec.BroadcastNSID
	return c, nil
}

// sanitizer carries out steps of kind sanitizeKind. It starts the sanitize; how
// it goes on is the drive's.
type sanitizer struct{}

// sanitizeBefore is the log from before.
type sanitizeBefore struct {
	State    nvmespec.SanitizeState `json:"state"`
	Command  uint32                 `json:"command_dword10"`
	Progress uint16                 `json:"progress"`
}

func (sanitizer) fields(s *txn.Scope) (nvmespec.SanitizeFields, error) {
	var f nvmespec.SanitizeFields
	if err := json.Unmarshal(s.Step.Params, &f); err != nil {
		return f, fmt.Errorf("parameters of step %d: %w", s.Step.Index+1, err)
	}
	if s.Direction == txn.Backward {
		return f, errors.New("a sanitize cannot be undone: the data is gone")
	}
	return f, nil
}

// Prepare implements txn.Executor.
func (x sanitizer) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	f, err := x.fields(s)
	if err != nil {
		return txn.Prepared{}, err
	}
	l, err := admin.SanitizeLog(ctx, s.Device)
	if err != nil {
		return txn.Prepared{}, err
	}
	if l.Running() {
		return txn.Prepared{}, &nvmeioctl.RefusedError{Check: "busy", Subject: s.Device.String(), Reason: "a sanitize runs already"}
	}
	before, err := json.Marshal(sanitizeBefore{l.State, l.Command, l.Progress})
	if err != nil {
		return txn.Prepared{}, err
	}
	cmd, err := describeSanitize(f)
	return txn.Prepared{Before: before, Commands: []txn.Command{cmd}}, err
}

// Take implements txn.Executor.
func (x sanitizer) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	f, err := x.fields(s)
	if err != nil {
		return nil, err
	}
	return nil, admin.Sanitize(ctx, s.Device, f)
}

// Verify implements txn.Executor. A log that says what it said before proves
// nothing: the same sanitize may have run again meanwhile.
func (x sanitizer) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	f, err := x.fields(s)
	if err != nil {
		return txn.Unknown, nil, err
	}
	l, err := admin.SanitizeLog(ctx, s.Device)
	if err != nil {
		return txn.Unknown, nil, err
	}
	if f.Action == nvmespec.SanitizeExitFailure {
		if l.State == nvmespec.SanitizeFailed {
			return txn.NotDone, nil, nil
		}
		return txn.Done, nil, nil
	}
	cdw10, _ := f.Dwords()
	if l.Command == cdw10 && (l.Running() || s.Answered) {
		return txn.Done, nil, nil
	}
	var before sanitizeBefore
	if len(s.Before) > 0 && json.Unmarshal(s.Before, &before) == nil && before != (sanitizeBefore{l.State, l.Command, l.Progress}) && l.Command == cdw10 {
		return txn.Done, nil, nil
	}
	return txn.Unknown, nil, nil
}

// Repeatable implements txn.Executor: what is erased can be erased again.
func (sanitizer) Repeatable(dir txn.Direction) bool { return dir == txn.Forward }
