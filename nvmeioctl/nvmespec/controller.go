package nvmespec

import (
	"fmt"
	"math/bits"
)

// IdentifySize is the length of every Identify data structure.
const IdentifySize = 4096

// Offsets of the Identify Controller data structure (CNS 01h). NVMe Base
// Specification 2.x, "Identify Controller Data Structure".
const (
	offIDCtrlVID       = 0
	offIDCtrlSSVID     = 2
	offIDCtrlSN        = 4
	offIDCtrlMN        = 24
	offIDCtrlFR        = 64
	offIDCtrlRAB       = 72
	offIDCtrlIEEE      = 73
	offIDCtrlCMIC      = 76
	offIDCtrlMDTS      = 77
	offIDCtrlCNTLID    = 78
	offIDCtrlVER       = 80
	offIDCtrlRTD3R     = 84
	offIDCtrlRTD3E     = 88
	offIDCtrlOAES      = 92
	offIDCtrlCTRATT    = 96
	offIDCtrlRRLS      = 100
	offIDCtrlCNTRLTYPE = 111
	offIDCtrlFGUID     = 112
	offIDCtrlCRDT1     = 128
	offIDCtrlOACS      = 256
	offIDCtrlACL       = 258
	offIDCtrlAERL      = 259
	offIDCtrlFRMW      = 260
	offIDCtrlLPA       = 261
	offIDCtrlELPE      = 262
	offIDCtrlNPSS      = 263
	offIDCtrlAVSCC     = 264
	offIDCtrlAPSTA     = 265
	offIDCtrlWCTEMP    = 266
	offIDCtrlCCTEMP    = 268
	offIDCtrlMTFA      = 270
	offIDCtrlHMPRE     = 272
	offIDCtrlHMMIN     = 276
	offIDCtrlTNVMCAP   = 280
	offIDCtrlUNVMCAP   = 296
	offIDCtrlRPMBS     = 312
	offIDCtrlEDSTT     = 316
	offIDCtrlDSTO      = 318
	offIDCtrlFWUG      = 319
	offIDCtrlKAS       = 320
	offIDCtrlHCTMA     = 322
	offIDCtrlMNTMT     = 324
	offIDCtrlMXTMT     = 326
	offIDCtrlSANICAP   = 328
	offIDCtrlHMMINDS   = 332
	offIDCtrlHMMAXD    = 336
	offIDCtrlNSETIDMAX = 338
	offIDCtrlENDGIDMAX = 340
	offIDCtrlANATT     = 342
	offIDCtrlANACAP    = 343
	offIDCtrlANAGRPMAX = 344
	offIDCtrlNANAGRPID = 348
	offIDCtrlPELS      = 352
	offIDCtrlDOMAINID  = 356
	offIDCtrlMPTFAWR   = 360
	offIDCtrlMEGCAP    = 368
	offIDCtrlSQES      = 512
	offIDCtrlCQES      = 513
	offIDCtrlMAXCMD    = 514
	offIDCtrlNN        = 516
	offIDCtrlONCS      = 520
	offIDCtrlFUSES     = 522
	offIDCtrlFNA       = 524
	offIDCtrlVWC       = 525
	offIDCtrlAWUN      = 526
	offIDCtrlAWUPF     = 528
	offIDCtrlICSVSCC   = 530
	offIDCtrlNWPC      = 531
	offIDCtrlACWU      = 532
	offIDCtrlOCFS      = 534
	offIDCtrlSGLS      = 536
	offIDCtrlMNAN      = 540
	offIDCtrlMAXDNA    = 544
	offIDCtrlMAXCNA    = 560
	offIDCtrlSUBNQN    = 768
	offIDCtrlIOCCSZ    = 1792
	offIDCtrlIORCSZ    = 1796
	offIDCtrlICDOFF    = 1800
	offIDCtrlFCATT     = 1802
	offIDCtrlMSDBD     = 1803
	offIDCtrlOFCS      = 1804
	offIDCtrlPSD       = 2048
)

// MaxPowerStates is how many power state descriptors the structure holds.
const MaxPowerStates = 32

// Version is a specification version: major in bits 31:16, minor in 15:8,
// tertiary in 7:0. 0 means a controller older than 1.2.
type Version uint32

// MakeVersion builds a version.
func MakeVersion(major uint16, minor, tertiary uint8) Version {
	return Version(uint32(major)<<16 | uint32(minor)<<8 | uint32(tertiary))
}

// String is "2.0.0".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v>>16, v>>8&0xFF, v&0xFF) }

