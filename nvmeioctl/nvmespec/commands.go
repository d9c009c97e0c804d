package nvmespec

import (
	"fmt"
	"strings"
)

// Admin command opcodes. NVMe Base Specification 2.x, "Opcodes for Admin
// Commands".
const (
	AdminDeleteSQ             uint8 = 0x00
	AdminCreateSQ             uint8 = 0x01
	AdminGetLogPage           uint8 = 0x02
	AdminDeleteCQ             uint8 = 0x04
	AdminCreateCQ             uint8 = 0x05
	AdminIdentify             uint8 = 0x06
	AdminAbort                uint8 = 0x08
	AdminSetFeatures          uint8 = 0x09
	AdminGetFeatures          uint8 = 0x0A
	AdminAsyncEventRequest    uint8 = 0x0C
	AdminNamespaceManage      uint8 = 0x0D
	AdminFirmwareCommit       uint8 = 0x10
	AdminFirmwareDownload     uint8 = 0x11
	AdminDeviceSelfTest       uint8 = 0x14
	AdminNamespaceAttach      uint8 = 0x15
	AdminKeepAlive            uint8 = 0x18
	AdminDirectiveSend        uint8 = 0x19
	AdminDirectiveReceive     uint8 = 0x1A
	AdminVirtualizationManage uint8 = 0x1C
	AdminMISend               uint8 = 0x1D
	AdminMIReceive            uint8 = 0x1E
	AdminCapacityManage       uint8 = 0x20
	AdminLockdown             uint8 = 0x24
	AdminDoorbellBufferConfig uint8 = 0x7C
	AdminFormatNVM            uint8 = 0x80
	AdminSecuritySend         uint8 = 0x81
	AdminSecurityReceive      uint8 = 0x82
	AdminSanitize             uint8 = 0x84
	AdminLBAStatus            uint8 = 0x86
)

// I/O command opcodes of the NVM command set.
const (
	IOOpFlush               uint8 = 0x00
	IOOpWrite               uint8 = 0x01
	IOOpRead                uint8 = 0x02
	IOOpWriteUncorrectable  uint8 = 0x04
	IOOpCompare             uint8 = 0x05
	IOOpWriteZeroes         uint8 = 0x08
	IOOpDatasetManagement   uint8 = 0x09
	IOOpVerify              uint8 = 0x0C
	IOOpReservationRegister uint8 = 0x0D
	IOOpReservationReport   uint8 = 0x0E
	IOOpReservationAcquire  uint8 = 0x11
	IOOpReservationRelease  uint8 = 0x15
	IOOpCopy                uint8 = 0x19
)

// CNS is the Controller or Namespace Structure field of Identify: what is asked.
type CNS uint8

// The values of CNS this project uses.
const (
	CNSNamespace            CNS = 0x00
	CNSController           CNS = 0x01
	CNSActiveNamespaces     CNS = 0x02
	CNSDescriptors          CNS = 0x03
	CNSNVMNamespace         CNS = 0x05
	CNSNVMController        CNS = 0x06
	CNSIndependentNamespace CNS = 0x08
	CNSAllocatedNamespaces  CNS = 0x10
	CNSAllocatedNamespace   CNS = 0x11
	CNSAttachedControllers  CNS = 0x12
	CNSControllers          CNS = 0x13
	CNSGranularity          CNS = 0x16
	CNSUUIDList             CNS = 0x17

	CNSNVMSets              CNS = 0x04
	CNSPrimaryController    CNS = 0x14
	CNSSecondaryControllers CNS = 0x15
	CNSDomains              CNS = 0x18
	CNSEnduranceGroups      CNS = 0x19
	CNSCommandSets          CNS = 0x1C
)

// LogID is a log page identifier (LID).
type LogID uint8

