package sim

import (
	"crypto/sha256"

	"nvop/nvmeioctl/nvmespec"
)

// identify carries out Identify.
func identify(r *request) (uint32, nvmespec.Status) {
	f := nvmespec.DecodeIdentifyFields(r.cmd.CDW10, r.cmd.CDW11, r.cmd.CDW14)
	if f.ControllerID != 0 && f.CNS != nvmespec.CNSAttachedControllers && f.CNS != nvmespec.CNSControllers {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+2)
	}
	// No command set but NVM (0), no UUIDs, nothing specific in CDW11.
	if r.cmd.CDW11 != 0 {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+4)
	}
	if f.UUIDIndex != 0 {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+16)
	}
	page, s := r.identifyPage(f)
	if s != 0 {
		return 0, s
	}
	return r.reply(page)
}

// identifyPage makes the structure that a CNS value names.
func (r *request) identifyPage(f nvmespec.IdentifyFields) ([]byte, nvmespec.Status) {
	p := r.profile()
	since2 := p.Version >= 0x00020000
	switch f.CNS {
	case nvmespec.CNSNamespace:
		return r.identifyNamespace(r.active)
	case nvmespec.CNSController:
		if s := r.noNSID(); s != 0 {
			return nil, s
		}
		return r.d.controller(r.c).Append(nil), nvmespec.StatusSuccess
	case nvmespec.CNSActiveNamespaces:
		return r.namespaceList(r.active)
	case nvmespec.CNSDescriptors:
		return r.descriptors(since2)
	case nvmespec.CNSNVMNamespace, nvmespec.CNSIndependentNamespace:
		if since2 {
			return r.identifyMore(f.CNS)
		}
	case nvmespec.CNSNVMController:
		if since2 {
			if s := r.noNSID(); s != 0 {
				return nil, s
			}
			return nvmespec.NVMController{}.Append(nil), nvmespec.StatusSuccess
		}
	case nvmespec.CNSAllocatedNamespaces, nvmespec.CNSAllocatedNamespace, nvmespec.CNSAttachedControllers, nvmespec.CNSControllers:
		if p.namespaceManagement() {
			return r.identifyAllocated(f)
		}
	case nvmespec.CNSGranularity:
		if p.ReportsGranularity {
			return r.granularity()
		}
	}
	_, s := r.fail(nvmespec.StatusInvalidField, paramCDW10)
	return nil, s
}

// noNSID refuses an NSID where it means nothing.
func (r *request) noNSID() nvmespec.Status {
	if r.cmd.NSID == 0 {
		return nvmespec.StatusSuccess
	}
	_, s := r.fail(nvmespec.StatusInvalidField, paramNSID)
	return s
}

// validNSID refuses an NSID that no namespace can have.
func (r *request) validNSID() nvmespec.Status {
	if r.cmd.NSID >= 1 && r.cmd.NSID <= r.profile().MaxNamespaces {
		return nvmespec.StatusSuccess
	}
	_, s := r.fail(nvmespec.StatusInvalidNamespace, paramNSID)
	return s
}

// identifyAllocated answers what only drives with namespace management have.
func (r *request) identifyAllocated(f nvmespec.IdentifyFields) ([]byte, nvmespec.Status) {
	exists := func(nsid uint32) bool { return r.state().find(nsid) != nil }
	switch f.CNS {
	case nvmespec.CNSAllocatedNamespaces:
		return r.namespaceList(exists)
	case nvmespec.CNSAllocatedNamespace:
		return r.identifyNamespace(exists)
	case nvmespec.CNSControllers:
		if s := r.noNSID(); s != 0 {
			return nil, s
		}
		return r.controllerList(0xFF, f.ControllerID), nvmespec.StatusSuccess
	}
	ns, s := r.allocated(r.cmd.NSID)
	if s != 0 {
		return nil, s
	}
	return r.controllerList(ns.Attached, f.ControllerID), nvmespec.StatusSuccess
}

