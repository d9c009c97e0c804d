package admin

import (
	"context"
	"fmt"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Timeouts of firmware commands.
const (
	// DownloadTimeout is for one piece of an image: drives erase flash meanwhile.
	DownloadTimeout = 2 * time.Minute
	// CommitTimeout is for a commit: a drive checks the image and writes it to
	// flash. What the drive says of itself (MTFA, MPTFAWR) is added by the caller.
	CommitTimeout = 5 * time.Minute
)

// DownloadCommand builds the Firmware Image Download of one piece: an ordinary
// buffer, never the whole image. data must be a whole number of dwords.
func DownloadCommand(offsetBytes uint64, data []byte, timeout time.Duration) (*nvmeioctl.Command, error) {
	cdw10, cdw11, err := nvmespec.FirmwareDownloadFields{OffsetBytes: offsetBytes, LengthBytes: uint64(len(data))}.Dwords()
	if err != nil {
		return nil, err
	}
	return &nvmeioctl.Command{Opcode: nvmespec.AdminFirmwareDownload, CDW10: cdw10, CDW11: cdw11, Data: data,
		Timeout: orDefault(timeout, DownloadTimeout)}, nil
}

// DownloadFirmware transfers one piece of an image.
func DownloadFirmware(ctx context.Context, dev nvmeioctl.Device, offsetBytes uint64, data []byte, timeout time.Duration) error {
	cmd, err := DownloadCommand(offsetBytes, data, timeout)
	return run(ctx, dev, "firmware image download", 0, cmd, err)
}

// CommitCommand builds a Firmware Commit. Reserved actions are refused.
func CommitCommand(f nvmespec.FirmwareCommitFields, timeout time.Duration) (*nvmeioctl.Command, error) {
	switch {
	case f.Action > 7 || f.Action == 4 || f.Action == 5:
		return nil, fmt.Errorf("firmware commit: %w: %s", nvmespec.ErrInvalidData, f.Action)
	case f.Slot > 7:
		return nil, fmt.Errorf("firmware commit: %w: slot %d, 1 to 7 are possible", nvmespec.ErrInvalidData, f.Slot)
	case f.BootPartition > 1 || f.BootPartition != 0 && f.Action < nvmespec.CommitBootPartition:
		return nil, fmt.Errorf("firmware commit: %w: boot partition %d", nvmespec.ErrInvalidData, f.BootPartition)
	}
	return &nvmeioctl.Command{Opcode: nvmespec.AdminFirmwareCommit, CDW10: f.Dword(), Timeout: orDefault(timeout, CommitTimeout)}, nil
}

// Committed is how a controller answered a Firmware Commit that succeeded.
type Committed struct {
	// Status is success, or one of the three that ask for a reset.
	Status nvmespec.Status
	// Detected says that pieces of several images were mixed.
	Detected nvmespec.UpdateDetected
}

// CommitFirmware stores or activates an image. The three statuses that ask for a
// reset are success here: the image is committed.
func CommitFirmware(ctx context.Context, dev nvmeioctl.Device, f nvmespec.FirmwareCommitFields, timeout time.Duration) (Committed, error) {
	const op = "firmware commit"
	cmd, err := CommitCommand(f, timeout)
	if err != nil {
		return Committed{}, opError(op, dev, 0, err)
	}
	c, err := dev.Submit(ctx, cmd)
	if err != nil {
		return Committed{}, opError(op, dev, 0, err)
	}
	if _, pending := c.Status.ResetPending(); !pending && c.Status.Code() != 0 {
		return Committed{}, opError(op, dev, 0, c.Err())
	}
	return Committed{Status: c.Status, Detected: nvmespec.DecodeUpdateDetected(uint32(c.Result))}, nil
}