// MarshalText gives what String gives.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (v *Version) UnmarshalText(b []byte) error {
	var major uint16
	var minor, tertiary uint8
	if _, err := fmt.Sscanf(string(b), "%d.%d.%d", &major, &minor, &tertiary); err != nil {
		return fmt.Errorf("version %q: %w", b, err)
	}
	*v = MakeVersion(major, minor, tertiary)
	return nil
}

// Controller is the Identify Controller data structure (CNS 01h) in domain
// values. Not modelled, and written as zero by Append: NSSL, PLSI, BPCAP, CRCAP,
// CIU, CIRN, NVMSR, VWCI, MEC, KPIOC, TMPTHHA, CQT, CDPA and what
// follows it up to byte 511, OAQD up to byte 587, DCTYPE, CCRL, and the vendor
// specific bytes 3072 to 4095.
type Controller struct {
	// VendorID is the PCI vendor (VID).
	VendorID uint16 `json:"vendor_id"`
	// SubsystemVendorID is the PCI subsystem vendor (SSVID).
	SubsystemVendorID uint16 `json:"subsystem_vendor_id"`
	// SerialNumber, ModelNumber and FirmwareRevision (SN, MN, FR) hold at most
	// 20, 40 and 8 characters of 20h..7Eh; what else the drive sent is '?'.
	SerialNumber     string `json:"serial_number"`
	ModelNumber      string `json:"model_number"`
	FirmwareRevision string `json:"firmware_revision"`
	// ArbitrationBurstLog2 is the recommended arbitration burst (RAB), as the
	// exponent of a power of two commands.
	ArbitrationBurstLog2 uint8 `json:"arbitration_burst_log2"`
	// OUI is the IEEE OUI (IEEE), 24 bits.
	OUI uint32 `json:"ieee_oui"`
	// MultiPath is CMIC.
	MultiPath MultiPath `json:"multi_path"`
	// MaxTransferBytes is the largest data transfer of one command; 0 means no
	// limit is reported. Wire: MDTS, a power of two in units of CAP.MPSMIN pages;
	// CAP is out of an ioctl's reach, so the page is taken as 4096 bytes, the
	// smallest there is, which can only be too careful.
	MaxTransferBytes uint64 `json:"max_transfer_bytes"`
	// ControllerID is CNTLID, the controller's number within its subsystem.
	ControllerID uint16 `json:"controller_id"`
	// Version is VER.
	Version Version `json:"version"`
	// RTD3ResumeMicroseconds and RTD3EntryMicroseconds are RTD3R and RTD3E; 0 is
	// not reported.
	RTD3ResumeMicroseconds uint32 `json:"rtd3_resume_microseconds"`
	RTD3EntryMicroseconds  uint32 `json:"rtd3_entry_microseconds"`
	// Events is OAES.
	Events AsyncEvents `json:"async_events"`
	// Attributes is CTRATT.
	Attributes Attributes `json:"attributes"`
	// ReadRecoveryLevels is RRLS, one bit a level.
	ReadRecoveryLevels uint16 `json:"read_recovery_levels"`
	// Type is CNTRLTYPE: 0 not reported, 1 I/O, 2 discovery, 3 administrative.
	Type uint8 `json:"controller_type"`
	// FRUGUID is FGUID; zero is absent.
	FRUGUID GUID `json:"fru_guid"`
	// RetryDelayMilliseconds are CRDT1..3 (100 ms units on the wire), for status
	// CRD 1..3; 0 is not reported.
	RetryDelayMilliseconds [3]uint32 `json:"retry_delay_milliseconds"`

	// Admin is OACS.
	Admin OptionalAdmin `json:"optional_admin"`
	// AbortLimit is how many Abort commands may be outstanding, 1..256 (ACL + 1).
	AbortLimit uint16 `json:"abort_limit"`
	// AsyncEventLimit is how many Asynchronous Event Requests may be
	// outstanding, 1..256 (AERL + 1).
	AsyncEventLimit uint16 `json:"async_event_limit"`
	// FirmwareSlotCount is 1..7 (FRMW bits 3:1); 0 and more than 7 are invalid.
	FirmwareSlotCount uint8 `json:"firmware_slot_count"`
	// FirmwareSlot1ReadOnly (FRMW bit 0).
	FirmwareSlot1ReadOnly bool `json:"firmware_slot_1_read_only"`
	// FirmwareActivatesWithoutReset (FRMW bit 4): commit action 3 is supported.
	FirmwareActivatesWithoutReset bool `json:"firmware_activates_without_reset"`
	// FirmwareDetectsOverlap (FRMW bit 5, SMUD): overlapping ranges are refused.
	FirmwareDetectsOverlap bool `json:"firmware_detects_overlap"`
	// Logs is LPA.
	Logs LogAttributes `json:"log_attributes"`
	// ErrorLogEntries is how many entries the error log keeps, 1..256 (ELPE + 1).
	ErrorLogEntries uint16 `json:"error_log_entries"`
	// AdminVendorFormat (AVSCC bit 0): vendor admin commands use the standard form.
	AdminVendorFormat bool `json:"admin_vendor_format"`
	// APST (APSTA bit 0): autonomous power state transitions are supported.
	APST bool `json:"apst"`
	// WarningTemperature and CriticalTemperature are WCTEMP and CCTEMP.
	WarningTemperature  Opt[Celsius] `json:"warning_temperature_celsius"`
	CriticalTemperature Opt[Celsius] `json:"critical_temperature_celsius"`
	// ActivationMillisecondsMax is MTFA, the longest time without command
	// processing while firmware activates (100 ms units on the wire).
	ActivationMillisecondsMax Opt[uint32] `json:"activation_milliseconds_max"`
	// ActivationCommitMillisecondsMax is MPTFAWR, the longest time until a
	// firmware commit that activates without reset is answered (100 ms units on
	// the wire).
	ActivationCommitMillisecondsMax Opt[uint32] `json:"activation_commit_milliseconds_max"`
	// HostMemoryPreferredBytes and HostMemoryMinBytes are HMPRE and HMMIN
	// (4 KiB units on the wire); 0 means the drive wants no host memory.
	HostMemoryPreferredBytes uint64 `json:"host_memory_preferred_bytes"`
	HostMemoryMinBytes       uint64 `json:"host_memory_min_bytes"`
	// TotalCapacityBytes is TNVMCAP; 0 without namespace management. It is not a
	// promise that one namespace may have it all.
	TotalCapacityBytes Uint128 `json:"total_capacity_bytes"`
	// UnallocatedCapacityBytes is UNVMCAP.
	UnallocatedCapacityBytes Uint128 `json:"unallocated_capacity_bytes"`
	// RPMB is RPMBS as it stands on the wire.
	RPMB uint32 `json:"rpmb_raw"`
	// SelfTestMinutes is EDSTT, the nominal time of an extended self-test.
	SelfTestMinutes uint16 `json:"self_test_minutes"`
	// SelfTestOptions is DSTO: bit 0, one self-test in the subsystem at a time.
	SelfTestOptions uint8 `json:"self_test_options"`
	// FirmwareGranularityBytes is FWUG: what sizes and offsets of a firmware
	// download are multiples of. 4096 units on the wire; FFh there means no
	// restriction beyond dwords, here 4.
	FirmwareGranularityBytes Opt[uint32] `json:"firmware_granularity_bytes"`
	// KeepAliveMilliseconds is KAS, the granularity of the keep-alive timer
	// (100 ms units on the wire); 0 means keep alive is not supported.
	KeepAliveMilliseconds uint32 `json:"keep_alive_milliseconds"`
	// HostThermalManagement (HCTMA bit 0), with its range (MNTMT, MXTMT).
	HostThermalManagement bool         `json:"host_thermal_management"`
	ThermalMinimum        Opt[Celsius] `json:"thermal_minimum_celsius"`
	ThermalMaximum        Opt[Celsius] `json:"thermal_maximum_celsius"`
	// Sanitize is SANICAP.
	Sanitize SanitizeCapabilities `json:"sanitize"`
	// HostMemoryDescriptorMinBytes is HMMINDS (4 KiB units on the wire) and
	// HostMemoryDescriptorsMax HMMAXD; 0 is no limit.
	HostMemoryDescriptorMinBytes uint64 `json:"host_memory_descriptor_min_bytes"`
	HostMemoryDescriptorsMax     uint16 `json:"host_memory_descriptors_max"`
	// NVMSetIDMax and EnduranceGroupIDMax are NSETIDMAX and ENDGIDMAX; 0 means
	// the controller has none.
	NVMSetIDMax         uint16 `json:"nvm_set_id_max"`
	EnduranceGroupIDMax uint16 `json:"endurance_group_id_max"`
	// ANATransitionSeconds is ANATT.
	ANATransitionSeconds uint8 `json:"ana_transition_seconds"`
	// ANACapabilities is ANACAP as it stands on the wire.
	ANACapabilities uint8 `json:"ana_capabilities_raw"`
	// ANAGroupIDMax and ANAGroupCount are ANAGRPMAX and NANAGRPID.
	ANAGroupIDMax uint32 `json:"ana_group_id_max"`
	ANAGroupCount uint32 `json:"ana_group_count"`
	// PersistentEventLogBytes is PELS (64 KiB units on the wire); 0 is none.
	PersistentEventLogBytes uint64 `json:"persistent_event_log_bytes"`
	// DomainID is DOMAINID; 0 without domains.
	DomainID uint16 `json:"domain_id"`
	// EnduranceGroupCapacityBytesMax is MEGCAP; 0 is not reported.
	EnduranceGroupCapacityBytesMax Uint128 `json:"endurance_group_capacity_bytes_max"`

	// SQEntryBytesMin/Max and CQEntryBytesMin/Max are SQES and CQES, powers of
	// two on the wire.
	SQEntryBytesMin uint16 `json:"sq_entry_bytes_min"`
	SQEntryBytesMax uint16 `json:"sq_entry_bytes_max"`
	CQEntryBytesMin uint16 `json:"cq_entry_bytes_min"`
	CQEntryBytesMax uint16 `json:"cq_entry_bytes_max"`
	// OutstandingCommandsMax is MAXCMD; 0 on PCIe means no limit is reported.
	OutstandingCommandsMax uint16 `json:"outstanding_commands_max"`
	// NamespaceIDMax is NN, the largest valid NSID; may be FFFFFFFEh.
	NamespaceIDMax uint32 `json:"namespace_id_max"`
	// IO is ONCS.
	IO OptionalIO `json:"optional_io"`
	// FusedOperations is FUSES as it stands on the wire.
	FusedOperations uint16 `json:"fused_operations_raw"`
	// Format is FNA.
	Format FormatAttributes `json:"format_attributes"`
	// VolatileWriteCache (VWC bit 0).
	VolatileWriteCache bool `json:"volatile_write_cache"`
	// FlushAllBehavior is VWC bits 2:1: 0 not reported, 2 a flush of NSID
	// FFFFFFFFh is refused, 3 it flushes all.
	FlushAllBehavior uint8 `json:"flush_all_behavior"`
	// AtomicWriteBlocks, AtomicWritePowerFailBlocks and
	// AtomicCompareWriteBlocks are AWUN, AWUPF and ACWU, one-based: 1..65536.
	AtomicWriteBlocks          uint32 `json:"atomic_write_blocks"`
	AtomicWritePowerFailBlocks uint32 `json:"atomic_write_power_fail_blocks"`
	AtomicCompareWriteBlocks   uint32 `json:"atomic_compare_write_blocks"`
	// IOVendorFormat (ICSVSCC bit 0): vendor I/O commands use the standard form.
	IOVendorFormat bool `json:"io_vendor_format"`
	// WriteProtection is NWPC as it stands on the wire; bit 0 means supported.
	WriteProtection uint8 `json:"write_protection_raw"`
	// CopyFormats is OCFS, one bit a copy descriptor format.
	CopyFormats uint16 `json:"copy_formats_raw"`
	// SGL is SGLS as it stands on the wire; bits 1:0 not 0 means supported.
	SGL uint32 `json:"sgl_raw"`
	// AllowedNamespacesMax is MNAN, how many namespaces may exist; 0 means as
	// many as NamespaceIDMax.
	AllowedNamespacesMax uint32 `json:"allowed_namespaces_max"`
	// DomainAttachmentsMax and ControllerAttachmentsMax are MAXDNA and MAXCNA;
	// 0 is no limit.
	DomainAttachmentsMax     Uint128 `json:"domain_attachments_max"`
	ControllerAttachmentsMax uint32  `json:"controller_attachments_max"`
	// SubsystemNQN is SUBNQN, at most 255 characters; empty before NVMe 1.2.1.
	SubsystemNQN string `json:"subsystem_nqn"`

	// CommandCapsuleBytes, ResponseCapsuleBytes and InCapsuleDataOffsetBytes are
	// IOCCSZ, IORCSZ and ICDOFF (16-byte units on the wire); 0 on PCIe.
	CommandCapsuleBytes      uint64 `json:"command_capsule_bytes"`
	ResponseCapsuleBytes     uint64 `json:"response_capsule_bytes"`
	InCapsuleDataOffsetBytes uint32 `json:"in_capsule_data_offset_bytes"`
	// FabricsAttributes is FCATT, SGLDescriptorsMax MSDBD and FabricsCommands
	// OFCS, all 0 on PCIe.
	FabricsAttributes uint8  `json:"fabrics_attributes_raw"`
	SGLDescriptorsMax uint8  `json:"sgl_descriptors_max"`
	FabricsCommands   uint16 `json:"fabrics_commands_raw"`

	// PowerStates are the supported power states, 1..32 of them (NPSS + 1), by
	// number.
	PowerStates []PowerState `json:"power_states"`
}

