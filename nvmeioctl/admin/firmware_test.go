package admin_test

import (
	"errors"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// TestDownloadFirmware sends one piece: FW-16, FW-22.
func TestDownloadFirmware(t *testing.T) {
	piece := make([]byte, 8192)
	piece[0], piece[8191] = 1, 2
	dev := newScript(t, step{op: 0x11, cdw10: 2047, cdw11: 1024, timeout: admin.DownloadTimeout, out: piece},
		step{op: 0x11, cdw10: 0, cdw11: 0, timeout: time.Second, out: piece[:4], status: 0x4114})
	if err := admin.DownloadFirmware(t.Context(), dev, 4096, piece, 0); err != nil {
		t.Error(err)
	}
	err := admin.DownloadFirmware(t.Context(), dev, 0, piece[:4], time.Second)
	if !errors.Is(err, nvmespec.StatusError{Status: nvmespec.StatusOverlappingRange}) {
		t.Errorf("error %v", err)
	}
	for _, n := range []int{0, 2, 4097} {
		if err := admin.DownloadFirmware(t.Context(), dev, 0, make([]byte, n), 0); !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("a piece of %d bytes: %v", n, err)
		}
	}
}

// TestCommitFirmware: FW-01, FW-23. The three statuses that ask for a reset are
// success, every other is not, whatever its other bits; reserved actions are
// never sent.
func TestCommitFirmware(t *testing.T) {
	f := nvmespec.FirmwareCommitFields{Slot: 2, Action: nvmespec.CommitStoreActivate}
	for status, ok := range map[nvmespec.Status]bool{
		0: true, 0x10B: true, 0x110: true, 0x111: true, 0x410B: true, 0x6110: true,
		0x106: false, 0x107: false, 0x112: false, 0x113: false, 0x114: false, 0x4006: false,
	} {
		dev := newScript(t, step{op: 0x10, cdw10: 0x0A, timeout: admin.CommitTimeout, status: status, result: 1})
		done, err := admin.CommitFirmware(t.Context(), dev, f, 0)
		if ok != (err == nil) {
			t.Errorf("status %#x: %v", uint16(status), err)
		}
		if ok && (done.Status != status || done.Detected != nvmespec.UpdateOverlapFirmware) {
			t.Errorf("status %#x: %+v", uint16(status), done)
		}
	}
	dev := newScript(t)
	for _, f := range []nvmespec.FirmwareCommitFields{
		{Slot: 2, Action: 4}, {Slot: 2, Action: 5}, {Slot: 2, Action: 8}, {Slot: 8, Action: 1}, {Slot: 1, Action: 1, BootPartition: 1}, {Action: 6, BootPartition: 2},
	} {
		if _, err := admin.CommitFirmware(t.Context(), dev, f, 0); !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	lost := newScript(t, step{op: 0x10, cdw10: 0x0A, timeout: admin.CommitTimeout, err: nvmeioctl.ErrIndeterminate})
	if _, err := admin.CommitFirmware(t.Context(), lost, f, 0); !errors.Is(err, nvmeioctl.ErrIndeterminate) {
		t.Errorf("no answer: %v", err)
	}
}