// The logs this project reads.
const (
	LogIDSupported         LogID = 0x00
	LogIDError             LogID = 0x01
	LogIDSMART             LogID = 0x02
	LogIDFirmware          LogID = 0x03
	LogIDChangedNamespaces LogID = 0x04
	LogIDEffects           LogID = 0x05
	LogIDSelfTest          LogID = 0x06
	LogIDEnduranceGroup    LogID = 0x09
	LogIDSanitize          LogID = 0x81

	LogIDTelemetryHost          LogID = 0x07
	LogIDTelemetryController    LogID = 0x08
	LogIDPredictableLatency     LogID = 0x0A
	LogIDANA                    LogID = 0x0C
	LogIDPersistentEvents       LogID = 0x0D
	LogIDLBAStatus              LogID = 0x0E
	LogIDEnduranceGroupEvents   LogID = 0x0F
	LogIDMediaUnits             LogID = 0x10
	LogIDCapacityConfigurations LogID = 0x11
	LogIDFeatureEffects         LogID = 0x12
	LogIDManagementEffects      LogID = 0x13
	LogIDLockdown               LogID = 0x14
	LogIDBootPartition          LogID = 0x15
	LogIDFDPConfigurations      LogID = 0x20
	LogIDFDPUsage               LogID = 0x21
	LogIDFDPStatistics          LogID = 0x22
	LogIDFDPEvents              LogID = 0x23
	LogIDReservation            LogID = 0x80
	LogIDOCPHealth              LogID = 0xC0
	LogIDVendorHealth           LogID = 0xCA
)

// Values of the Select field of Namespace Management and Attachment.
const (
	SelectCreate = 0
	SelectDelete = 1
	SelectAttach = 0
	SelectDetach = 1
)

// IdentifyFields are the command dwords of Identify besides the NSID.
type IdentifyFields struct {
	CNS CNS
	// ControllerID is CNTID: for lists of controllers the first one wanted.
	ControllerID uint16
	// CommandSet is CSI.
	CommandSet uint8
	// UUIDIndex selects a vendor's meaning; 0 is none.
	UUIDIndex uint8
}

// Dwords is CDW10, CDW11 and CDW14.
func (f IdentifyFields) Dwords() (cdw10, cdw11, cdw14 uint32) {
	return uint32(f.CNS) | uint32(f.ControllerID)<<16, uint32(f.CommandSet) << 24, uint32(f.UUIDIndex & 0x7F)
}

// DecodeIdentifyFields reads the command dwords, as a controller does.
func DecodeIdentifyFields(cdw10, cdw11, cdw14 uint32) IdentifyFields {
	return IdentifyFields{CNS: CNS(cdw10), ControllerID: uint16(cdw10 >> 16),
		CommandSet: uint8(cdw11 >> 24), UUIDIndex: uint8(cdw14 & 0x7F)}
}

// GetLogFields are the command dwords of Get Log Page besides the NSID.
type GetLogFields struct {
	Log LogID
	// Specific is LSP, 0..127.
	Specific uint8
	// RetainEvent (RAE) keeps the asynchronous event that a read would clear.
	RetainEvent bool
	// LengthBytes is how much to transfer: at least 4 and a multiple of 4. The
	// wire counts dwords from 0.
	LengthBytes uint64
	// LogSpecificID is LSI: for log 09h the endurance group.
	LogSpecificID uint16
	// OffsetBytes is LPO, a multiple of 4.
	OffsetBytes uint64
	// CommandSet is CSI, UUIDIndex selects a vendor's meaning.
	CommandSet uint8
	UUIDIndex  uint8
}

// GetLogDwords is CDW10 to CDW14 of a Get Log Page.
type GetLogDwords struct{ CDW10, CDW11, CDW12, CDW13, CDW14 uint32 }

// Dwords gives the command dwords. A length of 0 is an error: counted from zero
// it would underflow to 16 GiB.
func (f GetLogFields) Dwords() (GetLogDwords, error) {
	if f.LengthBytes < 4 || f.LengthBytes%4 != 0 || f.LengthBytes > 4<<32 {
		return GetLogDwords{}, fmt.Errorf("get log page 0x%02x: %w: length of %d bytes", uint8(f.Log), ErrInvalidData, f.LengthBytes)
	}
	if f.OffsetBytes%4 != 0 {
		return GetLogDwords{}, fmt.Errorf("get log page 0x%02x: %w: offset of %d bytes", uint8(f.Log), ErrInvalidData, f.OffsetBytes)
	}
	numd := f.LengthBytes/4 - 1
	return GetLogDwords{
		CDW10: uint32(f.Log) | uint32(f.Specific&0x7F)<<8 | uint32(bit8(f.RetainEvent, 0))<<15 | uint32(numd&0xFFFF)<<16,
		CDW11: uint32(numd>>16) | uint32(f.LogSpecificID)<<16,
		CDW12: uint32(f.OffsetBytes),
		CDW13: uint32(f.OffsetBytes >> 32),
		CDW14: uint32(f.UUIDIndex&0x7F) | uint32(f.CommandSet)<<24,
	}, nil
}

