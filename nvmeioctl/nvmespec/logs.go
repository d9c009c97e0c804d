package nvmespec

import (
	"encoding/json"
	"fmt"
)

// Lengths of log pages.
const (
	SMARTSize          = 512
	ErrorEntrySize     = 64
	FirmwareSlotsSize  = 512
	EffectsSize        = 4096
	EnduranceGroupSize = 512
	// ChangedNamespacesSize is the length of the changed namespace list, which
	// has the layout of a namespace list.
	ChangedNamespacesSize = 4096
)

// Offsets of the SMART / health information log (02h). NVMe Base Specification
// 2.x, "SMART / Health Information".
const (
	offSMARTCW    = 0
	offSMARTCTEMP = 1
	offSMARTAVSP  = 3
	offSMARTAVSPT = 4
	offSMARTPUSED = 5
	offSMARTEGCWS = 6
	offSMARTDUR   = 32
	offSMARTDUW   = 48
	offSMARTHRC   = 64
	offSMARTHWC   = 80
	offSMARTCBT   = 96
	offSMARTPWRC  = 112
	offSMARTPOH   = 128
	offSMARTUPL   = 144
	offSMARTMDIE  = 160
	offSMARTNEILE = 176
	offSMARTWCTT  = 192
	offSMARTCCTT  = 196
	offSMARTTSEN1 = 200
	offSMARTTMT1C = 216
	offSMARTTMT2C = 220
	offSMARTTMT1T = 224
	offSMARTTMT2T = 228
	offSMARTOLEC  = 232
	offSMARTIPM   = 240
)

// DataUnitBytes is one data unit of the SMART log: 1000 times 512 bytes, rounded
// up, whatever the LBA format. Multiplying by the block size is a known mistake.
const DataUnitBytes = 512_000

// CriticalWarning is the critical warning byte of SMART and endurance group logs.
type CriticalWarning uint8

// The bits of CriticalWarning.
const (
	WarningSpare        CriticalWarning = 1 << 0
	WarningTemperature  CriticalWarning = 1 << 1
	WarningReliability  CriticalWarning = 1 << 2
	WarningReadOnly     CriticalWarning = 1 << 3
	WarningBackupFailed CriticalWarning = 1 << 4
	WarningPMRReadOnly  CriticalWarning = 1 << 5
)

func (CriticalWarning) names() []string {
	return []string{"spare", "temperature", "reliability", "read_only", "backup_failed", "pmr_read_only"}
}

// MarshalJSON lists the names of the bits set.
func (f CriticalWarning) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *CriticalWarning) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// SMART is the SMART / health information log in domain values. Counters of 0
// are what many drives give for "not counted".
type SMART struct {
	CriticalWarning CriticalWarning `json:"critical_warning"`
	// Temperature is the composite temperature (Kelvin on the wire, 0 not reported).
	Temperature Opt[Celsius] `json:"temperature_celsius"`
	// SparePercent and SpareThresholdPercent are AVSP and AVSPT, 0..100. Both 0
	// means not reported: see SpareReported.
	SparePercent          uint8 `json:"available_spare_percent"`
	SpareThresholdPercent uint8 `json:"available_spare_threshold_percent"`
	// UsedPercent is the vendor's estimate of life used, 0..254, 255 for more; it
	// may exceed 100 and moves at most once a power-on hour.
	UsedPercent uint8 `json:"percentage_used_percent"`
	// EnduranceGroupWarning sums the critical warnings of endurance groups (EGCWS).
	EnduranceGroupWarning CriticalWarning `json:"endurance_group_warning"`
	// DataUnitsRead and DataUnitsWritten count DataUnitBytes, rounded up; 0 is
	// not reported. Only differences are exact.
	DataUnitsRead    Uint128 `json:"data_units_read"`
	DataUnitsWritten Uint128 `json:"data_units_written"`
	HostReads        Uint128 `json:"host_reads"`
	HostWrites       Uint128 `json:"host_writes"`
	BusyMinutes      Uint128 `json:"controller_busy_minutes"`
	PowerCycles      Uint128 `json:"power_cycles"`
	PowerOnHours     Uint128 `json:"power_on_hours"`
	UnsafeShutdowns  Uint128 `json:"unsafe_shutdowns"`
	MediaErrors      Uint128 `json:"media_errors"`
	ErrorLogEntries  Uint128 `json:"error_log_entries"`
	// WarningTemperatureMinutes and CriticalTemperatureMinutes are WCTT and CCTT.
	WarningTemperatureMinutes  uint32 `json:"warning_temperature_minutes"`
	CriticalTemperatureMinutes uint32 `json:"critical_temperature_minutes"`
	// Sensors keep their place, 1..8 as index 0..7.
	Sensors [8]Opt[Celsius] `json:"sensors_celsius"`
	// ThermalTransitions and ThermalSeconds are the counts and times of thermal
	// management temperatures 1 and 2.
	ThermalTransitions [2]uint32 `json:"thermal_transitions"`
	ThermalSeconds     [2]uint32 `json:"thermal_seconds"`
	// LifetimeEnergyRaw and IntervalPowerRaw are bytes 239:232 and 243:240 as
	// they stand on the wire; 0 is not reported.
	LifetimeEnergyRaw uint64 `json:"lifetime_energy_raw"`
	IntervalPowerRaw  uint32 `json:"interval_power_raw"`
}

