package pcie

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// IDs of extended capabilities (PCI Code and ID Assignment Specification).
const (
	extAER       = 0x0001
	extACS       = 0x000d
	extSRIOV     = 0x0010
	extLTR       = 0x0018
	extSecondary = 0x0019
	extDPC       = 0x001d
	extL1SS      = 0x001e
	extDevice3   = 0x002f
)

// UncorrectableErrors is a set of AER uncorrectable errors (PCIe Base 7.8.4.2).
type UncorrectableErrors uint32

// Uncorrectable errors that the rules speak of.
const (
	CompletionTimeout  UncorrectableErrors = 1 << 14
	MalformedTLP       UncorrectableErrors = 1 << 18
	UnsupportedRequest UncorrectableErrors = 1 << 20
)

// uncorrectableNames are by bit, named as the kernel does in sysfs.
var uncorrectableNames = [32]string{
	4: "DLP", 5: "SDES", 12: "TLP", 13: "FCP", 14: "CmpltTO", 15: "CmpltAbrt", 16: "UnxCmplt",
	17: "RxOF", 18: "MalfTLP", 19: "ECRC", 20: "UnsupReq", 21: "ACSViol", 22: "UncorrIntErr",
	23: "BlockedTLP", 24: "AtomicOpBlocked", 25: "TLPBlockedErr", 26: "PoisonTLPBlocked",
	27: "DMWrReqBlocked", 28: "IDECheck", 29: "MisIDETLP", 30: "PCRC_CHECK", 31: "TLPXlatBlocked",
}

// Names are the errors in the set, reserved bits left out.
func (e UncorrectableErrors) Names() []string { return bitNames(uint32(e), &uncorrectableNames) }

// MarshalJSON writes the names.
func (e UncorrectableErrors) MarshalJSON() ([]byte, error) { return json.Marshal(e.Names()) }

// CorrectableErrors is a set of AER correctable errors (PCIe Base 7.8.4.5).
type CorrectableErrors uint32

var correctableNames = [32]string{
	0: "RxErr", 6: "BadTLP", 7: "BadDLLP", 8: "Rollover", 12: "Timeout",
	13: "AdvNonFatalErr", 14: "CorrIntErr", 15: "HeaderOF",
}

// Names are the errors in the set, reserved bits left out.
func (e CorrectableErrors) Names() []string { return bitNames(uint32(e), &correctableNames) }

// MarshalJSON writes the names.
func (e CorrectableErrors) MarshalJSON() ([]byte, error) { return json.Marshal(e.Names()) }

func bitNames(set uint32, names *[32]string) []string {
	list := []string{}
	for bit, name := range names {
		if set&(1<<bit) != 0 && name != "" {
			list = append(list, name)
		}
	}
	return list
}

// AER is the Advanced Error Reporting capability.
type AER struct {
	Offset             uint16              `json:"offset"`
	Version            uint8               `json:"version"`
	Uncorrectable      UncorrectableErrors `json:"uncorrectable_status"`
	UncorrectableMask  UncorrectableErrors `json:"uncorrectable_mask"`
	UncorrectableFatal UncorrectableErrors `json:"uncorrectable_severity_fatal"`
	Correctable        CorrectableErrors   `json:"correctable_status"`
	CorrectableMask    CorrectableErrors   `json:"correctable_mask"`
	FirstError         uint8               `json:"first_error_bit"`
	FlitLogged         bool                `json:"flit_mode_logged"`
	ECRC               bool                `json:"ecrc_generation_enabled"`
	HeaderLog          [4]uint32           `json:"header_log"`
	// Header is the log decoded; nil when nothing is logged or when it was
	// logged in Flit Mode, whose layout is another.
	Header *TLPHeader `json:"header,omitempty"`
	// Root is what a root port has beside; nil elsewhere.
	Root *AERRoot `json:"root,omitempty"`
}

// AERRoot is the root port's part: whom it heard from.
type AERRoot struct {
	Command             uint32 `json:"command"`
	Status              uint32 `json:"status"`
	CorrectableSource   uint16 `json:"correctable_source"`
	UncorrectableSource uint16 `json:"uncorrectable_source"`
}

// ACS is Access Control Services: 1 source validation, 2 translation blocking,
// 4 request redirect, 8 completion redirect, 10h upstream forwarding, 20h
// egress control, 40h direct translated.
type ACS struct {
	Offset     uint16 `json:"offset"`
	Capability uint16 `json:"capability"`
	Control    uint16 `json:"control"`
}

