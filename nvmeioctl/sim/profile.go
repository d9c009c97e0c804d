package sim

import (
	"fmt"
	"strings"
	"time"

	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
	"nvop/nvmeioctl/sim/ftl"
)

// Profile describes a drive model: what its controller reports, what it
// accepts, and the flash behind it. It is plain data and is stored whole in a
// drive's state file, so that a drive made by an older version keeps its
// character. The zero value is not a drive; take one from [Profiles].
type Profile struct {
	// Name is how the command line names the profile, "pblaze7-7940-7.68tb".
	Name string `json:"name"`
	// Summary is one line for people.
	Summary string `json:"summary"`

	// Model and Firmware are ASCII, at most 40 and 8 characters.
	Model    string `json:"model"`
	Firmware string `json:"firmware"`
	// SerialPrefix starts the default serial number.
	SerialPrefix string `json:"serial_prefix"`
	// VendorID and SubsystemVendorID are PCI ids (Identify Controller VID, SSVID).
	VendorID          uint16 `json:"vendor_id"`
	SubsystemVendorID uint16 `json:"subsystem_vendor_id"`
	// OUI is the 24-bit IEEE identifier in its usual order, 0x8c1553.
	OUI uint32 `json:"oui"`
	// Version is the NVMe version as the VER register has it: 0x00020000 is 2.0.
	Version uint32 `json:"version"`

	// CapacityBytes is the total NVM capacity (TNVMCAP), in bytes.
	CapacityBytes uint64 `json:"capacity_bytes"`
	// AllocationBytes is the unit in which namespace capacity is allocated, in
	// bytes; at least 1.
	AllocationBytes uint64 `json:"allocation_bytes"`
	// ReportsGranularity says that the controller tells AllocationBytes
	// (CTRATT bit 7, Identify CNS 16h).
	ReportsGranularity bool `json:"reports_granularity"`
	// MaxNamespaces is how many namespaces can exist and the highest NSID (NN
	// and MNAN); 1 to 1024.
	MaxNamespaces uint32 `json:"max_namespaces"`
	// FirstController is the CNTLID of the first controller; further ones follow.
	FirstController uint16 `json:"first_controller"`
	// Formats are the LBA formats in the order the model lists them, at most 64.
	// A model with more than 16 has extended LBA formats (CTRATT bit 15): hosts see
	// and use those above only if they have enabled them (Host Behavior Support).
	Formats []Format `json:"formats"`
	// FactoryFormat is the index of the format the drive is delivered with.
	FactoryFormat uint8 `json:"factory_format"`
	// NamespaceFeatures is NSFEAT of every namespace.
	NamespaceFeatures uint8 `json:"namespace_features"`

	// AdminCommands is OACS, NVMCommands ONCS, FormatAttributes FNA,
	// LogAttributes LPA, EventSupport OAES, as Identify Controller has them.
	AdminCommands    uint16 `json:"admin_commands"`
	NVMCommands      uint16 `json:"nvm_commands"`
	FormatAttributes uint8  `json:"format_attributes"`
	LogAttributes    uint8  `json:"log_attributes"`
	EventSupport     uint32 `json:"event_support"`
	// Sanitize is SANICAP; 0 is a drive that cannot be sanitized, as those are
	// that an older version of this program made.
	Sanitize uint32 `json:"sanitize,omitempty"`
	// MaxTransferBytes bounds Data of one command (MDTS), a power of two times
	// 4096; 0 means no limit.
	MaxTransferBytes uint32 `json:"max_transfer_bytes"`
	// ErrorLogEntries is how many entries the error log keeps, 1 to 256.
	ErrorLogEntries int `json:"error_log_entries"`
	// WarningKelvin and CriticalKelvin are the composite temperature
	// thresholds (WCTEMP, CCTEMP), kelvin.
	WarningKelvin  uint16 `json:"warning_kelvin"`
	CriticalKelvin uint16 `json:"critical_kelvin"`
	// VolatileWriteCache says that there is one (VWC bit 0). Drives with
	// power-loss protection have none.
	VolatileWriteCache bool `json:"volatile_write_cache"`
	// PowerStates are the power state descriptors, 1 to 32.
	PowerStates []PowerState `json:"power_states"`
	// AutonomousTransitions is APSTA bit 0.
	AutonomousTransitions bool `json:"autonomous_transitions"`

	// FirmwareSlots is 1 to 7.
	FirmwareSlots uint8 `json:"firmware_slots"`
	// Slot1ReadOnly is FRMW bit 0.
	Slot1ReadOnly bool `json:"slot1_read_only"`
	// ActivatesWithoutReset is FRMW bit 4.
	ActivatesWithoutReset bool `json:"activates_without_reset"`
	// FirmwareGranularityBytes is FWUG, in bytes, a multiple of 4096; 0 means
	// no information, ^0 no restriction.
	FirmwareGranularityBytes uint32 `json:"firmware_granularity_bytes"`
	// MaxActivation is MTFA: how long an activation stops the controller; a
	// multiple of 100 ms, 0 means not reported.
	MaxActivation time.Duration `json:"max_activation_ns"`

	// EnduranceGroup says that log 09h exists for endurance group 1 (CTRATT bit 4).
	EnduranceGroup bool `json:"endurance_group"`
	// OCPLog says that log C0h exists with the OCP layout.
	OCPLog bool `json:"ocp_log"`
	// VendorLog is the layout of log CAh by its name in the table of package
	// vendor, "memblaze-ca-v2"; empty for none.
	VendorLog string `json:"vendor_log"`
	// VendorPowerFeature says that vendor feature C6h switches the power limit
	// (Memblaze: 0 is 25 W; cases PWR-11).
	VendorPowerFeature bool `json:"vendor_power_feature"`

	Flash Flash `json:"flash"`
}