// SpareReported says that the spare is reported: drives that do not count give 0
// for spare and threshold, which must not read as "spare exhausted".
func (s SMART) SpareReported() bool { return s.SparePercent != 0 || s.SpareThresholdPercent != 0 }

// SpareLow says that the reported spare has come down to its threshold.
func (s SMART) SpareLow() bool {
	return s.SpareReported() && s.SparePercent <= s.SpareThresholdPercent
}

// HealthPercent is 100 - UsedPercent, not below 0.
func (s SMART) HealthPercent() int { return max(100-int(s.UsedPercent), 0) }

// BytesRead is DataUnitsRead in bytes.
func (s SMART) BytesRead() Uint128 { return s.DataUnitsRead.Mul64(DataUnitBytes) }

// BytesWritten is DataUnitsWritten in bytes.
func (s SMART) BytesWritten() Uint128 { return s.DataUnitsWritten.Mul64(DataUnitBytes) }

// smart128 lists the 128-bit counters with their places.
func (s *SMART) smart128() [10]struct {
	off int
	v   *Uint128
} {
	return [...]struct {
		off int
		v   *Uint128
	}{
		{offSMARTDUR, &s.DataUnitsRead}, {offSMARTDUW, &s.DataUnitsWritten},
		{offSMARTHRC, &s.HostReads}, {offSMARTHWC, &s.HostWrites},
		{offSMARTCBT, &s.BusyMinutes}, {offSMARTPWRC, &s.PowerCycles},
		{offSMARTPOH, &s.PowerOnHours}, {offSMARTUPL, &s.UnsafeShutdowns},
		{offSMARTMDIE, &s.MediaErrors}, {offSMARTNEILE, &s.ErrorLogEntries},
	}
}

// DecodeSMART reads the log. A page of zeros is an error: drives have answered
// so to a request they misunderstood, and it would read as perfect health.
func DecodeSMART(b []byte) (SMART, error) {
	p, err := view(b, SMARTSize, "SMART log")
	if err != nil {
		return SMART{}, err
	}
	s := SMART{
		CriticalWarning:            CriticalWarning(p.u8(offSMARTCW)),
		Temperature:                celsius(p.u16(offSMARTCTEMP)),
		SparePercent:               p.u8(offSMARTAVSP),
		SpareThresholdPercent:      p.u8(offSMARTAVSPT),
		UsedPercent:                p.u8(offSMARTPUSED),
		EnduranceGroupWarning:      CriticalWarning(p.u8(offSMARTEGCWS)),
		WarningTemperatureMinutes:  p.u32(offSMARTWCTT),
		CriticalTemperatureMinutes: p.u32(offSMARTCCTT),
		ThermalTransitions:         [2]uint32{p.u32(offSMARTTMT1C), p.u32(offSMARTTMT2C)},
		ThermalSeconds:             [2]uint32{p.u32(offSMARTTMT1T), p.u32(offSMARTTMT2T)},
		LifetimeEnergyRaw:          p.u64(offSMARTOLEC),
		IntervalPowerRaw:           p.u32(offSMARTIPM),
	}
	for _, c := range s.smart128() {
		*c.v = p.u128(c.off)
	}
	for i := range s.Sensors {
		s.Sensors[i] = celsius(p.u16(offSMARTTSEN1 + 2*i))
	}
	if s == (SMART{}) {
		return SMART{}, fmt.Errorf("SMART log: %w: every value is zero", ErrInvalidData)
	}
	return s, nil
}