// DecodeGetLogFields reads the command dwords, as a controller does.
func DecodeGetLogFields(d GetLogDwords) GetLogFields {
	numd := uint64(d.CDW10>>16) | uint64(d.CDW11&0xFFFF)<<16
	return GetLogFields{
		Log:           LogID(d.CDW10),
		Specific:      uint8(d.CDW10 >> 8 & 0x7F),
		RetainEvent:   d.CDW10>>15&1 != 0,
		LengthBytes:   (numd + 1) * 4,
		LogSpecificID: uint16(d.CDW11 >> 16),
		OffsetBytes:   uint64(d.CDW12) | uint64(d.CDW13)<<32,
		CommandSet:    uint8(d.CDW14 >> 24),
		UUIDIndex:     uint8(d.CDW14 & 0x7F),
	}
}

// EraseKind is the Secure Erase Settings field (SES) of Format NVM.
type EraseKind uint8

// The values of EraseKind.
const (
	EraseNone     EraseKind = 0
	EraseUserData EraseKind = 1
	EraseCrypto   EraseKind = 2
)

// FormatFields is command dword 10 of Format NVM.
type FormatFields struct {
	// FormatIndex is the LBA format, 0..63. Indices above 15 need LBAFU, which
	// controllers without extended LBA formats treat as reserved.
	FormatIndex      uint8 `json:"format_index"`
	MetadataExtended bool  `json:"metadata_extended"`
	// Protection: on the wire First is 1 for the first bytes (PIL).
	Protection Protection `json:"protection"`
	Erase      EraseKind  `json:"erase"`
}

// Dword is CDW10.
func (f FormatFields) Dword() uint32 {
	return uint32(f.FormatIndex&15) | uint32(bit8(f.MetadataExtended, 0))<<4 | uint32(f.Protection.Type&7)<<5 |
		uint32(bit8(f.Protection.First, 0))<<8 | uint32(f.Erase&7)<<9 | uint32(f.FormatIndex>>4&3)<<12
}

// DecodeFormatFields reads CDW10.
func DecodeFormatFields(cdw10 uint32) FormatFields {
	return FormatFields{
		FormatIndex:      uint8(cdw10&15 | cdw10>>12&3<<4),
		MetadataExtended: cdw10>>4&1 != 0,
		Protection:       Protection{Type: uint8(cdw10 >> 5 & 7), First: cdw10>>8&1 != 0},
		Erase:            EraseKind(cdw10 >> 9 & 7),
	}
}

// GetFeatureFields are the command dwords of Get Features.
type GetFeatureFields struct {
	Feature FeatureID
	Select  FeatureSelect
	// CDW11 is the feature's own.
	CDW11 uint32
}

// CDW10 is command dword 10.
func (f GetFeatureFields) CDW10() uint32 { return uint32(f.Feature) | uint32(f.Select&7)<<8 }

// DecodeGetFeatureFields reads the command dwords.
func DecodeGetFeatureFields(cdw10, cdw11 uint32) GetFeatureFields {
	return GetFeatureFields{Feature: FeatureID(cdw10), Select: FeatureSelect(cdw10 >> 8 & 7), CDW11: cdw11}
}

// SetFeatureFields are the command dwords of Set Features.
type SetFeatureFields struct {
	Feature FeatureID
	// Save keeps the value over power cycles (SV).
	Save bool
	// CDW11 is the feature's own.
	CDW11 uint32
}

// CDW10 is command dword 10.
func (f SetFeatureFields) CDW10() uint32 {
	return uint32(f.Feature) | uint32(bit8(f.Save, 0))<<31
}

// DecodeSetFeatureFields reads the command dwords.
func DecodeSetFeatureFields(cdw10, cdw11 uint32) SetFeatureFields {
	return SetFeatureFields{Feature: FeatureID(cdw10), Save: cdw10>>31 != 0, CDW11: cdw11}
}

// Class is what kind of change a command makes, as bits: what a grant names.
type Class uint16

