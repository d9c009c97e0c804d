package nvmespec

import (
	"fmt"
	"slices"
)

// BroadcastNSID addresses all namespaces.
const BroadcastNSID = 0xFFFFFFFF

// MaxLBAFormats is how many LBA formats a namespace may list.
const MaxLBAFormats = 64

// Offsets of the Identify Namespace data structure (CNS 00h and 11h). NVM
// Command Set Specification 1.x, "Identify Namespace Data Structure".
const (
	offIDNSNSZE     = 0
	offIDNSNCAP     = 8
	offIDNSNUSE     = 16
	offIDNSNSFEAT   = 24
	offIDNSNLBAF    = 25
	offIDNSFLBAS    = 26
	offIDNSMC       = 27
	offIDNSDPC      = 28
	offIDNSDPS      = 29
	offIDNSNMIC     = 30
	offIDNSRESCAP   = 31
	offIDNSFPI      = 32
	offIDNSDLFEAT   = 33
	offIDNSNAWUN    = 34
	offIDNSNAWUPF   = 36
	offIDNSNACWU    = 38
	offIDNSNABSN    = 40
	offIDNSNABO     = 42
	offIDNSNABSPF   = 44
	offIDNSNOIOB    = 46
	offIDNSNVMCAP   = 48
	offIDNSNPWG     = 64
	offIDNSNPWA     = 66
	offIDNSNPDG     = 68
	offIDNSNPDA     = 70
	offIDNSNOWS     = 72
	offIDNSMSSRL    = 74
	offIDNSMCL      = 76
	offIDNSMSRC     = 80
	offIDNSNULBAF   = 82
	offIDNSANAGRPID = 92
	offIDNSNSATTR   = 99
	offIDNSNVMSETID = 100
	offIDNSENDGID   = 102
	offIDNSNGUID    = 104
	offIDNSEUI64    = 120
	offIDNSLBAF     = 128
)

// Offsets of one LBA format (LBAF).
const (
	lbaFormatSize = 4
	offLBAFMS     = 0
	offLBAFLBADS  = 2
	offLBAFRP     = 3
)

// LBAFormat is how a namespace may lay out its logical blocks.
type LBAFormat struct {
	// Index is the format's number on this drive, 0..63. It means nothing on
	// another drive: select by data and metadata size.
	Index uint8 `json:"index"`
	// DataBytes is the data of a block, a power of two from 512 up; 0 means the
	// format is not available (LBADS below 9).
	DataBytes uint32 `json:"data_bytes"`
	// MetadataBytes is the metadata of a block (MS); it never counts towards the
	// user's capacity.
	MetadataBytes uint16 `json:"metadata_bytes"`
	// RelativePerformance is 0 best to 3 degraded (RP).
	RelativePerformance uint8 `json:"relative_performance"`
}

// Available says that the format can be used.
func (f LBAFormat) Available() bool { return f.DataBytes != 0 }

// String is "4096" or "4096+8", bytes of data and metadata.
func (f LBAFormat) String() string {
	if f.MetadataBytes == 0 {
		return fmt.Sprintf("%d", f.DataBytes)
	}
	return fmt.Sprintf("%d+%d", f.DataBytes, f.MetadataBytes)
}

func decodeLBAFormat(index int, b []byte) LBAFormat {
	p := page(b)
	f := LBAFormat{Index: uint8(index), MetadataBytes: p.u16(offLBAFMS), RelativePerformance: p.u8(offLBAFRP) & 3}
	if ds := p.u8(offLBAFLBADS); ds >= 9 && ds <= 31 {
		f.DataBytes = 1 << ds
	}
	return f
}

func (f LBAFormat) put(b []byte) {
	p := page(b)
	p.put16(offLBAFMS, f.MetadataBytes)
	if f.DataBytes >= 512 {
		p.put8(offLBAFLBADS, log2(uint64(f.DataBytes)))
	}
	p.put8(offLBAFRP, f.RelativePerformance&3)
}

// FLBAS is the formatted LBA size byte: the format in use and where its metadata
// travels. Identify, create and format all read and write it here.
type FLBAS uint8

