package namespace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// KindFeature is the kind of a step that sets a feature.
const KindFeature = "feature.set"

// clockSlack is how far a clock that was just set may be off when it is read back.
const clockSlack = 10 * time.Second

// FeatureParams are the parameters of a step that sets a feature.
type FeatureParams struct {
	admin.FeatureChange
	// Selector is dword 11 of the Get Features that reads the value back.
	Selector uint32 `json:"selector,omitempty"`
	// Mask are the bits of the dword that count, where the rest is to stay as it
	// is found; 0 means all.
	Mask uint32 `json:"mask,omitempty"`
	// Clock says that the data is the host's time at the moment of sending.
	Clock bool `json:"clock,omitempty"`
	// CreatedBy is the step that creates the namespace; nil where NSID is known.
	CreatedBy *int `json:"created_by_step,omitempty"`
}

func (p FeatureParams) key() FeatureKey {
	return FeatureKey{Feature: p.Feature, Selector: p.Selector, NSID: p.NSID}
}

// featureBefore is the value a feature had.
type featureBefore struct {
	Dword uint32   `json:"dword"`
	Data  HexBytes `json:"data,omitempty"`
	// Saved is the value that was kept over power cycles; nil where the step
	// saves none or the drive did not tell.
	Saved *FeatureValue `json:"saved,omitempty"`
}

// FeatureStep is a step that sets a feature. The step's index is the caller's.
func FeatureStep(title string, p FeatureParams) (txn.Step, error) {
	if p.Clock && p.Data == nil {
		p.Data = make([]byte, nvmespec.TimestampSize)
	}
	cmd, err := admin.SetFeatureCommand(p.FeatureChange)
	if err != nil {
		return txn.Step{}, err
	}
	summary, undo := "", "sets the present value again"
	switch {
	case p.Clock:
		p.Data = nil
		summary, undo = "the host's time when it is sent", "cannot be undone: the drive's clock runs on from the host's time"
	case len(p.Data) > 0:
		summary = fmt.Sprintf("%x", bytes.TrimRight(p.Data, "\x00"))
	}
	if p.Save {
		undo = "sets the present value and the saved one again"
	}
	described := txn.DescribeCommand("set features", cmd, summary)
	if p.CreatedBy != nil {
		described.NSIDFrom = fmt.Sprintf("created by step %d", *p.CreatedBy+1)
	}
	return txn.Step{
		Kind: KindFeature, Title: title, Params: mustJSON(p), Commands: []txn.Command{described},
		UndoText: undo, TimeoutMS: cmd.Timeout.Milliseconds(),
	}, nil
}

// featureSetter carries out steps of kind KindFeature. Its state is the value the
// feature had before, which the undo sets again.
type featureSetter struct{}

// params are those of the step, the namespace resolved.
func (featureSetter) params(s *txn.Scope) (FeatureParams, error) {
	p, err := decodeParams[FeatureParams](s.Step)
	if err != nil || p.CreatedBy == nil {
		return p, err
	}
	p.NSID, err = reference{CreatedBy: p.CreatedBy}.resolve(s)
	return p, err
}

// recorded is the value before the step, from what was prepared or left.
func (featureSetter) recorded(s *txn.Scope) (featureBefore, error) {
	var before featureBefore
	state, ok := s.StateOf(s.Step.Index, txn.Forward)
	if !ok {
		return before, errors.New("the value from before is not recorded")
	}
	if err := json.Unmarshal(state, &before); err != nil {
		return before, fmt.Errorf("recorded value: %w", err)
	}
	return before, nil
}

// changes are the commands of the scope's direction, in order.
func (x featureSetter) changes(s *txn.Scope, now FeatureValue) ([]admin.FeatureChange, error) {
	p, err := x.params(s)
	if err != nil {
		return nil, err
	}
	if s.Direction == txn.Forward {
		f := p.FeatureChange
		if p.Mask != 0 {
			f.Dword = now.Dword&^p.Mask | f.Dword&p.Mask
		}
		if p.Clock {
			f.Data = nvmespec.Timestamp{Milliseconds: uint64(s.Clock.Wall().UnixMilli()) & (1<<48 - 1)}.Append(nil)
		}
		return []admin.FeatureChange{f}, nil
	}
	if p.Clock {
		return nil, nil
	}
	before, err := x.recorded(s)
	if err != nil {
		return nil, err
	}
	var list []admin.FeatureChange
	was := p.FeatureChange
	if p.Save && before.Saved != nil {
		was.Dword, was.Data = before.Saved.Dword|p.Selector, before.Saved.Data
		list = append(list, was)
		if before.Saved.Dword == before.Dword && bytes.Equal(before.Saved.Data, before.Data) {
			return list, nil
		}
		was.Save = false
	}
	was.Dword, was.Data = before.Dword|p.Selector, before.Data
	return append(list, was), nil
}