// Redirects says that peer-to-peer traffic is sent up to the root port.
func (a *ACS) Redirects() bool { return a.Control&(4|8) != 0 }

// DPC is Downstream Port Containment. Status bit 0: triggered, the link is
// held down.
type DPC struct {
	Offset     uint16 `json:"offset"`
	Capability uint16 `json:"capability"`
	Control    uint16 `json:"control"`
	Status     uint16 `json:"status"`
	Source     uint16 `json:"source"`
	Triggered  bool   `json:"triggered"`
}

// LTR is Latency Tolerance Reporting: the latency the platform allows, in
// nanoseconds; 0 for none given.
type LTR struct {
	Offset    uint16 `json:"offset"`
	SnoopNS   uint64 `json:"max_snoop_latency_ns"`
	NoSnoopNS uint64 `json:"max_no_snoop_latency_ns"`
}

// Substates is a set of L1 substates: 1 PCI-PM L1.2, 2 PCI-PM L1.1, 4 ASPM
// L1.2, 8 ASPM L1.1.
type Substates uint8

// Names are the substates in the set.
func (s Substates) Names() []string {
	return bitNames(uint32(s), &[32]string{0: "PCI-PM_L1.2", 1: "PCI-PM_L1.1", 2: "ASPM_L1.2", 3: "ASPM_L1.1"})
}

// MarshalJSON writes the names.
func (s Substates) MarshalJSON() ([]byte, error) { return json.Marshal(s.Names()) }

// L1SS is the L1 PM Substates capability.
type L1SS struct {
	Offset    uint16    `json:"offset"`
	Supported Substates `json:"supported"`
	// Capable: L1 PM substates are supported at all (capability bit 4).
	Capable bool      `json:"capable"`
	Enabled Substates `json:"enabled"`
	// ThresholdNS is the latency tolerance from which on L1.2 is entered, in
	// nanoseconds; -1 for a reserved scale.
	ThresholdNS int64 `json:"ltr_l12_threshold_ns"`
}

// SRIOV is Single Root I/O Virtualization.
type SRIOV struct {
	Offset   uint16 `json:"offset"`
	Enabled  bool   `json:"enabled"`
	TotalVFs uint16 `json:"total_vfs"`
	NumVFs   uint16 `json:"num_vfs"`
	FirstVF  uint16 `json:"first_vf_offset"`
	Stride   uint16 `json:"vf_stride"`
}

// Secondary is the Secondary PCI Express capability (8 GT/s and above).
type Secondary struct {
	Offset uint16 `json:"offset"`
	// LaneErrors has a bit for each lane that saw an error.
	LaneErrors uint32 `json:"lane_error_status"`
}

// Device3 is the Device 3 capability (PCIe 6.0).
type Device3 struct {
	Offset         uint16 `json:"offset"`
	Tag14Completer bool   `json:"tag_14bit_completer"`
	Tag14Requester bool   `json:"tag_14bit_requester"`
	L0pSupported   bool   `json:"l0p_supported"`
	Tag14          bool   `json:"tag_14bit_enabled"`
	// InitialWidthCode is the width the link came up with: 0 x1, 1 x2, 2 x4,
	// 3 x8, 4 x16; 5 to 7 are reserved.
	InitialWidthCode uint8 `json:"initial_width_code"`
}

// decodeExtended decodes the extended capabilities that the rules need. Of
// several with the same ID the first counts.
func (f *Function) decodeExtended(v view) {
	decoders := map[uint16]func(view, Capability) bool{
		extAER: f.decodeAER, extACS: f.decodeACS, extDPC: f.decodeDPC, extLTR: f.decodeLTR,
		extL1SS: f.decodeL1SS, extSRIOV: f.decodeSRIOV, extSecondary: f.decodeSecondary, extDevice3: f.decodeDevice3,
	}
	for _, c := range f.Capabilities {
		decode, known := decoders[c.ID]
		if !c.Extended || !known {
			continue
		}
		delete(decoders, c.ID)
		if !decode(v, c) {
			f.problem("extended capability %04xh at %03xh does not fit in what was read", c.ID, c.Offset)
		}
	}
}

