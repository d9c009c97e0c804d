package nvmespec

import "fmt"

// Offsets of the data of events. NVMe Base Specification 2.x, "Persistent Event
// Format", one figure an event type.
const (
	offEvFWOld    = 0
	offEvFWNew    = 8
	offEvFWAction = 16
	offEvFWSlot   = 17
	offEvFWSCT    = 18
	offEvFWSC     = 19
	offEvFWVendor = 20
	eventFirmware = 22

	offEvTSPrevious = 0
	offEvTSReset    = 8
	eventTimestamp  = 16

	offEvPORFR     = 0
	offEvPORList   = 8
	eventReset     = 36
	offEvRCID      = 0
	offEvRFirmware = 2
	offEvROp       = 3
	offEvRCycle    = 16
	offEvRPowerOn  = 20
	offEvRTime     = 28
	resetsMax      = 1024

	offEvHWCode  = 0
	offEvHWInfo  = 4
	eventHWError = 4

	offEvNSCDW10  = 0
	offEvNSSize   = 8
	offEvNSCap    = 24
	offEvNSFLBAS  = 32
	offEvNSDPS    = 33
	offEvNSNMIC   = 34
	offEvNSANA    = 36
	offEvNSSet    = 40
	offEvNSNSID   = 44
	eventChangeNS = 48

	offEvFmtNSID   = 0
	offEvFmtFNA    = 4
	offEvFmtCDW10  = 8
	eventFmtStart  = 12
	offEvFmtFPI    = 4
	offEvFmtStat   = 5
	offEvFmtInfo   = 6
	offEvFmtStatus = 8
	eventFmtDone   = 12

	offEvSaniCap   = 0
	offEvSaniCDW10 = 4
	offEvSaniCDW11 = 8
	eventSaniStart = 12
	offEvSaniProg  = 0
	offEvSaniStat  = 2
	offEvSaniInfo  = 4
	eventSaniDone  = 8

	offEvSFLayout = 0
	offEvSFDwords = 4
	eventSetFeat  = 4

	offEvThermalOver  = 0
	offEvThermalLimit = 1
	eventThermal      = 2
)

// FirmwareCommitEvent is the data of EventFirmwareCommit.
type FirmwareCommitEvent struct {
	OldRevision string `json:"old_revision"`
	NewRevision string `json:"new_revision"`
	Action      uint8  `json:"commit_action"`
	Slot        uint8  `json:"slot"`
	// Status is what the command answered.
	Status     Status `json:"status"`
	VendorCode uint16 `json:"vendor_code"`
}

// Append appends the 22 bytes of the data.
func (e FirmwareCommitEvent) Append(b []byte) []byte {
	b, p := grow(b, eventFirmware)
	p.putText(offEvFWOld, 8, e.OldRevision, ' ')
	p.putText(offEvFWNew, 8, e.NewRevision, ' ')
	p.put8(offEvFWAction, e.Action)
	p.put8(offEvFWSlot, e.Slot)
	p.put8(offEvFWSCT, e.Status.SCT())
	p.put8(offEvFWSC, uint8(e.Status))
	p.put16(offEvFWVendor, e.VendorCode)
	return b
}

// TimestampEvent is the data of EventTimestampChange.
type TimestampEvent struct {
	Previous Timestamp `json:"previous"`
	// SinceResetMilliseconds is how long ago the last reset was.
	SinceResetMilliseconds uint64 `json:"since_reset_milliseconds"`
}

// Append appends the 16 bytes of the data.
func (e TimestampEvent) Append(b []byte) []byte {
	b, p := grow(b, eventTimestamp)
	p.putTimestamp(offEvTSPrevious, e.Previous)
	p.put64(offEvTSReset, e.SinceResetMilliseconds)
	return b
}

// ResetInformation is what EventPowerOnReset says of one controller.
type ResetInformation struct {
	ControllerID uint16 `json:"controller_id"`
	// FirmwareActivated says that this reset activated firmware.
	FirmwareActivated bool `json:"firmware_activated"`
	// OperationInProgress is the operation it interrupted, as on the wire.
	OperationInProgress uint8     `json:"operation_in_progress_raw"`
	PowerCycle          uint32    `json:"power_cycle"`
	PowerOnMilliseconds uint64    `json:"power_on_milliseconds"`
	Time                Timestamp `json:"timestamp"`
}

// ResetEvent is the data of EventPowerOnReset.
type ResetEvent struct {
	FirmwareRevision string             `json:"firmware_revision"`
	Controllers      []ResetInformation `json:"controllers"`
}

