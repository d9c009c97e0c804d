package nvmespec

import (
	"fmt"
	"slices"
)

// OCPHealthSize is the length of log C0h.
const OCPHealthSize = 512

// OCPLayout is one of the layouts that log C0h is known in, told apart by the
// GUID at byte 496.
type OCPLayout uint8

// The layouts.
const (
	// OCPDatacenter is the SMART / health information extended log of the OCP
	// Datacenter NVMe SSD specification, GUID AFD514C9-7C6F-4F9C-A4F2-BFEA2810AFC5.
	OCPDatacenter OCPLayout = 1
	// OCPHyperscale is the older layout of hyperscale boot drives, GUID
	// 65438878-ACD8-78A1-6642-1E0F92D76DC4. Byte 16 is not what was read, as in the
	// newer one, but what was written to SLC. Source of its offsets: nvme-cli
	// plugins/wdc, SCAO_V1.
	OCPHyperscale OCPLayout = 2
)

// String names the layout.
func (l OCPLayout) String() string {
	switch l {
	case OCPDatacenter:
		return "ocp-datacenter"
	case OCPHyperscale:
		return "ocp-hyperscale"
	}
	return "unknown"
}

// MarshalText gives what String gives.
func (l OCPLayout) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (l *OCPLayout) UnmarshalText(b []byte) error {
	for _, k := range []OCPLayout{OCPDatacenter, OCPHyperscale} {
		if k.String() == string(b) {
			*l = k
			return nil
		}
	}
	return fmt.Errorf("unknown layout %q", b)
}

// guid is the layout's GUID as its bytes stand in the log: the datacenter one
// least significant byte first, the hyperscale one in the order it is printed.
func (l OCPLayout) guid() [16]byte {
	switch l {
	case OCPDatacenter:
		return [16]byte{0xC5, 0xAF, 0x10, 0x28, 0xEA, 0xBF, 0xF2, 0xA4, 0x9C, 0x4F, 0x6F, 0x7C, 0xC9, 0x14, 0xD5, 0xAF}
	case OCPHyperscale:
		return [16]byte{0x65, 0x43, 0x88, 0x78, 0xAC, 0xD8, 0x78, 0xA1, 0x66, 0x42, 0x1E, 0x0F, 0x92, 0xD7, 0x6D, 0xC4}
	}
	return [16]byte{}
}

// Offsets of both layouts of log C0h. OCP Datacenter NVMe SSD Specification 2.x,
// "SMART / Health Information Extended".
const (
	offOCPVersion = 494
	offOCPGUID    = 496

	offOCPPMUW  = 0
	offOCPPMUR  = 16
	offOCPBUNBR = 32
	offOCPBUNBN = 38
	offOCPBSNBR = 40
	offOCPBSNBN = 46
	offOCPXRC   = 48
	offOCPUREC  = 56
	offOCPSEEC  = 64
	offOCPEEDE  = 72
	offOCPEECE  = 76
	offOCPSDPU  = 80
	offOCPRC    = 81
	offOCPMXUDE = 88
	offOCPMNUDE = 92
	offOCPNTTE  = 96
	offOCPCTS   = 97
	offOCPPCC   = 104
	offOCPICS   = 112
	offOCPPFB   = 120
	offOCPCPH   = 128
	offOCPUIO   = 136
	offOCPSVN   = 144
	offOCPNUSE  = 152
	offOCPPSC   = 160
	offOCPEEST  = 176
	offOCPPLRC  = 192
	offOCPPSCC  = 200
	offOCPNAEC  = 224

	offHSPMUWT  = 0
	offHSPMUWS  = 16
	offHSBUNBN  = 32
	offHSBUNBR  = 34
	offHSXRC    = 40
	offHSUREC   = 48
	offHSEECE   = 56
	offHSEEDE   = 64
	offHSSDPU   = 80
	offHSMNUDEC = 84
	offHSMXUDEC = 92
	offHSAVUDEC = 100
	offHSPCEC   = 148
	offHSPFBU   = 156
	offHSSVN    = 160
	offHSTNU    = 188
	offHSSEEC   = 202
	offHSRFSC   = 210
	offHSBSNBN  = 218
	offHSBSNBR  = 220
	offHSEEST   = 226
	offHSTTC    = 242
	offHSUIO    = 244
	offHSPMUR   = 252
	offHSPLRC   = 284
	offHSPSCC   = 292
)

