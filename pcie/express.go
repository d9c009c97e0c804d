package pcie

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Offsets in the PCI Express capability (PCIe Base 7.5.3).
const (
	offExpFlags   = 0x02
	offExpDevCap  = 0x04
	offExpDevCtl  = 0x08
	offExpDevSta  = 0x0a
	offExpLnkCap  = 0x0c
	offExpLnkCtl  = 0x10
	offExpLnkSta  = 0x12
	offExpSltCap  = 0x14
	offExpSltCtl  = 0x18
	offExpSltSta  = 0x1a
	offExpDevCap2 = 0x24
	offExpDevCtl2 = 0x28
	offExpLnkCap2 = 0x2c
	offExpLnkCtl2 = 0x30
	offExpLnkSta2 = 0x32

	expressV1Bytes = 0x14 // up to and with the link registers
	expressV2Bytes = 0x34 // up to and with Link Status 2
)

// Fields of Device Control that can be changed here.
const (
	maskMaxPayload     = 0x00e0
	maskMaxReadRequest = 0x7000
)

// PortType is the Device/Port Type of a function (PCIe Base 7.5.3.2).
type PortType uint8

// The types of functions.
const (
	Endpoint           PortType = 0x0
	LegacyEndpoint     PortType = 0x1
	RootPort           PortType = 0x4
	UpstreamPort       PortType = 0x5
	DownstreamPort     PortType = 0x6
	ToPCIBridge        PortType = 0x7
	FromPCIBridge      PortType = 0x8
	IntegratedEndpoint PortType = 0x9 // in the root complex; no link
	EventCollector     PortType = 0xa // in the root complex; no link
)

func (t PortType) String() string {
	switch t {
	case Endpoint:
		return "endpoint"
	case LegacyEndpoint:
		return "legacy endpoint"
	case RootPort:
		return "root port"
	case UpstreamPort:
		return "switch upstream port"
	case DownstreamPort:
		return "switch downstream port"
	case ToPCIBridge:
		return "bridge to PCI"
	case FromPCIBridge:
		return "bridge from PCI"
	case IntegratedEndpoint:
		return "root complex integrated endpoint"
	case EventCollector:
		return "root complex event collector"
	}
	return fmt.Sprintf("unknown type %d", uint8(t))
}