// controllerList lists the controllers in mask from a CNTLID on.
func (r *request) controllerList(mask uint8, from uint16) []byte {
	var ids []uint16
	for i := range r.state().Controllers {
		if id := r.profile().FirstController + uint16(i); mask>>i&1 != 0 && id >= from {
			ids = append(ids, id)
		}
	}
	return nvmespec.AppendControllerList(nil, ids)
}

// namespaceList lists the NSIDs above the one in the command.
func (r *request) namespaceList(has func(uint32) bool) ([]byte, nvmespec.Status) {
	if r.cmd.NSID >= nsidAll-1 {
		_, s := r.fail(nvmespec.StatusInvalidNamespace, paramNSID)
		return nil, s
	}
	var ids []uint32
	for i := range r.state().Namespaces {
		if id := r.state().Namespaces[i].NSID; id > r.cmd.NSID && has(id) {
			ids = append(ids, id)
		}
	}
	return nvmespec.AppendNamespaceList(nil, ids[:min(len(ids), nvmespec.NamespaceListMax)]), nvmespec.StatusSuccess
}

// identifyNamespace answers for the namespaces that has is true of: all zero
// for the others, and what all have in common for NSID FFFFFFFFh.
func (r *request) identifyNamespace(has func(uint32) bool) ([]byte, nvmespec.Status) {
	if r.cmd.NSID == nsidAll && r.profile().namespaceManagement() {
		return r.visible(r.d.commonNamespace()).Append(nil), nvmespec.StatusSuccess
	}
	if s := r.validNSID(); s != 0 {
		return nil, s
	}
	if !has(r.cmd.NSID) {
		return make([]byte, dataBytes), nvmespec.StatusSuccess
	}
	return r.visible(r.d.describe(r.state().find(r.cmd.NSID))).Append(nil), nvmespec.StatusSuccess
}

// visible leaves out the LBA formats that the controller's host has not enabled.
func (r *request) visible(n nvmespec.Namespace) nvmespec.Namespace {
	n.Formats = n.Formats[:min(len(n.Formats), r.visibleFormats())]
	return n
}

// identifyMore answers the structures that came with NVMe 2.0.
func (r *request) identifyMore(cns nvmespec.CNS) ([]byte, nvmespec.Status) {
	if s := r.validNSID(); s != 0 {
		return nil, s
	}
	if !r.active(r.cmd.NSID) {
		return make([]byte, dataBytes), nvmespec.StatusSuccess
	}
	if cns == nvmespec.CNSNVMNamespace {
		return nvmespec.NVMNamespace{}.Append(nil), nvmespec.StatusSuccess
	}
	ns := r.d.describe(r.state().find(r.cmd.NSID))
	return nvmespec.IndependentNamespace{
		Features: uint8(ns.Features), Shared: ns.Shared, FormatRemainingPercent: ns.FormatRemainingPercent,
		EnduranceGroupID: ns.EnduranceGroupID, Ready: true,
	}.Append(nil), nvmespec.StatusSuccess
}

// descriptors answers the namespace identification descriptors.
func (r *request) descriptors(since2 bool) ([]byte, nvmespec.Status) {
	if s := r.validNSID(); s != 0 {
		return nil, s
	}
	if !r.active(r.cmd.NSID) {
		_, s := r.fail(nvmespec.StatusInvalidField, paramNSID)
		return nil, s
	}
	ns := r.state().find(r.cmd.NSID)
	ids := nvmespec.NamespaceIDs{NGUID: ns.NGUID, EUI64: ns.EUI64}
	if since2 {
		ids.CommandSet = nvmespec.Some(uint8(0))
	}
	return ids.Append(nil), nvmespec.StatusSuccess
}

// granularity answers the namespace granularity list: one for all formats.
func (r *request) granularity() ([]byte, nvmespec.Status) {
	if s := r.noNSID(); s != 0 {
		return nil, s
	}
	unit := r.profile().AllocationBytes
	return nvmespec.GranularityList{Entries: []nvmespec.Granularity{{SizeBytes: unit, CapacityBytes: unit}}}.Append(nil), nvmespec.StatusSuccess
}