// Append appends the data: 8 bytes, and 36 a controller.
func (e ResetEvent) Append(b []byte) []byte {
	b, p := grow(b, offEvPORList+eventReset*len(e.Controllers))
	p.putText(offEvPORFR, 8, e.FirmwareRevision, ' ')
	for i, c := range e.Controllers {
		r := page(p.bytes(offEvPORList+eventReset*i, eventReset))
		r.put16(offEvRCID, c.ControllerID)
		r.put8(offEvRFirmware, bit8(c.FirmwareActivated, 0))
		r.put8(offEvROp, c.OperationInProgress)
		r.put32(offEvRCycle, c.PowerCycle)
		r.put64(offEvRPowerOn, c.PowerOnMilliseconds)
		r.putTimestamp(offEvRTime, c.Time)
	}
	return b
}

// HardwareErrorEvent is the data of EventHardwareError.
type HardwareErrorEvent struct {
	// Code is the NVM subsystem hardware error event code.
	Code        uint16 `json:"code"`
	Information []byte `json:"information,omitempty"`
}

// Append appends the data.
func (e HardwareErrorEvent) Append(b []byte) []byte {
	b, p := grow(b, eventHWError)
	p.put16(offEvHWCode, e.Code)
	return append(b, e.Information...)
}

// NamespaceEvent is the data of EventChangeNamespace.
type NamespaceEvent struct {
	// Command is dword 10 of Namespace Management: 0 create, 1 delete.
	Command          uint32     `json:"command_dword10"`
	NSID             uint32     `json:"nsid"`
	SizeBlocks       uint64     `json:"size_blocks"`
	CapacityBlocks   uint64     `json:"capacity_blocks"`
	FormatIndex      uint8      `json:"format_index"`
	MetadataExtended bool       `json:"metadata_extended"`
	Protection       Protection `json:"protection"`
	Shared           bool       `json:"shared"`
	ANAGroupID       uint32     `json:"ana_group_id"`
	NVMSetID         uint16     `json:"nvm_set_id"`
}

// Append appends the 48 bytes of the data.
func (e NamespaceEvent) Append(b []byte) []byte {
	b, p := grow(b, eventChangeNS)
	p.put32(offEvNSCDW10, e.Command)
	p.put64(offEvNSSize, e.SizeBlocks)
	p.put64(offEvNSCap, e.CapacityBlocks)
	p.put8(offEvNSFLBAS, uint8(MakeFLBAS(e.FormatIndex, e.MetadataExtended)))
	p.put8(offEvNSDPS, e.Protection.wire())
	p.put8(offEvNSNMIC, bit8(e.Shared, 0))
	p.put32(offEvNSANA, e.ANAGroupID)
	p.put16(offEvNSSet, e.NVMSetID)
	p.put32(offEvNSNSID, e.NSID)
	return b
}

// FormatStartEvent is the data of EventFormatStart.
type FormatStartEvent struct {
	NSID uint32 `json:"nsid"`
	// Attributes is FNA at the time.
	Attributes FormatAttributes `json:"format_attributes"`
	// Command is dword 10 of Format NVM.
	Command uint32 `json:"command_dword10"`
}

// Append appends the 12 bytes of the data.
func (e FormatStartEvent) Append(b []byte) []byte {
	b, p := grow(b, eventFmtStart)
	p.put32(offEvFmtNSID, e.NSID)
	p.put8(offEvFmtFNA, uint8(e.Attributes))
	p.put32(offEvFmtCDW10, e.Command)
	return b
}

// FormatDoneEvent is the data of EventFormatCompletion.
type FormatDoneEvent struct {
	NSID uint32 `json:"nsid"`
	// SmallestRemainingPercent is the smallest format progress that was reported.
	SmallestRemainingPercent uint8 `json:"smallest_remaining_percent"`
	// FormatStatus is the status byte of the event as it stands on the wire.
	FormatStatus uint8  `json:"format_status_raw"`
	Information  uint16 `json:"information"`
	// Status is what the command answered.
	Status Status `json:"status"`
}

// Append appends the 12 bytes of the data.
func (e FormatDoneEvent) Append(b []byte) []byte {
	b, p := grow(b, eventFmtDone)
	p.put32(offEvFmtNSID, e.NSID)
	p.put8(offEvFmtFPI, e.SmallestRemainingPercent)
	p.put8(offEvFmtStat, e.FormatStatus)
	p.put16(offEvFmtInfo, e.Information)
	p.put32(offEvFmtStatus, uint32(e.Status)<<1)
	return b
}

// SanitizeStartEvent is the data of EventSanitizeStart.
type SanitizeStartEvent struct {
	Capabilities SanitizeCapabilities `json:"capabilities"`
	// Command and Pattern are dwords 10 and 11 of Sanitize.
	Command uint32 `json:"command_dword10"`
	Pattern uint32 `json:"command_dword11"`
}