// HasNamespaceManagement says that namespaces can be created and attached.
func (c Controller) HasNamespaceManagement() bool { return c.Admin&AdminNamespaceManagement != 0 }

// DecodeController reads an Identify Controller data structure.
func DecodeController(b []byte) (Controller, error) {
	p, err := view(b, IdentifySize, "identify controller")
	if err != nil {
		return Controller{}, err
	}
	if allZero(p) {
		return Controller{}, fmt.Errorf("identify controller: %w: all bytes are zero", ErrInvalidData)
	}
	var c Controller
	c.decodeIdentity(p)
	c.decodeAdmin(p)
	c.decodeResources(p)
	c.decodeIO(p)
	n := min(int(p.u8(offIDCtrlNPSS))+1, MaxPowerStates)
	for i := range n {
		c.PowerStates = append(c.PowerStates, decodePowerState(p.bytes(offIDCtrlPSD+i*powerStateSize, powerStateSize)))
	}
	return c, nil
}

// Append appends the 4096 bytes of the structure. Without power states one empty
// one is written, since the wire cannot say none.
func (c Controller) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	c.putIdentity(p)
	c.putAdmin(p)
	c.putResources(p)
	c.putIO(p)
	n := min(len(c.PowerStates), MaxPowerStates)
	p.put8(offIDCtrlNPSS, uint8(max(n, 1)-1))
	for i, ps := range c.PowerStates[:n] {
		ps.put(p.bytes(offIDCtrlPSD+i*powerStateSize, powerStateSize))
	}
	return b
}

