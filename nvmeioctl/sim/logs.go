package sim

import (
	"encoding/binary"
	"math"
	"slices"

	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

// Log pages that events name.
const (
	logSMART   = uint8(nvmespec.LogIDSMART)
	logChanged = uint8(nvmespec.LogIDChangedNamespaces)
)

// errorLog is the error information log.
type errorLog struct {
	Count   uint64       `json:"count"`
	Entries []errorEntry `json:"entries"` // newest first
}

// errorEntry is one failed command.
type errorEntry struct {
	Count    uint64          `json:"count"`
	IO       bool            `json:"io"`
	Opcode   uint8           `json:"opcode"`
	Status   nvmespec.Status `json:"status"`
	Param    uint16          `json:"param"`
	NSID     uint32          `json:"nsid"`
	LBA      uint64          `json:"lba"`
	Specific uint64          `json:"specific"`
}

// recordError puts a failed command in the error log.
func (d *Drive) recordError(r *request, s nvmespec.Status) {
	log := &d.st.Errors
	log.Count++
	e := errorEntry{Count: log.Count, IO: r.cmd.IO, Opcode: r.cmd.Opcode, Status: s, Param: r.param, NSID: r.cmd.NSID, Specific: r.specific}
	if r.cmd.IO {
		e.LBA = uint64(r.cmd.CDW10) | uint64(r.cmd.CDW11)<<32
	}
	keep := log.Entries[:min(len(log.Entries), d.st.Profile.ErrorLogEntries-1)]
	log.Entries = append([]errorEntry{e}, keep...)
}

// logPage is one log page of a model.
type logPage struct {
	id    nvmespec.LogID
	needs func(*Profile) bool // nil: every model has it
	// specific says that the Log Specific Identifier means something.
	specific bool
	make     func(*request, nvmespec.GetLogFields) ([]byte, nvmespec.Status)
}

// logPages is the table of log pages.
func logPages() []logPage {
	attribute := func(bit uint8) func(*Profile) bool {
		return func(p *Profile) bool { return p.LogAttributes&bit != 0 }
	}
	return []logPage{
		{id: nvmespec.LogIDSupported, needs: attribute(lpaSupported), make: supportedLog},
		{id: nvmespec.LogIDError, make: errorInformationLog},
		{id: nvmespec.LogIDSMART, make: smartLog},
		{id: nvmespec.LogIDFirmware, make: firmwareLog},
		{id: nvmespec.LogIDChangedNamespaces, needs: func(p *Profile) bool { return p.EventSupport&oaesNamespace != 0 }, make: changedLog},
		{id: nvmespec.LogIDEffects, needs: attribute(lpaEffects), make: effectsLog},
		{id: nvmespec.LogIDSelfTest, needs: (*Profile).selfTest, make: selfTestLog},
		{id: nvmespec.LogIDTelemetryHost, needs: attribute(lpaTelemetry), make: telemetryLog},
		{id: nvmespec.LogIDTelemetryController, needs: attribute(lpaTelemetry), make: telemetryLog},
		{id: nvmespec.LogIDEnduranceGroup, needs: func(p *Profile) bool { return p.EnduranceGroup }, specific: true, make: enduranceLog},
		{id: nvmespec.LogIDLBAStatus, needs: (*Profile).lbaStatus, make: lbaStatusLog},
		{id: nvmespec.LogIDPersistentEvents, needs: attribute(lpaPersistent), make: persistentLog},
		{id: nvmespec.LogIDFeatureEffects, needs: func(p *Profile) bool { return p.Version >= 0x00020000 }, make: featureEffectsLog},
		{id: nvmespec.LogIDSanitize, needs: (*Profile).sanitizes, make: sanitizeLog},
		{id: nvmespec.LogIDOCPHealth, needs: func(p *Profile) bool { return p.OCPLog }, make: ocpLog},
		{id: nvmespec.LogIDVendorHealth, needs: func(p *Profile) bool { return p.VendorLog != "" }, make: vendorLog},
	}
}

// getLog carries out Get Log Page.
func getLog(r *request) (uint32, nvmespec.Status) {
	f := nvmespec.DecodeGetLogFields(nvmespec.GetLogDwords{
		CDW10: r.cmd.CDW10, CDW11: r.cmd.CDW11, CDW12: r.cmd.CDW12, CDW13: r.cmd.CDW13, CDW14: r.cmd.CDW14})
	if s := r.checkLogFields(f); s != 0 {
		return 0, s
	}
	i := slices.IndexFunc(logPages(), func(l logPage) bool { return l.id == f.Log && (l.needs == nil || l.needs(r.profile())) })
	if i < 0 {
		return r.fail(nvmespec.StatusInvalidLogPage, paramCDW10)
	}
	l := logPages()[i]
	if f.LogSpecificID != 0 && !l.specific {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+6)
	}
	if s := r.checkLogNSID(f.Log); s != 0 {
		return 0, s
	}
	page, s := l.make(r, f)
	if s != 0 {
		return 0, s
	}
	if f.OffsetBytes >= uint64(len(page)) {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+8)
	}
	if f.LengthBytes > uint64(len(r.cmd.Data)) {
		return r.fail(nvmespec.StatusDataTransfer, paramNone)
	}
	// What lies beyond the end of the page reads as zero.
	out := r.cmd.Data[:f.LengthBytes]
	clear(out[copy(out, page[f.OffsetBytes:]):])
	if !f.RetainEvent {
		r.logRead(f.Log)
	}
	return 0, nvmespec.StatusSuccess
}