// Append appends the 512 bytes of the log.
func (s SMART) Append(b []byte) []byte {
	b, p := grow(b, SMARTSize)
	p.put8(offSMARTCW, uint8(s.CriticalWarning))
	p.put16(offSMARTCTEMP, kelvin(s.Temperature))
	p.put8(offSMARTAVSP, s.SparePercent)
	p.put8(offSMARTAVSPT, s.SpareThresholdPercent)
	p.put8(offSMARTPUSED, s.UsedPercent)
	p.put8(offSMARTEGCWS, uint8(s.EnduranceGroupWarning))
	for _, c := range s.smart128() {
		p.put128(c.off, *c.v)
	}
	p.put32(offSMARTWCTT, s.WarningTemperatureMinutes)
	p.put32(offSMARTCCTT, s.CriticalTemperatureMinutes)
	for i, t := range s.Sensors {
		p.put16(offSMARTTSEN1+2*i, kelvin(t))
	}
	p.put32(offSMARTTMT1C, s.ThermalTransitions[0])
	p.put32(offSMARTTMT2C, s.ThermalTransitions[1])
	p.put32(offSMARTTMT1T, s.ThermalSeconds[0])
	p.put32(offSMARTTMT2T, s.ThermalSeconds[1])
	p.put64(offSMARTOLEC, s.LifetimeEnergyRaw)
	p.put32(offSMARTIPM, s.IntervalPowerRaw)
	return b
}

// Offsets of an entry of the error information log (01h).
const (
	offErrECNT   = 0
	offErrSQID   = 8
	offErrCID    = 10
	offErrSTS    = 12
	offErrPEL    = 14
	offErrLBA    = 16
	offErrNSID   = 24
	offErrVSIA   = 28
	offErrTRTYPE = 29
	offErrCSI    = 30
	offErrOPC    = 31
	offErrCSINFO = 32
	offErrTTSI   = 40
	offErrLPVER  = 63
)

// ErrorEntry is one entry of the error information log.
type ErrorEntry struct {
	// Count numbers errors over the controller's life; 0 marks an unused entry.
	Count uint64 `json:"error_count"`
	// QueueID and CommandID name the command; FFFFh is none in particular.
	QueueID   uint16 `json:"sq_id"`
	CommandID uint16 `json:"command_id"`
	Status    Status `json:"status"`
	// ParameterByte and ParameterBit say where in the command the error lies.
	ParameterByte Opt[uint8] `json:"parameter_byte"`
	ParameterBit  uint8      `json:"parameter_bit"`
	LBA           uint64     `json:"lba"`
	NSID          uint32     `json:"nsid"`
	// VendorLog is the log page with more; 0 is none.
	VendorLog     uint8 `json:"vendor_log"`
	TransportType uint8 `json:"transport_type"`
	// CommandSpecific is the command specific information: for status 115h the
	// bytes of capacity the namespace would have needed.
	CommandSpecific   uint64 `json:"command_specific"`
	TransportSpecific uint16 `json:"transport_specific"`
	// LogVersion is byte 63; from 1 on CommandSet and Opcode are valid.
	LogVersion uint8      `json:"log_version"`
	CommandSet Opt[uint8] `json:"command_set"`
	Opcode     Opt[uint8] `json:"opcode"`
}

// DecodeErrorEntry reads one 64-byte entry.
func DecodeErrorEntry(b []byte) (ErrorEntry, error) {
	p, err := view(b, ErrorEntrySize, "error log entry")
	if err != nil {
		return ErrorEntry{}, err
	}
	e := ErrorEntry{
		Count:             p.u64(offErrECNT),
		QueueID:           p.u16(offErrSQID),
		CommandID:         p.u16(offErrCID),
		Status:            Status(p.u16(offErrSTS) >> 1), // bit 0 is the phase tag
		LBA:               p.u64(offErrLBA),
		NSID:              p.u32(offErrNSID),
		VendorLog:         p.u8(offErrVSIA),
		TransportType:     p.u8(offErrTRTYPE),
		CommandSpecific:   p.u64(offErrCSINFO),
		TransportSpecific: p.u16(offErrTTSI),
		LogVersion:        p.u8(offErrLPVER),
	}
	if pel := p.u16(offErrPEL); pel != 0xFFFF {
		e.ParameterByte, e.ParameterBit = Some(uint8(pel)), uint8(pel>>8&7)
	}
	if e.LogVersion >= 1 {
		e.CommandSet, e.Opcode = Some(p.u8(offErrCSI)), Some(p.u8(offErrOPC))
	}
	return e, nil
}

