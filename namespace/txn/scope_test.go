package txn_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// resetter is a step without commands that resets the controller. It keeps what
// its scope said of earlier attempts.
type resetter struct {
	setter
	retaken *[]bool
}

func (e resetter) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	p, err := e.setter.Prepare(ctx, s)
	p.Commands, p.Resets = nil, true
	return p, err
}

func (e resetter) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	*e.retaken = append(*e.retaken, s.Retaken())
	return e.setter.Take(ctx, s)
}

// TestPreStep_isToldOfResets: a reset is no command, and has to be allowed all the
// same.
func TestPreStep_isToldOfResets(t *testing.T) {
	d := newToy()
	var retaken []bool
	r := runner(d, &txn.MemoryLog{})
	r.Registry = txn.Registry{"set": resetter{setter{drive: d}, &retaken}}
	told := 0
	r.PreStep = func(_ context.Context, info txn.StepInfo) (nvmeioctl.Device, error) {
		if told++; !info.Resets || len(info.Commands) != 0 {
			t.Errorf("told %+v", info)
		}
		if told == 3 {
			return nil, &nvmeioctl.RefusedError{Check: "in use", Subject: "toy:", Reason: "mounted"}
		}
		return nil, nil
	}
	if _, err := r.Run(t.Context(), transaction()); exitCode(err) != 7 || d.all() != "a1 b1 c0" {
		t.Errorf("error %v, values %s", err, d.all())
	}
}

// TestScope_retaken: a step begun before, in this direction, is taken again. The
// other direction, and other steps, do not count.
func TestScope_retaken(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	var retaken []bool
	r := runner(d, log)
	r.Registry = txn.Registry{"set": resetter{setter{drive: d}, &retaken}}
	cut := errors.New("cut")
	r.Cut = func(e txn.Event) error {
		if e.Step.Index == 1 && e.Phase == txn.PhaseAfterIntent {
			return cut
		}
		return nil
	}
	if _, err := r.Run(t.Context(), transaction()); !errors.Is(err, cut) {
		t.Fatal(err)
	}
	r.Cut = nil
	if _, err := r.Resume(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Rollback(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	// a; b was cut before it was taken, and is taken again; c; then all back.
	if want := []bool{false, true, false, false, false, false}; !slices.Equal(retaken, want) {
		t.Errorf("retaken %v, want %v", retaken, want)
	}
}

// stuck is a step that cannot be undone.
type stuck struct{ setter }

func (e stuck) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	if s.Direction == txn.Backward {
		return txn.Prepared{}, &txn.LeftError{Err: &nvmeioctl.RefusedError{Check: "undo", Subject: "toy:", Reason: "gone for good"}}
	}
	return e.setter.Prepare(ctx, s)
}

// TestRollback_leavesWhatCannotBeUndone: the other steps are undone, and what is
// left is told; alone it is the rollback's refusal.
func TestRollback_leavesWhatCannotBeUndone(t *testing.T) {
	begin := func() (*toy, *txn.MemoryLog, *txn.Runner, txn.Transaction) {
		d, log := newToy(), &txn.MemoryLog{}
		r := runner(d, log)
		r.Registry["stuck"] = stuck{setter{drive: d}}
		tx := transaction()
		tx.Steps[0].Kind = "stuck"
		return d, log, r, tx
	}
	// The drive refuses the last step.
	d, log, r, tx := begin()
	d.fault = func(_ int, key, _ string) (bool, nvmespec.Status, error) {
		if key == "c" {
			return false, 0x4002, nil
		}
		return true, 0, nil
	}
	_, err := r.Run(t.Context(), tx)
	if _, ok := errors.AsType[*txn.RolledBackError](err); !ok || exitCode(err) != 6 || !strings.Contains(err.Error(), "step 1 (set a) is left as it is") {
		t.Errorf("error %v", err)
	}
	if d.all() != "a1 b0 c0" {
		t.Errorf("values %s", d.all())
	}
	if h, err := log.Load(t.Context(), "1"); err != nil || h.Transaction.State != txn.StateRolledBack || !strings.Contains(h.Transaction.Message, "gone for good") {
		t.Errorf("%+v, %v", h.Transaction, err)
	}
	// A rollback that is asked for tells it too.
	d, _, r, tx = begin()
	if _, err := r.Run(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	rep, err := r.Rollback(t.Context(), "1")
	if err != nil || len(rep.Left) != 1 || rep.State != txn.StateRolledBack || d.all() != "a1 b0 c0" {
		t.Errorf("%+v, %v, values %s", rep, err, d.all())
	}
	// Nothing else to undo.
	d, log, r, tx = begin()
	tx.Steps = tx.Steps[:1]
	if _, err := r.Run(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Rollback(t.Context(), "1"); exitCode(err) != 4 || d.values["a"] != "a1" {
		t.Errorf("error %v, values %s", err, d.all())
	}
	if h, err := log.Load(t.Context(), "1"); err != nil || h.Transaction.State != txn.StateDone {
		t.Errorf("%+v, %v", h.Transaction, err)
	}
}