// checkLogFields refuses fields that no page of the model has.
func (r *request) checkLogFields(f nvmespec.GetLogFields) nvmespec.Status {
	extended := r.profile().LogAttributes&lpaExtended != 0
	bad := uint16(0)
	switch {
	case r.cmd.CDW14 != 0: // no UUIDs, no command set but NVM, no index offsets
		bad = paramCDW10 + 16
	case f.OffsetBytes%4 != 0, f.OffsetBytes != 0 && !extended:
		bad = paramCDW10 + 8
	case r.cmd.CDW11&0xFFFF != 0 && !extended:
		bad = paramCDW10 + 4
	case f.Specific != 0 && f.Log != nvmespec.LogIDTelemetryHost && f.Log != nvmespec.LogIDPersistentEvents:
		bad = paramCDW10 + 1
	default:
		return nvmespec.StatusSuccess
	}
	_, s := r.fail(nvmespec.StatusInvalidField, bad)
	return s
}

// checkLogNSID refuses a log of one namespace: the drives keep none.
func (r *request) checkLogNSID(id nvmespec.LogID) nvmespec.Status {
	nsid := r.cmd.NSID
	switch {
	case nsid == 0 || nsid == nsidAll:
		return nvmespec.StatusSuccess
	case nsid > r.profile().MaxNamespaces:
		_, s := r.fail(nvmespec.StatusInvalidNamespace, paramNSID)
		return s
	}
	_, s := r.fail(nvmespec.StatusInvalidField, paramNSID)
	return s
}

// logRead does what reading a page without retaining its event does.
func (r *request) logRead(id nvmespec.LogID) {
	c := &r.state().Controllers[r.c]
	c.cleared(uint8(id))
	switch id {
	case nvmespec.LogIDChangedNamespaces:
		c.ChangedNamespaces = nil
	case nvmespec.LogIDTelemetryController:
		r.state().Telemetry.Controller.read()
	}
}

func supportedLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	page := make([]byte, 1024) // one dword a page: bit 0 supported, bit 1 takes an index offset
	for _, l := range logPages() {
		if l.needs == nil || l.needs(r.profile()) {
			binary.LittleEndian.PutUint32(page[4*int(l.id):], 1)
		}
	}
	return page, nvmespec.StatusSuccess
}

func errorInformationLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	var log []nvmespec.ErrorEntry
	for _, e := range r.state().Errors.Entries {
		entry := nvmespec.ErrorEntry{
			Count: e.Count, QueueID: 0, Status: e.Status, LBA: e.LBA, NSID: e.NSID, CommandSpecific: e.Specific,
			LogVersion: 1, CommandSet: nvmespec.Some(uint8(0)), Opcode: nvmespec.Some(e.Opcode),
		}
		if e.IO {
			entry.QueueID = 1
		}
		if e.Param != paramNone {
			entry.ParameterByte, entry.ParameterBit = nvmespec.Some(uint8(e.Param)), uint8(e.Param>>8)
		}
		log = append(log, entry)
	}
	return nvmespec.AppendErrorLog(nil, log, r.profile().ErrorLogEntries), nvmespec.StatusSuccess
}

