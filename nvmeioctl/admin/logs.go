package admin

import (
	"context"
	"errors"
	"fmt"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

// plainLogBytes is what every controller transfers in one Get Log Page: no MDTS
// is smaller, and without LogExtended nothing longer can be read in pieces.
const plainLogBytes = 4096

// LogRequest is what part of which log page to read.
type LogRequest struct {
	// NSID is 0xFFFFFFFF for the controller's own log.
	NSID uint32
	// Fields name the log; LengthBytes and OffsetBytes are the whole part wanted,
	// in multiples of 4.
	Fields nvmespec.GetLogFields
	// Extended says that the controller takes offsets (LPA bit 2). Without it
	// only one read of at most 4096 bytes from the start is possible.
	Extended bool
	// MaxTransferBytes limits one command; 0 means 4096.
	MaxTransferBytes uint64
}

// chunkBytes is how much one command transfers.
func (r LogRequest) chunkBytes() uint64 {
	if !r.Extended || r.MaxTransferBytes < plainLogBytes {
		return plainLogBytes
	}
	return r.MaxTransferBytes &^ 3
}

// logLimit bounds what one GetLog may take from the machine's memory.
const logLimit = 64 << 20

// GetLogCommand builds one Get Log Page.
func GetLogCommand(nsid uint32, f nvmespec.GetLogFields) (*nvmeioctl.Command, error) {
	d, err := f.Dwords()
	if err != nil {
		return nil, err
	}
	if f.LengthBytes > logLimit {
		return nil, fmt.Errorf("get log page 0x%02x: %w: %d bytes are too many", uint8(f.Log), nvmespec.ErrInvalidData, f.LengthBytes)
	}
	return &nvmeioctl.Command{Opcode: nvmespec.AdminGetLogPage, NSID: nsid, CDW10: d.CDW10, CDW11: d.CDW11,
		CDW12: d.CDW12, CDW13: d.CDW13, CDW14: d.CDW14, Data: make([]byte, f.LengthBytes), Timeout: LogTimeout}, nil
}

// GetLog reads a part of a log page, in pieces where it is longer than one
// command transfers. Of several pieces only the last clears an event.
func GetLog(ctx context.Context, dev nvmeioctl.Device, r LogRequest) ([]byte, error) {
	return getLog(ctx, dev, fmt.Sprintf("get log 0x%02x", uint8(r.Fields.Log)), r)
}

// GetSizedLog reads a log that says in itself how long it is: first what r asks
// for, then the rest, until length of what is there is no more than that. What is
// behind its end is cut off.
func GetSizedLog(ctx context.Context, dev nvmeioctl.Device, r LogRequest, length func([]byte) uint64) ([]byte, error) {
	op := fmt.Sprintf("get log 0x%02x", uint8(r.Fields.Log))
	b, err := getLog(ctx, dev, op, r)
	for err == nil {
		n := length(b)
		if n <= uint64(len(b)) {
			return b[:n], nil
		}
		rest := r
		rest.Fields.OffsetBytes, rest.Fields.LengthBytes = r.Fields.OffsetBytes+uint64(len(b)), (n-uint64(len(b))+3)&^3
		if n > logLimit {
			return nil, opError(op, dev, r.NSID, fmt.Errorf("%w: %d bytes are too many", nvmespec.ErrInvalidData, n))
		}
		var more []byte
		if more, err = getLog(ctx, dev, op, rest); err == nil {
			b = append(b, more...)
		}
	}
	return nil, err
}

func getLog(ctx context.Context, dev nvmeioctl.Device, op string, r LogRequest) ([]byte, error) {
	total := r.Fields.LengthBytes
	if _, err := r.Fields.Dwords(); err != nil {
		return nil, opError(op, dev, r.NSID, err)
	}
	if total > logLimit {
		return nil, opError(op, dev, r.NSID, fmt.Errorf("%w: %d bytes are too many", nvmespec.ErrInvalidData, total))
	}
	if !r.Extended && (total > plainLogBytes || r.Fields.OffsetBytes != 0) {
		return nil, opError(op, dev, r.NSID, &nvmeioctl.UnsupportedError{
			Feature: fmt.Sprintf("reading %d bytes of a log at offset %d", total, r.Fields.OffsetBytes),
			Needs:   "Get Log Page with offsets (LPA bit 2)"})
	}
	log := make([]byte, 0, total)
	for done := uint64(0); done < total; {
		f := r.Fields
		f.LengthBytes = min(total-done, r.chunkBytes())
		f.OffsetBytes += done
		f.RetainEvent = f.RetainEvent || done+f.LengthBytes < total
		cmd, err := GetLogCommand(r.NSID, f)
		if err != nil {
			return nil, opError(op, dev, r.NSID, err)
		}
		if _, err := submit(ctx, dev, op, cmd); err != nil {
			return nil, err
		}
		log = append(log, cmd.Data...)
		done += f.LengthBytes
	}
	return log, nil
}

// typedLog reads a log of fixed length and decodes it.
func typedLog[T any](ctx context.Context, dev nvmeioctl.Device, op string, nsid uint32, f nvmespec.GetLogFields,
	decode func([]byte) (T, error)) (T, error) {
	var zero T
	b, err := getLog(ctx, dev, op, LogRequest{NSID: nsid, Fields: f})
	if err != nil {
		return zero, err
	}
	v, err := decode(b)
	if err != nil {
		return zero, opError(op, dev, nsid, err)
	}
	return v, nil
}

// SMARTLog reads the SMART log: of the whole controller with NSID 0xFFFFFFFF, or
// of one namespace where the controller has LogSMARTPerNamespace. It never asks
// to retain events: drives have answered that with a page of zeros.
func SMARTLog(ctx context.Context, dev nvmeioctl.Device, nsid uint32) (nvmespec.SMART, error) {
	return typedLog(ctx, dev, "get SMART log", nsid,
		nvmespec.GetLogFields{Log: nvmespec.LogIDSMART, LengthBytes: nvmespec.SMARTSize}, nvmespec.DecodeSMART)
}

// ErrorLog reads the newest entries of the error log, newest first, without
// unused ones; the controller keeps c.ErrorLogEntries of them and no more are
// asked for. It retains the event: looking must not change anything.
func ErrorLog(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller, entries int) ([]nvmespec.ErrorEntry, error) {
	const op = "get error log"
	n := uint64(min(max(entries, 1), int(max(c.ErrorLogEntries, 1))))
	extended := c.Logs&nvmespec.LogExtended != 0
	if !extended {
		n = min(n, plainLogBytes/nvmespec.ErrorEntrySize)
	}
	b, err := getLog(ctx, dev, op, LogRequest{NSID: nvmespec.BroadcastNSID, Extended: extended,
		MaxTransferBytes: min(c.MaxTransferBytes, 64<<10),
		Fields: nvmespec.GetLogFields{Log: nvmespec.LogIDError, RetainEvent: true,
			LengthBytes: n * nvmespec.ErrorEntrySize}})
	if err != nil {
		return nil, err
	}
	log, err := nvmespec.DecodeErrorLog(b)
	return log, opError(op, dev, 0, err)
}

// RequiredCapacity reads from the newest entry of the error log how many bytes
// the namespace would have needed that a create with status 115h was refused;
// false where the newest entry is about something else or does not say.
func RequiredCapacity(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) (bytes uint64, ok bool, err error) {
	log, err := ErrorLog(ctx, dev, c, 1)
	if err != nil || len(log) == 0 {
		return 0, false, err
	}
	e := log[0]
	if e.Status.Code() != nvmespec.StatusInsufficientCapacity || e.CommandSpecific == 0 {
		return 0, false, nil
	}
	return e.CommandSpecific, true, nil
}

// FirmwareLog reads the firmware slot log.
func FirmwareLog(ctx context.Context, dev nvmeioctl.Device) (nvmespec.FirmwareSlots, error) {
	return typedLog(ctx, dev, "get firmware slot log", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDFirmware, LengthBytes: nvmespec.FirmwareSlotsSize}, nvmespec.DecodeFirmwareSlots)
}