// MakeFLBAS builds the byte from a format index of 0..63.
func MakeFLBAS(index uint8, metadataExtended bool) FLBAS {
	return FLBAS(index&15 | index>>4&3<<5 | bit8(metadataExtended, 4))
}

// Index is the format's number: bits 3:0 below bits 6:5.
func (f FLBAS) Index() uint8 { return uint8(f)&15 | uint8(f)>>5&3<<4 }

// MetadataExtended (bit 4) says that metadata follows the data of each block in
// one buffer, instead of lying in a buffer of its own.
func (f FLBAS) MetadataExtended() bool { return f>>4&1 != 0 }

// Protection is the end-to-end protection settings byte (DPS).
type Protection struct {
	// Type is 0 for none, else 1..3.
	Type uint8 `json:"type"`
	// First says that the protection information is the first bytes of the
	// metadata instead of the last.
	First bool `json:"first"`
}

func decodeProtection(dps uint8) Protection { return Protection{Type: dps & 7, First: dps>>3&1 != 0} }

func (p Protection) wire() uint8 { return p.Type&7 | bit8(p.First, 3) }

// NamespaceFeatures is NSFEAT, Identify Namespace byte 24.
type NamespaceFeatures uint8

// The bits of NamespaceFeatures.
const (
	NamespaceThin           NamespaceFeatures = 1 << 0 // capacity may be smaller than size
	NamespaceAtomics        NamespaceFeatures = 1 << 1 // NAWUN, NAWUPF and NACWU are valid
	NamespaceDeallocErrors  NamespaceFeatures = 1 << 2
	NamespaceUIDNotReused   NamespaceFeatures = 1 << 3
	NamespaceOptimalIOSizes NamespaceFeatures = 1 << 4 // NPWG, NPWA, NPDG, NPDA and NOWS are valid
)

func (NamespaceFeatures) names() []string {
	return []string{"thin", "atomics", "deallocated_errors", "uid_not_reused", "optimal_io_sizes"}
}

