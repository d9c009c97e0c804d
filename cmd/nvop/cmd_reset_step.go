package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
)

// resetKind is the kind of a step that resets the controller or the subsystem.
const resetKind = "drive.reset"

// resetParams is what the step needs in another process.
type resetParams struct {
	Subsystem bool `json:"subsystem"`
}

func (p resetParams) title() string {
	if p.Subsystem {
		return "subsystem reset"
	}
	return "controller reset"
}

func resetStep(p resetParams) (txn.Step, error) {
	params, err := json.Marshal(p)
	if err != nil {
		return txn.Step{}, err
	}
	return txn.Step{Kind: resetKind, Title: p.title(), Params: params, Commands: []txn.Command{},
		UndoText: "cannot be undone, and leaves nothing to undo: features that were not saved stay as saved", TimeoutMS: resetPatience.Milliseconds()}, nil
}

// resetsSubsystem says that a step is a subsystem reset, which is agreed to by itself.
func resetsSubsystem(s txn.Step) bool {
	var p resetParams
	return s.Kind == resetKind && json.Unmarshal(s.Params, &p) == nil && p.Subsystem
}

// resetter carries out steps of kind resetKind.
type resetter struct{}

// resetState is the firmware that ran before a reset, or after it.
type resetState struct {
	Firmware string `json:"firmware"`
}

// Prepare implements txn.Executor. A reset has no command; backward there is
// nothing to do.
func (resetter) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	if s.Direction == txn.Backward {
		return txn.Prepared{Note: "a reset leaves nothing to undo"}, nil
	}
	ctrl, err := admin.IdentifyController(ctx, s.Device)
	if err != nil {
		return txn.Prepared{}, err
	}
	before, err := json.Marshal(resetState{ctrl.FirmwareRevision})
	return txn.Prepared{Before: before, Resets: true}, err
}

// Take implements txn.Executor: it resets, and waits until the same controller
// answers. That is not interrupted: a drive in a reset cannot be asked anything.
func (resetter) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	if s.Direction == txn.Backward {
		return nil, nil
	}
	var p resetParams
	if err := json.Unmarshal(s.Step.Params, &p); err != nil {
		return nil, fmt.Errorf("parameters of step %d: %w", s.Step.Index+1, err)
	}
	host, ok := nvmeioctl.As[nvmeioctl.Resetter](s.Device)
	if !ok {
		return nil, &nvmeioctl.UnsupportedError{Feature: "a reset of " + s.Device.String(), Needs: "a drive"}
	}
	ctx = context.WithoutCancel(ctx)
	reset := host.ResetController
	if p.Subsystem {
		reset = host.ResetSubsystem
	}
	if err := reset(ctx); err != nil {
		return nil, err
	}
	firmware, err := answers(ctx, s.Device, s.Clock, s.Transaction().Identity)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", nvmeioctl.ErrIndeterminate, err)
	}
	return json.Marshal(resetState{firmware})
}

// Verify implements txn.Executor. A reset leaves no trace of itself, so one that
// was not seen to end is unknown.
func (resetter) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	ctrl, err := admin.IdentifyController(ctx, s.Device)
	if err != nil {
		return txn.Unknown, nil, err
	}
	state, err := json.Marshal(resetState{ctrl.FirmwareRevision})
	if s.Direction == txn.Backward || s.Answered {
		return txn.Done, state, err
	}
	return txn.Unknown, nil, err
}

// Repeatable implements txn.Executor: a reset can be done again.
func (resetter) Repeatable(txn.Direction) bool { return true }

// answers waits until the same controller answers, and gives its firmware.
func answers(ctx context.Context, dev nvmeioctl.Device, clock nvmeioctl.Clock, identity nvmeioctl.Identity) (firmware string, err error) {
	for deadline := clock.Now().Add(resetPatience); ; {
		ctrl, err := admin.IdentifyController(ctx, dev)
		if err == nil {
			if now := admin.IdentityOf(ctrl); now.Serial != identity.Serial || now.Model != identity.Model {
				return "", fmt.Errorf("%s: another drive answers after the reset: serial number %s", dev, now.Serial)
			}
			return ctrl.FirmwareRevision, nil
		}
		if errors.Is(err, nvmeioctl.ErrDeviceGone) || clock.Now() >= deadline {
			return "", fmt.Errorf("%s: no answer after the reset (a power cycle may be needed): %w", dev, err)
		}
		if err := clock.Sleep(ctx, 500*time.Millisecond); err != nil {
			return "", err
		}
	}
}
