package nvmespec

import (
	"encoding/json"
	"fmt"
	"slices"
)

// String names the log: "smart"; a number without a name is "0x..".
func (id LogID) String() string {
	switch id {
	case LogIDSupported:
		return "supported-logs"
	case LogIDError:
		return "error"
	case LogIDSMART:
		return "smart"
	case LogIDFirmware:
		return "fw"
	case LogIDChangedNamespaces:
		return "changed-ns"
	case LogIDEffects:
		return "effects"
	case LogIDSelfTest:
		return "self-test"
	case LogIDTelemetryHost:
		return "telemetry-host"
	case LogIDTelemetryController:
		return "telemetry-ctrl"
	case LogIDEnduranceGroup:
		return "endurance-group"
	case LogIDPredictableLatency:
		return "predictable-latency"
	case LogIDANA:
		return "ana"
	case LogIDPersistentEvents:
		return "events"
	case LogIDLBAStatus:
		return "lba-status"
	case LogIDEnduranceGroupEvents:
		return "endurance-group-events"
	case LogIDMediaUnits:
		return "media-units"
	case LogIDCapacityConfigurations:
		return "capacity-configurations"
	case LogIDFeatureEffects:
		return "feature-effects"
	case LogIDManagementEffects:
		return "management-effects"
	case LogIDLockdown:
		return "lockdown"
	case LogIDBootPartition:
		return "boot-partition"
	case LogIDFDPConfigurations:
		return "fdp-configs"
	case LogIDFDPUsage:
		return "fdp-usage"
	case LogIDFDPStatistics:
		return "fdp-stats"
	case LogIDFDPEvents:
		return "fdp-events"
	case LogIDReservation:
		return "reservation-notification"
	case LogIDSanitize:
		return "sanitize"
	}
	return fmt.Sprintf("0x%02x", uint8(id))
}

