package nvmespec

import "fmt"

// IOFields are command dwords 10 to 12 that Read, Write, Compare, Verify, Write
// Zeroes and Write Uncorrectable have in common (NVM Command Set Specification
// 1.x).
type IOFields struct {
	StartLBA uint64 `json:"start_lba"`
	// Blocks is how many logical blocks, 1..65536; zero-based on the wire.
	Blocks uint32 `json:"blocks"`
	// Deallocate (DEAC, bit 25) is Write Zeroes' wish to deallocate.
	Deallocate bool `json:"deallocate"`
	// Protection is PRINFO, bits 29:26; FUA bit 30; LimitedRetry (LR) bit 31.
	Protection   uint8 `json:"protection_information"`
	FUA          bool  `json:"fua"`
	LimitedRetry bool  `json:"limited_retry"`
}

// Dwords is CDW10, CDW11 and CDW12. No blocks, or more than 65536, is an error.
func (f IOFields) Dwords() (cdw10, cdw11, cdw12 uint32, err error) {
	if f.Blocks == 0 || f.Blocks > 1<<16 {
		return 0, 0, 0, fmt.Errorf("I/O command: %w: %d blocks", ErrInvalidData, f.Blocks)
	}
	return uint32(f.StartLBA), uint32(f.StartLBA >> 32), f.Blocks - 1 | uint32(bit8(f.Deallocate, 0))<<25 |
		uint32(f.Protection&15)<<26 | uint32(bit8(f.FUA, 0))<<30 | uint32(bit8(f.LimitedRetry, 0))<<31, nil
}

// DecodeIOFields reads the dwords, as a controller does.
func DecodeIOFields(cdw10, cdw11, cdw12 uint32) IOFields {
	return IOFields{StartLBA: uint64(cdw10) | uint64(cdw11)<<32, Blocks: cdw12&0xFFFF + 1, Deallocate: cdw12>>25&1 != 0,
		Protection: uint8(cdw12 >> 26 & 15), FUA: cdw12>>30&1 != 0, LimitedRetry: cdw12>>31 != 0}
}

// Attributes of Dataset Management, command dword 11.
const (
	DatasetIntegralRead  = 1 << 0
	DatasetIntegralWrite = 1 << 1
	DatasetDeallocate    = 1 << 2
)

// Offsets of one range of Dataset Management.
const (
	offDSMAttr = 0
	offDSMNLB  = 4
	offDSMSLBA = 8
	dsmRange   = 16
	// DatasetRangesMax is how many ranges one command has.
	DatasetRangesMax = 256
)

// DatasetRange is one range of Dataset Management.
type DatasetRange struct {
	// Attributes are context attributes as they stand on the wire; hints.
	Attributes uint32 `json:"attributes_raw"`
	Blocks     uint32 `json:"blocks"`
	StartLBA   uint64 `json:"start_lba"`
}

// AppendDatasetRanges appends ranges, 16 bytes each, and gives command dword 10:
// their number, zero-based. None and more than 256 are errors.
func AppendDatasetRanges(b []byte, ranges []DatasetRange) ([]byte, uint32, error) {
	if len(ranges) == 0 || len(ranges) > DatasetRangesMax {
		return b, 0, fmt.Errorf("dataset management: %w: %d ranges", ErrInvalidData, len(ranges))
	}
	for _, r := range ranges {
		var p page
		b, p = grow(b, dsmRange)
		p.put32(offDSMAttr, r.Attributes)
		p.put32(offDSMNLB, r.Blocks)
		p.put64(offDSMSLBA, r.StartLBA)
	}
	return b, uint32(len(ranges) - 1), nil
}

// DecodeDatasetRanges reads as many ranges as command dword 10 says.
func DecodeDatasetRanges(b []byte, cdw10 uint32) ([]DatasetRange, error) {
	n := int(cdw10&0xFF) + 1
	p, err := view(b, n*dsmRange, "dataset management")
	if err != nil {
		return nil, err
	}
	ranges := make([]DatasetRange, n)
	for i := range ranges {
		e := page(p.bytes(dsmRange*i, dsmRange))
		ranges[i] = DatasetRange{Attributes: e.u32(offDSMAttr), Blocks: e.u32(offDSMNLB), StartLBA: e.u64(offDSMSLBA)}
	}
	return ranges, nil
}