func (c *Controller) decodeIdentity(p page) {
	c.VendorID = p.u16(offIDCtrlVID)
	c.SubsystemVendorID = p.u16(offIDCtrlSSVID)
	c.SerialNumber = p.text(offIDCtrlSN, 20)
	c.ModelNumber = p.text(offIDCtrlMN, 40)
	c.FirmwareRevision = p.text(offIDCtrlFR, 8)
	c.ArbitrationBurstLog2 = p.u8(offIDCtrlRAB)
	c.OUI = uint32(p.uint(offIDCtrlIEEE, 3))
	c.MultiPath = MultiPath(p.u8(offIDCtrlCMIC))
	c.MaxTransferBytes = decodeMDTS(p.u8(offIDCtrlMDTS))
	c.ControllerID = p.u16(offIDCtrlCNTLID)
	c.Version = Version(p.u32(offIDCtrlVER))
	c.RTD3ResumeMicroseconds = p.u32(offIDCtrlRTD3R)
	c.RTD3EntryMicroseconds = p.u32(offIDCtrlRTD3E)
	c.Events = AsyncEvents(p.u32(offIDCtrlOAES))
	c.Attributes = Attributes(p.u32(offIDCtrlCTRATT))
	c.ReadRecoveryLevels = p.u16(offIDCtrlRRLS)
	c.Type = p.u8(offIDCtrlCNTRLTYPE)
	copy(c.FRUGUID[:], p.bytes(offIDCtrlFGUID, 16))
	for i := range c.RetryDelayMilliseconds {
		c.RetryDelayMilliseconds[i] = uint32(p.u16(offIDCtrlCRDT1+2*i)) * 100
	}
	c.SubsystemNQN = p.ctext(offIDCtrlSUBNQN, 256)
}

