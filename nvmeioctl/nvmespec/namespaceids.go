package nvmespec

import "fmt"

// Namespace identification descriptor types (NIDT).
const (
	nidtEUI64 = 1
	nidtNGUID = 2
	nidtUUID  = 3
	nidtCSI   = 4
)

// NamespaceIDs is the namespace identification descriptor list (CNS 03h). Zero
// identifiers are absent.
type NamespaceIDs struct {
	EUI64 EUI64 `json:"eui64"`
	NGUID GUID  `json:"nguid"`
	UUID  GUID  `json:"uuid"`
	// CommandSet is the I/O command set: 0 NVM, 1 key value, 2 zoned.
	CommandSet Opt[uint8] `json:"command_set"`
}

// DecodeNamespaceIDs reads a descriptor list. Descriptors of unknown type are
// skipped; one of a wrong length or beyond the end is an error.
func DecodeNamespaceIDs(b []byte) (NamespaceIDs, error) {
	p, err := view(b, IdentifySize, "namespace descriptors")
	if err != nil {
		return NamespaceIDs{}, err
	}
	var ids NamespaceIDs
	for off := 0; off+4 <= len(p); {
		typ, n := p.u8(off), int(p.u8(off+1))
		if typ == 0 || n == 0 {
			break
		}
		data := p.bytes(off+4, n)
		if data == nil {
			return NamespaceIDs{}, fmt.Errorf("namespace descriptors: %w: descriptor at %d of %d bytes runs past the end", ErrInvalidData, off, n)
		}
		var dst []byte
		var csi [1]byte
		switch typ {
		case nidtEUI64:
			dst = ids.EUI64[:]
		case nidtNGUID:
			dst = ids.NGUID[:]
		case nidtUUID:
			dst = ids.UUID[:]
		case nidtCSI:
			dst = csi[:]
		}
		if dst != nil && len(dst) != n {
			return NamespaceIDs{}, fmt.Errorf("namespace descriptors: %w: type %d has %d bytes, not %d", ErrInvalidData, typ, n, len(dst))
		}
		copy(dst, data)
		if typ == nidtCSI {
			ids.CommandSet = Some(csi[0])
		}
		off += 4 + n
	}
	return ids, nil
}

// Append appends the 4096 bytes of a descriptor list with what is present.
func (ids NamespaceIDs) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	off := 0
	put := func(typ uint8, data []byte) {
		p.put8(off, typ)
		p.put8(off+1, uint8(len(data)))
		copy(p.bytes(off+4, len(data)), data)
		off += 4 + len(data)
	}
	if !ids.EUI64.IsZero() {
		put(nidtEUI64, ids.EUI64[:])
	}
	if !ids.NGUID.IsZero() {
		put(nidtNGUID, ids.NGUID[:])
	}
	if !ids.UUID.IsZero() {
		put(nidtUUID, ids.UUID[:])
	}
	if v, ok := ids.CommandSet.Get(); ok {
		put(nidtCSI, []byte{v})
	}
	return b
}

// Offsets of the namespace granularity list (CNS 16h). NVM Command Set
// Specification 1.x, "Namespace Granularity List".
const (
	offGranATTR  = 0
	offGranNUM   = 4
	offGranEntry = 32
	granSize     = 16
	offGranNSG   = 0
	offGranNCG   = 8
	maxGranular  = 16
)

// Granularity is what namespace sizes should be multiples of, in bytes; 0 is not
// reported.
type Granularity struct {
	// SizeBytes is NSG, CapacityBytes NCG.
	SizeBytes     uint64 `json:"size_bytes"`
	CapacityBytes uint64 `json:"capacity_bytes"`
}

// GranularityList is the namespace granularity list (CNS 16h).
type GranularityList struct {
	// PerFormat says that entry i belongs to LBA format i; otherwise entry 0
	// belongs to all formats.
	PerFormat bool `json:"per_format"`
	// Entries are 1..16 descriptors.
	Entries []Granularity `json:"entries"`
}

// For is the granularity of an LBA format; zero where none is reported.
func (l GranularityList) For(formatIndex uint8) Granularity {
	i := 0
	if l.PerFormat {
		i = int(formatIndex)
	}
	if i >= len(l.Entries) {
		return Granularity{}
	}
	return l.Entries[i]
}

