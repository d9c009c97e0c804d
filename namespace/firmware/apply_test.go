package firmware_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// TestUpdate_stages: FW-10. The default stages, in a slot that neither runs nor
// is read-only, and the new revision runs after a reset, which verify sees.
func TestUpdate_stages(t *testing.T) {
	r := newRig(t, nil)
	old := r.state().Running
	img := r.image("0B200200", 300<<10)
	p := r.plan(firmware.Want{Revision: "0B200200"}, &img, firmware.Options{})
	if p.Slot != 2 || p.Pending != firmware.ResetController || p.Disturbs || len(p.Steps) != 1 {
		t.Fatalf("planned %s", mustJSON(t, p))
	}
	rep := r.must(p)
	rec := r.record(p, rep)
	if rec.Phase != firmware.PhaseStaged || rec.Pending != firmware.ResetController || !rec.NextSeen || rec.Previous != old || rec.SHA256 != img.SHA256 {
		t.Errorf("record %+v", rec)
	}
	if got := firmware.PendingAfter(p.Steps, rep.States); got != firmware.ResetController {
		t.Errorf("pending %q", got)
	}
	if s := r.state(); s.Running != old || s.Next != 2 {
		t.Fatalf("state %+v", s)
	}
	if j := firmware.Judge(rec, r.state()); j.Phase != firmware.PhaseStaged {
		t.Errorf("judged %+v", j)
	}
	if again := r.plan(firmware.Want{Revision: "0B200200"}, &img, firmware.Options{}); !again.AlreadySo || again.Pending == firmware.ResetNone {
		t.Errorf("planned again: %s", mustJSON(t, again))
	}
	if err := r.drive.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j := firmware.Judge(rec, r.state()); j.Phase != firmware.PhaseActive {
		t.Errorf("judged %+v", j)
	}
}

// TestUpdate_pendingCodes: FW-01, FW-03, FW-04. The three statuses that ask for a
// reset are success with that reset pending; nothing but a controller reset is
// ever done, and only when asked for.
func TestUpdate_pendingCodes(t *testing.T) {
	for _, c := range []struct {
		reset sim.FirmwareReset
		want  firmware.ResetKind
	}{
		{sim.ResetByController, firmware.ResetController},
		{sim.ResetBySubsystem, firmware.ResetSubsystem},
		{sim.ResetByPowerCycle, firmware.ResetConventional},
	} {
		for _, act := range []firmware.Activation{firmware.ActivateStage, firmware.ActivateReset} {
			r := newRig(t, func(_ *sim.Profile, o *sim.Options) { o.FirmwareReset = c.reset })
			resets := 0
			r.reset = func(ctx context.Context) error { resets++; return r.drive.ResetController(ctx) }
			img := r.image("NEW", 8192)
			p := r.plan(firmware.Want{Revision: "NEW", Activate: act}, &img, firmware.Options{})
			rep := r.must(p)
			want, wantResets := c.want, 0
			if act == firmware.ActivateReset && c.reset == sim.ResetByController {
				want, wantResets = firmware.ResetNone, 1
			}
			if got := firmware.PendingAfter(p.Steps, rep.States); got != want || resets != wantResets {
				t.Errorf("%v, %s: pending %q after %d resets, want %q after %d", c.reset, act, got, resets, want, wantResets)
			}
		}
	}
}

// TestUpdate_activatesByReset resets the controller and sees the revision run.
func TestUpdate_activatesByReset(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 8192)
	p := r.plan(firmware.Want{Revision: "NEW", Activate: firmware.ActivateReset}, &img, firmware.Options{})
	if !p.Disturbs || len(p.Steps) != 2 {
		t.Fatalf("planned %s", mustJSON(t, p))
	}
	rec := r.record(p, r.must(p))
	if s := r.state(); rec.Phase != firmware.PhaseActive || s.Running != "NEW" || s.Active != 2 {
		t.Errorf("record %+v, state %+v", rec, s)
	}
}

// TestUpdate_resetDoesNotActivate: FW-05. A drive that answers plain success and
// keeps its revision over a controller reset waits for a power cycle.
func TestUpdate_resetDoesNotActivate(t *testing.T) {
	r := newRig(t, nil)
	r.reset = func(context.Context) error { return nil }
	img := r.image("NEW", 8192)
	p := r.plan(firmware.Want{Revision: "NEW", Activate: firmware.ActivateReset}, &img, firmware.Options{})
	rep := r.must(p)
	rec := r.record(p, rep)
	if rec.Phase != firmware.PhaseStaged || rec.Pending != firmware.ResetConventional || !strings.Contains(rec.Note, "power cycle") {
		t.Fatalf("record %+v", rec)
	}
	if j := firmware.Judge(rec, r.state()); j.Phase != firmware.PhaseStaged || j.Remedy != "power cycle the drive" {
		t.Errorf("judged %+v", j)
	}
	if err := r.drive.PowerCycle(true); err != nil {
		t.Fatal(err)
	}
	if j := firmware.Judge(rec, r.state()); j.Phase != firmware.PhaseActive {
		t.Errorf("judged %+v", j)
	}
}