// BootPartition reads which boot partition is active and how large they are; the
// partition named is the one whose data would follow.
func BootPartition(ctx context.Context, dev nvmeioctl.Device, partition uint8) (nvmespec.BootPartition, error) {
	return typedLog(ctx, dev, "get boot partition log", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDBootPartition, Specific: partition & 1, LengthBytes: nvmespec.BootPartitionHeaderSize}, nvmespec.DecodeBootPartition)
}

// EffectsLog reads the commands supported and effects log of the NVM command set.
func EffectsLog(ctx context.Context, dev nvmeioctl.Device) (nvmespec.Effects, error) {
	return typedLog(ctx, dev, "get effects log", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDEffects, LengthBytes: nvmespec.EffectsSize}, nvmespec.DecodeEffects)
}

// ChangedNamespaces reads the NSIDs that changed since the list was last cleared;
// 0xFFFFFFFF alone means more than fit. acknowledge clears list and event, which
// the kernel's own handling waits for: leave it to the kernel there.
func ChangedNamespaces(ctx context.Context, dev nvmeioctl.Device, acknowledge bool) ([]uint32, error) {
	return typedLog(ctx, dev, "get changed namespace list", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDChangedNamespaces, RetainEvent: !acknowledge,
			LengthBytes: nvmespec.ChangedNamespacesSize}, nvmespec.DecodeNamespaceList)
}

