package firmware

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// ResetKind is the mildest reset that activates what is staged.
type ResetKind string

// The kinds of reset. The kinds follow the answers of Firmware Commit.
const (
	// ResetNone: nothing is pending.
	ResetNone ResetKind = ""
	// ResetController is any controller reset (success, or status 111h).
	ResetController ResetKind = "controller"
	// ResetSubsystem is an NVM subsystem reset (110h): in practice a power cycle,
	// since drives have been seen to vanish after one.
	ResetSubsystem ResetKind = "subsystem"
	// ResetConventional is a conventional reset or a power cycle (10Bh).
	ResetConventional ResetKind = "conventional"
	// ResetUnknown: the drive says that a slot is to run next, and no record of
	// this program says what it takes.
	ResetUnknown ResetKind = "unknown"
)

// Remedy says what to do about a pending reset.
func (k ResetKind) Remedy() string {
	switch k {
	case ResetNone:
		return ""
	case ResetController:
		return "reset the controller (nvop reset) or reboot"
	case ResetUnknown:
		return "reset the controller (nvop reset), and if that is not enough power cycle the drive"
	}
	return "power cycle the drive"
}

// Slot is one firmware slot.
type Slot struct {
	// Number is 1..7.
	Number uint8 `json:"slot"`
	// Revision is what is in it, as text; empty is an empty slot.
	Revision string `json:"revision"`
	// RevisionHex is the revision's characters in hexadecimal: text may hide
	// what differs.
	RevisionHex string `json:"revision_hex"`
	// ReadOnly: slot 1 of many drives (FRMW bit 0).
	ReadOnly bool `json:"read_only"`
	// Active: what runs came from here (AFI bits 2:0).
	Active bool `json:"active"`
	// Next: what runs after the next reset comes from here (AFI bits 6:4).
	Next bool `json:"next"`
}

// State is what a drive tells about its firmware.
type State struct {
	// Supported: the drive takes firmware download and commit (OACS bit 2).
	Supported bool   `json:"supported"`
	VendorID  uint16 `json:"vendor_id"`
	Model     string `json:"model"`
	Serial    string `json:"serial"`
	// Running is the revision that runs (FR of Identify Controller).
	Running string `json:"running"`
	// Active and Next are slots, 1..7; Next 0 means that the running one stays,
	// or that the drive does not tell.
	Active uint8  `json:"active_slot"`
	Next   uint8  `json:"next_slot"`
	Slots  []Slot `json:"slots"`
	// SlotsError is why the firmware slot log could not be read; empty if it was.
	SlotsError string `json:"slots_error,omitempty"`
	// ActivatesWithoutReset: FRMW bit 4. DetectsOverlap: FRMW bit 5.
	ActivatesWithoutReset bool `json:"activates_without_reset"`
	DetectsOverlap        bool `json:"detects_overlap"`
	// GranularityBytes is FWUG in bytes, 4 for no restriction; 0 is not reported.
	GranularityBytes uint32 `json:"granularity_bytes"`
	// MaxTransferBytes is MDTS in bytes; 0 is no limit.
	MaxTransferBytes uint64 `json:"max_transfer_bytes"`
	// ActivationMilliseconds is MTFA, how long the controller may stop when it
	// activates; 0 is not reported.
	ActivationMilliseconds uint32 `json:"activation_milliseconds"`
	// ProcessingMilliseconds is MPTFAWR, how long a commit that activates at once
	// may take to be answered; 0 is not reported.
	ProcessingMilliseconds uint32 `json:"processing_milliseconds"`
	// Busy says what is in progress that an update must not disturb; empty if
	// nothing is.
	Busy string `json:"busy,omitempty"`
	// SelfTest: a self-test runs, which a reset would end.
	SelfTest bool `json:"self_test_running,omitempty"`
	// SanitizeError and SelfTestError are why the log could not be read that would
	// say whether one runs; empty if it was read, or the drive has no such thing.
	SanitizeError string `json:"sanitize_error,omitempty"`
	SelfTestError string `json:"self_test_error,omitempty"`
	// PowerCycles is the count of the SMART log; nil where it could not be read.
	PowerCycles *uint64 `json:"power_cycles,omitempty"`
}

