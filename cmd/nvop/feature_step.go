package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"nvop/namespace/txn"
	"nvop/nvmeioctl/admin"
)

// featureKind is the kind of a step that sets a feature.
const featureKind = "feature.set"

// featureSetter carries out steps of kind featureKind. Its state is the value
// the feature had before, which the undo sets again.
type featureSetter struct{}

// featureBefore is the value a feature had.
type featureBefore struct {
	Dword uint32 `json:"dword"`
}

// change is what the scope's direction asks for.
func (featureSetter) change(s *txn.Scope) (admin.FeatureChange, error) {
	var f admin.FeatureChange
	if err := json.Unmarshal(s.Step.Params, &f); err != nil {
		return f, fmt.Errorf("parameters of step %d: %w", s.Step.Index+1, err)
	}
	if s.Direction == txn.Forward {
		return f, nil
	}
	state, ok := s.StateOf(s.Step.Index, txn.Forward)
	if !ok {
		return f, errors.New("the value from before is not recorded")
	}
	var before featureBefore
	if err := json.Unmarshal(state, &before); err != nil {
		return f, fmt.Errorf("recorded value: %w", err)
	}
	f.Dword = before.Dword
	return f, nil
}

// Prepare implements txn.Executor.
func (x featureSetter) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	f, err := x.change(s)
	if err != nil {
		return txn.Prepared{}, err
	}
	now, err := admin.GetFeature(ctx, s.Device, admin.FeatureRequest{Feature: f.Feature, NSID: f.NSID, VendorID: f.VendorID})
	if err != nil {
		return txn.Prepared{}, err
	}
	before, err := json.Marshal(featureBefore{now.Dword})
	if err != nil {
		return txn.Prepared{}, err
	}
	cmd, err := admin.SetFeatureCommand(f)
	if err != nil {
		return txn.Prepared{}, err
	}
	return txn.Prepared{Before: before, Commands: []txn.Command{txn.DescribeCommand("set features", cmd, "")}}, nil
}

// Take implements txn.Executor.
func (x featureSetter) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	f, err := x.change(s)
	if err != nil {
		return nil, err
	}
	_, err = admin.SetFeature(ctx, s.Device, f)
	return s.Before, err
}

// Verify implements txn.Executor.
func (x featureSetter) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	f, err := x.change(s)
	if err != nil {
		return txn.Unknown, nil, err
	}
	so, err := featureIs(ctx, s.Device, f)
	switch {
	case err != nil:
		return txn.Unknown, nil, err
	case so:
		return txn.Done, s.Before, nil
	}
	return txn.NotDone, nil, nil
}

// Repeatable implements txn.Executor: setting a value twice is setting it once.
func (featureSetter) Repeatable(txn.Direction) bool { return true }
