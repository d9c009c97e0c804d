package namespace_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// noControllerList is a drive that claims namespace management and answers the
// list of a namespace's controllers (Identify CNS 12h) with invalid field, as
// QEMU's controller outside a subsystem does.
type noControllerList struct{ nvmeioctl.Device }

func (d noControllerList) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if cmd.Opcode == nvmespec.AdminIdentify && cmd.CDW10&0xFF == 0x12 {
		return nvmeioctl.Completion{Status: 0x4002}, nil
	}
	return d.Device.Submit(ctx, cmd)
}

func TestReadInventory_withoutControllerList(t *testing.T) {
	profile, _ := sim.LookupProfile(oneNamespace)
	for _, c := range []struct {
		controllers int
		want        []uint16
		readable    bool
	}{{1, []uint16{1}, true}, {2, nil, false}} {
		drive, err := sim.New(profile, sim.Options{Controllers: c.controllers})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := namespace.ReadInventory(t.Context(), noControllerList{drive}, namespace.ReadOptions{Transport: "sim", Clock: drive.Clock()})
		if err != nil {
			t.Fatal(err)
		}
		ns := inv.Namespaces[0]
		if c.readable != (ns.Error == "") || c.readable && !slices.Equal(ns.Controllers, c.want) {
			t.Errorf("%d controllers: namespace on %v, error %q; with a second controller the attachment must not be guessed", c.controllers, ns.Controllers, ns.Error)
		}
	}
}

// A drive that went back to an older state after the last step was recorded was
// reported as changed.
func TestVerifyTransaction_noticesADriveThatWentBack(t *testing.T) {
	tx := txn.Transaction{Steps: []txn.Step{{Index: 0, Kind: namespace.KindDelete}, {Index: 1, Kind: namespace.KindCreate}}}
	made := json.RawMessage(`{"nsid":1,"size_blocks":100}`)
	report := txn.Report{State: txn.StateDone, States: []json.RawMessage{nil, made}}
	is := func(n ...namespace.Namespace) namespace.Inventory { return namespace.Inventory{Namespaces: n} }
	if wrong := namespace.VerifyTransaction(tx, report, is(namespace.Namespace{NSID: 1, SizeBlocks: 100})); len(wrong) != 0 {
		t.Errorf("as made: %v", wrong)
	}
	for name, inv := range map[string]namespace.Inventory{
		"another size": is(namespace.Namespace{NSID: 1, SizeBlocks: 120}), "gone": is(),
	} {
		if wrong := namespace.VerifyTransaction(tx, report, inv); len(wrong) != 1 {
			t.Errorf("%s: %v", name, wrong)
		}
	}
	report.State = txn.StateRolledBack
	if wrong := namespace.VerifyTransaction(tx, report, is()); len(wrong) != 0 {
		t.Errorf("rolled back: %v", wrong)
	}
}