// Offsets of one source range of Copy, formats 0 and 2 (32 bytes, 16-bit guard)
// and 1 and 3 (40 bytes).
const (
	offCopySNSID  = 0
	offCopySLBA   = 8
	offCopyNLB    = 16
	offCopySOPT   = 22
	offCopyEILBRT = 24
	offCopyELBAT  = 28
	offCopyELBATM = 30
	copyShort     = 32
	copyLong      = 40
	offCopyELBT1  = 26
	offCopyELBAT1 = 36
	offCopyELBAM1 = 38
	copyTagBytes  = 10
	// CopyRangesMax is how many source ranges one command has.
	CopyRangesMax = 256
)

// CopyRange is one source range of Copy.
type CopyRange struct {
	// SourceNSID is the namespace copied from, in formats 2 and 3; else 0.
	SourceNSID uint32 `json:"source_nsid"`
	StartLBA   uint64 `json:"start_lba"`
	// Blocks is 1..65536; zero-based on the wire.
	Blocks uint32 `json:"blocks"`
	// Options is SOPT of formats 2 and 3, as it stands on the wire.
	Options uint16 `json:"options_raw"`
	// ReferenceTag is the expected tag: 4 bytes in formats 0 and 2, 10 in 1 and 3.
	ReferenceTag       [10]byte `json:"reference_tag"`
	ApplicationTag     uint16   `json:"application_tag"`
	ApplicationTagMask uint16   `json:"application_tag_mask"`
}

// CopyFields are command dwords 10 to 12 of Copy.
type CopyFields struct {
	// Destination is SDLBA, the first block written.
	Destination uint64 `json:"destination_lba"`
	// Ranges is how many source ranges there are, 1..256.
	Ranges uint16 `json:"ranges"`
	// Format is the descriptor format, 0..3 (and 4 for whole namespaces).
	Format       uint8 `json:"format"`
	FUA          bool  `json:"fua"`
	LimitedRetry bool  `json:"limited_retry"`
}

// Dwords is CDW10, CDW11 and CDW12.
func (f CopyFields) Dwords() (cdw10, cdw11, cdw12 uint32, err error) {
	if f.Ranges == 0 || f.Ranges > CopyRangesMax || f.Format > 15 {
		return 0, 0, 0, fmt.Errorf("copy: %w: %d ranges of format %d", ErrInvalidData, f.Ranges, f.Format)
	}
	return uint32(f.Destination), uint32(f.Destination >> 32), uint32(f.Ranges-1) | uint32(f.Format)<<8 |
		uint32(bit8(f.FUA, 0))<<30 | uint32(bit8(f.LimitedRetry, 0))<<31, nil
}

// DecodeCopyFields reads the dwords, as a controller does.
func DecodeCopyFields(cdw10, cdw11, cdw12 uint32) CopyFields {
	return CopyFields{Destination: uint64(cdw10) | uint64(cdw11)<<32, Ranges: uint16(cdw12&0xFF) + 1, Format: uint8(cdw12 >> 8 & 15),
		FUA: cdw12>>30&1 != 0, LimitedRetry: cdw12>>31 != 0}
}

// copySize is the length of one range, and whether tags are long in it.
func copySize(format uint8) (size int, long bool, err error) {
	switch format {
	case 0, 2:
		return copyShort, false, nil
	case 1, 3:
		return copyLong, true, nil
	}
	return 0, false, fmt.Errorf("copy: %w: descriptor format %d", ErrInvalidData, format)
}

// AppendCopyRanges appends source ranges in a descriptor format of 0..3.
func AppendCopyRanges(b []byte, format uint8, ranges []CopyRange) ([]byte, error) {
	size, long, err := copySize(format)
	if err != nil {
		return b, err
	}
	for _, r := range ranges {
		if r.Blocks == 0 || r.Blocks > 1<<16 || format < 2 && (r.SourceNSID != 0 || r.Options != 0) {
			return b, fmt.Errorf("copy: %w: a range of %d blocks of namespace %d in format %d", ErrInvalidData, r.Blocks, r.SourceNSID, format)
		}
		var p page
		b, p = grow(b, size)
		p.put32(offCopySNSID, r.SourceNSID)
		p.put64(offCopySLBA, r.StartLBA)
		p.put16(offCopyNLB, uint16(r.Blocks-1))
		p.put16(offCopySOPT, r.Options)
		if long {
			copy(p.bytes(offCopyELBT1, copyTagBytes), r.ReferenceTag[:])
			p.put16(offCopyELBAT1, r.ApplicationTag)
			p.put16(offCopyELBAM1, r.ApplicationTagMask)
		} else {
			copy(p.bytes(offCopyEILBRT, 4), r.ReferenceTag[:])
			p.put16(offCopyELBAT, r.ApplicationTag)
			p.put16(offCopyELBATM, r.ApplicationTagMask)
		}
	}
	return b, nil
}

