package namespace_test

import (
	"errors"
	"testing"
	"time"

	"nvop/namespace"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
)

// TestPlanFormat_extended: an LBA format above 15 is planned with both parts of
// its index where drive and host allow, and refused where the host has it off
// (case NS-18).
func TestPlanFormat_extended(t *testing.T) {
	p, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
	for len(p.Formats) < 40 {
		p.Formats = append(p.Formats, sim.Format{DataBytes: 4096, MetadataBytes: uint16(len(p.Formats)), RelativePerformance: 1})
	}
	d, err := sim.New(p, sim.Options{Scale: 14308})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	plan := func() (namespace.Plan, error) {
		inv, err := namespace.ReadInventory(t.Context(), d, namespace.ReadOptions{Transport: "sim", Clock: d.Clock()})
		if err != nil {
			t.Fatal(err)
		}
		return namespace.PlanFormat(inv, namespace.FormatTarget{NSID: 1, Format: &namespace.FormatSelector{DataBytes: 4096, MetadataBytes: 37}}, namespace.Options{})
	}
	got, err := plan()
	if err != nil || len(got.Steps) == 0 || got.Steps[0].Commands[0].CDW10 != 5|2<<12 {
		t.Fatalf("plan %+v, %v", got.Steps, err)
	}
	off := &nvmeioctl.Command{Opcode: 0x09, CDW10: 0x16, Data: make([]byte, 512), Timeout: time.Minute}
	if c, err := d.Submit(t.Context(), off); err != nil || c.Status != 0 {
		t.Fatal(c, err)
	}
	if _, err := plan(); !errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Errorf("with extended formats off: %v", err)
	}
}
