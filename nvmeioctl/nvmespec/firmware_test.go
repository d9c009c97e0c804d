package nvmespec_test

import (
	"testing"

	"nvop/nvmeioctl/nvmespec"
)

// TestFirmwareCommit_everyAction: FW-09, FW-23. The dwords are written out from
// the specification's bit positions: FS 2:0, CA 5:3, BPID 31.
func TestFirmwareCommit_everyAction(t *testing.T) {
	for _, c := range []struct {
		f    nvmespec.FirmwareCommitFields
		want uint32
	}{
		{nvmespec.FirmwareCommitFields{Slot: 2, Action: nvmespec.CommitStore}, 0x02},
		{nvmespec.FirmwareCommitFields{Slot: 2, Action: nvmespec.CommitStoreActivate}, 0x0A},
		{nvmespec.FirmwareCommitFields{Slot: 3, Action: nvmespec.CommitActivate}, 0x13},
		{nvmespec.FirmwareCommitFields{Slot: 7, Action: nvmespec.CommitActivateNow}, 0x1F},
		{nvmespec.FirmwareCommitFields{Action: nvmespec.CommitBootPartition}, 0x30},
		{nvmespec.FirmwareCommitFields{Action: nvmespec.CommitActivateBootPartition, BootPartition: 1}, 0x80000038},
	} {
		if got := c.f.Dword(); got != c.want {
			t.Errorf("%+v: %#x, want %#x", c.f, got, c.want)
		}
		if back := nvmespec.DecodeFirmwareCommitFields(c.want); back != c.f {
			t.Errorf("%#x: %+v, want %+v", c.want, back, c.f)
		}
	}
	for a := range nvmespec.CommitAction(8) {
		if a.String() == "" {
			t.Errorf("action %d has no name", a)
		}
	}
}

// TestFirmwareDownload_dwords: FW-16, FW-18. Offsets count from 0 in dwords, the
// length from 0.
func TestFirmwareDownload_dwords(t *testing.T) {
	for _, c := range []struct {
		offset, length uint64
		cdw10, cdw11   uint32
		ok             bool
	}{
		{0, 4, 0, 0, true},
		{4096, 4096, 1023, 1024, true},
		{1<<34 - 4, 1 << 34, 0xFFFFFFFF, 0xFFFFFFFF, true},
		{0, 0, 0, 0, false},
		{0, 6, 0, 0, false},
		{2, 4, 0, 0, false},
		{1 << 34, 4, 0, 0, false},
		{0, 1<<34 + 4, 0, 0, false},
	} {
		f := nvmespec.FirmwareDownloadFields{OffsetBytes: c.offset, LengthBytes: c.length}
		cdw10, cdw11, err := f.Dwords()
		if (err == nil) != c.ok || cdw10 != c.cdw10 || cdw11 != c.cdw11 {
			t.Errorf("%+v: %#x %#x, %v", f, cdw10, cdw11, err)
		}
		if c.ok && nvmespec.DecodeFirmwareDownloadFields(cdw10, cdw11) != f {
			t.Errorf("%+v does not come back", f)
		}
	}
}

// TestBootPartition: the header of log 15h, its bytes written out by hand: LID,
// then BPINFO at byte 4 with the size in bits 14:0 and the active one in bit 31.
func TestBootPartition(t *testing.T) {
	wire := []byte{0x15, 0, 0, 0, 0x10, 0x00, 0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0}
	v, err := nvmespec.DecodeBootPartition(wire)
	if err != nil || v != (nvmespec.BootPartition{Active: 1, SizeBytes: 2 << 20}) {
		t.Errorf("%v: %+v", err, v)
	}
	if got := v.Append(nil); string(got) != string(wire) {
		t.Errorf("% x", got)
	}
	if _, err := nvmespec.DecodeBootPartition(wire[:15]); err == nil {
		t.Error("15 bytes were enough")
	}
}