// DecodeCopyRanges reads n source ranges in a descriptor format of 0..3.
func DecodeCopyRanges(b []byte, format uint8, n int) ([]CopyRange, error) {
	size, long, err := copySize(format)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > CopyRangesMax {
		return nil, fmt.Errorf("copy: %w: %d ranges", ErrInvalidData, n)
	}
	p, err := view(b, n*size, "copy")
	if err != nil {
		return nil, err
	}
	ranges := make([]CopyRange, n)
	for i := range ranges {
		e, r := page(p.bytes(size*i, size)), &ranges[i]
		r.StartLBA, r.Blocks = e.u64(offCopySLBA), uint32(e.u16(offCopyNLB))+1
		if format >= 2 {
			r.SourceNSID, r.Options = e.u32(offCopySNSID), e.u16(offCopySOPT)
		}
		if long {
			copy(r.ReferenceTag[:], e.bytes(offCopyELBT1, copyTagBytes))
			r.ApplicationTag, r.ApplicationTagMask = e.u16(offCopyELBAT1), e.u16(offCopyELBAM1)
		} else {
			copy(r.ReferenceTag[:], e.bytes(offCopyEILBRT, 4))
			r.ApplicationTag, r.ApplicationTagMask = e.u16(offCopyELBAT), e.u16(offCopyELBATM)
		}
	}
	return ranges, nil
}

// LBAStatusFields are command dwords 10 to 13 of Get LBA Status.
type LBAStatusFields struct {
	StartLBA uint64 `json:"start_lba"`
	// MaxBytes is how much to transfer, a multiple of 4; counted in dwords from 0
	// on the wire.
	MaxBytes uint32 `json:"max_bytes"`
	// Blocks is how far to look (RL), 0 to the end of the namespace.
	Blocks uint16 `json:"blocks"`
	// Action is ATYPE: 10h looks at the media, 11h reports what is known.
	Action uint8 `json:"action"`
}

// Dwords is CDW10 to CDW13.
func (f LBAStatusFields) Dwords() (d [4]uint32, err error) {
	if f.MaxBytes < 4 || f.MaxBytes%4 != 0 {
		return d, fmt.Errorf("get LBA status: %w: %d bytes", ErrInvalidData, f.MaxBytes)
	}
	return [4]uint32{uint32(f.StartLBA), uint32(f.StartLBA >> 32), f.MaxBytes/4 - 1, uint32(f.Blocks) | uint32(f.Action)<<24}, nil
}

// DecodeLBAStatusFields reads the dwords, as a controller does.
func DecodeLBAStatusFields(d [4]uint32) LBAStatusFields {
	return LBAStatusFields{StartLBA: uint64(d[0]) | uint64(d[1])<<32, MaxBytes: (d[2]&0x3FFFFFFF + 1) * 4, Blocks: uint16(d[3]), Action: uint8(d[3] >> 24)}
}

// Offsets of the LBA status descriptor list, the answer of Get LBA Status.
const (
	offLBASNLSD = 0
	offLBASCMPC = 4
	offLBASDesc = 8
	lbaStatus   = 16
	offLBADSLBA = 0
	offLBADNLB  = 8
	offLBADStat = 13
)

// LBAStatusRange is a range of blocks that may be unreadable.
type LBAStatusRange struct {
	StartLBA uint64 `json:"start_lba"`
	Blocks   uint32 `json:"blocks"`
	// Status is the additional status as it stands on the wire.
	Status uint8 `json:"status_raw"`
}