// DecodeGranularityList reads a namespace granularity list.
func DecodeGranularityList(b []byte) (GranularityList, error) {
	p, err := view(b, IdentifySize, "namespace granularity list")
	if err != nil {
		return GranularityList{}, err
	}
	l := GranularityList{PerFormat: p.u32(offGranATTR)&1 != 0}
	for i := range min(int(p.u8(offGranNUM))+1, maxGranular) {
		e := page(p.bytes(offGranEntry+granSize*i, granSize))
		l.Entries = append(l.Entries, Granularity{SizeBytes: e.u64(offGranNSG), CapacityBytes: e.u64(offGranNCG)})
	}
	return l, nil
}

// Append appends the 4096 bytes of the list.
func (l GranularityList) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	p.put32(offGranATTR, uint32(bit8(l.PerFormat, 0)))
	n := min(len(l.Entries), maxGranular)
	p.put8(offGranNUM, uint8(max(n, 1)-1))
	for i, g := range l.Entries[:n] {
		e := page(p.bytes(offGranEntry+granSize*i, granSize))
		e.put64(offGranNSG, g.SizeBytes)
		e.put64(offGranNCG, g.CapacityBytes)
	}
	return b
}

// Offsets of the I/O command set independent Identify Namespace structure (CNS
// 08h).
const (
	offIndNSFEAT   = 0
	offIndNMIC     = 1
	offIndRESCAP   = 2
	offIndFPI      = 3
	offIndANAGRPID = 4
	offIndNSATTR   = 8
	offIndNVMSETID = 10
	offIndENDGID   = 12
	offIndNSTAT    = 14
	offIndKPIOS    = 15
	offIndMAXKT    = 16
	offIndRGRPID   = 20
)

// IndependentNamespace is the I/O command set independent Identify Namespace
// data structure (CNS 08h).
type IndependentNamespace struct {
	// Features is NSFEAT as it stands on the wire.
	Features                uint8      `json:"features_raw"`
	Shared                  bool       `json:"shared"`
	ReservationCapabilities uint8      `json:"reservation_capabilities_raw"`
	FormatRemainingPercent  Opt[uint8] `json:"format_remaining_percent"`
	ANAGroupID              uint32     `json:"ana_group_id"`
	WriteProtected          bool       `json:"write_protected"`
	NVMSetID                uint16     `json:"nvm_set_id"`
	EnduranceGroupID        uint16     `json:"endurance_group_id"`
	// Ready is NSTAT bit 0: the namespace takes commands.
	Ready bool `json:"ready"`
	// KeyPerIO is KPIOS as it stands on the wire, KeyTagMax MAXKT.
	KeyPerIO  uint8  `json:"key_per_io_raw"`
	KeyTagMax uint16 `json:"key_tag_max"`
	// ReachabilityGroupID is RGRPID; 0 is none.
	ReachabilityGroupID uint32 `json:"reachability_group_id"`
}

// DecodeIndependentNamespace reads the structure.
func DecodeIndependentNamespace(b []byte) (IndependentNamespace, error) {
	p, err := view(b, IdentifySize, "identify namespace (command set independent)")
	if err != nil {
		return IndependentNamespace{}, err
	}
	return IndependentNamespace{
		Features:                p.u8(offIndNSFEAT),
		Shared:                  p.u8(offIndNMIC)&1 != 0,
		ReservationCapabilities: p.u8(offIndRESCAP),
		FormatRemainingPercent:  decodeFPI(p.u8(offIndFPI)),
		ANAGroupID:              p.u32(offIndANAGRPID),
		WriteProtected:          p.u8(offIndNSATTR)&1 != 0,
		NVMSetID:                p.u16(offIndNVMSETID),
		EnduranceGroupID:        p.u16(offIndENDGID),
		Ready:                   p.u8(offIndNSTAT)&1 != 0,
		KeyPerIO:                p.u8(offIndKPIOS), KeyTagMax: p.u16(offIndMAXKT), ReachabilityGroupID: p.u32(offIndRGRPID),
	}, nil
}