// MarshalJSON lists the names of the bits set.
func (f NamespaceFeatures) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *NamespaceFeatures) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// Namespace is the Identify Namespace data structure of the NVM command set in
// domain values, for CNS 00h (active) and 11h (allocated). All sizes in blocks
// are logical blocks. Not modelled, and written as zero by Append: KPIOS, KPIODAAG,
// reserved and vendor specific bytes.
type Namespace struct {
	// SizeBlocks, CapacityBlocks and UsedBlocks are NSZE, NCAP and NUSE. A size
	// of 0 means the NSID is inactive: see Active.
	SizeBlocks     uint64 `json:"size_blocks"`
	CapacityBlocks uint64 `json:"capacity_blocks"`
	// UsedBlocks is 0 or equal to the capacity on many drives whatever is
	// written: nothing may be concluded from it.
	UsedBlocks uint64            `json:"used_blocks"`
	Features   NamespaceFeatures `json:"features"`
	// Formats are all listed LBA formats, 1..64 of them (NLBAF + 1 + NULBAF);
	// each one's Index is its place.
	Formats []LBAFormat `json:"formats"`
	// FormatIndex is the format in use (FLBAS); it may lie outside Formats on a
	// faulty drive: see Format.
	FormatIndex uint8 `json:"format_index"`
	// MetadataExtended: metadata is transferred with the data (FLBAS bit 4).
	MetadataExtended bool `json:"metadata_extended"`
	// MetadataCapabilities is MC: bit 0 extended, bit 1 separate buffer.
	MetadataCapabilities uint8 `json:"metadata_capabilities_raw"`
	// ProtectionCapabilities is DPC: bits 2:0 types 1..3, bit 3 first, bit 4 last
	// bytes of metadata.
	ProtectionCapabilities uint8 `json:"protection_capabilities_raw"`
	// Protection is DPS, the settings in use.
	Protection Protection `json:"protection"`
	// Shared (NMIC bit 0): may be attached to two or more controllers at once.
	// It is fixed at creation.
	Shared bool `json:"shared"`
	// ReservationCapabilities is RESCAP as it stands on the wire.
	ReservationCapabilities uint8 `json:"reservation_capabilities_raw"`
	// FormatRemainingPercent is FPI: how much of a running format remains, 0 when
	// none runs.
	FormatRemainingPercent Opt[uint8] `json:"format_remaining_percent"`
	// DeallocateFeatures is DLFEAT as it stands on the wire.
	DeallocateFeatures uint8 `json:"deallocate_features_raw"`
	// Atomic sizes one-based (NAWUN, NAWUPF, NACWU), reported with NamespaceAtomics.
	AtomicWriteBlocks          Opt[uint32] `json:"atomic_write_blocks"`
	AtomicWritePowerFailBlocks Opt[uint32] `json:"atomic_write_power_fail_blocks"`
	AtomicCompareWriteBlocks   Opt[uint32] `json:"atomic_compare_write_blocks"`
	// NABSN, NABO and NABSPF as they stand on the wire.
	AtomicBoundaryRaw          uint16 `json:"atomic_boundary_raw"`
	AtomicBoundaryOffsetRaw    uint16 `json:"atomic_boundary_offset_raw"`
	AtomicBoundaryPowerFailRaw uint16 `json:"atomic_boundary_power_fail_raw"`
	// OptimalIOBoundaryBlocks is NOIOB; 0 is not reported.
	OptimalIOBoundaryBlocks uint16 `json:"optimal_io_boundary_blocks"`
	// NVMCapacityBytes is NVMCAP, what the namespace takes of the drive's
	// capacity. On some drives it is not SizeBlocks times the block size: use it
	// only for allocation accounting. 0 without namespace management.
	NVMCapacityBytes Uint128 `json:"nvm_capacity_bytes"`
	// Preferred sizes one-based (NPWG, NPWA, NPDG, NPDA, NOWS), reported with
	// NamespaceOptimalIOSizes.
	PreferredWriteGranularityBlocks      Opt[uint32] `json:"preferred_write_granularity_blocks"`
	PreferredWriteAlignmentBlocks        Opt[uint32] `json:"preferred_write_alignment_blocks"`
	PreferredDeallocateGranularityBlocks Opt[uint32] `json:"preferred_deallocate_granularity_blocks"`
	PreferredDeallocateAlignmentBlocks   Opt[uint32] `json:"preferred_deallocate_alignment_blocks"`
	OptimalWriteBlocks                   Opt[uint32] `json:"optimal_write_blocks"`
	// CopyRangeBlocksMax (MSSRL) bounds one source range of Copy, CopyBlocksMax (MCL)
	// all of them together, CopyRangesMax (MSRC, zero-based on the wire) their number,
	// 1..256. All are 0 where MSSRL is 0: the drive has no Copy.
	CopyRangeBlocksMax uint16 `json:"copy_range_blocks_max,omitzero"`
	CopyBlocksMax      uint32 `json:"copy_blocks_max,omitzero"`
	CopyRangesMax      uint16 `json:"copy_ranges_max,omitzero"`
	// UniqueFormats is NULBAF: how many of Formats, counted from the end, have
	// attributes of their own (metadata sizes in the extended format list).
	UniqueFormats uint8 `json:"unique_formats"`
	// ANAGroupID is ANAGRPID; 0 without ANA.
	ANAGroupID uint32 `json:"ana_group_id"`
	// WriteProtected is NSATTR bit 0.
	WriteProtected bool `json:"write_protected"`
	// NVMSetID and EnduranceGroupID are NVMSETID and ENDGID; 0 is none.
	NVMSetID         uint16 `json:"nvm_set_id"`
	EnduranceGroupID uint16 `json:"endurance_group_id"`
	// NGUID and EUI64 identify the namespace; zero means absent, and must never
	// be compared as an identity.
	NGUID GUID  `json:"nguid"`
	EUI64 EUI64 `json:"eui64"`
}

// Active says that the namespace exists where it was asked for. An inactive NSID
// answers Identify with success and all zero, which is not "0 bytes large".
func (n Namespace) Active() bool { return n.SizeBlocks != 0 }

