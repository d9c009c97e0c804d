package namespace_test

import (
	"encoding/json"
	"testing"

	"nvop/namespace"
	"nvop/nvmeioctl/sim"
)

// TestWriteSpec_isWhatTheDriveHas: on every profile the spec written from a drive
// plans nothing.
func TestWriteSpec_isWhatTheDriveHas(t *testing.T) {
	for _, profile := range sim.Profiles() {
		r := newRig(t, profile.Name, sim.Options{})
		inv := r.inventoryAll()
		text := namespace.WriteSpec(inv, namespace.PCIeSpec{PayloadBytes: 512, ReadRequestBytes: 512, Generation: 4, Width: 4})
		spec, err := namespace.ParseSpec("init.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", profile.Name, err, text)
		}
		p, err := namespace.PlanSpec(inv, spec, namespace.Options{})
		if err != nil || !p.AlreadySo() {
			t.Errorf("%s: %v\n%s\n%s", profile.Name, err, p.Text(), text)
		}
		if len(spec.Settings) < 10 || len(spec.Namespaces) != 1 || spec.Firmware == nil {
			t.Errorf("%s: the spec says too little:\n%s", profile.Name, text)
		}
	}
}

func TestSpecSchema_isOneDocument(t *testing.T) {
	text, err := json.Marshal(namespace.SpecSchema())
	if err != nil || len(text) < 2000 {
		t.Fatalf("%v: %d bytes", err, len(text))
	}
}

// inventoryAll reads everything a spec can name.
func (r *rig) inventoryAll() namespace.Inventory {
	r.t.Helper()
	inv, err := namespace.ReadInventory(r.t.Context(), r, namespace.ReadOptions{Transport: "sim", Clock: r.drive.Clock(), Features: namespace.AllFeatures()})
	if err != nil {
		r.t.Fatal(err)
	}
	return inv
}