// Append appends the 4096 bytes of the structure.
func (n IndependentNamespace) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	p.put8(offIndNSFEAT, n.Features)
	p.put8(offIndNMIC, bit8(n.Shared, 0))
	p.put8(offIndRESCAP, n.ReservationCapabilities)
	p.put8(offIndFPI, encodeFPI(n.FormatRemainingPercent))
	p.put32(offIndANAGRPID, n.ANAGroupID)
	p.put8(offIndNSATTR, bit8(n.WriteProtected, 0))
	p.put16(offIndNVMSETID, n.NVMSetID)
	p.put16(offIndENDGID, n.EnduranceGroupID)
	p.put8(offIndNSTAT, bit8(n.Ready, 0))
	p.put8(offIndKPIOS, n.KeyPerIO)
	p.put16(offIndMAXKT, n.KeyTagMax)
	p.put32(offIndRGRPID, n.ReachabilityGroupID)
	return b
}

// Offsets of the NVM command set specific Identify Namespace structure (CNS 05h,
// CSI 0).
const (
	offNVMNSLBSTM = 0
	offNVMNSPIC   = 8
	offNVMNSELBAF = 12
	offNVMNSNPDGL = 268

	offNVMNSPIFA   = 9
	offNVMNSNPRG   = 272
	offNVMNSNPRA   = 276
	offNVMNSNORS   = 280
	offNVMNSNPDAL  = 284
	offNVMNSLBAPSS = 288
	offNVMNSTLBAAG = 292
)

// ExtendedLBAFormat is an extended LBA format (ELBAF).
type ExtendedLBAFormat struct {
	// StorageTagBits is the size of the storage tag (STS), 0..64.
	StorageTagBits uint8 `json:"storage_tag_bits"`
	// ProtectionFormat is PIF: 0 16-bit guard, 1 32-bit, 2 64-bit.
	ProtectionFormat uint8 `json:"protection_format"`
}

// NVMNamespace is the NVM command set specific Identify Namespace structure (CNS
// 05h, CSI 0).
type NVMNamespace struct {
	// StorageTagMask is LBSTM.
	StorageTagMask uint64 `json:"storage_tag_mask"`
	// ProtectionCapabilities is PIC as it stands on the wire.
	ProtectionCapabilities uint8 `json:"protection_capabilities_raw"`
	// Formats go with the LBA formats of Identify Namespace by index, always 64.
	Formats [MaxLBAFormats]ExtendedLBAFormat `json:"formats"`
	// DeallocateGranularityBlocks is NPDGL; 0 is not reported.
	DeallocateGranularityBlocks uint32 `json:"deallocate_granularity_blocks"`
	// ProtectionFormatAttributes is PIFA as it stands on the wire.
	ProtectionFormatAttributes uint8 `json:"protection_format_attributes_raw"`
	// Preferred sizes of reads (NPRG, NPRA, NORS) and the deallocate alignment
	// (NPDAL); 0 is not reported.
	ReadGranularityBlocks    uint32 `json:"read_granularity_blocks"`
	ReadAlignmentBlocks      uint32 `json:"read_alignment_blocks"`
	OptimalReadBlocks        uint32 `json:"optimal_read_blocks"`
	DeallocateAlignmentBlock uint32 `json:"deallocate_alignment_blocks"`
	// PreferredStreamBlocks is LBAPSS, TrackedGranularityBlocks TLBAAG; 0 is not
	// reported.
	PreferredStreamBlocks    uint32 `json:"preferred_stream_blocks"`
	TrackedGranularityBlocks uint32 `json:"tracked_granularity_blocks"`
}

// rest are the 32-bit fields after NPDGL.
func (n *NVMNamespace) rest() [6]struct {
	off int
	v   *uint32
} {
	return [...]struct {
		off int
		v   *uint32
	}{
		{offNVMNSNPRG, &n.ReadGranularityBlocks}, {offNVMNSNPRA, &n.ReadAlignmentBlocks}, {offNVMNSNORS, &n.OptimalReadBlocks},
		{offNVMNSNPDAL, &n.DeallocateAlignmentBlock}, {offNVMNSLBAPSS, &n.PreferredStreamBlocks}, {offNVMNSTLBAAG, &n.TrackedGranularityBlocks},
	}
}