// Append appends the 12 bytes of the data.
func (e SanitizeStartEvent) Append(b []byte) []byte {
	b, p := grow(b, eventSaniStart)
	p.put32(offEvSaniCap, uint32(e.Capabilities))
	p.put32(offEvSaniCDW10, e.Command)
	p.put32(offEvSaniCDW11, e.Pattern)
	return b
}

// SanitizeDoneEvent is the data of EventSanitizeComplete.
type SanitizeDoneEvent struct {
	Progress uint16 `json:"progress_65536ths"`
	// Status is SSTAT as it stands on the wire, State its bits 2:0.
	Status      uint16        `json:"status_raw"`
	State       SanitizeState `json:"state"`
	Information uint16        `json:"information"`
}

// Append appends the 8 bytes of the data; State is read from Status.
func (e SanitizeDoneEvent) Append(b []byte) []byte {
	b, p := grow(b, eventSaniDone)
	p.put16(offEvSaniProg, e.Progress)
	p.put16(offEvSaniStat, e.Status)
	p.put16(offEvSaniInfo, e.Information)
	return b
}

// SetFeatureEvent is the data of EventSetFeature.
type SetFeatureEvent struct {
	// Dwords are those of the command from CDW10 on, at most 7.
	Dwords []uint32 `json:"dwords"`
	// Result is completion dword 0, where it was logged.
	Result Opt[uint32] `json:"result"`
	// Memory is the data of the command.
	Memory []byte `json:"memory,omitempty"`
}

// Feature is the feature that was set; false where no dword was logged.
func (e SetFeatureEvent) Feature() (FeatureID, bool) {
	if len(e.Dwords) == 0 {
		return 0, false
	}
	return FeatureID(e.Dwords[0]), true
}

// Append appends the data. The layout word counts the dwords in bits 2:0, says in
// bit 3 that the result is logged, and counts the memory's bytes in bits 31:16.
func (e SetFeatureEvent) Append(b []byte) []byte {
	n, m := min(len(e.Dwords), 7), min(len(e.Memory), 0xFFFF)
	b, p := grow(b, eventSetFeat+4*n)
	p.put32(offEvSFLayout, uint32(n)|uint32(bit8(e.Result.OK, 3))|uint32(m)<<16)
	for i, d := range e.Dwords[:n] {
		p.put32(offEvSFDwords+4*i, d)
	}
	b = append(b, e.Memory[:m]...)
	if e.Result.OK {
		b, p = grow(b, 4)
		p.put32(0, e.Result.Value)
	}
	return b
}

// ThermalEvent is the data of EventThermalExcursion.
type ThermalEvent struct {
	// OverDegrees is how far above the threshold it was, in degrees.
	OverDegrees uint8 `json:"over_degrees"`
	// Threshold is which threshold, as it stands on the wire.
	Threshold uint8 `json:"threshold_raw"`
}

// Append appends the 2 bytes of the data.
func (e ThermalEvent) Append(b []byte) []byte {
	b, p := grow(b, eventThermal)
	p.put8(offEvThermalOver, e.OverDegrees)
	p.put8(offEvThermalLimit, e.Threshold)
	return b
}

// Decode reads the data of the event into its own type; nil for types that this
// project has no layout for.
func (e PersistentEvent) Decode() (any, error) {
	what := "event " + e.Type.String()
	switch e.Type {
	case EventSMARTSnapshot:
		return of(DecodeSMART)(e.Data)
	case EventTelemetryCreate:
		return of(DecodeTelemetryHeader)(e.Data)
	case EventPowerOnReset:
		return e.decodeReset(what)
	case EventSetFeature:
		return e.decodeSetFeature(what)
	case EventHardwareError:
		p, err := view(e.Data, eventHWError, what)
		if err != nil {
			return nil, err
		}
		return HardwareErrorEvent{Code: p.u16(offEvHWCode), Information: e.Data[offEvHWInfo:]}, nil
	case EventFormatStart, EventFormatCompletion, EventSanitizeStart, EventSanitizeComplete:
		return e.decodeErasure(what)
	}
	return e.decodePlain(what)
}