// EnduranceGroupLog reads the log of one endurance group, 1..EnduranceGroupIDMax.
func EnduranceGroupLog(ctx context.Context, dev nvmeioctl.Device, group uint16) (nvmespec.EnduranceGroup, error) {
	return typedLog(ctx, dev, "get endurance group log", 0,
		nvmespec.GetLogFields{Log: nvmespec.LogIDEnduranceGroup, LogSpecificID: group,
			LengthBytes: nvmespec.EnduranceGroupSize}, nvmespec.DecodeEnduranceGroup)
}

// OCPHealthLog reads log C0h as the OCP specification has it. A drive that has
// none answers with a status, or with a page of another vendor's making, whose
// GUID is then an error that Is nvmespec.ErrInvalidData.
func OCPHealthLog(ctx context.Context, dev nvmeioctl.Device) (nvmespec.OCPHealth, error) {
	return typedLog(ctx, dev, "get OCP health log", nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: nvmespec.LogIDOCPHealth, LengthBytes: nvmespec.OCPHealthSize}, nvmespec.DecodeOCPHealth)
}

// VendorHealthLog reads the vendor's own health log, where the table of package
// vendor has one for this PCI vendor; otherwise nothing is sent and the error Is
// nvmeioctl.ErrNotSupported.
func VendorHealthLog(ctx context.Context, dev nvmeioctl.Device, vendorID uint16) (vendor.Health, error) {
	const op = "get vendor health log"
	layouts := vendor.Lookup(vendorID)
	if len(layouts) == 0 {
		return vendor.Health{}, opError(op, dev, 0, &nvmeioctl.UnsupportedError{
			Feature: fmt.Sprintf("the vendor health log of PCI vendor 0x%04x", vendorID), Needs: "an entry in the vendor table"})
	}
	id := layouts[0].LogID
	h, err := typedLog(ctx, dev, op, nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: id, LengthBytes: uint64(layouts[0].SizeBytes)},
		func(b []byte) (vendor.Health, error) { return vendor.Decode(vendorID, id, b) })
	if errors.Is(err, vendor.ErrUnknownLog) {
		return h, opError(op, dev, 0, err)
	}
	return h, err
}

// VendorLog reads a vendor's own log into what the table of package vendor says:
// a vendor.Health or a vendor.Report. Whether the drive is that vendor's is for
// the caller to know.
func VendorLog(ctx context.Context, dev nvmeioctl.Device, p vendor.Page) (any, error) {
	return typedLog(ctx, dev, "get vendor log "+p.Name, nvmespec.BroadcastNSID,
		nvmespec.GetLogFields{Log: p.LogID, LengthBytes: uint64(p.SizeBytes)},
		func(b []byte) (any, error) { return vendor.DecodePage(p.Name, b) })
}