// DecodeNVMNamespace reads the structure.
func DecodeNVMNamespace(b []byte) (NVMNamespace, error) {
	p, err := view(b, IdentifySize, "identify namespace (NVM command set)")
	if err != nil {
		return NVMNamespace{}, err
	}
	n := NVMNamespace{
		StorageTagMask:              p.u64(offNVMNSLBSTM),
		ProtectionCapabilities:      p.u8(offNVMNSPIC),
		DeallocateGranularityBlocks: p.u32(offNVMNSNPDGL),
		ProtectionFormatAttributes:  p.u8(offNVMNSPIFA),
	}
	for _, f := range n.rest() {
		*f.v = p.u32(f.off)
	}
	for i := range n.Formats {
		v := p.u32(offNVMNSELBAF + 4*i)
		n.Formats[i] = ExtendedLBAFormat{StorageTagBits: uint8(v & 0x7F), ProtectionFormat: uint8(v >> 7 & 3)}
	}
	return n, nil
}

// Append appends the 4096 bytes of the structure.
func (n NVMNamespace) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	p.put64(offNVMNSLBSTM, n.StorageTagMask)
	p.put8(offNVMNSPIC, n.ProtectionCapabilities)
	p.put32(offNVMNSNPDGL, n.DeallocateGranularityBlocks)
	p.put8(offNVMNSPIFA, n.ProtectionFormatAttributes)
	for _, f := range n.rest() {
		p.put32(f.off, *f.v)
	}
	for i, f := range n.Formats {
		p.put32(offNVMNSELBAF+4*i, uint32(f.StorageTagBits&0x7F)|uint32(f.ProtectionFormat&3)<<7)
	}
	return b
}

// Offsets of the NVM command set specific Identify Controller structure (CNS
// 06h, CSI 0).
const (
	offNVMCtrlVSL   = 0
	offNVMCtrlWZSL  = 1
	offNVMCtrlWUSL  = 2
	offNVMCtrlDMRL  = 3
	offNVMCtrlDMRSL = 4
	offNVMCtrlDMSL  = 8
	offNVMCtrlKPIO  = 16
	offNVMCtrlWZDSL = 17
	offNVMCtrlAOCS  = 18
	offNVMCtrlVER   = 20
	offNVMCtrlLBAMQ = 24
)

// NVMController is the NVM command set specific Identify Controller structure
// (CNS 06h, CSI 0). Sizes are 0 for no limit reported; as with
// Controller.MaxTransferBytes the memory page is taken as 4096 bytes.
type NVMController struct {
	VerifyBytesMax             uint64 `json:"verify_bytes_max"`              // VSL
	WriteZeroesBytesMax        uint64 `json:"write_zeroes_bytes_max"`        // WZSL
	WriteUncorrectableBytesMax uint64 `json:"write_uncorrectable_bytes_max"` // WUSL
	DeallocateRangesMax        uint8  `json:"deallocate_ranges_max"`         // DMRL
	DeallocateRangeBlocksMax   uint32 `json:"deallocate_range_blocks_max"`   // DMRSL
	DeallocateBlocksMax        uint64 `json:"deallocate_blocks_max"`         // DMSL
	// KeyPerIO is KPIOCAP as it stands on the wire.
	KeyPerIO uint8 `json:"key_per_io_raw"`
	// WriteZeroesDeallocateBytesMax is WZDSL.
	WriteZeroesDeallocateBytesMax uint64 `json:"write_zeroes_deallocate_bytes_max"`
	// AdminOptional is AOCS as it stands on the wire.
	AdminOptional uint16 `json:"admin_optional_raw"`
	// Version is the version of the NVM command set specification; 0 is older
	// than 1.1.
	Version Version `json:"version"`
	// MigrationQueueFormat is LBAMQF.
	MigrationQueueFormat uint8 `json:"migration_queue_format"`
}

