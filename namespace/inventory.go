package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"nvop/namespace/firmware"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// Inventory is what a drive was found to be: plain data that can be stored,
// compared and planned from.
type Inventory struct {
	Schema string `json:"schema"`
	// TakenAt is when it was read, on the drive's clock, UTC.
	TakenAt  time.Time          `json:"taken_at"`
	Address  string             `json:"address"`
	Identity nvmeioctl.Identity `json:"identity"`
	// Transport is "pcie", "sim", "tcp", ... as the caller found it.
	Transport  string     `json:"transport"`
	Controller Controller `json:"controller"`
	// Formats are the LBA formats a new namespace can have.
	Formats []LBAFormat `json:"formats"`
	// Namespaces are all allocated namespaces, by NSID.
	Namespaces []Namespace `json:"namespaces"`
	Health     *Health     `json:"health,omitempty"`
	// SelfTestRunning: a self-test is in progress, which a format or a deletion
	// would end or be refused for.
	SelfTestRunning bool      `json:"self_test_running,omitempty"`
	Firmware        *Firmware `json:"firmware,omitempty"`
	// FirmwareState is what planning an update needs; nil where it was not read.
	FirmwareState *firmware.State `json:"firmware_state,omitempty"`
	// Features are those that were asked for.
	Features []FeatureReading `json:"features,omitempty"`
	// Problems are what could not be read, and why. They do not stop the
	// inventory; a plan that needs what is missing refuses.
	Problems []Problem `json:"problems,omitempty"`
}

// Controller is the part of Identify Controller that planning needs.
type Controller struct {
	FirmwareRevision string `json:"firmware_revision"`
	// Version is the NVMe version, "1.4.0".
	Version string `json:"version"`
	// NamespaceManagement, FormatNVM, SecurityCommands: OACS bits 3, 1, 0.
	NamespaceManagement bool `json:"namespace_management"`
	FormatNVM           bool `json:"format_nvm"`
	SecurityCommands    bool `json:"security_commands"`
	// MultiController: CMIC bit 1, more than one controller in the subsystem.
	MultiController bool `json:"multi_controller"`
	// FormatAllNamespaces: FNA bit 0, a format changes all namespaces.
	FormatAllNamespaces bool `json:"format_all_namespaces"`
	// EraseAllNamespaces: FNA bit 1, a secure erase erases all namespaces.
	EraseAllNamespaces bool `json:"erase_all_namespaces"`
	// CryptographicErase: FNA bit 2.
	CryptographicErase bool `json:"cryptographic_erase"`
	// NoBroadcastFormat: FNA bit 3, NSID 0xFFFFFFFF is not accepted by Format.
	NoBroadcastFormat bool `json:"no_broadcast_format"`
	// MaxNSID is the largest NSID (NN); it may be 0xFFFFFFFE.
	MaxNSID uint32 `json:"max_nsid"`
	// MaxNamespaces is how many namespaces there may be (MNAN); 0 means MaxNSID.
	MaxNamespaces uint32 `json:"max_namespaces"`
	// TotalBytes is TNVMCAP; 0 means the drive reports none.
	TotalBytes uint64 `json:"total_capacity_bytes"`
	// UnallocatedBytes is UNVMCAP.
	UnallocatedBytes uint64 `json:"unallocated_capacity_bytes"`
	// ExtendedFormats: more than 16 LBA formats can be used: the drive has them
	// (CTRATT bit 15) and the host has enabled them (LBAFEE).
	ExtendedFormats bool `json:"extended_lba_formats"`
	// SanitizeInProgress is from the sanitize status log where there is one.
	SanitizeInProgress bool `json:"sanitize_in_progress"`
	// VendorID is the PCI vendor.
	VendorID uint16 `json:"vendor_id"`
	// SaveFeatures: ONCS bit 4, values of features can be kept over power cycles.
	SaveFeatures bool `json:"save_features"`
	// VolatileWriteCache, APST, HostThermalManagement, Timestamp: the drive has
	// the feature (VWC, APSTA, HCTMA, ONCS bit 6).
	VolatileWriteCache    bool `json:"volatile_write_cache"`
	APST                  bool `json:"apst"`
	HostThermalManagement bool `json:"host_thermal_management"`
	Timestamp             bool `json:"timestamp"`
	// ProtectionCapabilities is DPC of the common namespace: bits 2:0 types 1 to
	// 3, bit 3 last bytes, bit 4 first bytes.
	ProtectionCapabilities uint8 `json:"protection_capabilities"`
	// DeallocatedErrors: a new namespace can answer reads of deallocated blocks
	// with an error (NSFEAT bit 2 of the common namespace).
	DeallocatedErrors bool `json:"deallocated_errors,omitempty"`
	// SubsystemControllers are the CNTLIDs of the subsystem (Identify CNS 13h),
	// ascending; nil where the drive does not tell.
	SubsystemControllers []uint16 `json:"subsystem_controllers,omitempty"`
	// PowerStates are the power states, by number.
	PowerStates []PowerStateFact `json:"power_states,omitempty"`
}