// Format is an LBA format: bytes of data and of metadata per logical block.
type Format struct {
	DataBytes     uint32 `json:"data_bytes"` // a power of two, at least 512
	MetadataBytes uint16 `json:"metadata_bytes"`
	// RelativePerformance is 0 (best) to 3 (degraded).
	RelativePerformance uint8 `json:"relative_performance"`
}

// PowerState is one power state descriptor.
type PowerState struct {
	MaxMilliwatts uint32 `json:"max_milliwatts"`
	// IdleMilliwatts and ActiveMilliwatts are 0 where the model reports none.
	IdleMilliwatts   uint32 `json:"idle_milliwatts"`
	ActiveMilliwatts uint32 `json:"active_milliwatts"`
	NonOperational   bool   `json:"non_operational"`
	// EntryMicroseconds and ExitMicroseconds are latencies; 0 is not reported.
	EntryMicroseconds uint32 `json:"entry_us"`
	ExitMicroseconds  uint32 `json:"exit_us"`
	// Relative values 0 (best) to 31, for reads and writes alike.
	RelativeThroughput uint8 `json:"relative_throughput"`
	RelativeLatency    uint8 `json:"relative_latency"`
}

// Flash is what the flash model is made from. Times are calibrated on the
// published figures kept here: the model solves for its own constants, so a
// profile says what is known, not what was derived from it.
type Flash struct {
	// Layout is how the flash is built. Where it is known, UsableBytes,
	// NominalBytes, IndirectionBytes and FloorWAF are what follows from it (see
	// [Flash.Build]) and nothing else is accepted; the zero value, as of drives
	// that an older version of this program made, leaves them as they are given.
	Layout ftl.Layout `json:"layout,omitzero"`

	// CellBits is 3 for TLC, 4 for QLC.
	CellBits uint8 `json:"cell_bits"`
	// UsableBytes is T: the physical bytes that garbage collection works in.
	UsableBytes uint64 `json:"usable_bytes"`
	// NominalBytes is the binary capacity of the dies, 8 TiB for a drive sold as
	// 7.68 TB; 0 when not known. The model does not need it, a prediction does.
	NominalBytes uint64 `json:"nominal_bytes,omitempty"`
	// IndirectionBytes is the size of a mapping unit; a smaller random write
	// costs a read-modify-write of one unit.
	IndirectionBytes uint32 `json:"indirection_bytes"`
	// FloorWAF is w0: write amplification by parity and metadata alone, as
	// sequential writes show it; 1.00 to 1.04.
	FloorWAF float64 `json:"floor_waf"`
	// RatedCycles is how many program/erase cycles make 100 percent used.
	RatedCycles uint32 `json:"rated_cycles"`
	// CyclesPublished says that the maker states RatedCycles; else they are inferred.
	CyclesPublished bool `json:"cycles_published,omitempty"`
	// Ratings are the endurance the maker warrants, by exported capacity.
	Ratings []Rating `json:"ratings,omitempty"`

	// CompressionRatio is what data shrinks to on its way to the flash, 0.25 to 1
	// (which 0 means too): write amplification can then be below 1, and the flash
	// holds more.
	CompressionRatio float64 `json:"compression_ratio,omitempty"`
	// Shrinks says that failed blocks are lost to the flash instead of being
	// made up for by spare ones: write amplification rises as the drive wears.
	Shrinks bool `json:"shrinks,omitempty"`

	// Separates says that the drive keeps data that is rewritten often apart from
	// the rest: skewed writes then cost less. No maker says whether it does.
	Separates bool `json:"separates,omitempty"`

	// BufferBytes is how much written data waits to be programmed; a mapping unit
	// that is written again meanwhile is programmed once. 0 is no such buffer. It
	// is protected from power loss unless the drive has a volatile write cache.
	BufferBytes uint64 `json:"buffer_bytes,omitempty"`
	// DrainLatency is what a flush, or a write that must be on the medium (Force
	// Unit Access), takes longer where the buffer is not protected.
	DrainLatency time.Duration `json:"drain_latency_ns,omitempty"`

	// SLCShare is the part of the capacity that an SLC cache takes before it is
	// full, 0 (there is none) to 0.5. SLCWriteBytesPerSecond is its rate, which
	// random writes have too; SLCFoldBytesPerSecond how fast it is emptied while
	// the drive has nothing else to do.
	SLCShare               float64 `json:"slc_share,omitempty"`
	SLCWriteBytesPerSecond float64 `json:"slc_write_bytes_per_second,omitempty"`
	SLCFoldBytesPerSecond  float64 `json:"slc_fold_bytes_per_second,omitempty"`

	// RandomWriteIOPS is the steady state of 4 KiB uniform random writes over
	// a namespace of RandomWriteBytes: the point that a and b of
	// t = a*W + b*(W-1) are calibrated on.
	RandomWriteIOPS  float64 `json:"random_write_iops"`
	RandomWriteBytes uint64  `json:"random_write_bytes"`
	// CollectRatio is r = b/a: what collecting a page costs beside programming it.
	CollectRatio float64 `json:"collect_ratio"`
	// RandomReadIOPS is 4 KiB random reads, at every capacity.
	RandomReadIOPS float64 `json:"random_read_iops"`
	// SequentialReadBytesPerSecond and SequentialWriteBytesPerSecond are 128 KiB streams.
	SequentialReadBytesPerSecond  float64 `json:"sequential_read_bytes_per_second"`
	SequentialWriteBytesPerSecond float64 `json:"sequential_write_bytes_per_second"`
	// ReadLatency and WriteLatency are 4 KiB at queue depth 1.
	ReadLatency  time.Duration `json:"read_latency_ns"`
	WriteLatency time.Duration `json:"write_latency_ns"`
	// MixFactor scales the harmonic law of mixed reads and writes (specs: 0.87
	// for the TLC drives measured); 1 is the law itself.
	MixFactor float64 `json:"mix_factor"`

	// SpareThresholdPercent is the available spare threshold of the SMART log.
	SpareThresholdPercent uint8 `json:"spare_threshold_percent"`
}