// FromIdentify is the state in an Identify Controller structure and a firmware
// slot log; nil slots leaves the slots out.
func FromIdentify(c nvmespec.Controller, slots *nvmespec.FirmwareSlots) State {
	s := State{
		Supported: c.Admin&nvmespec.AdminFirmware != 0, VendorID: c.VendorID, Model: c.ModelNumber, Serial: c.SerialNumber,
		Running: c.FirmwareRevision, ActivatesWithoutReset: c.FirmwareActivatesWithoutReset,
		DetectsOverlap: c.FirmwareDetectsOverlap, GranularityBytes: c.FirmwareGranularityBytes.Or(0),
		MaxTransferBytes: c.MaxTransferBytes, ActivationMilliseconds: c.ActivationMillisecondsMax.Or(0),
		ProcessingMilliseconds: c.ActivationCommitMillisecondsMax.Or(0),
	}
	if slots == nil {
		return s
	}
	s.Active, s.Next = slots.Active, slots.Next
	count := min(int(c.FirmwareSlotCount), len(slots.Revisions))
	for i, revision := range slots.Revisions {
		// A drive that reports no number of slots is believed about those it
		// fills and about the active one.
		n := uint8(i + 1)
		if i >= count && (c.FirmwareSlotCount != 0 || revision == "" && n != slots.Active) {
			continue
		}
		s.Slots = append(s.Slots, Slot{
			Number: n, Revision: revision, RevisionHex: hex.EncodeToString([]byte(revision)),
			ReadOnly: n == 1 && c.FirmwareSlot1ReadOnly, Active: n == slots.Active, Next: n == slots.Next,
		})
	}
	return s
}

// Read reads a drive's state. Logs that cannot be read leave their part out, and
// a slot log that cannot be read says why; a controller that cannot be identified
// is an error.
func Read(ctx context.Context, dev nvmeioctl.Device) (State, error) {
	c, err := admin.IdentifyController(ctx, dev)
	if err != nil {
		return State{}, err
	}
	s := FromIdentify(c, nil)
	slots, err := admin.FirmwareLog(ctx, dev)
	switch {
	case err == nil:
		s = FromIdentify(c, &slots)
	case lost(err):
		return State{}, err
	default:
		s.SlotsError = err.Error()
	}
	return s, s.readBusy(ctx, dev, c)
}

// lost says that the drive did not answer, so that asking on is useless.
func lost(err error) bool {
	return errors.Is(err, nvmeioctl.ErrIndeterminate) || errors.Is(err, nvmeioctl.ErrDeviceGone) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// idle refuses while something is in progress that an update must not disturb, or
// may be: a log that cannot be read does not say that nothing is. resets says that
// the controller is reset, which ends a self-test too.
func (s State) idle(subject string, resets, acceptUnread bool) error {
	const wait = "wait until it has ended"
	unread := func(what, why string) error {
		return refused("busy", subject, "--accept unknown goes on all the same", "whether a %s is in progress could not be read: %s", what, why)
	}
	switch {
	case s.Busy != "":
		return refused("busy", subject, wait, "%s", s.Busy)
	case s.SanitizeError != "" && !acceptUnread:
		return unread("sanitize", s.SanitizeError)
	case !resets:
		return nil
	case s.SelfTest:
		return refused("busy", subject, wait+", or stage only", "a self-test runs, which a reset would end")
	case s.SelfTestError != "" && !acceptUnread:
		return unread("self-test", s.SelfTestError)
	}
	return nil
}

// readBusy reads what an update must not disturb, and the power cycles. Only a
// drive that does not answer any more is an error.
func (s *State) readBusy(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) error {
	if c.Sanitize&(nvmespec.SanitizeCrypto|nvmespec.SanitizeBlock|nvmespec.SanitizeOverwrite) != 0 {
		l, err := admin.SanitizeLog(ctx, dev)
		if lost(err) {
			return err
		}
		switch {
		case err != nil:
			s.SanitizeError = err.Error()
		case l.Running():
			s.Busy = "a sanitize is in progress"
		}
	}
	if c.Admin&nvmespec.AdminSelfTest != 0 {
		l, err := admin.SelfTestLog(ctx, dev)
		if lost(err) {
			return err
		}
		if err != nil {
			s.SelfTestError = err.Error()
		}
		s.SelfTest = err == nil && l.Running()
	}
	smart, err := admin.SMARTLog(ctx, dev, nvmespec.BroadcastNSID)
	if lost(err) {
		return err
	}
	if err == nil {
		cycles := smart.PowerCycles.Lo
		s.PowerCycles = &cycles
	}
	return nil
}

// Slot finds a slot by number.
func (s State) Slot(number uint8) (Slot, bool) {
	for _, slot := range s.Slots {
		if slot.Number == number {
			return slot, true
		}
	}
	return Slot{}, false
}

// Pending says which revision runs after the next reset, where that is not the
// one that runs.
func (s State) Pending() (revision string, slot uint8, ok bool) {
	next, found := s.Slot(s.Next)
	if s.Next == 0 || !found || s.Next == s.Active && next.Revision == s.Running {
		return "", 0, false
	}
	return next.Revision, s.Next, true
}

// subject names the drive in refusals.
func (s State) subject() string {
	return fmt.Sprintf("drive %s (%s)", s.Serial, strings.TrimSpace(s.Model))
}