// Prepare implements txn.Executor.
func (x featureSetter) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	p, err := x.params(s)
	if err != nil {
		return txn.Prepared{}, err
	}
	now, err := getFeature(ctx, s.Device, p.key(), p.VendorID, nvmespec.FeatureCurrent)
	if err != nil {
		return txn.Prepared{}, err
	}
	before := featureBefore{Dword: now.Dword, Data: now.Data}
	if p.Save {
		if saved, err := getFeature(ctx, s.Device, p.key(), p.VendorID, nvmespec.FeatureSaved); err == nil {
			before.Saved = &saved
		}
	}
	list, err := x.changes(s, now)
	if err != nil {
		return txn.Prepared{}, err
	}
	prepared := txn.Prepared{Before: mustJSON(before)}
	for _, f := range list {
		cmd, err := admin.SetFeatureCommand(f)
		if err != nil {
			return txn.Prepared{}, err
		}
		prepared.Commands = append(prepared.Commands, txn.DescribeCommand("set features", cmd, ""))
	}
	if len(list) == 0 {
		prepared.Note = "nothing to undo: a clock runs on"
	}
	return prepared, nil
}

// Take implements txn.Executor.
func (x featureSetter) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	var before featureBefore
	if err := json.Unmarshal(s.Before, &before); err != nil {
		return nil, fmt.Errorf("what was prepared: %w", err)
	}
	list, err := x.changes(s, FeatureValue{Dword: before.Dword, Data: before.Data})
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if _, err := admin.SetFeature(ctx, s.Device, f); err != nil {
			return nil, answer(err)
		}
	}
	return s.Before, nil
}

// Verify implements txn.Executor.
func (x featureSetter) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	p, err := x.params(s)
	if err != nil {
		return txn.Unknown, nil, err
	}
	want, selects := p.FeatureChange, []nvmespec.FeatureSelect{nvmespec.FeatureCurrent}
	if p.Save {
		selects = append(selects, nvmespec.FeatureSaved)
	}
	values := map[nvmespec.FeatureSelect]FeatureValue{}
	if s.Direction == txn.Backward {
		if p.Clock {
			return txn.Done, s.Before, nil
		}
		before, err := x.recorded(s)
		if err != nil {
			return txn.NotDone, nil, nil // it was never set
		}
		values[nvmespec.FeatureCurrent] = FeatureValue{Dword: before.Dword, Data: before.Data}
		if before.Saved != nil {
			values[nvmespec.FeatureSaved] = *before.Saved
		} else {
			selects = selects[:1]
		}
	}
	for _, sel := range selects {
		value, ok := values[sel]
		if !ok {
			value = FeatureValue{Dword: want.Dword, Data: want.Data}
		}
		so, err := x.holds(ctx, s, p, sel, value)
		if err != nil {
			return txn.Unknown, nil, err
		}
		if !so {
			return txn.NotDone, nil, nil
		}
	}
	return txn.Done, s.Before, nil
}

// holds says whether the drive has a value, as far as the step counts its bits.
func (featureSetter) holds(ctx context.Context, s *txn.Scope, p FeatureParams, sel nvmespec.FeatureSelect, want FeatureValue) (bool, error) {
	now, err := getFeature(ctx, s.Device, p.key(), p.VendorID, sel)
	if err != nil {
		return false, err
	}
	if p.Clock {
		t, err := nvmespec.DecodeTimestamp(now.Data)
		at, set := t.Time()
		return set && s.Clock.Wall().Sub(at).Abs() < clockSlack, err
	}
	mask := ^uint32(0)
	if p.Mask != 0 && s.Direction == txn.Forward {
		mask = p.Mask
	}
	if p.Feature == nvmespec.FeatureTemperatureThreshold {
		mask = 0xFFFF // drives need not answer which threshold they were asked for
	}
	return now.Dword&mask == want.Dword&mask && bytes.Equal(now.Data, want.Data), nil
}

// Repeatable implements txn.Executor: setting a value twice is setting it once.
func (featureSetter) Repeatable(txn.Direction) bool { return true }

// FeatureIs says whether a drive has the value a step would set, saved too if
// asked.
func FeatureIs(ctx context.Context, dev nvmeioctl.Device, p FeatureParams) (bool, error) {
	now, err := getFeature(ctx, dev, p.key(), p.VendorID, nvmespec.FeatureCurrent)
	if err != nil || now.Dword != p.Dword || !bytes.Equal(now.Data, p.Data) || !p.Save {
		return err == nil && now.Dword == p.Dword && bytes.Equal(now.Data, p.Data), err
	}
	saved, err := getFeature(ctx, dev, p.key(), p.VendorID, nvmespec.FeatureSaved)
	return err == nil && saved.Dword == p.Dword && bytes.Equal(saved.Data, p.Data), err
}