// DecodeNVMController reads the structure.
func DecodeNVMController(b []byte) (NVMController, error) {
	p, err := view(b, IdentifySize, "identify controller (NVM command set)")
	if err != nil {
		return NVMController{}, err
	}
	return NVMController{
		VerifyBytesMax:             decodeMDTS(p.u8(offNVMCtrlVSL)),
		WriteZeroesBytesMax:        decodeMDTS(p.u8(offNVMCtrlWZSL)),
		WriteUncorrectableBytesMax: decodeMDTS(p.u8(offNVMCtrlWUSL)),
		DeallocateRangesMax:        p.u8(offNVMCtrlDMRL),
		DeallocateRangeBlocksMax:   p.u32(offNVMCtrlDMRSL),
		DeallocateBlocksMax:        p.u64(offNVMCtrlDMSL),
		KeyPerIO:                   p.u8(offNVMCtrlKPIO), WriteZeroesDeallocateBytesMax: decodeMDTS(p.u8(offNVMCtrlWZDSL)),
		AdminOptional: p.u16(offNVMCtrlAOCS), Version: Version(p.u32(offNVMCtrlVER)), MigrationQueueFormat: p.u8(offNVMCtrlLBAMQ),
	}, nil
}

// Append appends the 4096 bytes of the structure.
func (c NVMController) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	p.put8(offNVMCtrlVSL, encodeMDTS(c.VerifyBytesMax))
	p.put8(offNVMCtrlWZSL, encodeMDTS(c.WriteZeroesBytesMax))
	p.put8(offNVMCtrlWUSL, encodeMDTS(c.WriteUncorrectableBytesMax))
	p.put8(offNVMCtrlDMRL, c.DeallocateRangesMax)
	p.put32(offNVMCtrlDMRSL, c.DeallocateRangeBlocksMax)
	p.put64(offNVMCtrlDMSL, c.DeallocateBlocksMax)
	p.put8(offNVMCtrlKPIO, c.KeyPerIO)
	p.put8(offNVMCtrlWZDSL, encodeMDTS(c.WriteZeroesDeallocateBytesMax))
	p.put16(offNVMCtrlAOCS, c.AdminOptional)
	p.put32(offNVMCtrlVER, uint32(c.Version))
	p.put8(offNVMCtrlLBAMQ, c.MigrationQueueFormat)
	return b
}

// Offsets of the host software specified data of Namespace Management create.
// NVM Command Set Specification 1.x, "Namespace Management". Widths matter:
// NVMSETID and ENDGID are 16 bits, and a wider write clobbers what follows.
const (
	offCreateNSZE     = 0
	offCreateNCAP     = 8
	offCreateFLBAS    = 26
	offCreateDPS      = 29
	offCreateNMIC     = 30
	offCreateANAGRPID = 92
	offCreateNVMSETID = 100
	offCreateENDGID   = 102
	offCreateLBSTM    = 384
	offCreateNPHNDLS  = 392
	offCreatePHNDL    = 512
	maxCreateHandles  = 128
)

// NamespaceCreate is what a new namespace is to be: the data of Namespace
// Management create.
type NamespaceCreate struct {
	// SizeBlocks and CapacityBlocks are NSZE and NCAP in logical blocks of the
	// chosen format, not bytes. They are equal unless thin provisioning is
	// wanted.
	SizeBlocks     uint64 `json:"size_blocks"`
	CapacityBlocks uint64 `json:"capacity_blocks"`
	// FormatIndex is the LBA format, 0..63.
	FormatIndex      uint8 `json:"format_index"`
	MetadataExtended bool  `json:"metadata_extended"`
	// Protection is the end-to-end protection to use.
	Protection Protection `json:"protection"`
	// Shared (NMIC bit 0) cannot be changed later.
	Shared bool `json:"shared"`
	// ANAGroupID, NVMSetID and EnduranceGroupID let the controller choose when 0.
	ANAGroupID       uint32 `json:"ana_group_id"`
	NVMSetID         uint16 `json:"nvm_set_id"`
	EnduranceGroupID uint16 `json:"endurance_group_id"`
	// StorageTagMask is LBSTM.
	StorageTagMask uint64 `json:"storage_tag_mask"`
	// PlacementHandles are reclaim unit handles (NPHNDLS, PHNDL), at most 128.
	PlacementHandles []uint16 `json:"placement_handles,omitempty"`
}