// LBAStatusList is the answer of Get LBA Status.
type LBAStatusList struct {
	// Completion is CMPC: 1 the list is full, 2 the range is done.
	Completion uint8            `json:"completion"`
	Ranges     []LBAStatusRange `json:"ranges"`
	// Announced is how many ranges the drive says there are; more than Ranges
	// where the buffer was too small.
	Announced uint32 `json:"announced"`
}

// DecodeLBAStatusList reads as many ranges as both the list and b have.
func DecodeLBAStatusList(b []byte) (LBAStatusList, error) {
	p, err := view(b, max(offLBASDesc, len(b)), "LBA status")
	if err != nil {
		return LBAStatusList{}, err
	}
	l := LBAStatusList{Completion: p.u8(offLBASCMPC) & 7, Announced: p.u32(offLBASNLSD), Ranges: []LBAStatusRange{}}
	for i := range min(uint64(l.Announced), uint64(len(p)-offLBASDesc)/lbaStatus) {
		e := page(p.bytes(offLBASDesc+lbaStatus*int(i), lbaStatus))
		l.Ranges = append(l.Ranges, LBAStatusRange{StartLBA: e.u64(offLBADSLBA), Blocks: e.u32(offLBADNLB), Status: e.u8(offLBADStat)})
	}
	return l, nil
}

// Append appends the list, 8 bytes and 16 a range.
func (l LBAStatusList) Append(b []byte) []byte {
	b, p := grow(b, offLBASDesc+lbaStatus*len(l.Ranges))
	p.put32(offLBASNLSD, l.Announced)
	p.put8(offLBASCMPC, l.Completion&7)
	for i, r := range l.Ranges {
		e := page(p.bytes(offLBASDesc+lbaStatus*i, lbaStatus))
		e.put64(offLBADSLBA, r.StartLBA)
		e.put32(offLBADNLB, r.Blocks)
		e.put8(offLBADStat, r.Status)
	}
	return b
}

// Offsets of the Host Behavior Support feature (16h).
const (
	offHostACRE   = 0
	offHostETDAS  = 1
	offHostLBAFEE = 2
	offHostHDISNS = 3
	offHostCDFE   = 4
	// HostBehaviorSize is the length of the feature's data.
	HostBehaviorSize = 512
)

// HostBehavior is the Host Behavior Support feature (16h): what the host says it
// can cope with.
type HostBehavior struct {
	// AdvancedRetry (ACRE): command retry delays may be used.
	AdvancedRetry bool `json:"advanced_command_retry"`
	// ExtendedTelemetry (ETDAS): telemetry data area 4 is wanted.
	ExtendedTelemetry bool `json:"extended_telemetry_data_area_4"`
	// ExtendedLBAFormats (LBAFEE): formats above 15 and other guards may be used.
	ExtendedLBAFormats bool `json:"extended_lba_formats"`
	// DispersedNamespaces (HDISNS).
	DispersedNamespaces bool `json:"dispersed_namespaces"`
	// CopyFormats (CDFE) are the copy descriptor formats that may be used, one bit
	// a format from 2 on.
	CopyFormats uint16 `json:"copy_formats_raw"`
}

// DecodeHostBehavior reads the 512 bytes.
func DecodeHostBehavior(b []byte) (HostBehavior, error) {
	p, err := view(b, HostBehaviorSize, "host behavior support")
	if err != nil {
		return HostBehavior{}, err
	}
	return HostBehavior{AdvancedRetry: p.u8(offHostACRE)&1 != 0, ExtendedTelemetry: p.u8(offHostETDAS)&1 != 0,
		ExtendedLBAFormats: p.u8(offHostLBAFEE)&1 != 0, DispersedNamespaces: p.u8(offHostHDISNS)&1 != 0, CopyFormats: p.u16(offHostCDFE)}, nil
}

// Append appends the 512 bytes.
func (h HostBehavior) Append(b []byte) []byte {
	b, p := grow(b, HostBehaviorSize)
	p.put8(offHostACRE, bit8(h.AdvancedRetry, 0))
	p.put8(offHostETDAS, bit8(h.ExtendedTelemetry, 0))
	p.put8(offHostLBAFEE, bit8(h.ExtendedLBAFormats, 0))
	p.put8(offHostHDISNS, bit8(h.DispersedNamespaces, 0))
	p.put16(offHostCDFE, h.CopyFormats)
	return b
}