func (f *Function) decodeAER(v view, c Capability) bool {
	at := int(c.Offset)
	if !v.has(at, 0x2c) {
		return false
	}
	control := v.u32(at + 0x18)
	a := &AER{
		Offset: c.Offset, Version: c.Version,
		Uncorrectable: UncorrectableErrors(v.u32(at + 0x04)), UncorrectableMask: UncorrectableErrors(v.u32(at + 0x08)),
		UncorrectableFatal: UncorrectableErrors(v.u32(at + 0x0c)),
		Correctable:        CorrectableErrors(v.u32(at + 0x10)), CorrectableMask: CorrectableErrors(v.u32(at + 0x14)),
		FirstError: uint8(control & 0x1f), ECRC: control&(1<<6) != 0, FlitLogged: control&(1<<18) != 0,
		HeaderLog: [4]uint32{v.u32(at + 0x1c), v.u32(at + 0x20), v.u32(at + 0x24), v.u32(at + 0x28)},
	}
	if a.HeaderLog != [4]uint32{} && !a.FlitLogged {
		h := DecodeTLPHeader(a.HeaderLog)
		a.Header = &h
	}
	rooted := f.Express != nil && (f.Express.Type == RootPort || f.Express.Type == EventCollector)
	if rooted && v.has(at+0x2c, 12) {
		a.Root = &AERRoot{
			Command: v.u32(at + 0x2c), Status: v.u32(at + 0x30),
			CorrectableSource: v.u16(at + 0x34), UncorrectableSource: v.u16(at + 0x36),
		}
	}
	f.AER = a
	return true
}

func (f *Function) decodeACS(v view, c Capability) bool {
	at := int(c.Offset)
	f.ACS = &ACS{Offset: c.Offset, Capability: v.u16(at + 4), Control: v.u16(at + 6)}
	return v.has(at, 8)
}

func (f *Function) decodeDPC(v view, c Capability) bool {
	at := int(c.Offset)
	f.DPC = &DPC{
		Offset: c.Offset, Capability: v.u16(at + 4), Control: v.u16(at + 6), Status: v.u16(at + 8), Source: v.u16(at + 10),
		Triggered: v.u16(at+8)&1 != 0,
	}
	return v.has(at, 12)
}

func (f *Function) decodeLTR(v view, c Capability) bool {
	at := int(c.Offset)
	f.LTR = &LTR{Offset: c.Offset, SnoopNS: latencyNS(v.u16(at + 4)), NoSnoopNS: latencyNS(v.u16(at + 6))}
	return v.has(at, 8)
}

// latencyNS decodes an LTR value: 10 bits and a scale of 32^n nanoseconds.
// Scales 6 and 7 are reserved and give 0.
func latencyNS(word uint16) uint64 {
	scale := word >> 10 & 7
	if scale > 5 {
		return 0
	}
	return uint64(word&0x3ff) << (5 * scale)
}

func (f *Function) decodeL1SS(v view, c Capability) bool {
	at := int(c.Offset)
	capability, control := v.u32(at+4), v.u32(at+8)
	s := &L1SS{
		Offset: c.Offset, Supported: Substates(capability & 0xf), Capable: capability&(1<<4) != 0,
		Enabled: Substates(control & 0xf), ThresholdNS: -1,
	}
	if scale := control >> 29; scale <= 5 {
		s.ThresholdNS = int64(control>>16&0x3ff) << (5 * scale)
	}
	f.L1SS = s
	return v.has(at, 16)
}

func (f *Function) decodeSRIOV(v view, c Capability) bool {
	at := int(c.Offset)
	f.SRIOV = &SRIOV{
		Offset: c.Offset, Enabled: v.u16(at+8)&1 != 0, TotalVFs: v.u16(at + 0x0e), NumVFs: v.u16(at + 0x10),
		FirstVF: v.u16(at + 0x14), Stride: v.u16(at + 0x16),
	}
	return v.has(at, 0x40)
}

func (f *Function) decodeSecondary(v view, c Capability) bool {
	f.Secondary = &Secondary{Offset: c.Offset, LaneErrors: v.u32(int(c.Offset) + 8)}
	return v.has(int(c.Offset), 12)
}

func (f *Function) decodeDevice3(v view, c Capability) bool {
	at := int(c.Offset)
	capability, control, status := v.u32(at+4), v.u32(at+8), v.u32(at+0xc)
	f.Device3 = &Device3{
		Offset: c.Offset, Tag14Completer: capability&2 != 0, Tag14Requester: capability&4 != 0,
		L0pSupported: capability&8 != 0, Tag14: control&4 != 0, InitialWidthCode: uint8(status & 7),
	}
	return v.has(at, 16)
}