func (c Controller) putIdentity(p page) {
	p.put16(offIDCtrlVID, c.VendorID)
	p.put16(offIDCtrlSSVID, c.SubsystemVendorID)
	p.putText(offIDCtrlSN, 20, c.SerialNumber, ' ')
	p.putText(offIDCtrlMN, 40, c.ModelNumber, ' ')
	p.putText(offIDCtrlFR, 8, c.FirmwareRevision, ' ')
	p.put8(offIDCtrlRAB, c.ArbitrationBurstLog2)
	p.put(offIDCtrlIEEE, 3, uint64(c.OUI))
	p.put8(offIDCtrlCMIC, uint8(c.MultiPath))
	p.put8(offIDCtrlMDTS, encodeMDTS(c.MaxTransferBytes))
	p.put16(offIDCtrlCNTLID, c.ControllerID)
	p.put32(offIDCtrlVER, uint32(c.Version))
	p.put32(offIDCtrlRTD3R, c.RTD3ResumeMicroseconds)
	p.put32(offIDCtrlRTD3E, c.RTD3EntryMicroseconds)
	p.put32(offIDCtrlOAES, uint32(c.Events))
	p.put32(offIDCtrlCTRATT, uint32(c.Attributes))
	p.put16(offIDCtrlRRLS, c.ReadRecoveryLevels)
	p.put8(offIDCtrlCNTRLTYPE, c.Type)
	copy(p.bytes(offIDCtrlFGUID, 16), c.FRUGUID[:])
	for i, ms := range c.RetryDelayMilliseconds {
		p.put16(offIDCtrlCRDT1+2*i, uint16(ms/100))
	}
	p.putText(offIDCtrlSUBNQN, 256, c.SubsystemNQN, 0)
}

