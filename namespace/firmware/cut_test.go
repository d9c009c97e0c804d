package firmware_test

import (
	"errors"
	"fmt"
	"testing"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

var errCut = errors.New("cut")

// cutAt makes a runner end at the n-th event, as a kill would.
func cutAt(r *rig, n int) (*txn.Runner, *int) {
	seen := 0
	runner := r.runner()
	runner.Cut = func(txn.Event) error {
		if seen++; seen == n {
			return errCut
		}
		return nil
	}
	return runner, &seen
}

// TestCut_everyEvent cuts an update with activation at every event of its
// transaction, and goes on or back: the drive ends with the new revision or with
// the old one, never between.
func TestCut_everyEvent(t *testing.T) {
	for n := 1; ; n++ {
		for _, back := range []bool{false, true} {
			r := newRig(t, nil)
			old := r.state().Running
			img := r.image("NEW", 40960)
			p := r.plan(firmware.Want{Revision: "NEW", Activate: firmware.ActivateReset}, &img, firmware.Options{})
			runner, seen := cutAt(r, n)
			_, err := runner.Run(t.Context(), r.transaction(p))
			if err == nil {
				if *seen >= n {
					t.Fatalf("event %d: not cut", n)
				}
				return // past the last event
			}
			if !errors.Is(err, errCut) {
				t.Fatalf("event %d: %v", n, err)
			}
			want := "NEW"
			if back {
				want = old
				_, err = r.runner().Rollback(t.Context(), "1")
			} else {
				_, err = r.runner().Resume(t.Context(), "1")
			}
			if err != nil {
				t.Errorf("event %d, back %v: %v", n, back, err)
			}
			s := r.state()
			if _, _, pending := s.Pending(); s.Running != want || pending {
				t.Errorf("event %d, back %v: %+v", n, back, s)
			}
		}
	}
}

// TestCut_everyCommand loses the answer of every single command: carried out or
// not, the drive is asked, and resume ends with the new revision staged.
func TestCut_everyCommand(t *testing.T) {
	for n := 1; ; n++ {
		done := false
		for _, carried := range []bool{false, true} {
			r := newRig(t, nil)
			img := r.image("NEW", 40960)
			p := r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{})
			p.Steps[0].Params = smallPieces(t, p.Steps[0].Params)
			lose(r, n, carried)
			_, err := r.run(p)
			if len(r.sent) < n {
				done = true
				continue
			}
			if err != nil && exitCode(err) != 7 {
				t.Fatalf("command %d: exit %d, %v", n, exitCode(err), err)
			}
			r.fault = nil
			if _, err := r.runner().Resume(t.Context(), "1"); err != nil {
				t.Errorf("command %d, carried out %v: %v", n, carried, err)
			}
			if s := r.state(); s.Next != 2 || s.Slots[1].Revision != "NEW" {
				t.Errorf("command %d, carried out %v: %+v", n, carried, s)
			}
		}
		if done {
			return
		}
	}
}

// lose makes the n-th changing command go without an answer.
func lose(r *rig, n int, carried bool) {
	r.fault = func(cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if nvmespec.ClassOf(true, cmd.Opcode, cmd.CDW10) == nvmespec.ClassRead || len(r.sent) != n {
			return true, 0, nil
		}
		if carried {
			if _, err := r.drive.Submit(r.t.Context(), cmd); err != nil {
				r.t.Error(err)
			}
		}
		return false, 0, fmt.Errorf("lost: %w", nvmeioctl.ErrIndeterminate)
	}
}

// TestRollback_afterwards: FW undo. A staged update is undone by making the slot
// that runs the next one; one that overwrote the only slot cannot be, and says so
// in the plan and again when asked.
func TestRollback_afterwards(t *testing.T) {
	r := newRig(t, nil)
	old := r.state().Running
	img := r.image("NEW", 8192)
	rep := r.must(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{}))
	if _, err := r.runner().Rollback(t.Context(), rep.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.drive.PowerCycle(true); err != nil {
		t.Fatal(err)
	}
	if s := r.state(); s.Running != old {
		t.Errorf("%s runs after a rollback", s.Running)
	}
	h, err := r.log.Load(t.Context(), rep.ID)
	if err != nil {
		t.Fatal(err)
	}
	if rec, _, ok := firmware.LastRecord([]txn.History{h}); ok && rec.Revision == "NEW" {
		t.Errorf("the journal still says %+v", rec)
	}

	single := newRig(t, func(p *sim.Profile, _ *sim.Options) { p.FirmwareSlots, p.Slot1ReadOnly = 1, false })
	img = single.image("NEW", 8192)
	p := single.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{})
	if p.Slot != 1 || len(p.Destroys) != 1 || p.Steps[0].UndoText != "cannot be undone: the slot of the revision that runs is overwritten" {
		t.Errorf("planned %s", mustJSON(t, p))
	}
	rep = single.must(p)
	if _, err := single.runner().Rollback(t.Context(), rep.ID); exitCode(err) != 4 {
		t.Errorf("rollback of the only slot: %v", err)
	}
	if s := single.state(); s.Next != 1 || s.Slots[0].Revision != "NEW" {
		t.Errorf("state %+v", s)
	}
}