// OCPHealth is log C0h. Fields that a layout does not have are not reported.
// Counts are since manufacture.
type OCPHealth struct {
	Layout OCPLayout `json:"layout"`
	// Version is the log page version, byte 494.
	Version uint16 `json:"version"`
	// PhysicalBytesWritten is what reached the medium, user and system data, in
	// bytes (PMUW; of TLC in the hyperscale layout).
	PhysicalBytesWritten Uint128 `json:"physical_written_bytes"`
	// SLCBytesWritten is what reached SLC in the hyperscale layout.
	SLCBytesWritten Opt[Uint128] `json:"slc_written_bytes"`
	// PhysicalBytesRead is PMUR, in bytes.
	PhysicalBytesRead Uint128 `json:"physical_read_bytes"`
	// Bad NAND blocks, raw counts (48 bits) and normalised (100 down to 0).
	BadUserBlocks             uint64 `json:"bad_user_blocks"`
	BadUserBlocksNormalised   uint16 `json:"bad_user_blocks_normalised"`
	BadSystemBlocks           uint64 `json:"bad_system_blocks"`
	BadSystemBlocksNormalised uint16 `json:"bad_system_blocks_normalised"`
	XORRecoveries             uint64 `json:"xor_recoveries"`
	UncorrectableReads        uint64 `json:"uncorrectable_reads"`
	SoftECCErrors             uint64 `json:"soft_ecc_errors"`
	// End-to-end errors are 32 bits in the datacenter layout.
	EndToEndDetected  uint64 `json:"end_to_end_detected"`
	EndToEndCorrected uint64 `json:"end_to_end_corrected"`
	// SystemDataUsedPercent is 0..255.
	SystemDataUsedPercent uint8 `json:"system_data_used_percent"`
	// Refreshes is a 56-bit count in the datacenter layout.
	Refreshes uint64 `json:"refreshes"`
	// Erase counts of the user data blocks (of TLC in the hyperscale layout). The
	// average is 0 where an old version of the datacenter layout has none.
	EraseCountMin uint64 `json:"erase_count_min"`
	EraseCountMax uint64 `json:"erase_count_max"`
	EraseCountAvg uint64 `json:"erase_count_avg"`
	// ThermalThrottles is the count of throttling events (8 bits in the datacenter
	// layout, 16 in the other) and ThermalThrottleStatus the present state.
	ThermalThrottles      uint16 `json:"thermal_throttles"`
	ThermalThrottleStatus uint8  `json:"thermal_throttle_status"`
	PCIeCorrectableErrors uint64 `json:"pcie_correctable_errors"`
	IncompleteShutdowns   uint32 `json:"incomplete_shutdowns"`
	FreeBlocksPercent     uint8  `json:"free_blocks_percent"`
	// CapacitorHealthPercent is 100 or more when healthy; FFFFh on the wire is
	// not reported.
	CapacitorHealthPercent Opt[uint16] `json:"capacitor_health_percent"`
	UnalignedIO            uint64      `json:"unaligned_io"`
	SecurityVersion        uint64      `json:"security_version"`
	// UsedBlocks is NUSE of the first namespace.
	UsedBlocks uint64  `json:"used_blocks"`
	PLPStarts  Uint128 `json:"plp_starts"`
	// EstimateBytes is the endurance estimate: how many bytes may be written over
	// the life.
	EstimateBytes     Uint128 `json:"endurance_estimate_bytes"`
	LinkRetrains      uint64  `json:"pcie_link_retrains"`
	PowerStateChanges uint64  `json:"power_state_changes"`
}

// MediaBytesWritten is all that reached the medium, in bytes.
func (h OCPHealth) MediaBytesWritten() Uint128 {
	return h.PhysicalBytesWritten.Add(h.SLCBytesWritten.Or(Uint128{}))
}

// DecodeOCPHealth reads log C0h. C0h is a vendor's number: bytes whose GUID is
// neither layout's are an error, since decoding them would invent numbers.
func DecodeOCPHealth(b []byte) (OCPHealth, error) {
	p, err := view(b, OCPHealthSize, "log C0h")
	if err != nil {
		return OCPHealth{}, err
	}
	h := OCPHealth{Version: p.u16(offOCPVersion)}
	for _, l := range []OCPLayout{OCPDatacenter, OCPHyperscale} {
		g := l.guid()
		if slices.Equal(p.bytes(offOCPGUID, 16), g[:]) {
			h.Layout = l
		}
	}
	switch {
	case h.Layout == 0:
		return OCPHealth{}, fmt.Errorf("log C0h: %w: unknown GUID %x", ErrInvalidData, p.bytes(offOCPGUID, 16))
	case h.Version == 0:
		return OCPHealth{}, fmt.Errorf("log C0h: %w: version 0", ErrInvalidData)
	case h.Layout == OCPDatacenter:
		h.decodeDatacenter(p)
	default:
		h.decodeHyperscale(p)
	}
	return h, nil
}