// The classes.
const (
	ClassRead      Class = 1 << iota // reads only
	ClassFeature                     // changes settings
	ClassNamespace                   // creates, deletes, attaches or detaches namespaces
	ClassFormat                      // destroys data: format, sanitize
	ClassFirmware                    // loads or activates firmware
	ClassWrite                       // writes or deallocates data through the I/O command set
	ClassSecurity                    // security send: may lock or erase the drive
	ClassSelfTest                    // occupies the drive, changes nothing
	ClassQueue                       // queues, aborts, events: the host driver's own business
	ClassVendor                      // vendor specific: anything
	ClassUnknown                     // not in this project's table: anything
)

func (Class) names() []string {
	return []string{"read", "feature", "namespace", "format", "firmware", "write", "security", "self_test",
		"queue", "vendor", "unknown"}
}

// String lists the classes: "namespace+format".
func (c Class) String() string { return strings.Join(flagBits(uint32(c), c.names()), "+") }

// MarshalJSON lists the names of the classes.
func (c Class) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(c), c.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Class) UnmarshalJSON(b []byte) error { return unmarshalFlags(c, b, c.names()) }

// ClassOf says what kind of change a command makes; exactly one bit is set. What
// is not in the table counts as unknown, never as harmless. cdw10 tells the
// harmless forms of a command from the others; no such form is used yet, so a
// set feature is always a change.
func ClassOf(admin bool, opcode uint8, cdw10 uint32) Class {
	if admin {
		return adminClass(opcode)
	}
	return ioClass(opcode)
}

func adminClass(opcode uint8) Class {
	switch opcode {
	case AdminGetLogPage, AdminIdentify, AdminGetFeatures, AdminDirectiveReceive, AdminSecurityReceive,
		AdminMIReceive, AdminLBAStatus, AdminKeepAlive:
		return ClassRead
	case AdminSetFeatures, AdminDirectiveSend, AdminVirtualizationManage, AdminLockdown:
		return ClassFeature
	case AdminNamespaceManage, AdminNamespaceAttach, AdminCapacityManage:
		return ClassNamespace
	case AdminFormatNVM, AdminSanitize:
		return ClassFormat
	case AdminFirmwareCommit, AdminFirmwareDownload:
		return ClassFirmware
	case AdminSecuritySend:
		return ClassSecurity
	case AdminDeviceSelfTest:
		return ClassSelfTest
	case AdminDeleteSQ, AdminCreateSQ, AdminDeleteCQ, AdminCreateCQ, AdminAbort, AdminAsyncEventRequest,
		AdminDoorbellBufferConfig:
		return ClassQueue
	}
	if opcode >= 0xC0 {
		return ClassVendor
	}
	return ClassUnknown
}

func ioClass(opcode uint8) Class {
	switch opcode {
	case IOOpRead, IOOpCompare, IOOpVerify, IOOpReservationReport, IOOpFlush:
		return ClassRead
	case IOOpWrite, IOOpWriteUncorrectable, IOOpWriteZeroes, IOOpDatasetManagement, IOOpCopy:
		return ClassWrite
	case IOOpReservationRegister, IOOpReservationAcquire, IOOpReservationRelease:
		return ClassFeature
	}
	if opcode >= 0x80 {
		return ClassVendor
	}
	return ClassUnknown
}

// CommandName is a command in words: "identify"; unknown opcodes give their
// number.
func CommandName(admin bool, opcode uint8) string {
	name := ""
	if admin {
		name = adminName(opcode)
	} else {
		name = ioName(opcode)
	}
	if name != "" {
		return name
	}
	set := "I/O"
	if admin {
		set = "admin"
	}
	return fmt.Sprintf("%s command 0x%02x", set, opcode)
}

