package firmware

import (
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

// pollPause is the time between two looks at a controller that activates.
const pollPause = 200 * time.Millisecond

// notStored says that a drive answered success to what it did not do.
type notStored struct{ text string }

func (e *notStored) Error() string { return e.text }

// ExitCode is the process's exit code for this error: the drive's fault.
func (e *notStored) ExitCode() int { return 6 }

// Is makes it a txn.ErrMismatch: something may well have been stored.
func (e *notStored) Is(target error) bool { return target == txn.ErrMismatch }

func notStoredf(format string, args ...any) error { return &notStored{fmt.Sprintf(format, args...)} }

// record is a record of this step in a phase.
func (p params) record(phase Phase) Record {
	r := Record{Phase: phase, Revision: p.Revision, Slot: p.Slot, Previous: p.Before.Running, PreviousSlot: p.Before.Active,
		PowerCycles: p.Before.PowerCycles}
	if p.Image != nil {
		r.SHA256 = p.Image.SHA256
	}
	return r
}

// settle reads back what a commit did. A controller that activates may not answer
// for a while (cases FW-08): it is asked until the time it may take is over.
func (u updater) settle(ctx context.Context, s *txn.Scope, p params, done admin.Committed) (json.RawMessage, error) {
	ctx = context.WithoutCancel(ctx) // the commit is done: what it did must be known
	if p.boot() {
		r, err := p.bootRecord(ctx, s.Device, done)
		if err != nil {
			return nil, err
		}
		return json.Marshal(r)
	}
	deadline := s.Clock.Now().Add(max(p.Wait, 10*time.Second))
	for {
		now, err := Read(ctx, s.Device)
		if err == nil {
			r, err := p.judge(now, done)
			if err == nil || s.Clock.Now() >= deadline || p.Action != nvmespec.CommitActivateNow {
				if err != nil {
					return nil, err
				}
				return json.Marshal(r)
			}
		} else if s.Clock.Now() >= deadline {
			return nil, fmt.Errorf("%w: the controller does not answer after the commit: %w", nvmeioctl.ErrIndeterminate, err)
		}
		if err := s.Clock.Sleep(ctx, pollPause); err != nil {
			return nil, err
		}
	}
}

// bootRecord reads back which boot partition is active. What one holds is not
// compared: only the download before this step knew.
func (p params) bootRecord(ctx context.Context, dev nvmeioctl.Device, done admin.Committed) (Record, error) {
	r := p.record(PhaseStored)
	r.Status = done.Status
	now, err := admin.BootPartition(ctx, dev, p.BootPartition)
	switch {
	case lost(err):
		return r, fmt.Errorf("%w: the controller does not answer after the commit: %w", nvmeioctl.ErrIndeterminate, err)
	case err != nil:
		r.Note = fmt.Sprintf("boot partition %d: what became of it could not be read back: %v", p.BootPartition, err)
	case p.Action == nvmespec.CommitActivateBootPartition && now.Active != p.BootPartition:
		return r, notStoredf("the drive answered success, but boot partition %d is the active one and not %d", now.Active, p.BootPartition)
	default:
		r.Note = fmt.Sprintf("boot partition %d of %d bytes is the active one; what partition %d holds was not compared", now.Active, now.SizeBytes, p.BootPartition)
	}
	return r, nil
}

// verifyBoot finds out whether a commit that was not answered was carried out:
// possible for an activation only.
func (p params) verifyBoot(ctx context.Context, dev nvmeioctl.Device) (txn.Verdict, json.RawMessage, error) {
	if p.Action != nvmespec.CommitActivateBootPartition {
		return txn.Unknown, nil, nil
	}
	now, err := admin.BootPartition(ctx, dev, p.BootPartition)
	if err != nil {
		return txn.Unknown, nil, nil
	}
	if now.Active != p.BootPartition {
		return txn.NotDone, nil, nil
	}
	r, err := p.bootRecord(ctx, dev, admin.Committed{})
	if err != nil {
		return txn.Unknown, nil, err
	}
	raw, err := json.Marshal(r)
	return txn.Done, raw, err
}

// judge says what the slots make of a commit that was answered with success. An
// error is a drive that did not do what it said (case FW-07).
func (p params) judge(now State, done admin.Committed) (Record, error) {
	r := p.record(PhaseStored)
	r.Status, r.Mixed = done.Status, done.Detected != 0
	r.PowerCycles = now.PowerCycles
	if now.SlotsError != "" {
		r.Note = "the slots cannot be read: " + now.SlotsError
	}
	slot, _ := now.Slot(p.Slot)
	old := p.Before.slot(p.Slot)
	switch {
	case now.SlotsError != "":
	case r.Revision == "" && slot.Revision == "":
		return r, notStoredf("the drive answered success, but slot %d is empty", p.Slot)
	case r.Revision == "":
		r.Revision = slot.Revision
		if p.Image != nil && slot.Revision == old.Revision {
			r.Note = fmt.Sprintf("slot %d held revision %s before as well", p.Slot, old.Revision)
		}
	case slot.Revision != r.Revision:
		return r, notStoredf("the drive answered success, but slot %d holds %q and not revision %s%s", p.Slot, slot.Revision, r.Revision, fate(slot))
	}
	if p.Action == nvmespec.CommitStore {
		// A slot that was to run next before still is: storing changed what runs then.
		if _, next, pending := now.Pending(); pending && next == p.Slot {
			r.Phase, r.NextSeen, r.Pending = PhaseStaged, true, ResetController.stronger(p.Reset)
			r.Note = fmt.Sprintf("the commit only stored, but slot %d is the one to run next: a reset activates it", p.Slot)
		}
		return r, nil
	}
	return p.judgeActivation(r, now, done)
}

// fate says what will become of a slot that holds something else than it should.
func fate(slot Slot) string {
	switch {
	case slot.Active:
		return "; this slot runs now"
	case slot.Next:
		return "; this slot runs after the next reset"
	}
	return ""
}

func (p params) judgeActivation(r Record, now State, done admin.Committed) (Record, error) {
	kind, pending := done.Status.ResetPending()
	r.NextSeen = now.Next == p.Slot
	switch {
	case now.Running == r.Revision && now.Active == p.Slot && (!p.stores() || p.Before.Active != p.Slot || p.Action == nvmespec.CommitActivateNow && !pending):
		r.Phase = PhaseActive
		return r, nil
	case p.Action == nvmespec.CommitActivateNow && !pending:
		return r, notStoredf("the drive answered success, but revision %s runs and not %s", now.Running, r.Revision)
	case now.Next != 0 && now.Next != p.Slot && now.SlotsError == "":
		return r, notStoredf("the drive answered success, but slot %d runs next and not slot %d", now.Next, p.Slot)
	}
	r.Phase, r.Pending = PhaseStaged, ResetController
	if pending {
		r.Pending = ResetKind(kind)
	}
	r.Pending = r.Pending.stronger(p.Reset)
	if !r.NextSeen {
		r.Note = "the drive does not name the next slot"
	}
	return r, nil
}

// Verify implements txn.Executor.
func (u updater) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	p, err := decode[params](s.Step)
	if err != nil {
		return txn.Unknown, nil, err
	}
	if s.Step.Kind == KindDownload || p.boot() {
		// A controller does not tell what it holds.
		if s.Answered || s.Direction == txn.Backward {
			return txn.Done, nil, nil
		}
		if p.boot() {
			return p.verifyBoot(ctx, s.Device)
		}
		return txn.Unknown, nil, nil
	}
	now, err := Read(ctx, s.Device)
	if err != nil {
		return txn.Unknown, nil, err
	}
	if s.Direction == txn.Backward {
		_, needed, err := u.back(s, p, now)
		if err == nil && needed && !s.Answered {
			return txn.NotDone, nil, nil
		}
		if err != nil && !s.Answered {
			return txn.NotDone, nil, nil // Prepare says why it cannot be undone
		}
		return txn.Done, nil, nil
	}
	return u.verifyForward(s, p, now)
}