// commonNamespace is what every namespace of the drive can be.
func (d *Drive) commonNamespace() nvmespec.Namespace {
	p := &d.st.Profile
	n := nvmespec.Namespace{
		Features: nvmespec.NamespaceFeatures(p.NamespaceFeatures),
		// Deallocated blocks read as zeros (DLFEAT bits 2:0 = 1).
		DeallocateFeatures:     1,
		FormatRemainingPercent: nvmespec.Some(uint8(0)),
	}
	if p.copies() {
		n.CopyRangeBlocksMax, n.CopyBlocksMax, n.CopyRangesMax = copyRangeBlocks, copyBlocks, copyRanges
	}
	for i, f := range p.Formats {
		n.Formats = append(n.Formats, nvmespec.LBAFormat{
			Index: uint8(i), DataBytes: f.DataBytes, MetadataBytes: f.MetadataBytes, RelativePerformance: f.RelativePerformance,
		})
		if f.MetadataBytes >= 8 {
			n.MetadataCapabilities = 3      // as part of an extended block, or separate
			n.ProtectionCapabilities = 0x1F // types 1 to 3, first or last bytes
		}
	}
	if p.EnduranceGroup {
		n.EnduranceGroupID = 1
	}
	return n
}

// describe is Identify Namespace of a namespace.
func (d *Drive) describe(ns *namespace) nvmespec.Namespace {
	n := d.commonNamespace()
	n.SizeBlocks, n.CapacityBlocks = ns.SizeBlocks, ns.SizeBlocks
	// Without thin provisioning everything counts as used, as Memblaze
	// drives report it (cases LIST-04).
	n.UsedBlocks = ns.SizeBlocks
	n.FormatIndex, n.MetadataExtended = ns.FormatIndex, ns.ExtendedMetadata
	n.Protection, n.Shared = ns.Protection, ns.Shared
	n.NVMCapacityBytes = nvmespec.U128(ns.AllocatedBytes)
	n.NGUID, n.EUI64 = ns.NGUID, ns.EUI64
	if p, ok := d.formatting[ns.NSID]; ok {
		n.FormatRemainingPercent = nvmespec.Some(p.remaining(d.clock.Now()))
	}
	return n
}