// PowerStateFact is what planning looks at in a power state.
type PowerStateFact struct {
	// MaxMicrowatts is the state's limit; 0 means not reported.
	MaxMicrowatts uint64 `json:"max_microwatts"`
	// NonOperational states are a hint that a drive may ignore.
	NonOperational bool `json:"non_operational,omitempty"`
}

// LBAFormat is one way to format a namespace. Index means nothing across
// drives: choose by DataBytes and MetadataBytes.
type LBAFormat struct {
	Index         uint8  `json:"index"`
	DataBytes     uint32 `json:"data_bytes"`
	MetadataBytes uint32 `json:"metadata_bytes"`
	// RelativePerformance: 0 best to 3 degraded.
	RelativePerformance uint8 `json:"relative_performance"`
	// SizeGranularityBytes and CapacityGranularityBytes are from the namespace
	// granularity list; 0 means not reported.
	SizeGranularityBytes     uint64 `json:"size_granularity_bytes"`
	CapacityGranularityBytes uint64 `json:"capacity_granularity_bytes"`
}

// Namespace is one allocated namespace.
type Namespace struct {
	NSID uint32 `json:"nsid"`
	// SizeBlocks, CapacityBlocks and UsedBlocks are NSZE, NCAP and NUSE in
	// logical blocks; NUSE is shown as reported and decides nothing.
	SizeBlocks     uint64    `json:"size_blocks"`
	CapacityBlocks uint64    `json:"capacity_blocks"`
	UsedBlocks     uint64    `json:"used_blocks"`
	Format         LBAFormat `json:"format"`
	// FLBAS is the raw byte: format index and bit 4, metadata with the data.
	FLBAS uint8 `json:"flbas"`
	// Protection is DPS: bits 2:0 the type, bit 3 first bytes.
	Protection uint8 `json:"protection"`
	// NMIC bit 0: may be attached to more than one controller.
	NMIC     uint8  `json:"nmic"`
	NVMSetID uint16 `json:"nvm_set_id"`
	// EnduranceGroupID: 0 means none.
	EnduranceGroupID uint16 `json:"endurance_group_id"`
	ANAGroupID       uint32 `json:"ana_group_id"`
	// AllocatedBytes is NVMCAP: what the namespace takes of the drive; not
	// equal to its size on some drives, 0 means not reported.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	WriteProtected bool   `json:"write_protected,omitempty"`
	// DeallocatedErrors: reads of deallocated blocks can be made errors (NSFEAT bit 2).
	DeallocatedErrors bool `json:"deallocated_errors,omitempty"`
	// FormatPercentLeft is what remains of a format in progress, 0 to 100;
	// 0 means none is in progress or the drive does not tell.
	FormatPercentLeft uint8 `json:"format_percent_left,omitempty"`
	// NGUID and EUI64 are hexadecimal; empty means absent (all zero).
	NGUID string `json:"nguid,omitempty"`
	EUI64 string `json:"eui64,omitempty"`
	// Controllers are the CNTLIDs it is attached to (Identify CNS 12h), ascending.
	Controllers []uint16 `json:"controllers"`
	// Error says why the namespace could not be read; the other fields are
	// then zero.
	Error string `json:"error,omitempty"`
}

// Shared says that more than one controller may have the namespace.
func (n Namespace) Shared() bool { return n.NMIC&1 != 0 }