// Format is the LBA format in use; false where the drive names one it does not
// list or that is not available.
func (n Namespace) Format() (LBAFormat, bool) {
	for _, f := range n.Formats {
		if f.Index == n.FormatIndex && f.Available() {
			return f, true
		}
	}
	return LBAFormat{}, false
}

// SizeBytes is the user's size: blocks times the data bytes of a block, metadata
// not counted. 0 for an inactive namespace or an unknown format.
func (n Namespace) SizeBytes() Uint128 {
	f, _ := n.Format()
	return U128(n.SizeBlocks).Mul64(uint64(f.DataBytes))
}

// FindFormat is the first available format with these sizes in bytes, the best
// relative performance first.
func (n Namespace) FindFormat(dataBytes uint32, metadataBytes uint16) (LBAFormat, bool) {
	var best LBAFormat
	for _, f := range n.Formats {
		if !f.Available() || f.DataBytes != dataBytes || f.MetadataBytes != metadataBytes {
			continue
		}
		if !best.Available() || f.RelativePerformance < best.RelativePerformance {
			best = f
		}
	}
	return best, best.Available()
}

// DecodeNamespace reads an Identify Namespace data structure. All zero decodes,
// with Active false: that is how an inactive NSID looks.
func DecodeNamespace(b []byte) (Namespace, error) {
	p, err := view(b, IdentifySize, "identify namespace")
	if err != nil {
		return Namespace{}, err
	}
	flbas := FLBAS(p.u8(offIDNSFLBAS))
	n := Namespace{
		SizeBlocks:              p.u64(offIDNSNSZE),
		CapacityBlocks:          p.u64(offIDNSNCAP),
		UsedBlocks:              p.u64(offIDNSNUSE),
		Features:                NamespaceFeatures(p.u8(offIDNSNSFEAT)),
		FormatIndex:             flbas.Index(),
		MetadataExtended:        flbas.MetadataExtended(),
		MetadataCapabilities:    p.u8(offIDNSMC),
		ProtectionCapabilities:  p.u8(offIDNSDPC),
		Protection:              decodeProtection(p.u8(offIDNSDPS)),
		Shared:                  p.u8(offIDNSNMIC)&1 != 0,
		ReservationCapabilities: p.u8(offIDNSRESCAP),
		FormatRemainingPercent:  decodeFPI(p.u8(offIDNSFPI)),
		DeallocateFeatures:      p.u8(offIDNSDLFEAT),
		ANAGroupID:              p.u32(offIDNSANAGRPID),
		WriteProtected:          p.u8(offIDNSNSATTR)&1 != 0,
		NVMSetID:                p.u16(offIDNSNVMSETID),
		EnduranceGroupID:        p.u16(offIDNSENDGID),
		NVMCapacityBytes:        p.u128(offIDNSNVMCAP),
	}
	copy(n.NGUID[:], p.bytes(offIDNSNGUID, len(n.NGUID)))
	copy(n.EUI64[:], p.bytes(offIDNSEUI64, len(n.EUI64)))
	if n.CopyRangeBlocksMax = p.u16(offIDNSMSSRL); n.CopyRangeBlocksMax != 0 {
		n.CopyBlocksMax, n.CopyRangesMax = p.u32(offIDNSMCL), uint16(p.u8(offIDNSMSRC))+1
	}
	n.decodeFormats(p)
	n.decodeIOSizes(p)
	return n, nil
}