// ceilDiv is n in units, rounded up, as data units are.
func ceilDiv(n nvmespec.Uint128, unit uint64) nvmespec.Uint128 {
	q, rest := n.DivMod64(unit)
	if rest != 0 {
		q = q.Add(nvmespec.U128(1))
	}
	return q
}

// percent is a ratio in whole percent, rounded down, at most 255.
func percent(ratio float64) uint8 { return uint8(min(max(math.Floor(ratio*100), 0), 255)) }

// warnings is the critical warning byte.
func (d *Drive) warnings(m mediaCounters) nvmespec.CriticalWarning {
	p := &d.st.Profile
	var w nvmespec.CriticalWarning
	if percent(m.SpareRatio) < p.Flash.SpareThresholdPercent {
		w |= nvmespec.WarningSpare
	}
	spec, _ := lookupFeature(p, featureThreshold)
	c := &d.st.Controllers[0]
	over := uint16(c.currentValue(p, &spec, featureValue{FID: featureThreshold}).Value)
	under := uint16(c.currentValue(p, &spec, featureValue{FID: featureThreshold, Sub: 1}).Value)
	if over != 0 && m.Kelvin >= over || m.Kelvin <= under {
		w |= nvmespec.WarningTemperature
	}
	if f := d.flash(); f != nil && f.flash.WornOut() {
		w |= nvmespec.WarningReadOnly
	}
	return w | d.faultWarnings()
}

func smartLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	return r.d.smart().Append(nil), nvmespec.StatusSuccess
}

// smart is the SMART log as it is now.
func (d *Drive) smart() nvmespec.SMART {
	m, st := d.counters(), d.st
	return st.Faults.Thermal.smart(nvmespec.SMART{
		CriticalWarning: d.warnings(m), Temperature: celsius(m.Kelvin),
		SparePercent: percent(m.SpareRatio), SpareThresholdPercent: st.Profile.Flash.SpareThresholdPercent,
		UsedPercent:      st.PercentUsed,
		DataUnitsRead:    ceilDiv(m.HostReadBytes, nvmespec.DataUnitBytes),
		DataUnitsWritten: ceilDiv(m.HostWriteBytes, nvmespec.DataUnitBytes),
		HostReads:        m.HostReadCommands, HostWrites: m.HostWriteCommands,
		BusyMinutes:     nvmespec.U128(m.BusyNS / 60e9),
		PowerCycles:     nvmespec.U128(st.PowerCycles),
		PowerOnHours:    nvmespec.U128(hours(int64(d.clock.Now()))),
		UnsafeShutdowns: nvmespec.U128(st.UnsafeShutdowns),
		MediaErrors:     nvmespec.U128(m.MediaErrors),
		ErrorLogEntries: nvmespec.U128(st.Errors.Count),
	})
}

func firmwareLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	f := &r.state().Firmware
	log := nvmespec.FirmwareSlots{Active: f.Active, Next: f.Next}
	copy(log.Revisions[:], f.Slots)
	return log.Append(nil), nvmespec.StatusSuccess
}

func changedLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	return nvmespec.AppendNamespaceList(nil, r.state().Controllers[r.c].ChangedNamespaces), nvmespec.StatusSuccess
}

// What commands do beside their task, as the effects log tells it.
const (
	effectNamespaces = nvmespec.EffectNamespaceInventory
	effectAttachment = nvmespec.EffectNamespaceInventory
	effectFirmware   = nvmespec.EffectController
	effectFormat     = nvmespec.EffectContent | nvmespec.EffectNamespaceCapabilities
	effectSanitize   = nvmespec.EffectContent
)

func effectsLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	var e nvmespec.Effects
	for _, a := range adminCommands() {
		if a.needs != nil && !a.needs(r.profile()) {
			continue
		}
		e.Admin[a.opcode] = a.effects | nvmespec.EffectSupported
		if a.opcode == nvmespec.AdminFormatNVM {
			// Nothing else may run meanwhile.
			e.Admin[a.opcode] = e.Admin[a.opcode].WithExclusion(2)
		}
	}
	for _, c := range ioCommands() {
		if c.needs == nil || c.needs(r.profile()) {
			e.IO[c.opcode] = c.effects | nvmespec.EffectSupported
		}
	}
	return e.Append(nil), nvmespec.StatusSuccess
}