// Health is the part of the SMART log that planning looks at.
type Health struct {
	// CriticalWarning is the bit field of SMART byte 0; 0 is good.
	CriticalWarning uint8 `json:"critical_warning"`
	// SparePercent and SpareThresholdPercent: 0 to 100.
	SparePercent          uint8 `json:"spare_percent"`
	SpareThresholdPercent uint8 `json:"spare_threshold_percent"`
	// SpareReported is false where both are 0: emulated drives report that.
	SpareReported bool `json:"spare_reported"`
	// UsedPercent is percentage used, 0 to 255; it may exceed 100.
	UsedPercent uint8 `json:"used_percent"`
	// TemperatureCelsius is the composite temperature; nil when not reported.
	TemperatureCelsius *int `json:"temperature_celsius,omitempty"`
	// MediaErrors and UnsafeShutdowns are counters since manufacture.
	MediaErrors     nvmespec.Uint128 `json:"media_errors"`
	UnsafeShutdowns nvmespec.Uint128 `json:"unsafe_shutdowns"`
}

// Firmware is the firmware slot log.
type Firmware struct {
	// ActiveSlot is 1 to 7.
	ActiveSlot uint8 `json:"active_slot"`
	// NextSlot is the slot of the next reset; 0 means no change pending.
	NextSlot  uint8    `json:"next_slot"`
	Revisions []string `json:"revisions"`
}

// Problem is something that could not be read.
type Problem struct {
	What  string `json:"what"`
	NSID  uint32 `json:"nsid,omitempty"`
	Error string `json:"error"`
}

// ReadOptions say how an inventory is read.
type ReadOptions struct {
	// Transport is what the caller found out: "pcie", "sim", "tcp".
	Transport string
	Clock     nvmeioctl.Clock
	// Features are those to read; none by default.
	Features FeatureNeed
}

// InventorySchema names the JSON form of an Inventory.
const InventorySchema = "nvop.inventory/1"

// What a Problem is about, where others look for it.
const (
	ProblemNamespaceList = "namespace list"
	ProblemSMART         = "SMART log"
	ProblemSanitize      = "sanitize status"
	ProblemFirmwareSlots = "firmware slots"
)

// ReadIdentity reads which controller this is.
func ReadIdentity(ctx context.Context, dev nvmeioctl.Device) (nvmeioctl.Identity, error) {
	return admin.Identity(ctx, dev)
}

// ReadInventory reads everything planning needs. It sends reading commands
// only. It fails when the controller itself cannot be identified; everything
// else that cannot be read is listed in Problems.
func ReadInventory(ctx context.Context, dev nvmeioctl.Device, o ReadOptions) (Inventory, error) {
	c, err := admin.IdentifyController(ctx, dev)
	if err != nil {
		return Inventory{}, err
	}
	inv := Inventory{
		Schema: InventorySchema, TakenAt: o.Clock.Wall(), Address: dev.String(), Identity: admin.IdentityOf(c), Transport: o.Transport,
		Formats: []LBAFormat{}, Namespaces: []Namespace{},
	}
	if inv.Controller, err = controllerFacts(c); err != nil {
		return Inventory{}, &nvmeioctl.OpError{Op: "identify controller", Dev: dev.String(), Err: err}
	}
	inv.readNamespaces(ctx, dev)
	inv.readControllers(ctx, dev)
	inv.readFormats(ctx, dev, c)
	inv.readGranularity(ctx, dev, c)
	inv.readHealth(ctx, dev)
	inv.readFirmware(ctx, dev, c)
	inv.readSanitize(ctx, dev, c)
	inv.readSelfTest(ctx, dev, c)
	inv.readFeatures(ctx, dev, o.Features)
	return inv, ctx.Err()
}

// unread says why something of the whole drive could not be read; false where it
// was, or where the drive does not have it.
func (inv Inventory) unread(what string) (why string, unread bool) {
	for _, p := range inv.Problems {
		if p.What == what && p.NSID == 0 {
			return p.Error, true
		}
	}
	return "", false
}

func (inv *Inventory) problem(what string, nsid uint32, err error) {
	inv.Problems = append(inv.Problems, Problem{What: what, NSID: nsid, Error: err.Error()})
}