// Validate refuses what no drive may be sent: a size of 0 (a forgotten
// argument), a capacity unlike the size unless thin, an impossible format index.
func (c NamespaceCreate) Validate(thin bool) error {
	switch {
	case c.SizeBlocks == 0:
		return fmt.Errorf("create namespace: %w: size is 0 blocks", ErrInvalidData)
	case c.CapacityBlocks == 0:
		return fmt.Errorf("create namespace: %w: capacity is 0 blocks", ErrInvalidData)
	case c.CapacityBlocks > c.SizeBlocks:
		return fmt.Errorf("create namespace: %w: capacity %d is above size %d blocks", ErrInvalidData, c.CapacityBlocks, c.SizeBlocks)
	case c.CapacityBlocks != c.SizeBlocks && !thin:
		return fmt.Errorf("create namespace: %w: capacity %d differs from size %d blocks", ErrInvalidData, c.CapacityBlocks, c.SizeBlocks)
	case c.FormatIndex >= MaxLBAFormats:
		return fmt.Errorf("create namespace: %w: LBA format %d", ErrInvalidData, c.FormatIndex)
	case c.Protection.Type > 3:
		return fmt.Errorf("create namespace: %w: protection type %d", ErrInvalidData, c.Protection.Type)
	case len(c.PlacementHandles) > maxCreateHandles:
		return fmt.Errorf("create namespace: %w: %d placement handles", ErrInvalidData, len(c.PlacementHandles))
	}
	return nil
}

// DecodeNamespaceCreate reads the 4096 bytes, as a controller does. Reserved
// bytes are not looked at: see NamespaceCreateReservedClear.
func DecodeNamespaceCreate(b []byte) (NamespaceCreate, error) {
	p, err := view(b, IdentifySize, "create namespace data")
	if err != nil {
		return NamespaceCreate{}, err
	}
	flbas := FLBAS(p.u8(offCreateFLBAS))
	c := NamespaceCreate{
		SizeBlocks:       p.u64(offCreateNSZE),
		CapacityBlocks:   p.u64(offCreateNCAP),
		FormatIndex:      flbas.Index(),
		MetadataExtended: flbas.MetadataExtended(),
		Protection:       decodeProtection(p.u8(offCreateDPS)),
		Shared:           p.u8(offCreateNMIC)&1 != 0,
		ANAGroupID:       p.u32(offCreateANAGRPID),
		NVMSetID:         p.u16(offCreateNVMSETID),
		EnduranceGroupID: p.u16(offCreateENDGID),
		StorageTagMask:   p.u64(offCreateLBSTM),
	}
	for i := range min(int(p.u16(offCreateNPHNDLS)), maxCreateHandles) {
		c.PlacementHandles = append(c.PlacementHandles, p.u16(offCreatePHNDL+2*i))
	}
	return c, nil
}

// Append appends the 4096 bytes of data; what is not named here is zero.
func (c NamespaceCreate) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	p.put64(offCreateNSZE, c.SizeBlocks)
	p.put64(offCreateNCAP, c.CapacityBlocks)
	p.put8(offCreateFLBAS, uint8(MakeFLBAS(c.FormatIndex, c.MetadataExtended)))
	p.put8(offCreateDPS, c.Protection.wire())
	p.put8(offCreateNMIC, bit8(c.Shared, 0))
	p.put32(offCreateANAGRPID, c.ANAGroupID)
	p.put16(offCreateNVMSETID, c.NVMSetID)
	p.put16(offCreateENDGID, c.EnduranceGroupID)
	p.put64(offCreateLBSTM, c.StorageTagMask)
	n := min(len(c.PlacementHandles), maxCreateHandles)
	p.put16(offCreateNPHNDLS, uint16(n))
	for i, h := range c.PlacementHandles[:n] {
		p.put16(offCreatePHNDL+2*i, h)
	}
	return b
}

// NamespaceCreateReservedClear says that every byte of create data that this
// project has no name for is zero: what a strict controller demands.
func NamespaceCreateReservedClear(b []byte) bool {
	c, err := DecodeNamespaceCreate(b)
	if err != nil {
		return false
	}
	return string(c.Append(nil)) == string(b[:IdentifySize])
}