// TestUpdate_notStored: FW-07. Success that stored nothing is the drive's fault
// (exit code 6), and what it runs stays the next to run.
func TestUpdate_notStored(t *testing.T) {
	r := newRig(t, nil)
	r.fault = func(cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		return cmd.Opcode != nvmespec.AdminFirmwareCommit, 0, nil
	}
	img := r.image("NEW", 8192)
	_, err := r.run(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{}))
	if exitCode(err) != 6 || !strings.Contains(err.Error(), `slot 2 holds ""`) {
		t.Errorf("error %v", err)
	}
	if s := r.state(); s.Next != 0 || s.Active != 1 {
		t.Errorf("state %+v", s)
	}
}

// TestVerify_failed: FW-07. An image that was staged and does not start is
// reported as failed after the reset, not as pending and not as done.
func TestVerify_failed(t *testing.T) {
	r := newRig(t, nil)
	b, err := sim.DefectiveFirmwareImage(r.drive.Profile(), "BAD", 8192)
	if err != nil {
		t.Fatal(err)
	}
	img := r.file("BAD", b)
	p := r.plan(firmware.Want{Revision: "BAD"}, &img, firmware.Options{})
	rec := r.record(p, r.must(p))
	if err := r.drive.PowerCycle(true); err != nil {
		t.Fatal(err)
	}
	if j := firmware.Judge(rec, r.state()); j.Phase != firmware.PhaseFailed || j.Remedy == "" {
		t.Errorf("judged %+v", j)
	}
}

// TestUpdate_liveOnlyFromTheList: FW-09, FW-10.
func TestUpdate_liveOnlyFromTheList(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 8192)
	w := firmware.Want{Revision: "NEW", Image: img.Path, Activate: firmware.ActivateLive}
	if _, err := firmware.Plan(r.state(), w, &img, firmware.Options{}); exitCode(err) != 4 {
		t.Errorf("live without a list: %v", err)
	}
	allowed := firmware.Options{AllowLive: []string{"*7940*"}}
	s := r.state()
	s.ActivatesWithoutReset = false
	if _, err := firmware.Plan(s, w, &img, allowed); exitCode(err) != 5 {
		t.Errorf("live on a drive without FRMW bit 4: %v", err)
	}
	s = r.state()
	s.VendorID, s.Model = 0x1344, "Micron_7450_MTFDKBG3T8TFR"
	if _, err := firmware.Plan(s, w, &img, firmware.Options{AllowLive: []string{"*"}}); exitCode(err) != 4 {
		t.Errorf("live on a model that died of it: %v", err)
	}
	p := r.plan(w, &img, allowed)
	// FW-08: after the commit the controller does not answer for a while.
	silent := 0
	r.fault = func(cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if len(r.commits()) > 0 && cmd.Opcode != nvmespec.AdminFirmwareCommit && silent < 5 {
			silent++
			return false, 0, os.NewSyscallError("ioctl", syscall.ENXIO)
		}
		return true, 0, nil
	}
	// Then it answers, and tells the old revision a little longer.
	old := 0
	r.patch = func(cmd *nvmeioctl.Command) {
		if cmd.Opcode == nvmespec.AdminIdentify && len(r.commits()) > 0 && old < 3 {
			old++
			copy(cmd.Data[64:72], "OLD     ")
		}
	}
	rec := r.record(p, r.must(p))
	if rec.Phase != firmware.PhaseActive || silent != 5 || old != 3 || r.state().Running != "NEW" {
		t.Errorf("record %+v after %d failed reads", rec, silent)
	}
	if got := r.commits(); len(got) != 1 || got[0].Action != nvmespec.CommitActivateNow || got[0].Slot != 2 {
		t.Errorf("commits %+v: action 3 with its slot, once (FW-27)", got)
	}
}