// controller is Identify Controller of the controller with an index.
func (d *Drive) controller(index int) nvmespec.Controller {
	p, st := &d.st.Profile, d.st
	c := nvmespec.Controller{
		VendorID: p.VendorID, SubsystemVendorID: p.SubsystemVendorID,
		SerialNumber: st.Options.Serial, ModelNumber: p.Model, FirmwareRevision: st.Firmware.Running,
		ArbitrationBurstLog2: 4, OUI: p.OUI, MaxTransferBytes: uint64(p.MaxTransferBytes),
		ControllerID: p.FirstController + uint16(index), Version: nvmespec.Version(p.Version),
		RTD3ResumeMicroseconds: 8_000_000, RTD3EntryMicroseconds: 8_000_000,
		Events: nvmespec.AsyncEvents(p.EventSupport), Type: 1,
		Admin: nvmespec.OptionalAdmin(p.AdminCommands), AbortLimit: 4, AsyncEventLimit: 4,
		FirmwareSlotCount: p.FirmwareSlots, FirmwareSlot1ReadOnly: p.Slot1ReadOnly,
		FirmwareActivatesWithoutReset: p.ActivatesWithoutReset, FirmwareDetectsOverlap: true,
		Logs: nvmespec.LogAttributes(p.LogAttributes), ErrorLogEntries: uint16(p.ErrorLogEntries),
		AdminVendorFormat: true, APST: p.AutonomousTransitions,
		WarningTemperature:       celsius(p.WarningKelvin),
		CriticalTemperature:      celsius(p.CriticalKelvin),
		TotalCapacityBytes:       nvmespec.U128(p.CapacityBytes),
		UnallocatedCapacityBytes: nvmespec.U128(st.unallocatedBytes()),
		SQEntryBytesMin:          64, SQEntryBytesMax: 64, CQEntryBytesMin: 16, CQEntryBytesMax: 16,
		NamespaceIDMax: p.MaxNamespaces, IO: nvmespec.OptionalIO(p.NVMCommands),
		Format: nvmespec.FormatAttributes(p.FormatAttributes), VolatileWriteCache: p.VolatileWriteCache,
		AtomicWriteBlocks: 1, AtomicWritePowerFailBlocks: 1, AtomicCompareWriteBlocks: 1,
		IOVendorFormat: true, SubsystemNQN: d.subsystemNQN(),
	}
	if p.selfTest() {
		c.SelfTestMinutes, c.SelfTestOptions = selfTestMinutes, 1
	}
	c.Sanitize = nvmespec.SanitizeCapabilities(p.Sanitize)
	if p.copies() {
		c.CopyFormats = 1 // descriptor format 0
	}
	if p.MaxActivation != 0 {
		c.ActivationMillisecondsMax = nvmespec.Some(uint32(p.MaxActivation.Milliseconds()))
	}
	switch p.FirmwareGranularityBytes {
	case 0:
	case ^uint32(0):
		c.FirmwareGranularityBytes = nvmespec.Some(uint32(4))
	default:
		c.FirmwareGranularityBytes = nvmespec.Some(p.FirmwareGranularityBytes)
	}
	if p.Version >= 0x00020000 {
		c.AllowedNamespacesMax = p.MaxNamespaces
	}
	if len(st.Controllers) > 1 {
		c.MultiPath = nvmespec.MultiPort | nvmespec.MultiController
	}
	if p.extendedFormats() {
		c.Attributes |= nvmespec.AttrExtendedLBAFormats
	}
	if p.ReportsGranularity {
		c.Attributes |= nvmespec.AttrNamespaceGranularity
	}
	if p.EnduranceGroup {
		c.Attributes |= nvmespec.AttrEnduranceGroups
		c.EnduranceGroupIDMax = 1
	}
	if p.LogAttributes&lpaPersistent != 0 {
		c.PersistentEventLogBytes = persistentBytes
	}
	c.PowerStates = powerStates(p)
	return c
}

func powerStates(p *Profile) []nvmespec.PowerState {
	milli := func(mw uint32) nvmespec.Microwatts { return nvmespec.Microwatts(mw * 1000) }
	reported := func(mw uint32) nvmespec.Opt[nvmespec.Microwatts] {
		if mw == 0 {
			return nvmespec.None[nvmespec.Microwatts]()
		}
		return nvmespec.Some(milli(mw))
	}
	var states []nvmespec.PowerState
	for _, s := range p.PowerStates {
		states = append(states, nvmespec.PowerState{
			MaxPower: milli(s.MaxMilliwatts), NonOperational: s.NonOperational,
			EntryMicroseconds: s.EntryMicroseconds, ExitMicroseconds: s.ExitMicroseconds,
			ReadThroughputRank: s.RelativeThroughput, WriteThroughputRank: s.RelativeThroughput,
			ReadLatencyRank: s.RelativeLatency, WriteLatencyRank: s.RelativeLatency,
			IdlePower: reported(s.IdleMilliwatts), ActivePower: reported(s.ActiveMilliwatts),
		})
	}
	return states
}

// celsius is a temperature as the codec has it; 0 kelvin is not reported.
func celsius(kelvin uint16) nvmespec.Opt[nvmespec.Celsius] {
	if kelvin == 0 {
		return nvmespec.None[nvmespec.Celsius]()
	}
	return nvmespec.Some(nvmespec.Celsius(int32(kelvin) - 273))
}

// subsystemNQN is derived from the serial number, so that it stays for the
// drive's life and is no other drive's.
func (d *Drive) subsystemNQN() string {
	sum := sha256.Sum256([]byte("subsystem " + d.st.Profile.Name + " " + d.st.Options.Serial))
	id := nvmespec.GUID(sum[:16])
	id[6], id[8] = id[6]&0x0F|0x80, id[8]&0x3F|0x80 // a version 8 UUID (RFC 9562): made from a hash
	return "nqn.2014-08.org.nvmexpress:uuid:" + id.UUID()
}