// Append appends the 4096 bytes of the structure. Formats are written by their
// place; more than 64 are cut, and none at all is written as one not available.
func (n Namespace) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	p.put64(offIDNSNSZE, n.SizeBlocks)
	p.put64(offIDNSNCAP, n.CapacityBlocks)
	p.put64(offIDNSNUSE, n.UsedBlocks)
	p.put8(offIDNSNSFEAT, uint8(n.Features))
	p.put8(offIDNSFLBAS, uint8(MakeFLBAS(n.FormatIndex, n.MetadataExtended)))
	p.put8(offIDNSMC, n.MetadataCapabilities)
	p.put8(offIDNSDPC, n.ProtectionCapabilities)
	p.put8(offIDNSDPS, n.Protection.wire())
	p.put8(offIDNSNMIC, bit8(n.Shared, 0))
	p.put8(offIDNSRESCAP, n.ReservationCapabilities)
	p.put8(offIDNSFPI, encodeFPI(n.FormatRemainingPercent))
	p.put8(offIDNSDLFEAT, n.DeallocateFeatures)
	p.put128(offIDNSNVMCAP, n.NVMCapacityBytes)
	p.put32(offIDNSANAGRPID, n.ANAGroupID)
	p.put8(offIDNSNSATTR, bit8(n.WriteProtected, 0))
	p.put16(offIDNSNVMSETID, n.NVMSetID)
	p.put16(offIDNSENDGID, n.EnduranceGroupID)
	copy(p.bytes(offIDNSNGUID, len(n.NGUID)), n.NGUID[:])
	copy(p.bytes(offIDNSEUI64, len(n.EUI64)), n.EUI64[:])
	if n.CopyRangeBlocksMax != 0 {
		p.put16(offIDNSMSSRL, n.CopyRangeBlocksMax)
		p.put32(offIDNSMCL, n.CopyBlocksMax)
		p.put8(offIDNSMSRC, uint8(max(n.CopyRangesMax, 1)-1))
	}
	n.putFormats(p)
	n.putIOSizes(p)
	return b
}

func (n *Namespace) decodeFormats(p page) {
	listed := int(p.u8(offIDNSNLBAF)) + 1
	total := min(listed+int(p.u8(offIDNSNULBAF)), MaxLBAFormats)
	n.UniqueFormats = uint8(max(total-listed, 0))
	for i := range total {
		n.Formats = append(n.Formats, decodeLBAFormat(i, p.bytes(offIDNSLBAF+lbaFormatSize*i, lbaFormatSize)))
	}
}

func (n Namespace) putFormats(p page) {
	total := min(len(n.Formats), MaxLBAFormats)
	unique := min(int(n.UniqueFormats), max(total-1, 0))
	p.put8(offIDNSNLBAF, uint8(max(total-unique, 1)-1))
	p.put8(offIDNSNULBAF, uint8(unique))
	for i, f := range n.Formats[:total] {
		f.put(p.bytes(offIDNSLBAF+lbaFormatSize*i, lbaFormatSize))
	}
}

func (n *Namespace) decodeIOSizes(p page) {
	one := func(off int) Opt[uint32] { return Some(uint32(p.u16(off)) + 1) }
	if n.Features&NamespaceAtomics != 0 {
		n.AtomicWriteBlocks, n.AtomicWritePowerFailBlocks = one(offIDNSNAWUN), one(offIDNSNAWUPF)
		n.AtomicCompareWriteBlocks = one(offIDNSNACWU)
	}
	n.AtomicBoundaryRaw = p.u16(offIDNSNABSN)
	n.AtomicBoundaryOffsetRaw = p.u16(offIDNSNABO)
	n.AtomicBoundaryPowerFailRaw = p.u16(offIDNSNABSPF)
	n.OptimalIOBoundaryBlocks = p.u16(offIDNSNOIOB)
	if n.Features&NamespaceOptimalIOSizes != 0 {
		n.PreferredWriteGranularityBlocks, n.PreferredWriteAlignmentBlocks = one(offIDNSNPWG), one(offIDNSNPWA)
		n.PreferredDeallocateGranularityBlocks = one(offIDNSNPDG)
		n.PreferredDeallocateAlignmentBlocks = one(offIDNSNPDA)
		n.OptimalWriteBlocks = one(offIDNSNOWS)
	}
}