func (h *OCPHealth) decodeDatacenter(p page) {
	h.PhysicalBytesWritten = p.u128(offOCPPMUW)
	h.PhysicalBytesRead = p.u128(offOCPPMUR)
	h.BadUserBlocks, h.BadUserBlocksNormalised = p.uint(offOCPBUNBR, 6), p.u16(offOCPBUNBN)
	h.BadSystemBlocks, h.BadSystemBlocksNormalised = p.uint(offOCPBSNBR, 6), p.u16(offOCPBSNBN)
	h.XORRecoveries = p.u64(offOCPXRC)
	h.UncorrectableReads = p.u64(offOCPUREC)
	h.SoftECCErrors = p.u64(offOCPSEEC)
	h.EndToEndDetected, h.EndToEndCorrected = uint64(p.u32(offOCPEEDE)), uint64(p.u32(offOCPEECE))
	h.SystemDataUsedPercent = p.u8(offOCPSDPU)
	h.Refreshes = p.uint(offOCPRC, 7)
	h.EraseCountMax, h.EraseCountMin = uint64(p.u32(offOCPMXUDE)), uint64(p.u32(offOCPMNUDE))
	h.EraseCountAvg = p.u64(offOCPNAEC)
	h.ThermalThrottles, h.ThermalThrottleStatus = uint16(p.u8(offOCPNTTE)), p.u8(offOCPCTS)
	h.PCIeCorrectableErrors = p.u64(offOCPPCC)
	h.IncompleteShutdowns = p.u32(offOCPICS)
	h.FreeBlocksPercent = p.u8(offOCPPFB)
	if c := p.u16(offOCPCPH); c != 0xFFFF {
		h.CapacitorHealthPercent = Some(c)
	}
	h.UnalignedIO = p.u64(offOCPUIO)
	h.SecurityVersion = p.u64(offOCPSVN)
	h.UsedBlocks = p.u64(offOCPNUSE)
	h.PLPStarts = p.u128(offOCPPSC)
	h.EstimateBytes = p.u128(offOCPEEST)
	h.LinkRetrains = p.u64(offOCPPLRC)
	h.PowerStateChanges = p.u64(offOCPPSCC)
}

func (h OCPHealth) putDatacenter(p page) {
	p.put128(offOCPPMUW, h.PhysicalBytesWritten)
	p.put128(offOCPPMUR, h.PhysicalBytesRead)
	p.put(offOCPBUNBR, 6, h.BadUserBlocks)
	p.put16(offOCPBUNBN, h.BadUserBlocksNormalised)
	p.put(offOCPBSNBR, 6, h.BadSystemBlocks)
	p.put16(offOCPBSNBN, h.BadSystemBlocksNormalised)
	p.put64(offOCPXRC, h.XORRecoveries)
	p.put64(offOCPUREC, h.UncorrectableReads)
	p.put64(offOCPSEEC, h.SoftECCErrors)
	p.put32(offOCPEEDE, clip32(h.EndToEndDetected))
	p.put32(offOCPEECE, clip32(h.EndToEndCorrected))
	p.put8(offOCPSDPU, h.SystemDataUsedPercent)
	p.put(offOCPRC, 7, h.Refreshes)
	p.put32(offOCPMXUDE, clip32(h.EraseCountMax))
	p.put32(offOCPMNUDE, clip32(h.EraseCountMin))
	p.put64(offOCPNAEC, h.EraseCountAvg)
	p.put8(offOCPNTTE, uint8(min(h.ThermalThrottles, 0xFF)))
	p.put8(offOCPCTS, h.ThermalThrottleStatus)
	p.put64(offOCPPCC, h.PCIeCorrectableErrors)
	p.put32(offOCPICS, h.IncompleteShutdowns)
	p.put8(offOCPPFB, h.FreeBlocksPercent)
	p.put16(offOCPCPH, h.CapacitorHealthPercent.Or(0xFFFF))
	p.put64(offOCPUIO, h.UnalignedIO)
	p.put64(offOCPSVN, h.SecurityVersion)
	p.put64(offOCPNUSE, h.UsedBlocks)
	p.put128(offOCPPSC, h.PLPStarts)
	p.put128(offOCPEEST, h.EstimateBytes)
	p.put64(offOCPPLRC, h.LinkRetrains)
	p.put64(offOCPPSCC, h.PowerStateChanges)
}