// MarshalText gives what String gives.
func (id LogID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (id *LogID) UnmarshalText(b []byte) error {
	for i := range 256 {
		if LogID(i).String() == string(b) {
			*id = LogID(i)
			return nil
		}
	}
	return fmt.Errorf("unknown log %q", b)
}

// PageSupport is one entry of the supported log pages log (00h) or of the feature
// identifiers supported and effects log (12h), as it stands on the wire.
type PageSupport uint32

// The bits of PageSupport: those of log 00h, then those of log 12h.
const (
	LogSupported       PageSupport = 1 << 0 // LSUPP
	LogIndexOffset     PageSupport = 1 << 1 // IOS: takes an index offset
	FeatureSupported   PageSupport = 1 << 0 // FSUPP
	FeatureUserData    PageSupport = 1 << 1 // UDCC: user data may change
	FeatureNamespace   PageSupport = 1 << 2 // NCC
	FeatureInventory   PageSupport = 1 << 3 // NIC
	FeatureController  PageSupport = 1 << 4 // CCC
	FeatureUUIDSelects PageSupport = 1 << 19
)

// Scope is FSP of log 12h, bits 31:20: what the feature belongs to (bit 0 a
// namespace, 1 the controller, 2 an NVM set, 3 an endurance group, 4 a domain, 5
// the subsystem, 6 controller data queue).
func (s PageSupport) Scope() uint16 { return uint16(s >> 20) }

// Lengths of the two logs of what is supported.
const (
	SupportedLogsSize  = 1024
	FeatureEffectsSize = 1024
)

// SupportedLogs is the supported log pages log (00h), by log identifier.
type SupportedLogs [256]PageSupport

// FeatureEffects is the feature identifiers supported and effects log (12h), by
// feature identifier.
type FeatureEffects [256]PageSupport

// Supports says that the drive has a log.
func (l SupportedLogs) Supports(id LogID) bool { return l[id]&LogSupported != 0 }

// Supports says that the drive has a feature.
func (e FeatureEffects) Supports(id FeatureID) bool { return e[id]&FeatureSupported != 0 }

func decodeSupport(b []byte, what string) (t [256]PageSupport, err error) {
	p, err := view(b, SupportedLogsSize, what)
	for i := range t {
		t[i] = PageSupport(p.u32(4 * i))
	}
	return t, err
}

func appendSupport(b []byte, t [256]PageSupport) []byte {
	b, p := grow(b, SupportedLogsSize)
	for i, v := range t {
		p.put32(4*i, uint32(v))
	}
	return b
}

// DecodeSupportedLogs reads log 00h.
func DecodeSupportedLogs(b []byte) (SupportedLogs, error) {
	t, err := decodeSupport(b, "supported log pages")
	return t, err
}

// Append appends the 1024 bytes of log 00h.
func (l SupportedLogs) Append(b []byte) []byte { return appendSupport(b, l) }

// DecodeFeatureEffects reads log 12h.
func DecodeFeatureEffects(b []byte) (FeatureEffects, error) {
	t, err := decodeSupport(b, "feature identifiers supported and effects")
	return t, err
}

// Append appends the 1024 bytes of log 12h.
func (e FeatureEffects) Append(b []byte) []byte { return appendSupport(b, e) }

// supportedLogJSON is one supported log in JSON.
type supportedLogJSON struct {
	LogID       uint8  `json:"log_id"`
	Name        string `json:"name"`
	IndexOffset bool   `json:"index_offset"`
	Raw         uint32 `json:"raw"`
}

// MarshalJSON lists the supported logs.
func (l SupportedLogs) MarshalJSON() ([]byte, error) {
	out := []supportedLogJSON{}
	for id, s := range l {
		if s&LogSupported != 0 {
			out = append(out, supportedLogJSON{uint8(id), LogID(id).String(), s&LogIndexOffset != 0, uint32(s)})
		}
	}
	return json.Marshal(struct {
		Logs []supportedLogJSON `json:"logs"`
	}{out})
}

// supportedFeatureJSON is one supported feature in JSON.
type supportedFeatureJSON struct {
	FeatureID  uint8    `json:"feature_id"`
	Name       string   `json:"name"`
	UserData   bool     `json:"user_data_change"`
	Namespace  bool     `json:"namespace_capability_change"`
	Inventory  bool     `json:"namespace_inventory_change"`
	Controller bool     `json:"controller_capability_change"`
	Scope      []string `json:"scope"`
	Raw        uint32   `json:"raw"`
}

// MarshalJSON lists the supported features.
func (e FeatureEffects) MarshalJSON() ([]byte, error) {
	scopes := []string{"namespace", "controller", "nvm_set", "endurance_group", "domain", "subsystem", "data_queue"}
	out := []supportedFeatureJSON{}
	for id, s := range e {
		if s&FeatureSupported == 0 {
			continue
		}
		out = append(out, supportedFeatureJSON{uint8(id), FeatureID(id).String(), s&FeatureUserData != 0, s&FeatureNamespace != 0,
			s&FeatureInventory != 0, s&FeatureController != 0, slices.Clip(flagBits(uint32(s.Scope()), scopes)), uint32(s)})
	}
	return json.Marshal(struct {
		Features []supportedFeatureJSON `json:"features"`
	}{out})
}

// TelemetryHeaderSize is the length of the header of a telemetry log, and of one
// data block.
const (
	TelemetryHeaderSize = 512
	TelemetryBlockBytes = 512
)

// Offsets of the header of the telemetry logs (07h host-initiated, 08h
// controller-initiated).
const (
	offTelLPI      = 0
	offTelIEEE     = 5
	offTelDALB1    = 8
	offTelDALB2    = 10
	offTelDALB3    = 12
	offTelDALB4    = 16
	offTelTHS      = 380
	offTelTHDGN    = 381
	offTelTCDA     = 382
	offTelTCDGN    = 383
	offTelRSNIDENT = 384
)

// TelemetryHeader is the header of a telemetry log. Data areas lie one in the
// other: area n is blocks 1 to LastBlocks[n-1], of 512 bytes each.
type TelemetryHeader struct {
	// Log is LPI: 07h host-initiated, 08h controller-initiated.
	Log LogID `json:"log"`
	// OUI is the IEEE OUI of who made the data, 24 bits; 0 is not reported.
	OUI uint32 `json:"ieee_oui"`
	// LastBlocks are the numbers of the last blocks of areas 1 to 4; 0 means that
	// the area is empty.
	LastBlocks [4]uint32 `json:"last_blocks"`
	// HostScope (THS) and HostGeneration (byte 381) are of a host-initiated log;
	// in a controller-initiated one byte 381 is its scope.
	HostScope      uint8 `json:"host_scope_raw"`
	HostGeneration uint8 `json:"host_generation_or_scope"`
	// ControllerDataAvailable says that the controller has captured data of its
	// own accord; ControllerGeneration counts those.
	ControllerDataAvailable bool  `json:"controller_data_available"`
	ControllerGeneration    uint8 `json:"controller_generation"`
	// Reason is the vendor's reason identifier, 128 bytes.
	Reason [128]byte `json:"-"`
}

// Areas is the highest data area that adds data, 0 for none.
func (h TelemetryHeader) Areas() int {
	areas := 0
	for i, n := range h.AreaBytes() {
		if n > 0 {
			areas = i + 1
		}
	}
	return areas
}

// SizeBytes is the length of the log up to and with a data area of 1..4: the
// header and 512 bytes a block. Areas lie one in the other, so a later one with a
// smaller number, which drives have reported for "empty", does not make it shorter.
func (h TelemetryHeader) SizeBytes(area int) uint64 {
	last := uint32(0)
	for i := range min(max(area, 0), len(h.LastBlocks)) {
		last = max(last, h.LastBlocks[i])
	}
	return TelemetryBlockBytes * (uint64(last) + 1)
}

// AreaBytes is what each of the areas adds to the one before, in bytes.
func (h TelemetryHeader) AreaBytes() [4]uint64 {
	var n [4]uint64
	for i := range n {
		n[i] = h.SizeBytes(i+1) - h.SizeBytes(i)
	}
	return n
}

// ReasonText is the reason identifier as printable characters.
func (h TelemetryHeader) ReasonText() string { return cleanText(h.Reason[:]) }

// telemetryJSON is TelemetryHeader in JSON, with what follows from it.
type telemetryJSON struct {
	telemetryPlain
	AreaBytes [4]uint64 `json:"area_bytes"`
	SizeBytes uint64    `json:"size_bytes"`
	Reason    string    `json:"reason,omitempty"`
}

type telemetryPlain TelemetryHeader

// MarshalJSON adds the sizes of the areas in bytes.
func (h TelemetryHeader) MarshalJSON() ([]byte, error) {
	return json.Marshal(telemetryJSON{telemetryPlain(h), h.AreaBytes(), h.SizeBytes(4), h.ReasonText()})
}

// DecodeTelemetryHeader reads the first 512 bytes of a telemetry log. Which of
// the two it is, is in the first byte; another value is an error.
func DecodeTelemetryHeader(b []byte) (TelemetryHeader, error) {
	p, err := view(b, TelemetryHeaderSize, "telemetry log")
	if err != nil {
		return TelemetryHeader{}, err
	}
	h := TelemetryHeader{
		Log: LogID(p.u8(offTelLPI)), OUI: uint32(p.uint(offTelIEEE, 3)),
		LastBlocks: [4]uint32{uint32(p.u16(offTelDALB1)), uint32(p.u16(offTelDALB2)), uint32(p.u16(offTelDALB3)), p.u32(offTelDALB4)},
		HostScope:  p.u8(offTelTHS), HostGeneration: p.u8(offTelTHDGN),
		ControllerDataAvailable: p.u8(offTelTCDA)&1 != 0, ControllerGeneration: p.u8(offTelTCDGN),
	}
	copy(h.Reason[:], p.bytes(offTelRSNIDENT, len(h.Reason)))
	if h.Log != LogIDTelemetryHost && h.Log != LogIDTelemetryController {
		return TelemetryHeader{}, fmt.Errorf("telemetry log: %w: its first byte is 0x%02x", ErrInvalidData, uint8(h.Log))
	}
	return h, nil
}

// Append appends the 512 bytes of the header. Last blocks above 65535 do not fit
// areas 1 to 3 and are held there.
func (h TelemetryHeader) Append(b []byte) []byte {
	b, p := grow(b, TelemetryHeaderSize)
	p.put8(offTelLPI, uint8(h.Log))
	p.put(offTelIEEE, 3, uint64(h.OUI))
	for i, off := range []int{offTelDALB1, offTelDALB2, offTelDALB3} {
		p.put16(off, uint16(min(h.LastBlocks[i], 0xFFFF)))
	}
	p.put32(offTelDALB4, h.LastBlocks[3])
	p.put8(offTelTHS, h.HostScope)
	p.put8(offTelTHDGN, h.HostGeneration)
	p.put8(offTelTCDA, bit8(h.ControllerDataAvailable, 0))
	p.put8(offTelTCDGN, h.ControllerGeneration)
	copy(p.bytes(offTelRSNIDENT, len(h.Reason)), h.Reason[:])
	return b
}