// TestUpdate_statuses names what a drive may answer, and changes nothing.
func TestUpdate_statuses(t *testing.T) {
	for _, c := range []struct {
		opcode uint8
		status nvmespec.Status
		says   string
		exit   int
	}{
		{nvmespec.AdminFirmwareCommit, 0x4106, "read-only, empty or does not exist", 6},
		{nvmespec.AdminFirmwareCommit, 0x4107, "does not accept the image", 6},
		{nvmespec.AdminFirmwareCommit, 0x4112, "stage it instead", 6},
		{nvmespec.AdminFirmwareCommit, 0x4113, "older one may be forbidden", 6},
		{nvmespec.AdminFirmwareCommit, 0x400c, "another seller", 6},
		{nvmespec.AdminFirmwareDownload, 0x4114, "controller reset discards", 6},
		{nvmespec.AdminFirmwareDownload, 0x4002, "--pad", 6},
		{nvmespec.AdminFirmwareCommit, 0x401d, "wait until", 6},
		{nvmespec.AdminFirmwareCommit, 0x4006, "outcome unknown", 7},
	} {
		r := newRig(t, nil)
		r.fault = func(cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
			return cmd.Opcode != c.opcode, c.status, nil
		}
		img := r.image("NEW", 8192)
		_, err := r.run(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{}))
		if err == nil || !strings.Contains(err.Error(), c.says) || exitCode(err) != c.exit {
			t.Errorf("status %v: exit %d, %v", c.status, exitCode(err), err)
		}
		if s := r.state(); s.Running != r.drive.Profile().Firmware || s.Next != 0 {
			t.Errorf("status %v: state %+v", c.status, s)
		}
	}
}

// TestUpdate_someoneElsesPieces: pieces that another tool left are not mixed with
// ours: the first piece is refused and nothing is committed.
func TestUpdate_someoneElsesPieces(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 16384)
	other := make([]byte, 4096)
	if c, err := r.drive.Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x11, CDW10: 1023, Data: other, Timeout: 1e9}); err != nil || c.Status != 0 {
		t.Fatal(c, err)
	}
	_, err := r.run(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{}))
	if exitCode(err) != 6 || !strings.Contains(err.Error(), "another update") {
		t.Errorf("error %v", err)
	}
	if len(r.commits()) != 0 {
		t.Error("a mixture was committed")
	}
	// Told to, it goes on: the drive refuses the mixture and forgets it, and the
	// image is sent again.
	if _, err := firmware.Plan(r.state(), firmware.Want{Image: img.Path}, &img, firmware.Options{Discard: true}); exitCode(err) != 4 {
		t.Errorf("without a revision: %v", err)
	}
	r.must(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{Discard: true}))
	if s := r.state(); s.Next != 2 || s.Slots[1].Revision != "NEW" {
		t.Errorf("state %+v", s)
	}
}

// TestUpdate_imageChanged: the image that is sent is the one that was planned.
func TestUpdate_imageChanged(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 8192)
	p := r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{})
	if err := os.WriteFile(img.Path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.run(p); exitCode(err) != 4 || len(r.sent) != 0 {
		t.Errorf("error %v after %d commands", err, len(r.sent))
	}
}

// TestUpdate_slotBecameActive: a reset between plan and run may make the chosen
// slot the one that runs; then it is not overwritten.
func TestUpdate_slotBecameActive(t *testing.T) {
	r := newRig(t, nil)
	first := r.image("ONE", 8192)
	second := r.image("TWO", 8192)
	p := r.plan(firmware.Want{Revision: "TWO", Slot: 2}, &second, firmware.Options{})
	r.must(r.plan(firmware.Want{Revision: "ONE", Slot: 2, Activate: firmware.ActivateReset}, &first, firmware.Options{}))
	r.sent = nil
	if _, err := r.run(p); exitCode(err) != 4 || len(r.sent) != 0 {
		t.Errorf("error %v after %d commands", err, len(r.sent))
	}
}

// TestUpdate_storeIntoNext: action 0 into the slot that is to run next changes what
// the next reset activates, and says so: before, after, and when it is looked at again.
func TestUpdate_storeIntoNext(t *testing.T) {
	r := newRig(t, nil)
	first, second := r.image("ONE", 8192), r.image("TWO", 8192)
	r.must(r.plan(firmware.Want{Revision: "ONE", Slot: 2}, &first, firmware.Options{}))
	p := r.plan(firmware.Want{Revision: "TWO", Slot: 2, Activate: firmware.ActivateStore}, &second, firmware.Options{})
	notes := strings.Join(p.Notes, " ")
	if p.Pending == firmware.ResetNone || strings.Contains(notes, "no reset activates") || !strings.Contains(notes, "a reset activates") {
		t.Errorf("pending %q, notes %v", p.Pending, p.Notes)
	}
	if title := p.Steps[0].Title; !strings.Contains(title, "to run after the next reset") {
		t.Errorf("title %q", title)
	}
	if undo := p.Steps[0].UndoText; strings.Contains(undo, "nothing activates") {
		t.Errorf("undo %q", undo)
	}
	rep := r.must(p)
	rec := r.record(p, rep)
	if rec.Phase != firmware.PhaseStaged || firmware.PendingAfter(p.Steps, rep.States) != firmware.ResetController {
		t.Errorf("record %+v", rec)
	}
	again := r.plan(firmware.Want{Revision: "TWO", Slot: 2, Activate: firmware.ActivateStore}, &second, firmware.Options{})
	if !again.AlreadySo || again.Pending == firmware.ResetNone {
		t.Errorf("again: %+v", again)
	}
	// A record of a mere store, from before or from a slot that became the next one
	// since, is judged by the slots as they are.
	stored := rec
	stored.Phase, stored.Pending = firmware.PhaseStored, firmware.ResetNone
	if j := firmware.Judge(stored, r.state()); j.Phase != firmware.PhaseStaged || j.Pending == firmware.ResetNone {
		t.Errorf("judged %+v", j)
	}
	if err := r.drive.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, x := range []firmware.Record{rec, stored} {
		if j := firmware.Judge(x, r.state()); j.Phase != firmware.PhaseActive {
			t.Errorf("after the reset: %+v of %+v", j, x)
		}
	}
}