// Rating is a warranted endurance: so many bytes of host writes over the
// warranty of a drive that exports so many.
type Rating struct {
	CapacityBytes uint64 `json:"capacity_bytes"`
	HostBytes     uint64 `json:"host_bytes"`
}

// LookupProfile finds a profile by its name.
func LookupProfile(name string) (Profile, bool) {
	for _, p := range Profiles() {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Validate says what makes the profile impossible, or returns nil. A profile
// read from a state file is checked with it before anything is built on it.
func (p *Profile) Validate() error {
	type check struct {
		ok   bool
		what string
	}
	checks := []check{
		{p.Name != "" && printable(p.Name), "name must be printable and not empty"},
		{len(p.Model) > 0 && len(p.Model) <= 40 && printable(p.Model), "model must be 1 to 40 ASCII characters"},
		{len(p.Firmware) > 0 && len(p.Firmware) <= 8 && printable(p.Firmware), "firmware must be 1 to 8 ASCII characters"},
		{len(p.SerialPrefix) <= 8 && printable(p.SerialPrefix), "serial prefix must be at most 8 ASCII characters"},
		{p.OUI < 1<<24, "oui must fit in 24 bits"},
		{p.CapacityBytes > 0 && p.CapacityBytes < 1<<60, "capacity must be 1 B to 1 EiB"},
		{p.AllocationBytes > 0 && p.AllocationBytes <= 1<<40, "allocation unit must be 1 B to 1 TiB"},
		{p.MaxNamespaces >= 1 && p.MaxNamespaces <= 1024, "namespaces must be 1 to 1024"},
		{p.FirstController <= 0xFF00, "first controller must be at most 0xff00"},
		{len(p.Formats) >= 1 && len(p.Formats) <= nvmespec.MaxLBAFormats, "formats must be 1 to 64"},
		{int(p.FactoryFormat) < len(p.Formats), "factory format must be one of the formats"},
		{p.MaxTransferBytes%4096 == 0 && p.MaxTransferBytes&(p.MaxTransferBytes-1) == 0, "transfer limit must be 0 or a power of two from 4096"},
		{p.ErrorLogEntries >= 1 && p.ErrorLogEntries <= 256, "error log must have 1 to 256 entries"},
		{len(p.PowerStates) >= 1 && len(p.PowerStates) <= 32, "power states must be 1 to 32"},
		{p.FirmwareSlots >= 1 && p.FirmwareSlots <= 7, "firmware slots must be 1 to 7"},
		{p.MaxActivation >= 0 && p.MaxActivation%(100*time.Millisecond) == 0 && p.MaxActivation < 6554*time.Second, "activation time must be 0 to 6553 s in steps of 100 ms"},
		{p.VendorLog == "" || knownVendorLog(p), "vendor log must be a layout of this vendor, or empty"},
		{!p.namespaceManagement() || p.formatSupported(), "namespace management needs Format NVM"},
	}
	for _, c := range checks {
		if !c.ok {
			return fmt.Errorf("profile %q: %s", p.Name, c.what)
		}
	}
	for i, f := range p.Formats {
		if f.DataBytes < 512 || f.DataBytes > 1<<16 || f.DataBytes&(f.DataBytes-1) != 0 || f.RelativePerformance > 3 {
			return fmt.Errorf("profile %q: format %d: data must be a power of two from 512 to 65536, relative performance 0 to 3", p.Name, i)
		}
	}
	if p.CapacityBytes < uint64(p.Formats[p.FactoryFormat].DataBytes) {
		return fmt.Errorf("profile %q: capacity is less than one logical block", p.Name)
	}
	return p.Flash.validate(p)
}

// Build sets the layout of the flash, and all that follows from it.
func (f *Flash) Build(l ftl.Layout) {
	f.Layout = l
	f.UsableBytes, f.NominalBytes, f.FloorWAF = l.UsableBytes(), l.NominalBytes(), l.FloorWAF()
	f.IndirectionBytes = uint32(l.UnitBytes)
}

// checkLayout says where the layout and what follows from it do not agree.
func (f *Flash) checkLayout() error {
	if !f.Layout.Known() {
		return nil
	}
	if err := f.Layout.Validate(); err != nil {
		return err
	}
	var b Flash
	b.Build(f.Layout)
	if f.UsableBytes != b.UsableBytes || f.NominalBytes != b.NominalBytes || f.IndirectionBytes != b.IndirectionBytes || f.FloorWAF != b.FloorWAF {
		return fmt.Errorf("the layout of the flash has %d usable bytes of %d, mapping units of %d and a floor of %g, not %d of %d, %d and %g",
			b.UsableBytes, b.NominalBytes, b.IndirectionBytes, b.FloorWAF, f.UsableBytes, f.NominalBytes, f.IndirectionBytes, f.FloorWAF)
	}
	return nil
}

func (f *Flash) validate(p *Profile) error {
	if err := f.checkLayout(); err != nil {
		return fmt.Errorf("profile %q: %w", p.Name, err)
	}
	switch {
	case f.UsableBytes <= p.CapacityBytes || f.UsableBytes >= 1<<61:
		return fmt.Errorf("profile %q: flash must be larger than the capacity", p.Name)
	case f.IndirectionBytes < 512 || f.IndirectionBytes > 1<<20 || f.IndirectionBytes&(f.IndirectionBytes-1) != 0:
		return fmt.Errorf("profile %q: mapping unit must be a power of two from 512 B to 1 MiB", p.Name)
	case !(f.FloorWAF >= 1 && f.FloorWAF <= 1.04):
		return fmt.Errorf("profile %q: floor of write amplification must be 1.00 to 1.04", p.Name)
	case f.RatedCycles == 0 || f.SpareThresholdPercent > 100 || f.CellBits < 1 || f.CellBits > 5:
		return fmt.Errorf("profile %q: rated cycles, spare threshold or cell bits out of range", p.Name)
	case f.CompressionRatio != 0 && !(f.CompressionRatio >= 0.25 && f.CompressionRatio <= 1):
		return fmt.Errorf("profile %q: compression must be to 0.25 to 1 of the size", p.Name)
	case f.RandomWriteBytes == 0 || f.RandomWriteBytes >= f.UsableBytes:
		return fmt.Errorf("profile %q: the calibration point must be smaller than the flash", p.Name)
	}
	for _, v := range []float64{f.RandomWriteIOPS, f.RandomReadIOPS, f.SequentialReadBytesPerSecond, f.SequentialWriteBytesPerSecond, f.MixFactor} {
		if !(v > 0 && v < 1e18) {
			return fmt.Errorf("profile %q: rates and the mix factor must be positive", p.Name)
		}
	}
	if !(f.CollectRatio >= 0 && f.CollectRatio <= 10) || f.ReadLatency <= 0 || f.WriteLatency <= 0 || f.ReadLatency > time.Minute || f.WriteLatency > time.Minute {
		return fmt.Errorf("profile %q: collect ratio must be 0 to 10, latencies positive", p.Name)
	}
	switch {
	case f.BufferBytes > ftl.MaxBufferUnits*uint64(f.IndirectionBytes) || f.BufferBytes > p.CapacityBytes/2:
		return fmt.Errorf("profile %q: write buffer must hold at most %d mapping units and half of the capacity", p.Name, ftl.MaxBufferUnits)
	case f.DrainLatency < 0 || f.DrainLatency > time.Minute:
		return fmt.Errorf("profile %q: latency of draining the buffer must be 0 to a minute", p.Name)
	case !(f.SLCShare >= 0 && f.SLCShare <= 0.5):
		return fmt.Errorf("profile %q: SLC cache must be 0 to 0.5 of the capacity", p.Name)
	case f.SLCShare > 0 && !(f.SLCWriteBytesPerSecond > 0 && f.SLCWriteBytesPerSecond < 1e12 && f.SLCFoldBytesPerSecond >= 1e6 && f.SLCFoldBytesPerSecond < 1e12):
		return fmt.Errorf("profile %q: rates of the SLC cache must be positive", p.Name)
	}
	return nil
}

// compression is CompressionRatio with its default.
func (f *Flash) compression() float64 {
	if f.CompressionRatio == 0 {
		return 1
	}
	return f.CompressionRatio
}

// SLCBytes is what the SLC cache holds; 0 is no cache.
func (p *Profile) SLCBytes() uint64 { return uint64(p.Flash.SLCShare * float64(p.CapacityBytes)) }

// holds is how many bytes of the host's data the flash has room for.
func (f *Flash) holds() uint64 { return uint64(float64(f.UsableBytes) / f.compression()) }

func knownVendorLog(p *Profile) bool {
	l, ok := vendor.LookupName(p.VendorLog)
	return ok && l.VendorID == p.VendorID && l.LogID == nvmespec.LogIDVendorHealth
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7E })
}