func controllerFacts(c nvmespec.Controller) (Controller, error) {
	total, ok1 := c.TotalCapacityBytes.Uint64()
	unallocated, ok2 := c.UnallocatedCapacityBytes.Uint64()
	if !ok1 || !ok2 {
		return Controller{}, fmt.Errorf("a capacity beyond 2^64 bytes (total %s, unallocated %s)", c.TotalCapacityBytes, c.UnallocatedCapacityBytes)
	}
	facts := Controller{
		FirmwareRevision: c.FirmwareRevision, Version: c.Version.String(),
		NamespaceManagement: c.HasNamespaceManagement(),
		FormatNVM:           c.Admin&nvmespec.AdminFormat != 0,
		SecurityCommands:    c.Admin&nvmespec.AdminSecurity != 0,
		MultiController:     c.MultiPath&nvmespec.MultiController != 0,
		FormatAllNamespaces: c.Format&nvmespec.FormatAllNamespaces != 0,
		EraseAllNamespaces:  c.Format&nvmespec.EraseAllNamespaces != 0,
		CryptographicErase:  c.Format&nvmespec.FormatCryptoErase != 0,
		NoBroadcastFormat:   c.Format&nvmespec.FormatNoBroadcast != 0,
		MaxNSID:             c.NamespaceIDMax, MaxNamespaces: c.AllowedNamespacesMax,
		TotalBytes: total, UnallocatedBytes: unallocated,
		VendorID: c.VendorID, SaveFeatures: c.IO&nvmespec.IOSaveFeatures != 0, VolatileWriteCache: c.VolatileWriteCache, APST: c.APST,
		HostThermalManagement: c.HostThermalManagement, Timestamp: c.IO&nvmespec.IOTimestamp != 0,
	}
	for _, s := range c.PowerStates {
		facts.PowerStates = append(facts.PowerStates, PowerStateFact{MaxMicrowatts: uint64(s.MaxPower), NonOperational: s.NonOperational})
	}
	return facts, nil
}

func (inv *Inventory) readNamespaces(ctx context.Context, dev nvmeioctl.Device) {
	management := inv.Controller.NamespaceManagement
	ids, err := readIDs(ctx, dev, management)
	if err != nil {
		inv.problem(ProblemNamespaceList, 0, err)
		return
	}
	for _, nsid := range ids {
		n, err := readNamespace(ctx, dev, nsid, management, inv.Identity.CNTLID)
		if err != nil {
			n = Namespace{NSID: nsid, Controllers: []uint16{}, Error: err.Error()}
			inv.problem("namespace", nsid, err)
		}
		inv.Namespaces = append(inv.Namespaces, n)
	}
}

// readControllers reads which controllers there are to attach to. A controller
// outside a subsystem may not have the list: then only those seen are known.
func (inv *Inventory) readControllers(ctx context.Context, dev nvmeioctl.Device) {
	if !inv.Controller.NamespaceManagement {
		return
	}
	if ids, err := admin.Controllers(ctx, dev); err == nil && len(ids) > 0 {
		inv.Controller.SubsystemControllers = ids
	}
}

// knownControllers are the controllers a namespace can be attached to, as far as
// was found out: those listed, the one that is open, and those that have one.
func (inv Inventory) knownControllers() []uint16 {
	ids := append(slices.Clone(inv.Controller.SubsystemControllers), inv.Identity.CNTLID)
	for _, n := range inv.Namespaces {
		ids = append(ids, n.Controllers...)
	}
	return sortedIDs(ids)
}

func (inv *Inventory) readFormats(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) {
	common, _, err := admin.CommonNamespace(ctx, dev, c)
	if err != nil {
		inv.problem("LBA formats", 0, err)
		return
	}
	inv.Controller.ProtectionCapabilities = common.ProtectionCapabilities
	inv.Controller.DeallocatedErrors = common.Features&nvmespec.NamespaceDeallocErrors != 0
	inv.readExtendedFormats(ctx, dev, c)
	for _, f := range common.Formats {
		inv.Formats = append(inv.Formats, fromFormat(f))
	}
}

// readExtendedFormats asks whether LBA formats above 15 can be used.
func (inv *Inventory) readExtendedFormats(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) {
	if c.Attributes&nvmespec.AttrExtendedLBAFormats == 0 {
		return
	}
	v, err := admin.GetFeature(ctx, dev, admin.FeatureRequest{Feature: nvmespec.FeatureHostBehavior})
	if err == nil {
		var h nvmespec.HostBehavior
		h, err = nvmespec.DecodeHostBehavior(v.Data)
		inv.Controller.ExtendedFormats = h.ExtendedLBAFormats
	}
	if err != nil {
		inv.problem("host behavior support", 0, err)
	}
}

func (inv *Inventory) readGranularity(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) {
	if c.Attributes&nvmespec.AttrNamespaceGranularity == 0 {
		return
	}
	list, err := admin.Granularity(ctx, dev)
	if err != nil {
		inv.problem("namespace granularity", 0, err)
		return
	}
	for i := range inv.Formats {
		f := &inv.Formats[i]
		g := list.For(f.Index)
		f.SizeGranularityBytes, f.CapacityGranularityBytes = g.SizeBytes, g.CapacityBytes
	}
}