// verifyForward compares the slots with what the step is for.
func (u updater) verifyForward(s *txn.Scope, p params, now State) (txn.Verdict, json.RawMessage, error) {
	r, err := p.judge(now, admin.Committed{})
	if _, wrong := errors.AsType[*notStored](err); wrong {
		slot, _ := now.Slot(p.Slot)
		stored := p.stores() && slot.Revision != p.Before.slot(p.Slot).Revision
		if stored || now.Next == p.Slot && p.Slot != now.Active || now.Active == p.Slot && p.Before.Active != p.Slot {
			return txn.Partly, nil, nil
		}
		return txn.NotDone, nil, nil
	}
	if err != nil {
		return txn.Unknown, nil, err
	}
	slot, old := p.Before.slot(p.Slot), p.Before
	now2, _ := now.Slot(p.Slot)
	tells := s.Answered || r.NextSeen && old.Next != p.Slot || r.Phase == PhaseActive && old.Active != p.Slot ||
		p.Image != nil && slot.Revision != now2.Revision && p.Action == nvmespec.CommitStore
	if !p.stores() && now.Next == p.Slot {
		tells = true // what the slot holds has not changed: it is as wanted
	}
	if !tells {
		return txn.Unknown, nil, nil
	}
	raw, err := json.Marshal(r)
	return txn.Done, raw, err
}