func (e PersistentEvent) decodePlain(what string) (any, error) {
	size := map[EventType]int{EventFirmwareCommit: eventFirmware, EventTimestampChange: eventTimestamp,
		EventChangeNamespace: eventChangeNS, EventThermalExcursion: eventThermal}[e.Type]
	if size == 0 {
		return nil, nil
	}
	p, err := view(e.Data, size, what)
	if err != nil {
		return nil, err
	}
	switch e.Type {
	case EventFirmwareCommit:
		return FirmwareCommitEvent{
			OldRevision: p.text(offEvFWOld, 8), NewRevision: p.text(offEvFWNew, 8), Action: p.u8(offEvFWAction), Slot: p.u8(offEvFWSlot),
			Status: Status(p.u8(offEvFWSCT)&7)<<8 | Status(p.u8(offEvFWSC)), VendorCode: p.u16(offEvFWVendor),
		}, nil
	case EventTimestampChange:
		return TimestampEvent{Previous: decodeTimestampAt(p, offEvTSPrevious), SinceResetMilliseconds: p.u64(offEvTSReset)}, nil
	case EventChangeNamespace:
		flbas := FLBAS(p.u8(offEvNSFLBAS))
		return NamespaceEvent{
			Command: p.u32(offEvNSCDW10), NSID: p.u32(offEvNSNSID), SizeBlocks: p.u64(offEvNSSize), CapacityBlocks: p.u64(offEvNSCap),
			FormatIndex: flbas.Index(), MetadataExtended: flbas.MetadataExtended(), Protection: decodeProtection(p.u8(offEvNSDPS)),
			Shared: p.u8(offEvNSNMIC)&1 != 0, ANAGroupID: p.u32(offEvNSANA), NVMSetID: p.u16(offEvNSSet),
		}, nil
	}
	return ThermalEvent{OverDegrees: p.u8(offEvThermalOver), Threshold: p.u8(offEvThermalLimit)}, nil
}

func (e PersistentEvent) decodeErasure(what string) (any, error) {
	size := eventFmtStart
	if e.Type == EventSanitizeComplete {
		size = eventSaniDone
	}
	p, err := view(e.Data, size, what)
	if err != nil {
		return nil, err
	}
	switch e.Type {
	case EventFormatStart:
		return FormatStartEvent{NSID: p.u32(offEvFmtNSID), Attributes: FormatAttributes(p.u8(offEvFmtFNA)), Command: p.u32(offEvFmtCDW10)}, nil
	case EventFormatCompletion:
		return FormatDoneEvent{
			NSID: p.u32(offEvFmtNSID), SmallestRemainingPercent: p.u8(offEvFmtFPI), FormatStatus: p.u8(offEvFmtStat),
			Information: p.u16(offEvFmtInfo), Status: Status(p.u32(offEvFmtStatus)>>1) & 0x7FFF,
		}, nil
	case EventSanitizeStart:
		return SanitizeStartEvent{Capabilities: SanitizeCapabilities(p.u32(offEvSaniCap)), Command: p.u32(offEvSaniCDW10), Pattern: p.u32(offEvSaniCDW11)}, nil
	}
	status := p.u16(offEvSaniStat)
	return SanitizeDoneEvent{Progress: p.u16(offEvSaniProg), Status: status, State: SanitizeState(status & 7), Information: p.u16(offEvSaniInfo)}, nil
}

func (e PersistentEvent) decodeReset(what string) (any, error) {
	p, err := view(e.Data, max(offEvPORList, len(e.Data)), what)
	if err != nil {
		return nil, err
	}
	r := ResetEvent{FirmwareRevision: p.text(offEvPORFR, 8), Controllers: []ResetInformation{}}
	for i := range min((len(p)-offEvPORList)/eventReset, resetsMax) {
		c := page(p.bytes(offEvPORList+eventReset*i, eventReset))
		r.Controllers = append(r.Controllers, ResetInformation{
			ControllerID: c.u16(offEvRCID), FirmwareActivated: c.u8(offEvRFirmware)&1 != 0, OperationInProgress: c.u8(offEvROp),
			PowerCycle: c.u32(offEvRCycle), PowerOnMilliseconds: c.u64(offEvRPowerOn), Time: decodeTimestampAt(c, offEvRTime),
		})
	}
	return r, nil
}

func (e PersistentEvent) decodeSetFeature(what string) (any, error) {
	p, err := view(e.Data, max(eventSetFeat, len(e.Data)), what)
	if err != nil {
		return nil, err
	}
	layout := p.u32(offEvSFLayout)
	n, m := int(layout&7), int(layout>>16)
	if !p.has(offEvSFDwords, 4*n+m) {
		return nil, fmt.Errorf("%s: %w: %d dwords and %d bytes announced, %d bytes are there", what, ErrShort, n, m, len(p))
	}
	f := SetFeatureEvent{Dwords: []uint32{}}
	for i := range n {
		f.Dwords = append(f.Dwords, p.u32(offEvSFDwords+4*i))
	}
	if m > 0 {
		f.Memory = p.bytes(offEvSFDwords+4*n, m)
	}
	if at := offEvSFDwords + 4*n + m; layout>>3&1 != 0 && p.has(at, 4) {
		f.Result = Some(p.u32(at))
	}
	return f, nil
}
