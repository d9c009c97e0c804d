package nvmespec

import "fmt"

// CommitAction is the Commit Action (CA) of Firmware Commit.
type CommitAction uint8

// The values of CommitAction. NVMe Base Specification 2.x, "Firmware Commit
// command"; 4 and 5 are reserved.
const (
	// CommitStore puts the downloaded image into the slot; nothing activates it.
	CommitStore CommitAction = 0
	// CommitStoreActivate puts it there and activates the slot at the next reset.
	CommitStoreActivate CommitAction = 1
	// CommitActivate activates what is in the slot at the next reset.
	CommitActivate CommitAction = 2
	// CommitActivateNow activates at once, the downloaded image if there is one.
	CommitActivateNow CommitAction = 3
	// CommitBootPartition replaces a boot partition with the downloaded image.
	CommitBootPartition CommitAction = 6
	// CommitActivateBootPartition makes a boot partition the active one.
	CommitActivateBootPartition CommitAction = 7
)

// String says what the action does.
func (a CommitAction) String() string {
	switch a {
	case CommitStore:
		return "store, activate never by itself"
	case CommitStoreActivate:
		return "store, activate at the next reset"
	case CommitActivate:
		return "activate the slot at the next reset"
	case CommitActivateNow:
		return "activate at once"
	case CommitBootPartition:
		return "replace the boot partition"
	case CommitActivateBootPartition:
		return "activate the boot partition"
	}
	return fmt.Sprintf("reserved commit action %d", uint8(a))
}

// FirmwareCommitFields are the command dwords of Firmware Commit.
type FirmwareCommitFields struct {
	// Slot is 1..7 (FS); 0 lets the controller choose.
	Slot uint8 `json:"slot"`
	// Action is 0..7 (CA).
	Action CommitAction `json:"action"`
	// BootPartition is the boot partition, 0 or 1 (BPID), for actions 6 and 7.
	BootPartition uint8 `json:"boot_partition"`
}

// Dword is CDW10.
func (f FirmwareCommitFields) Dword() uint32 {
	return uint32(f.Slot&7) | uint32(f.Action&7)<<3 | uint32(f.BootPartition&1)<<31
}

// DecodeFirmwareCommitFields reads CDW10.
func DecodeFirmwareCommitFields(cdw10 uint32) FirmwareCommitFields {
	return FirmwareCommitFields{Slot: uint8(cdw10 & 7), Action: CommitAction(cdw10 >> 3 & 7), BootPartition: uint8(cdw10 >> 31)}
}

// FirmwareDownloadFields are the command dwords of Firmware Image Download.
type FirmwareDownloadFields struct {
	// OffsetBytes is where in the image the piece belongs, a multiple of 4 below
	// 16 GiB (OFST, dwords on the wire).
	OffsetBytes uint64 `json:"offset_bytes"`
	// LengthBytes is the length of the piece, a multiple of 4 from 4 to 16 GiB
	// (NUMD, dwords counted from 0 on the wire).
	LengthBytes uint64 `json:"length_bytes"`
}

// Dwords is CDW10 and CDW11. A length of 0 is an error: counted from zero it
// would underflow.
func (f FirmwareDownloadFields) Dwords() (cdw10, cdw11 uint32, err error) {
	if f.LengthBytes < 4 || f.LengthBytes%4 != 0 || f.LengthBytes > 4<<32 {
		return 0, 0, fmt.Errorf("firmware image download: %w: length of %d bytes", ErrInvalidData, f.LengthBytes)
	}
	if f.OffsetBytes%4 != 0 || f.OffsetBytes >= 4<<32 {
		return 0, 0, fmt.Errorf("firmware image download: %w: offset of %d bytes", ErrInvalidData, f.OffsetBytes)
	}
	return uint32(f.LengthBytes/4 - 1), uint32(f.OffsetBytes / 4), nil
}

// DecodeFirmwareDownloadFields reads the command dwords, as a controller does.
func DecodeFirmwareDownloadFields(cdw10, cdw11 uint32) FirmwareDownloadFields {
	return FirmwareDownloadFields{OffsetBytes: uint64(cdw11) * 4, LengthBytes: (uint64(cdw10) + 1) * 4}
}

// UpdateDetected is the Multiple Update Detected field (MUD) in dword 0 of the
// completion of a Firmware Commit: whether pieces of several images were mixed.
type UpdateDetected uint8

// The bits of UpdateDetected.
const (
	UpdateOverlapFirmware UpdateDetected = 1 << 0 // another host or image overlapped this one
	UpdateOverlapBoot     UpdateDetected = 1 << 1 // the same of a boot partition image
)

// DecodeUpdateDetected reads completion dword 0.
func DecodeUpdateDetected(dw uint32) UpdateDetected { return UpdateDetected(dw & 3) }