// back finds the commit that makes what ran before run again; false when nothing
// is staged.
func (u updater) back(s *txn.Scope, p params, now State) (params, bool, error) {
	old := p.Before
	if p.boot() {
		return p, false, leave(refused("undo", s.Device.String(), "", "a boot partition is not brought back"))
	}
	var left Record
	if raw, ok := s.StateOf(s.Step.Index, txn.Forward); ok && len(raw) > 0 {
		if err := json.Unmarshal(raw, &left); err != nil {
			return p, false, fmt.Errorf("recorded state: %w", err)
		}
	}
	blind := left.Phase == PhaseStaged && !left.NextSeen // the drive does not name the next slot
	held, _ := now.Slot(old.Active)
	want := old.slot(old.Active)
	switch {
	case s.Step.Kind == KindDownload, p.Action == nvmespec.CommitStore && p.Slot != old.Active && p.Slot != old.Next:
		return p, false, nil
	case p.stores() && p.Slot == old.Active:
		if held.Revision == want.Revision && left.Phase == "" {
			return p, false, nil // nothing was stored
		}
		return p, false, leave(refused("undo", s.Device.String(), "load the old revision's image", "slot %d, which held revision %s, is overwritten", p.Slot, want.Revision))
	case now.Active == old.Active && now.Next != p.Slot && !blind:
		return p, false, nil
	case held.Revision != want.Revision:
		return p, false, leave(refused("undo", s.Device.String(), "load the old revision's image", "slot %d held revision %s and holds %q now", old.Active, want.Revision, held.Revision))
	}
	back := params{Slot: old.Active, Action: nvmespec.CommitActivate, Revision: want.Revision, Before: before(now), Wait: p.Wait}
	// What was staged before is staged again, if it is still there.
	if staged := old.slot(old.Next); old.Next != 0 && old.Next != old.Active && old.Next != p.Slot {
		if still, ok := now.Slot(old.Next); ok && still.Revision == staged.Revision {
			back.Slot, back.Revision = old.Next, staged.Revision
		}
	}
	return back, true, nil
}

// leave says that what cannot be undone stays, and does no harm.
func leave(err error) error { return &txn.LeftError{Err: err} }

// takeBack stages the old slot.
func (u updater) takeBack(ctx context.Context, s *txn.Scope, p params) (json.RawMessage, error) {
	now, err := Read(ctx, s.Device)
	if err != nil {
		return nil, err
	}
	back, needed, err := u.back(s, p, now)
	if err != nil || !needed {
		return nil, err
	}
	done, err := u.commit(ctx, s, back)
	if err != nil {
		return nil, err
	}
	after, err := Read(context.WithoutCancel(ctx), s.Device)
	if err != nil {
		return nil, err
	}
	r, err := back.judge(after, done)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}
