package firmware_test

import (
	"strings"
	"testing"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// booting is a drive with two boot partitions: it answers commits of them, does as
// it is told if obeys is set, and loses the answer if drops is.
type booting struct {
	active        uint8
	obeys, drops  bool
	noLog, commit bool
}

func (b *booting) fault(cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
	switch {
	case cmd.Opcode == nvmespec.AdminFirmwareCommit:
		f := nvmespec.DecodeFirmwareCommitFields(cmd.CDW10)
		b.commit = true
		if b.obeys && f.Action == nvmespec.CommitActivateBootPartition {
			b.active = f.BootPartition
		}
		if b.drops {
			return false, 0, nvmeioctl.ErrIndeterminate
		}
		return false, 0, nil
	case cmd.Opcode == nvmespec.AdminGetLogPage && nvmespec.LogID(cmd.CDW10&0xFF) == nvmespec.LogIDBootPartition && !b.noLog:
		copy(cmd.Data, nvmespec.BootPartition{Active: b.active, SizeBytes: 2 << 20}.Append(nil))
		return false, 0, nil
	}
	return true, 0, nil
}

// TestBootPartition_readBack: a boot partition that was activated is the active one,
// or the step has failed; what cannot be read back is said.
func TestBootPartition_readBack(t *testing.T) {
	for name, c := range map[string]struct {
		drive  booting
		action nvmespec.CommitAction
		note   string
		fails  string
	}{
		"activated":           {booting{obeys: true}, nvmespec.CommitActivateBootPartition, "boot partition 1 of 2097152 bytes is the active one", ""},
		"not activated":       {booting{}, nvmespec.CommitActivateBootPartition, "", "boot partition 0 is the active one and not 1"},
		"replaced":            {booting{}, nvmespec.CommitBootPartition, "what partition 1 holds was not compared", ""},
		"no log of it":        {booting{noLog: true, obeys: true}, nvmespec.CommitActivateBootPartition, "could not be read back", ""},
		"answer lost, done":   {booting{obeys: true, drops: true}, nvmespec.CommitActivateBootPartition, "boot partition 1 of 2097152 bytes is the active one", ""},
		"answer lost, no log": {booting{obeys: true, drops: true, noLog: true}, nvmespec.CommitActivateBootPartition, "", "resume"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.fault = c.drive.fault
			p, err := firmware.PlanCommit(r.state(), firmware.Commit{Action: c.action, BootPartition: 1}, firmware.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(p.Notes, " "), "which boot partition is active is read back") || !strings.Contains(p.Steps[0].UndoText, "cannot be undone") {
				t.Errorf("the plan does not say so: %+v", p)
			}
			rep, err := r.run(p)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || rep.State != txn.StateDone || !c.drive.commit {
				t.Fatalf("%v: %+v", err, rep)
			}
			if note := r.record(p, rep).Note; !strings.Contains(note, c.note) {
				t.Errorf("note %q", note)
			}
		})
	}
}