// Append appends the 64 bytes of an entry.
func (e ErrorEntry) Append(b []byte) []byte {
	b, p := grow(b, ErrorEntrySize)
	p.put64(offErrECNT, e.Count)
	p.put16(offErrSQID, e.QueueID)
	p.put16(offErrCID, e.CommandID)
	p.put16(offErrSTS, uint16(e.Status)<<1)
	pel := uint16(0xFFFF)
	if v, ok := e.ParameterByte.Get(); ok {
		pel = uint16(v) | uint16(e.ParameterBit&7)<<8
	}
	p.put16(offErrPEL, pel)
	p.put64(offErrLBA, e.LBA)
	p.put32(offErrNSID, e.NSID)
	p.put8(offErrVSIA, e.VendorLog)
	p.put8(offErrTRTYPE, e.TransportType)
	p.put64(offErrCSINFO, e.CommandSpecific)
	p.put16(offErrTTSI, e.TransportSpecific)
	p.put8(offErrLPVER, e.LogVersion)
	if e.LogVersion >= 1 {
		p.put8(offErrCSI, e.CommandSet.Or(0))
		p.put8(offErrOPC, e.Opcode.Or(0))
	}
	return b
}

// DecodeErrorLog reads as many whole entries as b has, newest first, without the
// unused ones.
func DecodeErrorLog(b []byte) ([]ErrorEntry, error) {
	if len(b) < ErrorEntrySize {
		return nil, fmt.Errorf("error log: %w: have %d, an entry needs %d", ErrShort, len(b), ErrorEntrySize)
	}
	var log []ErrorEntry
	for ; len(b) >= ErrorEntrySize; b = b[ErrorEntrySize:] {
		e, err := DecodeErrorEntry(b)
		if err != nil {
			return nil, err
		}
		if e.Count != 0 {
			log = append(log, e)
		}
	}
	return log, nil
}

// AppendErrorLog appends a log of n entries: the first n of log, then unused ones.
func AppendErrorLog(b []byte, log []ErrorEntry, n int) []byte {
	for i := range n {
		if i < len(log) {
			b = log[i].Append(b)
		} else {
			b = append(b, make([]byte, ErrorEntrySize)...)
		}
	}
	return b
}

// Offsets of the firmware slot information log (03h).
const (
	offFWAFI     = 0
	offFWFRS     = 8
	firmwareSlot = 8 // bytes of a revision
)

// FirmwareSlots is the firmware slot information log.
type FirmwareSlots struct {
	// Active is the slot the running firmware came from, 1..7 (AFI bits 2:0).
	Active uint8 `json:"active_slot"`
	// Next is the slot that becomes active at the next reset; 0 is none in
	// particular (AFI bits 6:4).
	Next uint8 `json:"next_slot"`
	// Revisions are those of slots 1..7 as index 0..6; empty is an empty slot.
	Revisions [7]string `json:"revisions"`
}

// DecodeFirmwareSlots reads the log.
func DecodeFirmwareSlots(b []byte) (FirmwareSlots, error) {
	p, err := view(b, FirmwareSlotsSize, "firmware slot log")
	if err != nil {
		return FirmwareSlots{}, err
	}
	afi := p.u8(offFWAFI)
	s := FirmwareSlots{Active: afi & 7, Next: afi >> 4 & 7}
	for i := range s.Revisions {
		s.Revisions[i] = p.text(offFWFRS+firmwareSlot*i, firmwareSlot)
	}
	return s, nil
}

// Append appends the 512 bytes of the log; empty slots are NULs.
func (s FirmwareSlots) Append(b []byte) []byte {
	b, p := grow(b, FirmwareSlotsSize)
	p.put8(offFWAFI, s.Active&7|s.Next&7<<4)
	for i, r := range s.Revisions {
		if r != "" {
			p.putText(offFWFRS+firmwareSlot*i, firmwareSlot, r, ' ')
		}
	}
	return b
}

// CommandEffects says what a command may do besides its task, from the commands
// supported and effects log (05h), as it stands on the wire.
type CommandEffects uint32

