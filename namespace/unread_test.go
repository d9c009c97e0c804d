package namespace_test

import (
	"slices"
	"strings"
	"testing"

	"nvop/namespace"
	"nvop/namespace/firmware"
)

// unread is the drive with two namespaces, one of whose logs could not be read.
func unread(log string) namespace.Inventory {
	inv := two()
	inv.FirmwareState = &firmware.State{Supported: true, Running: "FW1", Active: 1, Slots: []firmware.Slot{{Number: 1, Revision: "FW1", Active: true}, {Number: 2}}}
	inv.Problems = []namespace.Problem{{What: log, Error: "invalid log page"}}
	if log == namespace.ProblemSMART {
		inv.Health = nil
	}
	return inv
}

// TestPlan_unreadLogs: what was not looked at is not good. Each log that says
// whether a change is safe refuses it when it cannot be read, until that is accepted.
func TestPlan_unreadLogs(t *testing.T) {
	fourK := namespace.FormatSelector{DataBytes: 4096}
	spec := specText(t, "replace: all\nnamespaces: [{size: 500GB}, {max: true}]\n")
	plans := map[string]func(namespace.Inventory, namespace.Options) (namespace.Plan, error){
		"op set": func(inv namespace.Inventory, o namespace.Options) (namespace.Plan, error) {
			return namespace.PlanOPSet(inv, namespace.OPTarget{NSID: 7, Size: sizeOf("500GB")}, o)
		},
		"op set of none": func(inv namespace.Inventory, o namespace.Options) (namespace.Plan, error) {
			inv.Namespaces, inv.Controller.UnallocatedBytes = nil, inv.Controller.TotalBytes
			return namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("500GB")}, o)
		},
		"create": func(inv namespace.Inventory, o namespace.Options) (namespace.Plan, error) {
			return namespace.PlanCreate(inv, namespace.CreateTarget{Size: sizeOf("100GB")}, o)
		},
		"delete": func(inv namespace.Inventory, o namespace.Options) (namespace.Plan, error) {
			return namespace.PlanDelete(inv, []uint32{7}, "", o)
		},
		"format": func(inv namespace.Inventory, o namespace.Options) (namespace.Plan, error) {
			return namespace.PlanFormat(inv, namespace.FormatTarget{NSID: 1, Format: &fourK}, o)
		},
		"spec": func(inv namespace.Inventory, o namespace.Options) (namespace.Plan, error) {
			return namespace.PlanSpec(inv, spec, o)
		},
	}
	for name, plan := range plans {
		if _, err := plan(unread("something else"), namespace.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, log := range []string{namespace.ProblemSMART, namespace.ProblemSanitize, namespace.ProblemFirmwareSlots} {
			if name == "format" && log == namespace.ProblemFirmwareSlots {
				continue // it does not change what the capacity is made of
			}
			_, err := plan(unread(log), namespace.Options{})
			if exitCode(err) != 4 || !strings.Contains(err.Error(), log+" could not be read") || !strings.Contains(err.Error(), "--accept unknown") {
				t.Errorf("%s without the %s: %v", name, log, err)
			}
			if _, err := plan(unread(log), namespace.Options{AcceptUnread: true}); err != nil {
				t.Errorf("%s without the %s, accepted: %v", name, log, err)
			}
			_, err = plan(unread(log), namespace.Options{AcceptCriticalWarning: true})
			if (err == nil) != (log == namespace.ProblemSMART) {
				t.Errorf("%s without the %s, critical warnings accepted: %v", name, log, err)
			}
		}
	}
	// A create is refused by a warning too: what is made may not last.
	inv := two()
	inv.Health.CriticalWarning = 4
	if _, err := plans["create"](inv, namespace.Options{}); exitCode(err) != 4 {
		t.Errorf("create on a drive that warns: %v", err)
	}
}

// TestDrift_safety: what allowed a plan may be gone when it is carried out.
func TestDrift_safety(t *testing.T) {
	was := two()
	p, err := namespace.PlanDelete(was, []uint32{7}, "", namespace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Drift(was); len(d) != 0 {
		t.Fatalf("%v", d)
	}
	now := two()
	now.Problems = []namespace.Problem{{What: namespace.ProblemSanitize, Error: "gone"}}
	if d := p.Drift(now); len(d) != 1 || d[0].What != namespace.ProblemSanitize {
		t.Errorf("an unreadable log: %v", d)
	}
	now = two()
	now.Health.CriticalWarning = 1
	if d := p.Drift(now); len(d) != 1 || d[0].What != "critical warning" || d[0].Found != "0x01" {
		t.Errorf("a new warning: %v", d)
	}
	now = two()
	now.SelfTestRunning = true
	if d := p.Drift(now); len(d) != 1 || d[0].What != "self-test" {
		t.Errorf("a self-test that began: %v", d)
	}
	if _, err := namespace.PlanDelete(now, []uint32{7}, "", namespace.Options{}); exitCode(err) != 4 || !strings.Contains(err.Error(), "a self-test is in progress") {
		t.Errorf("a deletion during a self-test: %v", err)
	}
	now = two()
	now.Health.CriticalWarning = 1
	// One that was there and was accepted is no drift.
	was.Health.CriticalWarning = 3
	if p, err = namespace.PlanDelete(was, []uint32{7}, "", namespace.Options{AcceptCriticalWarning: true}); err != nil {
		t.Fatal(err)
	}
	if d := p.Drift(now); len(d) != 0 {
		t.Errorf("%v", d)
	}
}

// TestDrift_text: what drifted is said in words, member by member.
func TestDrift_text(t *testing.T) {
	was := two()
	p := namespace.Plan{Inventory: was, Identity: was.Identity, Reads: namespace.AllFeatures()}
	now := two()
	now.Formats = slices.Clone(now.Formats)
	now.Formats[2].MetadataBytes = 64
	now.Namespaces[0].Controllers = nil
	now.Controller.PowerStates = []namespace.PowerStateFact{{MaxMicrowatts: 1}}
	v := namespace.FeatureValue{Dword: 2}
	p.Inventory.Features = []namespace.FeatureReading{{FeatureKey: namespace.FeatureKey{Feature: 2}, Name: "power-management", Current: &namespace.FeatureValue{Dword: 1}, Saved: &v}}
	now.Features = []namespace.FeatureReading{{FeatureKey: namespace.FeatureKey{Feature: 2}, Name: "power-management", Current: &v, Saved: &v}}
	var got []string
	for _, m := range p.Drift(now) {
		got = append(got, m.String())
	}
	want := []string{
		"power_states: wanted none, found a list of 1",
		"lba_formats[2].metadata_bytes: wanted 8, found 64",
		"namespace 1: controllers: wanted 33, found none",
		"feature power-management: wanted 0x00000001, saved 0x00000002, found 0x00000002, saved 0x00000002",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	for _, text := range got {
		if strings.ContainsAny(text, `{"`) {
			t.Errorf("JSON in a message: %s", text)
		}
	}
}