func (h *OCPHealth) decodeHyperscale(p page) {
	h.PhysicalBytesWritten = p.u128(offHSPMUWT)
	h.SLCBytesWritten = Some(p.u128(offHSPMUWS))
	h.BadUserBlocksNormalised, h.BadUserBlocks = p.u16(offHSBUNBN), p.uint(offHSBUNBR, 6)
	h.XORRecoveries = p.u64(offHSXRC)
	h.UncorrectableReads = p.u64(offHSUREC)
	h.EndToEndCorrected, h.EndToEndDetected = p.u64(offHSEECE), p.u64(offHSEEDE)
	h.SystemDataUsedPercent = p.u8(offHSSDPU)
	h.EraseCountMin, h.EraseCountMax, h.EraseCountAvg = p.u64(offHSMNUDEC), p.u64(offHSMXUDEC), p.u64(offHSAVUDEC)
	h.PCIeCorrectableErrors = p.u64(offHSPCEC)
	h.FreeBlocksPercent = p.u8(offHSPFBU)
	h.SecurityVersion = p.u64(offHSSVN)
	h.UsedBlocks = p.u64(offHSTNU)
	h.SoftECCErrors = p.u64(offHSSEEC)
	h.Refreshes = p.u64(offHSRFSC)
	h.BadSystemBlocksNormalised, h.BadSystemBlocks = p.u16(offHSBSNBN), p.uint(offHSBSNBR, 6)
	h.EstimateBytes = p.u128(offHSEEST)
	h.ThermalThrottles = p.u16(offHSTTC)
	h.UnalignedIO = p.u64(offHSUIO)
	h.PhysicalBytesRead = p.u128(offHSPMUR)
	h.LinkRetrains = p.u64(offHSPLRC)
	h.PowerStateChanges = p.u64(offHSPSCC)
}

func (h OCPHealth) putHyperscale(p page) {
	p.put128(offHSPMUWT, h.PhysicalBytesWritten)
	p.put128(offHSPMUWS, h.SLCBytesWritten.Or(Uint128{}))
	p.put16(offHSBUNBN, h.BadUserBlocksNormalised)
	p.put(offHSBUNBR, 6, h.BadUserBlocks)
	p.put64(offHSXRC, h.XORRecoveries)
	p.put64(offHSUREC, h.UncorrectableReads)
	p.put64(offHSEECE, h.EndToEndCorrected)
	p.put64(offHSEEDE, h.EndToEndDetected)
	p.put8(offHSSDPU, h.SystemDataUsedPercent)
	p.put64(offHSMNUDEC, h.EraseCountMin)
	p.put64(offHSMXUDEC, h.EraseCountMax)
	p.put64(offHSAVUDEC, h.EraseCountAvg)
	p.put64(offHSPCEC, h.PCIeCorrectableErrors)
	p.put8(offHSPFBU, h.FreeBlocksPercent)
	p.put64(offHSSVN, h.SecurityVersion)
	p.put64(offHSTNU, h.UsedBlocks)
	p.put64(offHSSEEC, h.SoftECCErrors)
	p.put64(offHSRFSC, h.Refreshes)
	p.put16(offHSBSNBN, h.BadSystemBlocksNormalised)
	p.put(offHSBSNBR, 6, h.BadSystemBlocks)
	p.put128(offHSEEST, h.EstimateBytes)
	p.put16(offHSTTC, h.ThermalThrottles)
	p.put64(offHSUIO, h.UnalignedIO)
	p.put128(offHSPMUR, h.PhysicalBytesRead)
	p.put64(offHSPLRC, h.LinkRetrains)
	p.put64(offHSPSCC, h.PowerStateChanges)
}

// clip32 is v in 32 bits, held at the largest value.
func clip32(v uint64) uint32 { return uint32(min(v, 1<<32-1)) }

// Append appends the 512 bytes of the log in the layout of h.
func (h OCPHealth) Append(b []byte) []byte {
	b, p := grow(b, OCPHealthSize)
	if h.Layout == OCPHyperscale {
		h.putHyperscale(p)
	} else {
		h.Layout = OCPDatacenter
		h.putDatacenter(p)
	}
	p.put16(offOCPVersion, h.Version)
	g := h.Layout.guid()
	copy(p.bytes(offOCPGUID, 16), g[:])
	return b
}