func (c *Controller) decodeAdmin(p page) {
	c.Admin = OptionalAdmin(p.u16(offIDCtrlOACS))
	c.AbortLimit = uint16(p.u8(offIDCtrlACL)) + 1
	c.AsyncEventLimit = uint16(p.u8(offIDCtrlAERL)) + 1
	frmw := p.u8(offIDCtrlFRMW)
	c.FirmwareSlot1ReadOnly = frmw&1 != 0
	c.FirmwareSlotCount = frmw >> 1 & 7
	c.FirmwareActivatesWithoutReset = frmw>>4&1 != 0
	c.FirmwareDetectsOverlap = frmw>>5&1 != 0
	c.Logs = LogAttributes(p.u8(offIDCtrlLPA))
	c.ErrorLogEntries = uint16(p.u8(offIDCtrlELPE)) + 1
	c.AdminVendorFormat = p.u8(offIDCtrlAVSCC)&1 != 0
	c.APST = p.u8(offIDCtrlAPSTA)&1 != 0
	c.WarningTemperature = celsius(p.u16(offIDCtrlWCTEMP))
	c.CriticalTemperature = celsius(p.u16(offIDCtrlCCTEMP))
	c.ActivationMillisecondsMax = someIf(uint32(p.u16(offIDCtrlMTFA)) * 100)
	c.ActivationCommitMillisecondsMax = someIf(uint32(p.u16(offIDCtrlMPTFAWR)) * 100)
	c.SelfTestMinutes = p.u16(offIDCtrlEDSTT)
	c.SelfTestOptions = p.u8(offIDCtrlDSTO)
	switch n := p.u8(offIDCtrlFWUG); n {
	case 0:
	case 0xFF:
		c.FirmwareGranularityBytes = Some[uint32](4)
	default:
		c.FirmwareGranularityBytes = Some(uint32(n) * 4096)
	}
	c.KeepAliveMilliseconds = uint32(p.u16(offIDCtrlKAS)) * 100
	c.HostThermalManagement = p.u16(offIDCtrlHCTMA)&1 != 0
	c.ThermalMinimum = celsius(p.u16(offIDCtrlMNTMT))
	c.ThermalMaximum = celsius(p.u16(offIDCtrlMXTMT))
	c.Sanitize = SanitizeCapabilities(p.u32(offIDCtrlSANICAP))
}

func (c Controller) putAdmin(p page) {
	p.put16(offIDCtrlOACS, uint16(c.Admin))
	p.put8(offIDCtrlACL, uint8(max(c.AbortLimit, 1)-1))
	p.put8(offIDCtrlAERL, uint8(max(c.AsyncEventLimit, 1)-1))
	p.put8(offIDCtrlFRMW, bit8(c.FirmwareSlot1ReadOnly, 0)|c.FirmwareSlotCount&7<<1|
		bit8(c.FirmwareActivatesWithoutReset, 4)|bit8(c.FirmwareDetectsOverlap, 5))
	p.put8(offIDCtrlLPA, uint8(c.Logs))
	p.put8(offIDCtrlELPE, uint8(max(c.ErrorLogEntries, 1)-1))
	p.put8(offIDCtrlAVSCC, bit8(c.AdminVendorFormat, 0))
	p.put8(offIDCtrlAPSTA, bit8(c.APST, 0))
	p.put16(offIDCtrlWCTEMP, kelvin(c.WarningTemperature))
	p.put16(offIDCtrlCCTEMP, kelvin(c.CriticalTemperature))
	p.put16(offIDCtrlMTFA, uint16(c.ActivationMillisecondsMax.Or(0)/100))
	p.put16(offIDCtrlMPTFAWR, uint16(c.ActivationCommitMillisecondsMax.Or(0)/100))
	p.put16(offIDCtrlEDSTT, c.SelfTestMinutes)
	p.put8(offIDCtrlDSTO, c.SelfTestOptions)
	fwug := uint8(0)
	if g, ok := c.FirmwareGranularityBytes.Get(); ok {
		fwug = uint8(min(g/4096, 0xFE))
		if g < 4096 {
			fwug = 0xFF
		}
	}
	p.put8(offIDCtrlFWUG, fwug)
	p.put16(offIDCtrlKAS, uint16(c.KeepAliveMilliseconds/100))
	p.put16(offIDCtrlHCTMA, uint16(bit8(c.HostThermalManagement, 0)))
	p.put16(offIDCtrlMNTMT, kelvin(c.ThermalMinimum))
	p.put16(offIDCtrlMXTMT, kelvin(c.ThermalMaximum))
	p.put32(offIDCtrlSANICAP, uint32(c.Sanitize))
}