// TestRollback_keepsWhatWasStaged: an update that is undone leaves staged what
// was staged before it.
func TestRollback_keepsWhatWasStaged(t *testing.T) {
	r := newRig(t, nil)
	one, two := r.image("ONE", 8192), r.image("TWO", 8192)
	r.must(r.plan(firmware.Want{Revision: "ONE"}, &one, firmware.Options{}))
	p := r.plan(firmware.Want{Revision: "TWO"}, &two, firmware.Options{})
	if p.Slot != 3 {
		t.Fatalf("slot %d: neither the active one nor the next (FW-12)", p.Slot)
	}
	rep := r.must(p)
	if _, err := r.runner().Rollback(t.Context(), rep.ID); err != nil {
		t.Fatal(err)
	}
	if s := r.state(); s.Next != 2 {
		t.Errorf("state %+v", s)
	}
}

// TestUpdate_nextNotTold: a drive that does not name the slot that runs next. What
// was staged is known by the answer alone, and undone all the same.
func TestUpdate_nextNotTold(t *testing.T) {
	r := newRig(t, nil)
	r.patch = func(cmd *nvmeioctl.Command) {
		if cmd.Opcode == nvmespec.AdminGetLogPage && nvmespec.LogID(cmd.CDW10) == nvmespec.LogIDFirmware {
			cmd.Data[0] &= 0x0F
		}
	}
	img := r.image("NEW", 8192)
	p := r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{})
	rep := r.must(p)
	if rec := r.record(p, rep); rec.Phase != firmware.PhaseStaged || rec.NextSeen || rec.Note == "" {
		t.Errorf("record %+v", rec)
	}
	if s := r.state(); s.Next != 2 {
		t.Fatalf("state %+v", s)
	}
	if _, err := r.runner().Rollback(t.Context(), rep.ID); err != nil {
		t.Fatal(err)
	}
	if s := r.state(); s.Next != 1 {
		t.Errorf("rolled back: %+v", s)
	}
}

// TestResume_someoneElseCame: between a cut and the resume another tool left its
// own pieces. The mixture is refused by the drive and forgotten, and the whole is
// sent again.
func TestResume_someoneElseCame(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 16384)
	p := r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{})
	p.Steps[0].Params = smallPieces(t, p.Steps[0].Params)
	lose(r, 2, false)
	if _, err := r.run(p); exitCode(err) != 7 {
		t.Fatal(err)
	}
	r.fault = nil
	if err := r.drive.ResetController(t.Context()); err != nil { // discards ours
		t.Fatal(err)
	}
	if c, err := r.drive.Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x11, CDW10: 1023, CDW11: 1024, Data: make([]byte, 4096), Timeout: 1e9}); err != nil || c.Status != 0 {
		t.Fatal(c, err)
	}
	r.sent = nil
	if _, err := r.runner().Resume(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if s := r.state(); s.Next != 2 || s.Slots[1].Revision != "NEW" || len(r.commits()) != 2 {
		t.Errorf("state %+v after %d commits", s, len(r.commits()))
	}
	h, err := r.log.Load(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	if last := h.Intents[len(h.Intents)-1]; last.Note == "" || last.Attempt < 3 {
		t.Errorf("the journal does not tell: %+v", last)
	}
}

// TestUpdate_lostAndNotTold: where the slot held and staged the same before, an
// update without an answer cannot be told from one that never came: it is not
// taken for done, and resume sends it again.
func TestUpdate_lostAndNotTold(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 8192)
	r.must(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{}))
	p := r.plan(firmware.Want{Revision: "NEW", Slot: 2}, &img, firmware.Options{Again: true})
	r.sent = nil
	r.fault = func(cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if cmd.Opcode == nvmespec.AdminFirmwareCommit {
			return false, 0, fmt.Errorf("lost: %w", nvmeioctl.ErrIndeterminate)
		}
		return true, 0, nil
	}
	if _, err := r.run(p); exitCode(err) != 7 {
		t.Fatalf("taken for done: %v", err)
	}
	r.fault, r.sent = nil, nil
	if _, err := r.runner().Resume(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	if len(r.commits()) != 1 {
		t.Errorf("commits %+v", r.commits())
	}
}