func (p *Profile) formatSupported() bool     { return p.AdminCommands&oacsFormat != 0 }
func (p *Profile) namespaceManagement() bool { return p.AdminCommands&oacsNamespaces != 0 }
func (p *Profile) firmwareCommands() bool    { return p.AdminCommands&oacsFirmware != 0 }
func (p *Profile) extendedFormats() bool     { return len(p.Formats) > plainFormats }
func (p *Profile) selfTest() bool            { return p.AdminCommands&oacsSelfTest != 0 }
func (p *Profile) lbaStatus() bool           { return p.AdminCommands&oacsLBAStatus != 0 }

// Bits of OACS, LPA, FNA, OAES and CTRATT (NVMe Base 2.x, Identify Controller).
const (
	// plainFormats is how many LBA formats hosts see that know of no more.
	plainFormats = 16

	oacsFormat     = 1 << 1
	oacsFirmware   = 1 << 2
	oacsNamespaces = 1 << 3
	oacsSelfTest   = 1 << 4
	oacsLBAStatus  = 1 << 9

	lpaEffects    = 1 << 1
	lpaExtended   = 1 << 2
	lpaTelemetry  = 1 << 3
	lpaPersistent = 1 << 4
	lpaSupported  = 1 << 5

	fnaFormatAll    = 1 << 0
	fnaEraseAll     = 1 << 1
	fnaCrypto       = 1 << 2
	fnaNoBroadcast  = 1 << 3
	oaesNamespace   = 1 << 8
	ctrattEndurance = 1 << 4
	ctrattGranular  = 1 << 7
)