// MarshalText writes the type as String does.
func (t PortType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// HasLink says that the function stands at a link: not so inside a root complex.
func (t PortType) HasLink() bool { return t != IntegratedEndpoint && t != EventCollector }

// IsEndpoint says that the function ends a path.
func (t PortType) IsEndpoint() bool { return t == Endpoint || t == LegacyEndpoint }

// downstream says that the function's link leads away from the root.
func (t PortType) downstream() bool {
	return t == RootPort || t == DownstreamPort || t == FromPCIBridge
}

// Speed is a link speed code: 1 is 2.5 GT/s, 6 is 64 GT/s. 0 and anything
// else means that there is no data.
type Speed uint8

// The link speeds, named by generation.
const (
	Gen1 Speed = iota + 1
	Gen2
	Gen3
	Gen4
	Gen5
	Gen6
)

// Known says that the code means a speed.
func (s Speed) Known() bool { return s >= Gen1 && s <= Gen6 }

// GTPerSecond is the speed in GT/s per lane; 0 for no data.
func (s Speed) GTPerSecond() float64 {
	if !s.Known() {
		return 0
	}
	return [...]float64{2.5, 5, 8, 16, 32, 64}[s-1]
}

func (s Speed) String() string {
	if !s.Known() {
		return "unknown speed"
	}
	return strconv.FormatFloat(s.GTPerSecond(), 'f', -1, 64) + " GT/s"
}

// MarshalJSON writes GT/s as a number; null for no data.
func (s Speed) MarshalJSON() ([]byte, error) {
	if !s.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(s.GTPerSecond())
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Speed) UnmarshalJSON(text []byte) error {
	var gt *float64
	if err := json.Unmarshal(text, &gt); err != nil {
		return err
	}
	*s = 0
	for code := Gen1; gt != nil && code <= Gen6; code++ {
		if code.GTPerSecond() == *gt {
			*s = code
		}
	}
	return nil
}

// Payload is a size in bytes as Max_Payload_Size and Max_Read_Request_Size
// encode it: 128 << code. Codes 6 and 7 are reserved.
type Payload uint16

// Valid says that the size is one of 128 to 4096: the encoding was not reserved.
func (p Payload) Valid() bool { return p >= 128 && p <= 4096 && p&(p-1) == 0 }

func payloadOf(code uint32) Payload { return Payload(128) << (code & 7) }

// code is the three-bit encoding.
func (p Payload) code() uint16 {
	code := uint16(0)
	for p > 128 {
		p >>= 1
		code++
	}
	return code
}

// Width is a number of lanes. 0 and 63 mean that there is no data.
type Width uint8

// Known says that the number is one a link can have.
func (w Width) Known() bool { return w >= 1 && w <= 32 }

func (w Width) String() string { return fmt.Sprintf("x%d", uint8(w)) }

// Express is the PCI Express capability. Registers are kept raw beside the
// fields so that a change can be planned from exactly what was read.
type Express struct {
	Offset  uint16   `json:"offset"`
	Version uint8    `json:"version"`
	Type    PortType `json:"type"`
	Slot    bool     `json:"slot_implemented"`
	// FlitCapable: Flit Mode is supported (PCIe 6.0, Flags bit 15).
	FlitCapable bool `json:"flit_mode_supported"`

	// MaxPayloadSupported is the largest payload the function can take, in
	// bytes. DevCap 2:0 (MPSS).
	MaxPayloadSupported Payload `json:"max_payload_supported_bytes"`
	// MaxPayload is the largest payload it sends, and takes, in bytes. DevCtl 7:5.
	MaxPayload Payload `json:"max_payload_bytes"`
	// MaxReadRequest is the largest read it asks for, in bytes. DevCtl 14:12.
	MaxReadRequest Payload `json:"max_read_request_bytes"`

	ExtendedTagSupported bool  `json:"extended_tag_supported"`
	ExtendedTag          bool  `json:"extended_tag_enabled"`
	PhantomFunctions     uint8 `json:"phantom_functions_supported"`
	RoleBasedErrors      bool  `json:"role_based_error_reporting"`
	FunctionLevelReset   bool  `json:"function_level_reset"`
	// RxPayloadFixed: what it receives is limited by MaxPayloadSupported rather
	// than by MaxPayload (PCIe 6.0, DevCap bit 17).
	RxPayloadFixed bool `json:"rx_max_payload_fixed"`
	// MixedPayload: it can send to each target by that target's limit (PCIe
	// 6.0, DevCap bit 29).
	MixedPayload    bool `json:"mixed_max_payload"`
	TEEIO           bool `json:"tee_io"`
	RelaxedOrdering bool `json:"relaxed_ordering"`
	NoSnoop         bool `json:"no_snoop"`

	ReportCorrectable, ReportNonFatal, ReportFatal, ReportUnsupported bool `json:"-"`

	// Status bits of DevSta 5:0. The first four stay set until cleared.
	CorrectableDetected bool `json:"correctable_error_detected"`
	NonFatalDetected    bool `json:"nonfatal_error_detected"`
	FatalDetected       bool `json:"fatal_error_detected"`
	UnsupportedDetected bool `json:"unsupported_request_detected"`
	AuxPower            bool `json:"aux_power_detected"`
	TransactionsPending bool `json:"transactions_pending"`

	Link    *Link     `json:"link,omitempty"`
	SlotCap *SlotCap  `json:"slot,omitempty"`
	Second  *Express2 `json:"v2,omitempty"`

	DevCap uint32 `json:"devcap"`
	DevCtl uint16 `json:"devctl"`
	DevSta uint16 `json:"devsta"`
}

// ASPM is a set of active-state power management states: 1 L0s, 2 L1.
type ASPM uint8

func (a ASPM) String() string { return [...]string{"none", "L0s", "L1", "L0s L1"}[a&3] }

// MarshalText writes the set as String does.
func (a ASPM) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (a *ASPM) UnmarshalText(text []byte) error {
	for set := ASPM(0); set < 4; set++ {
		if set.String() == string(text) {
			*a = set
			return nil
		}
	}
	return fmt.Errorf("%.20q is no set of ASPM states", text)
}

// Link is the link registers: what the function could do, and does.
type Link struct {
	Port     uint8 `json:"port"`
	MaxSpeed Speed `json:"max_speed_gt_per_second"`
	MaxWidth Width `json:"max_width"`
	Speed    Speed `json:"speed_gt_per_second"`
	Width    Width `json:"width"`

	ASPMSupported ASPM `json:"aspm_supported"`
	ASPM          ASPM `json:"aspm_enabled"`
	// L0sExit and L1Exit are the exit latencies reported, as the three-bit
	// codes of LnkCap.
	L0sExit, L1Exit    uint8 `json:"-"`
	ClockPM            bool  `json:"clock_power_management"`
	SurpriseDown       bool  `json:"surprise_down_reporting"`
	DLLActiveReporting bool  `json:"data_link_active_reporting"`
	BandwidthNotify    bool  `json:"bandwidth_notification"`
	// ReadBoundaryBytes is the Read Completion Boundary: 64 or 128.
	ReadBoundaryBytes    int  `json:"read_completion_boundary_bytes"`
	Disabled             bool `json:"disabled"`
	CommonClock          bool `json:"common_clock"`
	AutoWidthDisabled    bool `json:"hardware_autonomous_width_disabled"`
	FlitDisabled         bool `json:"flit_mode_disabled"`
	Training             bool `json:"training"`
	DLLActive            bool `json:"data_link_active"`
	BandwidthChanged     bool `json:"bandwidth_management_status"`
	AutoBandwidthChanged bool `json:"autonomous_bandwidth_status"`

	LnkCap uint32 `json:"lnkcap"`
	LnkCtl uint16 `json:"lnkctl"`
	LnkSta uint16 `json:"lnksta"`
}

// SlotCap is what a port says about its slot.
type SlotCap struct {
	HotPlugSurprise bool   `json:"hot_plug_surprise"`
	HotPlug         bool   `json:"hot_plug_capable"`
	Number          uint16 `json:"number"`
	Presence        bool   `json:"presence_detected"`
	SltCap          uint32 `json:"sltcap"`
	SltCtl          uint16 `json:"sltctl"`
	SltSta          uint16 `json:"sltsta"`
}

// Express2 is the second half of the capability, which version 1 lacks.
type Express2 struct {
	// TimeoutRanges is a set of completion timeout ranges: 1 A, 2 B, 4 C, 8 D.
	TimeoutRanges           uint8 `json:"completion_timeout_ranges"`
	TimeoutDisableSupported bool  `json:"completion_timeout_disable_supported"`
	// TimeoutCode is the completion timeout in force, DevCtl2 3:0.
	TimeoutCode     uint8 `json:"completion_timeout_code"`
	TimeoutDisabled bool  `json:"completion_timeout_disabled"`
	ARISupported    bool  `json:"ari_forwarding_supported"`
	ARI             bool  `json:"ari_forwarding_enabled"`
	LTRSupported    bool  `json:"ltr_supported"`
	LTR             bool  `json:"ltr_enabled"`
	Tag10Completer  bool  `json:"tag_10bit_completer"`
	Tag10Requester  bool  `json:"tag_10bit_requester"`
	Tag10           bool  `json:"tag_10bit_enabled"`
	IDORequest      bool  `json:"ido_request_enabled"`
	IDOCompletion   bool  `json:"ido_completion_enabled"`

	// SpeedVector is LnkCap2 7:1 shifted down: bit 0 is 2.5 GT/s. 0 where the
	// register is not implemented.
	SpeedVector uint8 `json:"speed_vector"`
	// TargetSpeed is what a downstream port aims at, LnkCtl2 3:0.
	TargetSpeed       Speed `json:"target_speed_gt_per_second"`
	AutoSpeedDisabled bool  `json:"hardware_autonomous_speed_disabled"`
	EqualizationDone  bool  `json:"equalization_complete"`
	EqualizationAsked bool  `json:"equalization_requested"`
	Retimer           bool  `json:"retimer_detected"`
	FlitActive        bool  `json:"flit_mode_active"`

	DevCap2 uint32 `json:"devcap2"`
	DevCtl2 uint16 `json:"devctl2"`
	LnkCap2 uint32 `json:"lnkcap2"`
	LnkCtl2 uint16 `json:"lnkctl2"`
	LnkSta2 uint16 `json:"lnksta2"`
}

func (f *Function) decodeExpress(v view, at int) {
	if len(v) > legacyBytes {
		v = v[:legacyBytes] // the structure may not run into the extended space
	}
	flags := v.u16(at + offExpFlags)
	x := &Express{
		Offset: uint16(at), Version: uint8(flags & 0xf), Type: PortType(flags >> 4 & 0xf),
		Slot: flags&(1<<8) != 0, FlitCapable: flags&(1<<15) != 0,
	}
	need := offExpLnkCap
	if x.Type.HasLink() {
		need = expressV1Bytes
	}
	if !v.has(at, need) {
		f.problem("the PCI Express capability at %02xh does not fit", at)
		return
	}
	f.Express = x
	x.decodeDevice(v, at)
	if x.Type.HasLink() {
		x.Link = decodeLink(v, at)
	}
	if x.Slot && (x.Type.downstream()) && v.has(at+offExpSltCap, 8) {
		x.SlotCap = decodeSlot(v, at)
	}
	if x.Version < 2 {
		return
	}
	if !v.has(at, expressV2Bytes) {
		f.problem("the PCI Express capability at %02xh says version %d but does not fit", at, x.Version)
		return
	}
	x.Second = decodeSecond(v, at)
	if x.Link != nil {
		// The vector, where it is implemented, is the newer word.
		for s := Gen1; s <= Gen6; s++ {
			if x.Second.SpeedVector&(1<<(s-1)) != 0 {
				x.Link.MaxSpeed = s
			}
		}
	}
}

func (x *Express) decodeDevice(v view, at int) {
	capability, control, status := v.u32(at+offExpDevCap), v.u16(at+offExpDevCtl), v.u16(at+offExpDevSta)
	x.DevCap, x.DevCtl, x.DevSta = capability, control, status
	x.MaxPayloadSupported = payloadOf(capability)
	x.PhantomFunctions = 1<<(capability>>3&3) - 1
	x.ExtendedTagSupported = capability&(1<<5) != 0
	x.RoleBasedErrors = capability&(1<<15) != 0
	x.RxPayloadFixed = capability&(1<<17) != 0
	x.FunctionLevelReset = capability&(1<<28) != 0
	x.MixedPayload = capability&(1<<29) != 0
	x.TEEIO = capability&(1<<30) != 0

	x.ReportCorrectable, x.ReportNonFatal = control&1 != 0, control&2 != 0
	x.ReportFatal, x.ReportUnsupported = control&4 != 0, control&8 != 0
	x.RelaxedOrdering = control&(1<<4) != 0
	x.MaxPayload = payloadOf(uint32(control >> 5))
	x.ExtendedTag = control&(1<<8) != 0
	x.NoSnoop = control&(1<<11) != 0
	x.MaxReadRequest = payloadOf(uint32(control >> 12))

	x.CorrectableDetected, x.NonFatalDetected = status&1 != 0, status&2 != 0
	x.FatalDetected, x.UnsupportedDetected = status&4 != 0, status&8 != 0
	x.AuxPower, x.TransactionsPending = status&(1<<4) != 0, status&(1<<5) != 0
}

func decodeLink(v view, at int) *Link {
	capability, control, status := v.u32(at+offExpLnkCap), v.u16(at+offExpLnkCtl), v.u16(at+offExpLnkSta)
	l := &Link{
		Port: uint8(capability >> 24), MaxSpeed: Speed(capability & 0xf), MaxWidth: Width(capability >> 4 & 0x3f),
		Speed: Speed(status & 0xf), Width: Width(status >> 4 & 0x3f),
		ASPMSupported: ASPM(capability >> 10 & 3), ASPM: ASPM(control & 3),
		L0sExit: uint8(capability >> 12 & 7), L1Exit: uint8(capability >> 15 & 7),
		ClockPM: capability&(1<<18) != 0, SurpriseDown: capability&(1<<19) != 0,
		DLLActiveReporting: capability&(1<<20) != 0, BandwidthNotify: capability&(1<<21) != 0,
		ReadBoundaryBytes: 64, Disabled: control&(1<<4) != 0, CommonClock: control&(1<<6) != 0,
		AutoWidthDisabled: control&(1<<9) != 0, FlitDisabled: control&(1<<13) != 0,
		Training: status&(1<<11) != 0, DLLActive: status&(1<<13) != 0,
		BandwidthChanged: status&(1<<14) != 0, AutoBandwidthChanged: status&(1<<15) != 0,
		LnkCap: capability, LnkCtl: control, LnkSta: status,
	}
	if control&(1<<3) != 0 {
		l.ReadBoundaryBytes = 128
	}
	return l
}

func decodeSlot(v view, at int) *SlotCap {
	capability, control, status := v.u32(at+offExpSltCap), v.u16(at+offExpSltCtl), v.u16(at+offExpSltSta)
	return &SlotCap{
		HotPlugSurprise: capability&(1<<5) != 0, HotPlug: capability&(1<<6) != 0,
		Number: uint16(capability >> 19), Presence: status&(1<<6) != 0,
		SltCap: capability, SltCtl: control, SltSta: status,
	}
}

func decodeSecond(v view, at int) *Express2 {
	dcap, dctl := v.u32(at+offExpDevCap2), v.u16(at+offExpDevCtl2)
	lcap, lctl, lsta := v.u32(at+offExpLnkCap2), v.u16(at+offExpLnkCtl2), v.u16(at+offExpLnkSta2)
	return &Express2{
		TimeoutRanges: uint8(dcap & 0xf), TimeoutDisableSupported: dcap&(1<<4) != 0,
		TimeoutCode: uint8(dctl & 0xf), TimeoutDisabled: dctl&(1<<4) != 0,
		ARISupported: dcap&(1<<5) != 0, ARI: dctl&(1<<5) != 0,
		LTRSupported: dcap&(1<<11) != 0, LTR: dctl&(1<<10) != 0,
		Tag10Completer: dcap&(1<<16) != 0, Tag10Requester: dcap&(1<<17) != 0, Tag10: dctl&(1<<12) != 0,
		IDORequest: dctl&(1<<8) != 0, IDOCompletion: dctl&(1<<9) != 0,
		SpeedVector: uint8(lcap >> 1 & 0x7f),
		TargetSpeed: Speed(lctl & 0xf), AutoSpeedDisabled: lctl&(1<<5) != 0,
		EqualizationDone: lsta&(1<<1) != 0, EqualizationAsked: lsta&(1<<5) != 0,
		Retimer: lsta&(1<<6) != 0, FlitActive: lsta&(1<<10) != 0,
		DevCap2: dcap, DevCtl2: dctl, LnkCap2: lcap, LnkCtl2: lctl, LnkSta2: lsta,
	}
}

// TimeoutRange is the completion timeout in force, as a range; both 0 for a
// reserved code.
func (x *Express2) TimeoutRange() (low, high time.Duration) {
	const us, ms, s = time.Microsecond, time.Millisecond, time.Second
	switch x.TimeoutCode {
	case 0:
		return 50 * us, 50 * ms
	case 1:
		return 50 * us, 100 * us
	case 2:
		return 1 * ms, 10 * ms
	case 5:
		return 16 * ms, 55 * ms
	case 6:
		return 65 * ms, 210 * ms
	case 9:
		return 260 * ms, 900 * ms
	case 0xa:
		return 1 * s, 3500 * ms
	case 0xd:
		return 4 * s, 13 * s
	case 0xe:
		return 17 * s, 64 * s
	}
	return 0, 0
}

// Tags is how many reads the function can have outstanding, by the tags its
// settings allow: 32, 256, or 768 with 10-bit tags (of 1024, those with the
// two top bits zero are kept for completers that know 8 bits only).
func (x *Express) Tags() int {
	switch {
	case x.Second != nil && x.Second.Tag10:
		return 768
	case x.ExtendedTag:
		return 256
	}
	return 32
}

// Flit says that the link runs in Flit Mode.
func (x *Express) Flit() bool { return x.Second != nil && x.Second.FlitActive }