func (c *Controller) decodeResources(p page) {
	c.HostMemoryPreferredBytes = uint64(p.u32(offIDCtrlHMPRE)) * 4096
	c.HostMemoryMinBytes = uint64(p.u32(offIDCtrlHMMIN)) * 4096
	c.TotalCapacityBytes = p.u128(offIDCtrlTNVMCAP)
	c.UnallocatedCapacityBytes = p.u128(offIDCtrlUNVMCAP)
	c.RPMB = p.u32(offIDCtrlRPMBS)
	c.HostMemoryDescriptorMinBytes = uint64(p.u32(offIDCtrlHMMINDS)) * 4096
	c.HostMemoryDescriptorsMax = p.u16(offIDCtrlHMMAXD)
	c.NVMSetIDMax = p.u16(offIDCtrlNSETIDMAX)
	c.EnduranceGroupIDMax = p.u16(offIDCtrlENDGIDMAX)
	c.ANATransitionSeconds = p.u8(offIDCtrlANATT)
	c.ANACapabilities = p.u8(offIDCtrlANACAP)
	c.ANAGroupIDMax = p.u32(offIDCtrlANAGRPMAX)
	c.ANAGroupCount = p.u32(offIDCtrlNANAGRPID)
	c.PersistentEventLogBytes = uint64(p.u32(offIDCtrlPELS)) << 16
	c.DomainID = p.u16(offIDCtrlDOMAINID)
	c.EnduranceGroupCapacityBytesMax = p.u128(offIDCtrlMEGCAP)
}

func (c Controller) putResources(p page) {
	p.put32(offIDCtrlHMPRE, uint32(c.HostMemoryPreferredBytes/4096))
	p.put32(offIDCtrlHMMIN, uint32(c.HostMemoryMinBytes/4096))
	p.put128(offIDCtrlTNVMCAP, c.TotalCapacityBytes)
	p.put128(offIDCtrlUNVMCAP, c.UnallocatedCapacityBytes)
	p.put32(offIDCtrlRPMBS, c.RPMB)
	p.put32(offIDCtrlHMMINDS, uint32(c.HostMemoryDescriptorMinBytes/4096))
	p.put16(offIDCtrlHMMAXD, c.HostMemoryDescriptorsMax)
	p.put16(offIDCtrlNSETIDMAX, c.NVMSetIDMax)
	p.put16(offIDCtrlENDGIDMAX, c.EnduranceGroupIDMax)
	p.put8(offIDCtrlANATT, c.ANATransitionSeconds)
	p.put8(offIDCtrlANACAP, c.ANACapabilities)
	p.put32(offIDCtrlANAGRPMAX, c.ANAGroupIDMax)
	p.put32(offIDCtrlNANAGRPID, c.ANAGroupCount)
	p.put32(offIDCtrlPELS, uint32(c.PersistentEventLogBytes>>16))
	p.put16(offIDCtrlDOMAINID, c.DomainID)
	p.put128(offIDCtrlMEGCAP, c.EnduranceGroupCapacityBytesMax)
}