func (inv *Inventory) readHealth(ctx context.Context, dev nvmeioctl.Device) {
	smart, err := admin.SMARTLog(ctx, dev, nvmespec.BroadcastNSID)
	if err != nil {
		inv.problem(ProblemSMART, 0, err)
		return
	}
	if allZero(smart) {
		inv.problem(ProblemSMART, 0, errAllZero)
		return
	}
	h := &Health{
		CriticalWarning: uint8(smart.CriticalWarning), SparePercent: smart.SparePercent,
		SpareThresholdPercent: smart.SpareThresholdPercent, UsedPercent: smart.UsedPercent,
		SpareReported: smart.SpareReported(), MediaErrors: smart.MediaErrors, UnsafeShutdowns: smart.UnsafeShutdowns,
	}
	if t, ok := smart.Temperature.Get(); ok {
		celsius := int(t)
		h.TemperatureCelsius = &celsius
	}
	inv.Health = h
}

// errAllZero: some drives answer so when asked to retain events (case LOG-01). No
// drive has no temperature, no spare, and has never been switched on.
var errAllZero = errors.New("every byte of it is zero, which no working drive reports")

func allZero(s nvmespec.SMART) bool {
	_, warm := s.Temperature.Get()
	return !warm && s.CriticalWarning == 0 && !s.SpareReported() && s.UsedPercent == 0 &&
		s.PowerOnHours == nvmespec.Uint128{} && s.PowerCycles == nvmespec.Uint128{} && s.DataUnitsWritten == nvmespec.Uint128{}
}

func (inv *Inventory) readFirmware(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) {
	slots, err := admin.FirmwareLog(ctx, dev)
	if err != nil {
		inv.problem(ProblemFirmwareSlots, 0, err)
		state := firmware.FromIdentify(c, nil)
		state.SlotsError = err.Error()
		inv.FirmwareState = &state
		return
	}
	state := firmware.FromIdentify(c, &slots)
	inv.FirmwareState = &state
	count := min(int(c.FirmwareSlotCount), len(slots.Revisions))
	inv.Firmware = &Firmware{ActiveSlot: slots.Active, NextSlot: slots.Next, Revisions: slots.Revisions[:count]}
}

// readSanitize reads the sanitize status log (81h): bytes 3:2 are the status,
// whose bits 2:0 are 2 while an operation is in progress.
func (inv *Inventory) readSanitize(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) {
	if c.Sanitize == 0 {
		return
	}
	const bytes = 512
	page, err := admin.GetLog(ctx, dev, admin.LogRequest{
		NSID: nvmespec.BroadcastNSID, Fields: nvmespec.GetLogFields{Log: nvmespec.LogIDSanitize, LengthBytes: bytes, RetainEvent: true}})
	if err != nil {
		inv.problem(ProblemSanitize, 0, err)
		return
	}
	inv.Controller.SanitizeInProgress = page[2]&7 == 2
}

// readSelfTest looks whether a self-test is in progress. Drives have been seen that
// announce self-tests and have no log of them.
func (inv *Inventory) readSelfTest(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) {
	if c.Admin&nvmespec.AdminSelfTest == 0 {
		return
	}
	l, err := admin.SelfTestLog(ctx, dev)
	if err != nil {
		inv.problem("self-test log", 0, err)
		return
	}
	inv.SelfTestRunning = l.Running()
}

// DescribeDrive says in one line which namespaces the drive has: for messages
// about a transaction that stopped.
func DescribeDrive(ctx context.Context, dev nvmeioctl.Device) (string, error) {
	c, err := admin.IdentifyController(ctx, dev)
	if err != nil {
		return "", err
	}
	ids, err := readIDs(ctx, dev, c.HasNamespaceManagement())
	if err != nil {
		return "", err
	}
	if len(ids) == 0 {
		return "the drive has NO namespace now", nil
	}
	parts := []string{}
	for _, nsid := range ids[:min(len(ids), describeMax)] {
		n, err := readNamespace(ctx, dev, nsid, c.HasNamespaceManagement(), c.ControllerID)
		if err != nil {
			n.Error = err.Error()
		}
		parts = append(parts, n.String())
	}
	if len(ids) > describeMax {
		parts = append(parts, fmt.Sprintf("%d more", len(ids)-describeMax))
	}
	return "the drive has now: " + strings.Join(parts, "; "), nil
}

// describeMax bounds a message: a drive may hold hundreds of namespaces.
const describeMax = 4