func enduranceLog(r *request, f nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	if f.LogSpecificID != 1 {
		_, s := r.fail(nvmespec.StatusInvalidField, paramCDW10+6)
		return nil, s
	}
	m, st := r.d.counters(), r.state()
	gb := func(n nvmespec.Uint128) nvmespec.Uint128 { return ceilDiv(n, nvmespec.EGUnitBytes) }
	return nvmespec.EnduranceGroup{
		CriticalWarning: r.d.warnings(m) & nvmespec.WarningSpare,
		SparePercent:    percent(m.SpareRatio), SpareThresholdPercent: st.Profile.Flash.SpareThresholdPercent,
		UsedPercent: st.PercentUsed, EstimateGB: gb(st.Profile.lifetimeBytes()),
		ReadGB: gb(m.HostReadBytes), WrittenGB: gb(m.HostWriteBytes), MediaWrittenGB: gb(m.MediaWriteBytes),
		HostReads: m.HostReadCommands, HostWrites: m.HostWriteCommands,
		MediaErrors: nvmespec.U128(m.MediaErrors), ErrorLogEntries: nvmespec.U128(st.Errors.Count),
		TotalCapacityBytes:       nvmespec.U128(st.Profile.CapacityBytes),
		UnallocatedCapacityBytes: nvmespec.U128(st.unallocatedBytes()),
	}.Append(nil), nvmespec.StatusSuccess
}

// lifetimeBytes is what the flash can take in its rated life.
func (p *Profile) lifetimeBytes() nvmespec.Uint128 {
	return nvmespec.U128(p.Flash.UsableBytes).Mul64(uint64(p.Flash.RatedCycles))
}

func ocpLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	m, st := r.d.vendorCounters(), r.state()
	log := nvmespec.OCPHealth{
		Layout: nvmespec.OCPDatacenter, Version: 3,
		PhysicalBytesWritten: m.MediaWriteBytes, PhysicalBytesRead: m.MediaReadBytes,
		BadUserBlocks: m.BadBlocks, BadUserBlocksNormalised: uint16(percent(m.SpareRatio)), BadSystemBlocksNormalised: 100,
		EraseCountMin: uint64(m.MinErases), EraseCountMax: uint64(m.MaxErases), EraseCountAvg: uint64(m.AverageErases),
		IncompleteShutdowns:    uint32(min(st.UnsafeShutdowns, math.MaxUint32)),
		CapacitorHealthPercent: nvmespec.Some(uint16(100)),
		EstimateBytes:          st.Profile.lifetimeBytes(),
		ThermalThrottles:       uint16(min(st.Faults.Thermal.Times[0], math.MaxUint8)), ThermalThrottleStatus: st.Faults.Thermal.level(),
	}
	if m.TotalBlocks != 0 {
		log.FreeBlocksPercent = percent(float64(m.FreeBlocks) / float64(m.TotalBlocks))
	}
	if len(st.Namespaces) > 0 {
		log.UsedBlocks = st.Namespaces[0].SizeBlocks
	}
	return log.Append(nil), nvmespec.StatusSuccess
}

// vendorLog is the vendor's health log (CAh) in the layout of the profile.
func vendorLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	layout, ok := vendor.LookupName(r.profile().VendorLog)
	if !ok {
		return nil, nvmespec.StatusInternal
	}
	m := r.d.vendorCounters()
	cycles := func(n float64) uint16 { return uint16(min(n, math.MaxUint16)) }
	page, err := layout.Health(vendor.Counters{
		NANDWrittenBytes: m.MediaWriteBytes, HostWrittenBytes: m.HostWriteBytes, NANDReadBytes: m.MediaReadBytes,
		EraseCounts:   vendor.Wear{Min: cycles(float64(m.MinErases)), Max: cycles(float64(m.MaxErases)), Avg: cycles(m.AverageErases)},
		HealthPercent: uint8(max(0, 100-int(r.state().PercentUsed))),
	}).Append(nil)
	if err != nil {
		return nil, nvmespec.StatusInternal
	}
	return page, nvmespec.StatusSuccess
}