func adminName(opcode uint8) string {
	switch opcode {
	case AdminDeleteSQ:
		return "delete submission queue"
	case AdminCreateSQ:
		return "create submission queue"
	case AdminGetLogPage:
		return "get log page"
	case AdminDeleteCQ:
		return "delete completion queue"
	case AdminCreateCQ:
		return "create completion queue"
	case AdminIdentify:
		return "identify"
	case AdminAbort:
		return "abort"
	case AdminSetFeatures:
		return "set features"
	case AdminGetFeatures:
		return "get features"
	case AdminAsyncEventRequest:
		return "asynchronous event request"
	case AdminNamespaceManage:
		return "namespace management"
	case AdminFirmwareCommit:
		return "firmware commit"
	case AdminFirmwareDownload:
		return "firmware image download"
	case AdminDeviceSelfTest:
		return "device self-test"
	case AdminNamespaceAttach:
		return "namespace attachment"
	case AdminKeepAlive:
		return "keep alive"
	case AdminDirectiveSend:
		return "directive send"
	case AdminDirectiveReceive:
		return "directive receive"
	case AdminVirtualizationManage:
		return "virtualization management"
	case AdminMISend:
		return "NVMe-MI send"
	case AdminMIReceive:
		return "NVMe-MI receive"
	case AdminCapacityManage:
		return "capacity management"
	case AdminLockdown:
		return "lockdown"
	case AdminDoorbellBufferConfig:
		return "doorbell buffer config"
	case AdminFormatNVM:
		return "format NVM"
	case AdminSecuritySend:
		return "security send"
	case AdminSecurityReceive:
		return "security receive"
	case AdminSanitize:
		return "sanitize"
	case AdminLBAStatus:
		return "get LBA status"
	}
	return ""
}

func ioName(opcode uint8) string {
	switch opcode {
	case IOOpFlush:
		return "flush"
	case IOOpWrite:
		return "write"
	case IOOpRead:
		return "read"
	case IOOpWriteUncorrectable:
		return "write uncorrectable"
	case IOOpCompare:
		return "compare"
	case IOOpWriteZeroes:
		return "write zeroes"
	case IOOpDatasetManagement:
		return "dataset management"
	case IOOpVerify:
		return "verify"
	case IOOpReservationRegister:
		return "reservation register"
	case IOOpReservationReport:
		return "reservation report"
	case IOOpReservationAcquire:
		return "reservation acquire"
	case IOOpReservationRelease:
		return "reservation release"
	case IOOpCopy:
		return "copy"
	}
	return ""
}

// Consequence says in a sentence what a command changes or destroys, for a plan
// that a person reads; empty for commands that only read.
func Consequence(admin bool, opcode uint8, nsid, cdw10 uint32) string {
	where := fmt.Sprintf("namespace %d", nsid)
	if nsid == BroadcastNSID {
		where = "every namespace"
	}
	if !admin {
		if ClassOf(false, opcode, cdw10) == ClassRead {
			return ""
		}
		return CommandName(false, opcode) + " changes data or access of " + where
	}
	switch opcode {
	case AdminNamespaceManage:
		if cdw10&15 == SelectDelete {
			return "destroys " + where + " and all data on it; its identifiers and /dev/disk/by-id links vanish"
		}
		return "takes capacity for a new namespace, which gets new identifiers and /dev/disk/by-id links"
	case AdminNamespaceAttach:
		if cdw10&15 == SelectDetach {
			return "makes " + where + " vanish from the controllers named; its data stays"
		}
		return "makes " + where + " appear on the controllers named"
	case AdminFormatNVM:
		return formatConsequence(where, DecodeFormatFields(cdw10))
	case AdminSanitize:
		if DecodeSanitizeFields(cdw10, 0).Action == SanitizeExitFailure {
			return "leaves the state of a failed sanitize; the data may still be there"
		}
		return "destroys all data on the whole drive and cannot be stopped"
	case AdminDeviceSelfTest:
		return "occupies the drive for a while and changes no data"
	case AdminSetFeatures:
		f := DecodeSetFeatureFields(cdw10, 0)
		text := "changes feature " + f.Feature.String()
		if f.Save {
			return text + " now and after power cycles"
		}
		return text + " until the next reset"
	case AdminFirmwareDownload:
		return "transfers a part of a firmware image; nothing runs it yet"
	case AdminFirmwareCommit:
		return "stores or activates firmware"
	}
	if c := ClassOf(true, opcode, cdw10); c != ClassRead {
		return CommandName(true, opcode) + " (" + c.String() + "): its effect is not known to this program"
	}
	return ""
}

func formatConsequence(where string, f FormatFields) string {
	text := fmt.Sprintf("destroys all data on %s and sets LBA format %d", where, f.FormatIndex)
	switch f.Erase {
	case EraseUserData:
		text += ", erasing user data"
	case EraseCrypto:
		text += ", erasing the encryption key"
	}
	return text + "; some drives format every namespace (FNA)"
}