// TLPHeader is a packet header as AER logs it, outside Flit Mode (PCIe Base
// 2.2). It is evidence: a malformed packet's length is the payload that was
// too large.
type TLPHeader struct {
	// Kind is "MWr64", "MRd32", "CplD", ...; "unknown" otherwise.
	Kind string `json:"kind"`
	// PayloadBytes is the data the packet carries; 0 for a packet without.
	PayloadBytes int `json:"payload_bytes"`
	// RequestBytes is the data a read asks for; 0 for other packets.
	RequestBytes int `json:"request_bytes,omitempty"`
	// Requester is bus:device.function of who asked. Domain is not in a packet.
	Requester string `json:"requester,omitempty"`
	// Completer is who answers, in a completion alone.
	Completer string `json:"completer,omitempty"`
	Tag       uint16 `json:"tag"`
	// Address is that of a memory request.
	Address uint64 `json:"address,omitempty"`
	Format  uint8  `json:"fmt"`
	Type    uint8  `json:"type"`
}

// DecodeTLPHeader decodes the four double words of an AER header log.
func DecodeTLPHeader(dw [4]uint32) TLPHeader {
	h := TLPHeader{Format: uint8(dw[0] >> 29), Type: uint8(dw[0] >> 24 & 0x1f), Kind: "unknown"}
	length := int(dw[0] & 0x3ff)
	if length == 0 {
		length = 1024
	}
	if h.Format >= 4 { // a prefix: what follows is shifted
		h.Kind = "prefix"
		return h
	}
	withData, long := h.Format&2 != 0, h.Format&1 != 0
	if withData {
		h.PayloadBytes = length * 4
	}
	h.Tag = uint16(dw[1]>>8&0xff) | uint16(dw[0]>>19&1)<<8 | uint16(dw[0]>>23&1)<<9
	h.Requester = routingID(uint16(dw[1] >> 16))
	switch h.Type {
	case 0x00, 0x01, 0x0c, 0x0d, 0x0e, 0x1b: // memory, locked, AtomicOps, deferrable write
		h.memory(dw, withData, long, length)
	case 0x02:
		h.Kind, h.Address = choose(withData, "IOWr", "IORd"), uint64(dw[2]&^3)
	case 0x04, 0x05:
		h.Kind = choose(withData, "CfgWr", "CfgRd") + fmt.Sprint(h.Type-4)
	case 0x0a, 0x0b:
		h.Kind = choose(h.Type == 0x0b, choose(withData, "CplDLk", "CplLk"), choose(withData, "CplD", "Cpl"))
		h.Completer, h.Requester = h.Requester, routingID(uint16(dw[2]>>16))
		h.Tag = h.Tag&0x300 | uint16(dw[2]>>8&0xff)
	default:
		if h.Type >= 0x10 && h.Type <= 0x17 {
			h.Kind = choose(withData, "MsgD", "Msg")
		}
	}
	return h
}

// memory decodes what memory requests and AtomicOps share.
func (h *TLPHeader) memory(dw [4]uint32, withData, long bool, length int) {
	switch h.Type {
	case 0x00:
		h.Kind = choose(withData, "MWr", "MRd")
	case 0x01:
		h.Kind = "MRdLk"
	case 0x1b:
		h.Kind = "DMWr"
	default:
		h.Kind = [...]string{"FetchAdd", "Swap", "CAS"}[h.Type-0x0c]
	}
	if !withData {
		h.RequestBytes = length * 4
	}
	h.Kind += choose(long, "64", "32")
	h.Address = uint64(dw[2] &^ 3)
	if long {
		h.Address = uint64(dw[2])<<32 | uint64(dw[3]&^3)
	}
}

func routingID(id uint16) string {
	return fmt.Sprintf("%02x:%02x.%d", id>>8, id>>3&0x1f, id&7)
}

func choose(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

// timeoutText is a completion timeout for people.
func timeoutText(x *Express2) string {
	low, high := x.TimeoutRange()
	if high == 0 {
		return fmt.Sprintf("reserved code %d", x.TimeoutCode)
	}
	return fmt.Sprintf("%s to %s", durationText(low), durationText(high))
}

func durationText(d time.Duration) string {
	units := []struct {
		d    time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}}
	i := slices.IndexFunc(units, func(u struct {
		d    time.Duration
		name string
	}) bool {
		return d >= u.d
	})
	if i < 0 {
		return d.String()
	}
	return fmt.Sprintf("%g%s", float64(d)/float64(units[i].d), units[i].name)
}