// The bits of CommandEffects.
const (
	EffectSupported             CommandEffects = 1 << 0 // CSUPP
	EffectContent               CommandEffects = 1 << 1 // LBCC: user data may change
	EffectNamespaceCapabilities CommandEffects = 1 << 2 // NCC
	EffectNamespaceInventory    CommandEffects = 1 << 3 // NIC
	EffectController            CommandEffects = 1 << 4 // CCC
	EffectUUID                  CommandEffects = 1 << 19
)

// Supported says that the controller has the command.
func (e CommandEffects) Supported() bool { return e&EffectSupported != 0 }

// Exclusion is CSE: 0 no restriction, 1 no other command to the namespace, 2 none
// at all meanwhile.
func (e CommandEffects) Exclusion() uint8 { return uint8(e >> 16 & 7) }

// WithExclusion sets CSE.
func (e CommandEffects) WithExclusion(cse uint8) CommandEffects {
	return e&^(7<<16) | CommandEffects(cse&7)<<16
}

// Effects is the commands supported and effects log (05h), by opcode.
type Effects struct {
	Admin [256]CommandEffects
	IO    [256]CommandEffects
}

// Offsets of the effects log.
const (
	offEffectsACS  = 0
	offEffectsIOCS = 1024
)

// DecodeEffects reads the log.
func DecodeEffects(b []byte) (Effects, error) {
	p, err := view(b, EffectsSize, "effects log")
	if err != nil {
		return Effects{}, err
	}
	var e Effects
	for i := range e.Admin {
		e.Admin[i] = CommandEffects(p.u32(offEffectsACS + 4*i))
		e.IO[i] = CommandEffects(p.u32(offEffectsIOCS + 4*i))
	}
	return e, nil
}

// Append appends the 4096 bytes of the log.
func (e Effects) Append(b []byte) []byte {
	b, p := grow(b, EffectsSize)
	for i := range e.Admin {
		p.put32(offEffectsACS+4*i, uint32(e.Admin[i]))
		p.put32(offEffectsIOCS+4*i, uint32(e.IO[i]))
	}
	return b
}

// effectJSON is one supported command of an effects log in JSON.
type effectJSON struct {
	Opcode                uint8  `json:"opcode"`
	Name                  string `json:"name"`
	Content               bool   `json:"logical_block_content_change"`
	NamespaceCapabilities bool   `json:"namespace_capability_change"`
	NamespaceInventory    bool   `json:"namespace_inventory_change"`
	Controller            bool   `json:"controller_capability_change"`
	Exclusion             uint8  `json:"submission_exclusion"`
	Raw                   uint32 `json:"raw"`
}

// MarshalJSON lists the supported commands.
func (e Effects) MarshalJSON() ([]byte, error) {
	list := func(admin bool, t *[256]CommandEffects) []effectJSON {
		out := []effectJSON{}
		for op, f := range t {
			if !f.Supported() {
				continue
			}
			out = append(out, effectJSON{Opcode: uint8(op), Name: CommandName(admin, uint8(op)),
				Content: f&EffectContent != 0, NamespaceCapabilities: f&EffectNamespaceCapabilities != 0,
				NamespaceInventory: f&EffectNamespaceInventory != 0, Controller: f&EffectController != 0,
				Exclusion: f.Exclusion(), Raw: uint32(f)})
		}
		return out
	}
	return json.Marshal(struct {
		Admin []effectJSON `json:"admin"`
		IO    []effectJSON `json:"io"`
	}{list(true, &e.Admin), list(false, &e.IO)})
}

// Offsets of the endurance group information log (09h). Before NVMe 2.0 bytes
// 2:1, 31:6 and from 160 on were reserved.
const (
	offEGCW     = 0
	offEGEGFEAT = 1
	offEGAVSP   = 3
	offEGAVSPT  = 4
	offEGPUSED  = 5
	offEGDID    = 6
	offEGEE     = 32
	offEGDUR    = 48
	offEGDUW    = 64
	offEGMUW    = 80
	offEGHRC    = 96
	offEGHWC    = 112
	offEGMDIE   = 128
	offEGNEILE  = 144
	offEGTEGCAP = 160
	offEGUEGCAP = 176
)

// EGUnitBytes is the unit of the amounts of the endurance group log, rounded up.
const EGUnitBytes = 1_000_000_000