func (c *Controller) decodeIO(p page) {
	sqes, cqes := p.u8(offIDCtrlSQES), p.u8(offIDCtrlCQES)
	c.SQEntryBytesMin, c.SQEntryBytesMax = 1<<(sqes&15), 1<<(sqes>>4)
	c.CQEntryBytesMin, c.CQEntryBytesMax = 1<<(cqes&15), 1<<(cqes>>4)
	c.OutstandingCommandsMax = p.u16(offIDCtrlMAXCMD)
	c.NamespaceIDMax = p.u32(offIDCtrlNN)
	c.IO = OptionalIO(p.u16(offIDCtrlONCS))
	c.FusedOperations = p.u16(offIDCtrlFUSES)
	c.Format = FormatAttributes(p.u8(offIDCtrlFNA))
	vwc := p.u8(offIDCtrlVWC)
	c.VolatileWriteCache, c.FlushAllBehavior = vwc&1 != 0, vwc>>1&3
	c.AtomicWriteBlocks = uint32(p.u16(offIDCtrlAWUN)) + 1
	c.AtomicWritePowerFailBlocks = uint32(p.u16(offIDCtrlAWUPF)) + 1
	c.AtomicCompareWriteBlocks = uint32(p.u16(offIDCtrlACWU)) + 1
	c.IOVendorFormat = p.u8(offIDCtrlICSVSCC)&1 != 0
	c.WriteProtection = p.u8(offIDCtrlNWPC)
	c.CopyFormats = p.u16(offIDCtrlOCFS)
	c.SGL = p.u32(offIDCtrlSGLS)
	c.AllowedNamespacesMax = p.u32(offIDCtrlMNAN)
	c.DomainAttachmentsMax = p.u128(offIDCtrlMAXDNA)
	c.ControllerAttachmentsMax = p.u32(offIDCtrlMAXCNA)
	c.CommandCapsuleBytes = uint64(p.u32(offIDCtrlIOCCSZ)) * 16
	c.ResponseCapsuleBytes = uint64(p.u32(offIDCtrlIORCSZ)) * 16
	c.InCapsuleDataOffsetBytes = uint32(p.u16(offIDCtrlICDOFF)) * 16
	c.FabricsAttributes = p.u8(offIDCtrlFCATT)
	c.SGLDescriptorsMax = p.u8(offIDCtrlMSDBD)
	c.FabricsCommands = p.u16(offIDCtrlOFCS)
}

func (c Controller) putIO(p page) {
	p.put8(offIDCtrlSQES, log2(uint64(c.SQEntryBytesMin))|log2(uint64(c.SQEntryBytesMax))<<4)
	p.put8(offIDCtrlCQES, log2(uint64(c.CQEntryBytesMin))|log2(uint64(c.CQEntryBytesMax))<<4)
	p.put16(offIDCtrlMAXCMD, c.OutstandingCommandsMax)
	p.put32(offIDCtrlNN, c.NamespaceIDMax)
	p.put16(offIDCtrlONCS, uint16(c.IO))
	p.put16(offIDCtrlFUSES, c.FusedOperations)
	p.put8(offIDCtrlFNA, uint8(c.Format))
	p.put8(offIDCtrlVWC, bit8(c.VolatileWriteCache, 0)|c.FlushAllBehavior&3<<1)
	p.put16(offIDCtrlAWUN, zeroBased16(c.AtomicWriteBlocks))
	p.put16(offIDCtrlAWUPF, zeroBased16(c.AtomicWritePowerFailBlocks))
	p.put16(offIDCtrlACWU, zeroBased16(c.AtomicCompareWriteBlocks))
	p.put8(offIDCtrlICSVSCC, bit8(c.IOVendorFormat, 0))
	p.put8(offIDCtrlNWPC, c.WriteProtection)
	p.put16(offIDCtrlOCFS, c.CopyFormats)
	p.put32(offIDCtrlSGLS, c.SGL)
	p.put32(offIDCtrlMNAN, c.AllowedNamespacesMax)
	p.put128(offIDCtrlMAXDNA, c.DomainAttachmentsMax)
	p.put32(offIDCtrlMAXCNA, c.ControllerAttachmentsMax)
	p.put32(offIDCtrlIOCCSZ, uint32(c.CommandCapsuleBytes/16))
	p.put32(offIDCtrlIORCSZ, uint32(c.ResponseCapsuleBytes/16))
	p.put16(offIDCtrlICDOFF, uint16(c.InCapsuleDataOffsetBytes/16))
	p.put8(offIDCtrlFCATT, c.FabricsAttributes)
	p.put8(offIDCtrlMSDBD, c.SGLDescriptorsMax)
	p.put16(offIDCtrlOFCS, c.FabricsCommands)
}

// decodeMDTS gives bytes; 0 (and what no machine can transfer) is no limit.
func decodeMDTS(n uint8) uint64 {
	if n == 0 || n > 51 {
		return 0
	}
	return 4096 << n
}

// encodeMDTS rounds down; the wire cannot say less than 8 KiB.
func encodeMDTS(n uint64) uint8 {
	if n == 0 {
		return 0
	}
	return max(log2(n/4096), 1)
}

// log2 is the exponent of the largest power of two not above n, 0 for n = 0.
func log2(n uint64) uint8 { return uint8(max(bits.Len64(n), 1) - 1) }

// zeroBased16 is the wire form of a one-based count of at most 65536.
func zeroBased16(n uint32) uint16 { return uint16(min(max(n, 1), 1<<16) - 1) }

func bit8(set bool, bit int) uint8 {
	if set {
		return 1 << bit
	}
	return 0
}