func (n Namespace) putIOSizes(p page) {
	put := func(off int, o Opt[uint32]) {
		if o.OK {
			p.put16(off, zeroBased16(o.Value))
		}
	}
	put(offIDNSNAWUN, n.AtomicWriteBlocks)
	put(offIDNSNAWUPF, n.AtomicWritePowerFailBlocks)
	put(offIDNSNACWU, n.AtomicCompareWriteBlocks)
	p.put16(offIDNSNABSN, n.AtomicBoundaryRaw)
	p.put16(offIDNSNABO, n.AtomicBoundaryOffsetRaw)
	p.put16(offIDNSNABSPF, n.AtomicBoundaryPowerFailRaw)
	p.put16(offIDNSNOIOB, n.OptimalIOBoundaryBlocks)
	put(offIDNSNPWG, n.PreferredWriteGranularityBlocks)
	put(offIDNSNPWA, n.PreferredWriteAlignmentBlocks)
	put(offIDNSNPDG, n.PreferredDeallocateGranularityBlocks)
	put(offIDNSNPDA, n.PreferredDeallocateAlignmentBlocks)
	put(offIDNSNOWS, n.OptimalWriteBlocks)
}

// decodeFPI reads the format progress byte: bit 7 says whether it is reported.
func decodeFPI(v uint8) Opt[uint8] {
	if v>>7 == 0 {
		return None[uint8]()
	}
	return Some(v & 0x7F)
}

func encodeFPI(o Opt[uint8]) uint8 {
	if !o.OK {
		return 0
	}
	return 0x80 | o.Value&0x7F
}

// NamespaceListMax is how many NSIDs one list holds.
const NamespaceListMax = 1024

// DecodeNamespaceList reads a list of NSIDs (CNS 02h, 10h and the changed
// namespace list): ascending, ended by 0. A list that is not ascending is an
// error, since it would make an iteration run for ever; FFFFFFFFh alone is the
// changed list's "more than fit".
func DecodeNamespaceList(b []byte) ([]uint32, error) {
	p, err := view(b, IdentifySize, "namespace list")
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for i := range NamespaceListMax {
		id := p.u32(4 * i)
		if id == 0 {
			break
		}
		if len(ids) > 0 && id <= ids[len(ids)-1] {
			return nil, fmt.Errorf("namespace list: %w: entry %d is %d after %d", ErrInvalidData, i, id, ids[len(ids)-1])
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// AppendNamespaceList appends the 4096 bytes of a list: sorted, without zeros
// and duplicates, the first 1024.
func AppendNamespaceList(b []byte, ids []uint32) []byte {
	b, p := grow(b, IdentifySize)
	sorted := slices.Compact(slices.Sorted(slices.Values(ids)))
	i := 0
	for _, id := range sorted {
		if id != 0 && i < NamespaceListMax {
			p.put32(4*i, id)
			i++
		}
	}
	return b
}

// ControllerListMax is how many controller identifiers one list holds.
const ControllerListMax = 2047

// DecodeControllerList reads a list of controller identifiers (CNS 12h, 13h and
// the data of Namespace Attachment): a count, then that many identifiers,
// ascending.
func DecodeControllerList(b []byte) ([]uint16, error) {
	p, err := view(b, IdentifySize, "controller list")
	if err != nil {
		return nil, err
	}
	n := int(p.u16(0))
	if n > ControllerListMax {
		return nil, fmt.Errorf("controller list: %w: %d entries, at most %d fit", ErrInvalidData, n, ControllerListMax)
	}
	var ids []uint16
	for i := range n {
		id := p.u16(2 + 2*i)
		if i > 0 && id <= ids[i-1] {
			return nil, fmt.Errorf("controller list: %w: entry %d is %d after %d", ErrInvalidData, i, id, ids[i-1])
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// AppendControllerList appends the 4096 bytes of a list: sorted ascending as the
// specification demands, without duplicates, the first 2047, the rest zero.
func AppendControllerList(b []byte, ids []uint16) []byte {
	b, p := grow(b, IdentifySize)
	sorted := slices.Compact(slices.Sorted(slices.Values(ids)))
	sorted = sorted[:min(len(sorted), ControllerListMax)]
	p.put16(0, uint16(len(sorted)))
	for i, id := range sorted {
		p.put16(2+2*i, id)
	}
	return b
}