// readIDs reads which NSIDs are allocated, ascending. A drive without namespace
// management has no such list: there the active ones are all.
func readIDs(ctx context.Context, dev nvmeioctl.Device, management bool) ([]uint32, error) {
	if !management {
		return admin.ActiveNamespaces(ctx, dev)
	}
	return admin.AllocatedNamespaces(ctx, dev)
}

// readNamespace reads one namespace whole. Without management it is the one
// controller, here, that has it.
func readNamespace(ctx context.Context, dev nvmeioctl.Device, nsid uint32, management bool, here uint16) (Namespace, error) {
	get, op := admin.IdentifyAllocatedNamespace, "identify allocated namespace"
	if !management {
		get, op = admin.IdentifyNamespace, "identify namespace"
	}
	none := Namespace{NSID: nsid, Controllers: []uint16{}}
	id, err := get(ctx, dev, nsid)
	if err != nil {
		return none, err
	}
	n, err := fromIdentify(nsid, id)
	if err != nil {
		return none, &nvmeioctl.OpError{Op: op, Dev: dev.String(), NSID: nsid, Err: err}
	}
	if !management {
		n.Controllers = []uint16{here}
		return n, nil
	}
	n.Controllers, err = readControllers(ctx, dev, nsid)
	return n, err
}

// readControllers reads which controllers have a namespace: Identify CNS 12h,
// never the host's view of paths. Some drives claim namespace management and do
// not have that list (QEMU's controller outside a subsystem answers 0x4002);
// where such a drive has one controller, the namespace is active on it or
// attached to none.
func readControllers(ctx context.Context, dev nvmeioctl.Device, nsid uint32) ([]uint16, error) {
	ids, err := admin.AttachedControllers(ctx, dev, nsid)
	if err != nil && admin.IsUnsupported(err) {
		c, cerr := admin.IdentifyController(ctx, dev)
		if cerr != nil || c.MultiPath&nvmespec.MultiController != 0 {
			return []uint16{}, errors.Join(err, cerr)
		}
		active, aerr := admin.ActiveNamespaces(ctx, dev)
		if aerr != nil {
			return []uint16{}, errors.Join(err, aerr)
		}
		if slices.Contains(active, nsid) {
			return []uint16{c.ControllerID}, nil
		}
		return []uint16{}, nil
	}
	if ids == nil {
		ids = []uint16{}
	}
	return ids, err
}

// errInactive says that an NSID which a list named has nothing behind it.
var errInactive = errors.New("the namespace does not exist: the drive returned zeros")

// fromIdentify turns what the drive said into an inventory's namespace.
func fromIdentify(nsid uint32, id nvmespec.Namespace) (Namespace, error) {
	if !id.Active() {
		return Namespace{}, errInactive
	}
	f, ok := id.Format()
	if !ok {
		return Namespace{}, fmt.Errorf("the drive names LBA format %d, which it does not list", id.FormatIndex)
	}
	n := Namespace{
		NSID: nsid, SizeBlocks: id.SizeBlocks, CapacityBlocks: id.CapacityBlocks, UsedBlocks: id.UsedBlocks,
		Format: fromFormat(f), FLBAS: uint8(nvmespec.MakeFLBAS(id.FormatIndex, id.MetadataExtended)),
		Protection: id.Protection.Type & 7, NVMSetID: id.NVMSetID, EnduranceGroupID: id.EnduranceGroupID, ANAGroupID: id.ANAGroupID,
		WriteProtected: id.WriteProtected, FormatPercentLeft: id.FormatRemainingPercent.Or(0),
		NGUID: id.NGUID.String(), EUI64: id.EUI64.String(), Controllers: []uint16{},
	}
	if id.Protection.First {
		n.Protection |= 8
	}
	n.DeallocatedErrors = id.Features&nvmespec.NamespaceDeallocErrors != 0
	if id.Shared {
		n.NMIC = 1
	}
	n.AllocatedBytes, ok = id.NVMCapacityBytes.Uint64()
	if !ok {
		return Namespace{}, fmt.Errorf("its capacity of %s bytes is beyond 2^64", id.NVMCapacityBytes)
	}
	return n, nil
}

func fromFormat(f nvmespec.LBAFormat) LBAFormat {
	return LBAFormat{Index: f.Index, DataBytes: f.DataBytes, MetadataBytes: uint32(f.MetadataBytes), RelativePerformance: f.RelativePerformance}
}