// EnduranceGroup is the endurance group information log. Amounts are in units of
// 10^9 bytes, rounded up; 0 is not reported. (One transcription of the
// specification has data units of 512,000 bytes: a ratio of 1953 to the SMART
// log at run time would tell.)
type EnduranceGroup struct {
	CriticalWarning       CriticalWarning `json:"critical_warning"`
	Features              uint8           `json:"features_raw"`
	SparePercent          uint8           `json:"available_spare_percent"`
	SpareThresholdPercent uint8           `json:"available_spare_threshold_percent"`
	UsedPercent           uint8           `json:"percentage_used_percent"`
	DomainID              uint16          `json:"domain_id"`
	// EstimateGB is how much may be written over the life, at a write
	// amplification of 1 (EE).
	EstimateGB Uint128 `json:"endurance_estimate_gigabytes"`
	// ReadGB and WrittenGB are the host's traffic (DUR, DUW); MediaWrittenGB is
	// what reached the medium (MUW).
	ReadGB          Uint128 `json:"data_read_gigabytes"`
	WrittenGB       Uint128 `json:"data_written_gigabytes"`
	MediaWrittenGB  Uint128 `json:"media_written_gigabytes"`
	HostReads       Uint128 `json:"host_reads"`
	HostWrites      Uint128 `json:"host_writes"`
	MediaErrors     Uint128 `json:"media_errors"`
	ErrorLogEntries Uint128 `json:"error_log_entries"`
	// TotalCapacityBytes and UnallocatedCapacityBytes are TEGCAP and UEGCAP.
	TotalCapacityBytes       Uint128 `json:"total_capacity_bytes"`
	UnallocatedCapacityBytes Uint128 `json:"unallocated_capacity_bytes"`
}

// BytesWritten is WrittenGB in bytes.
func (g EnduranceGroup) BytesWritten() Uint128 { return g.WrittenGB.Mul64(EGUnitBytes) }

// MediaBytesWritten is MediaWrittenGB in bytes.
func (g EnduranceGroup) MediaBytesWritten() Uint128 { return g.MediaWrittenGB.Mul64(EGUnitBytes) }

func (g *EnduranceGroup) counters() [10]struct {
	off int
	v   *Uint128
} {
	return [...]struct {
		off int
		v   *Uint128
	}{
		{offEGEE, &g.EstimateGB}, {offEGDUR, &g.ReadGB}, {offEGDUW, &g.WrittenGB}, {offEGMUW, &g.MediaWrittenGB},
		{offEGHRC, &g.HostReads}, {offEGHWC, &g.HostWrites}, {offEGMDIE, &g.MediaErrors},
		{offEGNEILE, &g.ErrorLogEntries}, {offEGTEGCAP, &g.TotalCapacityBytes}, {offEGUEGCAP, &g.UnallocatedCapacityBytes},
	}
}

// DecodeEnduranceGroup reads the log.
func DecodeEnduranceGroup(b []byte) (EnduranceGroup, error) {
	p, err := view(b, EnduranceGroupSize, "endurance group log")
	if err != nil {
		return EnduranceGroup{}, err
	}
	g := EnduranceGroup{
		CriticalWarning:       CriticalWarning(p.u8(offEGCW)),
		Features:              p.u8(offEGEGFEAT),
		SparePercent:          p.u8(offEGAVSP),
		SpareThresholdPercent: p.u8(offEGAVSPT),
		UsedPercent:           p.u8(offEGPUSED),
		DomainID:              p.u16(offEGDID),
	}
	for _, c := range g.counters() {
		*c.v = p.u128(c.off)
	}
	if g == (EnduranceGroup{}) {
		return EnduranceGroup{}, fmt.Errorf("endurance group log: %w: every value is zero", ErrInvalidData)
	}
	return g, nil
}

// Append appends the 512 bytes of the log.
func (g EnduranceGroup) Append(b []byte) []byte {
	b, p := grow(b, EnduranceGroupSize)
	p.put8(offEGCW, uint8(g.CriticalWarning))
	p.put8(offEGEGFEAT, g.Features)
	p.put8(offEGAVSP, g.SparePercent)
	p.put8(offEGAVSPT, g.SpareThresholdPercent)
	p.put8(offEGPUSED, g.UsedPercent)
	p.put16(offEGDID, g.DomainID)
	for _, c := range g.counters() {
		p.put128(c.off, *c.v)
	}
	return b
}