// TestUpdate_storeOnly: FW-29. Action 0 only stores, and says so.
func TestUpdate_storeOnly(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 8192)
	p := r.plan(firmware.Want{Revision: "NEW", Activate: firmware.ActivateStore}, &img, firmware.Options{})
	rep := r.must(p)
	rec := r.record(p, rep)
	if rec.Phase != firmware.PhaseStored || firmware.PendingAfter(p.Steps, rep.States) != firmware.ResetNone {
		t.Errorf("record %+v", rec)
	}
	if !strings.Contains(strings.Join(p.Notes, " "), "no reset activates it") {
		t.Errorf("notes %v", p.Notes)
	}
	if err := r.drive.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j := firmware.Judge(rec, r.state()); j.Phase != firmware.PhaseStored || r.state().Running == "NEW" {
		t.Errorf("judged %+v", j)
	}
	// What a slot holds is activated without sending it again.
	r.sent = nil
	r.must(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{}))
	if got := r.commits(); len(r.sent) != 1 || got[0].Action != nvmespec.CommitActivate || got[0].Slot != 2 {
		t.Errorf("sent %+v", r.sent)
	}
}

// TestUpdate_back makes a staged revision be forgotten: what runs stays.
func TestUpdate_back(t *testing.T) {
	r := newRig(t, nil)
	old := r.state().Running
	img := r.image("NEW", 8192)
	r.must(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{}))
	p := r.plan(firmware.Want{Revision: old}, nil, firmware.Options{})
	if p.AlreadySo {
		t.Fatal("the drive would change at its next reset, so it is not so already")
	}
	r.must(p)
	if err := r.drive.PowerCycle(true); err != nil {
		t.Fatal(err)
	}
	if s := r.state(); s.Running != old {
		t.Errorf("%s runs", s.Running)
	}
}

// TestUpdate_interrupted: the context is looked at before anything is sent.
func TestUpdate_interrupted(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 8192)
	p := r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.runner().Run(ctx, r.transaction(p))
	if _, ok := errors.AsType[*txn.CancelledError](err); !ok || len(r.sent) != 0 {
		t.Errorf("error %v after %d commands", err, len(r.sent))
	}
	// In the middle of the transfer it goes to the end of the step: pieces without
	// a commit would be in the way of the next update.
	p.Steps[0].Params = smallPieces(t, p.Steps[0].Params)
	ctx, cancel = context.WithCancel(t.Context())
	r.fault = func(*nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if len(r.sent) == 1 {
			cancel()
		}
		return true, 0, nil
	}
	if _, err := r.runner().Run(ctx, r.transaction(p)); err != nil || r.state().Next != 2 {
		t.Errorf("error %v, state %+v", err, r.state())
	}
}

// TestUpdate_whileBusy: a sanitize that began after the plan was made refuses the
// update before anything is sent, and a self-test one that would reset.
func TestUpdate_whileBusy(t *testing.T) {
	r := newRig(t, nil)
	img := r.image("NEW", 8192)
	p := r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{})
	submit := func(c nvmeioctl.Command) {
		t.Helper()
		c.Timeout = 1e9
		if done, err := r.drive.Submit(t.Context(), &c); err != nil || done.Status != 0 {
			t.Fatal(done, err)
		}
	}
	submit(nvmeioctl.Command{Opcode: 0x14, NSID: 0xFFFFFFFF, CDW10: 2})
	if s := r.state(); !s.SelfTest || s.Busy != "" {
		t.Errorf("a self-test runs: %+v", s)
	}
	submit(nvmeioctl.Command{Opcode: 0x84, CDW10: 2})
	if s := r.state(); s.Busy == "" {
		t.Errorf("a sanitize runs: %+v", s)
	}
	if _, err := r.run(p); exitCode(err) != 4 || len(r.sent) != 0 {
		t.Errorf("error %v after %d commands", err, len(r.sent))
	}
}
