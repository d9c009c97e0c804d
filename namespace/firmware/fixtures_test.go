package firmware_test

import (
	"os"
	"path/filepath"
	"testing"

	"nvop/namespace/firmware"
	"nvop/nvmeioctl/nvmespec"
)

// TestState_ofRealDumps: the dumps of a real drive and of another implementation
// give a state that agrees with itself.
func TestState_ofRealDumps(t *testing.T) {
	root := os.Getenv("NVOP_FIXTURES")
	if root == "" {
		t.Skip("NVOP_FIXTURES is not set: no dumps of real drives")
	}
	for name, files := range map[string][2]string{
		"WD SN550": {"nvme/nvmetools/id-ctrl.bin", "nvme/nvmetools/log-03-fw.bin"},
		"QEMU 7.2": {"nvme/qemu-7.2-linux-6.12/id-ctrl.bin", "nvme/qemu-7.2-linux-6.12/fw-log.bin"},
	} {
		id, err := os.ReadFile(filepath.Join(root, files[0]))
		if err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(filepath.Join(root, files[1]))
		if err != nil {
			t.Fatal(err)
		}
		c, err := nvmespec.DecodeController(id)
		if err != nil {
			t.Fatal(err)
		}
		slots, err := nvmespec.DecodeFirmwareSlots(log)
		if err != nil {
			t.Fatal(err)
		}
		s := firmware.FromIdentify(c, &slots)
		active, ok := s.Slot(s.Active)
		if !ok || !active.Active || len(s.Slots) != int(c.FirmwareSlotCount) {
			t.Errorf("%s: %+v", name, s)
		}
		// QEMU says 7.2.22 in Identify Controller and 1.0 in the slot: what runs is
		// what Identify says.
		if same := active.Revision == s.Running; same == (name == "QEMU 7.2") {
			t.Errorf("%s: %s runs from slot %d with %s", name, s.Running, s.Active, active.Revision)
		}
		if _, _, pending := s.Pending(); pending {
			t.Errorf("%s: something is pending in %+v", name, s)
		}
	}
}
